#!/usr/bin/env python3
"""test_demo: the demo's steps pass, the lines it prints for repeating them work when pasted, and a wrong answer is a clear failure."""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import check  # noqa: E402
import cordon as c  # noqa: E402

VAR = os.path.dirname(c.DATA_DIR)
DEMO = [sys.executable, os.path.join(check.TOP, "tests", "stack", "demo", "demo.py")]


def demo(**changed):
    os.makedirs(os.path.join(VAR, "demo"), exist_ok=True)
    return subprocess.run(DEMO, cwd=check.TOP, env=dict(os.environ, **changed), capture_output=True, text=True, timeout=60)


@check.test
def the_printed_lines_work():
    done = demo()
    check.equal(done.returncode, 0, done.stdout + done.stderr)
    check.has_not(done.stdout, "\033", "colours without a terminal")
    lines = [line.strip() for line in done.stdout.split("To repeat each step by hand:")[1].splitlines() if line.startswith("   ")]
    check.true(sum(line.startswith("curl ") for line in lines) >= 5, lines)
    again = subprocess.run(["bash", "-e", "-c", "\n".join(line.replace("-o plot.png", "-o var/demo/again.png") for line in lines)], cwd="/",
                           capture_output=True, timeout=60)
    check.equal(again.returncode, 0, again.stderr)
    for word in (b'"phase":"completed"', b"busiest hour: 15:00", b"out/report.csv", b"\nhour,\n"):
        check.has(again.stdout, word)
    with open(os.path.join(VAR, "demo", "again.png"), "rb") as file:
        check.equal(file.read(8), b"\x89PNG\r\n\x1a\n")


@check.test
def a_wrong_answer_fails_the_demo():
    done = demo(CORDON_API_KEY="nonsense")
    check.equal(done.returncode, 1)
    check.true(re.search("FAILED: POST /runs was answered 401", done.stderr), done.stderr)
    done = demo(CORDON_URL="https://localhost:1")
    check.equal(done.returncode, 1)
    check.has(done.stderr, "cannot be reached")


@check.test
def the_notice_names_everything():
    done = subprocess.run(["bash", os.path.join(check.TOP, "tests", "stack", "demo.sh"), "notice"], capture_output=True, text=True, timeout=10)
    check.equal(done.returncode, 0)
    for word in ("nginx-light", "cordon-web", "/var/lib/cordon-dev", "/run/cordon-dev", "make down", "make clean-data", "Packages and users stay"):
        check.has(done.stdout, word)


check.main()
