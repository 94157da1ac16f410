#!/usr/bin/env python3
"""test_stdin: interactive runs: input over the WebSocket, its four limits and what each says, commands that do not read, and what a
restart of gate or runner does to it."""
import base64
import json
import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import check  # noqa: E402
import cordon as c  # noqa: E402

RUNS = c.BASE + "/runs"


def start(command, **more):
    return c.run(command, interactive=True, spec_version="1.1", **more)


def typed(ws, data, encoding=None):
    frame = {"type": "stdin", "data": data}
    if encoding:
        frame["encoding"] = encoding
    ws.send(json.dumps(frame))


def until(ws, what):
    """Frames up to the first that what() accepts, or to the close."""
    frames = []
    while (frame := ws.frame()) is not None:
        frames.append(frame)
        if what(frame):
            break
    return frames


def rest(ws):
    return until(ws, lambda frame: False)


def has_out(text):
    return lambda frame: frame["type"] == "stdout" and text in c.data_of(frame)


def cancel(run):
    c.request("POST", f"{RUNS}/{run['id']}/cancel")


def reasons(frames):
    return [f["reason"] for f in frames if f["type"] == "truncated"]


@check.test
def the_answer_comes_when_it_runs_and_input_arrives():
    begun = time.monotonic()
    run = start(["sh", "-c", "echo ready; read a; echo \"got $a\"; read b; echo \"and $b\"; exit 5"])
    check.equal((run["phase"], run["exit_code"]), ("running", None))
    check.true(time.monotonic() - begun < 5)
    ws = c.WebSocket(c.stream_path(run["id"]))
    until(ws, has_out(b"ready"))
    typed(ws, "h\u00e9llo\n")
    until(ws, has_out("got h\u00e9llo\n".encode()))
    typed(ws, base64.b64encode(b"b\n").decode(), "base64")
    frames = rest(ws)
    check.equal((c.output(frames, "stdout"), ws.close_code, frames[-1]["data"]), (b"and b\n", 1000, {"exit_code": 5}))
    check.equal(c.wait_run(run["id"])["phase"], "failed")


@check.test
def what_is_no_input_is_ignored():
    run = start(["sh", "-c", "read a; echo \"got $a\""])
    ws = c.WebSocket(c.stream_path(run["id"]))
    for text in ("nonsense", "[]", "{}", '{"type":"stdin"}', '{"type":"stdin","data":1}', '{"type":"stdin","data":"x\\n","encoding":"hex"}',
                 '{"type":"stdin","data":"!!!!","encoding":"base64"}', '{"type":"other","data":"x\\n"}', '{"type":"stdin","data":""}',
                 '{"type":"stdin","data":"x\\n","encoding":7}'):
        ws.send(text)
    ws.send(b'{"type":"stdin","data":"x\\n"}', 2)
    typed(ws, "end\n", "utf8")
    check.equal(c.output(rest(ws), "stdout"), b"got end\n")


@check.test
def bytes_arrive_untouched():
    data = bytes(range(256)) * 400
    run = start(["sh", "-c", f"head -c {len(data)} | sha256sum"])
    ws = c.WebSocket(c.stream_path(run["id"]))
    for at in range(0, len(data), 30000):
        typed(ws, base64.b64encode(data[at:at + 30000]).decode(), "base64")
    check.has(c.output(rest(ws), "stdout").decode(), c.sha(data))


@check.test
def B10_not_interactive_is_the_end_of_file_at_once():
    check.equal((lambda r: (r["phase"], r["exit_code"]))(c.run(["cat"])), ("completed", 0))
    run = c.run(["python3", "-c", "input()"])
    check.equal((run["phase"], run["exit_code"]), ("failed", 1))
    run = c.run(["sh", "-c", "cat; echo $?; sleep 1"], wait=False)
    ws = c.WebSocket(c.stream_path(run["id"]))
    typed(ws, "dropped\n")
    ws.send('{"type":"stdin","data":"' + "x" * 400000 + '"}')
    frames = rest(ws)
    check.equal((c.output(frames, "stdout"), reasons(frames), ws.close_code), (b"0\n", [], 1000))


@check.test
def B10_a_command_that_closed_its_input_harms_nobody():
    run = start(["sh", "-c", "exec 0<&-; echo closed; sleep 2; echo lives"], stdin_max_frame_bytes=2048)
    ws = c.WebSocket(c.stream_path(run["id"]))
    until(ws, has_out(b"closed"))
    for _ in range(512):
        typed(ws, "x" * 2049)
    frames = rest(ws)
    check.equal((c.output(frames, "stdout"), set(reasons(frames)), ws.close_code), (b"lives\n", {"stdin_frame_cap"}, 1000))
    check.equal(len(reasons(frames)), 512)
    check.equal(c.wait_run(run["id"])["exit_code"], 0)
    check.equal(c.run(["true"])["exit_code"], 0)


@check.test
def B10_input_after_the_end_is_dropped():
    run = start(["sh", "-c", "read a; echo done"])
    ws = c.WebSocket(c.stream_path(run["id"]))
    typed(ws, "x\n")
    until(ws, lambda f: f.get("event") == "end")
    try:
        for _ in range(50):
            typed(ws, "late\n")
    except OSError:
        pass
    late = c.WebSocket(c.stream_path(run["id"]))
    typed(late, "later\n")
    check.equal((c.output(rest(late), "stdout"), late.close_code), (b"done\n", 1000))


@check.test
def frame_cap_takes_the_prefix():
    run = start(["cat"], stdin_max_frame_bytes=4)
    ws = c.WebSocket(c.stream_path(run["id"]))
    other = c.WebSocket(c.stream_path(run["id"]))
    typed(ws, "abcdef")
    typed(ws, "\n")
    frames = until(ws, has_out(b"\n"))
    check.equal((c.output(frames, "stdout"), reasons(frames)), (b"abcd\n", ["stdin_frame_cap"]))
    check.equal(until(other, has_out(b"\n")), frames)
    # a frame of many records is one frame
    typed(ws, "y" * 100000)
    typed(ws, "\n")
    frames = until(ws, has_out(b"\n"))
    check.equal((c.output(frames, "stdout"), reasons(frames)), (b"yyyy\n", ["stdin_frame_cap"]))
    cancel(run)


@check.test
def total_cap_counts_all_connections():
    run = start(["cat"], stdin_max_bytes=10)
    first, second = c.WebSocket(c.stream_path(run["id"])), c.WebSocket(c.stream_path(run["id"]))
    typed(first, "12345\n")
    until(first, has_out(b"12345\n"))
    typed(second, "abcdef")
    frames = until(second, has_out(b"abcd"))
    check.equal(reasons(frames) or reasons(until(second, lambda f: f["type"] == "truncated")), ["stdin_cap"])
    typed(first, "more")
    check.equal(reasons(until(first, lambda f: f["type"] == "truncated" and f["seq"] > frames[-1]["seq"])), ["stdin_cap", "stdin_cap"])
    cancel(run)
    check.equal(c.output(rest(first), "stdout"), b"")


@check.test
def rate_cap_drops_the_excess():
    run = start(["cat"], stdin_bps=1000)
    ws = c.WebSocket(c.stream_path(run["id"]))
    typed(ws, "a" * 1500)
    frames = until(ws, lambda f: f["type"] == "truncated")
    check.equal(reasons(frames), ["stdin_rate"])
    time.sleep(1.1)
    typed(ws, "b" * 999 + "\n")
    frames += until(ws, has_out(b"\n"))
    got = c.output(frames, "stdout")
    check.true(1000 <= got.count(b"a") < 1100 and got.endswith(b"b" * 999 + b"\n"), len(got))
    cancel(run)
    run = start(["cat"], stdin_bps=0)
    ws = c.WebSocket(c.stream_path(run["id"]))
    typed(ws, "x")
    check.equal(reasons(until(ws, lambda f: f["type"] == "truncated")), ["stdin_rate"])
    cancel(run)


@check.test
def B10_idle_closes_the_sockets_and_not_the_command():
    run = start(["sh", "-c", "read a; echo \"got $a\"; sleep 3; read b; echo \"got $b\""], stdin_idle_timeout_sec=1)
    ws, other = c.WebSocket(c.stream_path(run["id"])), c.WebSocket(c.stream_path(run["id"]))
    time.sleep(0.7)
    typed(ws, "one\n")
    begun = time.monotonic()
    frames = rest(ws)
    check.true(0.7 < time.monotonic() - begun < 2.5, time.monotonic() - begun)
    check.equal((ws.close_code, reasons(frames), frames[-1]["reason"]), (1000, ["stdin_idle"], "stdin_idle"))
    check.equal((rest(other), other.close_code), (frames, 1000))
    check.equal(c.get_run(run["id"])["phase"], "running")
    # a socket that comes later sees all of it, and may go on typing
    late = c.WebSocket(c.stream_path(run["id"]))
    typed(late, "two\n")
    more = rest(late)
    check.equal((late.close_code, more[:len(frames)]), (1000, frames))
    if more[-1].get("event") != "end":
        again = c.WebSocket(c.stream_path(run["id"], from_seq=more[-1]["seq"] + 1))
        more += rest(again)
    c.check_sequence(more)
    check.equal(c.output(more, "stdout"), b"got one\ngot two\n")


def gate_kib():
    with open(f"/proc/{c.program_pid('cordon-gate')}/status") as file:
        return int(next(line for line in file if line.startswith("VmRSS:")).split()[1])


@check.test
def a_command_that_does_not_read_stops_its_client_only():
    """The client is not read any more, others are, and nothing is lost when the command reads again."""
    total = 24 << 20  # more than the sockets on the way hold
    run = start(["sh", "-c", "echo ready; sleep 4; head -c %d | sha256sum" % total])
    ws = c.WebSocket(c.stream_path(run["id"]), timeout=2)
    until(ws, has_out(b"ready"))
    line = ("z" * 65535 + "\n")
    begun, slowest, sent, memory = time.monotonic(), 0, 0, gate_kib()
    ws.sock.settimeout(20)
    while sent < total:
        before = time.monotonic()
        typed(ws, line)
        slowest = max(slowest, time.monotonic() - before)
        sent += len(line)
        if sent == len(line):
            quick = start(["sh", "-c", "read a; echo \"got $a\""])
            other = c.WebSocket(c.stream_path(quick["id"]))
            typed(other, "x\n")
            check.equal(c.output(rest(other), "stdout"), b"got x\n")
    # the address sanitizer keeps what was freed
    if "address" not in os.environ.get("CORDON_BUILD", ""):
        check.true(gate_kib() - memory < 8192, (memory, gate_kib()))
    check.true(slowest > 1, f"the client was held up: {slowest} of {time.monotonic() - begun}")
    check.has(c.output(rest(ws), "stdout").decode(), c.sha(line.encode() * (total // len(line))))


@check.test
def a_message_that_is_too_long_is_1009():
    run = start(["cat"])
    ws = c.WebSocket(c.stream_path(run["id"]))
    try:
        ws.send('{"type":"stdin","data":"' + "x" * 300000 + '"}')
    except OSError:
        pass
    try:
        rest(ws)
        check.equal(ws.close_code, 1009)
    except ConnectionError:
        pass
    check.equal(c.get_run(run["id"])["phase"], "running")
    cancel(run)


@check.test
def input_waits_for_a_run_that_has_not_started():
    run = c.run(["sh", "-c", "read a; echo \"got $a\""], wait=False, interactive=True)
    ws = c.WebSocket(c.stream_path(run["id"]))
    typed(ws, "early\n")
    check.equal(c.output(rest(ws), "stdout"), b"got early\n")


@check.test
def a_client_that_types_and_leaves_was_heard():
    run = start(["sh", "-c", "read a; echo \"got $a\""])
    ws = c.WebSocket(c.stream_path(run["id"]))
    ws.frame()
    typed(ws, "bye\n")
    ws.close()
    check.equal(c.wait_run(run["id"])["exit_code"], 0)


def restart(name, number):
    old = c.program_pid(name)
    os.kill(old, number)

    def is_back():
        try:
            return c.program_pid(name) != old
        except OSError:
            return False

    c.wait_until(is_back, 20, name + " came back")


@check.test
def runner_restart_keeps_the_input_going():
    run = start(["sh", "-c", "while read a; do echo \"got $a\"; [ \"$a\" = end ] && exit 0; done"], stdin_max_bytes=11)
    ws = c.WebSocket(c.stream_path(run["id"]))
    typed(ws, "one\n")
    until(ws, has_out(b"got one\n"))
    restart("cordon-runner", signal.SIGKILL)
    typed(ws, "two\n")
    until(ws, has_out(b"got two\n"))
    # the cap counts what the earlier runner took
    typed(ws, "four\n")
    check.equal(reasons(until(ws, lambda f: f["type"] == "truncated")), ["stdin_cap"])
    check.equal(c.get_run(run["id"])["phase"], "running")
    cancel(run)


@check.test
def gate_restart_keeps_the_input_going():
    run = start(["sh", "-c", "while read a; do echo \"got $a\"; [ \"$a\" = end ] && exit 0; done"])
    ws = c.WebSocket(c.stream_path(run["id"]))
    typed(ws, "one\n")
    seen = until(ws, has_out(b"got one\n"))
    restart("cordon-gate", signal.SIGTERM)
    seen += rest(ws)
    check.equal(ws.close_code, 1012)
    ws = c.WebSocket(c.stream_path(run["id"], from_seq=seen[-1]["seq"] + 1))
    typed(ws, "end\n")
    seen += rest(ws)
    c.check_sequence(seen)
    check.equal(c.output(seen, "stdout"), b"got one\ngot end\n")


check.main()
