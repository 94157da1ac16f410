#!/usr/bin/env python3
"""test_admin: discovery and what administrators see and do, through the whole stack."""
import os
import shutil
import signal
import sys
import time
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import check  # noqa: E402
import cordon as c  # noqa: E402


def get(path, key=c.KEY):
    return c.request("GET", c.BASE + path, key=key)


def runtimes():
    return {row["name"]: row for row in get("/runtimes").json()["runtimes"]}


@check.test
def facts_come_from_this_host():
    check.wait_for(lambda: runtimes()["namespace"]["available"], 10, "namespace")
    rows = runtimes()
    check.equal(list(rows), ["docker", "firecracker", "lima", "vz_linux", "vz_macos", "seatbelt", "worktree", "namespace"])
    check.equal(rows["namespace"]["reasons"], [])
    check.equal(rows["namespace"]["host"]["arch"], os.uname().machine)
    check.true(rows["namespace"]["host"]["cgroup_mode"] in ("hybrid", "v2", "v1"))
    check.equal(rows["namespace"]["strict_deny_all_supported"], True)
    check.equal(rows["vz_macos"]["reasons"], ["macos_required", "apple_silicon_required", "macos_helper_missing", "macos_template_missing",
                                              "real_execution_not_implemented"])
    check.equal(rows["lima"]["host"]["os"], "linux")
    for name, row in rows.items():
        check.equal(row["available"], name == "namespace")
        if name != "namespace":
            check.equal(row["reasons"][-1], "real_execution_not_implemented", name)


@check.test
def a_refusal_has_the_reasons_of_discovery():
    for name, row in runtimes().items():
        if name == "namespace":
            continue
        answer = c.request("POST", c.BASE + "/runs", c.run_body(["true"], runtime=name))
        check.equal(answer.status, 503, name)
        details = answer.json()["error"]["details"]
        check.equal(details["reasons"], row["reasons"], name)
        check.equal(details["suggested"], ["namespace"] if name in ("docker", "seatbelt", "worktree") else [], name)


RUN_KEYS = {"id", "spec_version", "runtime", "runtime_version", "base_image", "image_digest", "policy_hash", "phase", "status_reason_code",
            "status_reason_details", "exit_code", "created_at", "started_at", "finished_at", "message", "session_id", "persona_id",
            "workspace_id", "workspace_group_id", "scope_snapshot_id"}


@check.test
def lists_have_these_members_and_no_others():
    run = c.run(["sh", "-c", "echo hello; echo x > f"], workspace_id="e2e-admin", capture_patterns=["f"],
                headers={"Idempotency-Key": "e2e-admin-%d" % os.getpid()})
    listed = get("/admin/runs?workspace_id=e2e-admin&limit=1", c.ADMIN).json()
    check.equal(set(listed), {"total", "limit", "offset", "has_more", "next_offset", "pagination", "items"})
    check.equal(set(listed["items"][0]), RUN_KEYS | {"user_id"})
    check.equal(listed["items"][0]["id"], run["id"])
    one = get("/admin/runs/" + run["id"], c.ADMIN).json()
    check.equal(set(one), RUN_KEYS | {"user_id", "resource_usage"})
    check.equal(one["resource_usage"]["log_bytes"], 6)
    mine = get("/workspaces/e2e-admin/diagnostics").json()
    check.equal(set(mine), {"workspace_id", "source_label", "runtime", "admission", "runs", "links"})
    check.equal(set(mine["runs"]["items"][0]), RUN_KEYS)
    check.equal(mine["runs"]["items"][0]["id"], run["id"])
    check.equal(get("/workspaces/e2e-admin/diagnostics", c.OTHER).json()["runs"]["total"], 0)
    keys = get("/admin/idempotency?key=e2e-admin-%d" % os.getpid(), c.ADMIN).json()
    check.equal(keys["total"], 1)
    check.equal(set(keys["items"][0]), {"endpoint", "user_id", "key", "fingerprint", "object_id", "created_at"})
    check.equal(keys["items"][0]["object_id"], run["id"])
    usage = get("/admin/usage?user_id=" + one["user_id"], c.ADMIN).json()["items"]
    check.equal(set(usage[0]), {"user_id", "runs_count", "log_bytes", "artifact_bytes"})
    check.true(max(row["log_bytes"] for row in usage) >= 6 and max(row["artifact_bytes"] for row in usage) >= 2)


@check.test
def a_user_is_no_administrator():
    for path in ("runs", "idempotency", "usage", "runtime-diagnostics", "operator-status", "macos-diagnostics", "runs/x"):
        check.equal(get("/admin/" + path).status, 403, path)
        check.equal(get("/admin/" + path, None).status, 401, path)


STORE = "/admin/macos-image-store/"


def stray(kind, name=None, owner="cordon-run", seconds=600):
    """A folder that no row explains, as old as that; its path below the data folder."""
    name = name or str(uuid.uuid4())
    path = "%s/%s/%s" % (kind, name[-2:], name) if len(name) == 36 else "%s/%s" % (kind, name)
    whole = os.path.join(c.DATA_DIR, path)
    os.makedirs(whole)
    with open(os.path.join(whole, "log"), "w", encoding="utf-8") as file:
        file.write("left over")
    for each in (os.path.dirname(whole), whole, os.path.join(whole, "log")):
        if each != os.path.join(c.DATA_DIR, kind):
            shutil.chown(each, owner)
            # as the programs make them: the group may write
            os.chmod(each, 0o2770 if os.path.isdir(each) else 0o660)
    os.utime(whole, (time.time() - seconds, time.time() - seconds))
    return name, path


def cleanup(body, key=c.ADMIN):
    return c.request("POST", c.BASE + STORE + "cleanup", body, key=key)


def actions(answer):
    check.equal(answer.status, 200, answer.body[:300])
    return {action["gc_path"]: action for action in answer.json()["actions"]}


def exists(path):
    return os.path.exists(os.path.join(c.DATA_DIR, path))


@check.test
def stores_are_cleaned_by_the_runner():
    name, spooled = stray("spool")
    other, kept = stray("artifacts")
    staged_name, staged = stray("staging", owner="cordon-web")
    ended = c.run(["echo", "still here"])
    plan = get(STORE + "cleanup-plan", c.ADMIN)
    check.equal(plan.status, 200, plan.body)
    check.equal(set(plan.json()), {"dry_run", "image_store", "summary", "actions", "reasons"})
    found = actions(plan)
    check.equal(found[spooled]["type"], "remove_run_directory")
    check.equal(found[kept]["run_id"], other)
    check.equal(found[staged]["type"], "remove_run_manifest")
    check.equal({action["status"] for action in found.values()}, {"planned"})
    check.true(all(ended["id"] not in path for path in found), "a run that is known is planned")
    check.has_not(plan.body.decode(), c.DATA_DIR)
    # nothing is removed unless somebody says so
    check.equal(set(actions(cleanup({"run_ids": [name]}))), {spooled})
    check.equal(cleanup({"dry_run": False}).json()["error"]["code"], "image_store_cleanup_confirmation_required")
    check.equal(cleanup({"dry_run": False, "confirm_all": True}, c.KEY).status, 403)
    check.true(exists(spooled) and exists(kept) and exists(staged))
    # one by its id, one by its type, then the rest
    done = cleanup({"dry_run": False, "run_ids": [name]})
    check.equal(actions(done)[spooled]["status"], "deleted")
    check.equal(done.json()["summary"]["deleted_actions"], 1)
    check.equal((done.json()["dry_run"], exists(spooled), exists(kept), exists(staged)), (False, False, True, True))
    done = cleanup({"dry_run": False, "action_types": ["remove_run_manifest"]})
    check.equal(actions(done)[staged]["status"], "deleted")
    check.equal((exists(kept), exists(staged)), (True, False))
    check.equal(actions(cleanup({"dry_run": False, "confirm_all": True}))[kept]["status"], "deleted")
    check.true(not exists(kept))
    check.equal(actions(cleanup({"dry_run": False, "run_ids": [name, other, staged_name]})), {})
    frames, _ = c.follow(ended["id"])
    check.equal(c.output(frames, "stdout"), b"still here\n")


@check.test
def what_the_runner_may_not_remove_is_an_error():
    _, image = stray("images", "e2e-old-image", owner="root", seconds=200000)
    try:
        done = cleanup({"dry_run": False, "run_ids": ["e2e-old-image"]})
        action = actions(done)[image]
        check.equal((action["type"], action["status"], action["error"]), ("remove_legacy_run_directory", "error", "permission_denied"))
        check.equal(done.json()["summary"]["deleted_actions"], 0)
        check.true(exists(image))
        # and operators are told that something is left
        check.wait_for(lambda: get("/admin/operator-status", c.ADMIN).json()["sections"]["image_store"]["gc_candidates"] >= 1, 10, "candidates")
        status = get("/admin/operator-status", c.ADMIN).json()
        check.equal(status["overall_status"], "degraded")
        check.has([action["code"] for action in status["recommended_actions"]], "inspect_image_store_cleanup_plan")
        items = get("/admin/macos-diagnostics", c.ADMIN).json()["image_store"]["items"]
        check.has([item["gc_path"] for item in items], image)
    finally:
        shutil.rmtree(os.path.join(c.DATA_DIR, image))


@check.test
def many_ask_at_once():
    answers = c.many(12, 12, lambda i: get(STORE + "cleanup-plan", c.ADMIN))
    check.equal({answer.status for answer in answers}, {200})


@check.test
def without_a_runner_nobody_waits_for_one():
    switch = os.path.join(os.path.dirname(c.DATA_DIR), "run-off", "cordon-runner")
    pid = c.program_pid("cordon-runner")
    with open(switch, "w", encoding="utf-8"):
        pass
    try:
        os.kill(pid, signal.SIGTERM)
        check.wait_for(lambda: not os.path.exists("/proc/%d" % pid), 20, "the runner to end")
        check.equal(get(STORE + "cleanup-plan", c.ADMIN).status, 503)
        answer = cleanup({"dry_run": False, "confirm_all": True})
        check.equal((answer.status, answer.json()["error"]["details"]["reasons"]), (503, ["runner_unavailable"]))
    finally:
        os.unlink(switch)
    check.wait_for(lambda: get(STORE + "cleanup-plan", c.ADMIN).status == 200, 20, "200")


@check.test
def repair_fails_closed():
    path = c.BASE + "/admin/macos-reconciliation/repair"
    dry = c.request("POST", path, {}, key=c.ADMIN)
    check.equal((dry.status, dry.json()["reasons"]), (200, ["macos_virtualization_helper_unavailable"]))
    real = c.request("POST", path, {"dry_run": False}, key=c.ADMIN)
    check.equal((real.status, real.json()["error"]["code"]), (503, "macos_virtualization_helper_unavailable"))


check.main()
