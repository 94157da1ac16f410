#!/usr/bin/env python3
"""test_abuse: what an attack on the product once broke, each as a test of its own."""
import json
import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import check  # noqa: E402
import cordon as c  # noqa: E402

RUNS = c.BASE + "/runs"


def output(run):
    return c.output(c.follow(run["id"])[0], "stdout")


def python(code, **more):
    return c.run(["python3", "-c", code], **more)


@check.test
def socket_buffers_are_limited():
    """Datagrams that wait on the box's loopback count against the box: they must not reach the host's memory."""
    code = """
import socket
total = 0
made = []
for i in range(100):
    r = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); r.bind(("127.0.0.1", 0))
    r.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(r.getsockname()); s.setblocking(False)
    made += [r, s]
    for _ in range(200):
        try: s.send(b"x" * 60000)
        except OSError: break
for r in made[::2]:
    r.setblocking(False)
    try:
        while True: total += len(r.recv(65536))
    except OSError: pass
print(total >> 20)
"""
    run = python(code, resources={"memory_mb": 64}, trust_level="untrusted", timeout_sec=30)
    check.equal(run["exit_code"], 0)
    check.true(int(output(run)) <= 16, output(run))


@check.test
def slow_patterns_end_in_time():
    code = """
import os
d = ["a" * 240 for _ in range(4)]
os.makedirs("/".join(d))
os.chdir("/".join(d))
for i in range(1500): open("%04d" % i, "w").close()
open("/workspace/0result.txt", "w").write("there")
"""
    start = time.monotonic()
    run = python(code, timeout_sec=20, capture_patterns=["0result.txt"] + ["*" + "[!b]" * 250 + "Q%02d" % i for i in range(63)])
    check.true(time.monotonic() - start < 17, time.monotonic() - start)
    check.equal((run["exit_code"], run["status_reason_code"]), (0, "limits_applied"))
    check.true(run["resource_usage"]["artifact_files_skipped"] > 0)
    check.equal([a["path"] for a in c.artifacts(run["id"])], ["0result.txt"])


@check.test
def every_artifact_that_is_left_out_is_counted():
    run = c.run(["sh", "-c", "mkdir shut; touch shut/a; chmod 000 shut; echo x > y"], capture_patterns=["*"])
    check.equal(run["resource_usage"].get("artifact_skip_read_error"), 1)
    run = python("for i in range(10050): open('%05d' % i, 'w').close()", capture_patterns=["*"], timeout_sec=60)
    usage = run["resource_usage"]
    check.equal((usage["artifact_files_collected"], usage["artifact_files_skipped"], run["status_reason_code"]),
                (10000, 50, "limits_applied"))
    code = "import os\nfor i in range(30): os.mkdir('d' * 100); os.chdir('d' * 100)\nopen('deep', 'w').close()"
    run = python(code, capture_patterns=["*"])
    check.true(run["resource_usage"].get("artifact_files_skipped", 0) > 0, run["resource_usage"])


@check.test
def the_list_of_artifacts_can_always_be_read():
    code = """
import os
folder = b"/".join([b"\\xff" * 240] * 4)
os.makedirs(folder)
for i in range(3000): open(folder + b"/%04d" % i, "w").close()
"""
    run = python(code, capture_patterns=["*"], timeout_sec=60)
    usage = run["resource_usage"]
    items = c.artifacts(run["id"])
    check.equal(len(items), usage["artifact_files_collected"])
    check.true(0 < len(items) < 3000 and usage["artifact_files_collected"] + usage["artifact_files_skipped"] == 3000, usage)
    check.equal(c.request("GET", items[0]["download_url"]).status, 200)


@check.test
def headers_beyond_the_limit_are_refused_not_dropped():
    key = f"many-{time.time_ns()}"
    for count, status in ((20, 200), (70, 431), (300, 431)):
        more = {f"X-Filler-{i}": "x" for i in range(count)}
        more["Idempotency-Key"] = key
        answer = c.request("POST", RUNS, c.run_body(["true"]), headers=more)
        check.equal(answer.status, status, count)
    for count in (1, 2, 3):
        answer = c.request("GET", RUNS, headers={f"X-Long-{i}": "y" * 20000 for i in range(count)})
        check.true(answer.status in (200, 400, 431), (count, answer.status, answer.body))


@check.test
def bodies_of_very_many_values_are_refused():
    body = json.dumps({"base_image": "host", "command": ["true"], **{f"k{i}": 1 for i in range(150000)}})
    answer = c.request("POST", RUNS, body, headers={"Content-Type": "application/json"})
    check.equal((answer.status, answer.json()["error"]["code"]), (400, "invalid_json"))


def zygotes():
    box = c.program_pid("cordon-box")
    with open(f"/proc/{box}/task/{box}/children") as file:
        return [int(p) for p in file.read().split()]


@check.test
def runs_wait_for_a_zygote_that_died():
    for _ in range(3):
        for pid in zygotes():
            os.kill(pid, signal.SIGKILL)
        done = c.many(8, 8, lambda _: c.run(["echo", "x"]))
        check.equal({(r["phase"], r["exit_code"]) for r in done}, {("completed", 0)})


@check.test
def the_kernels_command_line_is_hidden():
    run = c.run(["sh", "-c", "cat /proc/cmdline /proc/diskstats | wc -c"])
    check.equal(output(run).strip(), b"0")


check.main()
