#!/usr/bin/env python3
"""test_sessions: workspaces that several runs share: inheritance, snapshots, clones, delete, lifetime, crashes (B17, B20, B24)."""
import concurrent.futures
import glob
import json
import os
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import check  # noqa: E402
import cordon as c  # noqa: E402

SESSIONS = c.BASE + "/sessions"
RUNS = c.BASE + "/runs"


def make(key=c.KEY, headers=None, **body):
    answer = c.request("POST", SESSIONS, {"base_image": "host", **body}, key=key, headers=headers)
    check.equal(answer.status, 200, answer.body)
    return answer.json()


def ask(method, session, rest="", body=None, key=c.KEY):
    return c.request(method, f"{SESSIONS}/{session if isinstance(session, str) else session['id']}{rest}", body, key=key)


def good(answer):
    check.equal(answer.status, 200, answer.body)
    return answer.json()


def refused(answer, status, code):
    check.equal((answer.status, answer.json()["error"]["code"]), (status, code), answer.body)
    return answer.json()["error"]["details"]


def run(session, script, **more):
    body = {"session_id": session["id"], "command": ["sh", "-c", script], **more}
    answer = c.request("POST", RUNS, body)
    check.equal(answer.status, 200, answer.body)
    return answer.json()


def start(session, script, **more):
    answer = c.request("POST", RUNS, {"session_id": session["id"], "command": ["sh", "-c", script], **more}, headers={"Prefer": "respond-async"})
    check.equal(answer.status, 200, answer.body)
    return answer.json()


def says(session, script, **more):
    made = run(session, script, **more)
    check.equal(made["phase"], "completed", made)
    return c.output(c.follow(made["id"])[0], "stdout").decode()


def delete(session):
    check.equal(good(ask("DELETE", session)), {"ok": True})


def images(session):
    return glob.glob(f"{c.DATA_DIR}/workspaces/{session['id']}*")


# --- the object ------------------------------------------------------------------------------------


@check.test
def defaults_are_clamped_and_shown():
    made = make()
    check.equal({k: made[k] for k in ("name", "spec_version", "runtime", "base_image", "cpu_limit", "memory_mb", "timeout_sec", "network_policy",
                                      "env", "labels", "trust_level", "expires_at", "persona_id", "workspace_id", "workspace_group_id",
                                      "scope_snapshot_id")},
                {"name": None, "spec_version": "1.0", "runtime": "namespace", "base_image": "host", "cpu_limit": 4.0, "memory_mb": 8192,
                 "timeout_sec": 300, "network_policy": "deny_all", "env": {}, "labels": {}, "trust_level": "standard", "expires_at": None,
                 "persona_id": None, "workspace_id": None, "workspace_group_id": None, "scope_snapshot_id": None})
    check.equal(len(made["policy_hash"]), 16)
    check.equal(good(ask("GET", made)), made)
    other = make(cpu_limit=99, memory_mb=1 << 20, timeout_sec=3600, trust_level="untrusted", labels={"a": "b"}, persona_id="p")
    check.equal((other["cpu_limit"], other["memory_mb"], other["timeout_sec"], other["trust_level"], other["labels"], other["persona_id"]),
                (1.0, 1024, 60, "untrusted", {"a": "b"}, "p"))
    check.equal(make()["policy_hash"], made["policy_hash"])
    check.equal(images(made), [])  # no file before its first use
    delete(made)
    delete(other)
    refused(ask("GET", made), 404, "session_not_found")


@check.test
def the_list_is_one_s_own():
    before = good(c.request("GET", SESSIONS + "?limit=100"))["items"]
    made = [make(labels={"n": str(i)}) for i in range(3)]
    listed = good(c.request("GET", SESSIONS + "?limit=2"))
    check.equal([s["id"] for s in listed["items"]], [made[2]["id"], made[1]["id"]])
    rest = good(c.request("GET", SESSIONS + f"?limit=100&cursor={listed['next_cursor']}"))
    check.equal([s["id"] for s in rest["items"]], [made[0]["id"]] + [s["id"] for s in before])
    check.equal(rest["next_cursor"], None)
    check.true(made[0]["id"] not in c.request("GET", SESSIONS, key=c.OTHER).body.decode())
    for each in made:
        delete(each)


@check.test
def b19_others_see_nothing():
    made = make()
    run(made, "true")
    snapshot = good(ask("POST", made, "/snapshot"))["snapshot_id"]
    for method, rest, body in (("GET", "", None), ("DELETE", "", None), ("POST", "/snapshot", None), ("GET", "/snapshots", None),
                               ("POST", "/restore", {"snapshot_id": snapshot}), ("POST", "/clone", None),
                               ("DELETE", "/snapshots/" + snapshot, None)):
        foreign = ask(method, made, rest, body, key=c.OTHER)
        missing = ask(method, "01900000-0000-7000-8000-000000000000", rest, body)
        refused(foreign, 404, "session_not_found")
        check.equal(foreign.body, missing.body, (method, rest))
    answer = c.request("POST", RUNS, {"session_id": made["id"], "command": ["true"]}, key=c.OTHER)
    refused(answer, 404, "session_not_found")
    delete(made)


# --- runs in it -------------------------------------------------------------------------------------


@check.test
def runs_share_the_workspace():
    made = make()
    check.equal(run(made, "echo one > f; mkdir d; echo two > d/g", capture_patterns=["*"])["session_id"], made["id"])
    check.equal(says(made, "cat f d/g; ls -d /tmp/x 2>/dev/null || touch /tmp/x"), "one\ntwo\n")
    check.equal(says(made, "ls /tmp"), "")  # only the workspace stays
    # several at once
    got = c.many(8, 8, lambda i: says(made, f"echo {i} > n{i}; sleep 0.2; ls | wc -l"))
    check.true(all(int(n) >= 3 for n in got), got)
    check.equal(says(made, "cat n* | sort | tr -d '\\n'"), "01234567")
    delete(made)


@check.test
def absent_fields_are_inherited():
    made = make(env={"A": "1", "B": "2"}, memory_mb=128, cpu_limit=0.5, timeout_sec=7, trust_level="untrusted", persona_id="p", workspace_id="w")
    first = run(made, "echo $A$B; cat /proc/self/limits | grep 'open files'")
    check.equal((first["base_image"], first["persona_id"], first["workspace_id"], first["runtime"]), ("host", "p", "w", "namespace"))
    text = c.output(c.follow(first["id"])[0], "stdout").decode()
    check.true(text.startswith("12\n") and " 256 " in text, text)
    # a given map is the whole map, null is a value
    check.equal(says(made, "echo ${A-none}$B", env={"B": "3"}), "none3\n")
    check.equal(says(made, "echo ${A-none}", env=None), "none\n")
    check.equal(run(made, "true", persona_id=None)["persona_id"], None)
    # one of two resources
    done = run(made, "exec python3 -c 'x = bytearray(200 << 20)'")
    check.equal((done["phase"], done["message"]), ("killed", "out_of_memory"))
    check.equal(run(made, "exec python3 -c 'x = bytearray(200 << 20)'", resources={"memory_mb": 512})["phase"], "completed")
    check.equal(run(made, "exec python3 -c 'x = bytearray(200 << 20)'", resources={"cpu": 0.3})["phase"], "killed")
    check.equal(run(made, "true", base_image=None)["base_image"], "host")
    done = run(made, "sleep 30", timeout_sec=1)
    check.equal(done["message"], "execution_timeout")
    delete(made)


@check.test
def a_session_without_an_image():
    made = make(base_image=None)
    check.equal(made["base_image"], None)
    refused(c.request("POST", RUNS, {"session_id": made["id"], "command": ["true"]}), 422, "session_base_image_required")
    delete(made)
    for value in ("none", "01900000-0000-7000-8000-000000000000", "../x"):
        refused(c.request("POST", RUNS, {"session_id": value, "command": ["true"]}), 404, "session_not_found")
    details = refused(c.request("POST", RUNS, {"session_id": made["id"], "base_image": "host", "command": ["true"]}), 422, "validation_error")
    check.equal(details["fields"][0]["field"], "base_image")


@check.test
def b17_the_workspace_has_an_end():
    made = make(trust_level="untrusted")
    code = "head -c 100M /dev/zero > big; stat -c %s big"
    size = int(says(made, code + " || true"))
    check.true(60 << 20 < size <= 64 << 20, size)
    # it stays in that box: the next one works on what is there
    check.equal(says(made, "rm big; head -c 10M /dev/zero > big; stat -c %s big"), "10485760\n")
    delete(made)


@check.test
def b17_write_then_exec_at_once():
    made = make()
    for i in range(60):
        run(made, f"echo 'echo {i}' > script; chmod 755 script")
        check.equal(says(made, "sh ./script"), f"{i}\n")
    delete(made)


# --- snapshots --------------------------------------------------------------------------------------


@check.test
def b20_snapshot_second_round():
    made = make()
    look = "find . -mindepth 1 -printf '%p %y %m %s %T@ %l\\n' | LC_ALL=C sort; cat f"
    states, ids = [], []
    for i in range(3):
        run(made, f"echo {i} > f; mkdir -p d{i}/empty; ln -sf f link; chmod 600 f; touch -d 2020-01-0{i + 1} f")
        states.append(says(made, look))
        shot = good(ask("POST", made, "/snapshot"))
        check.true(shot["size_bytes"] > 0 and shot["created_at"].endswith("Z"))
        ids.append(shot["snapshot_id"])
        run(made, "echo changed > f; rm -r d0; touch later")
        check.equal(good(ask("POST", made, "/restore", {"snapshot_id": ids[i]})), {"restored": True, "snapshot_id": ids[i]})
        check.equal(says(made, look), states[i])
    listed = good(ask("GET", made, "/snapshots"))["items"]
    check.equal([s["snapshot_id"] for s in listed], ids[::-1])
    check.equal({s["session_id"] for s in listed}, {made["id"]})
    good(ask("POST", made, "/restore", {"snapshot_id": ids[0]}))
    check.equal(says(made, look), states[0])
    clone = good(ask("POST", made, "/clone", {"new_session_name": "my-experiment"}))
    check.equal(clone["cloned_from"], made["id"])
    copy = good(ask("GET", clone["session_id"]))
    check.equal(copy["name"], "my-experiment")
    check.equal({k: v for k, v in copy.items() if k not in ("id", "name", "created_at")},
                {k: v for k, v in made.items() if k not in ("id", "name", "created_at")})
    check.equal(good(ask("GET", copy, "/snapshots")), {"items": []})
    check.equal(says(copy, look + "; echo own > f"), states[0])
    check.equal(says(made, look), states[0])
    check.equal(good(ask("DELETE", made, "/snapshots/" + ids[1])), {"ok": True, "snapshot_id": ids[1]})
    check.equal(good(ask("DELETE", made, "/snapshots/" + ids[1])), {"ok": False, "snapshot_id": ids[1]})
    refused(ask("POST", made, "/restore", {"snapshot_id": ids[1]}), 404, "snapshot_not_found")
    good(ask("POST", made, "/restore", {"snapshot_id": ids[2]}))
    check.equal(says(made, look), states[2])
    check.equal(len(images(made)), 3)
    delete(made)
    delete(copy)
    check.equal(images(made) + images(copy), [])


@check.test
def b20_while_a_run_is_active():
    made = make()
    run(made, "echo 1 > f")
    shot = good(ask("POST", made, "/snapshot"))["snapshot_id"]
    active = start(made, "while :; do date > f; sleep 0.05; done")
    c.wait_phase(active["id"], ("running",))
    for method, rest, body in (("POST", "/snapshot", None), ("POST", "/restore", {"snapshot_id": shot}), ("POST", "/clone", None)):
        details = refused(ask(method, made, rest, body), 409, "session_has_active_runs")
        check.equal(details, {"active_runs": 1, "session_id": made["id"]})
    check.equal(good(ask("GET", made, "/snapshots"))["items"][0]["snapshot_id"], shot)
    c.request("POST", f"{RUNS}/{active['id']}/cancel")
    # two at once: one after the other, both whole
    answers = c.many(6, 6, lambda _: ask("POST", made, "/restore", {"snapshot_id": shot}).status)
    check.equal(answers, [200] * 6)
    check.equal(says(made, "cat f"), "1\n")
    delete(made)


@check.test
def runs_and_operations_at_once():
    """A run that comes while the workspace changes waits for that; nothing is half."""
    made = make()
    run(made, "head -c 20M /dev/urandom > big; md5sum < big > sum")
    shot = good(ask("POST", made, "/snapshot"))["snapshot_id"]
    wrong = []

    def work(i):
        if i % 4 == 0:
            answer = ask("POST", made, "/restore", {"snapshot_id": shot})
            if answer.status not in (200, 409):
                wrong.append((answer.status, answer.body))
        elif i % 4 == 1:
            answer = ask("POST", made, "/snapshot")
            if answer.status not in (200, 409):
                wrong.append((answer.status, answer.body))
        else:
            done = run(made, "md5sum < big | cmp - sum")
            if done["phase"] != "completed":
                wrong.append(done)

    c.many(40, 8, work)
    check.equal(wrong, [])
    delete(made)


@check.test
def b24_bad_snapshot_ids():
    made = make()
    for value in ("../other", "snap-", "snap-ABCDEF123456", "snap-123456789012x", "snap-../../../etc", ""):
        refused(ask("POST", made, "/restore", {"snapshot_id": value}), 404, "snapshot_not_found")
    for value in ("..%2f..%2fetc", "snap-ABCDEF123456", "snap-123456789012x"):
        check.equal(good(ask("DELETE", made, "/snapshots/" + value))["ok"], False)
    for body in ({}, {"snapshot_id": None}, {"snapshot_id": 1}, {"snapshot_id": ["a"]}):
        details = refused(ask("POST", made, "/restore", body), 422, "validation_error")
        check.equal(details["fields"][0]["field"], "snapshot_id")
    refused(ask("POST", made, "/clone", {"new_session_name": 1}), 422, "validation_error")
    check.equal(good(ask("POST", made, "/clone", {"new_session_name": None}))["cloned_from"], made["id"])
    delete(made)


@check.test
def b24_trees_with_traps():
    made = make()
    fill = """
import os, socket
os.symlink('/', 'root'); os.symlink('x' * 300, 'long'); open('a', 'w').write('text'); os.link('a', 'hard')
open('sparse', 'w').truncate(10 << 30); os.mkfifo('fifo'); socket.socket(socket.AF_UNIX).bind('sock')
open('n' * 255, 'w'); os.chmod('a', 0o4755); os.setxattr('a', 'user.k', b'v')
path = '/'.join(['d' * 200] * 15); os.makedirs(path); open(path + '/f', 'w').write('deep')
os.mkdir('many'); [open(f'many/{i}', 'w').close() for i in range(20000)]
try: os.mknod('dev', 0o20666, os.makedev(1, 3)); print('device')
except PermissionError: print('no device')
"""
    look = """
import os
st = os.lstat('a'); sp = os.stat('sparse')
print(os.readlink('root'), len(os.readlink('long')), oct(st.st_mode), st.st_nlink, os.getxattr('a', 'user.k'), sp.st_size, sp.st_blocks)
print(len(os.listdir('many')), sorted(len(n) for n in os.listdir('.'))[-1], open('/'.join(['d' * 200] * 15) + '/f').read())
"""
    def python(code):
        done = c.request("POST", RUNS, {"session_id": made["id"], "command": ["python3", "-c", code]}).json()
        frames = c.follow(done["id"])[0]
        check.equal(done["phase"], "completed", c.output(frames, "stderr"))
        return c.output(frames, "stdout").decode()

    check.equal(python(fill), "no device\n")
    before = python(look)
    check.has(before, "/ 300 0o104755 2 b'v' 10737418240 0\n20000 255 deep")
    shot = good(ask("POST", made, "/snapshot"))
    check.true(0 < shot["size_bytes"] < 256 << 20, shot)
    says(made, "rm -rf many sparse; echo x > a")
    good(ask("POST", made, "/restore", {"snapshot_id": shot["snapshot_id"]}))
    check.equal(python(look), before)
    delete(made)


@check.test
def snapshots_have_a_quota():
    made = make()
    ids = []
    for i in range(12):
        run(made, f"echo {i} > f")
        ids.append(good(ask("POST", made, "/snapshot"))["snapshot_id"])
    check.equal([s["snapshot_id"] for s in good(ask("GET", made, "/snapshots"))["items"]], ids[:1:-1])
    check.wait_for(lambda: len(images(made)) == 11, 10, "the files of two old ones to go")
    # by size: the newest stays, whatever it has
    run(made, "head -c 150M /dev/urandom > big")
    first = good(ask("POST", made, "/snapshot"))
    check.true(first["size_bytes"] > 150 << 20, first)
    second = good(ask("POST", made, "/snapshot"))
    listed = good(ask("GET", made, "/snapshots"))["items"]
    check.equal([s["snapshot_id"] for s in listed], [second["snapshot_id"]])
    check.wait_for(lambda: len(images(made)) == 2, 10, "the files of the others to go")
    good(ask("POST", made, "/restore", {"snapshot_id": second["snapshot_id"]}))
    delete(made)


# --- delete and lifetime -------------------------------------------------------------------------------


@check.test
def delete_cancels_what_runs():
    made = make()
    done = run(made, "echo x > f", capture_patterns=["f"])
    check.equal(len(c.artifacts(done["id"])), 1)
    usage = c.sql(f"SELECT COALESCE(SUM(size_bytes), 0) FROM artifact_usage")
    active = [start(made, "trap '' TERM; while :; do sleep 1; done" if i == 0 else "sleep 100") for i in range(3)]
    for each in active:
        c.wait_phase(each["id"], ("running",))
    begun = time.monotonic()
    delete(made)
    check.true(time.monotonic() - begun < 12, time.monotonic() - begun)
    for each in active:
        ended = c.get_run(each["id"])
        check.equal((ended["phase"], ended["message"], ended["session_id"]), ("killed", "canceled_by_user", made["id"]))
    check.equal(c.artifacts(done["id"]), [])
    refused(c.request("GET", f"{RUNS}/{done['id']}/artifacts/f"), 404, "artifact_not_found")
    check.equal(int(usage) - 2, int(c.sql("SELECT COALESCE(SUM(size_bytes), 0) FROM artifact_usage")))
    check.wait_for(lambda: not os.path.exists(f"{c.DATA_DIR}/artifacts/{done['id'][-2:]}/{done['id']}"), 5, "the files to go")
    check.equal(c.get_run(done["id"])["phase"], "completed")  # the row stays
    check.equal(images(made), [])
    refused(ask("DELETE", made), 404, "session_not_found")


@check.test
def a_delete_that_cannot_drain_changes_nothing():
    made = make()
    run(made, "echo kept > f")
    active = start(made, "trap '' TERM; while :; do sleep 1; done")
    c.wait_phase(active["id"], ("running",))
    with c.PolicyOf("\nsessions:\n  delete_drain_ms: 500\n"):
        answer = ask("DELETE", made)
        details = refused(answer, 409, "session_cancel_drain_timeout")
        check.equal((details["session_id"], details["active_runs"]), (made["id"], 1))
        check.equal(answer.header("Retry-After"), "5")
        check.equal(good(ask("GET", made))["id"], made["id"])
    check.equal(c.wait_run(active["id"], 20)["message"], "canceled_by_user", "the run was canceled all the same")
    check.equal(c.output(c.follow(run(made, "cat f")["id"])[0], "stdout"), b"kept\n")
    delete(made)
    check.equal(images(made), [])


@check.test
def delete_twice_at_once():
    made = make()
    run(made, "true")
    start(made, "sleep 100")
    answers = c.many(4, 4, lambda _: ask("DELETE", made))
    check.true({a.status for a in answers} <= {200, 404} and 200 in {a.status for a in answers}, [a.body for a in answers])
    check.equal(images(made), [])


@check.test
def queued_runs_of_it_end():
    made = make()
    with c.Off("cordon-runner"):
        queued = start(made, "true")
        waiting = threading.Thread(target=lambda: delete(made))
        waiting.start()
        ended = c.wait_run(queued["id"], 10)
        check.equal((ended["phase"], ended["message"]), ("killed", "canceled_by_user"))
        # while it is being deleted nothing new is taken
        refused(c.request("POST", RUNS, {"session_id": made["id"], "command": ["true"]}), 404, "session_not_found")
    waiting.join()


@check.test
def a_session_lives_its_time():
    made, busy = make(), make()
    run(made, "echo x > f")
    active = start(busy, "sleep 60")
    c.wait_phase(active["id"], ("running",))
    c.sql(f"UPDATE session SET expires_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND WHERE id IN ('{made['id']}', '{busy['id']}')")
    refused(ask("GET", made), 404, "session_not_found")
    refused(c.request("POST", RUNS, {"session_id": made["id"], "command": ["true"]}), 404, "session_not_found")
    check.wait_for(lambda: images(made) == [], 5, "the workspace to go")
    check.equal(c.sql(f"SELECT state FROM session WHERE id = '{made['id']}'").strip(), "deleted")
    # one with a run is left until that ends
    check.equal(c.sql(f"SELECT state FROM session WHERE id = '{busy['id']}'").strip(), "active")
    check.equal(c.request("POST", f"{RUNS}/{active['id']}/cancel").json()["cancelled"], True)
    check.wait_for(lambda: c.sql(f"SELECT state FROM session WHERE id = '{busy['id']}'").strip() == "deleted", 5, "the other one to go")


# --- idempotency ------------------------------------------------------------------------------------------


@check.test
def fifty_equal_creates_make_one():
    key = f"fifty-{time.time_ns()}"
    answers = c.many(50, 16, lambda _: c.request("POST", SESSIONS, {"base_image": "host"}, headers={"Idempotency-Key": key}))
    check.equal({a.status for a in answers}, {200})
    check.equal(len({a.json()["id"] for a in answers}), 1)
    made = answers[0].json()
    check.equal(c.sql(f"SELECT COUNT(*) FROM session WHERE request_id <> '' AND id >= '{made['id']}' AND state = 'active'").strip(), "1")
    # defaults filled in, unknown fields left out
    again = c.request("POST", SESSIONS, {"base_image": "host", "timeout_sec": 300.0, "network_policy": "deny_all", "x": 1, "env": None},
                      headers={"Idempotency-Key": key})
    check.equal(good(again)["id"], made["id"])
    details = refused(c.request("POST", SESSIONS, {"base_image": "host", "timeout_sec": 301}, headers={"Idempotency-Key": key}), 409,
                      "idempotency_conflict")
    check.equal((details["prior_id"], details["key"]), (made["id"], key))
    # the key is this route's, and this owner's
    check.equal(c.run(["true"], headers={"Idempotency-Key": key})["phase"], "completed")
    other = make(key=c.OTHER, headers={"Idempotency-Key": key})
    check.true(other["id"] != made["id"])
    check.equal(good(ask("DELETE", other, key=c.OTHER)), {"ok": True})
    delete(made)


def the_first_one_rolls_back(path, body, table, key):
    """The transaction of the first of fifty equal creates ends in its middle: another holds the reservation's place, and it is killed
    while it waits there, with the others behind it."""
    owner = c.sql(f"SELECT CONCAT(tenant, ' ', user_id) FROM run WHERE id = '{c.run(['true'])['id']}'").split()
    values = f"'{path.rsplit('/', 1)[1]}', '{owner[0]}', '{owner[1]}', '{key}'"
    held = subprocess.Popen(["mariadb", "--no-defaults", "--unbuffered", "--batch", "--skip-column-names", "--socket",
                             c.RUN_DIR + "/db/mariadb.sock", "cordon"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    held.stdin.write("START TRANSACTION; INSERT INTO idempotency (endpoint, tenant, user_id, idem_key, fingerprint, object_id, created_at, "
                     f"expires_at) VALUES ({values}, REPEAT('x', 32), '-', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL 1 HOUR); SELECT 'held';\n")
    held.stdin.flush()
    check.equal(held.stdout.readline(), "held\n")
    waiting = ("SELECT r.trx_mysql_thread_id FROM information_schema.innodb_lock_waits w "
               "JOIN information_schema.innodb_trx r ON r.trx_id = w.requesting_trx_id "
               "JOIN information_schema.innodb_trx b ON b.trx_id = w.blocking_trx_id WHERE b.trx_query IS NULL AND b.trx_state = 'RUNNING'")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answers = pool.submit(c.many, 50, 16, lambda _: c.request("POST", path, body, headers={"Idempotency-Key": key}))
        try:
            # the server makes these tables anew only when nobody has read them for 0.1 s
            first = check.wait_for(lambda: time.sleep(0.3) or c.sql(waiting).split(), 10, "the first one to wait")
            c.sql(f"KILL {first[0]}")
        finally:
            held.stdin.write("ROLLBACK;\n")
            held.stdin.close()
            held.wait()
        answers = answers.result()
    check.equal({a.status for a in answers}, {200}, "the one that was killed began again")
    check.equal(len({a.json()["id"] for a in answers}), 1)
    check.equal(c.sql(f"SELECT COUNT(*) FROM {table} WHERE id >= '{answers[0].json()['id']}'").strip(), "1")
    return answers[0].json()


@check.test
def fifty_equal_creates_when_the_first_one_rolls_back():
    key = f"rolled-{time.time_ns()}"
    delete(the_first_one_rolls_back(SESSIONS, {"base_image": "host"}, "session", key))
    run_ = the_first_one_rolls_back(RUNS, c.run_body(["true"]), "run", key)
    check.equal(run_["phase"], "completed")


@check.test
def the_fingerprint_of_a_session():
    key = f"vector-{time.time_ns()}"
    body = {"spec_version": "1.0", "runtime": "namespace", "base_image": "host", "cpu_limit": 1}
    made = make(headers={"Idempotency-Key": key}, **body)
    import hashlib
    canonical = {"base_image": "host", "cpu_limit": 1.0, "network_policy": "deny_all", "runtime": "namespace", "spec_version": "1.0",
                 "timeout_sec": 300, "trust_level": "standard"}
    wanted = hashlib.sha256(json.dumps(canonical, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    check.equal(c.sql(f"SELECT LOWER(HEX(fingerprint)) FROM idempotency WHERE idem_key = '{key}'").strip(), wanted)
    delete(made)


@check.test
def clones_count_as_sessions():
    """sessions.max_per_tenant holds for clones too, those that are being made counted."""
    made = make()
    have = int(c.sql("SELECT COUNT(*) FROM session WHERE state <> 'deleted' AND tenant = (SELECT tenant FROM session WHERE id = "
                     f"'{made['id']}')").strip())
    with c.PolicyOf(f"\nsessions:\n  max_per_tenant: {have + 2}\n"):
        answers = c.many(6, 6, lambda _: ask("POST", made, "/clone"))
        check.equal(sorted(a.status for a in answers), [200, 200, 429, 429, 429, 429])
        for answer in answers:
            if answer.status == 429:
                check.equal(refused(answer, 429, "session_quota"), {"quota_scope": "tenant", "limit": have + 2})
                check.true(answer.header("Retry-After"))
        check.equal(c.request("POST", SESSIONS, {"base_image": "host"}).status, 429)
    for answer in answers:
        if answer.status == 200:
            delete(answer.json()["session_id"])
    delete(made)


@check.test
def a_snapshot_is_deleted_beside_runs():
    made = make()
    run(made, "echo x > f")
    shots = [good(ask("POST", made, "/snapshot"))["snapshot_id"] for _ in range(2)]
    active = c.request("POST", RUNS, {"session_id": made["id"], "command": ["sleep", "60"]}, headers={"Prefer": "respond-async"}).json()
    c.wait_phase(active["id"], ["running"])
    begin = time.monotonic()
    check.equal(good(ask("DELETE", made, f"/snapshots/{shots[0]}")), {"ok": True, "snapshot_id": shots[0]})
    check.true(time.monotonic() - begin < 4, "it does not wait for the run")
    check.equal(glob.glob(f"{c.DATA_DIR}/workspaces/{made['id']}*{shots[0]}*"), [])
    check.equal([i["snapshot_id"] for i in good(ask("GET", made, "/snapshots"))["items"]], [shots[1]])
    check.equal(good(ask("DELETE", made, "/snapshots/%ff")), {"ok": False, "snapshot_id": ""})
    c.request("POST", f"{RUNS}/{active['id']}/cancel")
    delete(made)


@check.test
def large_sessions_make_short_pages():
    large = {"k": "\x01" * 60000}
    made = [make(env=large, labels=large) for _ in range(12)]
    seen, cursor = [], ""
    while cursor is not None:
        page = good(c.request("GET", f"{SESSIONS}?limit=100{cursor and '&cursor='}{cursor}"))
        seen += [item["id"] for item in page["items"]]
        cursor = page["next_cursor"]
    check.equal([i for i in seen if i in {m["id"] for m in made}], [m["id"] for m in made[::-1]])
    check.equal(len(seen), len(set(seen)))
    for each in made:
        delete(each)


# --- crashes ------------------------------------------------------------------------------------------------


@check.test
def operations_survive_the_programs():
    """Each of our programs is killed in the middle of operations: each ends once, whole."""
    made = make()
    run(made, "head -c 30M /dev/urandom > big; md5sum < big > sum; echo 0 > f")
    for name in ("cordon-runner", "cordon-box", "cordon-gate"):
        for round_ in range(3):
            answers = []
            shot = good(ask("POST", made, "/snapshot"))["snapshot_id"]
            run(made, f"echo {name}{round_} > f; rm big")
            thread = threading.Thread(target=lambda: answers.append(ask("POST", made, "/restore", {"snapshot_id": shot})))
            thread.start()
            time.sleep(0.01 + 0.03 * round_)
            os.kill(c.program_pid(name), signal.SIGKILL)
            thread.join()
            check.true(answers[0].status in (200, 409, 502, 503), answers[0].body)
            check.wait_for(lambda: c.sql(f"SELECT COUNT(*) FROM operation WHERE sandbox_id = '{made['id']}' AND state NOT IN "
                                         "('succeeded', 'failed')").strip() == "0", 30, "the operation to end")
            # one of the two states, and whole
            text = says(made, "if [ -e big ]; then md5sum < big | cmp - sum && echo old; else echo new; fi")
            check.true(text == "old\n" or (text == "new\n" and answers[0].status != 200), (text, answers[0].body))
            good(ask("POST", made, "/restore", {"snapshot_id": shot}))
    delete(made)
    check.equal(images(made), [])


check.main()
