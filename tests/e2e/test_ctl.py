#!/usr/bin/env python3
"""test_ctl: cordonctl as its user sees it: every command, its exit codes and its --json form."""
import json
import os
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import check  # noqa: E402
import cordon as c  # noqa: E402

CTL = os.path.join(check.TOP, os.environ.get("CORDON_BUILD", "build"), "bin", "cordonctl")
ISO = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$"


def ctl(*words, code=0, env=None, cwd=check.TOP, timeout=60):
    done = subprocess.run([CTL, *words], capture_output=True, text=True, timeout=timeout, cwd=cwd, env=dict(os.environ, **(env or {})))
    check.equal(done.returncode, code, "%s\n%s%s" % (" ".join(words), done.stdout, done.stderr))
    return done


def host(*words, **more):
    return ctl("--policy", c.POLICY, *words, **more)


def as_json(done):
    return json.loads(done.stdout)


@check.test
def help_and_version():
    check.has(ctl("--help").stdout, "Exit codes:")
    check.true(ctl("--version").stdout.startswith("cordonctl "))
    listed = ctl("help").stdout
    for name in ("migrate", "key", "policy", "sweep", "image", "doctor", "run", "runs", "logs"):
        check.true(re.search(r"\n  %s[ :]" % name, listed), name)
        check.true(ctl(name, "--help").stdout.startswith("usage: cordonctl " + name), name)
    check.has(ctl(code=64).stderr, "Commands")


@check.test
def wrong_words_give_64():
    check.has(ctl("nonsense", code=64).stderr, "unknown command")
    for words in (("run",), ("run", "--"), ("run", "--bogus", "--", "true"), ("run", "--timeout"), ("run", "--timeout", "x", "--", "true"),
                  ("run", "--timeout", "0", "--", "true"), ("runs", "--limit", "0"), ("runs", "--limit", "101"), ("runs", "--phase"),
                  ("runs", "extra"), ("logs",), ("logs", "x"), ("logs", "01900000-0000-7000-8000-000000000000", "extra")):
        check.has(ctl(*words, code=64).stderr, "usage: cordonctl " + words[0], words)
    for memory in ("0", "64M"):
        check.has(ctl("run", "--memory", memory, "--", "true", code=64).stderr, "usage: cordonctl run", memory)
    for words in (("key",), ("key", "bogus"), ("key", "create"), ("key", "create", "--tenant", "a b", "--user", "u"),
                  ("key", "create", "--tenant", "t", "--user", "u", "--role", "king"), ("key", "revoke"), ("key", "list", "x"), ("policy",),
                  ("policy", "bogus"), ("image",), ("migrate", "x"), ("sweep", "x"), ("doctor", "x"), ("doctor", "--json=1")):
        check.has(host(*words, code=64).stderr, "usage: cordonctl " + words[0], words)


@check.test
def settings_that_are_missing():
    check.has(ctl("key", "list", code=78).stderr if not os.path.exists("/etc/cordon/policy.yaml") else "policy.yaml", "policy.yaml")
    check.has(ctl("--policy", "/nonexistent", "policy", "check", code=78).stderr, "/nonexistent")
    check.has(ctl("runs", code=1, env={"CORDON_URL": ""}).stderr, "CORDON_URL")
    check.has(ctl("runs", code=1, env={"CORDON_API_KEY": "bad"}).stderr, "401 unauthorized")
    check.has(ctl("runs", code=1, env={"CORDON_CA": ""}).stderr, "CORDON_CA")
    error = json.loads(ctl("runs", "--json", code=1, env={"CORDON_API_KEY": "bad"}).stderr)
    check.equal(error["error"], "unauthorized")
    check.has(ctl("runs", code=1, env={"CORDON_URL": "https://localhost:1"}).stderr, "connect")


@check.test
def run_gives_output_and_exit_code():
    done = ctl("run", "--", "sh", "-c", "echo out; echo err >&2; exit 7", code=7)
    check.equal(done.stdout, "out\n")
    check.has(done.stderr, "err\n")
    check.true(re.search(r"cordonctl: run [0-9a-f-]{36} failed: exit=7", done.stderr), done.stderr)
    ctl("run", "--", "no-such-command", code=127)
    ctl("run", "--", "sh", "-c", "kill -9 $$", code=137)
    check.has(ctl("run", "--timeout", "1", "--", "sleep", "9", code=1).stderr, "timed_out: execution_timeout")
    ctl("run", "--trust", "untrusted", "--", "true")
    check.has(ctl("run", "--trust", "friend", "--", "true", code=1).stderr, "untrusted")
    check.has(ctl("run", "--memory", "96", "--", "python3", "-c", "b'x' * (200 << 20)", code=137).stderr, "out_of_memory")
    check.has(ctl("run", "--image", "nope", "--", "true", code=1).stderr, '"known":["host"')
    check.has(ctl("run", "--file", "/nonexistent", "--", "true", code=1).stderr, "/nonexistent")
    check.equal(ctl("run", "--image=host", "--", "echo", "--json").stdout, "--json\n", "words behind -- are the command's")


@check.test
def run_keeps_bytes():
    done = subprocess.run([CTL, "run", "--", "printf", r"\377\000\n"], capture_output=True, timeout=60)
    check.equal((done.returncode, done.stdout), (0, b"\xff\x00\n"))


def typed(data, *words):
    """cordonctl with these bytes as its whole input, which ends before the command does."""
    done = subprocess.run([CTL, *words], input=data, capture_output=True, timeout=60)
    check.equal(done.returncode, 0, done.stderr.decode())
    return done.stdout


@check.test
def run_types_its_input():
    check.equal(typed(b"Ada\n", "run", "-i", "--", "sh", "-c", "read name; echo hello $name"), b"hello Ada\n")
    data = os.urandom(300000)
    check.true(typed(data, "run", "--interactive", "--", "head", "-c", "300000") == data, "every byte, in order")
    with tempfile.TemporaryFile() as file:
        file.write(b"from a file\n")
        file.seek(0)
        done = subprocess.run([CTL, "run", "-i", "--", "head", "-n", "1"], stdin=file, capture_output=True, timeout=60)
    check.equal((done.returncode, done.stdout), (0, b"from a file\n"))
    done = subprocess.run([CTL, "run", "-i", "--", "true"], stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    check.equal(done.returncode, 0, done.stderr.decode())
    ended = ctl("run", "--", "sh", "-c", "read line || echo none")
    check.equal(ended.stdout, "none\n", "without -i the command reads the end of file")


@check.test
def logs_types_into_a_run():
    run = c.run(["sh", "-c", "echo ready; read name; echo hello $name"], spec_version="1.1", interactive=True, stdin_max_bytes=8)
    check.equal(typed(b"Ada\n", "logs", "-i", run["id"]), b"ready\nhello Ada\n")
    run = c.run(["sh", "-c", "read name; sleep 1; echo hello $name"], spec_version="1.1", interactive=True, stdin_max_bytes=4)
    done = subprocess.run([CTL, "logs", "-i", run["id"]], input=b"Ada\nEve\n", capture_output=True, timeout=60)
    check.equal(done.stdout, b"hello Ada\n")
    check.has(done.stderr.decode(), "input was cut: stdin_cap")


@check.test
def run_with_files_and_artifacts():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "in.txt")
        with open(path, "w") as file:
            file.write("given\n")
        done = ctl("run", "--json", "--file", path, "--artifact", "*.out", "--", "sh", "-c", "cat in.txt; cp in.txt a.out")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    frames, run = lines[:-1], lines[-1]
    c.check_sequence(frames)
    check.equal(c.output(frames, "stdout"), b"given\n")
    check.equal((run["phase"], run["exit_code"]), ("completed", 0))
    check.equal([item["path"] for item in c.artifacts(run["id"])], ["a.out"])


@check.test
def runs_lists_newest_first():
    made = [c.run(["true"])["id"] for _ in range(3)]
    lines = ctl("runs", "--limit", "3").stdout.splitlines()
    check.equal([line.split()[0] for line in lines], ["RUN"] + made[::-1])
    check.equal(lines[1].split()[1:4], ["completed", "0", "completed"])
    check.equal([run["id"] for run in as_json(ctl("runs", "--json", "--limit=3"))["items"]], made[::-1])
    failed = c.run(["false"])["id"]
    check.equal(ctl("runs", "--phase", "failed", "--limit", "1").stdout.splitlines()[1].split()[:3], [failed, "failed", "1"])
    check.has(ctl("runs", "--phase", "bogus", code=1).stderr, "timed_out", "the allowed values are named")


@check.test
def artifacts_are_listed_and_fetched():
    run = c.run(["sh", "-c", "mkdir o; printf 12345 > 'o/a b'; echo x > y"], capture_patterns=["*"])
    lines = ctl("artifacts", run["id"]).stdout.splitlines()
    check.equal([line.split(None, 1) for line in lines], [["5", "o/a b"], ["2", "y"]])
    check.equal(ctl("artifacts", run["id"], "o/a b", "--to", "-").stdout, "12345")
    check.equal([i["path"] for i in as_json(ctl("artifacts", run["id"], "--json"))["items"]], ["o/a b", "y"])
    ctl("artifacts", run["id"], "nothing", code=2)
    ctl("artifacts", "x", code=64)


@check.test
def cancel_ends_a_run():
    run = c.run(["sleep", "100"], wait=False)
    c.wait_phase(run["id"], ["running", "starting"])
    check.equal(ctl("cancel", run["id"]).stdout, "canceled\n")
    check.equal(c.get_run(run["id"])["message"], "canceled_by_user")
    done = c.run(["true"])
    ctl("cancel", done["id"], code=2)
    ctl("cancel", "01900000-0000-7000-8000-000000000000", code=2)


@check.test
def logs_of_an_ended_run():
    run = c.run(["sh", "-c", "echo out; echo err >&2"])
    for words in ((), ("-f",), ("--follow",)):
        done = ctl("logs", *words, run["id"])
        check.equal((done.stdout, done.stderr), ("out\n", "err\n"), words)
    frames = [json.loads(line) for line in ctl("logs", "--json", run["id"]).stdout.splitlines()]
    c.check_sequence(frames)
    check.has(ctl("logs", "01900000-0000-7000-8000-000000000000", code=2).stderr, "run_not_found")


@check.test
def logs_of_a_living_run():
    run = c.run(["python3", "-u", "-c", "import time\nfor i in range(4):\n print(i); time.sleep(0.3)"], wait=False)
    check.has(ctl("logs", run["id"], code=2).stderr, "use -f")
    check.equal(ctl("logs", "-f", run["id"]).stdout, "0\n1\n2\n3\n")


@check.test
def logs_of_somebody_else_end_at_once():
    run = c.run(["true"])
    start = time.monotonic()
    # an operator may read the run, but its stream is its owner's
    check.has(ctl("logs", "-f", run["id"], code=2, env={"CORDON_API_KEY": c.ADMIN}).stderr, "404 run_not_found")
    check.true(time.monotonic() - start < 5)
    ctl("logs", "-f", run["id"], code=2, env={"CORDON_API_KEY": c.OTHER})


@check.test
def keys():
    made = as_json(host("key", "create", "--tenant", "dev", "--user", "ctl-test", "--role", "admin", "--scopes", "a b", "--json"))
    check.equal((made["tenant"], made["user"], made["role"], made["scopes"]), ("dev", "ctl-test", "admin", "a b"))
    check.true(made["key"].startswith("ck_%s_" % made["id"]))
    check.equal(c.request("GET", c.BASE + "/runs", key=made["key"]).status, 200)
    rows = {row["id"]: row for row in as_json(host("key", "list", "--json"))}
    check.true(re.match(ISO, rows[made["id"]]["created_at"]), rows[made["id"]])
    check.equal(rows[made["id"]]["revoked_at"], None)
    check.has_not(host("key", "list").stdout, made["key"][-32:], "no secret is listed")
    check.equal(as_json(host("key", "revoke", made["id"], "--json")), {"id": made["id"], "revoked": True})
    check.equal(c.request("GET", c.BASE + "/runs", key=made["key"]).status, 401)
    check.equal(as_json(host("key", "revoke", made["id"], "--json", code=2))["revoked"], False)
    text = host("key", "create", "--tenant", "dev", "--user", "ctl-test").stdout.strip()
    check.true(re.match(r"^ck_[a-z2-7]{12}_[a-z2-7]{32}$", text))
    check.equal(host("key", "revoke", text.split("_")[1]).stdout, "revoked\n")


@check.test
def policy():
    check.has(host("policy", "check").stdout, "is good")
    check.equal(as_json(host("policy", "check", "--json")), {"policy": c.POLICY, "good": True})
    check.equal(as_json(ctl("policy", "check", "--json", "--policy", c.POLICY))["good"], True, "--policy may stand behind")
    with tempfile.TemporaryDirectory() as folder:
        limits, bad = os.path.join(folder, "box.limits"), os.path.join(folder, "bad.yaml")
        check.has(host("policy", "install", "--to", limits).stdout, "restart cordon-runner and cordon-box")
        with open(limits) as file:
            check.has(file.read(), "uid_base=")
        with open(bad, "w") as file:
            file.write("public_url: https://localhost\nnonsense: 1\n")
        check.true(re.search(r"bad\.yaml:2:1: nonsense:", ctl("--policy", bad, "policy", "check", code=78).stderr))
        host("policy", "install", "--to", folder + "/no/such", code=1)
    # a policy of somewhere else does not change what /etc/cordon says
    was = os.path.exists("/etc/cordon/box.limits") and os.stat("/etc/cordon/box.limits").st_mtime_ns
    check.has(host("policy", "install", code=64).stderr, "policy install needs --to FILE")
    check.equal(os.path.exists("/etc/cordon/box.limits") and os.stat("/etc/cordon/box.limits").st_mtime_ns, was)
    check.has(host("--dump-config").stdout, "public_url:")


@check.test
def image_and_migrate():
    image = as_json(host("image", "list", "--json"))[0]
    check.equal((image["name"], image["digest"]), ("host", c.run(["true"])["image_digest"]))
    check.has(host("image", "list").stdout, image["digest"])
    check.equal(as_json(host("migrate", "--json")), {"applied": 0})
    check.has(host("migrate").stdout, "up to date")
    host("migrate", "--dir", "/nonexistent", code=1)


@check.test
def doctor():
    lines = host("doctor").stdout.splitlines()
    check.true(lines and all(line.startswith("found ") for line in lines), lines)
    items = as_json(host("doctor", "--json"))
    check.equal({item["found"] for item in items}, {True})
    for name in ("database", "cgroups", "cordon-box", "cordon-gate", "socket backlog"):
        check.has([item["name"] for item in items], name)
    with tempfile.TemporaryDirectory() as folder:
        other = os.path.join(folder, "policy.yaml")
        with open(other, "w") as file:
            file.write("public_url: https://localhost\npaths:\n  run: %s\n  data: %s\n" % (folder + "/run", folder + "/data"))
        done = ctl("--policy", other, "doctor", code=2)
        check.has(done.stdout, "MISSING  cordon-box")
        check.has(done.stdout, "start cordon-box (as root)")


@check.test
def sweep():
    done = host("sweep", "--json")
    check.equal(sorted(as_json(done)), ["box_lost", "idempotency_keys", "queue_expired"])


def uid_base():
    with open(c.POLICY) as file:
        return int(re.search(r"uid_base: (\d+)", file.read()).group(1))


@check.test
def leaks_of_a_stack_at_work_are_none():
    check.equal(host("doctor", "--leaks").stdout, "nothing is left behind\n")
    run = c.run(["sleep", "20"], wait=False)
    c.wait_phase(run["id"], ["running"])
    check.equal(as_json(host("doctor", "--leaks", "--json")), [])
    c.request("POST", "%s/runs/%s/cancel" % (c.BASE, run["id"]))
    check.equal(as_json(host("doctor", "--leaks", "--json")), [])


@check.test
def leaks_are_found():
    # an id of slot 60, in which this test has no box
    stray = subprocess.Popen(["setpriv", "--reuid", str(uid_base() + 60 * 65536 + 7), "--clear-groups", "sleep", "30"])
    # not a folder that the runner makes for itself: it must be the runner's
    folder = os.path.join(c.DATA_DIR, "spool", "leak-test", "01900000-0000-7000-8000-000000000000")
    try:
        os.makedirs(folder)
        os.utime(folder, (1, 1))
        check.wait_for(lambda: host_leaks(2), 5, "the leaks")
        items = host_leaks(2)
        check.equal([(item["name"], item["found"]) for item in items], [("process", False), ("spool", False)])
        check.has(items[0]["detail"], "pid %d of slot 60" % stray.pid)
    finally:
        stray.kill()
        stray.wait()
        os.rmdir(folder)
        os.rmdir(os.path.dirname(folder))
    check.equal(host("doctor", "--leaks").stdout, "nothing is left behind\n")


def slot_group(slot):
    """A folder of that slot's control group, in a hierarchy that takes processes."""
    instance = os.path.basename(c.RUN_DIR)
    for tree in ("pids", "memory", "unified", ""):
        path = os.path.join("/sys/fs/cgroup", tree, "cordon-" + instance, "s%d" % slot)
        if os.path.exists(os.path.join(path, "cgroup.procs")):
            return path
    return None


@check.test
def every_kind_of_leak_is_found():
    """A mount, a loop device, the image of a workspace, a process in a control group, an agent socket, folders without a run."""
    import socket
    group = slot_group(61)
    check.true(group is not None, "the stack's own groups")
    mount = os.path.join(c.DATA_DIR, "leak-mount")
    image = os.path.join(c.DATA_DIR, "workspaces", "x-leak")
    name = os.path.join(c.RUN_DIR, "agents", "leak.sock")
    folders = [os.path.join(c.DATA_DIR, kind, "leak-test", "01900000-0000-7000-8000-000000000000") for kind in ("spool", "staging", "artifacts")]
    stray = subprocess.Popen(["sleep", "60"])
    device = None
    try:
        os.mkdir(mount)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", mount], check=True)
        with open(image, "wb") as file:
            file.truncate(1 << 20)
        device = subprocess.run(["losetup", "--find", "--show", image], check=True, capture_output=True, text=True).stdout.strip()
        with open(os.path.join(group, "cgroup.procs"), "w") as file:
            file.write(str(stray.pid))
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(name)
        listener.close()
        os.utime(name, (1, 1))
        for folder in folders:
            os.makedirs(folder)
            os.utime(folder, (1, 1))
        done = host("doctor", "--leaks", "--json", code=2)
        found = sorted({item["name"] for item in as_json(done)})
        check.equal(found, ["artifacts", "cgroup", "loop device", "mount", "socket", "spool", "staging", "workspace"])
        check.true(all(item["remedy"] for item in as_json(done)), done.stdout)
        details = " ".join(item["detail"] for item in as_json(done))
        for word in (group, os.path.basename(device), mount, name, "x-leak"):
            check.has(details, word)
    finally:
        stray.kill()
        stray.wait()
        if device is not None:
            subprocess.run(["losetup", "--detach", device], check=False)
        subprocess.run(["umount", mount], check=False)
        for path in (image, name):
            if os.path.lexists(path):
                os.unlink(path)
        for folder in [mount] + [f for folder in folders for f in (folder, os.path.dirname(folder))]:
            if os.path.isdir(folder):
                os.rmdir(folder)
    check.equal(host("doctor", "--leaks").stdout, "nothing is left behind\n")


def host_leaks(count):
    done = subprocess.run([CTL, "--policy", c.POLICY, "doctor", "--leaks", "--json"], capture_output=True, text=True, timeout=30)
    items = json.loads(done.stdout)
    return items if len(items) == count and done.returncode == 2 else None


check.main()
