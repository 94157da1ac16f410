#!/usr/bin/env python3
"""test_egress: cordonctl egress: names by a DNS server of the test, and rules in network namespaces of the test: what a source may
reach with them, renewed, and taken away."""
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import check  # noqa: E402

CTL = os.path.join(check.TOP, os.environ.get("CORDON_BUILD", "build"), "bin", "cordonctl")
TAG = "cordon%d" % os.getpid()
ZONE = {"example.com": ["93.184.216.34", "1.2.3.4"], "www.example.com": ["1.2.3.4"], "inner.test": ["10.0.0.5"],
        "allowed.test": ["198.51.100.1"], "other.test": ["198.51.100.2"]}


class Dns:
    """A records of ZONE; silent for silent.test, NXDOMAIN for the rest."""

    def __init__(self):
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.sock.getsockname()[1]
        self.asked = []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            data, peer = self.sock.recvfrom(4096)
            at, labels = 12, []
            while data[at]:
                labels.append(data[at + 1:at + 1 + data[at]].decode())
                at += 1 + data[at]
            question = data[12:at + 5]
            name = ".".join(labels).lower()
            self.asked.append(name)
            if name == "silent.test":
                continue
            found = ZONE.get(name)
            head = data[:2] + struct.pack("!HHHHH", 0x8180 if found else 0x8183, 1, len(found or []), 0, 0)
            body = b"".join(b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 60, 4) + socket.inet_aton(a) for a in found or [])
            self.sock.sendto(head + question + body, peer)


DNS = Dns()


def ctl(*words, netns=None, dns=True):
    line = [CTL, "egress", *words] + (["--dns", DNS.address] if dns else [])
    if netns:
        line = ["ip", "netns", "exec", netns] + line
    return subprocess.run(line, capture_output=True, text=True, timeout=60)


@check.test
def expand():
    done = ctl("expand", "10.0.0.0/8,8.8.8.8", "*.example.com", ".nowhere.test")
    check.equal((done.returncode, done.stdout.split()), (2, ["1.2.3.4/32", "8.8.8.8/32", "10.0.0.0/8", "93.184.216.34/32"]))
    check.has(done.stderr, "nowhere.test")
    done = ctl("expand", "--json", "*.example.com", "8.8.8.8")
    check.equal((done.returncode, json.loads(done.stdout)),
                (0, {"targets": ["1.2.3.4/32", "8.8.8.8/32", "93.184.216.34/32"], "unresolved": [], "left_out": []}))
    done = ctl("expand", "--json", "inner.test")
    check.equal((done.returncode, json.loads(done.stdout)), (2, {"targets": [], "unresolved": [], "left_out": ["inner.test"]}))
    done = ctl("expand", "--json", "inner.test,10.0.0.0/8")
    check.equal((done.returncode, json.loads(done.stdout)["targets"]), (0, ["10.0.0.0/8", "10.0.0.5/32"]))
    check.equal((ctl("expand").returncode, ctl("expand").stdout), (0, ""))
    DNS.asked.clear()
    check.equal(ctl("expand", "--subdomains", "a,b", "*.example.com").returncode, 2)
    check.equal(sorted(set(DNS.asked)), ["a.example.com", "b.example.com"])


@check.test
def pin():
    done = ctl("pin", "--json", "*.example.com", "8.8.8.8", "10.0.0.0/8", "nowhere.test")
    check.equal((done.returncode, json.loads(done.stdout)),
                (2, {"pins": {"example.com": ["1.2.3.4", "93.184.216.34"], "8.8.8.8": ["8.8.8.8"], "10.0.0.0/8": [], "nowhere.test": []},
                     "unresolved": ["nowhere.test"], "left_out": []}))
    done = ctl("pin", "example.com")
    check.equal((done.returncode, done.stdout), (0, "example.com 1.2.3.4 93.184.216.34\n"))


@check.test
def a_silent_server_ends_with_the_deadline():
    begun = time.monotonic()
    done = ctl("expand", "--timeout", "1", "silent.test", "example.com")
    check.equal((done.returncode, done.stdout.split()), (2, ["1.2.3.4/32", "93.184.216.34/32"]))
    check.true(0.5 < time.monotonic() - begun < 5, time.monotonic() - begun)


@check.test
def wrong_words():
    for words in ((), ("grow",), ("refresh",), ("refresh", "--label", "x"), ("refresh", "--label", "a b", "--source", "1.2.3.4"),
                  ("refresh", "--label", "x", "--source", "1.2.3.4", "--remove"), ("expand", "--label", "x"), ("expand", "--what"),
                  ("expand", "--timeout", "0", "a.b")):
        check.equal(ctl(*words, dns=False).returncode, 64, words)
    for word in ("[::1]", "x:0", "2852039166", "1.2.3.4/33"):
        done = ctl("expand", "good.test", word)
        check.equal((done.returncode, done.stdout), (1, ""), word)
        check.has(done.stderr, word)
    check.equal(ctl("refresh", "--label", "x", "--source", "1.2.3", "8.8.8.8").returncode, 1)
    check.equal(ctl("expand", "--dns", "nonsense", "a.b", dns=False).returncode, 1)
    done = ctl("expand", "--json", "a;b")
    check.equal((done.returncode, json.loads(done.stderr)["error"]), (1, "invalid"))
    check.equal(ctl("--help", dns=False).returncode, 0)


def ip(*words, netns=None):
    subprocess.run(["ip"] + (["-n", netns] if netns else []) + list(words), check=True, capture_output=True, timeout=20)


class Net:
    """A box, a router, and a world with two addresses."""

    def __init__(self):
        self.box, self.router, self.world = (TAG + name for name in ("b", "r", "w"))
        for name in (self.box, self.router, self.world):
            ip("netns", "add", name)
            ip("link", "set", "lo", "up", netns=name)
        for name, at, far in ((self.box, "b0", "172.31.0.2/24"), (self.world, "w0", "198.51.100.1/24")):
            ip("link", "add", at, "netns", self.router, "type", "veth", "peer", "name", "e0", "netns", name)
            ip("address", "add", far, "dev", "e0", netns=name)
            ip("link", "set", "e0", "up", netns=name)
            ip("address", "add", far.rsplit(".", 1)[0] + ".254/24", "dev", at, netns=self.router)
            ip("link", "set", at, "up", netns=self.router)
            ip("route", "add", "default", "via", far.rsplit(".", 1)[0] + ".254", netns=name)
        ip("address", "add", "172.31.0.3/24", "dev", "e0", netns=self.box)
        ip("address", "add", "198.51.100.2/24", "dev", "e0", netns=self.world)
        # the router's DNS is this test's: its loopback is another one, so names come as pins
        subprocess.run(["ip", "netns", "exec", self.router, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"], check=True, timeout=20)
        server = ("import socket\ns = socket.create_server(('', 80))\nprint('up', flush=True)\n"
                  "while True:\n c, _ = s.accept()\n c.close()\n")
        self.server = subprocess.Popen(["ip", "netns", "exec", self.world, "python3", "-c", server], stdout=subprocess.PIPE)
        self.server.stdout.readline()

    def reaches(self, source, target):
        code = (f"import socket\ns = socket.socket()\ns.settimeout(0.5)\ns.bind(('{source}', 0))\ns.connect(('{target}', 80))")
        return subprocess.run(["ip", "netns", "exec", self.box, "python3", "-c", code], capture_output=True, timeout=20).returncode == 0

    def rules(self):
        return subprocess.run(["ip", "netns", "exec", self.router, "nft", "list", "ruleset"], capture_output=True, text=True, check=True,
                              timeout=20).stdout

    def close(self):
        self.server.kill()
        self.server.wait()
        for name in (self.box, self.router, self.world):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True, timeout=20)


@check.test
def refresh():
    net = Net()
    try:
        first, second, one, two = "172.31.0.2", "172.31.0.3", "198.51.100.1", "198.51.100.2"

        def see():
            return [net.reaches(source, target) for source in (first, second) for target in (one, two)]

        def change(*words, code=0):
            done = ctl("refresh", *words, netns=net.router, dns=False)
            check.equal(done.returncode, code, (words, done.stderr))
            return done.stdout

        check.equal(see(), [True] * 4)
        change("--label", "run-1", "--source", first, one)
        check.equal(see(), [True, False, True, True])
        # renewed: what was allowed is gone, the label's rules stand once
        got = json.loads(change("--json", "--label", "run-1", "--source", first, "198.51.100.2/32"))
        check.equal((got["label"], got["source"], got["targets"], got["removed"]), ("run-1", first, [two + "/32"], False))
        check.equal(see(), [False, True, True, True])
        check.equal(net.rules().count('comment "run-1"'), 2)
        # another label is nobody else's business; a word of nft is a label like any other; overlaps do no harm
        change("--label", "drop", "--source", second, "198.51.100.0/24", one)
        check.equal(see(), [False, True, True, True])
        change("--label", "drop", "--source", second)
        check.equal(see(), [False, True, False, False])
        change("--label", "run-1", "--remove")
        check.equal(see(), [True, True, False, False])
        check.has_not(net.rules(), "run-1")
        # again, and one that never was
        change("--label", "run-1", "--remove")
        change("--json", "--label", "never", "--remove")
        change("--label", "drop", "--remove")
        check.equal(see(), [True] * 4)
        # what fails changes nothing: the old rules stand
        change("--label", "run-1", "--source", first, one)
        change("--label", "run-1", "--source", first, "x:0", code=1)
        check.equal(see(), [True, False, True, True])
        before = net.rules()
        text = change("--label", "run-1", "--source", first, "--print", two)
        check.has(text, "flush chain ip cordon_egress r_run-1")
        check.equal(net.rules().count("accept comment"), before.count("accept comment"))
    finally:
        net.close()


@check.test
def refresh_needs_the_right():
    done = subprocess.run(["setpriv", "--reuid", "65534", "--clear-groups", CTL, "egress", "refresh", "--label", "x", "--source",
                           "192.0.2.1", "192.0.2.2"], capture_output=True, text=True, timeout=30)
    check.equal(done.returncode, 1)
    check.true(done.stderr != "")


check.main()
