"""benchlib.py: what the parts of the bench share: measuring turn by turn, the marks and how they are judged, the private stack from outside,
a plain nginx. Standard library only; settings come from the environment that bench.sh gives."""
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

BUILD = os.environ.get("CORDON_BUILD", "build")
VAR = os.environ.get("CORDON_VAR", "var")
RUN_DIR = os.environ.get("CORDON_RUN", "")
URL = os.environ.get("CORDON_URL", "")
API = URL + "/api/v1/sandbox"
RUNS = API + "/runs"
FLEET = URL + "/v1/sandboxes"
SCALE = max(1, int(os.environ.get("BENCH_SCALE", "1")))
TRUE = json.dumps({"base_image": "host", "command": ["true"]})
DONE = '"phase":"completed"'
BOX = ["bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib",
       "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/workspace", "--chdir",
       "/workspace"]


class NotHere(Exception):
    """What a part needs is missing; the text is the reason."""


def say(text):
    print("bench: " + text, file=sys.stderr, flush=True)


def scaled(count, least=20):
    return max(least, count // SCALE)


def tool(name):
    return os.path.join(BUILD, "tests/bench", name)


# --- measuring -------------------------------------------------------------------------------------


def measure(words, timeout=1800):
    child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        text, errors = child.communicate(timeout=timeout)
    except BaseException:
        # bench_boxpart has a cordon-box with boxes: it is short, and removes them itself
        if not words[0].endswith("bench_boxpart"):
            child.kill()
        child.communicate()
        raise
    if child.returncode == 77:
        raise NotHere(text.strip())
    if child.returncode != 0:
        raise RuntimeError("%s: %d: %s" % (" ".join(words)[:200], child.returncode, errors[-600:]))
    return json.loads(text)


def load(what, count, threads=1, gap=0, least=20, **options):
    words = [tool("bench_load"), "--count", str(max(threads, scaled(count, least))), "--threads", str(threads), "--gap-ms", str(gap)]
    for name, value in options.items():
        words += ["--" + name, str(value)]
    return measure(words + what)


def post(count, body=TRUE, **options):
    return load(["http", "POST", RUNS, body], count, expect=DONE, **options)


def bwrap(count, *command, **options):
    return load(["spawn"] + BOX + list(command or ["true"]), count, **options)


def part(name, count, gap=0):
    return measure([tool("bench_boxpart"), name, "--count", str(scaled(count)), "--gap-ms", str(gap)])


def merge(rounds):
    """Rounds of one measurement as one: percentiles over all repetitions."""
    took = sorted(us for r in rounds for us in r["took"])
    out = {"count": sum(r["count"] for r in rounds), "good": sum(r["good"] for r in rounds), "seconds": sum(r["seconds"] for r in rounds)}
    out["per_second"] = out["good"] / out["seconds"] if out["seconds"] > 0 else 0.0
    for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        out[name] = took[min(len(took) - 1, int(share * len(took)))] if took else 0
    out["max"] = took[-1] if took else 0
    out["rounds_p50"] = [r["p50"] for r in rounds]
    return out


def beside(rounds, **measures):
    """Each measure once per round, turn by turn, so that all see the same machine. The order changes with every round."""
    seen = {name: [] for name in measures}
    names = list(measures)
    for turn in range(rounds):
        for name in names if turn % 2 == 0 else reversed(names):
            seen[name].append(measures[name]())
    return {name: merge(parts) for name, parts in seen.items()}


# --- results ---------------------------------------------------------------------------------------


class Results:
    def __init__(self):
        self.rows, self.marks = {}, []

    def add(self, title, found):
        for name, row in found.items():
            self.rows["%s: %s" % (title, name)] = {k: v for k, v in row.items() if k != "took"}
        return found

    def mark(self, number, name, value, limit, better, unit="x"):
        """better: low (at most limit), high (at least); limit None: only reported."""
        held = None if limit is None else value <= limit if better == "low" else value >= limit
        self.marks.append({"mark": number, "name": name, "value": round(value, 4), "unit": unit, "limit": limit, "better": better,
                           "held": held, "verdict": {None: "reported", True: "held", False: "MISSED"}[held]})

    def good(self, number, name, row):
        self.mark(number, name + ", success", 100.0 * row["good"] / max(1, row["count"]), 100, "high", "%")

    def not_here(self, number, name, reason, kind="not here"):
        self.marks.append({"mark": number, "name": name, "value": None, "unit": "", "limit": None, "better": "", "held": None, "verdict": kind,
                           "reason": str(reason)})

    def print(self):
        print("%-62s %6s %6s %9s %9s %9s %9s %9s" % ("measurement", "n", "good", "per s", "p50 us", "p95", "p99", "max"))
        for name, row in self.rows.items():
            print("%-62s %6d %5.1f%% %9.1f %9d %9d %9d %9d" % (name, row["count"], 100 * row["good"] / max(1, row["count"]),
                                                               row["per_second"], row["p50"], row["p95"], row["p99"], row["max"]))
        print("\n%4s %-70s %10s %-6s %10s" % ("mark", "what", "value", "", "asked"))
        for row in self.marks:
            if "reason" in row:
                print("%4s %-70s %s: %s" % (row["mark"], row["name"], row["verdict"], row["reason"]))
                continue
            asked = "" if row["limit"] is None else ("<= %g" if row["better"] == "low" else ">= %g") % row["limit"]
            print("%4s %-70s %10.4g %-6s %10s  %s" % (row["mark"], row["name"], row["value"], row["unit"], asked, row["verdict"]))

    def counts(self):
        verdicts = [mark["verdict"] for mark in self.marks]
        return {verdict: verdicts.count(verdict) for verdict in ("held", "MISSED", "reported", "not here", "failed")}


# --- the stack -------------------------------------------------------------------------------------


def fetch(*words, key=None):
    """The key goes by stdin: a command line is seen by everybody, and in the text of errors."""
    done = subprocess.run(["curl", "-sS", "--fail-with-body", "--cacert", os.environ["CORDON_CA"], "--config", "-", *words],
                          input=('header = "X-API-KEY: %s"' % (key or os.environ["CORDON_API_KEY"])).encode(), capture_output=True)
    if done.returncode != 0:
        raise RuntimeError("%s: %s %s" % (words[-1], done.stderr.decode().strip(), done.stdout.decode()[:300]))
    return done.stdout


def call(method, url, body=None, headers=(), key=None):
    words = ["-X", method, "-H", "Content-Type: application/json"]
    for header in headers:
        words += ["-H", header]
    return json.loads(fetch(*words, *([] if body is None else ["-d", json.dumps(body)]), url, key=key))


def sql(text, database="cordon", timeout=3600):
    return subprocess.run(["mariadb", "--no-defaults", "--batch", "--skip-column-names", "--socket", RUN_DIR + "/db/mariadb.sock",
                           database], input=text, check=True, stdout=subprocess.PIPE, text=True, timeout=timeout).stdout


def make_keys(tenant, user, count):
    words = [os.path.join(BUILD, "bin/cordonctl"), "--policy", VAR + "/etc/policy.yaml", "key", "create", "--tenant", tenant, "--user", user,
             "--role", "user", "--json"]
    return [json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)["key"] for _ in range(count)]


def program_pid(name):
    with open(os.path.join(RUN_DIR, "pids", name)) as file:
        return int(file.read())


def wait_for(what, seconds, message):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = what()
        if found:
            return found
        time.sleep(0.02)
    raise RuntimeError("waited for " + message)


@contextlib.contextmanager
def off(name):
    """A program of the stack that is kept down."""
    pid, file = program_pid(name), os.path.join(VAR, "run-off", name)
    with open(file, "w"):
        pass
    try:
        os.kill(pid, signal.SIGTERM)
        wait_for(lambda: not os.path.exists("/proc/%d" % pid), 30, name + " to end")
        yield
    finally:
        os.unlink(file)

    def again():
        try:
            new = program_pid(name)
            return new != pid and os.path.exists("/proc/%d" % new)
        except (OSError, ValueError):
            return False
    wait_for(again, 30, name + " to start again")


@contextlib.contextmanager
def scratch():
    folder = tempfile.mkdtemp(prefix="cordon-bench-")
    os.chmod(folder, 0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextlib.contextmanager
def plain_nginx(location, root=None):
    """A plain nginx with the stack's certificate and TLS settings; location is the text of `location /`. Gives its URL."""
    with open(VAR + "/etc/nginx/cordon.conf") as file:
        tls = " ".join(line.strip() for line in file if line.strip().startswith(("ssl_protocols", "ssl_ciphers", "ssl_prefer")))
    with scratch() as folder:
        port = free_port()
        with open(folder + "/nginx.conf", "w") as file:
            file.write(f"""
user www-data; worker_processes 2; daemon off; pid {folder}/pid; error_log {folder}/error.log emerg;
events {{ worker_connections 1024; }}
http {{
  access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f; sendfile on; tcp_nopush on;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s; keepalive_requests 1000000; default_type application/octet-stream;
  {tls}
  server {{ listen 127.0.0.1:{port} ssl; server_name localhost; ssl_certificate {VAR}/etc/tls.crt; ssl_certificate_key {VAR}/etc/tls.key;
    root {root or folder}; location / {{ {location} }} }}
}}""")
        child = subprocess.Popen(["/usr/sbin/nginx", "-c", folder + "/nginx.conf", "-e", "stderr"])

        def listens():
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return True
            except OSError:
                return False
        try:
            wait_for(listens, 10, "the plain nginx")
            yield f"https://localhost:{port}/"
        finally:
            child.terminate()
            child.wait()
