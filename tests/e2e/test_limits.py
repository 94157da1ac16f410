#!/usr/bin/env python3
"""test_limits: what ends by the clock or by a limit: queue TTL, start-up, retention, idempotency, disk and inode caps, the queue's length."""
import glob
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import check  # noqa: E402
import cordon as c  # noqa: E402

RUNS = c.BASE + "/runs"


def output(run):
    return c.output(c.follow(run["id"])[0], "stdout")


@check.test
def queue_ttl():
    with c.Off("cordon-runner"):
        run = c.run(["true"], wait=False)
        held = c.run(["true"], wait=False)
        c.sql(f"UPDATE job SET expires_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND WHERE object_id = '{run['id']}'")
        done = c.wait_run(run["id"], 5)
        check.equal((done["phase"], done["message"], done["exit_code"], done["status_reason_code"]),
                    ("failed", "queue_ttl_expired", None, "queue_ttl_expired"))
        frames, code = c.follow(run["id"])
        check.equal([f.get("data") for f in frames], [{"exit_code": None, "reason": "queue_ttl_expired"}])
        check.equal((frames[0]["seq"], code), (1, 1000))
        check.equal(c.get_run(held["id"])["phase"], "queued")
        check.equal(c.sql(f"SELECT COUNT(*) FROM job WHERE object_id = '{run['id']}'").strip(), "0")
    check.equal(c.wait_run(held["id"], 10)["phase"], "completed")


@check.test
def queue_is_full():
    with c.Off("cordon-runner"):
        answers = c.many(110, 8, lambda _: c.request("POST", RUNS, c.run_body(["true"]), headers={"Prefer": "respond-async"}))
        full = [a for a in answers if a.status == 429]
        good = [a.json()["id"] for a in answers if a.status == 200]
        check.equal((len(good), len(full)), (100, 10))
        error = full[0].json()["error"]
        check.equal((error["code"], error["details"]["reason"], error["details"]["quota_scope"], error["details"]["limit"]),
                    ("queue_full", "queue_capacity_exceeded", "global", 100))
        check.equal(int(full[0].header("Retry-After")), error["details"]["retry_after"])
        # a replay of an accepted run is no new one
        for run_id in good[:50]:
            check.equal(c.request("POST", f"{RUNS}/{run_id}/cancel").json()["cancelled"], True)
    for run_id in good:
        check.true(c.wait_run(run_id, 30)["phase"] in ("killed", "completed"))


@check.test
def startup_timeout():
    with c.Off("cordon-box"):
        start = time.monotonic()
        run = c.run(["true"], startup_timeout_sec=2)
        check.true(2 <= time.monotonic() - start < 5)
        check.equal((run["phase"], run["message"], run["exit_code"], run["status_reason_code"]),
                    ("timed_out", "startup_timeout", None, "startup_timeout"))
    check.wait_for(lambda: c.run(["true"])["phase"] == "completed", 10, "a run with cordon-box back")


@check.test
def box_back_within_the_startup_time():
    with c.Off("cordon-box"):
        run = c.run(["echo", "x"], wait=False)
        time.sleep(1)
    done = c.wait_run(run["id"], 10)
    check.equal((done["phase"], done["exit_code"]), ("completed", 0))


@check.test
def retention():
    run = c.run(["sh", "-c", "echo x | tee f"], capture_patterns=["f"])
    check.equal(len(c.artifacts(run["id"])), 1)
    tail = run["id"][-2:]
    paths = [f"{c.DATA_DIR}/{kind}/{tail}/{run['id']}" for kind in ("spool", "artifacts")]
    check.true(all(os.path.exists(p) for p in paths))
    c.sql(f"UPDATE run SET finished_at = finished_at - INTERVAL 25 HOUR WHERE id = '{run['id']}'")
    check.wait_for(lambda: not any(os.path.exists(p) for p in paths), 45, "spool and artifacts to go")
    check.equal(c.artifacts(run["id"]), [])
    check.equal(c.request("GET", f"{RUNS}/{run['id']}/artifacts/f").status, 404)
    check.equal(c.get_run(run["id"])["phase"], "completed")
    frames, code = c.follow(run["id"])
    check.equal((len(frames), code), (1, 1000))


@check.test
def idempotency_key_expires():
    key = f"old-{time.time_ns()}"
    first = c.run(["true"], headers={"Idempotency-Key": key})
    c.sql(f"UPDATE idempotency SET expires_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND WHERE idem_key = '{key}'")
    second = c.run(["false"], headers={"Idempotency-Key": key})
    check.true(first["id"] != second["id"])


@check.test
def workspace_is_full():
    code = """
import os, errno
try:
    f = open('big', 'wb')
    for _ in range(100): f.write(b'x' * (1 << 20)); f.flush()
    print('wrote all')
except OSError as e: print(errno.errorcode[e.errno], os.path.getsize('big') >> 20)
"""
    check.equal(output(c.run(["python3", "-c", code], trust_level="untrusted")), b"ENOSPC 64\n")
    code = """
import errno
n = 0
try:
    while True: open(str(n), 'w').close(); n += 1
except OSError as e: print(errno.errorcode[e.errno], 90000 < n <= 100000)
"""
    check.equal(output(c.run(["python3", "-c", code], timeout_sec=50)), b"ENOSPC True\n")


@check.test
def the_world_inside():
    text = output(c.run(["sh", "-c", "id -u; pwd; hostname; ls /proc | grep -c '^[0-9]'; cat /proc/net/dev | grep -c :; "
                                     "touch /x 2>&1 | grep -o 'Read-only'; ls /workspace | wc -l; ls -A /tmp | wc -l; echo $HOME; "
                                     "ls -l /usr/bin/env | cut -d' ' -f3; ls /proc/self/fd | wc -l; python3 -c 'import socket; "
                                     "socket.create_connection((\"127.0.0.1\", 1), 1)' 2>&1 | tail -n 1"]))
    words = text.decode().split("\n")
    check.equal(words[0], "1000")
    check.equal(words[1], "/workspace")
    check.true(int(words[3]) <= 8, words)
    check.equal(words[4], "1")
    check.equal(words[5], "Read-only")
    check.equal(words[6:9], ["0", "0", "/workspace"])
    check.equal(words[11], "ConnectionRefusedError: [Errno 111] Connection refused")


@check.test
def staging_does_not_stay():
    run = c.run(["cat", "f"], files=[{"path": "f", "content_b64": "eA=="}])
    check.equal(output(run), b"x")
    check.equal(glob.glob(f"{c.DATA_DIR}/staging/*/{run['id']}"), [])
    answer = c.request("POST", RUNS, c.run_body(["true"], files=[{"path": p, "content_b64": ""} for p in ("a/b", "a")]))
    check.equal((answer.status, answer.json()["error"]["code"]), (422, "invalid_inline_file"))
    answer = c.request("POST", RUNS, c.run_body(["cat", "f"], base_image="nope", files=[{"path": "f", "content_b64": "eA=="}]))
    check.equal(answer.status, 422)
    check.equal(glob.glob(f"{c.DATA_DIR}/staging/*/*"), [])


@check.test
def strays_are_removed():
    """What a crash between two steps may leave: files that no row names, older than an hour."""
    import pwd
    stray, fresh = "01900000-0000-7000-8000-0000000000aa", "01900000-0000-7000-8000-0000000000ab"
    paths = []
    for kind, owner in (("spool", "cordon-run"), ("artifacts", "cordon-run"), ("staging", "cordon-web")):
        for name in (stray, fresh):
            folder = f"{c.DATA_DIR}/{kind}/{name[-2:]}"
            made = not os.path.isdir(folder)
            os.makedirs(folder, exist_ok=True)
            path = f"{folder}/{name}"
            if kind == "staging":
                open(path, "w").close()
            else:
                os.makedirs(path, exist_ok=True)
                open(path + "/log", "w").close()
            for each in ([folder] if made else []) + [path] + ([path + "/log"] if kind != "staging" else []):
                os.chown(each, pwd.getpwnam(owner).pw_uid, os.stat(f"{c.DATA_DIR}/{kind}").st_gid)
                # as the programs make them: the folder stays, and what comes into it has its group
                os.chmod(each, 0o2770 if os.path.isdir(each) else 0o660)
            if name == stray:
                os.utime(path, (time.time() - 7200,) * 2)
            paths.append((path, name == stray))
    os.kill(c.program_pid("cordon-runner"), signal.SIGTERM)
    check.wait_for(lambda: not any(os.path.exists(p) for p, old in paths if old), 20, "the old ones to go")
    check.true(all(os.path.exists(p) for p, old in paths if not old))
    for path, old in paths:
        if not old:
            subprocess.run(["rm", "-r", path], check=True)


@check.test
def queue_quota_of_a_tag():
    template = "queue:\n  max_per_workspace: 3\n  max_per_user: 5\n"
    with open(c.POLICY) as file:
        good = file.read()
    check.has_not(good, "queue:")
    try:
        with open(c.POLICY, "w") as file:
            file.write(good + template)
        with c.Off("cordon-runner"):
            c.reload_workers()
            made = []

            def post(**more):
                answer = c.request("POST", RUNS, c.run_body(["true"], **more), headers={"Prefer": "respond-async"})
                if answer.status == 200:
                    made.append(answer.json()["id"])
                    return 200
                details = answer.json()["error"]["details"]
                return (answer.status, details["reason"], details["quota_scope"], details["limit"])

            check.equal([post(workspace_id="w") for _ in range(3)], [200] * 3)
            check.equal(post(workspace_id="w"), (429, "workspace_queue_quota_exceeded", "workspace_id", 3))
            check.equal([post(workspace_id="v"), post()], [200, 200])
            check.equal(post(), (429, "user_queue_quota_exceeded", "user_id", 5))
            for run_id in made:
                c.request("POST", f"{RUNS}/{run_id}/cancel")
    finally:
        with open(c.POLICY, "w") as file:
            file.write(good)
        c.reload_workers()


def states(runs):
    return [c.sql(f"SELECT state FROM job WHERE object_id = '{run['id']}'").strip() for run in runs]


@check.test
def active_runs_have_limits():
    with c.PolicyOf("active:\n  max_per_user: 3\n  max_per_workspace: 2\n"):
        runs = [c.run(["sleep", "2.5"], wait=False, workspace_id="w") for _ in range(3)]
        runs += [c.run(["sleep", "2.5"], wait=False) for _ in range(3)]
        last = c.run(["true"], wait=False)
        # two of the workspace, one more of the user; the rest is parked and shown as queued
        check.wait_for(lambda: states(runs + [last]) == ["claimed"] * 2 + ["parked", "claimed"] + ["parked"] * 3, 10, "three to be claimed")
        check.equal([c.get_run(run["id"])["phase"] for run in (runs[2], last)], ["queued", "queued"])
        most = 0
        while any(c.get_run(run["id"])["finished_at"] is None for run in runs):
            most = max(most, int(c.sql("SELECT COUNT(*) FROM job WHERE state IN ('queued', 'claimed') AND kind = 'run'")))
        check.equal(most, 3)
        check.equal([c.wait_run(run["id"])["phase"] for run in runs + [last]], ["completed"] * 7)
        # another user has limits of his own; a parked one can be canceled, and its time in the queue ends
        runs = [c.run(["sleep", "30"], wait=False) for _ in range(5)]
        check.equal(c.run(["true"], key=c.OTHER)["phase"], "completed")
        answer = c.request("POST", f"{RUNS}/{runs[3]['id']}/cancel").json()
        check.equal((answer["cancelled"], c.get_run(runs[3]["id"])["phase"]), (True, "killed"))
        c.sql(f"UPDATE job SET expires_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND WHERE object_id = '{runs[4]['id']}'")
        check.equal(c.wait_run(runs[4]["id"], 10)["message"], "queue_ttl_expired")
        for run in runs[:3]:
            c.request("POST", f"{RUNS}/{run['id']}/cancel")
        parked = [c.run(["sleep", "2"], wait=False) for _ in range(5)]
        check.equal(states(parked)[3:], ["parked", "parked"])
    # without the limit what is parked goes
    check.equal([c.wait_run(run["id"], 20)["phase"] for run in parked], ["completed"] * 5)


@check.test
def the_estimate_is_measured():
    for _ in range(12):
        c.run(["sleep", "0.3"])
    time.sleep(3.5)  # the next beat tells
    taken = int(c.sql("SELECT run_us FROM runner"))
    check.true(200000 < taken < 2000000, taken)
    places = int(c.sql("SELECT places FROM runner"))
    with c.Off("cordon-runner"):
        c.sql(f"UPDATE runner SET run_us = 8000000 * {places}")
        runs = [c.run(["true"], wait=False) for _ in range(3)]
        created = [c.sql(f"SELECT TIMESTAMPDIFF(SECOND, created_at, estimated_start_at) FROM run WHERE id = '{run['id']}'").strip() for run in runs]
        have = int(c.sql("SELECT COUNT(*) FROM runner"))
        check.equal(created, ["0", "8", "16"] if have else ["0", "5", "10"])
        check.true(runs[2]["estimated_start_time"] > runs[1]["estimated_start_time"] > runs[0]["created_at"])
        for run in runs:
            c.request("POST", f"{RUNS}/{run['id']}/cancel")


@check.test
def sixteen_at_once_do_not_mix():
    def one(n):
        run = c.run(["sh", "-c", f"echo {n}; echo {n} > f; sleep 0.1; cat f"], capture_patterns=["f"])
        return (output(run), c.request("GET", f"{RUNS}/{run['id']}/artifacts/f").body)

    got = c.many(64, 16, one)
    check.equal(got, [(b"%d\n%d\n" % (n, n), b"%d\n" % n) for n in range(64)])


check.main()
