#!/usr/bin/env python3
"""demo.py: the main job through the public port, step by step, each checked: POST a run, watch it live, read its end, list and fetch what
it made. Called by demo.sh with the settings of var/dev.env in the environment and the tree as the working folder."""
import base64
import json
import os
import sys
import time
import urllib.parse

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(TOP, "tests", "lib"))
import cordon as c  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
RUNS = c.BASE + "/runs"
COLOUR = sys.stdout.isatty() and os.environ.get("NO_COLOR") is None and os.environ.get("TERM") != "dumb"
CURL = 'curl -sS --cacert "$CORDON_CA" -H "X-API-KEY: $CORDON_API_KEY"'


class Wrong(Exception):
    pass


def paint(code, text):
    return "\033[%sm%s\033[0m" % (code, text) if COLOUR else text


def step(text):
    print(paint("1", text), flush=True)


def show(text):
    print("   " + text, flush=True)


def expect(what, got, wanted):
    if got != wanted:
        raise Wrong("%s: got %r, expected %r" % (what, got, wanted))


def expect_true(what, value):
    if not value:
        raise Wrong("%s is not as expected: %r" % (what, value))


def call(method, path, **more):
    try:
        return c.request(method, path, timeout=30, **more)
    except OSError as error:
        raise Wrong("%s %s: the server cannot be reached: %s" % (method, path, error)) from error


def read(name):
    with open(os.path.join(HERE, name), "rb") as file:
        return file.read()


def request_body():
    files = [{"path": name, "content_b64": base64.b64encode(read(name)).decode()} for name in ("job.py", "data.csv")]
    return {"spec_version": "1.0", "runtime": "namespace", "base_image": "host", "command": ["python3", "job.py"], "files": files,
            "capture_patterns": ["out/*"], "timeout_sec": 30}


def post(body):
    step("1  POST %s with Prefer: respond-async" % RUNS)
    start = time.monotonic()
    answer = call("POST", RUNS, body=body, headers={"Prefer": "respond-async"})
    if answer.status != 200:
        raise Wrong("POST /runs was answered %d: %s" % (answer.status, answer.body.decode(errors="replace")))
    run = answer.json()
    show("run %s is %s after %.0f ms" % (run["id"], run["phase"], (time.monotonic() - start) * 1000))
    show("log_stream_url %s" % run["log_stream_url"])
    expect_true("the phase of a run just posted", run["phase"] in ("queued", "starting", "running"))
    return run


def open_stream(url):
    parts = urllib.parse.urlsplit(url)
    expect("scheme and host of log_stream_url", (parts.scheme, parts.hostname, parts.port), ("wss", c.HOST, c.PORT))
    try:
        return c.WebSocket(parts.path + ("?" + parts.query if parts.query else ""), timeout=20)
    except c.Refused as no:
        raise Wrong("the stream was refused: %s" % no) from no


class Progress:
    """One line that is written over on a terminal; nothing elsewhere."""

    def __init__(self):
        self.start = time.monotonic()
        self.lines = self.bytes = 0

    def update(self, frame):
        if frame["type"] in ("stdout", "stderr"):
            data = c.data_of(frame)
            self.lines += data.count(b"\n")
            self.bytes += len(data)

    def text(self):
        return "%4.1f s, %d lines, %d bytes" % (time.monotonic() - self.start, self.lines, self.bytes)

    def draw(self):
        if COLOUR:
            print("\r\033[K   watching: %s" % self.text(), end="", flush=True)

    def wipe(self):
        if COLOUR:
            print("\r\033[K", end="")


def watch(run):
    step("2  attach to the stream and watch")
    ws = open_stream(run["log_stream_url"])
    frames, at = [], []
    progress = Progress()
    try:
        while (frame := ws.frame()) is not None:
            frames.append(frame)
            at.append(time.monotonic())
            progress.update(frame)
            progress.wipe()
            if frame["type"] in ("stdout", "stderr"):
                colour = "36" if frame["type"] == "stdout" else "33"
                for text in c.data_of(frame).decode(errors="replace").splitlines():
                    show("%5.2f s  %s  %s" % (at[-1] - progress.start, paint(colour, frame["type"]), text))
            progress.draw()
    except OSError as error:
        raise Wrong("the stream broke off: %s" % error) from error
    finally:
        ws.close()
        progress.wipe()
    show("end: %s; %d frames, close code %d" % (progress.text(), len(frames), ws.close_code))
    check_frames(frames, at, ws.close_code)


def check_frames(frames, at, close_code):
    expect("close code", close_code, 1000)
    expect("sequence numbers", [frame["seq"] for frame in frames], list(range(1, len(frames) + 1)))
    expect("first frame", frames[0].get("event"), "start")
    expect("last frame", (frames[-1].get("event"), frames[-1].get("data")), ("end", {"exit_code": 0}))
    expect_true("stdout", b"read 24 rows" in c.output(frames, "stdout") and b"busiest hour: 15:00" in c.output(frames, "stdout"))
    expect_true("stderr", b"wrote out/report.csv" in c.output(frames, "stderr"))
    texts = [when for when, frame in zip(at, frames) if frame["type"] in ("stdout", "stderr")]
    expect_true("output that comes while the program runs (first to last: %.2f s)" % (texts[-1] - texts[0]), texts[-1] - texts[0] > 1)


def status(run_id):
    step("3  GET %s/{id}" % RUNS)
    answer = call("GET", "%s/%s" % (RUNS, run_id))
    expect("status of GET", answer.status, 200)
    run = answer.json()
    usage = run["resource_usage"]
    show("%s, %s, exit code %s, reason %s" % (run["phase"], run["message"], run["exit_code"], run["status_reason_code"]))
    show("%d ms wall, %d ms cpu, peak %d MiB, %d bytes of output, %d bytes of artifacts" % (
        usage["wall_time_ms"], usage["cpu_time_ms"], usage["peak_rss_mb"], usage["log_bytes"], usage["artifact_bytes"]))
    expect("phase, exit code and reason", (run["phase"], run["exit_code"], run["status_reason_code"]), ("completed", 0, "completed"))


def artifacts(run_id):
    step("4  GET %s/{id}/artifacts" % RUNS)
    answer = call("GET", "%s/%s/artifacts" % (RUNS, run_id))
    expect("status of the list", answer.status, 200)
    items = answer.json()["items"]
    for item in items:
        show("%8d  %s" % (item["size"], item["path"]))
    expect("names of the artifacts", [item["path"] for item in items], ["out/plot.png", "out/report.csv"])
    return {item["path"]: item for item in items}


def fetch(items):
    step("5  fetch: five bytes by Range, then the whole picture")
    part = call("GET", items["out/report.csv"]["download_url"], headers={"Range": "bytes=0-4"})
    show("%d, Content-Range: %s, %r" % (part.status, part.header("Content-Range"), part.body))
    expect("the range", (part.status, part.header("Content-Range"), part.body),
           (206, "bytes 0-4/%d" % items["out/report.csv"]["size"], b"hour,"))
    whole = call("GET", items["out/plot.png"]["download_url"])
    expect("status and size of the picture", (whole.status, len(whole.body)), (200, items["out/plot.png"]["size"]))
    expect("type and first bytes of the picture", (whole.header("Content-Type"), whole.body[:8]), ("image/png", b"\x89PNG\r\n\x1a\n"))
    path = os.path.join("var", "demo", "plot.png")
    with open(path, "wb") as file:
        file.write(whole.body)
    show("saved %s, a plot of the data with the mean of five hours" % os.path.join(TOP, path))


def repeat(run_id):
    build = os.environ.get("CORDON_BUILD", "build")
    step("To repeat each step by hand:")
    for line in (
            "cd %s && set -a && . var/dev.env && set +a" % TOP,
            CURL + ' -H "Prefer: respond-async" --json @var/demo/request.json "$CORDON_URL%s"; echo' % RUNS,
            "ID=%s   # or the id of the answer" % run_id,
            "%s/bin/cordonctl logs -f $ID   # the stream; curl has no WebSocket" % build,
            CURL + ' "$CORDON_URL%s/$ID"; echo' % RUNS,
            CURL + ' "$CORDON_URL%s/$ID/artifacts"; echo' % RUNS,
            CURL + ' -r 0-4 "$CORDON_URL%s/$ID/artifacts/out/report.csv"; echo' % RUNS,
            CURL + ' -o plot.png "$CORDON_URL%s/$ID/artifacts/out/plot.png"' % RUNS):
        show(line)
    print("The server stays up: %s (docs/quick-start.md goes on from here; make down stops it)" % c.URL)


def main():
    start = time.monotonic()
    body = request_body()
    with open(os.path.join("var", "demo", "request.json"), "w") as file:
        json.dump(body, file, indent=1)
    try:
        run = post(body)
        watch(run)
        status(run["id"])
        fetch(artifacts(run["id"]))
    except (Wrong, KeyError, ValueError, IndexError) as wrong:
        print("demo: FAILED: %s%s" % ("" if isinstance(wrong, Wrong) else "unexpected answer: %r " % wrong,
                                      wrong if isinstance(wrong, Wrong) else ""), file=sys.stderr)
        print("demo: the logs are in %s" % os.path.join(TOP, "var", "log"), file=sys.stderr)
        return 1
    print(paint("32", "All steps as expected, in %.1f s." % (time.monotonic() - start)) + "\n")
    repeat(run["id"])
    return 0


sys.exit(main())
