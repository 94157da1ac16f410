#!/usr/bin/env python3
"""test_crash (B18): SIGKILL of each program at each step of a run, and of all of them at once. The run completes normally where its runner comes
back within 10 s; its output is whole and unbroken, it was started once, its artifact is there, and nothing of it is left behind.

A step is aimed at by time: the run below takes about 1.5 s from its start, prints for a second, then writes its artifact; the kill comes at a moment
that falls into the step, a little different in each round. CRASH_ROUNDS=N repeats each pair (default 1)."""
import os
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import check  # noqa: E402
import cordon as c  # noqa: E402

RUNS = c.BASE + "/runs"
CTL = os.path.join(check.TOP, os.environ.get("CORDON_BUILD", "build"), "bin", "cordonctl")
ROUNDS = int(os.environ.get("CRASH_ROUNDS", "1"))
PROGRAMS = ("cordon-fcgi", "cordon-gate", "cordon-runner", "cordon-box", "mariadb", "nginx")
SCRIPT = """
import os, sys, time
print("start", flush=True)
for i in range(50):
    print("line %d %s" % (i, "x" * 2000), flush=True)
    time.sleep(0.02)
sys.stdout.write("y" * 2000000); sys.stdout.flush()
open("big", "wb").write(os.urandom(1000) * 20000)
print("end", flush=True)
"""
WANTED = c.sha(b"start\n" + b"".join(b"line %d %s\n" % (i, b"x" * 2000) for i in range(50)) + b"y" * 2000000 + b"end\n")
# seconds after the POST was sent
STEPS = (("accepted", 0.0), ("claimed", 0.002), ("box built", 0.005), ("starting", 0.012), ("running", 0.5), ("draining", 1.15),
         ("artifacts", 1.3), ("finish", 1.45))


def kill(name):
    try:
        os.kill(c.program_pid(name), signal.SIGKILL)
    except OSError:
        pass


def post(key):
    """Sends until it is accepted for sure: with the same key it is one run however often it is sent."""
    body = c.run_body(["python3", "-c", SCRIPT], capture_patterns=["big"])
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            answer = c.request("POST", RUNS, body, headers={"Idempotency-Key": key, "Prefer": "respond-async"}, timeout=10)
            if answer.status == 200:
                return answer.json()["id"]
            assert answer.status in (502, 503), (answer.status, answer.body)
        except OSError:
            pass
        time.sleep(0.05)
    raise AssertionError("not accepted in 30 s")


def patient(what, seconds=40):
    end = time.monotonic() + seconds
    while True:
        try:
            return what()
        except (OSError, AssertionError, KeyError, ValueError, ConnectionError, c.Refused):
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def ended(run_id):
    run = c.get_run(run_id)
    assert run["finished_at"], run["phase"]
    return run


def judge(run_id, where):
    run = patient(lambda: ended(run_id))
    check.equal((run["phase"], run["exit_code"], run["message"]), ("completed", 0, "exit=0"), where)
    frames, code = patient(lambda: c.follow(run_id, timeout=20))
    c.check_sequence(frames)
    check.equal((c.sha(c.output(frames, "stdout")), code), (WANTED, 1000), where)
    items = patient(lambda: c.artifacts(run_id))
    check.equal([(a["path"], a["size"]) for a in items], [("big", 20000000)], where)


def walk(names, step, delay, n):
    where = f"{'+'.join(names)} at {step}"
    key = f"crash-{os.getpid()}-{time.time_ns()}"
    found = []
    sender = threading.Thread(target=lambda: found.append(post(key)))
    sender.start()
    time.sleep(delay + 0.003 * n)
    for name in names:
        kill(name)
    sender.join()
    check.equal(len(found), 1, where)
    judge(found[0], where)


def nothing_left():
    """Every program is back and answers, and none of them finds a thing that no live row explains."""
    done = subprocess.run([CTL, "--policy", c.POLICY, "doctor", "--leaks"], capture_output=True, text=True, timeout=30, check=False)
    return done.returncode == 0


def settle():
    check.wait_for(lambda: patient(c.healthy), 40, "the service")
    check.wait_for(c.no_box_processes, 20, "the boxes to go")
    check.wait_for(nothing_left, 20, "doctor --leaks to find nothing")


def case(names, title):
    def run():
        for step, delay in STEPS:
            for n in range(ROUNDS):
                walk(names, step, delay, n)
        settle()
    run.__name__ = "B18_" + title
    check.test(run)


for program in PROGRAMS:
    case((program,), program.replace("-", "_"))
case(PROGRAMS[:4], "all_of_ours_at_once")
case(PROGRAMS, "everything_at_once")

check.main()
