#!/usr/bin/env python3
"""test_nginx: the rules of nginx/ against a made-up worker (FastCGI) and a made-up gate (HTTP), with an nginx of its own."""
import json
import os
import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import check  # noqa: E402

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin:/sbin:/bin")
if NGINX is None or shutil.which("openssl") is None or shutil.which("curl") is None:
    check.skip_all("needs nginx, openssl and curl")
if os.getuid() != 0:
    check.skip_all("needs root (nginx starts workers as www-data)")

KEY = "ck_abc123_SECRETSECRET"
BODY_MOST = 200000


class Unix:
    """A listener that gives each connection to a function, one thread each."""

    def __init__(self, path, serve):
        self.path, self.serve = path, serve
        self.open()

    def open(self):
        if os.path.exists(self.path):
            os.unlink(self.path)
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(self.path)
        os.chmod(self.path, 0o777)
        self.socket.listen(64)
        threading.Thread(target=self.run, args=(self.socket,), daemon=True).start()

    def run(self, listener):
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self.one, args=(connection,), daemon=True).start()

    def one(self, connection):
        try:
            with connection:
                self.serve(connection)
        except (OSError, ValueError):
            pass

    def close(self):
        # shutdown wakes the thread in accept
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        os.unlink(self.path)


def read_full(connection, length):
    data = b""
    while len(data) < length:
        part = connection.recv(length - len(data))
        if not part:
            raise ValueError("early end")
        data += part
    return data


class Worker(Unix):
    """FastCGI. `answer(params, body)` gives the CGI answer, or None to hang up; `seen` has every request."""

    def __init__(self, path):
        self.seen, self.answer = [], None
        super().__init__(path, self.request)

    def request(self, connection):
        params, body = b"", b""
        while True:
            _, kind, ident, length, padding, _ = struct.unpack(">BBHHBB", read_full(connection, 8))
            data = read_full(connection, length + padding)[:length]
            if kind == 4:
                params += data
            elif kind == 5 and data:
                body += data
            elif kind == 5:
                break
        table = {}
        while params:
            sizes = []
            for _ in range(2):
                size = params[0]
                if size & 0x80:
                    size = struct.unpack(">I", params[:4])[0] & 0x7FFFFFFF
                    params = params[4:]
                else:
                    params = params[1:]
                sizes.append(size)
            name, value = params[: sizes[0]], params[sizes[0] : sum(sizes)]
            params = params[sum(sizes) :]
            table.setdefault(name.decode(), value.decode("latin-1"))
        self.seen.append((table, body))
        answer = self.answer(table, body)
        if answer is None:
            return
        for i in range(0, len(answer), 60000):
            part = answer[i : i + 60000]
            connection.sendall(struct.pack(">BBHHBB", 1, 6, ident, len(part), 0, 0) + part)
        connection.sendall(struct.pack(">BBHHBB", 1, 6, ident, 0, 0, 0) + struct.pack(">BBHHBBIBBH", 1, 3, ident, 8, 0, 0, 0, 0, 0, 0))


class Gate(Unix):
    """HTTP/1.1. `answer(connection, head, body)` writes the answer; `seen` has (head, bytes behind it within 50 ms)."""

    def __init__(self, path):
        self.seen, self.answer = [], None
        super().__init__(path, self.request)

    def request(self, connection):
        data = b""
        while b"\r\n\r\n" not in data:
            part = connection.recv(65536)
            if not part:
                return
            data += part
        head, _, rest = data.partition(b"\r\n\r\n")
        connection.settimeout(0.05)
        try:
            while part := connection.recv(65536):
                rest += part
        except TimeoutError:
            pass
        connection.settimeout(None)
        self.seen.append((head.decode("latin-1"), rest))
        self.answer(connection, head.decode("latin-1"), rest)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


FOLDER = tempfile.mkdtemp(prefix="cordon-nginx-")
os.chmod(FOLDER, 0o755)
PORT = free_port()
ARTIFACTS = FOLDER + "/data/artifacts/"
for name in ("run/web", "run/gate", "data/artifacts", "temp"):
    os.makedirs(os.path.join(FOLDER, name))
subprocess.run(
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    " -addext subjectAltName=DNS:localhost -keyout key -out crt",
    shell=True, check=True, cwd=FOLDER, stderr=subprocess.DEVNULL)
subprocess.run(
    ["bash", check.TOP + "/nginx/render.sh", FOLDER + "/etc", "RUN=%s/run" % FOLDER, "DATA=%s/data" % FOLDER,
     "LISTEN=127.0.0.1:%d" % PORT, "CERT=%s/crt" % FOLDER, "KEY=%s/key" % FOLDER, "TEMP=%s/temp" % FOLDER,
     "ACCESS_LOG=%s/access.json" % FOLDER, "BODY_BYTES=%d" % BODY_MOST, "UPLOAD_BYTES=1048576", "WORKER_SECONDS=1"], check=True)
worker = Worker(FOLDER + "/run/web/fcgi.sock")
control = Gate(FOLDER + "/run/gate/control.sock")
stream = Gate(FOLDER + "/run/gate/bytes.sock")
errors = open(FOLDER + "/errors", "wb")
nginx = subprocess.Popen([NGINX, "-e", "stderr", "-c", FOLDER + "/etc/cordon.conf"], stderr=errors)


def talk(data, tls=True, wait=10):
    """Raw bytes to nginx; everything it says until it hangs up."""
    with socket.create_connection(("127.0.0.1", PORT), timeout=wait) as raw:
        connection = raw
        if tls:
            context = ssl.create_default_context(cafile=FOLDER + "/crt")
            connection = context.wrap_socket(raw, server_hostname="localhost", suppress_ragged_eofs=True)
        try:
            connection.sendall(data)
        except OSError:
            pass
        answer = b""
        try:
            while part := connection.recv(65536):
                answer += part
                # a refusal with a length is whole before nginx has waited for the rest of the body
                head, _, rest = answer.partition(b"\r\n\r\n")
                length = re.search(rb"(?i)content-length: (\d+)", head)
                if rest and length and len(rest) >= int(length[1]):
                    break
        except OSError:
            pass
        return answer


class Answer:
    def __init__(self, raw):
        head, _, self.body = raw.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        self.status = int(lines[0].split()[1]) if len(lines[0].split()) > 1 else 0
        self.headers = [tuple(part.strip() for part in line.split(":", 1)) for line in lines[1:] if ":" in line]

        if self.all("Transfer-Encoding") == ["chunked"]:
            rest, self.body = self.body, b""
            while rest:
                size, _, rest = rest.partition(b"\r\n")
                self.body += rest[: int(size, 16)]
                rest = rest[int(size, 16) + 2 :]

    def all(self, name):
        return [value for key, value in self.headers if key.lower() == name.lower()]

    def one(self, name):
        values = self.all(name)
        return values[0] if values else None

    def error(self):
        check.equal(self.one("Content-Type"), "application/json")
        body = json.loads(self.body)
        check.equal(sorted(body), ["error"])
        check.equal(sorted(body["error"]), ["code", "details", "message"])
        return self.status, body["error"]["code"]


def ask(method="GET", url="/x", headers=(), body=None):
    head = ["%s %s HTTP/1.1" % (method, url), "Host: localhost", "Connection: close", *headers]
    if body is not None:
        head.append("Content-Length: %d" % len(body))
    return Answer(talk("\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + (body or b"")))


def ask2(*options, url="/x"):
    """The same over HTTP/2, by curl."""
    done = subprocess.run(
        ["curl", "-s", "-i", "--http2", "--path-as-is", "--max-time", "10", "--cacert", FOLDER + "/crt", *options,
         "https://localhost:%d%s" % (PORT, url)], stdout=subprocess.PIPE, check=False)
    return Answer(done.stdout)


def reset(answer=None):
    worker.seen, control.seen, stream.seen = [], [], []
    worker.answer = answer or (lambda params, body: b"Status: 200 OK\r\nContent-Type: text/plain\r\n\r\nfine")
    control.answer = lambda connection, head, body: connection.sendall(
        b"HTTP/1.1 200 OK\r\nX-Accel-Redirect: " + head.split()[1].replace("/hold/", "/render/").encode() + b"\r\nContent-Length: 0\r\n\r\n")
    stream.answer = lambda connection, head, body: connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


def redirect(target):
    def answer(params, body):
        if "CORDON_INTERNAL" in params:
            return b"Status: 201 Created\r\nContent-Type: application/json\r\nX-Of: render\r\n\r\n{\"done\":1}"
        return b"Status: 200 OK\r\nContent-Type: text/plain\r\nX-Accel-Redirect: " + target.encode() + b"\r\n\r\nnever shown"
    return answer


HOLD = "/internal/hold/node1/run/0192-ab?as=runs.post&t0=1&until=2&f=0&p=dev&k=abc&n=0"
SECRETS = ["Authorization: Bearer " + KEY, "X-API-KEY: " + KEY, "Cookie: a=" + KEY, "Proxy-Authorization: " + KEY]


def until_up():
    try:
        return ask("GET", "/x").status == 200
    except OSError:
        return False


@check.test
def worker_sees_the_request_as_it_came():
    reset()
    answer = ask("GET", "//a%2Fb/../c%0d%0aX-Y:1?q=1&q=%41", ["Cordon-Internal: 1", "CORDON_INTERNAL: 1", "X-Test: v"])
    check.equal((answer.status, answer.body), (200, b"fine"))
    params, body = worker.seen[0]
    check.equal(params["REQUEST_URI"], "//a%2Fb/../c%0d%0aX-Y:1?q=1&q=%41")
    check.equal(params["QUERY_STRING"], "q=1&q=%41")
    check.equal((params["REQUEST_METHOD"], params["CORDON_METHOD"]), ("GET", "GET"))
    check.equal((params["HTTPS"], params["REMOTE_ADDR"], params["HTTP_X_TEST"]), ("on", "127.0.0.1", "v"))
    check.true(re.fullmatch("[0-9a-f]{32}", params["CORDON_REQUEST_ID"]))
    check.has_not(params, "CORDON_INTERNAL")
    check.equal((body, params.get("CONTENT_LENGTH", "")), (b"", ""))
    check.equal(answer.all("Server"), ["nginx"])


@check.test
def bodies_reach_the_first_hop_only():
    for over in (1, 2):
        reset(redirect(HOLD))
        data = b"B" * 150000
        if over == 1:
            answer = ask("POST", "/runs?token=QUERYSECRET", SECRETS + ["Content-Type: application/json"], data)
        else:
            open(FOLDER + "/body", "wb").write(data)
            options = [word for line in SECRETS for word in ("-H", line)]
            answer = ask2(*options, "-H", "Content-Type: application/json", "--data-binary", "@%s/body" % FOLDER,
                          url="/runs?token=QUERYSECRET")
        check.equal((answer.status, answer.body, answer.one("X-Of")), (201, b'{"done":1}', "render"), "over HTTP/%d" % over)
        check.equal(len(worker.seen), 2)
        first, body = worker.seen[0]
        check.equal((body, first["CONTENT_LENGTH"], first["CONTENT_TYPE"]), (data, "150000", "application/json"))
        head, rest = control.seen[0]
        check.equal(rest, b"")
        check.equal(head.split("\r\n")[0], "GET %s HTTP/1.1" % HOLD)
        for word in (KEY, "QUERYSECRET", "Content-", "Transfer-Encoding", "Cookie"):
            check.has_not(head, word)
        check.has(head + "\r\n", "\r\nX-Cordon-Args: %s\r\n" % HOLD.partition("?")[2])
        check.has(head.lower(), "x-request-id: " + first["CORDON_REQUEST_ID"])
        last, body = worker.seen[1]
        check.equal(body, b"")
        for name in ("CONTENT_LENGTH", "CONTENT_TYPE", "HTTP_CONTENT_LENGTH", "HTTP_CONTENT_TYPE"):
            check.has_not(last, name)
        check.equal((last["CORDON_INTERNAL"], last["REQUEST_METHOD"], last["CORDON_METHOD"]), ("1", "GET", "POST"))
        check.equal(last["REQUEST_URI"], HOLD.replace("/hold/", "/render/"))
        check.equal(last["QUERY_STRING"], HOLD.partition("?")[2])
        check.equal((last["HTTP_AUTHORIZATION"], last["HTTP_X_API_KEY"]), ("Bearer " + KEY, KEY))
        check.equal(last["CORDON_REQUEST_ID"], first["CORDON_REQUEST_ID"])


@check.test
def chunked_bodies_have_a_length_and_end_at_the_first_hop():
    reset(redirect(HOLD))
    answer = Answer(talk(b"POST /runs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
                         b"5\r\nhello\r\n3\r\n, x\r\n0\r\n\r\n"))
    check.equal(answer.status, 201)
    check.equal((worker.seen[0][1], worker.seen[0][0]["CONTENT_LENGTH"]), (b"hello, x", "8"))
    check.has_not(control.seen[0][0].lower(), "transfer-encoding")
    check.equal((control.seen[0][1], worker.seen[1][1]), (b"", b""))


@check.test
def a_head_is_held_as_a_get():
    reset(redirect(HOLD))
    answer = ask("HEAD", "/runs/1")
    check.equal((answer.status, answer.body), (201, b""))
    check.equal(control.seen[0][0].split()[0], "GET")
    check.equal((worker.seen[1][0]["CORDON_METHOD"], worker.seen[1][0]["CORDON_INTERNAL"]), ("HEAD", "1"))


@check.test
def internal_locations_are_not_reachable_from_outside():
    reset()
    for place in ("hold", "render", "stream", "bytes", "artifact", "artifact-whole", "error", "admit", "x"):
        for start in ("/internal/", "/%69nternal/", "/a/../internal/", "/internal/./", "/internal%2F"):
            for method in ("GET", "POST", "HEAD", "OPTIONS", "DELETE"):
                answer = ask(method, start + place + "/node1/run/1?as=x", body=b"b" if method == "POST" else None)
                check.equal(answer.status, 404, method + " " + start + place)
                if method != "HEAD":
                    check.equal(answer.error(), (404, "not_found"))
    for url in ("/internal", "/internal/", "/internal/error/upstream", "/internal/error/unknown-object", "/internal/artifact/"):
        answer = ask("GET", url)
        check.true(answer.status == 404 or url == "/internal", url)
    check.equal([params["REQUEST_URI"] for params, _ in worker.seen if params["REQUEST_URI"] != "/internal"], [])
    check.equal((control.seen, stream.seen), ([], []))
    # two slashes are another path; the router of the worker refuses it
    ask("GET", "//internal/render/node1/run/1")
    check.has_not(worker.seen[-1][0], "CORDON_INTERNAL")


@check.test
def a_lost_gate_leads_to_the_render_location():
    for how in ("hangs up", "is away"):
        reset(redirect(HOLD))
        control.answer = lambda connection, head, body: None
        if how == "is away":
            control.close()
        try:
            answer = ask("POST", "/runs", SECRETS, b"body")
        finally:
            if how == "is away":
                control.open()
        check.equal((answer.status, answer.one("X-Of")), (201, "render"), "the gate " + how)
        params, body = worker.seen[1]
        check.equal(params["REQUEST_URI"], HOLD.replace("/hold/", "/render/") + "&gone=1")
        check.equal((body, params["HTTP_X_API_KEY"], params["CORDON_INTERNAL"]), (b"", KEY, "1"))


@check.test
def render_may_send_the_request_to_hold_again():
    def answer(params, body):
        if "gone=1" in params["QUERY_STRING"]:
            control.answer = again
            return b"X-Accel-Redirect: " + HOLD.replace("n=0", "n=1").encode() + b"\r\n\r\n"
        return redirect(HOLD)(params, body)

    reset(answer)
    again = control.answer
    control.answer = lambda connection, head, body: None
    answer = ask("POST", "/runs", body=b"body")
    check.equal((answer.status, len(control.seen), len(worker.seen)), (201, 2, 3))
    check.has(worker.seen[2][0]["REQUEST_URI"], "n=1")
    check.has_not(worker.seen[2][0]["REQUEST_URI"], "gone=1")


@check.test
def an_endless_redirect_ends():
    reset(redirect(HOLD))
    control.answer = lambda connection, head, body: connection.sendall(
        b"HTTP/1.1 200 OK\r\nX-Accel-Redirect: " + HOLD.encode() + b"\r\nContent-Length: 0\r\n\r\n")
    answer = ask("GET", "/runs/1")
    check.equal(answer.status, 500)


@check.test
def no_connection_to_the_first_hop_is_503():
    reset()
    worker.close()
    try:
        for method in ("GET", "POST", "DELETE"):
            answer = ask(method, "/runs", body=b"b" if method == "POST" else None)
            check.equal(answer.error(), (503, "service_unavailable"), method)
            check.equal(answer.all("Retry-After"), ["2"])
            check.equal(answer.all("Cache-Control"), ["no-store"])
        answer = ask2("--data", "x", url="/runs")
        check.equal((answer.error(), answer.one("Retry-After")), ((503, "service_unavailable"), "2"))
    finally:
        worker.open()


@check.test
def a_lost_worker_is_honest():
    reset(lambda params, body: None)
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        answer = ask(method, "/runs", body=b"b")
        check.equal(answer.error(), (502, "outcome_unknown"), method)
        check.equal(answer.all("Retry-After"), [])
        check.equal(json.loads(answer.body)["error"]["details"], {})
    for method in ("GET", "OPTIONS"):
        answer = ask(method, "/runs")
        check.equal((answer.error(), answer.one("Retry-After")), ((503, "service_unavailable"), "2"), method)
    check.equal(ask("HEAD", "/runs").status, 503)
    reset(lambda params, body: time.sleep(3))
    check.equal(ask("POST", "/runs", body=b"b").error(), (502, "outcome_unknown"))
    check.equal(ask("GET", "/runs").error(), (503, "service_unavailable"))


@check.test
def a_lost_render_names_the_object():
    def answer(params, body):
        return None if "CORDON_INTERNAL" in params else redirect(HOLD)(params, body)

    reset(answer)
    lost = ask("POST", "/runs", body=b"b")
    check.equal((lost.error(), lost.one("Retry-After")), ((502, "outcome_unknown"), None))
    check.equal(json.loads(lost.body)["error"]["details"], {"id": "0192-ab"})
    lost = ask("GET", "/runs/1")
    check.equal((lost.error(), lost.one("Retry-After")), ((503, "service_unavailable"), "2"))
    # the gate away too: hold, then render with gone=1, then nobody
    control.answer = lambda connection, head, body: None
    lost = ask("POST", "/runs", body=b"b")
    check.equal(lost.error(), (502, "outcome_unknown"))
    check.equal(json.loads(lost.body)["error"]["details"], {"id": "0192-ab"})


@check.test
def answers_of_the_worker_are_not_touched():
    for status in (400, 404, 413, 422, 429, 500, 502, 503, 504):
        reset(lambda params, body: b"Status: %d Mine\r\nContent-Type: text/x-mine\r\nRetry-After: 7\r\n\r\nmine" % status)
        answer = ask("POST", "/runs", body=b"b")
        check.equal((answer.status, answer.body, answer.one("Content-Type"), answer.all("Retry-After")),
                    (status, b"mine", "text/x-mine", ["7"]))
    big = b"x" * 3000000
    reset(lambda params, body: b"Content-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % len(big) + big)
    check.equal(ask("GET", "/big").body, big)


@check.test
def errors_of_nginx_have_the_shape_of_the_api():
    reset()
    long = "a" * 40000
    whole = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    cases = [
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (BODY_MOST + 1), 413, "body_too_large"),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n40000\r\n" + b"c" * 0x40000, 413, "body_too_large"),
        (("GET /%s HTTP/1.1\r\nHost: localhost\r\n\r\n" % long).encode(), 414, "uri_too_long"),
        (whole + ("X: %s\r\n\r\n" % long).encode(), 431, "header_too_large"),
        (whole + b"".join(b"X%d: %s\r\n" % (i, b"b" * 30000) for i in range(10)) + b"\r\n", 431, "header_too_large"),
        (b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", 400, "invalid_request"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, "invalid_request"),
        (b"G\x01T / HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "invalid_request"),
        (b"GET /%zz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 400, "invalid_request"),
        (b"GET /../x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 400, "invalid_request"),
        (b"GET /a%00b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 400, "invalid_request"),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n", 400, "invalid_request"),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "invalid_request"),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n", 501, "not_implemented"),
        (b"TRACE / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 405, "method_not_allowed"),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "invalid_request"),
        (b"GET / HTTP/3.0\r\nHost: localhost\r\n\r\n", 505, "http_version_not_supported"),
    ]
    for data, status, code in cases:
        answer = Answer(talk(data))
        if code == "method_not_allowed" or code == "invalid_request" or answer.status:
            check.equal(answer.error(), (status, code), repr(data[:70]))
        check.equal(answer.all("Retry-After"), [])
    check.equal(Answer(talk(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", tls=False)).error(), (400, "invalid_request"))
    check.equal(worker.seen, [])
    open(FOLDER + "/body", "wb").write(b"b" * (BODY_MOST + 1))
    check.equal(ask2("--data-binary", "@%s/body" % FOLDER).error(), (413, "body_too_large"))
    check.equal(ask2("-H", "X: " + "~" * 100000).status in (0, 400, 431), True)
    # HTTP/1.0 gets the same
    check.equal(Answer(talk(b"GET /%zz HTTP/1.0\r\n\r\n")).error(), (400, "invalid_request"))


WEBSOCKET = ["Upgrade: websocket", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13"]


@check.test
def streams_pass_upgrades_without_credentials():
    reset(redirect("/internal/stream/node1/run/1?as=stream"))

    def upgrade(connection, head, body):
        connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nframe")
        connection.sendall(b"echo " + connection.recv(100))

    stream.answer = upgrade
    context = ssl.create_default_context(cafile=FOLDER + "/crt")
    with context.wrap_socket(socket.create_connection(("127.0.0.1", PORT), timeout=5), server_hostname="localhost") as client:
        head = ["GET /runs/1/stream?token=QUERYSECRET&from_seq=2 HTTP/1.1", "Host: localhost", "Connection: Upgrade", *WEBSOCKET, *SECRETS,
                "Referer: https://x/?token=QUERYSECRET"]
        client.sendall("\r\n".join(head).encode() + b"\r\n\r\n")
        got = b""
        while b"frame" not in got:
            got += client.recv(1000)
        client.sendall(b"up")
        while b"echo up" not in got:
            got += client.recv(1000)
    check.has(got, b"101 Switching Protocols")
    head = stream.seen[0][0]
    check.equal(head.split("\r\n")[0], "GET /internal/stream/node1/run/1?as=stream HTTP/1.1")
    check.has(head, "Upgrade: websocket")
    check.has(head, "Sec-WebSocket-Key: dGhl")
    for word in (KEY, "SECRET", "Authorization", "Cookie", "X-API-KEY"):
        check.has_not(head, word)


@check.test
def the_bytes_socket_cannot_redirect():
    open(ARTIFACTS + "other-tenant", "w").write("not yours")
    for place in ("stream", "bytes"):
        reset(redirect("/internal/%s/node1/port/1?as=x" % place))
        stream.answer = lambda connection, head, body: connection.sendall(
            b"HTTP/1.1 200 OK\r\nX-Accel-Redirect: /internal/artifact/other-tenant\r\nX-Accel-Buffering: yes\r\n"
            b"X-Accel-Limit-Rate: 1\r\nX-Accel-Expires: 100\r\nX-Accel-Charset: koi8-r\r\nContent-Type: text/html\r\n"
            b"Content-Length: 7\r\n\r\nthe box")
        answer = ask("POST", "/ports/1", SECRETS, b"BODYSECRET")
        check.equal((answer.status, answer.body), (200, b"the box"), place)
        check.equal([name for name, _ in answer.headers if name.lower().startswith("x-accel")], [])
        check.equal(answer.one("Content-Type"), "text/html")
        head, rest = stream.seen[0]
        check.equal(rest, b"")
        for word in (KEY, "Content-Length", "Transfer-Encoding"):
            check.has_not(head, word)


@check.test
def a_gate_that_is_away_is_503_for_streams():
    for place in ("stream", "bytes"):
        reset(redirect("/internal/%s/node1/run/1?as=x" % place))
        stream.answer = lambda connection, head, body: None
        check.equal(ask("GET", "/x").error(), (503, "service_unavailable"))
        check.equal(ask("POST", "/x", body=b"b").error(), (502, "outcome_unknown"))


def artifact(place, name, *headers, method="GET"):
    extra = b"Content-Type: text/csv\r\nContent-Disposition: attachment; filename=\"a\"\r\nCache-Control: private\r\n"
    reset(lambda params, body: b"Status: 200 OK\r\n" + extra + b"X-Accel-Redirect: /internal/" + place.encode() + b"/" + name.encode() + b"\r\n\r\n")
    answer = ask(method, "/artifact", headers)
    if answer.status in (200, 206):
        check.equal(answer.all("Accept-Ranges"), ["bytes"], place)
        check.equal(answer.all("Content-Type"), ["text/csv"])
        check.equal(answer.all("Content-Disposition"), ['attachment; filename="a"'])
        check.equal(answer.all("Cache-Control"), ["private"])
        check.equal(answer.all("X-Content-Type-Options"), ["nosniff"])
        check.equal(answer.all("Content-Security-Policy"), ["sandbox; default-src 'none'"])
    return answer


@check.test
def artifacts_and_ranges():
    open(ARTIFACTS + "ten", "w").write("0123456789")
    open(ARTIFACTS + "none", "w").write("")
    whole = artifact("artifact", "ten")
    check.equal((whole.status, whole.body), (200, b"0123456789"))
    state = os.stat(ARTIFACTS + "ten")
    check.equal(whole.one("ETag"), '"%x-%x"' % (int(state.st_mtime), state.st_size))
    part = artifact("artifact", "ten", "Range: bytes=3-5")
    check.equal((part.status, part.body, part.one("Content-Range")), (206, b"345", "bytes 3-5/10"))
    part = artifact("artifact", "ten", "Range: bytes=-3")
    check.equal((part.status, part.body, part.one("Content-Range")), (206, b"789", "bytes 7-9/10"))
    several = artifact("artifact", "ten", "Range: bytes=0-1,4-5")
    check.equal((several.status, several.body), (200, b"0123456789"))
    whole = artifact("artifact-whole", "ten", "Range: bytes=3-5")
    check.equal((whole.status, whole.body, whole.one("Content-Range")), (200, b"0123456789", None))
    head = artifact("artifact-whole", "ten", "Range: bytes=3-5", method="HEAD")
    check.equal((head.status, head.body, head.one("Content-Length")), (200, b"", "10"))
    past = artifact("artifact", "ten", "Range: bytes=10-")
    check.equal((past.status, past.one("Content-Range")), (416, "bytes */10"))
    empty = artifact("artifact-whole", "none")
    check.equal((empty.status, empty.body, empty.one("Content-Length")), (200, b"", "0"))
    tag = artifact("artifact", "ten").one("ETag")
    check.equal(artifact("artifact", "ten", "If-None-Match: " + tag).status, 304)
    check.equal(artifact("artifact", "ten", 'If-Match: "x"').error(), (412, "precondition_failed"))


@check.test
def names_of_artifacts_stay_names():
    os.makedirs(ARTIFACTS + "d", exist_ok=True)
    open(FOLDER + "/outside", "w").write("outside")
    os.symlink(FOLDER + "/outside", ARTIFACTS + "d/link")
    os.symlink(FOLDER, ARTIFACTS + "d/folder")
    names = ["90%.txt", "r%41.txt", "q?x=1#y", "a b+c.txt", "cr\r\nX-Injected: 1\r\n\r\nbody", 'quote"back\\slash', "tab\t", "   ", "-dash",
             ".dot", "caf\u00e9", "\u8a9e" * 80]
    for name in names:
        open(ARTIFACTS + "d/" + name, "w").write(name)
        encoded = "".join(chr(b) if chr(b).isalnum() and b < 128 else "%%%02X" % b for b in name.encode())
        for place in ("artifact", "artifact-whole"):
            answer = artifact(place, "d/" + encoded)
            check.equal((answer.status, answer.body), (200, open(ARTIFACTS + "d/" + name, "rb").read()), repr(name))
            check.equal(answer.all("X-Injected"), [])
    for name in ("d/link", "d/folder/outside", "d", "d/", "missing", "d/..%2F..%2F..%2Foutside", "../../outside", "%2E%2E/%2E%2E/outside"):
        answer = artifact("artifact", name)
        check.has_not(answer.body, b"outside")
        check.true(answer.error() in ((404, "not_found"), (500, "internal_error")), name)
        check.equal(answer.all("Location"), [])


@check.test
def the_access_log_has_no_query_and_no_secret():
    reset(redirect(HOLD))
    ask("POST", '/runs/"\\%0a?token=QUERYSECRET', SECRETS + ["Referer: https://x/?token=QUERYSECRET", "User-Agent: SECRETSECRET"], b"BODYSECRET")
    ask("GET", "/only-bearer?auth_token=QUERYSECRET", ["Authorization: Bearer " + KEY])
    talk(b"GET https://localhost/absolute?token=QUERYSECRET HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    talk(b"GET /broken?token=QUERYSECRET HTTP/1.1\r\nHo\x00st: x\r\n\r\n")
    talk(b"BRO\x01KEN /x?token=QUERYSECRET\r\n\r\n")
    time.sleep(0.2)
    text = open(FOLDER + "/access.json", encoding="utf-8", errors="strict").read()
    for word in ("SECRET", "token", "?"):
        check.has_not(text, word)
    lines = [json.loads(line) for line in text.splitlines()]
    run = [line for line in lines if line["path"] == '/runs/"\\%0a'][-1]
    check.equal((run["method"], run["status"], run["key"]), ("POST", 201, "abc123"))
    check.equal(run["upstream_status"].count(":"), 2)
    check.equal([line["key"] for line in lines if line["path"] == "/only-bearer"][-1], "abc123")
    check.has([line["path"] for line in lines], "/absolute")
    errors.flush()
    check.equal(open(FOLDER + "/errors").read(), "")


@check.test
def old_tls_is_refused():
    context = ssl.create_default_context(cafile=FOLDER + "/crt")
    warnings.simplefilter("ignore")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    try:
        with context.wrap_socket(socket.create_connection(("127.0.0.1", PORT), timeout=5), server_hostname="localhost"):
            raise AssertionError("TLS 1.1 was accepted")
    except (ssl.SSLError, ConnectionError):
        pass


def finish():
    nginx.send_signal(signal.SIGTERM)
    try:
        nginx.wait(10)
    except subprocess.TimeoutExpired:
        nginx.kill()
    shutil.rmtree(FOLDER, ignore_errors=True)


try:
    reset()
    check.wait_for(until_up, 10, "nginx")
except BaseException:
    finish()
    raise
check.main(finish)
