#!/usr/bin/env python3
"""test_runs: face 1's runs over HTTPS against the real stack: the main job, outcomes, bad input (cases B01 to B19 named in the tests)."""
import base64
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import check  # noqa: E402
import cordon as c  # noqa: E402

RUNS = c.BASE + "/runs"


def b64(text):
    return base64.b64encode(text if isinstance(text, bytes) else text.encode()).decode()


def python(code, **more):
    return c.run(["python3", "-c", code], **more)


def error_of(answer):
    return answer.json()["error"]


def post(body, **more):
    return c.request("POST", RUNS, body, **more)


def names_field(answer, field):
    return any(f["field"] == field for f in error_of(answer)["details"].get("fields", []))


@check.test
def main_job():
    script = """
import sys, time
rows = open("input.txt").read().split()
for i in range(4):
    print("step", i, flush=True); print("note", i, file=sys.stderr, flush=True); time.sleep(0.1)
import os
os.makedirs("out")
open("out/report.csv", "w").write("a,b\\n" + ",".join(rows) + "\\n")
"""
    run = c.run(["python3", "main.py"], wait=False, capture_patterns=["out/*"],
                files=[{"path": "main.py", "content_b64": b64(script)}, {"path": "input.txt", "content_b64": b64("1 2")}])
    check.equal(run["phase"], "queued")
    check.true(run["log_stream_url"].startswith("wss://"))
    frames, code = c.follow(run["id"])
    c.check_sequence(frames)
    check.equal(code, 1000)
    check.equal(frames[0]["event"], "start")
    check.equal(c.output(frames, "stdout"), b"step 0\nstep 1\nstep 2\nstep 3\n")
    check.equal(c.output(frames, "stderr"), b"note 0\nnote 1\nnote 2\nnote 3\n")
    check.equal(frames[-1]["data"]["exit_code"], 0)
    done = c.get_run(run["id"])
    check.equal((done["phase"], done["exit_code"], done["message"], done["status_reason_code"]),
                ("completed", 0, "exit=0", "completed"))
    check.equal([(a["path"], a["size"]) for a in c.artifacts(run["id"])], [("out/report.csv", 8)])
    got = c.request("GET", f"{RUNS}/{run['id']}/artifacts/out/report.csv")
    check.equal((got.status, got.body), (200, b"a,b\n1,2\n"))
    part = c.request("GET", f"{RUNS}/{run['id']}/artifacts/out/report.csv", headers={"Range": "bytes=0-4"})
    check.equal((part.status, part.body, part.header("Content-Range")), (206, b"a,b\n1", "bytes 0-4/8"))
    check.equal(part.all("Accept-Ranges"), ["bytes"])


@check.test
def synchronous_answer_has_the_end():
    run = c.run(["true"])
    check.equal((run["phase"], run["exit_code"]), ("completed", 0))
    check.true(run["started_at"] <= run["finished_at"])
    for key in ("cpu_time_sec", "wall_time_sec", "peak_rss_mb", "log_bytes", "artifact_bytes"):
        check.true(isinstance(run["resource_usage"][key], int), key)


@check.test
def prefer_wait_answers_in_time():
    start = time.monotonic()
    run = c.run(["sleep", "5"], headers={"Prefer": "wait=1"})
    check.true(1 <= time.monotonic() - start < 3)
    check.true(run["phase"] in ("starting", "running"), run["phase"])
    c.request("POST", f"{RUNS}/{run['id']}/cancel")


@check.test
def prefer_wait_in_a_quiet_gate():
    """Each is the only timer that is due soon; a later one is armed already (their order: test_timer)."""
    late = []
    for _ in range(7):
        start = time.monotonic()
        run = c.run(["sleep", "5"], headers={"Prefer": "wait=1"})
        late.append(time.monotonic() - start - 1)
        c.request("POST", f"{RUNS}/{run['id']}/cancel")
        time.sleep(0.27)
    check.true(min(late) >= 0 and max(late) < 2, late)


@check.test
def files_are_there_and_owned_by_the_command():
    run = c.run(["sh", "-c", "cat a/b.txt && echo more >> a/b.txt && cat a/b.txt && pwd && id -u"],
                files=[{"path": "a/b.txt", "content_b64": b64("one\n")}])
    frames, _ = c.follow(run["id"])
    check.equal(c.output(frames, "stdout"), b"one\none\nmore\n/workspace\n1000\n")


@check.test
def B01_bytes_are_not_touched():
    run = c.run(["printf", "A\\377\\376B"])
    frames, _ = c.follow(run["id"])
    check.equal(c.output(frames, "stdout"), b"A\xff\xfeB")
    check.equal([f["encoding"] for f in frames if f["type"] == "stdout"], ["base64"])
    run = python("import os,time\nfor part in (b'caf\\xc3', b'\\xa9'):\n os.write(1, part); time.sleep(0.03)")
    frames, _ = c.follow(run["id"])
    check.equal(c.output(frames, "stdout"), "caf\u00e9".encode())
    check.true(all(f["encoding"] == "utf8" for f in frames if f["type"] == "stdout"))
    run = python("import sys; sys.stdout.write('\\u2615' * 100000)")
    frames, _ = c.follow(run["id"])
    check.equal(c.sha(c.output(frames, "stdout")), c.sha("\u2615".encode() * 100000))
    check.true(all(f["encoding"] == "utf8" for f in frames if f["type"] == "stdout"))


@check.test
def B02_enormous_lines():
    for size in (65535, 65536, 65537, 5 << 20):
        run = python(f"import os,sys\nsys.stdout.write('x' * {size}); sys.stdout.flush(); os._exit(7)")
        check.equal(run["exit_code"], 7)
        frames, _ = c.follow(run["id"])
        check.equal(len(c.output(frames, "stdout")), size)
        check.equal([f for f in frames if f["type"] == "truncated"], [])
    run = python(f"import os,sys\nsys.stdout.write('x' * {20 << 20}); sys.stdout.flush(); os._exit(7)")
    check.equal((run["exit_code"], run["status_reason_code"]), (7, "limits_applied"))
    check.equal(run["resource_usage"]["log_truncated"], 1)
    frames, _ = c.follow(run["id"])
    check.equal(len(c.output(frames, "stdout")), 10485760)
    check.equal([f["reason"] for f in frames if f["type"] == "truncated"], ["log_cap"])


def resident_kib(name):
    total = 0
    pid = c.program_pid(name)
    todo = [pid]
    while todo:
        one = todo.pop()
        try:
            with open(f"/proc/{one}/status") as file:
                total += sum(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
            with open(f"/proc/{one}/task/{one}/children") as file:
                if name != "cordon-box":
                    todo += [int(p) for p in file.read().split()]
        except OSError:
            pass
    return total


@check.test
def B02_sixty_four_at_once_stay_bounded():
    started = [c.run(["python3", "-c", "import sys; sys.stdout.write('x' * (20 << 20))"], wait=False,
                     resources={"memory_mb": 128}) for _ in range(64)]
    peak = {name: 0 for name in ("cordon-runner", "cordon-gate", "cordon-fcgi", "cordon-box")}
    left = {run["id"] for run in started}
    end = time.monotonic() + 120
    while left and time.monotonic() < end:
        for name in peak:
            peak[name] = max(peak[name], resident_kib(name))
        left = {run_id for run_id in left if not c.get_run(run_id)["finished_at"]}
        time.sleep(0.2)
    check.equal(left, set())
    for run in started:
        done = c.get_run(run["id"])
        check.equal((done["exit_code"], done["resource_usage"].get("log_bytes")), (0, 10485760))
    print("    peak RSS in KiB:", peak)
    for name, kib in peak.items():
        check.true(kib < 160 * 1024, f"{name} {kib} KiB")


@check.test
def B03_blank_lines_and_missing_newline():
    run = c.run(["printf", "a\\n\\nb\\r\\n\\r\\n\\n\\nc"])
    frames, _ = c.follow(run["id"])
    check.equal(c.output(frames, "stdout"), b"a\n\nb\r\n\r\n\n\nc")


@check.test
def B04_tail_is_never_lost():
    def one(_):
        run = c.run(["sh", "-c", "printf x; printf y >&2; exit 3"])
        frames, code = c.follow(run["id"])
        c.check_sequence(frames)
        got = (run["exit_code"], c.output(frames, "stdout"), c.output(frames, "stderr"), frames[-1]["data"]["exit_code"], code)
        return None if got == (3, b"x", b"y", 3, 1000) else (run["id"], code, frames)

    check.equal([wrong for wrong in c.many(500, 16, one) if wrong], [])


@check.test
def B05_background_child_holds_nothing_up():
    start = time.monotonic()
    run = c.run(["sh", "-c", "sleep 300 & echo hi"])
    check.true(time.monotonic() - start < 3, time.monotonic() - start)
    check.equal(run["exit_code"], 0)
    frames, _ = c.follow(run["id"])
    check.equal(c.output(frames, "stdout"), b"hi\n")


RUNAWAY = ("setsid sh -c 'while :; do date >> /workspace/t; sleep 0.2; done' >/dev/null 2>&1 & "
           "(setsid sleep 1000 &) ; sleep 1000")


@check.test
def B06_timeout_ends_everything():
    start = time.monotonic()
    run = c.run(["sh", "-c", RUNAWAY], timeout_sec=2)
    took = time.monotonic() - start
    check.equal((run["phase"], run["message"], run["exit_code"], run["status_reason_code"]),
                ("timed_out", "execution_timeout", None, "execution_timeout"))
    check.true(2 <= took < 4, took)
    c.wait_until(c.no_box_processes, 5, "processes of the run are left")


@check.test
def B06_cancel_ends_everything():
    run = c.run(["sh", "-c", "trap '' TERM; " + RUNAWAY], wait=False)
    c.wait_phase(run["id"], ["running"])
    start = time.monotonic()
    answer = c.request("POST", f"{RUNS}/{run['id']}/cancel")
    took = time.monotonic() - start
    check.equal(answer.json(), {"id": run["id"], "cancelled": True, "message": "canceled_by_user"})
    check.true(took < 8, took)
    done = c.get_run(run["id"])
    check.equal((done["phase"], done["message"], done["exit_code"]), ("killed", "canceled_by_user", None))
    c.wait_until(c.no_box_processes, 5, "processes of the run are left")
    frames, _ = c.follow(run["id"])
    check.equal(frames[-1]["data"], {"exit_code": None, "canceled": True})
    again = c.request("POST", f"{RUNS}/{run['id']}/cancel").json()
    check.equal(again["cancelled"], True)
    check.equal(c.request("POST", f"{RUNS}/{c.run(['true'])['id']}/cancel").json()["cancelled"], False)


@check.test
def cancel_of_a_polite_program_is_quick():
    run = c.run(["sleep", "100"], wait=False)
    c.wait_phase(run["id"], ["running"])
    start = time.monotonic()
    check.equal(c.request("POST", f"{RUNS}/{run['id']}/cancel").json()["cancelled"], True)
    check.true(time.monotonic() - start < 3)


@check.test
def B09_exit_codes():
    for code in (0, 1, 126, 127, 137, 255):
        run = c.run(["sh", "-c", f"exit {code}"])
        check.equal((run["exit_code"], run["message"]), (code, f"exit={code}"))
        check.equal(run["phase"], "completed" if code == 0 else "failed")
        check.equal(run["status_reason_code"], "completed" if code == 0 else "nonzero_exit")
    for name, number in (("SEGV", 11), ("KILL", 9)):
        run = c.run(["sh", "-c", f"kill -{name} $$"])
        check.equal((run["phase"], run["message"], run["exit_code"], run["status_reason_code"]),
                    ("killed", f"signal=SIG{name}", 128 + number, "killed"))
    run = python("import os; os.abort()")
    check.equal((run["phase"], run["message"], run["exit_code"]), ("killed", "signal=SIGABRT", 134))
    run = c.run(["/nonexistent"])
    check.equal((run["phase"], run["exit_code"], run["status_reason_code"]), ("failed", 127, "nonzero_exit"))
    run = c.run(["/etc/hostname"])
    check.equal((run["phase"], run["exit_code"]), ("failed", 126 if os.path.exists("/etc/hostname") else 127))
    run = c.run(["/etc/passwd"])
    check.equal((run["phase"], run["exit_code"]), ("failed", 126))


@check.test
def B10_stdin_is_at_its_end():
    run = c.run(["cat"])
    check.equal((run["exit_code"], run["phase"]), (0, "completed"))
    run = python("input()")
    check.equal(run["exit_code"], 1)
    # limits without interactive change nothing
    run = c.run(["cat"], stdin_max_bytes=100, stdin_bps=10, stdin_idle_timeout_sec=1)
    check.equal(run["exit_code"], 0)


@check.test
def B11_numbers_that_are_not_sane():
    for value in ("0", "-1", "0.5", '"60"', "true", "1e309", "9223372036854775808", "9007199254740993", "3601", "[]"):
        answer = post('{"base_image":"host","command":["true"],"timeout_sec":%s}' % value,
                      headers={"Content-Type": "application/json"})
        check.equal(answer.status, 422, value)
        check.equal(error_of(answer)["code"], "validation_error")
        check.true(names_field(answer, "timeout_sec"), value)
    check.equal(c.run(["true"], timeout_sec=60.0)["phase"], "completed")
    check.equal(c.run(["true"], timeout_sec=None)["phase"], "completed")
    check.equal(c.run(["true"], resume_from_seq=9007199254740991, wait=False)["log_stream_url"].split("=")[-1],
                "9007199254740991")
    for bad in ("0", "101", "-1", "x", "1e3"):
        check.equal(c.request("GET", f"{RUNS}?limit={bad}").status, 422, bad)


@check.test
def B12_bodies():
    good = json.dumps(c.run_body(["true"])).encode()
    js = {"Content-Type": "application/json"}
    chunked = c.request("POST", RUNS, None, headers=js, chunks=[good[:10], good[10:]])
    check.equal((chunked.status, chunked.json()["phase"]), (200, "completed"))
    run = c.run(["printf", "a\nb"])
    check.equal(c.output(c.follow(run["id"])[0], "stdout"), b"a\nb")
    refused = [
        (b"", 400, "invalid_json"), (b"[]", 400, "invalid_json"), (b"{", 400, "invalid_json"), (b'"x"', 400, "invalid_json"),
        (good + b"x", 400, "invalid_json"), (b'{"a":1,"a":2}', 400, "invalid_json"),
        (b'{"x":' + b"[" * 20000 + b"]" * 20000 + b"}", 400, "invalid_json"), (b'{"a":"\xff"}', 400, "invalid_json"),
        (b'{"a":"\\ud800"}', 400, "invalid_json"),
        (b'{"base_image":"host","command":[]}', 422, "validation_error"),
        (b'{"base_image":"host","command":[""]}', 422, "validation_error"),
        (b'{"base_image":"host","command":"true"}', 422, "validation_error"),
        (b'{"base_image":"host","command":["a\\u0000b"]}', 422, "validation_error"),
        (b'{"command":["true"]}', 422, "validation_error"),
        (b'{"base_image":"host","session_id":"x","command":["true"]}', 422, "validation_error"),
        (b'{"session_id":"x","command":["true"]}', 404, "session_not_found"),
        (b'{"base_image":"host","command":["true"],"spec_version":"9"}', 400, "invalid_spec_version"),
    ]
    for body, status, code in refused:
        answer = post(body, headers=js)
        check.equal((answer.status, error_of(answer)["code"]), (status, code), body[:60])
    check.equal(post(good, headers={"Content-Type": "text/plain"}).status, 415)
    big = post(b'{"x":"' + b"y" * (9 << 20) + b'"}', headers=js)
    check.equal((big.status, error_of(big)["code"]), (413, "body_too_large"))
    check.true(c.healthy())


@check.test
def B13_quoting():
    text = 'EOF\n"\'$HOME`id`\\\r\nend'
    run = c.run(["cat", "f"], files=[{"path": "f", "content_b64": b64(text)}])
    check.equal(c.output(c.follow(run["id"])[0], "stdout"), text.encode())
    value = "a'b\"c $(id)"
    run = c.run(["sh", "-c", 'printf %s "$V"'], env={"V": value})
    check.equal(c.output(c.follow(run["id"])[0], "stdout"), value.encode())
    run = c.run(["sh", "-c", "cat <<EOF\nhere\nEOF"])
    check.equal(c.output(c.follow(run["id"])[0], "stdout"), b"here\n")
    run = c.run(["sh", "-c", "mkdir 'a b' && cd 'a b' && pwd"])
    check.equal(c.output(c.follow(run["id"])[0], "stdout"), b"/workspace/a b\n")
    run = c.run(["env", "-0"], env={"PATH": "/usr/bin", "N": "x\ny"})
    check.true(b"N=x\ny\0" in c.output(c.follow(run["id"])[0], "stdout"))


@check.test
def B14_dot_segments():
    run = c.run(["sh", "-c", "mkdir d; echo x > d/...; echo y > a..b; echo 0123456789 > f"], capture_patterns=["*"])
    base = f"{RUNS}/{run['id']}/artifacts/"
    check.equal(c.request("GET", base + "d/...").body, b"x\n")
    check.equal(c.request("GET", base + "a..b").body, b"y\n")
    for path in ("../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%252e%252e/etc/passwd", "a/./b//c", "/abs", "a%00.txt", "....//",
                 "%c0%ae%c0%ae/x", "%2e%2e/f", "./f", "f/", "f/.", "%zz"):
        answer = c.request("GET", base + path)
        check.true(answer.status in (400, 404), (path, answer.status))
        check.true("error" in answer.json(), path)
    for run_id in ("..", "a%2fb", "%2e%2e", "x" * 300, run["id"].upper(), run["id"] + "%00"):
        check.true(c.request("GET", f"{RUNS}/{run_id}").status in (400, 404), run_id)
    check.equal(c.request("GET", "/internal/render/node1/run/" + run["id"]).status, 404)
    check.equal(c.request("GET", "/internal/hold/node1/run/" + run["id"]).status, 404)
    check.equal(c.request("GET", f"{RUNS}/../../../../internal/artifact/x").status, 404)


BIG = "bytes=" + ",".join(f"{i}-{i}" for i in range(1000))
RANGES = [  # header, status, content range, body; the file is 0123456789
    ("bytes=0-4", 206, "bytes 0-4/10", b"01234"), ("bytes=0-", 206, "bytes 0-9/10", b"0123456789"),
    ("bytes=9-", 206, "bytes 9-9/10", b"9"), ("bytes=10-", 416, "bytes */10", b""), ("bytes=5-2", 416, "bytes */10", b""),
    ("bytes=-3", 206, "bytes 7-9/10", b"789"), ("bytes=-0", 416, "bytes */10", b""), ("bytes=-99", 206, "bytes 0-9/10", b"0123456789"),
    ("bytes=0-99", 206, "bytes 0-9/10", b"0123456789"), ("bytes=0-18446744073709551616", 416, "bytes */10", b""),
    ("bytes=0-1,3-4", 416, "bytes */10", b""), (BIG, 416, "bytes */10", b""), ("Bytes=0-1", 206, "bytes 0-1/10", b"01"),
    ("items=0-1", 200, None, b"0123456789"), ("bytes=", 416, "bytes */10", b""), ("bytes=a-b", 416, "bytes */10", b""),
]


@check.test
def B16_ranges():
    run = c.run(["sh", "-c", "printf 0123456789 > ten; : > none"], capture_patterns=["*"])
    ten = f"{RUNS}/{run['id']}/artifacts/ten"
    none = f"{RUNS}/{run['id']}/artifacts/none"
    for header, status, content_range, body in RANGES:
        got = c.request("GET", ten, headers={"Range": header})
        check.equal((got.status, got.header("Content-Range"), got.body), (status, content_range, body), header[:40])
        check.equal(got.all("Accept-Ranges"), ["bytes"], header[:40])
    huge = c.request("GET", ten, headers={"Range": "bytes=" + ",".join("0-1" for _ in range(10000))})
    check.true(huge.status in (400, 416, 431), huge.status)
    whole = c.request("GET", ten)
    etag = whole.header("ETag")
    check.equal((whole.status, whole.body), (200, b"0123456789"))
    head = c.request("HEAD", ten, headers={"Range": "bytes=0-1"})
    check.equal((head.status, head.header("Content-Length"), head.body), (200, "10", b""))
    stale = c.request("GET", ten, headers={"Range": "bytes=0-1", "If-Range": '"1-1"'})
    check.equal((stale.status, stale.body), (200, b"0123456789"))
    fresh = c.request("GET", ten, headers={"Range": "bytes=0-1", "If-Range": etag})
    check.equal((fresh.status, fresh.body), (206, b"01"))
    for header, status in (("bytes=0-4", 200), ("bytes=-3", 200), ("bytes=5-2", 416), ("bytes=0-1,3-4", 416), ("bytes=", 416)):
        got = c.request("GET", none, headers={"Range": header})
        check.equal((got.status, got.body), (status, b""), header)
    check.equal(c.request("GET", none).status, 200)
    for name in ("X-Content-Type-Options", "Content-Security-Policy", "Content-Disposition"):
        check.true(whole.header(name), name)


@check.test
def B19_foreign_ids_look_like_missing_ones():
    run = c.run(["sh", "-c", "echo x > f"], capture_patterns=["*"])
    missing = "01900000-0000-7000-8000-000000000000"
    for method, path in (("GET", ""), ("POST", "/cancel"), ("GET", "/artifacts"), ("GET", "/artifacts/f"), ("GET", "/stream")):
        foreign = c.request(method, f"{RUNS}/{run['id']}{path}", key=c.OTHER)
        unknown = c.request(method, f"{RUNS}/{missing}{path}", key=c.OTHER)
        check.equal((foreign.status, foreign.body), (unknown.status, unknown.body), path)
        check.equal(foreign.status, 404, path)
    items = c.request("GET", RUNS, key=c.OTHER).json()["items"]
    check.true(all(item["id"] != run["id"] for item in items))
    check.equal(c.request("GET", f"{RUNS}/{run['id']}", key=c.ADMIN).status, 200)


@check.test
def keys_are_checked():
    for key in (None, "", "nonsense", c.KEY[:-1] + ("a" if c.KEY[-1] != "a" else "b"), "ck_" + "a" * 12 + "_" + "b" * 32):
        answer = c.request("GET", RUNS, key=key)
        check.equal((answer.status, error_of(answer)["code"]), (401, "unauthorized"))
        check.equal(answer.header("WWW-Authenticate"), "Bearer")
    check.equal(c.request("GET", RUNS, key=None, headers={"Authorization": "Bearer " + c.KEY}).status, 200)


@check.test
def routes_and_methods():
    check.equal(error_of(c.request("GET", "/nothing"))["code"], "not_found")
    answer = c.request("DELETE", RUNS)
    check.equal((answer.status, error_of(answer)["code"]), (405, "method_not_allowed"))
    check.true("POST" in answer.header("Allow") and "GET" in answer.header("Allow"))
    check.equal(c.request("GET", c.BASE + "/health/public", key=None).json()["ok"], True)
    check.equal(c.request("GET", c.BASE + "/health", key=None).status, 401)
    check.equal(c.request("GET", c.BASE + "/health").json()["store"]["mode"], "mariadb")


@check.test
def idempotency():
    key = f"test-{time.time_ns()}"
    body = c.run_body(["sh", "-c", "echo once"])
    first = post(body, headers={"Idempotency-Key": key}).json()
    same = post(dict(body, timeout_sec=300), headers={"Idempotency-Key": key}).json()
    check.equal((same["id"], same["phase"]), (first["id"], "completed"))
    conflict = post(dict(body, timeout_sec=10), headers={"Idempotency-Key": key})
    details = error_of(conflict)["details"]
    check.equal((conflict.status, error_of(conflict)["code"], details["prior_id"], details["key"]),
                (409, "idempotency_conflict", first["id"], key))
    check.true(post(body, headers={"Idempotency-Key": key}, key=c.OTHER).json()["id"] != first["id"])
    for bad in ("", "x" * 256):
        check.equal(post(body, headers={"Idempotency-Key": bad}).status, 422)
    held = f"held-{time.time_ns()}"
    slow = c.run_body(["sleep", "1"])
    ids = c.many(20, 20, lambda _: post(slow, headers={"Idempotency-Key": held}).json())
    check.equal(len({r["id"] for r in ids}), 1)
    check.equal({r["phase"] for r in ids}, {"completed"})


@check.test
def list_of_runs():
    made = [c.run(["true"], wait=False)["id"] for _ in range(5)]
    first = c.request("GET", RUNS + "?limit=3").json()
    check.equal([r["id"] for r in first["items"]], made[:1:-1])
    second = c.request("GET", f"{RUNS}?limit=2&cursor={first['next_cursor']}").json()
    check.equal([r["id"] for r in second["items"]], made[1::-1])
    for run_id in made:
        c.wait_run(run_id)
    done = c.request("GET", RUNS + "?phase=completed&limit=5").json()["items"]
    check.true(all(r["phase"] == "completed" for r in done) and len(done) == 5)
    check.equal(c.request("GET", RUNS + "?phase=nonsense").status, 422)
    check.equal(c.request("GET", RUNS + "?cursor=x").status, 422)


NASTY = ["90%.txt", "r%41.txt", "rA.txt", "q?x=1#y", "a b+c.txt", "caf\u00e9", "cafe\u0301", "\u6f22" * 85,
         "n\r\nX-Accel-Redirect: \u2215etc\u2215passwd", 'q"u\\o', "-rf", ".hidden", "t\tab", "   ", "con", "a;b&c=d"]


@check.test
def B23_names_that_bite_headers():
    code = "import os\nnames = %r\nfor n in names:\n open(os.fsencode(n), 'wb').write(os.fsencode(n))\nopen(b'x\\xffy', 'wb').write(b'bad')"
    run = python(code % NASTY, capture_patterns=["*"])
    check.equal(run["exit_code"], 0)
    items = c.artifacts(run["id"])
    shown = {item["path"]: item for item in items}
    check.equal(sorted(shown), sorted(NASTY + ["x\\xFFy"]))
    check.equal(shown["x\\xFFy"]["path_encoding"], "escaped")
    for name, item in shown.items():
        got = c.request("GET", item["download_url"])
        check.equal(got.status, 200, name)
        check.equal(got.body, b"bad" if name == "x\\xFFy" else name.encode(), name)
        check.equal(got.header("X-Accel-Redirect"), None, name)
        check.equal(len(got.all("Content-Disposition")), 1)
        check.true(got.header("Content-Disposition").isascii() and "filename*=" in got.header("Content-Disposition"), name)


@check.test
def a_program_cannot_steer_the_server():
    text = "HTTP/1.1 200 OK\r\nX-Accel-Redirect: /internal/artifact/x\r\n\r\n"
    run = c.run(["sh", "-c", "printf '%s' \"$T\" | tee f"], env={"T": text}, capture_patterns=["f"])
    got = c.request("GET", f"{RUNS}/{run['id']}/artifacts/f")
    check.equal((got.status, got.body, got.header("X-Accel-Redirect")), (200, text.encode(), None))


@check.test
def no_secret_reaches_a_box():
    run = c.run(["sh", "-c", "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; cat /proc/self/mountinfo; ls -la /; id"])
    seen = c.output(c.follow(run["id"])[0], "stdout").decode(errors="replace")
    for word in (c.KEY, c.KEY.split("_")[2], c.RUN_DIR, c.DATA_DIR, "mariadb", "cordon-dev"):
        check.true(word not in seen, word)


@check.test
def refusals_of_admission():
    cases = [
        ({"base_image": "nope"}, 422, "unknown_base_image"), ({"runtime": "docker"}, 503, "runtime_unavailable"),
        ({"runtime": "firecracker"}, 503, "runtime_unavailable"), ({"runtime": "x"}, 422, "validation_error"),
        ({"network_policy": "allowlist"}, 422, "policy_unsupported"), ({"trust_level": "trusted"}, 422, "policy_unsupported"),
        ({"runtime": "worktree", "trust_level": "untrusted"}, 422, "policy_unsupported"),
        ({"files": [{"path": "../x", "content_b64": ""}]}, 422, "invalid_inline_file"),
        ({"files": [{"path": "/x", "content_b64": ""}]}, 422, "invalid_inline_file"),
        ({"files": [{"path": "x", "content_b64": "a"}]}, 422, "invalid_inline_file"),
        ({"files": [{"path": "x", "content_b64": ""}, {"path": "x", "content_b64": ""}]}, 422, "invalid_inline_file"),
        ({"env": {"A": 1}}, 422, "validation_error"), ({"env": {"A=B": "x"}}, 422, "validation_error"),
        ({"resources": {"memory_mb": 1}}, 422, "validation_error"), ({"command": ["x"] * 257}, 422, "validation_error"),
        ({"capture_patterns": ["x"] * 65}, 422, "validation_error"),
    ]
    for more, status, code in cases:
        answer = post(dict(c.run_body(["true"]), **more))
        check.equal((answer.status, error_of(answer)["code"]), (status, code), more)
        text = answer.body.decode()
        for word in ("/var/", "/run/", "SELECT", "runners/"):
            check.true(word not in text, (word, text))
    check.equal(c.run(["true"], trust_level="trusted", network_policy="deny_all")["phase"], "completed")


@check.test
def tiers_hold():
    run = c.run(["sh", "-c", "ulimit -n; cat /proc/self/status | grep NoNewPrivs"], trust_level="untrusted")
    check.equal(c.output(c.follow(run["id"])[0], "stdout"), b"256\nNoNewPrivs:\t1\n")
    run = python("import os\nn = 0\ntry:\n while True:\n  if os.fork() == 0:\n   import time; time.sleep(60)\n  n += 1\nexcept OSError as e:\n print(n, e.errno)",
                 trust_level="untrusted", timeout_sec=20)
    words = c.output(c.follow(run["id"])[0], "stdout").split()
    check.equal(words[1], b"11")
    check.true(40 <= int(words[0]) <= 64, words)
    check.true(run["message"].endswith("(pids limit 64 reached)"), run["message"])
    check.true(run["resource_usage"]["pids_limit_hits"] > 0)
    run = c.run(["sh", "-c", "dd if=/dev/zero of=big bs=1M count=100 2>&1 | tail -n 1; ls -s big"], trust_level="untrusted")
    check.true(run["exit_code"] == 0)


@check.test
def out_of_memory_is_named():
    run = python("x = bytearray(300 << 20)", resources={"memory_mb": 128})
    check.equal((run["phase"], run["message"], run["exit_code"]), ("killed", "out_of_memory", 137))
    check.true(run["resource_usage"]["oom_kills"] >= 1)


@check.test
def startup_fields_are_kept():
    run = c.run(["true"], persona_id="p", workspace_id="w", workspace_group_id="g", scope_snapshot_id="s", trust_level="standard",
                spec_version="1.1", resume_from_seq=5)
    check.equal((run["persona_id"], run["workspace_id"], run["workspace_group_id"], run["scope_snapshot_id"], run["spec_version"]),
                ("p", "w", "g", "s", "1.1"))
    check.true(run["log_stream_url"].endswith("?from_seq=5"))
    check.equal(c.get_run(run["id"])["log_stream_url"], run["log_stream_url"])


@check.test
def artifact_caps_are_counted():
    run = c.run(["sh", "-c", "ln -s /etc/passwd link; mkfifo pipe; truncate -s 70M big; echo a > a"], capture_patterns=["*"])
    usage = run["resource_usage"]
    check.equal([a["path"] for a in c.artifacts(run["id"])], ["a"])
    check.equal((usage["artifact_files_collected"], usage["artifact_skip_symlink"], usage["artifact_skip_file_limit"],
                 usage["artifact_skip_invalid"]), (1, 1, 1, 1))
    check.equal(run["status_reason_code"], "limits_applied")


check.main()
