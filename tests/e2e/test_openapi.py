#!/usr/bin/env python3
"""test_openapi: what is answered is what docs/openapi/face1.yaml says: every answer that the suites of tests/api recorded, and those of
the running stack. Status, media type, headers and body are checked, and of requests that were taken the body."""
import copy
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import check  # noqa: E402
import cordon as c  # noqa: E402
from jsonschema import Draft202012Validator  # noqa: E402

BUILD = os.environ.get("CORDON_BUILD", "build")
ANSWERS = os.path.join(BUILD, "tests", "log", "answers.jsonl")
SUITES = os.path.join(check.TOP, "tests", "suites", "runs")
EARLY = (408, 411, 412, 413, 414, 421, 431, 501, 505)
# what is there only sometimes
MAY_BE_ABSENT = ("Retry-After", "Upgrade")
NOBODY = "00000000-0000-7000-8000-000000000000"

served = c.request("GET", c.BASE + "/openapi.json", key=None)
document = served.json()
codes = {}
for line in subprocess.run([f"{BUILD}/tests/tools/errors", "list"], check=True, capture_output=True, text=True).stdout.splitlines():
    codes[line.split()[1]] = int(line.split()[0])
_validators = {}


class Wrong(Exception):
    pass


def resolve(value):
    while "$ref" in value:
        found = document
        for name in value["$ref"][2:].split("/"):
            found = found[name]
        value = found
    return value


def validate(value, schema, where):
    key = json.dumps(schema, sort_keys=True)
    if key not in _validators:
        # references are answered from the schema itself
        _validators[key] = Draft202012Validator({"allOf": [schema], "components": document["components"]})
    problems = sorted(_validators[key].iter_errors(value), key=lambda e: len(e.path))
    if problems:
        first = problems[0]
        raise Wrong("%s: %s: %s" % (where, "/".join(str(p) for p in first.absolute_path) or "body", first.message[:600]))


def _pattern(template):
    text = re.escape(template).replace(r"\{path\}", ".+")
    return re.compile("^" + re.sub(r"\\\{[a-z]+\\\}", "[^/]+", text) + "$")


# the paths with the fewest parameters first: artifacts.tar.gz is no artifact
_paths = [(_pattern(template), template) for template in sorted(document["paths"], key=lambda t: t.count("{"))]


def find(method, path):
    """The template of a path and its operation, each None when there is none."""
    inner = path[len(c.BASE):]
    for pattern, template in _paths:
        if pattern.match(inner):
            return template, document["paths"][template].get(method.lower())
    return None, None


def response_of(operation, status):
    responses = operation["responses"]
    if str(status) in responses:
        return resolve(responses[str(status)])
    if f"{status // 100}XX" in responses:
        return resolve(responses[f"{status // 100}XX"])
    if status in EARLY and "default" in responses:
        return resolve(responses["default"])
    return None


def described(method, path, status, where):
    template, operation = find(method, path)
    if template is None:
        if status != 404 and status not in EARLY:
            raise Wrong(f"{where}: {status}, and there is no such path")
        return resolve(document["components"]["responses"]["NoRoute" if status == 404 else "Early"])
    if operation is None:
        if status != 405:
            raise Wrong(f"{where}: {status}, and the path has no {method}")
        return resolve(document["components"]["responses"]["NoMethod"])
    found = response_of(operation, status)
    if found is None:
        raise Wrong(f"{where}: status {status} is not described for {method} {template}")
    return found


def schema_of(response, media_type, where):
    content = response.get("content", {})
    bare = (media_type or "").split(";")[0].strip().lower()
    for name in (bare, "*/*"):
        if name in content and bare:
            return content[name]["schema"]
    raise Wrong(f"{where}: media type {media_type} is not described, but {list(content)}")


def check_answer(method, path, status, media_type, text, where):
    """text: the body, None or empty without one."""
    response = described(method, path, status, where)
    if method == "HEAD":
        return
    if not response.get("content"):
        if text:
            raise Wrong(f"{where}: {status} has a body")
        return
    schema = schema_of(response, media_type, where)
    if not media_type.startswith("application/json"):
        return
    if "*/*" in response["content"]:
        return  # an artifact of this type
    body = json.loads(text)
    validate(body, schema, where)
    if status >= 400 and codes.get(body["error"]["code"]) != status:
        raise Wrong(f"{where}: code {body['error']['code']} does not go with {status}")


def check_request(method, path, text, where):
    _, operation = find(method, path)
    content = resolve(operation.get("requestBody", {})).get("content", {}) if operation else {}
    if text and "application/json" in content:
        validate(json.loads(text), content["application/json"]["schema"], where)


def cases():
    """The cases of the suites whose path is one of this face."""
    names = []
    for name in os.listdir(SUITES):
        with open(os.path.join(SUITES, name, "request"), encoding="utf-8", errors="replace") as file:
            if file.readline().split(" ")[1].startswith(c.BASE + "/"):
                names.append(name)
    return sorted(names)


def recorded():
    """An answer for each case: what make test recorded before this test, or, when this test runs alone, what is recorded now."""
    program = f"{BUILD}/tests/api/test_suites"
    if not os.path.exists(ANSWERS) or os.path.getmtime(ANSWERS) < os.path.getmtime(program):
        subprocess.run([program], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300)
    with open(ANSWERS, encoding="utf-8") as file:
        answers = [json.loads(line) for line in file]
    check.equal(sorted(a["case"] for a in answers), cases())
    return answers


# --- the document --------------------------------------------------------------------------------------------------------------


@check.test
def it_is_served_without_a_key():
    check.equal(served.status, 200)
    check.equal(served.header("Content-Type"), "application/json")
    etag = served.header("ETag")
    again = c.request("GET", c.BASE + "/openapi.json", key=None, headers={"If-None-Match": etag})
    check.equal((again.status, again.body, again.header("ETag")), (304, b"", etag))
    head = c.request("HEAD", c.BASE + "/openapi.json", key=None)
    check.equal((head.status, head.body, head.header("ETag")), (200, b"", etag))
    other = c.request("GET", c.BASE + "/openapi.json", key=None, headers={"If-None-Match": '"x"'})
    check.equal((other.status, other.body), (200, served.body))


@check.test
def it_is_the_file():
    text = subprocess.run([f"{BUILD}/tests/tools/openapi", "json", os.path.join(check.TOP, "docs", "openapi", "face1.yaml")], check=True,
                          capture_output=True).stdout
    check.equal(json.loads(text), document)


@check.test
def the_tool_refuses_what_is_no_document():
    for text, word in (("a: 1\na: 2\n", "twice"), ("a: !x 1\n", "tags"), ("a: [1\n", "did not find"), ("", "empty"), ("? [a]\n: b\n", "no text"),
                       ("a: " + "[" * 40 + "]" * 40 + "\n", "deeply"), ("a: 99999999999999999999\n", "number")):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(text)
            file.flush()
            got = subprocess.run([f"{BUILD}/tests/tools/openapi", "json", file.name], capture_output=True, text=True)
        check.equal((got.returncode, got.stdout), (1, ""), text)
        check.has(got.stderr, word, text)


@check.test
def its_schemas_are_schemas():
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


@check.test
def its_codes_are_those_of_the_table():
    described_codes = {}
    for name, schema in document["components"]["schemas"].items():
        status = re.fullmatch(r"Error(\d{3})", name)
        if status:
            for code in schema["allOf"][1]["properties"]["error"]["properties"]["code"]["enum"]:
                described_codes[code] = int(status.group(1))
    check.equal(described_codes, codes)


# --- what the suites recorded --------------------------------------------------------------------------------------------------


@check.test
def recorded_answers_are_described():
    wrong = []
    count = redirects = 0
    for a in recorded():
        where = f"{a['case']}: {a['method']} {a['path']}"
        try:
            if a["redirect"]:
                redirects += 1
                if find(a["method"], a["path"])[1] is None:
                    raise Wrong(f"{where}: is taken, and not described")
            else:
                check_answer(a["method"], a["path"], a["status"], a["type"], a["answer"], where)
                count += 1
            if a["status"] < 400:
                check_request(a["method"], a["path"], a["body"], where)
            if a["status"] == 405 and not a["allow"]:
                raise Wrong(f"{where}: 405 without Allow")
        except Wrong as problem:
            wrong.append(str(problem))
    check.true(count > 300 and redirects > 20, f"{count} answers and {redirects} redirects were recorded")
    check.equal(wrong, [], f"{len(wrong)} of {count + redirects} answers")


def _objects(value):
    if isinstance(value, dict):
        yield value
        for one in value.values():
            yield from _objects(one)
    elif isinstance(value, list):
        for one in value[:2]:
            yield from _objects(one)


# objects whose names are the clients', and the document itself
MAPS = ("env", "labels", "counts")


def _is_map(body, at):
    return any(at is one.get(name) for one in _objects(body) for name in MAPS)


@check.test
def answers_with_other_members_are_refused():
    """Of each operation and status one answer, with one member more in each of its objects, and with each member left out."""
    done = set()
    for a in recorded():
        template, _ = find(a["method"], a["path"])
        kind = (template, a["method"], a["status"])
        if a["redirect"] or a["method"] == "HEAD" or not a["answer"] or a["type"] != "application/json" or kind in done \
                or template in ("/openapi.json", "/runs/{id}/artifacts/{path}"):
            continue
        done.add(kind)
        where = " ".join(map(str, kind))
        body = json.loads(a["answer"])
        for index, one in enumerate(_objects(body)):
            if _is_map(body, one) or (a["status"] >= 400 and index > 1):
                continue
            changed = copy.deepcopy(body)
            list(_objects(changed))[index]["surprise"] = 1
            try:
                check_answer(a["method"], a["path"], a["status"], a["type"], json.dumps(changed), where)
            except Wrong:
                continue
            raise AssertionError(f"{where}: one more member in {json.dumps(one)[:300]} is taken")
        for name in body:
            changed = {key: value for key, value in body.items() if key != name}
            try:
                check_answer(a["method"], a["path"], a["status"], a["type"], json.dumps(changed), where)
            except (Wrong, KeyError):
                continue
            raise AssertionError(f"{where}: taken without {name}")
    check.true(len(done) > 40, f"{len(done)} kinds of answers")


@check.test
def what_is_not_described_fails():
    good = json.dumps({"error": {"code": "run_not_found", "message": "m", "details": {}}})
    path = c.BASE + "/runs/x"
    check_answer("GET", path, 404, "application/json", good, "good")
    for method, where, status, media_type, text in (
            ("GET", path, 418, "application/json", good), ("GET", path, 404, "text/html", good), ("GET", path, 404, None, good),
            ("GET", path, 200, "application/json", good), ("PUT", path, 404, "application/json", good),
            ("GET", c.BASE + "/no/such", 200, "application/json", "{}"), ("GET", c.BASE + "/no/such", 404, "application/json", good),
            ("GET", path, 404, "application/json", good.replace("run_not_found", "session_not_found")),
            ("GET", path, 404, "application/json", good.replace("run_not_found", "queue_full")),
            ("GET", path, 404, "application/json", good.replace("{}", '{"path": "/"}'))):
        try:
            check_answer(method, where, status, media_type, text, "bad")
        except Wrong:
            continue
        raise AssertionError(f"{method} {where} {status} {media_type} {text} was taken")


# --- the running stack ---------------------------------------------------------------------------------------------------------


def live(method, path, body=None, status=200, **more):
    """One request, its answer validated; the parsed body, or the answer when it is no JSON."""
    answer = c.request(method, c.BASE + path, body, **more)
    where = f"{method} {path} {answer.status}"
    check.equal(answer.status, status, f"{where}: {answer.body[:300]}")
    bare = path.split("?")[0]
    check_answer(method, c.BASE + bare, answer.status, answer.header("Content-Type"), answer.body, where)
    for name in described(method, c.BASE + bare, answer.status, where).get("headers", {}):
        check.true(answer.header(name) is not None or name in MAY_BE_ABSENT, f"{where}: no {name}")
    if answer.status < 400 and isinstance(body, dict):
        check_request(method, c.BASE + bare, json.dumps(body), where)
    if answer.status < 400 and method != "HEAD" and answer.header("Content-Type") == "application/json" and "/artifacts/" not in path:
        return answer.json()
    return answer


def form(name, data):
    head = f'--cut\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\n\r\n'.encode()
    return head + data + b"\r\n--cut--\r\n", {"Content-Type": "multipart/form-data; boundary=cut"}


@check.test
def a_session_from_its_beginning_to_its_end():
    session = live("POST", "/sessions", {"base_image": "host", "env": {"A": "b"}, "labels": {"l": "m"}, "workspace_id": "openapi"})["id"]
    live("GET", f"/sessions/{session}")
    live("HEAD", f"/sessions/{session}")
    live("GET", "/sessions?limit=2")
    body, headers = form("one.txt", b"one\n")
    live("POST", f"/sessions/{session}/files", body, headers=headers)
    live("POST", f"/sessions/{session}/files", b"x", headers={"Content-Type": "text/plain"}, status=415)
    body, headers = form("bad.tar.gz", b"no archive")
    live("POST", f"/sessions/{session}/files", body, headers=headers, status=422)
    live("POST", f"/sessions/{NOBODY}/files", body, headers=headers, status=404)
    run = live("POST", "/runs", {"session_id": session, "command": ["sh", "-c", "cat one.txt; echo x > made; exit 3"], "capture_patterns": ["*"]})
    check.equal((run["phase"], run["exit_code"]), ("failed", 3))
    snapshot = live("POST", f"/sessions/{session}/snapshot")["snapshot_id"]
    live("GET", f"/sessions/{session}/snapshots")
    live("POST", f"/sessions/{session}/restore", {"snapshot_id": snapshot})
    live("POST", f"/sessions/{session}/restore", {"snapshot_id": "snap-000000000000"}, status=404)
    copy_id = live("POST", f"/sessions/{session}/clone", {"new_session_name": "copy"})["session_id"]
    check.equal(live("GET", f"/sessions/{copy_id}")["name"], "copy")
    live("DELETE", f"/sessions/{session}/snapshots/{snapshot}")
    live("DELETE", f"/sessions/{session}/snapshots/{snapshot}")
    waiting = live("POST", "/runs", {"session_id": session, "command": ["sleep", "60"]}, headers={"Prefer": "respond-async"})["id"]
    live("POST", f"/sessions/{session}/snapshot", status=409)
    live("DELETE", f"/sessions/{session}")
    check.equal(live("GET", f"/runs/{waiting}")["phase"], "killed")
    live("DELETE", f"/sessions/{copy_id}")
    live("GET", f"/sessions/{session}", status=404)


@check.test
def a_run_and_its_files():
    run = live("POST", "/runs", c.run_body(["sh", "-c", "echo out; echo err >&2; printf '\\377'; printf 0123456789 > ten; : > none; echo '{}' > a.json"],
                                           capture_patterns=["*"], resources={"cpu": 1, "memory_mb": 128}, workspace_id="openapi"))
    path = f"/runs/{run['id']}"
    live("GET", path)
    live("HEAD", path)
    live("GET", path + "/trace")
    live("GET", "/runs?limit=3")
    check.equal([item["path"] for item in live("GET", path + "/artifacts")["items"]], ["a.json", "none", "ten"])
    check.equal(live("GET", path + "/artifacts/ten").body, b"0123456789")
    check.equal(live("GET", path + "/artifacts/ten", headers={"Range": "bytes=0-4"}, status=206).body, b"01234")
    live("GET", path + "/artifacts/ten", headers={"Range": "bytes=10-"}, status=416)
    live("GET", path + "/artifacts/none")
    etag = live("GET", path + "/artifacts/a.json").header("ETag")
    live("GET", path + "/artifacts/a.json", headers={"If-None-Match": etag}, status=304)
    live("HEAD", path + "/artifacts/ten")
    live("GET", path + "/artifacts/no", status=404)
    live("GET", path + "/artifacts/a/../ten", status=400)
    live("GET", path + "/artifacts.tar.gz")
    live("HEAD", path + "/artifacts.tar.gz")
    live("POST", path + "/cancel")
    frames, code = c.follow(run["id"])
    check.equal(code, 1000)
    check.true({"stdout", "stderr"} <= {frame["type"] for frame in frames})
    for frame in frames:
        validate(frame, {"$ref": "#/components/schemas/Frame"}, json.dumps(frame))
    check.true({"utf8", "base64"} <= {frame.get("encoding") for frame in frames})


@check.test
def runs_that_end_otherwise():
    live("POST", "/runs", c.run_body(["sleep", "20"], timeout_sec=1))
    live("POST", "/runs", c.run_body(["sh", "-c", "kill -9 $$"]))
    live("POST", "/runs", c.run_body(["sh", "-c", "head -c 300 /dev/zero > a"], capture_patterns=["a"], trust_level="untrusted"))
    run = live("POST", "/runs", c.run_body(["sleep", "60"]), headers={"Prefer": "respond-async"})["id"]
    c.wait_phase(run, ("running",))
    live("GET", f"/runs/{run}")
    live("POST", f"/runs/{run}/cancel")
    frames, _ = c.follow(run)
    for frame in frames:
        validate(frame, {"$ref": "#/components/schemas/Frame"}, json.dumps(frame))
    check.equal(frames[-1]["data"].get("canceled"), True)
    key = {"Idempotency-Key": "openapi-" + run}
    live("POST", "/runs", c.run_body(["true"]), headers=key)
    live("POST", "/runs", c.run_body(["false"]), headers=key, status=409)


@check.test
def an_interactive_run():
    run = live("POST", "/runs", c.run_body(["sh", "-c", "read a; echo got $a"], spec_version="1.1", interactive=True, stdin_max_bytes=4))
    check.equal(run["phase"], "running")
    ws = c.WebSocket(c.stream_path(run["id"]))
    message = {"type": "stdin", "encoding": "utf8", "data": "abc\nmore"}
    validate(message, {"$ref": "#/components/schemas/StdinFrame"}, "stdin")
    ws.send(json.dumps(message))
    seen = []
    frame = ws.frame()
    while frame is not None:
        validate(frame, {"$ref": "#/components/schemas/Frame"}, json.dumps(frame))
        seen.append(frame.get("reason"))
        frame = ws.frame()
    check.has(seen, "stdin_cap")


@check.test
def refused_streams():
    run = c.run(["true"])["id"]
    for key, path, status in ((c.KEY, f"/runs/{run}/stream", 426), (None, f"/runs/{run}/stream", 401), (c.OTHER, f"/runs/{run}/stream", 404)):
        live("GET", path, key=key, status=status)


@check.test
def discovery_and_health():
    live("GET", "/runtimes")
    live("HEAD", "/runtimes")
    live("GET", "/health")
    live("GET", "/health/public", key=None)
    live("GET", "/health", key=None, status=401)
    live("GET", "/workspaces/openapi/diagnostics?limit=3")
    live("GET", "/workspaces/openapi/diagnostics?source_label=x", status=400)


@check.test
def administration():
    run = live("GET", "/admin/runs?limit=5", key=c.ADMIN)["items"][0]["id"]
    live("GET", f"/admin/runs/{run}", key=c.ADMIN)
    for path in ("/admin/idempotency", "/admin/usage", "/admin/runtime-diagnostics", "/admin/operator-status", "/admin/macos-diagnostics"):
        live("GET", path, key=c.ADMIN)
        live("GET", path, status=403)
    live("GET", "/admin/macos-image-store/cleanup-plan", key=c.ADMIN)
    live("POST", "/admin/macos-image-store/cleanup", {"dry_run": True}, key=c.ADMIN)
    live("POST", "/admin/macos-reconciliation/repair", {"dry_run": True}, key=c.ADMIN)
    live("POST", "/admin/macos-reconciliation/repair", {"dry_run": False}, key=c.ADMIN, status=503)


@check.test
def what_the_web_server_refuses():
    live("GET", "/no/such", status=404)
    live("DELETE", "/runs", status=405)
    live("POST", "/runs", b" " * (9 << 20), headers={"Content-Type": "application/json"}, status=413)
    live("GET", "/runs?cursor=" + "x" * 40000, status=414)
    live("GET", "/runs/%00", status=400)
    live("GET", "/runs", headers={"X-Long": "x" * 40000}, status=431)
    live("GET", "/runs?phase=" + urllib.parse.quote("no phase"), status=422)


check.main()
