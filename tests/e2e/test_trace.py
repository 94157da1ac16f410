#!/usr/bin/env python3
"""test_trace: where the time of a run went: every step of a run is there, in order, and who may see it."""
import json
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import check  # noqa: E402
import cordon as c  # noqa: E402

CTL = os.path.join(check.TOP, os.environ.get("CORDON_BUILD", "build"), "bin", "cordonctl")
ACCEPT = ["accepted", "read", "authenticated", "admitted", "begun"]
RUN = ["claim_begun", "claimed", "box_asked", "box_ready", "exec_sent", "started", "exited", "drained", "counted", "end_begun",
       "end_committed", "box_destroyed"]
HELD = ["parked", "end_noticed", "released", "render_begun", "row_read", "answered"]


def trace(run_id, key=c.KEY):
    return c.request("GET", f"{c.BASE}/runs/{run_id}/trace", key=key)


def names(told):
    return [point["name"] for point in told["points"]]


def whole(run_id, last="box_destroyed"):
    """The trace once its tail is written, about a second behind the end."""
    def ready():
        told = trace(run_id).json()
        return told if last in names(told) and told["answer_us"] is not None else None

    check.wait_for(ready, 5, "the tail of the trace")
    return check_sums(ready())


def check_sums(told):
    points = told["points"]
    check.equal(points[0]["at_us"], 0)
    for before, point in zip(points, points[1:]):
        check.true(point["step_us"] >= 0, point)
        check.equal(point["at_us"], before["at_us"] + point["step_us"], point)
    check.equal(sum(point["step_us"] for point in points), told["total_us"])
    check.equal(points[-1]["at_us"], told["total_us"])
    return told


def in_order(told, wanted):
    """These names are there, in this order; others may stand between them. The box is made while the claim commits: either may be first."""
    for beside in ("box_asked", "box_ready"):
        if beside in wanted:
            check.has(names(told), beside)
            check.true(names(told).index("claim_begun") < names(told).index(beside) < names(told).index("exec_sent"), names(told))
    wanted = [name for name in wanted if name not in ("box_asked", "box_ready")]
    at = [names(told).index(name) for name in wanted if name in names(told) or check.has(names(told), name)]
    check.equal(at, sorted(at), names(told))


@check.test
def a_run_that_is_waited_for():
    begun = time.monotonic()
    run = c.run(["true"])
    outside_us = (time.monotonic() - begun) * 1e6
    told = whole(run["id"])
    check.equal(sorted(names(told)), sorted(ACCEPT + ["committed", "held", "noticed"] + RUN + HELD))
    in_order(told, ACCEPT + ["committed", "held"])
    # each waits for the one before it; the worker may be slow to see that its commit is through
    in_order(told, ["begun", "claimed"] + RUN[2:10] + ["end_noticed", "released", "render_begun", "row_read", "answered"])
    in_order(told, ["held", "parked", "released"])
    check.equal((told["run_id"], told["phase"], told["held"]), (run["id"], "completed", True))
    check.true(told["warm"] in (True, False))
    check.true(0 < told["answer_us"] < outside_us, (told["answer_us"], outside_us))
    check.true(len(told["request_id"]) == 32)
    programs = {point["name"]: point["program"] for point in told["points"]}
    check.equal((programs["begun"], programs["claimed"], programs["parked"], programs["answered"]),
                ("cordon-fcgi", "cordon-runner", "cordon-gate", "cordon-fcgi"))


@check.test
def a_run_that_nobody_waits_for():
    run = c.run(["sh", "-c", "echo x > a; sleep 0.3"], wait=False, capture_patterns=["*"])
    told = whole(run["id"])
    check.equal(sorted(names(told)), sorted(ACCEPT + ["committed", "answered", "noticed", "collected"] + RUN))
    check.equal(told["held"], False)
    in_order(told, ["started", "exited", "drained", "collected", "counted"])
    points = {point["name"]: point["at_us"] for point in told["points"]}
    check.true(points["exited"] - points["started"] > 290000, points)
    check.true(told["answer_us"] < points["exited"] < told["total_us"])
    # a replay waits, but it is another request: the trace stays that of the first one
    send = {"Idempotency-Key": "trace-%d" % time.time_ns()}
    run = c.run(["sleep", "0.2"], wait=False, headers=send)
    check.equal(c.run(["sleep", "0.2"], headers=send)["id"], run["id"])
    check.equal(whole(run["id"])["held"], False)


@check.test
def a_run_in_progress():
    run = c.run(["sleep", "20"], wait=False)
    c.wait_phase(run["id"], ["running"])
    told = check_sums(trace(run["id"]).json())
    check.equal(names(told)[:5], ACCEPT)
    check.equal((told["phase"], told["warm"]), ("running", None))
    c.request("POST", f"{c.BASE}/runs/{run['id']}/cancel")
    told = whole(run["id"])
    check.equal((told["phase"], told["held"]), ("killed", False))
    check.has_not(names(told), "parked", "the hold of the cancel is not the run's")


@check.test
def runs_that_fail():
    told = whole(c.run(["no-such-program"])["id"])
    check.equal(told["phase"], "failed")
    in_order(told, ["exec_sent", "exited", "counted", "end_begun"])
    check.has_not(names(told), "started")
    told = whole(c.run(["sleep", "9"], timeout_sec=1)["id"])
    check.equal(told["phase"], "timed_out")
    in_order(told, ["started", "exited", "end_committed", "answered"])


@check.test
def who_may_see_it():
    run = c.run(["true"])
    for run_id in (run["id"], "01900000-0000-7000-8000-000000000000", "x"):
        answer = trace(run_id, key=c.OTHER)
        check.equal((answer.status, answer.json()["error"]["code"]), (404, "run_not_found"))
    check.equal(trace(run["id"], key=c.ADMIN).json()["run_id"], run["id"])
    check.equal(trace(run["id"], key=None).status, 401)
    check.equal(c.request("POST", f"{c.BASE}/runs/{run['id']}/trace").status, 405)


def ctl(*words, code=0, env=None):
    done = subprocess.run([CTL, *words], capture_output=True, text=True, timeout=60, env=dict(os.environ, **(env or {})))
    check.equal(done.returncode, code, "%s\n%s%s" % (" ".join(words), done.stdout, done.stderr))
    return done


@check.test
def the_command():
    run = c.run(["true"])
    told = whole(run["id"])
    check.equal(json.loads(ctl("trace", "--json", run["id"]).stdout), told)
    lines = ctl("trace", run["id"]).stdout.splitlines()
    check.has(lines[0], run["id"])
    rows = [line.split() for line in lines[lines.index("") + 2:-2]]
    check.equal(rows, [[str(p["at_us"]), str(p["step_us"]), p["program"], p["name"]] for p in told["points"]])
    check.has(lines[-1], "answered after %d us" % told["answer_us"])
    check.true(ctl("trace", "--help").stdout.startswith("usage: cordonctl trace RUN"))
    check.has(ctl("trace", run["id"], code=2, env={"CORDON_API_KEY": c.OTHER}).stderr, "404 run_not_found")
    for words in ((), ("x",), (run["id"], "more")):
        check.has(ctl("trace", *words, code=64).stderr, "usage: cordonctl trace")


def has_tail(run_id):
    time.sleep(1.5)
    return sorted(names(trace(run_id).json())) == sorted(ACCEPT + ["committed", "held", "noticed"] + RUN + HELD)


@check.test
def the_end_of_the_gate_costs_the_tail_alone():
    run = c.run(["true"])
    pid = c.program_pid("cordon-gate")
    os.kill(pid, signal.SIGKILL)
    check.wait_for(lambda: not os.path.exists(f"/proc/{pid}"), 5, "the gate's end")
    check.equal(c.run(["true"])["phase"], "completed")
    told = check_sums(trace(run["id"]).json())
    in_order(told, ACCEPT + RUN[:10])
    check.equal(told["phase"], "completed")
    # and the next ones have theirs again: who found nobody listening tries again after 200 ms
    check.wait_for(lambda: has_tail(c.run(["true"])["id"]), 20, "a whole trace")


@check.test
def many_at_once():
    runs = c.many(60, 16, lambda i: c.run(["true"]))
    for run in runs:
        told = whole(run["id"])
        in_order(told, ["begun", "claimed", "exited", "end_begun", "answered"])


check.main()
