#!/usr/bin/env python3
"""bench_trace.py [COUNT [GAP_MS [run|exec]]]: where the time goes: COUNT (300) runs of `true`, or commands `true` in one sandbox, one by one
over one kept connection, then the median of every step of their traces, as a table. The private stack must be up: set -a; . var/dev.env; set +a
"""
import http.client
import json
import os
import ssl
import sys
import time
import urllib.parse

BASE = "/api/v1/sandbox/runs"
FLEET = "/v1/sandboxes"
# the path to the answer: each step begins when the one before it has ended
PATH = ["accepted", "read", "authenticated", "admitted", "begun", "committed", "noticed", "claim_begun", "claimed", "exec_sent", "started", "exited", "drained", "counted", "end_begun", "end_committed", "end_noticed", "released",
        "render_begun", "row_read", "answered"]
# what a command in a sandbox does not have: its box is there
NO_BOX = {"counted"}
# the box is made while the claim commits
BESIDE = [("claim_begun", "box_asked"), ("box_asked", "box_ready"), ("committed", "held"), ("held", "parked"), ("end_committed", "box_destroyed")]


class Client:
    def __init__(self):
        url = urllib.parse.urlsplit(os.environ["CORDON_URL"])
        context = ssl.create_default_context(cafile=os.environ["CORDON_CA"])
        self.http = http.client.HTTPSConnection(url.hostname, url.port, context=context)

    def call(self, method, path, body=None):
        send = {"X-API-KEY": os.environ["CORDON_API_KEY"], "Content-Type": "application/json"}
        self.http.request(method, path, None if body is None else json.dumps(body), send)
        answer = self.http.getresponse()
        text = answer.read()
        if answer.status not in (200, 201):
            sys.exit("%s %s: %d %s" % (method, path, answer.status, text.decode()))
        return json.loads(text)


def part(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0


def row(name, values):
    print("| %s | %d | %d | %d |" % (name, part(values, 0.5), part(values, 0.95), len(values)))


def work(client, kind, count, gap):
    """What the client's own clock says, by run."""
    took = {}
    if kind == "exec":
        box = client.call("POST", FLEET, {"name": "bench-trace"})
        box = "%s/%s" % (FLEET, box.get("sandbox", box)["id"])
    try:
        for _ in range(count):
            time.sleep(gap)
            start = time.monotonic()
            if kind == "exec":
                run = client.call("POST", box + "/runtime/terminals/commands", {"command": "true"})["runId"]
            else:
                run = client.call("POST", BASE, {"base_image": "host", "command": ["true"]})["id"]
            took[run] = (time.monotonic() - start) * 1e6
        time.sleep(2.5)
    finally:
        if kind == "exec":
            client.call("DELETE", box)
    return took


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    gap = float(sys.argv[2]) / 1000 if len(sys.argv) > 2 else 0
    kind = sys.argv[3] if len(sys.argv) > 3 else "run"
    client = Client()
    path = [name for name in PATH if kind == "run" or name not in NO_BOX]
    points = set(path + ["held", "parked"] + (["box_destroyed"] if kind == "run" else []))
    outside = work(client, kind, count, gap)
    traces = [client.call("GET", "%s/%s/trace" % (BASE, run)) for run in outside]
    whole = [t for t in traces if t["held"] and not points - {p["name"] for p in t["points"]}]
    at = [{p["name"]: p["at_us"] for p in t["points"]} for t in whole]
    print("%d of kind %s, %d whole traces, %d warm boxes\n" % (count, kind, len(whole), sum(bool(t["warm"]) for t in whole)))
    print("| step, us | p50 | p95 | n |\n|---|---|---|---|")
    for before, name in zip(path, path[1:]):
        row(name, [t[name] - t[before] for t in at])
    row("accept to answer", [t["answer_us"] for t in whole])
    row("the client's own clock", list(outside.values()))
    row("client, less the trace", [outside[t["run_id"]] - t["answer_us"] for t in whole])
    for before, name in BESIDE:
        if name in points:
            row("beside: %s to %s" % (before, name), [t[name] - t[before] for t in at])


main()
