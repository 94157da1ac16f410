#!/usr/bin/env python3
"""test_archive: GET /runs/{id}/artifacts.tar.gz: every name and byte, slow clients, clients that leave, ends that are none (B16, B23)."""
import base64
import http.client
import io
import json
import os
import signal
import ssl
import sys
import tarfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import check  # noqa: E402
import cordon as c  # noqa: E402


def path_of(run):
    return f"{c.BASE}/runs/{run['id']}/artifacts.tar.gz"


def unpacked(body):
    with tarfile.open(fileobj=io.BytesIO(body), mode="r:gz", encoding="utf-8", errors="surrogateescape") as archive:
        return {os.fsencode(m.name): (archive.extractfile(m).read(), m) for m in archive.getmembers()}


@check.test
def b23_every_name_and_byte():
    names = [b"90%.txt", b"r%41.txt", b"rA.txt", b"q?x=1#y", b"a b+c.txt", "caf\u00e9".encode(), "cafe\u0301".encode(), "\u4e2d".encode() * 85,
             b"x\r\nX-Accel-Redirect: y", b'"quote\\', b"\xff", b"-dash", b".dot", b"tab\t", b"   ", b"con", b"d/e/f", b"..x", b"a..b", b"..."]
    code = ("import base64, os, json, sys\nfor n in json.loads(sys.argv[1]):\n n = base64.b64decode(n)\n"
            " if b'/' in n: os.makedirs(os.path.dirname(n), exist_ok=True)\n open(n, 'wb').write(n * 3)")
    run = c.run(["python3", "-c", code, json.dumps([base64.b64encode(n).decode() for n in names])], capture_patterns=["*"])
    check.equal(run["phase"], "completed")
    answer = c.request("GET", path_of(run))
    check.equal((answer.status, answer.header("Content-Type")), (200, "application/gzip"))
    check.equal(answer.all("Content-Disposition"), [f'attachment; filename="{run["id"]}-artifacts.tar.gz"'])
    check.equal((answer.header("X-Content-Type-Options"), answer.header("Accept-Ranges")), ("nosniff", None))
    got = unpacked(answer.body)
    check.equal(sorted(got), sorted(names))
    check.true(all(got[n][0] == n * 3 and got[n][1].mtime > 1600000000 for n in names))
    # the same as one by one
    check.equal({os.fsencode(i["path"]): i["size"] for i in c.artifacts(run["id"]) if "path_encoding" not in i},
                {n: len(got[n][0]) for n in names if n != b"\xff"})


@check.test
def what_there_is_nothing_of():
    run = c.run(["true"])
    answer = c.request("GET", path_of(run))
    check.equal((answer.status, unpacked(answer.body)), (200, {}))
    head = c.request("HEAD", path_of(run))
    check.equal((head.status, head.body, head.header("Content-Type")), (200, b"", "application/gzip"))
    # a range is for a file that is there
    check.equal(c.request("GET", path_of(run), headers={"Range": "bytes=0-4"}).status, 200)
    for key, path, status in ((c.OTHER, path_of(run), 404), (c.KEY, path_of({"id": "01900000-0000-7000-8000-000000000000"}), 404),
                              ("wrong", path_of(run), 401), (c.KEY, "/internal/archive/dev/run/" + run["id"], 404)):
        check.equal(c.request("GET", path, key=key).status, status, path)
    check.equal(c.request("POST", path_of(run), {}).status, 405)


def big():
    return c.run(["sh", "-c", "for i in 1 2 3 4 5 6; do head -c 12M /dev/urandom > f$i; done; : > empty"], capture_patterns=["*"])


def connect():
    return http.client.HTTPSConnection(c.HOST, c.PORT, timeout=60, context=ssl.create_default_context(cafile=c.CA))


@check.test
def large_ones_and_several_at_once():
    run = big()
    bodies = c.many(6, 6, lambda _: c.request("GET", path_of(run)).body)
    got = unpacked(bodies[0])
    check.equal(sorted((name, len(data)) for name, (data, _) in got.items()), [(b"empty", 0)] + [(b"f%d" % i, 12 << 20) for i in range(1, 7)])
    one = c.request("GET", f"{c.BASE}/runs/{run['id']}/artifacts/f3").body
    check.equal(c.sha(got[b"f3"][0]), c.sha(one))
    for body in bodies[1:]:
        check.equal(sorted(unpacked(body)), sorted(got))


@check.test
def clients_that_leave_or_are_slow():
    run = big()
    for _ in range(20):
        connection = connect()
        connection.request("GET", path_of(run), headers={"X-API-KEY": c.KEY})
        connection.getresponse().read(1000)
        connection.close()
    slow = [connect() for _ in range(6)]
    for connection in slow:
        connection.request("GET", path_of(run), headers={"X-API-KEY": c.KEY})
    answers = [connection.getresponse() for connection in slow]
    time.sleep(1)
    # they hold up nobody
    begun = time.monotonic()
    check.equal(c.run(["true"])["phase"], "completed")
    check.true(time.monotonic() - begun < 3)
    check.true(all(len(unpacked(a.read())) == 7 for a in answers))
    check.equal(len(unpacked(c.request("GET", path_of(run)).body)), 7)


@check.test
def an_end_that_is_none_is_seen():
    """A file that is gone, and the gate's death: the client does not get an end."""
    run = big()
    os.unlink(f"{c.DATA_DIR}/artifacts/{run['id'][-2:]}/{run['id']}/4")
    try:
        body = c.request("GET", path_of(run)).body
    except (http.client.IncompleteRead, ConnectionError, ssl.SSLError):
        body = None
    check.equal(body, None)
    run = big()
    connection = connect()
    connection.request("GET", path_of(run), headers={"X-API-KEY": c.KEY})
    answer = connection.getresponse()
    answer.read(1000)
    os.kill(c.program_pid("cordon-gate"), signal.SIGKILL)
    try:
        # nginx may have had all of it: then it is whole
        check.true(len(answer.read()) > 70 << 20)
        whole = True
    except (http.client.IncompleteRead, ConnectionError, ssl.SSLError):
        whole = False
    check.wait_for(lambda: c.request("GET", path_of(run)).status == 200, 10, "the gate to be back")
    print("whole" if whole else "cut", end=" ")


check.main()
