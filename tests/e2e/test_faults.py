#!/usr/bin/env python3
"""test_faults: parts of the stack go away and come back. What was accepted is never lost and never run twice, every run ends with a true
reason, and the logs hold no secret."""
import glob
import json
import os
import random
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import check  # noqa: E402
import cordon as c  # noqa: E402

RUNS = c.BASE + "/runs"
VAR = os.path.dirname(c.DATA_DIR)


class Off:
    """A program that is kept down: its restart loop is told to start nothing."""

    def __init__(self, name, number=signal.SIGKILL):
        self.name, self.number = name, number
        self.file = os.path.join(VAR, "run-off", name)

    def __enter__(self):
        pid = c.program_pid(self.name)
        with open(self.file, "w"):
            pass
        os.kill(pid, self.number)
        check.wait_for(lambda: not os.path.exists(f"/proc/{pid}"), 20, self.name + " to end")
        return self

    def back(self):
        if os.path.exists(self.file):
            os.unlink(self.file)

    def __exit__(self, *_):
        self.back()


@check.test
def database_down():
    run = c.run(["python3", "-u", "-c", "import time\nfor i in range(60):\n print(i); time.sleep(0.1)"], wait=False)
    ws = c.WebSocket(c.stream_path(run["id"]))
    frames = [ws.frame()]
    check.equal(frames[0]["event"], "start")
    with Off("mariadb"):
        answer = c.request("GET", RUNS)
        check.equal((answer.status, answer.json()["error"]["code"]), (503, "store_unavailable"))
        check.true(int(answer.header("Retry-After")) >= 1)
        answer = c.request("POST", RUNS, c.run_body(["true"]))
        check.equal((answer.status, answer.json()["error"]["code"]), (503, "store_unavailable"))
        public = c.request("GET", c.BASE + "/health/public", key=None)
        check.equal((public.status, public.json()["ok"], public.json()["store"]["healthy"]), (200, False, False))
        check.equal(c.request("GET", c.BASE + "/health").status, 503)
        before = len(frames)
        for _ in range(10):
            frames.append(ws.frame())
        check.true(len(frames) >= before + 10)
        for word in (c.KEY, "socket", "mariadb", "SELECT", "2002"):
            check.has_not(answer.body.decode(), word)
    check.wait_for(c.healthy, 20, "the service to recover")
    while (frame := ws.frame()) is not None:
        frames.append(frame)
    c.check_sequence(frames)
    check.equal(c.output(frames, "stdout"), b"".join(b"%d\n" % i for i in range(60)))
    check.equal(c.get_run(run["id"])["phase"], "completed")


@check.test
def a_run_that_ends_while_the_database_is_down():
    run = c.run(["sh", "-c", "sleep 1; echo done > f"], wait=False, capture_patterns=["f"])
    c.wait_phase(run["id"], ["starting", "running"])
    with Off("mariadb"):
        time.sleep(2)
    check.wait_for(c.healthy, 20, "the service to recover")
    done = c.wait_run(run["id"], 20)
    check.equal((done["phase"], done["exit_code"], [a["path"] for a in c.artifacts(run["id"])]), ("completed", 0, ["f"]))


@check.test
def runner_down_runs_wait():
    with Off("cordon-runner", signal.SIGTERM):
        run = c.run(["echo", "late"], wait=False)
        time.sleep(1)
        check.equal(c.get_run(run["id"])["phase"], "queued")
        canceled = c.run(["true"], wait=False)
        check.equal(c.request("POST", f"{RUNS}/{canceled['id']}/cancel").json()["cancelled"], True)
    done = c.wait_run(run["id"], 20)
    check.equal(done["phase"], "completed")


COUNT = ["python3", "-u", "-c", "import time\nfor i in range(40):\n print(i); time.sleep(0.1)\nopen('f', 'w').write('done')"]
WANTED = b"".join(b"%d\n" % i for i in range(40))


def survives(number, program="cordon-runner"):
    """A running command goes on while the program ends and comes back: output whole, artifacts there, the held request answered."""
    run = c.run(COUNT, wait=False, capture_patterns=["f"])
    c.wait_phase(run["id"], ["running"])
    held = []
    thread = threading.Thread(target=lambda: held.append(c.request("POST", RUNS, c.run_body(["sh", "-c", "sleep 3; exit 5"]))))
    thread.start()
    ws = c.WebSocket(c.stream_path(run["id"]))
    time.sleep(0.5)
    os.kill(c.program_pid(program), number)
    frames = []
    while (frame := ws.frame()) is not None:
        frames.append(frame)
    c.check_sequence(frames)
    check.equal((c.output(frames, "stdout"), ws.close_code), (WANTED, 1000))
    done = c.get_run(run["id"])
    check.equal((done["phase"], done["exit_code"]), ("completed", 0))
    check.equal(c.request("GET", f"{RUNS}/{run['id']}/artifacts/f").body, b"done")
    thread.join()
    check.equal((held[0].status, held[0].json()["exit_code"]), (200, 5))
    check.wait_for(c.no_box_processes, 10, "the boxes to go")


@check.test
def runner_killed_and_back():
    survives(signal.SIGKILL)


@check.test
def runner_stopped_and_back():
    survives(signal.SIGTERM)


@check.test
def runner_killed_ten_times_in_one_run():
    run = c.run(COUNT, wait=False, capture_patterns=["f"])
    for _ in range(10):
        time.sleep(0.3)
        try:
            os.kill(c.program_pid("cordon-runner"), signal.SIGKILL)
        except OSError:
            pass
    done = c.wait_run(run["id"], 30)
    check.equal((done["phase"], done["exit_code"]), ("completed", 0))
    frames, _ = c.follow(run["id"])
    c.check_sequence(frames)
    check.equal(c.output(frames, "stdout"), WANTED)


@check.test
def limits_hold_over_a_restart_of_the_runner():
    start = time.monotonic()
    run = c.run(["sleep", "100"], wait=False, timeout_sec=4)
    c.wait_phase(run["id"], ["running", "starting"])
    time.sleep(0.5)
    with Off("cordon-runner"):
        time.sleep(1)
    done = c.wait_run(run["id"], 20)
    check.equal((done["phase"], done["message"]), ("timed_out", "execution_timeout"))
    check.true(4 <= time.monotonic() - start < 8, time.monotonic() - start)
    run = c.run(["sleep", "100"], wait=False)
    c.wait_phase(run["id"], ["running", "starting"])
    time.sleep(0.5)
    answers = []
    with Off("cordon-runner"):
        thread = threading.Thread(target=lambda: answers.append(c.request("POST", f"{RUNS}/{run['id']}/cancel").json()))
        thread.start()
        time.sleep(1)
    thread.join()
    check.equal(answers[0]["cancelled"], True)


@check.test
def nothing_is_lost_or_run_twice_while_the_runner_dies():
    """Each run appends to nothing but itself: its output says how often it was started."""
    stop = threading.Event()

    def kill():
        while not stop.is_set():
            # not regular: the restart loop waits 2 s, and a kill in step with it lets no runner live long enough to beat
            time.sleep(random.uniform(0.2, 0.7))
            try:
                os.kill(c.program_pid("cordon-runner"), signal.SIGKILL)
            except OSError:
                pass

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        ended = c.many(120, 8, lambda n: c.wait_run(c.run(["sh", "-c", f"echo start {n}; sleep 0.2; echo end {n} > f"], wait=False,
                                                             capture_patterns=["f"])["id"], 60))
    finally:
        stop.set()
        killer.join()
    bad = []
    for n, run in enumerate(ended):
        frames, _ = c.follow(run["id"])
        if (run["phase"], c.output(frames, "stdout")) != ("completed", b"start %d\n" % n):
            bad.append((n, run["phase"], run["message"], c.output(frames, "stdout")))
    check.equal(bad, [])
    check.wait_for(c.no_box_processes, 10, "the boxes to go")


@check.test
def runner_dead_and_not_back_is_swept_by_the_gate():
    run = c.run(["sleep", "100"], wait=False)
    c.wait_phase(run["id"], ["running", "starting"])
    time.sleep(0.5)
    start = time.monotonic()
    with Off("cordon-runner"):
        done = c.wait_run(run["id"], 30)
        check.true(10 < time.monotonic() - start < 22, time.monotonic() - start)
    check.equal((done["phase"], done["message"]), ("failed", "box_lost"))


@check.test
def box_daemon_restart():
    for number in (signal.SIGKILL, signal.SIGTERM):
        before = c.program_pid("cordon-box")
        survives(number, "cordon-box")
        check.true(c.program_pid("cordon-box") != before, "it was started again")
        check.equal(c.run(["echo", "x"])["phase"], "completed")


@check.test
def a_run_is_canceled_after_a_restart_of_the_box_daemon():
    run = c.run(["sleep", "100"], wait=False)
    c.wait_phase(run["id"], ["running"])
    os.kill(c.program_pid("cordon-box"), signal.SIGKILL)
    check.wait_for(lambda: c.run(["echo", "x"])["phase"] == "completed", 10, "a run after the restart")
    check.equal(c.get_run(run["id"])["finished_at"], None)
    check.equal(c.request("POST", f"{RUNS}/{run['id']}/cancel").json()["cancelled"], True)
    check.true(c.get_run(run["id"])["finished_at"] is not None)
    check.wait_for(c.no_box_processes, 10, "the box to go")


@check.test
def a_worker_that_dies_is_replaced():
    master = c.program_pid("cordon-fcgi")
    with open(f"/proc/{master}/task/{master}/children") as file:
        workers = [int(p) for p in file.read().split()]
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    check.wait_for(c.healthy, 5, "new workers")
    check.equal(c.run(["true"])["phase"], "completed")


@check.test
def nothing_accepted_is_lost_while_workers_die():
    accepted = []
    lost = []
    stop = threading.Event()

    def post(n):
        for i in range(250):
            key = f"kill-{os.getpid()}-{n}-{i}-{time.time_ns()}"
            for _ in range(50):
                try:
                    answer = c.request("POST", RUNS, c.run_body(["sh", "-c", "echo $$ > once"], capture_patterns=["once"]),
                                       headers={"Idempotency-Key": key})
                except OSError:
                    continue
                if answer.status == 200 and answer.json()["finished_at"]:
                    accepted.append(answer.json())
                    break
                if answer.status not in (200, 502, 503):
                    lost.append((answer.status, answer.body))
                    break
                time.sleep(0.02)
            else:
                lost.append(key)

    def kill():
        while not stop.is_set():
            # slower than the pool's emergency stop
            time.sleep(0.6)
            try:
                master = c.program_pid("cordon-fcgi")
                with open(f"/proc/{master}/task/{master}/children") as file:
                    workers = [int(p) for p in file.read().split()]
                os.kill(workers[time.time_ns() % len(workers)], signal.SIGKILL)
            except (OSError, ZeroDivisionError):
                pass

    killer = threading.Thread(target=kill)
    threads = [threading.Thread(target=post, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    killer.start()
    for thread in threads:
        thread.join()
    stop.set()
    killer.join()
    check.equal(lost, [])
    check.equal(len({r["id"] for r in accepted}), 1000)
    check.equal({(r["phase"], r["exit_code"]) for r in accepted}, {("completed", 0)})


def workers_of(master):
    with open(f"/proc/{master}/task/{master}/children") as file:
        return [int(p) for p in file.read().split()]


@check.test
def a_stopped_pool_loses_no_request():
    answers = []

    def ask(n):
        for _ in range(60):
            answers.append(c.request("GET", RUNS + "?limit=1").status)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(2):
        time.sleep(0.2)
        pid = c.program_pid("cordon-fcgi")
        os.kill(pid, signal.SIGTERM)
        check.wait_for(lambda: not os.path.exists(f"/proc/{pid}"), 10, "the pool to drain")
        check.wait_for(lambda: os.path.exists(c.RUN_DIR + "/pids/cordon-fcgi"), 5, "the pool to start")
    for thread in threads:
        thread.join()
    check.equal((len(answers), set(answers)), (180, {200}))


@check.test
def pool_stops_when_its_workers_crash_in_a_loop():
    before = c.program_pid("cordon-fcgi")
    end = time.monotonic() + 20
    while time.monotonic() < end and os.path.exists(f"/proc/{before}"):
        try:
            for pid in workers_of(before):
                os.kill(pid, signal.SIGTRAP)  # SEGV and the like would count as a real crash in run.sh
        except OSError:
            pass
        time.sleep(0.02)
    check.true(not os.path.exists(f"/proc/{before}"), "the master goes on")
    with open(os.path.join(VAR, "log", "cordon-fcgi.log")) as file:
        check.has(file.read(), "pool_emergency_stop")
    check.wait_for(c.healthy, 10, "the service manager to start it again")


@check.test
def a_bad_policy_is_not_taken():
    path = c.POLICY
    with open(path) as file:
        good = file.read()
    try:
        with open(path, "w") as file:
            file.write(good + "nonsense: 1\n")
        for name in ("cordon-fcgi", "cordon-gate"):
            pid = c.program_pid(name)
            os.kill(pid, signal.SIGHUP)
            log = os.path.join(VAR, "log", name + ".log")
            check.wait_for(lambda: "reload_refused" in open(log).read(), 5, name + " to refuse it")
            check.equal(c.program_pid(name), pid)
        check.equal(c.run(["true"])["phase"], "completed")
    finally:
        with open(path, "w") as file:
            file.write(good)


@check.test
def logs_hold_no_secret():
    marker = f"querymarker{time.time_ns()}"
    ws = c.WebSocket(c.stream_path(c.run(["true"])["id"], query=f"auth_token={c.KEY}&x={marker}"), key=None)
    ws.close()
    c.request("GET", f"{RUNS}?limit=1&x={marker}")
    c.request("GET", "/nothing?x=" + marker)
    time.sleep(0.5)
    secrets = [key.split("_")[2] for key in (c.KEY, c.ADMIN, c.OTHER)] + [marker]
    files = glob.glob(os.path.join(VAR, "log", "*"))
    check.true(len(files) >= 6, files)
    for path in files:
        with open(path, "rb") as file:
            text = file.read()
        for secret in secrets:
            check.true(secret.encode() not in text, (path, secret[:6]))


@check.test
def every_answer_names_its_request():
    run = c.run(["sh", "-c", "echo 0123456789 > f"], capture_patterns=["f"])
    seen = set()
    for method, path, more in (("GET", RUNS, {}), ("GET", "/nothing", {}), ("DELETE", RUNS, {}), ("GET", RUNS, {"key": None}),
                               ("GET", f"{RUNS}/{run['id']}/artifacts/f", {}), ("GET", f"{RUNS}/{run['id']}/stream", {}),
                               ("GET", f"{RUNS}/{run['id']}/artifacts/f", {"headers": {"Range": "bytes=0-1"}}),
                               ("GET", f"{RUNS}/{run['id']}/artifacts/f", {"headers": {"Range": "bytes=x"}}),
                               ("POST", RUNS, {"body": c.run_body(["true"])}), ("POST", RUNS, {"body": "x" * (9 << 20)})):
        answer = c.request(method, path, **more)
        ids = answer.all("X-Request-ID")
        check.equal((len(ids), [len(i) for i in ids]), (1, [32]), (method, path, answer.status))
        seen.add(ids[0])
    check.equal(len(seen), 10)


@check.test
def a_request_can_be_followed_by_its_id():
    run = c.run(["true"])
    with open(os.path.join(VAR, "log", "cordon-runner.log")) as file:
        line = [text for text in file if f"run={run['id']}" in text and "run_ended" in text][-1]
    req = [word for word in line.split() if word.startswith("req=")][0][4:]

    def rows_of():
        with open(os.path.join(VAR, "log", "access.json")) as file:
            return [json.loads(text) for text in file if req in text]

    # nginx writes its line behind the answer
    rows = check.wait_for(rows_of, 5, "the access log")
    check.equal((len(rows), rows[0]["method"], rows[0]["path"]), (1, "POST", RUNS))


check.main()
