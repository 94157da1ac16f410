#!/usr/bin/env python3
"""test_identity: tokens (JWT) as credentials, signed stream URLs, and the quotas of streams, with a policy that has them. The policy
of the stack is changed for this test and put back behind it."""
import base64
import hashlib
import hmac
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import check  # noqa: E402
import cordon as c  # noqa: E402

RUNS = c.BASE + "/runs"
ETC = os.path.dirname(os.path.realpath(c.POLICY))
SECRET = b"an-hs256-secret-of-enough-bytes-for-it"
STREAM_SECRET = b"test-secret"
CTL = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), os.environ.get("CORDON_BUILD", "build"),
                   "bin", "cordonctl")


def url64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def openssl(*words, given=b""):
    return subprocess.run(["openssl", *words], input=given, capture_output=True, check=True, timeout=30).stdout


class Files:
    def __init__(self):
        self.key = openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048")
        modulus = openssl("rsa", "-noout", "-modulus", given=self.key).decode().strip().split("=")[1]
        self.jwks = {"keys": [{"kty": "RSA", "kid": "k1", "use": "sig", "n": url64(bytes.fromhex(modulus)), "e": "AQAB"}]}

    @staticmethod
    def write(name, data):
        path = os.path.join(ETC, name)
        with open(path, "wb") as file:
            file.write(data)
        os.chmod(path, 0o640)
        shutil.chown(path, "root", "cordon-web")
        return path


def token(claims=None, header=None, secret=SECRET, key=None, **more):
    head = {"typ": "JWT", "alg": "RS256" if key else "HS256", **(header or {})}
    body = {"sub": "ann", "exp": int(time.time()) + 60, **more} if claims is None else claims
    text = url64(json.dumps(head).encode()) + "." + url64(json.dumps(body).encode())
    if key:
        with open(os.path.join(ETC, "test-rsa.pem"), "wb") as file:
            file.write(key)
        signature = openssl("dgst", "-sha256", "-sign", os.path.join(ETC, "test-rsa.pem"), given=text.encode())
        os.unlink(os.path.join(ETC, "test-rsa.pem"))
    else:
        signature = hmac.new(secret, text.encode(), hashlib.sha256).digest()
    return text + "." + url64(signature)


def bearer(credential):
    return {"Authorization": "Bearer " + credential}


def status(credential, path=RUNS + "?limit=1"):
    return c.request("GET", path, key=None, headers=bearer(credential)).status


def hup(program):
    pid = c.program_pid(program)
    log = os.path.join(os.path.dirname(c.DATA_DIR), "log", program + ".log")
    with open(log) as file:
        before = file.read().count("reload")
    os.kill(pid, signal.SIGHUP)

    def done():
        with open(log) as file:
            return file.read().count("reload") > before

    check.wait_for(done, 10, program + " has read its policy")


def use_policy(more):
    with open(c.POLICY, "w") as file:
        file.write(ORIGINAL + more)
    hup("cordon-fcgi")
    hup("cordon-gate")
    # the old workers end with what they do
    time.sleep(0.5)


FILES = Files()
with open(c.POLICY) as policy_file:
    ORIGINAL = policy_file.read()
AUTH = """
auth:
  jwt:
    secret_file: %s
    jwks_file: %s
    tenant: dev
""" % (Files.write("test-jwt", SECRET + b"\n"), Files.write("test-jwks.json", json.dumps(FILES.jwks).encode()))
STREAMS = """
streams:
  signed_urls: true
  secret_file: %s
""" % Files.write("test-stream", STREAM_SECRET + b"\n")
QUOTAS = """
gate:
  ws_max_per_persona: 2
  ws_max_per_session: 3
"""


@check.test
def without_keys_no_token_is_taken():
    answer = c.request("GET", RUNS, key=None, headers=bearer(token()))
    check.equal((answer.status, answer.json()["error"]["code"], answer.header("WWW-Authenticate")), (401, "unauthorized", "Bearer"))
    use_policy(AUTH + QUOTAS)


@check.test
def a_token_is_its_user():
    for one in (token(sub="tina"), token(sub="tina", header={"kid": "k1"}, key=FILES.key)):
        answer = c.request("POST", RUNS, c.run_body(["echo", "hi"]), key=None, headers=bearer(one))
        check.equal((answer.status, answer.json()["phase"]), (200, "completed"))
        run = answer.json()["id"]
        check.equal((status(token(sub="tina"), f"{RUNS}/{run}"), status(token(sub="tom"), f"{RUNS}/{run}"),
                     status(token(sub="tom", roles=["admin"]), f"{RUNS}/{run}")), (200, 404, 200))
        check.equal(c.request("GET", f"{RUNS}/{run}", key=c.OTHER).status, 404)
        check.equal(c.request("GET", f"{RUNS}/{run}", key=c.ADMIN).status, 200)
    # a claim makes no operator: the second tenant stays out of sight
    other = c.run(["true"], key=c.OTHER)["id"]
    for roles in (["operator"], ["admin", "operator"], "operator admin"):
        check.equal(status(token(roles=roles), f"{RUNS}/{other}"), 404, roles)


@check.test
def bad_tokens_are_refused():
    now = int(time.time())
    for one in (token(secret=b"x" * 40), token({"sub": "a", "exp": now - 1}), token({"sub": "a", "exp": now + 60, "nbf": now + 30}),
                token({"exp": now + 60}), token({"sub": "a"}), token(header={"alg": "none"}), token(header={"alg": "HS512"}),
                token(header={"kid": "k2"}, key=FILES.key), token()[:-3], "a.b.c", "..", token(pad="x" * 9000),
                token(header={"alg": "HS256"}, secret=openssl("rsa", "-pubout", given=FILES.key))):
        answer = c.request("GET", RUNS, key=None, headers=bearer(one))
        check.equal((answer.status, answer.json()["error"]["code"]), (401, "unauthorized"), one[:80])
        check.has_not(answer.body.decode(), one)
    # a token is no API key, and an API key is still one
    check.equal(c.request("GET", RUNS, key=token()).status, 401)
    check.equal(status(c.KEY), 200)


@check.test
def a_run_that_was_accepted_in_time_is_answered():
    """The token expires while its request is held: what counts is when it was accepted."""
    one = token(exp=int(time.time()) + 2)
    answer = c.request("POST", RUNS, c.run_body(["sleep", "3"]), key=None, headers=bearer(one))
    check.equal((answer.status, answer.json().get("phase")), (200, "completed"))
    check.equal(status(one), 401)


@check.test
def a_stream_ends_with_its_token():
    one = token(exp=int(time.time()) + 3)
    run = c.request("POST", RUNS, c.run_body(["sleep", "20"]), key=None, headers={**bearer(token()), "Prefer": "respond-async"}).json()
    for query, headers in (("", bearer(one)), ("auth_token=" + one, {}), ("token=" + one, {})):
        ws = c.WebSocket(c.stream_path(run["id"], query=query), key=None, headers=headers)
        check.equal(ws.frame()["event"], "start")
    while ws.frame() is not None:
        pass
    check.equal(ws.close_code, 4401)
    check.true(0 <= time.time() - json.loads(base64.urlsafe_b64decode(one.split(".")[1] + "=="))["exp"] < 2)
    # a stream that a living token opened is not looked up among the keys
    ws = c.WebSocket(c.stream_path(run["id"]), key=None, headers=bearer(token()))
    time.sleep(2.5)
    c.request("POST", f"{RUNS}/{run['id']}/cancel", key=None, headers=bearer(token()))
    while ws.frame() is not None:
        pass
    check.equal(ws.close_code, 1000)


def is_refused(run_id):
    try:
        return refused(c.stream_path(run_id))
    except AssertionError:
        return False


def refused(*args, **more):
    try:
        c.WebSocket(*args, **more).close()
    except c.Refused as no:
        return no.answer.status, no.answer.json()["error"]["code"], no.answer.json()["error"]["details"]
    raise AssertionError("the handshake was accepted")


@check.test
def streams_of_a_persona_and_a_session_are_limited():
    runs = [c.run(["sleep", "30"], wait=False, persona_id="p" * 200) for _ in range(2)]
    free = c.run(["sleep", "30"], wait=False, persona_id="q")
    open_ones = [c.WebSocket(c.stream_path(run["id"])) for run in runs]
    check.equal(refused(c.stream_path(runs[0]["id"])),
                (429, "connection_quota", {"close_code": 4429, "reason": "persona_connections_quota_exceeded", "limit": 2}))
    # another persona, and the same name in another tenant
    c.WebSocket(c.stream_path(free["id"])).close()
    foreign = c.run(["true"], key=c.OTHER, persona_id="p" * 200)
    c.WebSocket(c.stream_path(foreign["id"]), key=c.OTHER).close()
    open_ones.pop().close()
    check.wait_for(lambda: not is_refused(runs[1]["id"]), 5, "a slot of the persona")
    for run in runs + [free]:
        c.request("POST", f"{RUNS}/{run['id']}/cancel")
    for ws in open_ones:
        ws.close()
    session = c.request("POST", c.BASE + "/sessions", {"base_image": "host"}).json()["id"]
    run = c.run(["sleep", "30"], wait=False, session_id=session, base_image=None)
    open_ones = [c.WebSocket(c.stream_path(run["id"])) for _ in range(3)]
    check.equal(is_refused(run["id"]),
                (429, "connection_quota", {"close_code": 4429, "reason": "session_connections_quota_exceeded", "limit": 3}))
    for ws in open_ones:
        ws.close()
    check.equal(c.request("DELETE", f"{c.BASE}/sessions/{session}").status, 200)


@check.test
def signed_streams():
    use_policy(AUTH + STREAMS)
    run = c.run(["sh", "-c", "echo one"], resume_from_seq=2)
    url = urllib.parse.urlsplit(run["log_stream_url"])
    query = dict(urllib.parse.parse_qsl(url.query))
    wanted = hmac.new(STREAM_SECRET, f"{run['id']}:{query['exp']}".encode(), hashlib.sha256).hexdigest()
    check.equal((query["token"], query["from_seq"], url.scheme), (wanted, "2", "wss"))
    check.true(55 <= int(query["exp"]) - time.time() <= 61, query)
    path = url.path + "?" + url.query
    ws = c.WebSocket(path)
    check.equal(ws.frame()["seq"], 2)
    ws.close()
    # GET and the list show fresh ones
    for shown in (c.get_run(run["id"]), c.request("GET", RUNS + "?limit=1").json()["items"][0]):
        check.has(shown["log_stream_url"], "token=")
    denied = (403, "forbidden", {"close_code": 1008})
    exp = int(query["exp"])
    late = int(time.time()) - 1
    old = hmac.new(STREAM_SECRET, f"{run['id']}:{late}".encode(), hashlib.sha256).hexdigest()
    for bad in ("", f"token={wanted}", f"exp={exp}", f"token={wanted}&exp={exp + 1}", f"token={'0' * 64}&exp={exp}",
                f"token={old}&exp={late}"):
        check.equal(refused(c.stream_path(run["id"], query=bad)), denied, bad)
    # a signature is no credential, and token= is no longer one
    check.equal(refused(path, key=None), (401, "unauthorized", {"close_code": 4401}))
    check.equal(refused(c.stream_path(run["id"], query="token=" + c.KEY), key=None), (401, "unauthorized", {"close_code": 4401}))
    c.WebSocket(path + "&auth_token=" + c.KEY, key=None).close()
    # the owner is judged first
    check.equal(refused(path, key=c.OTHER)[0], 404)
    done = subprocess.run([CTL, "logs", run["id"]], capture_output=True, text=True, timeout=30,
                          env={**os.environ, "CORDON_URL": c.URL, "CORDON_API_KEY": c.KEY, "CORDON_CA": c.CA})
    check.equal((done.returncode, done.stdout), (0, "one\n"), done.stderr)


@check.test
def a_bad_secret_file_keeps_what_was_there():
    Files.write("test-stream", b"short")
    hup("cordon-fcgi")
    run = c.run(["true"])
    url = urllib.parse.urlsplit(run["log_stream_url"])
    c.WebSocket(url.path + "?" + url.query).close()
    Files.write("test-stream", STREAM_SECRET)


@check.test
def no_secret_is_in_a_log():
    logs = os.path.join(os.path.dirname(c.DATA_DIR), "log")
    for name in os.listdir(logs):
        with open(os.path.join(logs, name), errors="replace") as file:
            text = file.read()
        for word in ("eyJ0eXAi", SECRET.decode(), STREAM_SECRET.decode() + "\n"):
            check.true(word not in text, (name, word))


def restore():
    use_policy("")
    for name in ("test-jwt", "test-jwks.json", "test-stream"):
        os.unlink(os.path.join(ETC, name))


check.main(restore)
