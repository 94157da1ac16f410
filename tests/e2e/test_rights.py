#!/usr/bin/env python3
"""test_rights: what each system user may do, if its program were taken over: in the database, with files, with sockets. The tables below are a
second statement of sql/grants.sql and of docs/operations.md: a right that is added must be added here too."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import check  # noqa: E402
import cordon as c  # noqa: E402

DB = os.path.join(c.RUN_DIR, "db", "mariadb.sock")
S, I, U, D = "SELECT", "INSERT", "UPDATE", "DELETE"
TABLES = {
    "cordon-web": {
        "schema_migration": {S}, "tenant": {S, U}, "api_key": {S}, "runner": {S}, "job": {S, I, U, D}, "run": {S, I, U}, "artifact": {S},
        "artifact_usage": {S}, "idempotency": {S, I, D}, "run_trace": {S}, "sandbox": {S, I, U}, "operation": {S, I}, "runtime_fact": {S},
        "session": {S, I, U}, "snapshot": {S, D}, "session_run": {S, I}},
    "cordon-gate": {
        "api_key": {S}, "artifact": {S}, "runner": {S, D}, "job": {S, U, D}, "run": {S, U}, "idempotency": {S, D}, "run_trace": {S, I, U}, "sandbox": {S, U},
        "operation": {S, U}, "session": {S, U}},
    "cordon-run": {
        "tenant": {S, U}, "runner": {S, I, U, D}, "job": {S, I, U, D}, "run": {S, U, D}, "artifact": {S, I, D}, "artifact_usage": {S, I, U}, "run_trace": {S, D},
        "sandbox": {S, U, D}, "operation": {S, I, U, D}, "runtime_fact": {S, I, U},
        "session": {S, I, U, D}, "snapshot": {S, I, U, D}, "session_run": {S, D}},
}
PROCEDURES = {"cordon-web": {"run_accept"}, "cordon-gate": set(), "cordon-run": {"run_claim", "run_end"}}


def run_as(user, *words, given=None):
    return subprocess.run(["setpriv", "--reuid", user, "--regid", user, "--init-groups", *words], input=given, capture_output=True, text=True,
                          timeout=20, check=False)


def sql(user, text):
    return run_as(user, "mariadb", "--no-defaults", "--batch", "--skip-column-names", "--socket", DB, "cordon", given=text)


def rows(user, text):
    done = sql(user, text)
    check.equal(done.returncode, 0, done.stderr)
    return [line.split("\t") for line in done.stdout.splitlines()]


def may_open(user, path, how):
    """how: r, w or x of test(1), as that user."""
    return run_as(user, "test", "-" + how, path).returncode == 0


@check.test
def database_rights_are_these():
    for user, wanted in TABLES.items():
        found = {}
        for table, right in rows(user, "SELECT table_name, privilege_type FROM information_schema.table_privileges WHERE table_schema = 'cordon'"):
            found.setdefault(table, set()).add(right)
        check.equal(found, wanted, user)
        # nothing on the whole schema or server
        check.equal(rows(user, "SELECT privilege_type FROM information_schema.schema_privileges"), [], user)
        check.equal(rows(user, "SELECT privilege_type FROM information_schema.user_privileges"), [["USAGE"]], user)
        found = {line[0] for line in rows(user, "SELECT routine_name FROM information_schema.routines WHERE routine_schema = 'cordon'")}
        check.equal(found, PROCEDURES[user], user)


@check.test
def what_is_not_granted_is_refused():
    refused = {
        "cordon-web": ("UPDATE api_key SET revoked_at = NULL", "INSERT INTO api_key (id) VALUES ('x')", "DELETE FROM run", "INSERT INTO tenant (id) VALUES ('x')",
                       "CALL run_end(1,'','','','','',0,0,'',0,'','')", "DROP TABLE job", "CREATE TABLE t (i INT)", "SELECT * FROM mysql.global_priv",
                       "SELECT LOAD_FILE('/etc/passwd') INTO OUTFILE '/tmp/cordon-test-rights'"),
        "cordon-gate": ("DELETE FROM artifact", "UPDATE api_key SET revoked_at = NULL", "INSERT INTO job (kind) VALUES ('run')",
                        "CALL run_claim('','',1,'')", "DELETE FROM run"),
        "cordon-run": ("SELECT secret_hash FROM api_key", "INSERT INTO run (id) VALUES ('x')", "SELECT * FROM idempotency", "INSERT INTO sandbox (id) VALUES ('x')",
                       "INSERT INTO tenant (id) VALUES ('x')", "CALL run_accept()"),
    }
    for user, statements in refused.items():
        for text in statements:
            done = sql(user, text)
            check.true(done.returncode != 0 and "denied" in done.stderr, (user, text, done.stderr))
    check.true(not os.path.exists("/tmp/cordon-test-rights"))


@check.test
def nobody_else_logs_in():
    for user in ("nobody", "www-data", "cordon-egress"):
        check.true(sql(user, "SELECT 1").returncode != 0, user)
    # one of ours under the name of another
    for user in TABLES:
        for other in set(TABLES) - {user}:
            done = run_as(user, "mariadb", "--no-defaults", "--user", other, "--socket", DB, "cordon", given="SELECT 1")
            check.true(done.returncode != 0 and "denied" in done.stderr, (user, other, done.stderr))


def sample(folder, kind):
    """Some path of that kind below the folder."""
    for top, folders, files in os.walk(folder):
        for name in folders if kind == "folder" else files:
            return os.path.join(top, name)
    return None


@check.test
def files_and_sockets_are_for_those_who_need_them():
    etc = os.path.dirname(os.path.realpath(c.POLICY))
    run = c.run(["sh", "-c", "echo secret; echo kept > kept"], capture_patterns=["kept"])
    check.equal(run["phase"], "completed")
    everybody = ("cordon-web", "cordon-gate", "cordon-run", "cordon-egress", "www-data", "nobody")
    # path: who may read, who may write
    paths = {
        os.path.join(etc, "tls.key"): ((), ()),
        os.path.join(etc, "box.limits"): ((), ()),
        os.path.join(c.DATA_DIR, "workspaces"): ((), ()),
        os.path.join(c.RUN_DIR, "boxes"): ((), ()),
        os.path.join(c.RUN_DIR, "box", "box.sock"): (("cordon-run",), ("cordon-run",)),
        os.path.join(c.RUN_DIR, "gate", "control.sock"): (("www-data",), ("www-data",)),
        os.path.join(c.RUN_DIR, "input-run", "input.sock"): (("cordon-gate", "cordon-run"), ("cordon-gate", "cordon-run")),
        os.path.join(c.RUN_DIR, "web", "fcgi.sock"): (("www-data",), ("www-data",)),
        os.path.join(c.DATA_DIR, "spool"): (("cordon-gate", "cordon-run"), ("cordon-run",)),
    }
    spooled = sample(os.path.join(c.DATA_DIR, "spool"), "file")
    check.true(spooled is not None, "a run's output is there")
    paths[spooled] = (("cordon-gate", "cordon-run"), ("cordon-run",))
    for path, (read, write) in paths.items():
        check.true(os.path.exists(path), path)
        check.equal([u for u in everybody if may_open(u, path, "r")], [u for u in everybody if u in read], "read " + path)
        check.equal([u for u in everybody if may_open(u, path, "w")], [u for u in everybody if u in write], "write " + path)


@check.test
def programs_run_as_these_users():
    wanted = {"cordon-fcgi": "cordon-web", "cordon-gate": "cordon-gate", "cordon-runner": "cordon-run"}
    for program, user in wanted.items():
        pid = c.program_pid(program)
        with open("/proc/%d/status" % pid) as file:
            status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
        uid = int(subprocess.run(["id", "-u", user], capture_output=True, text=True, check=True).stdout)
        check.equal({int(word) for word in status["Uid"].split()}, {uid}, program)
        check.equal((status["CapEff"], status["CapPrm"], status["CapAmb"]), ("0" * 16,) * 3, program)


check.main()
