"""bench_holds.py: mark 10: thousands of requests that wait, and how late they are answered."""
import json
import os
import subprocess
import threading
import time

from benchlib import RUNS, TRUE, call, make_keys, off, program_pid, say, scaled, scratch, sql, tool, wait_for

KEYS = 4  # the web server lets one key have 4,096 requests open
RATE = 300  # requests a second while they are sent


def rss(pid):
    try:
        with open("/proc/%d/status" % pid) as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS:"))
    except (OSError, StopIteration):
        return 0


class Peak:
    """The largest resident memory of a program, looked at ten times a second."""

    def __init__(self, name):
        self.pid, self.bytes, self.stop = program_pid(name), 0, threading.Event()
        self.thread = threading.Thread(target=self.look)
        self.thread.start()

    def look(self):
        while not self.stop.wait(0.1):
            self.bytes = max(self.bytes, rss(self.pid))

    def end(self):
        self.stop.set()
        self.thread.join()
        return self.bytes / (1 << 20)


def held_now():
    return len(os.listdir("/proc/%d/fd" % program_pid("cordon-gate")))


def start(count, file, *words):
    return subprocess.Popen([tool("bench_hold"), "--count", str(count), "--url", RUNS, "--body", TRUE, "--keys", file, "--rate", str(RATE),
                             *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(child):
    text, errors = child.communicate(timeout=600)
    if child.returncode != 0:
        raise RuntimeError("bench_hold: " + errors[-600:])
    found = json.loads(text.splitlines()[-1])
    if found["count"] == 0:
        raise RuntimeError("bench_hold: no good answer: " + errors[:600])
    return found


def restart_gate():
    """Memory is judged from a start on: what earlier parts left in the allocator is none of the holds."""
    with off("cordon-gate"):
        pass
    wait_for(lambda: call("GET", RUNS + "?limit=1") is not None, 10, "the gate")


def clear():
    """The runs that wait are ended, as if their time in the queue were over."""
    sql("UPDATE job SET expires_at = UTC_TIMESTAMP(6) WHERE state = 'queued' AND tenant = 'bench'")
    wait_for(lambda: sql("SELECT COUNT(*) FROM job WHERE tenant = 'bench'").strip() == "0", 120, "the queue to be empty")


def report(out, title, count, found, peak):
    row = dict(found, count=count)
    out.add(title, {"off the due time": row})
    out.mark(10, title + ": success", 100.0 * found["good"] / count, 100, "high", "%")
    out.mark(10, title + ": resident memory of the gate", peak, 64, "low", "MiB")


def holds(out):
    count = scaled(5000)
    keys = make_keys("bench", "bench", KEYS)
    with scratch() as folder:
        file = folder + "/keys"
        with open(file, "w") as lines:
            lines.write("\n".join(keys) + "\n")
        os.chmod(file, 0o600)
        with off("cordon-runner"):
            title = "%d waits, due over 10 s" % count
            say(title)
            restart_gate()
            peak = Peak("cordon-gate")
            try:
                found = finish(start(count, file, "--spread-ms", "10000", "--lead-ms", str(count * 1000 // RATE + 6000)))
            finally:
                used = peak.end()
            report(out, title, count, found, used)
            out.mark(10, title + ": p99 off the due time", found["p99"] / 1000, 50, "low", "ms")
            clear()
            title = "%d waits, due at once" % count
            say(title)
            restart_gate()
            idem = "bench-%d" % time.time_ns()
            run = call("POST", RUNS, json.loads(TRUE), ["Prefer: respond-async", "Idempotency-Key: " + idem], key=keys[0])["id"]
            peak = Peak("cordon-gate")
            try:
                before = held_now()
                child = start(count, file, "--idem", idem)
                wait_for(lambda: held_now() >= before + count or child.poll() is not None, 300, "all requests to be held")
                call("POST", "%s/%s/cancel" % (RUNS, run), key=keys[0])
                found = finish(child)
            finally:
                used = peak.end()
            report(out, title, count, found, used)
            out.mark(10, title + ": the last answer after the end of the run", found["last_us"] / 1000, 1500, "low", "ms")
            clear()
