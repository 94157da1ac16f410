"""cordon.py: what the end-to-end tests share: a small HTTPS and WebSocket client of face 1. The frame is check.py.

Standard library only. The stack's settings come from the environment that tests/run.sh gives (var/dev.env).
"""
import base64
import concurrent.futures
import hashlib
import http.client
import json
import os
import signal
import socket
import ssl
import struct
import subprocess
import time
import urllib.parse

import check

URL = os.environ.get("CORDON_URL", "https://localhost:8443")
CA = os.environ.get("CORDON_CA", "")
KEY = os.environ.get("CORDON_API_KEY", "")
ADMIN = os.environ.get("CORDON_ADMIN_KEY", "")
OTHER = os.environ.get("CORDON_OTHER_KEY", "")
RUN_DIR = os.environ.get("CORDON_RUN", "")
DATA_DIR = os.environ.get("CORDON_DATA", "")
POLICY = os.environ.get("CORDON_POLICY", "")
BASE = "/api/v1/sandbox"

_parts = urllib.parse.urlsplit(URL)
HOST, PORT = _parts.hostname, _parts.port or 443


def box_ids():
    """The ids that boxes of this stack can have."""
    with open(os.path.join(os.path.dirname(POLICY), "box.limits")) as file:
        values = dict(line.strip().split("=") for line in file if "=" in line)
    first = int(values["uid_base"])
    return range(first, first + int(values.get("slots", 64)) * 65536)


def no_box_processes():
    """Nothing runs with an id of a box but boxes that wait for a run: pid 1 and its stub, both cordon-init. What else cordon-box
    has not cleared away is found by `doctor --leaks` at the end."""
    ids = box_ids()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            if os.stat("/proc/" + name).st_uid not in ids:
                continue
            with open(f"/proc/{name}/comm") as file:
                if file.read().strip() != "cordon-init":
                    return False
        except OSError:
            pass
    return True


def context():
    made = ssl.create_default_context(cafile=CA)
    return made


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def header(self, name):
        return self.headers.get(name)

    def all(self, name):
        return self.headers.get_all(name) or []


def request(method, path, body=None, key=KEY, headers=None, timeout=120, chunks=None):
    """One request over HTTP/1.1; path is sent as it is."""
    connection = http.client.HTTPSConnection(HOST, PORT, timeout=timeout, context=context())
    send = {}
    if key is not None:
        send["X-API-KEY"] = key
    if body is not None and not isinstance(body, (bytes, str)):
        body = json.dumps(body)
        send["Content-Type"] = "application/json"
    if isinstance(body, str):
        body = body.encode()
    send.update(headers or {})
    try:
        if chunks is not None:
            connection.request(method, path, iter(chunks), send, encode_chunked=True)
        else:
            connection.request(method, path, body, send)
        got = connection.getresponse()
        return Answer(got.status, got.headers, got.read())
    finally:
        connection.close()


def run_body(command, **more):
    body = {"spec_version": "1.0", "base_image": "host", "command": command}
    body.update(more)
    return body


def run(command, wait=True, key=KEY, headers=None, **more):
    """POST /runs; the run object."""
    send = dict(headers or {})
    if not wait:
        send["Prefer"] = "respond-async"
    answer = request("POST", BASE + "/runs", run_body(command, **more), key=key, headers=send)
    assert answer.status == 200, (answer.status, answer.body)
    return answer.json()


def get_run(run_id, key=KEY):
    return request("GET", f"{BASE}/runs/{run_id}", key=key).json()


def wait_run(run_id, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        got = get_run(run_id)
        if got.get("finished_at"):
            return got
        time.sleep(0.05)
    raise AssertionError(f"run {run_id} did not end in {seconds} s: {got}")


def wait_phase(run_id, phases, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        got = get_run(run_id)
        if got["phase"] in phases:
            return got
        time.sleep(0.05)
    raise AssertionError(f"run {run_id} is {got['phase']}, not one of {phases}")


class Refused(Exception):
    def __init__(self, answer):
        super().__init__(f"{answer.status} {answer.body[:200]}")
        self.answer = answer


class WebSocket:
    """RFC 6455, client side, text frames; enough for tests."""

    def __init__(self, path, key=KEY, headers=None, timeout=60):
        raw = socket.create_connection((HOST, PORT), timeout=timeout)
        self.sock = context().wrap_socket(raw, server_hostname=HOST)
        self.buffer = b""
        self.close_code = None
        nonce = base64.b64encode(os.urandom(16)).decode()
        lines = [f"GET {path} HTTP/1.1", f"Host: {HOST}:{PORT}", "Upgrade: websocket", "Connection: Upgrade",
                 f"Sec-WebSocket-Key: {nonce}", "Sec-WebSocket-Version: 13"]
        if key is not None:
            lines.append(f"X-API-KEY: {key}")
        lines += [f"{k}: {v}" for k, v in (headers or {}).items()]
        self.sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        head = b""
        while b"\r\n\r\n" not in head:
            part = self.sock.recv(4096)
            if not part:
                raise ConnectionError("the handshake broke off")
            head += part
        head, self.buffer = head.split(b"\r\n\r\n", 1)
        status = int(head.split(b" ", 2)[1])
        if status != 101:
            fields = http.client.HTTPMessage()
            for line in head.decode("latin-1").split("\r\n")[1:]:
                name, _, value = line.partition(":")
                fields[name] = value.strip()
            length = int(fields.get("Content-Length", "0"))
            while len(self.buffer) < length:
                part = self.sock.recv(4096)
                if not part:
                    break
                self.buffer += part
            raise Refused(Answer(status, fields, self.buffer))

    def _take(self, count):
        while len(self.buffer) < count:
            part = self.sock.recv(65536)
            if not part:
                raise ConnectionError("the connection broke off")
            self.buffer += part
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def send(self, text, opcode=1):
        data = text.encode() if isinstance(text, str) else text
        mask = os.urandom(4)
        head = bytes([0x80 | opcode])
        if len(data) < 126:
            head += bytes([0x80 | len(data)])
        elif len(data) < 65536:
            head += bytes([0x80 | 126]) + struct.pack("!H", len(data))
        else:
            head += bytes([0x80 | 127]) + struct.pack("!Q", len(data))
        self.sock.sendall(head + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))

    def frame(self):
        """The next JSON frame, or None after the close."""
        text = b""
        while True:
            first, second = self._take(2)
            length = second & 127
            if length == 126:
                length = struct.unpack("!H", self._take(2))[0]
            elif length == 127:
                length = struct.unpack("!Q", self._take(8))[0]
            data = self._take(length)
            opcode = first & 15
            if opcode == 8:
                self.close_code = struct.unpack("!H", data[:2])[0] if len(data) >= 2 else 1005
                return None
            if opcode == 9:
                self.send(data, 10)
                continue
            if opcode == 10:
                continue
            text += data
            if first & 0x80:
                return json.loads(text)

    def close(self):
        self.sock.close()


def stream_path(run_id, from_seq=None, query=""):
    path = f"{BASE}/runs/{run_id}/stream"
    parts = [p for p in [f"from_seq={from_seq}" if from_seq is not None else "", query] if p]
    return path + ("?" + "&".join(parts) if parts else "")


def follow(run_id, from_seq=None, key=KEY, timeout=60):
    """All frames to the close; (frames, close code)."""
    ws = WebSocket(stream_path(run_id, from_seq), key=key, timeout=timeout)
    frames = []
    try:
        while True:
            frame = ws.frame()
            if frame is None:
                return frames, ws.close_code
            frames.append(frame)
    finally:
        ws.close()


def data_of(frame):
    if frame["encoding"] == "base64":
        return base64.b64decode(frame["data"])
    return frame["data"].encode()


def output(frames, kind):
    return b"".join(data_of(f) for f in frames if f["type"] == kind)


def check_sequence(frames):
    seqs = [f["seq"] for f in frames]
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs))), seqs[:20]
    ends = [i for i, f in enumerate(frames) if f["type"] == "event" and f["event"] == "end"]
    assert ends == [len(frames) - 1], ends


def sha(data):
    return hashlib.sha256(data).hexdigest()


def artifacts(run_id, key=KEY):
    return request("GET", f"{BASE}/runs/{run_id}/artifacts", key=key).json()["items"]


def many(count, workers, work):
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        return list(pool.map(work, range(count)))


def program_pid(name):
    with open(os.path.join(RUN_DIR, "pids", name)) as file:
        return int(file.read())


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return set(file.read().split())


def reload_workers():
    """SIGHUP to the FastCGI pool; back when no worker of before is there and as many new ones are."""
    master = program_pid("cordon-fcgi")
    before = children(master)
    os.kill(master, signal.SIGHUP)
    wait_until(lambda: not before & children(master) and len(children(master)) >= len(before), 20, "the workers were not replaced")


def wait_until(what, seconds, message):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return
        time.sleep(0.05)
    raise AssertionError(message)


def healthy():
    answer = request("GET", BASE + "/health", timeout=5)
    return answer.status == 200 and answer.json()["ok"]


def sql(text):
    """What the database says to its owner."""
    return subprocess.run(["mariadb", "--no-defaults", "--batch", "--skip-column-names", "--socket", RUN_DIR + "/db/mariadb.sock",
                           "cordon", "-e", text], check=True, capture_output=True, text=True, timeout=30).stdout


class PolicyOf:
    """More lines in the policy for a while; runner and workers have it."""

    def __init__(self, lines):
        self.lines = lines

    def __enter__(self):
        with open(POLICY, encoding="utf-8") as file:
            self.good = file.read()
        self.write(self.good + self.lines)

    def __exit__(self, *_):
        self.write(self.good)

    def write(self, text):
        with open(POLICY, "w", encoding="utf-8") as file:
            file.write(text)
        reload_workers()
        os.kill(program_pid("cordon-runner"), signal.SIGTERM)
        check.wait_for(lambda: run(["true"], wait=True)["phase"] == "completed", 20, "the runner to be back")


class Off:
    """A program of the stack is ended and stays so."""

    def __init__(self, name):
        self.name, self.file = name, os.path.join(os.path.dirname(DATA_DIR), "run-off", name)

    def __enter__(self):
        pid = program_pid(self.name)
        with open(self.file, "w"):
            pass
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not os.path.exists(f"/proc/{pid}"), 20, self.name + " did not end")

    def __exit__(self, *_):
        os.unlink(self.file)
