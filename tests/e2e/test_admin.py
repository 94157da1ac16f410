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


check.main()
