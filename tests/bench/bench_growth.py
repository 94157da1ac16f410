"""bench_growth.py: mark 12: the same work with a full database. The tables run, run_trace and api_key are made a second time beside the real
ones with BENCH_ROWS finished runs and a tenth as many keys; RENAME TABLE swaps the two sets at once, so that empty and full are measured turn
by turn. The real ones are back at the end, and the full ones dropped."""
import contextlib
import json
import os
import time

from bench_runs import command, sandbox
from benchlib import DONE, RUNS, beside, call, load, post, say, sql

ROWS = int(os.environ.get("BENCH_ROWS", "0"))
BATCH = 100000
TABLES = ("run", "run_trace", "api_key")
# finished over the last 20 hours, so that nothing of it is due for removal
SPAN_MS = 20 * 3600 * 1000


def fill():
    sql("".join("DROP TABLE IF EXISTS bench_%s; CREATE TABLE bench_%s LIKE %s;" % (t, t, t) for t in TABLES))
    until = int(time.time() * 1000) - 60000
    hexed = "LPAD(HEX(%d + n * %d DIV %d), 12, '0')" % (until - SPAN_MS, SPAN_MS, ROWS)
    ident = ("LOWER(CONCAT(SUBSTR(h, 1, 8), '-', SUBSTR(h, 9, 4), '-7', SUBSTR(r, 1, 3), '-a', SUBSTR(r, 4, 3), '-', SUBSTR(r, 7, 12)))")
    at = "FROM_UNIXTIME((%d + n * %d DIV %d) / 1000)" % (until - SPAN_MS, SPAN_MS, ROWS)
    usage = json.dumps({"cpu_user_us": 1200, "cpu_system_us": 2400, "memory_peak_bytes": 3145728, "pids_peak": 2})
    for first in range(0, ROWS, BATCH):
        last = min(ROWS, first + BATCH)
        say("rows %d to %d" % (first, last))
        sql(f"""SET time_zone = '+00:00';
CREATE TEMPORARY TABLE bench_ids AS
  SELECT n, {ident} AS id, {at} AS at FROM (SELECT seq - 1 AS n, {hexed.replace('n *', '(seq - 1) *')} AS h, MD5(seq) AS r
  FROM seq_{first + 1}_to_{last}) AS s;
INSERT INTO bench_run (id, face, tenant, user_id, key_id, node, job_id, request_id, spec_version, runtime, runtime_version, base_image,
  image_digest, policy_hash, trust_level, network_policy, phase, outcome, message, exit_code, last_seq, resource_usage, log_bytes, created_at,
  started_at, finished_at, trace)
SELECT id, 'runs', IF(n % 10 = 0, 'dev', CONCAT('tenant', n % 500)), IF(n % 100 = 0, 'dev', CONCAT('user', n % 5000)), CONCAT('key', n % 100000),
  'node1', n, SUBSTR(MD5(n), 1, 32), '1.0', 'namespace', '0.1.0', 'host', 'sha256:{"0" * 64}', '0123456789abcdef', 'standard', 'deny_all',
  'completed', 'finished', 'exit=0', 0, 2, '{usage}', 0, at, at, at, REPEAT('x', 300) FROM bench_ids;
INSERT INTO bench_run_trace SELECT id, REPEAT('y', 200) FROM bench_ids;""")
    sql(f"""INSERT INTO bench_api_key SELECT CONCAT('bench', seq), UNHEX(SHA2(seq, 256)), CONCAT('tenant', seq % 500), CONCAT('user', seq % 5000),
  'user', '', UTC_TIMESTAMP(6), NULL FROM seq_1_to_{max(1, ROWS // 10)};
INSERT INTO bench_api_key SELECT * FROM api_key;
ANALYZE TABLE bench_run, bench_run_trace, bench_api_key;""")


class Swap:
    """Which set the programs see."""

    def __init__(self):
        self.full = False

    def to(self, full):
        if full == self.full:
            return
        sql("RENAME TABLE " + ", ".join("%s TO bench_swap_%s, bench_%s TO %s, bench_swap_%s TO bench_%s" % (t, t, t, t, t, t) for t in TABLES))
        self.full = full


@contextlib.contextmanager
def full_tables():
    swap = Swap()
    try:
        fill()
        yield swap
    finally:
        swap.to(False)
        sql("".join("DROP TABLE IF EXISTS bench_%s;" % t for t in TABLES))


def growth(out):
    if ROWS <= 0:
        out.not_here(12, "growth", "takes minutes: BENCH_ROWS=1000000 asks for it")
        return
    with sandbox(name="bench-growth") as one, full_tables() as swap:
        run = call("POST", RUNS, {"base_image": "host", "command": ["true"]})["id"]
        sql("INSERT INTO bench_run SELECT * FROM run WHERE id = '%s'" % run)
        rows = int(sql("SELECT COUNT(*) FROM bench_run").strip())
        get = ["http", "GET", "%s/%s" % (RUNS, run)]
        work = {"POST true": lambda: post(200), "16 clients POST true": lambda: post(640, threads=16),
                "GET a run": lambda: load(get, 3000, expect=DONE), "command in a sandbox": lambda: command(one, 200)}
        for title, measure in work.items():
            say("growth: " + title)

            def on(full, measure=measure):
                swap.to(full)
                # the new tables are opened and their statements prepared again; queries of another set are none of these
                post(20)
                load(get, 20, expect=DONE)
                return measure()
            got = out.add("%s, %d rows" % (title, rows), beside(6, small=lambda: on(False), full=lambda: on(True)))
            if "16" in title:
                out.mark(12, "%s: rate without rows / with %d" % (title, rows), got["small"]["per_second"] / got["full"]["per_second"], 1.1,
                         "low")
            else:
                out.mark(12, "%s: p50 with %d rows / without" % (title, rows), got["full"]["p50"] / got["small"]["p50"], 1.1, "low")
            out.good(12, title, got["full"])
