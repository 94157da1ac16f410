#!/usr/bin/env python3
"""bench.py: the marks of docs/performance.md, measured side by side in one run, turn by turn; called by bench.sh (`make bench`).

    BENCH_ONLY=WORD   only the parts with that word in their name; a comma between several
    BENCH_SCALE=N     a Nth of the repetitions, for a quick look (default 1)
    BENCH_ROWS=N      part growth: with N finished runs in the database (1000000; minutes)
    BENCH_KEEP=1      the data folder of the bench's stack stays

Parts, and the marks that they have:

    runs       1  POST /runs of `true`, one by one, beside bubblewrap and docker run; 2 the same from 16 clients
    builds     3  a box built from nothing, with a network namespace of the ring and with a fresh one
    warm       4  a run in a box that waited, without HTTP and database, beside bubblewrap
    exec       5  a command in a sandbox that lives, over HTTPS
    idle       6  memory of a box that waits
    kill       7  a box with a sleeping command, until it is gone
    output     8  a run that prints 10 MiB, beside bubblewrap into a file
    artifacts  9  downloads, beside a plain nginx with the same files
    holds     10  5,000 requests that wait: how late they are answered, and the gate's memory
    reads     11  GET of a run, beside a plain nginx that returns the same bytes
    growth    12  POST, GET and commands with a full database beside an empty one
    standing  13  1,000 idle boxes: memory, and the latency of others meanwhile
    copies    14  a copy of a workspace (a snapshot) of 1, 64 and 256 MiB, where the disk can share blocks (an XFS in a file) and where it can't
    trace         where the time of a run and of a command goes (bench_trace.py)

Output: a table of what was measured, then one row a mark: its value, what is asked, and held, MISSED, reported (nothing is asked), not here or
failed (both with the reason). The same as JSON in BUILD/bench.json. Exit status 0 when every part could be measured, held or not.
"""
import json
import os
import signal
import subprocess
import sys
import time

import bench_boxes
import bench_growth
import bench_holds
import bench_runs
from benchlib import BUILD, SCALE, NotHere, Results, post, say


def trace(_out):
    for kind in ("run", "exec"):
        subprocess.run([sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "bench_trace.py"), str(max(20, 300 // SCALE)),
                        "0", kind], check=True, timeout=600)


PARTS = {"runs": (1, bench_runs.one_by_one), "builds": (3, bench_boxes.builds), "warm": (4, bench_boxes.warm),
         "exec": (5, bench_runs.exec_in_box), "idle": (6, bench_boxes.idle), "kill": (7, bench_boxes.kill),
         "output": (8, bench_runs.big_output), "artifacts": (9, bench_runs.artifacts), "holds": (10, bench_holds.holds),
         "reads": (11, bench_runs.reads), "growth": (12, bench_growth.growth), "standing": (13, bench_boxes.standing),
         "copies": (14, bench_boxes.copies), "trace": (0, trace)}


def main():
    if len(sys.argv) > 1:
        print(__doc__)
        return 0
    words = [word for word in os.environ.get("BENCH_ONLY", "").split(",") if word]
    chosen = [name for name in PARTS if not words or any(word in name for word in words)]
    if not chosen:
        sys.exit("BENCH_ONLY: the parts are " + ", ".join(PARTS))
    # leave by the way of every finally: there may be a dockerd, a swap of tables, a program that is kept down
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    out, failed = Results(), False
    loads = [os.getloadavg()[0]]
    say("warming up")
    post(40 * SCALE)
    for name in chosen:
        number, measure = PARTS[name]
        start = time.monotonic()
        try:
            measure(out)
        except NotHere as reason:
            out.not_here(number, name, reason)
        except (RuntimeError, OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
            failed = True
            out.not_here(number, name, repr(error), "failed")
        say("%s took %.0f s" % (name, time.monotonic() - start))
        loads.append(os.getloadavg()[0])
    out.print()
    counts = out.counts()
    print("\n" + ", ".join("%d %s" % (count, verdict) for verdict, count in counts.items()))
    with open(os.path.join(BUILD, "bench.json"), "w") as file:
        json.dump({"scale": SCALE, "loads": loads, "counts": counts, "results": out.rows, "marks": out.marks}, file, indent=1)
    return 1 if failed else 0


sys.exit(main())
