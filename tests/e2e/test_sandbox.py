#!/usr/bin/env python3
"""test_sandbox: boxes that live until they are stopped (face 3, as far as it is there): start, commands, stop, resume, delete; refusals; many
commands at once; what ends by a limit or by the clock; and what happens when programs of ours die."""
import base64
import os
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import check  # noqa: E402
import cordon as c  # noqa: E402

BASE = "/v1/sandboxes"
OTHER = os.environ["CORDON_OTHER_KEY"]
ADMIN = os.environ["CORDON_ADMIN_KEY"]
WORKSPACES = os.path.join(c.DATA_DIR, "workspaces")
made = []


def create(key=c.KEY, **body):
    answer = c.request("POST", BASE, body, key=key)
    check.equal(answer.status, 201, answer.body)
    box = answer.json()
    check.equal(box["status"], "running")
    made.append(box["id"])
    return box


def path(box, rest=""):
    return f"{BASE}/{box['id']}{rest}"


def command(box, text, key=c.KEY, **more):
    return c.request("POST", path(box, "/runtime/terminals/commands"), dict(more, command=text), key=key)


def result(box, text, **more):
    answer = command(box, text, **more)
    check.equal(answer.status, 200, answer.body)
    return answer.json()["result"]


def says(box, text, **more):
    got = result(box, text, **more)
    check.equal((got["exitCode"], got["stderr"]), (0, ""), got)
    return got["stdout"]


def delete(box):
    answer = c.request("DELETE", path(box))
    check.equal((answer.status, answer.json().get("outcome")), (200, "destroyed"), answer.body)
    check.true(not os.path.exists(os.path.join(WORKSPACES, box["id"])), "the workspace is still there")


def status(box):
    return c.request("GET", path(box)).json()["status"]


def error(answer, code):
    body = answer.json()
    check.equal((answer.status, body["success"], body["error"]["code"]), (code[0], False, code[1]), answer.body)
    check.true(body["error"]["message"])
    return body["error"]


def host_processes(text):
    """Processes with an id of a box whose command line has that text."""
    found, ids = [], c.box_ids()
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.stat("/proc/" + name).st_uid in ids:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    if text.encode() in file.read():
                        found.append(int(name))
        except OSError:
            pass
    return found


def parent_of(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rsplit(")", 1)[1].split()[1])


def first_process(pid):
    """Pid 1 of that process's box, as the host sees it: the last of its parents with an id of a box."""
    ids = c.box_ids()
    while True:
        above = parent_of(pid)
        if os.stat(f"/proc/{above}").st_uid not in ids:
            return pid
        pid = above


def keepers():
    """The children of cordon-box that are cordon-box still."""
    daemon, found = c.program_pid("cordon-box"), []
    with open(f"/proc/{daemon}/task/{daemon}/children") as file:
        for word in file.read().split():
            try:
                if os.path.basename(os.readlink(f"/proc/{word}/exe")) == "cordon-box":
                    found.append(int(word))
            except OSError:
                pass
    return found


def runs_in(box):
    """Face 1 lists no commands of sandboxes: the database does."""
    done = subprocess.run(["mariadb", "--no-defaults", "--batch", "--skip-column-names", "--socket", os.path.join(c.RUN_DIR, "db", "mariadb.sock"), "cordon",
                           "-e", "SELECT id FROM run WHERE sandbox_id = '%s'" % box["id"]], capture_output=True, text=True, timeout=20, check=True)
    return done.stdout.split()


# --- the life ----------------------------------------------------------------------------------


@check.test
def life():
    box = create(name="one", metadata={"k": [1, {"a": None}]}, env={"A": "from sandbox", "B": "b"},
                 resources={"cpuCores": 1, "memoryMB": 256, "diskGB": 1}, maxLifetimeSeconds=600)
    check.equal((box["name"], box["metadata"], box["resources"], box["ephemeral"]),
                ("one", {"k": [1, {"a": None}]}, {"cpuCores": 1.0, "memoryMB": 256, "diskGB": 1.0}, False))
    check.true(box["connection"]["runtimeUrl"].endswith(path(box, "/runtime")))
    check.equal(says(box, "pwd; id -u; echo $A $B; nproc", env={"A": "of the command"}), "/workspace\n1000\nof the command b\n1\n")
    check.equal(says(box, "mkdir -p d && cd d && pwd > ../kept && cat ../kept"), "/workspace/d\n")
    check.equal(says(box, "pwd", cwd="d"), "/workspace/d\n")
    check.equal(says(box, "pwd", cwd="/tmp"), "/tmp\n")
    got = result(box, "echo out; echo err >&2; exit 42")
    check.equal((got["exitCode"], got["stdout"], got["stderr"], got["timedOut"]), (42, "out\n", "err\n", False))
    check.true(0 < got["duration"] < 5000)
    check.equal([b["id"] for b in c.request("GET", BASE).json()["sandboxes"] if b["id"] == box["id"]], [box["id"]])
    stopped = c.request("POST", path(box, "/stop"))
    check.equal((stopped.status, stopped.json()["status"]), (200, "stopped"))
    check.true("connection" not in stopped.json() and stopped.json()["stoppedAt"])
    check.equal(c.request("POST", path(box, "/stop")).json()["status"], "stopped")
    again = c.request("POST", path(box, "/resume"))
    check.equal((again.status, again.json()["status"]), (200, "running"))
    check.equal(c.request("POST", path(box, "/resume")).json()["status"], "running")
    check.equal(says(box, "cat kept; ls"), "/workspace/d\nd\nkept\n")
    delete(box)
    error(c.request("GET", path(box)), (404, "NOT_FOUND"))
    check.equal(c.request("DELETE", path(box)).json()["outcome"], "already_absent")
    error(command(box, "true"), (404, "NOT_FOUND"))
    check.true(box["id"] not in [b["id"] for b in c.request("GET", BASE).json()["sandboxes"]])


@check.test
def processes_stay_between_commands():
    box = create()
    says(box, "setsid sleep 4711 > /dev/null 2>&1 &")
    check.equal(says(box, "pgrep -cf 'sleep 471[1]'"), "1\n")
    check.equal(len(host_processes("4711")), 1)
    check.equal(c.request("POST", path(box, "/stop")).status, 200)
    check.equal(host_processes("4711"), [])
    delete(box)


@check.test
def ephemeral_keeps_nothing():
    box = create(ephemeral=True)
    check.true(not os.path.exists(os.path.join(WORKSPACES, box["id"])))
    says(box, "echo x > f")
    check.equal(c.request("POST", path(box, "/stop")).json()["status"], "stopped")
    error(c.request("POST", path(box, "/resume")), (409, "RUNTIME_GONE"))
    delete(box)


@check.test
def output_is_exact():
    box = create()
    data = bytes(range(1, 128)) + "äöü€\U0001F600".encode()
    text = base64.b64encode(data).decode()
    check.equal(says(box, f"echo {text} | base64 -d"), data.decode())
    got = result(box, r"printf 'a\377b\000c'")
    check.equal(got["stdout"], "a\ufffdb\ufffdc")
    got = result(box, "head -c 200000 /dev/zero | tr '\\0' x; head -c 70000 /dev/zero | tr '\\0' y >&2")
    check.equal((len(got["stdout"]), got["stdoutTruncated"], len(got["stderr"]), got["stderrTruncated"]), (65536, True, 65536, True))
    got = result(box, "head -c 65536 /dev/zero | tr '\\0' x")
    check.equal((len(got["stdout"]), got["stdoutTruncated"]), (65536, False))
    answer = command(box, "echo whole; head -c 300000 /dev/zero | tr '\\0' x")
    frames, code = c.follow(answer.json()["runId"])
    check.equal((len(c.output(frames, "stdout")), code), (300006, 1000))
    delete(box)


# --- refusals ----------------------------------------------------------------------------------


@check.test
def refusals_of_create():
    for body, field in (({"name": 7}, "name"), ({"name": "x" * 300}, "name"), ({"resources": []}, "resources"),
                        ({"resources": {"cpuCores": 0}}, "resources.cpuCores"), ({"resources": {"cpuCores": "2"}}, "resources.cpuCores"),
                        ({"resources": {"memoryMB": 0}}, "resources.memoryMB"), ({"resources": {"memoryMB": 63}}, "resources.memoryMB"), ({"resources": {"diskGB": 1.5}}, "resources.diskGB"),
                        ({"env": {"a b": "x"}}, "env"), ({"env": {"A": 1}}, "env"), ({"env": {"1A": "x"}}, "env"),
                        ({"maxLifetimeSeconds": 0}, "maxLifetimeSeconds"), ({"ephemeral": "yes"}, "ephemeral"), ({"metadata": "m"}, "metadata")):
        got = error(c.request("POST", BASE, body), (400, "INVALID_REQUEST"))
        check.equal([f["field"] for f in got["fields"]], [field], body)
    for body in ("{", "[]", "7", '{"name": "a', '{"name": "\\ud800"}'):
        error(c.request("POST", BASE, body, headers={"Content-Type": "application/json"}), (400, "INVALID_REQUEST"))
    for field in ("git", "secrets", "gpuLease", "fromSnapshot", "egressPolicy"):
        got = error(c.request("POST", BASE, {field: {"a": 1}}), (501, "NOT_SUPPORTED"))
        check.equal(got["field"], field)
    error(c.request("POST", BASE, {}, key=None), (401, "UNAUTHORIZED"))
    error(c.request("POST", BASE, {}, key="ck_no_no"), (401, "UNAUTHORIZED"))
    error(c.request("PUT", BASE, {}), (405, "METHOD_NOT_ALLOWED"))


@check.test
def refusals_of_commands():
    box = create()
    for body in ({}, {"command": ""}, {"command": None}, {"command": 7}, {"command": ["true"]}):
        error(c.request("POST", path(box, "/runtime/terminals/commands"), body), (400, "INVALID_COMMAND"))
    for body, field in (({"timeout": 0}, "timeout"), ({"timeout": "1"}, "timeout"), ({"cwd": ""}, "cwd"), ({"cwd": 1}, "cwd"),
                        ({"env": []}, "env"), ({"env": {"A=B": "x"}}, "env")):
        got = error(c.request("POST", path(box, "/runtime/terminals/commands"), dict(body, command="true")), (400, "INVALID_REQUEST"))
        check.equal([f["field"] for f in got["fields"]], [field], body)
    error(c.request("POST", path(box, "/runtime/terminals/commands"), ""), (400, "INVALID_REQUEST"))
    got = error(command(box, "true", cwd="/nosuch"), (400, "INVALID_REQUEST"))
    check.equal([f["field"] for f in got["fields"]], ["cwd"])
    check.equal(result(box, "nosuchprogram")["exitCode"], 127)
    check.equal(c.request("POST", path(box, "/stop")).status, 200)
    got = error(command(box, "true"), (409, "SANDBOX_NOT_RUNNING"))
    check.equal((got["currentState"], got["requiredState"]), ("stopped", "running"))
    delete(box)
    for ident in ("x", "01a2284b-469b-77cd-b445-008f1d0fc36a", "..", "%00", "a" * 300):
        answer = c.request("GET", f"{BASE}/{ident}")
        check.true(answer.status in (400, 404), (ident, answer.status))


@check.test
def others_do_not_see_it():
    box = create()
    for answer in (c.request("GET", path(box), key=OTHER), command(box, "true", key=OTHER), c.request("DELETE", path(box), key=OTHER),
                   c.request("POST", path(box, "/stop"), key=OTHER), c.request("POST", path(box, "/resume"), key=OTHER)):
        error(answer, (404, "NOT_FOUND"))
    check.true(box["id"] not in [b["id"] for b in c.request("GET", BASE, key=OTHER).json()["sandboxes"]])
    check.equal(c.request("GET", path(box), key=ADMIN).status, 200)
    run = command(box, "true").json()["runId"]
    check.equal(c.request("GET", f"{c.BASE}/runs/{run}", key=OTHER).status, 404)
    check.true(run not in [r["id"] for r in c.request("GET", c.BASE + "/runs?limit=100").json()["items"]], "an exec is in face 1's list")
    delete(box)


# --- limits ------------------------------------------------------------------------------------


@check.test
def many_commands_at_once():
    box = create()
    got = c.many(24, 24, lambda i: result(box, f"sleep 0.2; echo {i}; echo e{i} >&2; exit {i}"))
    check.equal(sorted((g["exitCode"], g["stdout"], g["stderr"]) for g in got), sorted((i, f"{i}\n", f"e{i}\n") for i in range(24)))
    answers = c.many(44, 44, lambda i: command(box, "sleep 2"))
    full = [a for a in answers if a.status == 429]
    check.equal(len([a for a in answers if a.status == 200]) + len(full), 44)
    check.true(len(full) >= 8, len(full))
    check.equal(error(full[0], (429, "RATE_LIMIT_EXCEEDED"))["limit"], 30)
    check.equal(says(box, "echo still here"), "still here\n")
    delete(box)


@check.test
def timeout_ends_the_command_alone():
    box = create()
    says(box, "setsid sleep 4712 > /dev/null 2>&1 &")
    begun = time.monotonic()
    got = result(box, "trap '' TERM; echo before; sleep 60; echo after", timeout=700)
    check.true(0.6 < time.monotonic() - begun < 2.7)
    check.equal((got["exitCode"], got["timedOut"], got["stdout"]), (124, True, "before\n"))
    check.has(got["stderr"], "timed out")
    check.equal(says(box, "pgrep -cf 'sleep 471[2]'"), "1\n")
    delete(box)
    check.equal(host_processes("4712"), [])


@check.test
def out_of_memory_is_named():
    box = create(resources={"memoryMB": 64})
    answer = command(box, "exec python3 -c 'x = bytearray(300 << 20)'")
    check.equal(answer.json()["result"]["exitCode"], 137)
    check.equal(c.get_run(answer.json()["runId"])["message"], "out_of_memory")
    # the next one that is killed is not blamed on memory
    answer = command(box, "kill -9 $$")
    check.equal(c.get_run(answer.json()["runId"])["message"], "signal=SIGKILL")
    # a child of the shell: the shell says 137 and ends by itself, the count says why
    answer = command(box, "python3 -c 'x = bytearray(300 << 20)'; exit $?")
    run = c.get_run(answer.json()["runId"])
    check.equal((answer.json()["result"]["exitCode"], run["message"], run["resource_usage"].get("oom_kills")), (137, "exit=137", 1))
    run = c.get_run(command(box, "exit 137").json()["runId"])
    check.equal((run["message"], "oom_kills" in run["resource_usage"]), ("exit=137", False))
    check.equal(says(box, "echo lives"), "lives\n")
    delete(box)


@check.test
def disk_ends():
    box = create(resources={"diskGB": 1})
    got = result(box, "head -c 1200000000 /dev/zero > big; stat -c %s big; rm big; echo x > small; cat small")
    size, rest = got["stdout"].split("\n", 1)
    check.true(1000 << 20 <= int(size) <= 1100 << 20, size)
    check.equal(rest, "x\n")
    check.has(got["stderr"], "No space left")
    delete(box)


@check.test
def tmp_holds_many_files():
    """Of a sandbox with a workspace too: /tmp and /dev/shm had 63 names once."""
    for box in (create(), create(ephemeral=True)):
        for folder in ("/tmp", "/dev/shm", "/workspace"):
            check.equal(says(box, "cd %s && seq 1000 | xargs touch && ls | wc -l" % folder), "1000\n", folder)
        delete(box)


@check.test
def environment_is_that_of_runs():
    box = create(env={"LANG": "C", "OWN": "1"})
    got = dict(line.split("=", 1) for line in says(box, "env", env={"USER": "me"}).splitlines())
    wanted = {"HOME": "/workspace", "TMPDIR": "/tmp", "LANG": "C", "OWN": "1", "USER": "me"}
    check.equal({name: got.get(name) for name in wanted}, wanted)
    check.has(got["PATH"], "/usr/bin")
    delete(box)


@check.test
def sandbox_without_free_processes_says_so():
    box = create()
    filler = ("import os, time\nwhile True:\n    try:\n        if os.fork() == 0:\n            time.sleep(600)\n            os._exit(0)\n"
              "    except OSError:\n        time.sleep(0.02)\n")
    result(box, "cat > /tmp/filler <<'E'\n%sE\nsetsid python3 /tmp/filler > /dev/null 2>&1 & sleep 0.5" % filler)
    check.wait_for(lambda: command(box, "true").status == 429, 10, "the processes to be used up")
    answer = command(box, "true")
    check.equal((answer.status, answer.json()["error"]["code"]), (429, "RATE_LIMIT_EXCEEDED"))
    check.has(answer.json()["error"]["message"], "as many processes")
    check.equal(c.request("POST", path(box, "/stop")).status, 200)
    check.equal(c.request("POST", path(box, "/resume")).status, 200)
    check.equal(says(box, "echo free"), "free\n")
    delete(box)


@check.test
def canceled_command_is_no_success():
    box = create()
    answers = []
    thread = threading.Thread(target=lambda: answers.append(command(box, "sleep 4714; echo never")))
    thread.start()
    check.wait_for(lambda: host_processes("4714"), 10, "the command")
    found = runs_in(box)
    check.equal(len(found), 1)
    check.equal(c.request("POST", "%s/runs/%s/cancel" % (c.BASE, found[0])).status, 200)
    thread.join()
    check.equal((answers[0].status, answers[0].json()["error"]["code"], answers[0].json()["runId"]), (409, "EXEC_CANCELED", found[0]))
    delete(box)


@check.test
def box_that_dies_under_a_command_is_a_conflict():
    """Pid 1 is killed by the kernel for memory, or by the host."""
    box = create()
    answers = []
    thread = threading.Thread(target=lambda: answers.append(command(box, "sleep 4715")))
    thread.start()
    check.wait_for(lambda: host_processes("4715"), 10, "the command")
    os.kill(first_process(host_processes("4715")[0]), signal.SIGKILL)
    thread.join()
    check.equal((answers[0].status, answers[0].json()["error"]["code"]), (409, "SANDBOX_NOT_RUNNING"))
    check.wait_for(lambda: status(box) == "stopped", 5, "the sandbox to be stopped")
    delete(box)


@check.test
def keeper_that_dies_is_no_failed_delete():
    for number in range(12):
        box = create()
        answers = []
        thread = threading.Thread(target=lambda box=box: answers.append(c.request("DELETE", path(box))))
        thread.start()
        time.sleep(0.001 * number)
        for pid in keepers()[:1]:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        thread.join()
        check.equal(answers[0].status, 200, answers[0].body)


@check.test
def lists_of_large_metadata_are_answered():
    text = "x" * 65000
    boxes = [create(metadata={"text": text}, ephemeral=True) for _ in range(8)]
    listed = c.request("GET", BASE).json()["sandboxes"]
    check.equal(sum(box.get("metadata") == {"text": text} for box in listed), 8)
    for box in boxes:
        delete(box)
    refused = c.request("POST", BASE, {"metadata": {"text": "x" * 65536}})
    check.equal((refused.status, refused.json()["error"]["fields"][0]["field"]), (400, "metadata"))


@check.test
def lifetime_ends():
    box = create(maxLifetimeSeconds=1)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(command(box, "sleep 30")))
    thread.start()
    check.wait_for(lambda: status(box) == "stopped", 5, "the sandbox to be stopped")
    thread.join()
    error(answers[0], (409, "SANDBOX_NOT_RUNNING"))
    check.equal(c.request("POST", path(box, "/resume")).json()["status"], "running")
    check.wait_for(lambda: status(box) == "stopped", 5, "the sandbox to be stopped again")
    delete(box)


@check.test
def one_operation_at_a_time():
    box = create()
    answers = c.many(8, 8, lambda i: c.request("POST", path(box, "/stop" if i % 2 else "/resume")))
    for answer in answers:
        check.true(answer.status in (200, 409), answer.body)
        if answer.status == 409:
            check.equal(answer.json()["error"]["code"], "SANDBOX_NOT_READY")
    check.wait_for(lambda: status(box) in ("running", "stopped"), 10, "a state that stays")
    answers = c.many(6, 6, lambda _: c.request("DELETE", path(box)))
    check.true(all(a.status in (200, 409) for a in answers), [a.body for a in answers])
    check.wait_for(lambda: c.request("GET", path(box)).status == 404, 10, "the sandbox to go")


def sql(text):
    return subprocess.run(["mariadb", "--no-defaults", "--batch", "--skip-column-names", "--socket", c.RUN_DIR + "/db/mariadb.sock",
                           "cordon", "-e", text], check=True, capture_output=True, text=True, timeout=30).stdout


@check.test
def rows_of_deleted_ones_go():
    box = create(ephemeral=True)
    delete(box)
    sql(f"UPDATE sandbox SET deleted_at = deleted_at - INTERVAL 31 DAY WHERE id = '{box['id']}'")
    sql(f"UPDATE operation SET finished_at = finished_at - INTERVAL 31 DAY WHERE sandbox_id = '{box['id']}'")
    check.wait_for(lambda: sql(f"SELECT (SELECT COUNT(*) FROM sandbox WHERE id = '{box['id']}') + "
                               f"(SELECT COUNT(*) FROM operation WHERE sandbox_id = '{box['id']}')").strip() == "0", 45, "the rows to go")
    error(c.request("DELETE", path(box)), (404, "NOT_FOUND"))


@check.test
def no_more_than_the_host_holds():
    made_here = []
    answers = c.many(70, 4, lambda _: c.request("POST", BASE, {"ephemeral": True}))
    made_here = [a.json() for a in answers if a.status == 201]
    made.extend(b["id"] for b in made_here)
    full = [a for a in answers if a.status != 201]
    got = error(full[0], (503, "HOST_UNAVAILABLE"))
    check.equal((got["limit"], all(a.status == 503 for a in full), full[0].header("Retry-After")), (len(made_here), True, "10"))
    # runs have their places all the same
    check.equal(c.run(["true"])["phase"], "completed")
    # what is stopped makes room, and comes back only where there is some
    check.equal(c.request("POST", path(made_here[0], "/stop")).status, 200)
    more = create()
    check.equal(c.request("POST", path(more, "/stop")).status, 200)
    other = create(ephemeral=True)
    error(c.request("POST", path(more, "/resume")), (503, "HOST_UNAVAILABLE"))
    delete(other)
    check.equal(c.request("POST", path(more, "/resume")).json()["status"], "running")
    delete(more)
    for box in made_here:
        delete(box)


# --- programs die ------------------------------------------------------------------------------


def kill(*names):
    for name in names:
        try:
            os.kill(c.program_pid(name), signal.SIGKILL)
        except OSError:
            pass


def patient(what, seconds=40):
    end = time.monotonic() + seconds
    while True:
        try:
            return what()
        except (OSError, AssertionError, KeyError, ValueError):
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def survives(*names):
    """A command that runs while they die ends once, with all its output; the sandbox goes on."""
    box = create()
    found = []
    text = "echo run >> times; for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.2; done; wc -l < times"
    thread = threading.Thread(target=lambda: found.append(command(box, text)))
    thread.start()
    time.sleep(0.6)
    kill(*names)
    thread.join()
    answer = found[0]
    if answer.status == 200:
        check.equal((answer.json()["result"]["exitCode"], answer.json()["result"]["stdout"]), (0, "1\n2\n3\n4\n5\n6\n7\n8\n1\n"))
    else:
        # the web server could not say: never a lie, and the command went on
        check.true(answer.status in (502, 503), answer.body)
    check.wait_for(lambda: patient(c.healthy), 40, "the service")

    def ended_once():
        check.equal(says(box, "cat times"), "run\n")
    patient(ended_once)
    patient(lambda: check.equal(says(box, "echo works"), "works\n"))
    patient(lambda: delete(box))


for case in (("cordon-runner",), ("cordon-box",), ("cordon-gate",), ("cordon-fcgi",), ("mariadb",),
             ("cordon-runner", "cordon-box", "cordon-gate", "cordon-fcgi")):
    def run(names=case):
        survives(*names)
    run.__name__ = "B18_command_survives_" + "_and_".join(case).replace("-", "_")
    check.test(run)


@check.test
def B18_start_survives_the_runner_and_the_box_daemon():
    for name in ("cordon-runner", "cordon-box"):
        for wait in (0.0, 0.004, 0.012):
            found = []
            thread = threading.Thread(target=lambda: found.append(c.request("POST", BASE, {"name": name})))
            thread.start()
            time.sleep(wait)
            kill(name)
            thread.join()
            check.equal(found[0].status, 201, found[0].body)
            box = found[0].json()
            made.append(box["id"])
            patient(lambda: check.equal(says(box, "echo x >> f; cat f"), "x\n"))
            patient(lambda: delete(box))


@check.test
def a_box_that_dies_is_told():
    box = create()
    says(box, "echo kept > f; setsid sleep 4713 > /dev/null 2>&1 &")
    pid = host_processes("4713")[0]
    os.kill(first_process(pid), signal.SIGKILL)
    check.wait_for(lambda: status(box) == "stopped", 5, "the loss to be told")
    check.equal(c.request("GET", path(box)).json()["error"], "box_lost")
    check.equal(host_processes("4713"), [])
    check.equal(c.request("POST", path(box, "/resume")).json()["status"], "running")
    check.equal(says(box, "cat f"), "kept\n")
    delete(box)


@check.test
def nothing_is_left():
    left = c.request("GET", BASE).json()["sandboxes"]
    check.equal([b["id"] for b in left if b["id"] in made], [])
    check.equal([n for n in os.listdir(WORKSPACES) if n in made], [])
    check.wait_for(lambda: not [m for m in made if m in subprocess.run(
        "cat /sys/block/loop*/loop/backing_file 2>/dev/null", shell=True, capture_output=True, text=True).stdout], 10, "loop devices to go")


check.main()
