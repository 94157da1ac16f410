#!/usr/bin/env python3
"""test_admin: discovery and what administrators see and do, through the whole stack."""
import os
import sys

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


check.main()
