#!/usr/bin/env python3
"""bench.py BUILD VAR: runs bench_load for Cordon and for what it is compared with, turn by turn, and prints a table; JSON in BUILD/bench.json."""
import json
import os
import socket
import subprocess
import sys
import tempfile
import time

BUILD, VAR = sys.argv[1], sys.argv[2]
LOAD = os.path.join(BUILD, "tests/bench/bench_load")
URL = os.environ["CORDON_URL"]
RUNS = URL + "/api/v1/sandbox/runs"
SCALE = max(1, int(os.environ.get("BENCH_SCALE", "1")))
BODY = json.dumps({"base_image": "host", "command": ["true"]})
BWRAP = ["bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink",
         "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs",
         "/workspace", "--chdir", "/workspace", "true"]


def load(what, count, threads=1, gap=0, expect=None):
    words = [LOAD, "--count", str(max(20, count // SCALE)), "--threads", str(threads), "--gap-ms", str(gap)]
    if expect:
        words += ["--expect", expect]
    return json.loads(subprocess.run(words + what, check=True, capture_output=True, text=True, timeout=900).stdout)


def merge(parts):
    """Rounds of one measurement: the middle one by p50, counts added."""
    parts = sorted(parts, key=lambda p: p["p50"])
    middle = dict(parts[len(parts) // 2])
    middle["count"] = sum(p["count"] for p in parts)
    middle["good"] = sum(p["good"] for p in parts)
    return middle


def beside(rounds, **measures):
    """Each measure once per round, turn by turn, so that both see the same machine."""
    seen = {name: [] for name in measures}
    for _ in range(rounds):
        for name, measure in measures.items():
            seen[name].append(measure())
    return {name: merge(parts) for name, parts in seen.items()}


POST = ["http", "POST", RUNS, BODY]
SPAWN = ["spawn"] + BWRAP


def plain_nginx(body):
    """A plain nginx with TLS that returns the same bytes."""
    folder = tempfile.mkdtemp(prefix="cordon-bench-")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    conf = os.path.join(folder, "nginx.conf")
    with open(os.path.join(folder, "body.json"), "wb") as file:
        file.write(body)
    text = body.decode().replace("\\", "\\\\").replace("'", "\\'").replace("$", "")
    with open(conf, "w") as file:
        file.write(f"""
worker_processes 2; daemon off; pid {folder}/pid; error_log {folder}/error.log emerg;
events {{ worker_connections 1024; }}
http {{
  access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s; keepalive_requests 1000000;
  server {{ listen 127.0.0.1:{port} ssl; server_name localhost; ssl_certificate {VAR}/etc/tls.crt; ssl_certificate_key {VAR}/etc/tls.key;
    default_type application/json; location / {{ return 200 '{text}'; }} }}
}}""")
    child = subprocess.Popen(["/usr/sbin/nginx", "-c", conf, "-e", "stderr"])
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return child, f"https://localhost:{port}/"
        except OSError:
            time.sleep(0.05)
    raise SystemExit("the plain nginx does not start")


def fetch(path):
    return subprocess.run(["curl", "-s", "--cacert", os.environ["CORDON_CA"], "-H", "X-API-KEY: " + os.environ["CORDON_API_KEY"],
                           *path], check=True, capture_output=True).stdout


def main():
    results, ratios = {}, []

    def ratio(name, value, mark, better):
        ratios.append({"name": name, "ratio": round(value, 2), "mark": mark, "held": value <= mark if better == "low" else value >= mark})

    def add(title, found):
        for name, row in found.items():
            results[f"{title}: {name}"] = row

    print("warming up", file=sys.stderr)
    load(POST, 40, expect='"phase":"completed"')
    run_id = json.loads(fetch(["-X", "POST", "-H", "Content-Type: application/json", "-d", BODY, RUNS]))["id"]

    print("one by one", file=sys.stderr)
    got = beside(3, cordon=lambda: load(POST, 300, expect='"phase":"completed"'), bubblewrap=lambda: load(SPAWN, 300))
    add("run true, one by one", got)
    ratio("run true p50 / bubblewrap p50 (first mark 4, aim 1)", got["cordon"]["p50"] / got["bubblewrap"]["p50"], 4, "low")
    print("with gaps of 40 ms", file=sys.stderr)
    got = beside(1, cordon=lambda: load(POST, 150, gap=40, expect='"phase":"completed"'), bubblewrap=lambda: load(SPAWN, 150, gap=40))
    add("run true, 40 ms gaps", got)
    ratio("run true with gaps p50 / bubblewrap p50", got["cordon"]["p50"] / got["bubblewrap"]["p50"], 4, "low")
    print("16 clients", file=sys.stderr)
    got = beside(2, cordon=lambda: load(POST, 1600, threads=16, expect='"phase":"completed"'),
                 bubblewrap=lambda: load(SPAWN, 800, threads=2))
    add("run true, 16 clients / bubblewrap on both cores", got)
    ratio("16 clients rate / bubblewrap rate (aim 1)", got["cordon"]["per_second"] / got["bubblewrap"]["per_second"], 0.25, "high")

    print("GET of one run", file=sys.stderr)
    body = fetch([f"{RUNS}/{run_id}"])
    child, plain = plain_nginx(body)
    try:
        get = ["http", "GET", f"{RUNS}/{run_id}"]
        got = beside(3, cordon=lambda: load(get, 20000, threads=8, expect='"completed"'),
                     nginx=lambda: load(["http", "GET", plain], 20000, threads=8))
    finally:
        child.terminate()
        child.wait()
    add("GET a run, 8 clients / nginx return 200", got)
    ratio("GET rate / nginx return 200", got["cordon"]["per_second"] / got["nginx"]["per_second"], 0, "high")
    ratio("GET per second (aim 5000)", got["cordon"]["per_second"], 5000, "high")

    print(f"{'measurement':64} {'n':>6} {'good':>6} {'per s':>8} {'p50 us':>8} {'p95':>8} {'p99':>8} {'max':>8}")
    for name, row in results.items():
        print(f"{name:64} {row['count']:6} {100 * row['good'] / row['count']:5.1f}% {row['per_second']:8.0f} {row['p50']:8} {row['p95']:8} "
              f"{row['p99']:8} {row['max']:8}")
    print()
    for row in ratios:
        print(f"{row['name']:64} {row['ratio']:8} mark {row['mark']} {'held' if row['held'] else 'MISSED'}")
    with open(os.path.join(BUILD, "bench.json"), "w") as file:
        json.dump({"results": results, "ratios": ratios}, file, indent=1)


main()
