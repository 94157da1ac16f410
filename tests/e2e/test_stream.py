#!/usr/bin/env python3
"""test_stream: the WebSocket of face 1: replay, live tail, heartbeats, refusals, quotas, close codes, and what a reload or a restart in
the middle does to it."""
import os
import signal
import socket
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import check  # noqa: E402
import cordon as c  # noqa: E402

RUNS = c.BASE + "/runs"
TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def ctl(*words):
    build = os.environ.get("CORDON_BUILD", "build")
    return subprocess.run([os.path.join(TOP, build, "bin", "cordonctl"), "--policy", c.POLICY, *words], capture_output=True,
                          text=True, check=True, timeout=60)


def refused(*args, **more):
    try:
        c.WebSocket(*args, **more).close()
    except c.Refused as no:
        return no.answer
    raise AssertionError("the handshake was accepted")


@check.test
def headers_of_a_handshake():
    run = c.run(["true"])
    path = f"{c.BASE}/runs/{run['id']}/stream"
    for more in ({"Sec-WebSocket-Protocol": "foo, bar"}, {"Accept-Language": "x" * 7000}, {"Cookie": "a=b"}):
        with_more = c.WebSocket(path, headers=more)
        with_more.close()
    for more in ({"Sec-WebSocket-Version": "8"}, {"Sec-WebSocket-Key": "x"}, {"Sec-WebSocket-Key": "x" * 5000}):
        answer = c.request("GET", path, headers={"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
                                                 "Sec-WebSocket-Key": "d2Fsa2luZyBhbG9uZyBpdA==", **more})
        check.equal((answer.status, answer.json()["error"]["code"]), (426, "upgrade_required"), str(more)[:60])


def counting(n, gap):
    return ["python3", "-u", "-c", f"import time\nfor i in range({n}):\n print(i); time.sleep({gap})"]


@check.test
def live_output_comes_while_it_is_printed():
    run = c.run(counting(5, 0.3), wait=False)
    ws = c.WebSocket(c.stream_path(run["id"]))
    start = time.monotonic()
    at = []
    frames = []
    while (frame := ws.frame()) is not None:
        frames.append(frame)
        if frame["type"] == "stdout":
            at.append(time.monotonic() - start)
    check.equal(ws.close_code, 1000)
    c.check_sequence(frames)
    check.true(at[-1] - at[0] > 0.8, at)


@check.test
def replay_is_complete_and_the_same():
    run = c.run(counting(300, 0))
    first, _ = c.follow(run["id"])
    second, _ = c.follow(run["id"])
    check.equal(first, second)
    check.equal(c.output(first, "stdout"), b"".join(b"%d\n" % i for i in range(300)))
    check.equal(first[0]["seq"], 1)
    c.check_sequence(first)


@check.test
def from_seq_is_inclusive():
    run = c.run(["python3", "-u", "-c", "import time\nfor i in range(6):\n print(i); time.sleep(0.02)"])
    whole, _ = c.follow(run["id"])
    for seq in (1, 3, len(whole)):
        frames, code = c.follow(run["id"], from_seq=seq)
        check.equal((frames, code), (whole[seq - 1:], 1000), seq)
    for odd in ("0", "-5", "x", ""):
        frames, _ = c.follow(run["id"], from_seq=odd)
        check.equal(frames, whole, odd)
    frames, _ = c.follow(run["id"], from_seq=len(whole) + 100)
    check.equal([f["type"] for f in frames], ["event"])


@check.test
def all_subscribers_see_the_same_numbers():
    run = c.run(counting(40, 0.02), wait=False)
    seen = c.many(6, 6, lambda i: (time.sleep(i * 0.1), c.follow(run["id"])[0])[1])
    for frames in seen:
        check.equal(frames, seen[0])
    c.check_sequence(seen[0])


@check.test
def a_slow_reader_never_slows_another():
    """One reads nothing while the run prints 8 MiB; others have all of it in the meantime, and so has he when he reads."""
    lines = 131072
    run = c.run(["python3", "-c", f"import sys; [sys.stdout.write('%063d\\n' % i) for i in range({lines})]"], wait=False)
    slow = c.WebSocket(c.stream_path(run["id"]))
    begun = time.monotonic()
    seen = c.many(3, 3, lambda i: c.follow(run["id"]))
    took = time.monotonic() - begun
    check.equal([code for _, code in seen], [1000] * 3)
    for frames, _ in seen:
        c.check_sequence(frames)
        check.equal(frames, seen[0][0])
    check.equal(c.output(seen[0][0], "stdout"), b"".join(b"%063d\n" % i for i in range(lines)))
    late = []
    while (frame := slow.frame()) is not None:
        late.append(frame)
    check.equal((late == seen[0][0], slow.close_code), (True, 1000))
    check.true(took < 30, took)


@check.test
def heartbeats_keep_a_silent_stream_alive():
    run = c.run(["sleep", "11"], wait=False)
    frames, code = c.follow(run["id"])
    beats = [f for f in frames if f["type"] == "heartbeat"]
    check.equal(len(beats), 1)
    c.check_sequence(frames)
    check.equal(code, 1000)


@check.test
def a_run_that_never_ran_has_one_frame():
    run = c.run(["sleep", "30"], wait=False, headers={"Prefer": "respond-async"})
    c.request("POST", f"{RUNS}/{run['id']}/cancel")
    frames, _ = c.follow(run["id"])
    check.equal(frames[-1]["data"]["canceled"], True)
    c.check_sequence(frames)


@check.test
def refusals():
    run = c.run(["true"])
    path = c.stream_path(run["id"])
    for answer, status, code in (
            (refused(path, key=None), 401, 4401), (refused(path, key="x"), 401, 4401), (refused(path, key=c.OTHER), 404, 4404),
            (refused(path, key=c.ADMIN), 404, 4404), (refused(c.stream_path("01900000-0000-7000-8000-000000000000")), 404, 4404)):
        check.equal((answer.status, answer.json()["error"]["details"]["close_code"]), (status, code))
    check.equal((c.request("GET", path).status, c.request("GET", path).header("Upgrade")), (426, "websocket"))
    plain = subprocess.run(["curl", "-s", "--http2", "-o", "/dev/null", "-w", "%{http_version} %{http_code}", "--cacert", c.CA, "-H",
                            "X-API-KEY: " + c.KEY, c.URL + path], capture_output=True, text=True, timeout=20)
    check.equal((plain.returncode, plain.stdout), (0, "2 426"))
    for query in ("auth_token=", "token="):
        ws = c.WebSocket(c.stream_path(run["id"], query=query + c.KEY), key=None)
        check.equal(ws.frame()["event"], "start")
        ws.close()
    ws = c.WebSocket(path, key=None, headers={"Authorization": "Bearer " + c.KEY})
    check.equal(ws.frame()["event"], "start")
    ws.close()


@check.test
def client_frames_are_ignored():
    run = c.run(counting(3, 0.3), wait=False)
    ws = c.WebSocket(c.stream_path(run["id"]))
    for text in ('{"type":"stdin","data":"x"}', "nonsense", "x" * 70000, "\u00e9"):
        ws.send(text)
    ws.send(b"\x00\xff", 2)
    frames = []
    while (frame := ws.frame()) is not None:
        frames.append(frame)
    c.check_sequence(frames)
    check.equal(c.output(frames, "stdout"), b"0\n1\n2\n")


@check.test
def connection_quota_of_a_run():
    run = c.run(["sleep", "20"], wait=False)
    c.wait_phase(run["id"], ["running", "starting"])
    open_ones = [c.WebSocket(c.stream_path(run["id"])) for _ in range(8)]
    answer = refused(c.stream_path(run["id"]))
    details = answer.json()["error"]["details"]
    check.equal((answer.status, answer.json()["error"]["code"], details["close_code"], details["limit"]),
                (429, "connection_quota", 4429, 8))
    open_ones.pop().close()

    def room():
        try:
            open_ones.append(c.WebSocket(c.stream_path(run["id"])))
            return True
        except c.Refused:
            return False

    check.wait_for(room, 5, "a slot after a stream was closed")
    for ws in open_ones:
        ws.close()
    c.request("POST", f"{RUNS}/{run['id']}/cancel")


@check.test
def B19_a_revoked_key_closes_its_streams():
    made = __import__("json").loads(ctl("key", "create", "--tenant", "dev", "--user", "shortlived", "--json").stdout)
    run = c.run(["sleep", "30"], wait=False, key=made["key"])
    ws = c.WebSocket(c.stream_path(run["id"]), key=made["key"], timeout=10)
    check.equal(ws.frame()["event"], "start")
    start = time.monotonic()
    ctl("key", "revoke", made["id"])
    check.equal(c.request("GET", RUNS, key=made["key"]).status, 401)
    while ws.frame() is not None:
        pass
    check.equal(ws.close_code, 4401)
    check.true(time.monotonic() - start < 3, time.monotonic() - start)
    c.request("POST", f"{RUNS}/{run['id']}/cancel", key=c.ADMIN)


@check.test
def nginx_reload_keeps_streams_and_holds():
    run = c.run(counting(15, 0.1), wait=False)
    ws = c.WebSocket(c.stream_path(run["id"]))
    check.equal(ws.frame()["event"], "start")
    import threading
    answers = []
    thread = threading.Thread(target=lambda: answers.append(c.run(["sleep", "1"])))
    thread.start()
    time.sleep(0.3)
    os.kill(c.program_pid("nginx"), signal.SIGHUP)
    frames = [{"seq": 1, "type": "event", "event": "start"}]
    while (frame := ws.frame()) is not None:
        frames.append(frame)
    c.check_sequence(frames)
    check.equal(ws.close_code, 1000)
    thread.join()
    check.equal(answers[0]["phase"], "completed")


@check.test
def fcgi_reload_loses_no_request():
    import threading
    stop = threading.Event()
    statuses = []

    def ask():
        while not stop.is_set():
            statuses.append(c.request("GET", RUNS + "?limit=1").status)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        time.sleep(0.3)
        os.kill(c.program_pid("cordon-fcgi"), signal.SIGHUP)
    time.sleep(0.6)
    stop.set()
    for thread in threads:
        thread.join()
    check.equal(set(statuses), {200})
    check.true(len(statuses) > 50, len(statuses))


def fcgi_record(kind, body):
    return struct.pack(">BBHHBB", 1, kind, 1, len(body), 0, 0) + body


@check.test
def fcgi_stop_between_accept_and_first_bytes():
    """A worker that is told to stop after it took a connection, before the first bytes, serves it (libfcgi drops it when a signal
    interrupts its wait)."""
    run = os.path.join("/run/cordon-dev", os.path.basename(os.path.realpath(os.path.dirname(c.DATA_DIR))))
    names = {"REQUEST_METHOD": "GET", "REQUEST_URI": c.BASE + "/health/public", "DOCUMENT_URI": c.BASE + "/health/public",
             "SCRIPT_NAME": c.BASE + "/health/public", "QUERY_STRING": "", "REQUEST_ID": "0" * 32, "CORDON_REQUEST_ID": "0" * 32}
    params = b"".join(bytes([len(k), len(v)]) + (k + v).encode() for k, v in names.items())
    for _ in range(5):
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(10)
            peer.connect(os.path.join(run, "web/fcgi.sock"))
            time.sleep(0.1)
            os.kill(c.program_pid("cordon-fcgi"), signal.SIGHUP)
            time.sleep(0.3)
            peer.sendall(fcgi_record(1, struct.pack(">HB5x", 1, 0)) + fcgi_record(4, params) + fcgi_record(4, b"") + fcgi_record(5, b""))
            answer = b""
            while chunk := peer.recv(65536):
                answer += chunk
        check.true(b"Status: " in answer, answer)


def log_of(run):
    return os.path.join(c.DATA_DIR, "spool", run["id"][-2:], run["id"], "log")


@check.test
def end_never_comes_before_the_records():
    """A log that has less than the run's row says: looked at again for 2 s, then 1011 and no end."""
    run = c.run(["sh", "-c", "echo one; echo two >&2; exit 4"])
    path = log_of(run)
    with open(path, "rb") as file:
        whole = file.read()
    os.truncate(path, len(whole) - 3)
    begun = time.monotonic()
    frames, code = c.follow(run["id"])
    check.true(1.5 < time.monotonic() - begun < 4, time.monotonic() - begun)
    check.equal((code, [f["seq"] for f in frames if f.get("event") == "end"]), (1011, []))
    check.true(len(frames) >= 1, frames)
    ws = c.WebSocket(c.stream_path(run["id"]))
    got = [ws.frame() for _ in frames]
    check.equal(got, frames)
    with open(path, "r+b") as file:
        file.write(whole)
    while (frame := ws.frame()) is not None:
        got.append(frame)
    ws.close()
    c.check_sequence(got)
    check.equal((ws.close_code, c.output(got, "stdout"), c.output(got, "stderr")), (1000, b"one\n", b"two\n"))


@check.test
def log_that_retention_removed_has_its_end():
    run = c.run(["sh", "-c", "echo one; exit 4"])
    os.unlink(log_of(run))
    begun = time.monotonic()
    frames, code = c.follow(run["id"])
    check.equal((code, [f.get("event") for f in frames], frames[0]["data"]["exit_code"]), (1000, ["end"], 4))
    check.true(time.monotonic() - begun < 2)


@check.test
def gate_restart_in_the_middle():
    import threading
    run = c.run(counting(20, 0.1), wait=False)
    ws = c.WebSocket(c.stream_path(run["id"]))
    got = [ws.frame()]
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(c.run(["sleep", "2"]))) for _ in range(5)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    os.kill(c.program_pid("cordon-gate"), signal.SIGTERM)
    try:
        while (frame := ws.frame()) is not None:
            got.append(frame)
    except ConnectionError:
        pass
    check.equal(ws.close_code, 1012)
    rest, code = c.follow(run["id"], from_seq=got[-1]["seq"] + 1)
    c.check_sequence(got + rest)
    check.equal((code, c.output(got + rest, "stdout")), (1000, b"".join(b"%d\n" % i for i in range(20))))
    for thread in threads:
        thread.join()
    check.equal([a["phase"] for a in answers], ["completed"] * 5)


@check.test
def gate_killed_in_the_middle():
    import threading
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(c.run(["sleep", "2"]))) for _ in range(5)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    os.kill(c.program_pid("cordon-gate"), signal.SIGKILL)
    for thread in threads:
        thread.join()
    check.equal([a["phase"] for a in answers], ["completed"] * 5)


check.main()
