#!/usr/bin/env python3
"""test_docs: the blocks of the documents can be pasted, and their links lead somewhere."""
import glob
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import check  # noqa: E402
import cordon as c  # noqa: E402,F401

WALK = "docs/faces/runs.md"
PASTED = ("docs/quick-start.md", "docs/faces/runs-reference.md", "docs/faces/fleet.md", "docs/faces/runs-admin.md")


def read(name):
    with open(os.path.join(check.TOP, name), encoding="utf-8") as file:
        return file.read()


def paste(name):
    """All sh blocks of a document as one script, in the tree, with nothing of ours in the environment."""
    script = "\n".join(re.findall(r"^```sh\n(.*?)^```$", read(name), re.M | re.S))
    check.true(script, name)
    return run_script(script)


def run_script(script):
    if os.environ.get("CORDON_BUILD", "build") != "build":
        script = script.replace("build/bin/", os.environ["CORDON_BUILD"] + "/bin/")
    env = {word: value for word, value in os.environ.items() if not word.startswith("CORDON_")}
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=check.TOP, env=env, capture_output=True, text=True, timeout=120)
    check.equal(done.returncode, 0, done.stdout[-2000:] + done.stderr[-2000:])
    return done.stdout


@check.test
def quick_start():
    out = paste(PASTED[0])
    for word in ('"ok":true', '"exit_code":0', "hello\n1000\n", "\n6\n", "done", "3 demo-numbers.txt", '"cancelled":true', "revoked"):
        check.has(out, word)


@check.test
def face_runs():
    out = paste(PASTED[1])
    for word in ('"exit_code":3', '"idempotency_conflict"', "content-range: bytes 0-4/10", "content-range: bytes */10", "one\n",
                 '"event":"end"', '"cancelled":true', '"next_cursor"'):
        check.has(out, word)
    ids = re.findall(r"^([0-9a-f]{8}-[0-9a-f-]{27})$", out, re.M)
    check.equal(len(ids), 2)
    check.equal(ids[0], ids[1], "the same key gives the same run")


def compare(printed, got, where):
    """What is printed is a part of what came; "..." stands for anything."""
    if printed == "...":
        return
    if isinstance(printed, dict) and isinstance(got, dict):
        for name, value in printed.items():
            check.has(got, name, where)
            compare(value, got[name], "%s.%s" % (where, name))
    elif isinstance(printed, list) and isinstance(got, list):
        check.equal(len(got), len(printed), where)
        for number, value in enumerate(printed):
            compare(value, got[number], "%s[%d]" % (where, number))
    else:
        check.equal(got, printed, where)


@check.test
def the_walk_works_as_printed():
    blocks = re.findall(r"^```(sh|json|text)\n(.*?)^```$", read(WALK), re.M | re.S)
    line = "--- block %d of the walk"
    script = "\n".join("echo; echo '%s'\n%s" % (line % number, text) for number, (kind, text) in enumerate(blocks) if kind == "sh")
    out = run_script(script)
    for number, (kind, text) in enumerate(blocks):
        if kind == "sh":
            above = out.split(line % number + "\n")[1].split("\n--- block ")[0]
        elif kind == "json":
            compare(json.loads(text), json.loads(above.strip().splitlines()[-1]), "block %d" % number)
        else:
            for words in text.splitlines():
                check.has(above, words, "block %d" % number)
    check.true(sum(kind != "sh" for kind, _ in blocks) > 30, "most calls are compared")


@check.test
def face_fleet():
    out = paste(PASTED[2])
    for word in ('"status":"running"', '"stdout":"4\\nhello\\n"' if os.cpu_count() >= 4 else '\\nhello\\n"', '"exitCode":3', '"status":"stopped"',
                 '"stdout":"hello\\n"', '"sandboxes":[', '"outcome":"destroyed"'):
        check.has(out, word)


@check.test
def face_runs_admin():
    out = paste(PASTED[3])
    for word in ('"name": "namespace"', '"available": true', '"store":{"mode":"mariadb","healthy":true}', '"my notes"', '"state":"available"',
                 '"pagination"', '"mode": "offset"', '"cpu_time_ms"', '"user_id"', '"ready": 1', '"vz_recovery_unavailable"', '"planned_actions"',
                 "image_store_cleanup_confirmation_required", "macos_virtualization_helper_unavailable"):
        check.has(out, word)
    lines = out.splitlines()
    check.has(lines, '"degraded"', "the operators' status")
    check.has(lines, "true", "a dry run is the default")


@check.test
def links_lead_somewhere():
    for path in glob.glob(os.path.join(check.TOP, "*.md")) + glob.glob(os.path.join(check.TOP, "docs", "**", "*.md"), recursive=True):
        for target in re.findall(r"\]\(([^)]+)\)", read(path)):
            name, _, anchor = target.partition("#")
            if "://" in target:
                continue
            file = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
            check.true(os.path.exists(file), "%s names %s" % (path, target))
            if anchor:
                heads = [re.sub(r"[^a-z0-9 -]", "", line.lstrip("# ").lower()).replace(" ", "-") for line in read(file).splitlines()
                         if line.startswith("#")]
                check.has(heads, anchor, path)


@check.test
def tests_named_in_security_exist():
    text = read("docs/security.md") + read("docs/architecture.md")
    for name in set(re.findall(r"\btest_[a-z_]+\.(?:py|c|sh)\b", text)):
        check.true(glob.glob(os.path.join(check.TOP, "tests", "*", name)), name)
    for name in set(re.findall(r"`([a-z][a-z/]*/[a-z_/]+\.(?:c|h|sql|sh))`", text)):
        check.true(os.path.exists(os.path.join(check.TOP, name)), name)


check.main()
