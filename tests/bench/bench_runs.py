"""bench_runs.py: marks 1, 2, 5, 8, 9 and 11: runs, commands, output, files and reads over HTTPS, beside bubblewrap, docker and a plain nginx."""
import contextlib
import json
import os
import shutil
import subprocess
import tarfile

from benchlib import (DONE, FLEET, RUNS, VAR, NotHere, beside, bwrap, call, fetch, load, plain_nginx, post, say, scratch, wait_for)

MIB = 1 << 20


# --- docker ----------------------------------------------------------------------------------------


def cgroup_roots():
    with open("/proc/self/mountinfo") as file:
        lines = [line.split(" - ") for line in file]
    return [head.split()[4] for head, tail in lines if tail.split()[0] in ("cgroup", "cgroup2")]


@contextlib.contextmanager
def docker():
    """A dockerd of our own with one image: gives the words of `docker run`. It leaves no process, mount, cgroup or file."""
    for name in ("dockerd", "/usr/bin/docker", "gcc"):
        if not shutil.which(name):
            raise NotHere(name + " is not installed")
    parent = "cordon-bench-%d" % os.getpid()
    with scratch() as folder:
        source, log = folder + "/true.c", open(folder + "/log", "wb")
        with open(source, "w") as file:
            file.write("int main(void) { return 0; }\n")
        subprocess.run(["gcc", "-O2", "-static", "-o", folder + "/true", source], check=True)
        with tarfile.open(folder + "/image.tar", "w") as tar:
            tar.add(folder + "/true", "true")
        host = "unix://%s/docker.sock" % folder
        daemon = subprocess.Popen(["dockerd", "-H", host, "--data-root", folder + "/data", "--exec-root", folder + "/exec", "--pidfile",
                                   folder + "/pid", "--iptables=false", "--bridge=none", "--cgroup-parent", parent, "--log-level", "warn"],
                                  stdout=log, stderr=log)
        client = ["/usr/bin/docker", "-H", host]
        try:
            def ready():
                if daemon.poll() is not None:
                    with open(folder + "/log") as text:
                        raise NotHere("dockerd does not start: " + text.read()[-200:].replace("\n", " "))
                return subprocess.run(client + ["version"], capture_output=True).returncode == 0
            wait_for(ready, 60, "dockerd")
            done = subprocess.run(client + ["import", folder + "/image.tar", "bench:1"], capture_output=True, text=True)
            run = client + ["run", "--rm", "--network", "none", "bench:1", "/true"]
            first = subprocess.run(run, capture_output=True, text=True)
            if done.returncode != 0 or first.returncode != 0:
                raise NotHere("docker run: " + (done.stderr + first.stderr).strip()[-200:])
            yield run
        finally:
            daemon.terminate()
            try:
                daemon.wait(30)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
            log.close()
            # containers end with `docker run --rm`; the groups that the daemon made above them stay
            for root in cgroup_roots():
                for where, _, _ in os.walk(os.path.join(root, parent), topdown=False):
                    os.rmdir(where)


# --- marks 1 and 2 ---------------------------------------------------------------------------------


def against_bwrap(out, number, title, got, share=1.0):
    out.mark(number, title + ": p50 / bubblewrap p50", got["cordon"]["p50"] / got["bubblewrap"]["p50"], share, "low")


def one_by_one(out):
    with contextlib.ExitStack() as stack:
        run, why = None, None
        try:
            run = stack.enter_context(docker())
        except NotHere as reason:
            why = reason
        for gap in (0, 40):
            title = "run true, one by one" + (", 40 ms gaps" if gap else "")
            say(title)
            measures = {"cordon": lambda: post(300 if not gap else 100, gap=gap),
                        "bubblewrap": lambda: bwrap(300 if not gap else 100, gap=gap)}
            if run:
                measures["docker"] = lambda: load(["spawn"] + run, 20, gap=gap, least=5)
            got = out.add(title, beside(3, **measures))
            against_bwrap(out, 1, title, got)
            if run:
                out.mark(1, title + ": docker run p50 / p50", got["docker"]["p50"] / got["cordon"]["p50"], 40, "high")
            else:
                out.not_here(1, title + ": docker run p50 / p50", why)
            out.mark(1, title + ": p99 / p50", got["cordon"]["p99"] / got["cordon"]["p50"], 3, "low")
            out.good(1, title, got["cordon"])
        sixteen(out, run, why)


def sixteen(out, run, why):
    title = "run true, 16 clients"
    say(title)
    measures = {"cordon": lambda: post(1600, threads=16), "bubblewrap": lambda: bwrap(800, threads=2)}
    if run:
        measures["docker"] = lambda: load(["spawn"] + run, 24, threads=2, least=8)
    got = out.add(title + " (others on both cores)", beside(3, **measures))
    out.mark(2, title + ": rate / bubblewrap's on both cores", got["cordon"]["per_second"] / got["bubblewrap"]["per_second"], 1, "high")
    if run:
        out.mark(2, title + ": rate / docker run's, 2 at once", got["cordon"]["per_second"] / got["docker"]["per_second"], 40, "high")
    else:
        out.not_here(2, title + ": rate / docker run's, 2 at once", why)
    out.mark(2, title + ": p99 / p50", got["cordon"]["p99"] / got["cordon"]["p50"], 5, "low")
    out.good(2, title, got["cordon"])
    title += ", 40 ms gaps"
    say(title)
    got = out.add(title + " (bubblewrap likewise)", beside(3, cordon=lambda: post(800, threads=16, gap=40),
                                                           bubblewrap=lambda: bwrap(800, threads=16, gap=40)))
    out.mark(2, title + ": rate / bubblewrap's, 16 likewise", got["cordon"]["per_second"] / got["bubblewrap"]["per_second"], 1, "high")
    out.mark(2, title + ": p99 / p50", got["cordon"]["p99"] / got["cordon"]["p50"], 5, "low")
    out.good(2, title, got["cordon"])


# --- mark 5 ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def sandbox(**wish):
    made = call("POST", FLEET, wish)
    one = made.get("sandbox", made)["id"]
    try:
        yield one
    finally:
        call("DELETE", "%s/%s" % (FLEET, one))


def command(one, count, **options):
    url = "%s/%s/runtime/terminals/commands" % (FLEET, one)
    return load(["http", "POST", url, '{"command": "true"}'], count, expect='"exitCode":0', **options)


def exec_in_box(out):
    with sandbox(name="bench") as one:
        command(one, 40)
        for gap in (0, 40):
            title = "command true in a sandbox" + (", 40 ms gaps" if gap else "")
            say(title)
            got = out.add(title, beside(3, cordon=lambda: command(one, 300 if not gap else 100, gap=gap)))
            out.mark(5, title + ": p50", got["cordon"]["p50"] / 1000, 3, "low", "ms")
            out.good(5, title, got["cordon"])


# --- mark 8 ----------------------------------------------------------------------------------------


def big_output(out):
    say("10 MiB of output")
    words = ["sh", "-c", "yes 0123456789abcdef0123456789abcdef0123456789abcdef | head -c %d" % (10 * MIB)]
    body = json.dumps({"base_image": "host", "command": words})
    with scratch() as folder:
        got = out.add("a run that prints 10 MiB", beside(3, cordon=lambda: post(20, body, least=5),
                                                         bubblewrap=lambda: bwrap(20, *words, least=5, output=folder + "/out")))
        if os.path.getsize(folder + "/out") != 10 * MIB:
            raise RuntimeError("bubblewrap's file is short")
    against_bwrap(out, 8, "a run that prints 10 MiB", got, 2.0)
    out.good(8, "a run that prints 10 MiB", got["cordon"])


# --- mark 9 ----------------------------------------------------------------------------------------


def artifacts(out):
    sizes = {"1 MiB": MIB, "64 MiB": 64 * MIB}
    make = "; ".join("head -c %d /dev/urandom > f%d" % (size, size) for size in sizes.values())
    run = call("POST", RUNS, {"base_image": "host", "command": ["sh", "-c", make], "capture_patterns": ["f*"]})
    if run["phase"] != "completed":
        raise RuntimeError("the run for artifacts: %s" % run["message"])
    # the very files: how a copy was written would make a difference, too
    folder = "%s/data/artifacts/%s/%s" % (VAR, run["id"][-2:], run["id"])
    files = {os.path.getsize(os.path.join(folder, name)): name for name in os.listdir(folder)}
    with plain_nginx("", folder) as plain:
        for name, size in sizes.items():
            title = "download of %s" % name
            say(title)
            count = 400 if size == MIB else 8
            url = "%s/%s/artifacts/f%d" % (RUNS, run["id"], size)
            got = out.add(title, beside(4, cordon=lambda: load(["http", "GET", url], count, least=4, bytes=size),
                                        nginx=lambda: load(["http", "GET", plain + files[size]], count, least=4, bytes=size)))
            out.mark(9, title + ": rate / plain nginx", got["cordon"]["per_second"] / got["nginx"]["per_second"], 0.9, "high")
            out.mark(9, title, got["cordon"]["per_second"] * size / MIB, None, "high", "MiB/s")
            out.good(9, title, got["cordon"])


# --- mark 11 ---------------------------------------------------------------------------------------


def reads(out):
    say("GET of one run")
    run = call("POST", RUNS, {"base_image": "host", "command": ["true"]})["id"]
    url = "%s/%s" % (RUNS, run)
    text = fetch(url).decode().replace("\\", "\\\\").replace("'", "\\'").replace("$", "")
    with plain_nginx("default_type application/json; return 200 '%s';" % text) as plain:
        got = out.add("GET a run, 8 clients / nginx return 200", beside(
            3, cordon=lambda: load(["http", "GET", url], 20000, threads=8, expect=DONE),
            nginx=lambda: load(["http", "GET", plain], 20000, threads=8)))
    out.mark(11, "GET a run, 8 clients: rate / nginx return 200", got["cordon"]["per_second"] / got["nginx"]["per_second"], None, "high")
    out.mark(11, "GET a run, 8 clients: rate", got["cordon"]["per_second"], 8000, "high", "/s")
    out.good(11, "GET a run, 8 clients", got["cordon"])
