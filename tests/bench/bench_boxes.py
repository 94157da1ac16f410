"""bench_boxes.py: marks 3, 4, 6, 7, 13 and 14: boxes alone, on a cordon-box of their own, by bench_boxpart."""
import contextlib
import json
import os
import resource
import statistics
import subprocess
import time

from benchlib import SCALE, NotHere, beside, bwrap, measure, part, say, scaled, scratch, tool

# of /proc/meminfo: what the kernel keeps for boxes
KERNEL = ("Slab", "KernelStack", "PageTables", "Percpu")
FILES_PER_BOX = 16
GROUP = ("memory.usage_in_bytes", "memory.kmem.usage_in_bytes", "memory.current")


def builds(out):
    for gap in (0, 40):
        gaps = ", 40 ms gaps" if gap else ""
        say("a box built from nothing" + gaps)
        got = out.add("box built from nothing" + gaps, beside(3, ring=lambda: part("cold", 300 if not gap else 60, gap),
                                                              fresh=lambda: part("fresh", 300 if not gap else 60, gap)))
        out.mark(3, "box built from nothing%s, netns of the ring: p50" % gaps, got["ring"]["p50"] / 1000, 1.5, "low", "ms")
        out.mark(3, "box built from nothing%s, fresh netns: p50" % gaps, got["fresh"]["p50"] / 1000, 2.5, "low", "ms")
        for name in ("ring", "fresh"):
            out.good(3, "box built from nothing%s, %s" % (gaps, name), got[name])


def warm(out):
    for gap in (0, 40):
        title = "a run in a warm box, no HTTP" + (", 40 ms gaps" if gap else "")
        say(title)
        count = 300 if not gap else 100
        got = out.add(title, beside(3, cordon=lambda: part("warm", count, gap), bubblewrap=lambda: bwrap(count, gap=gap)))
        out.mark(4, title + ": p50 / bubblewrap p50", got["cordon"]["p50"] / got["bubblewrap"]["p50"], 0.35, "low")
        out.mark(4, title + ": in a box that waited", 100 * got["cordon"]["good"] / got["cordon"]["count"], None, "high", "%")


def kill(out):
    for gap in (0, 40):
        title = "kill until gone" + (", 40 ms gaps" if gap else "")
        say(title)
        got = out.add(title, beside(3, cordon=lambda: part("kill", 200 if not gap else 60, gap)))
        out.mark(7, title + ": p50", got["cordon"]["p50"] / 1000, 0.5, "low", "ms")
        out.good(7, title, got["cordon"])


def on_xfs(*words):
    """bench_boxpart with its data on an XFS in a file, in a mount namespace of its own."""
    with scratch() as folder:
        disk, data = folder + "/disk", folder + "/data"
        os.mkdir(data)
        with open(disk, "wb") as file:
            file.truncate(4 << 30)
        if subprocess.run(["mkfs.xfs", "-q", disk], check=False).returncode != 0:
            raise NotHere("no XFS here")
        script = 'mount -o loop "$0" "$1" || { echo "no loop device for an XFS"; exit 77; }; CORDON_TEST_DATA="$1"; export CORDON_TEST_DATA; shift; exec "$@"'
        return measure(["unshare", "--mount", "--propagation", "private", "sh", "-c", script, disk, data, tool("bench_boxpart"), *words])


def copies(out):
    for mib in (1, 64, 256):
        title = "a copy of a workspace with %d MiB" % mib
        say(title)
        words = ["copy", "--count", str(scaled(20, 4)), "--more", str(mib)]
        got = out.add(title, beside(2, shared=lambda: on_xfs(*words), copied=lambda: measure([tool("bench_boxpart"), *words])))
        out.mark(14, title + ", blocks shared: p50", got["shared"]["p50"] / 1000, None, "low", "ms")
        out.mark(14, title + ", blocks copied: p50", got["copied"]["p50"] / 1000, None, "low", "ms")


# --- memory ----------------------------------------------------------------------------------------


class Held:
    """bench_boxpart that holds boxes: said is its first line; more() makes some further boxes meanwhile."""

    def __init__(self, *words):
        self.child = subprocess.Popen([tool("bench_boxpart"), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      text=True)
        self.said = self.line()

    def line(self):
        text = self.child.stdout.readline()
        if not text.startswith("{"):
            self.child.stdin.close()
            errors = self.child.stderr.read()
            if self.child.wait() == 77:
                raise NotHere(text.strip())
            raise RuntimeError("bench_boxpart: " + errors[-600:])
        return json.loads(text)

    def more(self):
        self.child.stdin.write("\n")
        self.child.stdin.flush()
        return self.line()

    def end(self):
        self.child.stdin.close()
        self.child.stdout.read()
        if self.child.wait() != 0:
            raise RuntimeError("bench_boxpart: " + self.child.stderr.read()[-600:])


@contextlib.contextmanager
def held(*words):
    one = Held(*words)
    try:
        yield one
    except BaseException:
        one.child.stdin.close()
        one.child.wait()
        raise
    one.end()


def read(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def meminfo():
    """After the kernel has freed what earlier boxes left: network namespaces go later, one after another."""
    before, end = None, time.monotonic() + 20
    while True:
        with open("/proc/sys/vm/drop_caches", "w") as file:
            file.write("2\n")  # cached names and inodes are no part of a box
        lines = dict(line.split(":") for line in read("/proc/meminfo").splitlines())
        out = {name: int(lines[name].split()[0]) * 1024 for name in KERNEL + ("Shmem",)}
        if before is not None and (abs(out["Slab"] - before["Slab"]) < 256 << 10 or time.monotonic() > end):
            return out
        before = out
        time.sleep(1)


def children(pid):
    return [int(p) for task in os.listdir("/proc/%d/task" % pid) for p in read("/proc/%d/task/%s/children" % (pid, task)).split()]


def pss(pid):
    for line in read("/proc/%d/smaps_rollup" % pid).splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def tree(pid):
    return [pid] + [below for child in children(pid) for below in tree(child)]


def boxes_of(daemon):
    """pid 1 of each box: the children with a user namespace of their own, as the zygote and the keepers have none."""
    return [pid for pid in children(daemon) if (read("/proc/%d/uid_map" % pid).split() or ["0", "0"])[1] != "0"]


def groups(instance):
    """Bytes of the memory groups of an instance's boxes, all and those that the kernel uses; None where it cannot be read."""
    sums = dict.fromkeys(GROUP)
    for base in ("/sys/fs/cgroup/memory", "/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
        for name in os.listdir(base) if os.path.isdir(base) else []:
            if name != "cordon-" + instance and not name.startswith("cordon-%s-" % instance):
                continue
            for key in sums:
                text = read(os.path.join(base, name, key))
                if text:
                    sums[key] = (sums[key] or 0) + int(text)
    return sums


def memory_of(one):
    daemon = one.said["daemon"]
    out = meminfo()
    out.update(groups(one.said["instance"]))
    out["boxes"] = len(boxes_of(daemon))
    # cordon-box, its zygote and the keepers of workspaces too: what they take for each box counts
    everybody = tree(daemon)
    out["processes"] = len(everybody)
    out["pss"] = sum(pss(pid) for pid in everybody)
    out["files"] = len(os.listdir("/proc/%d/fd" % daemon))
    return out


def per_box(few, many):
    """MiB of one box: the difference between few boxes and many, so that what cordon-box itself takes drops out."""
    boxes = many["boxes"] - few["boxes"]
    out = {name: (many[name] - few[name]) / boxes / (1 << 20) for name in many
           if name not in ("boxes", "processes", "files") and many[name] is not None and few[name] is not None}
    out["whole"] = out["pss"] + sum(out[name] for name in KERNEL)
    for name in ("processes", "files"):
        out[name] = (many[name] - few[name]) / boxes
    return out


def report_memory(out, number, title, rounds, limit):
    """Medians of the rounds: the kernel's figures are those of the whole machine."""
    one = {name: statistics.median(r[name] for r in rounds) for name in rounds[0]}
    out.mark(number, title + ": memory of a box", one["whole"], limit, "low", "MiB")
    out.mark(number, title + ": PSS of %.1f processes" % one["processes"], one["pss"], None, "low", "MiB")
    for name in KERNEL:
        out.mark(number, title + ": kernel, " + name, one[name], None, "low", "MiB")
    out.mark(number, title + ": Shmem, which its tmpfs is part of", one["Shmem"], None, "low", "MiB")
    for name in GROUP:
        if name in one:
            out.mark(number, title + ": %s of its group" % name, one[name], None, "low", "MiB")


def idle(out):
    say("memory of boxes that wait")
    rounds = []
    for _ in range(5 if SCALE == 1 else 3):
        with held("pool", "--count", "8") as one:
            few = memory_of(one)
        with held("pool", "--count", "64") as one:
            rounds.append(per_box(few, memory_of(one)))
    report_memory(out, 6, "a box that waits", rounds, 0.5)


def most_boxes(out):
    """As many as cordon-box may have files open for."""
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (131072, 131072))
    except (OSError, ValueError):
        pass
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    fit = (hard - 500) // FILES_PER_BOX - 24
    if fit < 1000:
        out.not_here(13, "1000 idle boxes", "cordon-box may open %d files here and takes about %d a box: %d boxes" % (hard, FILES_PER_BOX, fit))
    return min(fit, max(50, 1000 // SCALE))


def standing(out):
    count = most_boxes(out)
    for disk in ("0", "1"):
        title = "%d idle boxes%s" % (count, " with workspaces that stay" if disk == "1" else "")
        say(title)
        with held("stand", "--count", "10", "--disk", disk, "--more", "100") as stand:
            few = memory_of(stand)
            before = stand.more()
        with held("stand", "--count", str(count), "--disk", disk, "--more", "100") as stand:
            many = memory_of(stand)
            while_made = stand.said
            after = stand.more()
        out.add(title, {"their creates": while_made, "a run, 10 idle": before, "a run, %d idle" % count: after})
        one = per_box(few, many)
        report_memory(out, 13, title, [one], None)
        out.mark(13, title + ": open files of cordon-box for each", one["files"], None, "low", "files")
        out.mark(13, title + ": a run in a box, p50 / the same with 10 idle", after["p50"] / before["p50"], None, "low")
