#!/usr/bin/env python3
"""test_uploads: POST /sessions/{id}/files: forms, archives, traps, ends of room, aborts, crashes (B17, B24)."""
import concurrent.futures
import glob
import io
import os
import signal
import socket
import ssl
import subprocess
import sys
import tarfile
import threading
import time
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import check  # noqa: E402
import cordon as c  # noqa: E402

SESSIONS = c.BASE + "/sessions"
MIB = 1 << 20
BOUNDARY = "----cordon0123456789"


def make(**body):
    answer = c.request("POST", SESSIONS, {"base_image": "host", **body})
    check.equal(answer.status, 200, answer.body)
    return answer.json()["id"]


def drop(session):
    check.equal(c.request("DELETE", f"{SESSIONS}/{session}").status, 200)
    check.equal(glob.glob(f"{c.DATA_DIR}/uploads/*/*"), [])


def form(*parts):
    """(name, bytes), or (None, bytes) for a part without a file name."""
    text = b""
    for name, data in parts:
        head = b'Content-Disposition: form-data; name="files"'
        if name is not None:
            head += b'; filename="' + (name if isinstance(name, bytes) else name.encode()) + b'"'
        text += b"--" + BOUNDARY.encode() + b"\r\n" + head + b"\r\nContent-Type: application/octet-stream\r\n\r\n" + data + b"\r\n"
    return text + b"--" + BOUNDARY.encode() + b"--\r\n"


def upload(session, *parts, key=c.KEY, body=None, chunks=None, content_type=None):
    return c.request("POST", f"{SESSIONS}/{session}/files", form(*parts) if body is None and chunks is None else body, key=key, chunks=chunks,
                     headers={"Content-Type": content_type or "multipart/form-data; boundary=" + BOUNDARY})


def good(answer, files, size=None, skipped=0):
    check.equal(answer.status, 200, answer.body)
    got = answer.json()
    check.equal((got["file_count"], got["skipped"]), (files, skipped), got)
    if size is not None:
        check.equal(got["bytes_received"], size)
    return got


def refused(answer, status, code):
    check.equal(answer.status, status, answer.body)
    check.equal((answer.status, answer.json()["error"]["code"]), (status, code), answer.body)
    return answer.json()["error"]["details"]


def says(session, script, **more):
    made = c.request("POST", c.BASE + "/runs", {"session_id": session, "command": ["sh", "-c", script], **more})
    check.equal((made.status, made.json().get("phase")), (200, "completed"), made.body)
    return c.output(c.follow(made.json()["id"])[0], "stdout")


DIR, LINK, HARD, FIFO, CHAR, BLOCK = ([kind] for kind in (tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE,
                                                          tarfile.BLKTYPE))


def tar(entries, mode="w"):
    """entries: (name, bytes, mode) or (name, [kind], link)"""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode, format=tarfile.PAX_FORMAT) as archive:
        for name, what, *more in entries:
            info = tarfile.TarInfo(name)
            info.mtime = 1580000000
            if isinstance(what, bytes):
                info.size, info.mode = len(what), more[0] if more else 0o644
                archive.addfile(info, io.BytesIO(what))
            else:
                info.type = what[0]
                info.linkname = more[0] if more else ""
                info.mode = 0o755
                archive.addfile(info)
    return file.getvalue()


def zipped(entries):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries:
            archive.writestr(name, data)
    return file.getvalue()


# --- forms -----------------------------------------------------------------------------------------------


@check.test
def files_by_their_names():
    session = make()
    names = ["a.txt", "dir/sub/b.txt", "a;b.txt", "90%.txt", "r%41.txt", "q?x=1#y", "a b+c", "caf\u00e9", "cafe\u0301", ".hidden", "-n", "con",
             "x" * 255, "...", "a..b", "tab\there"]
    good(upload(session, *[(n, n.encode()) for n in names]), len(names), sum(len(n.encode()) for n in names))
    listed = says(session, "find . -type f -printf '%P\\0' | LC_ALL=C sort -z").rstrip(b"\0").split(b"\0")
    check.equal(listed, sorted(n.encode() for n in names))
    check.equal(says(session, "cat 'a;b.txt' 'r%41.txt'; stat -c '%a %u' a.txt"), b"a;b.txtr%41.txt644 1000\n")
    # bytes that are no UTF-8, and quotes
    good(upload(session, (b"\xff\xfe", b"1"), (b'q\\"\\\\', b"2")), 2, 2)
    check.equal(says(session, "cat \"$(printf '\\377\\376')\" 'q\"\\'"), b"12")
    # no name at all
    good(upload(session, (None, b"plain"), ("", b"empty")), 2)
    check.equal(says(session, "cat file_0 file_1"), b"plainempty")
    # an empty file, and a file again
    good(upload(session, ("a.txt", b"")), 1, 0)
    check.equal(says(session, "stat -c %s a.txt"), b"0\n")
    drop(session)


@check.test
def names_that_lead_out_are_left_out():
    session = make()
    says(session, "ln -s / root; mkdir real; ln -s real link; echo keep > real/f")
    good(upload(session, ("../x", b"1"), ("/etc/passwd", b"2"), ("a/../b", b"3"), ("root/tmp/x", b"4"), ("link/f", b"5"), (".cordon-upload/x", b"6"),
                ("./ok", b"7"), ("d//e", b"8"), ("x" * 256, b"9")), 2, 2, skipped=7)
    check.equal(says(session, "cat real/f ok d/e; ls -A | tr '\\n' ' '"), b"keep\n78d link ok real root ")
    drop(session)


@check.test
def forms_that_are_none():
    session = make()
    for content_type in ("application/json", "multipart/mixed; boundary=x", "text/plain"):
        refused(upload(session, body=b"{}", content_type=content_type), 415, "unsupported_media_type")
    refused(upload(session, body=b"", content_type="multipart/form-data"), 415, "unsupported_media_type")
    for body in (b"", b"text", form(("f", b"x"))[:-10], b"--" + BOUNDARY.encode() + b"\r\n\r\nx\r\n--" + BOUNDARY.encode() + b"--"):
        details = refused(upload(session, body=body), 422, "validation_error")
        check.equal(details["fields"][0]["field"], "files")
    other = form(("f", b"x")).replace(b'name="files"', b'name="other"')
    details = refused(upload(session, body=other), 422, "validation_error")
    check.has(details["fields"][0]["message"], "no part named files")
    refused(upload(session, ("n" * 1025, b"")), 422, "validation_error")
    refused(upload(session, *[(str(i), b"") for i in range(1001)]), 413, "body_too_large")
    good(upload(session, *[(str(i), b"x") for i in range(1000)]), 1000, 1000)
    check.equal(says(session, "ls | wc -l"), b"1000\n")
    drop(session)


@check.test
def who_may_upload():
    session = make()
    refused(upload(session, ("f", b"x"), key=c.OTHER), 404, "session_not_found")
    refused(upload("01900000-0000-7000-8000-000000000000", ("f", b"x" * MIB)), 404, "session_not_found")
    refused(upload("nothing", ("f", b"x")), 404, "session_not_found")
    refused(upload(session, ("f", b"x" * MIB), key="wrong"), 401, "unauthorized")
    answer = c.request("GET", f"{SESSIONS}/{session}/files")
    check.equal((answer.status, answer.header("Allow")), (405, "POST"))
    drop(session)
    refused(upload(session, ("f", b"x")), 404, "session_not_found")
    check.equal(c.request("GET", "/internal/admit/upload/" + session).status, 404)
    check.equal(c.request("POST", "/internal/upload/" + session, b"x").status, 404)


# --- sizes ------------------------------------------------------------------------------------------------


@check.test
def b17_exactly_and_one_byte_more():
    session = make()
    most = os.urandom(MIB) * 64
    good(upload(session, ("big", most)), 1, 64 * MIB)
    check.equal(says(session, "md5sum < big"), __import__("hashlib").md5(most).hexdigest().encode() + b"  -\n")
    refused(upload(session, ("big", most + b"x")), 413, "body_too_large")
    refused(upload(session, ("a", most[: 32 * MIB]), ("b", most[: 32 * MIB + 1])), 413, "body_too_large")
    check.equal(says(session, "stat -c %s big; ls"), b"67108864\nbig\n")
    drop(session)


@check.test
def b17_a_gigabyte_is_refused_at_once():
    """Before the body is swallowed: by its length, and chunked as soon as it is too much."""
    session = make()
    context = ssl.create_default_context(cafile=c.CA)
    head = (f"POST {SESSIONS}/{session}/files HTTP/1.1\r\nHost: {c.HOST}\r\nX-API-KEY: {c.KEY}\r\n"
            f"Content-Type: multipart/form-data; boundary={BOUNDARY}\r\n")
    with context.wrap_socket(socket.create_connection((c.HOST, c.PORT), timeout=20), server_hostname=c.HOST) as sock:
        sock.sendall((head + "Content-Length: 1073741824\r\nExpect: 100-continue\r\n\r\n").encode())
        check.has(sock.recv(65536), b" 413 ")
    sent = 0
    with context.wrap_socket(socket.create_connection((c.HOST, c.PORT), timeout=20), server_hostname=c.HOST) as sock:
        sock.sendall((head + "Transfer-Encoding: chunked\r\n\r\n").encode())
        piece = b"100000\r\n" + b"x" * MIB + b"\r\n"
        answer = b""
        while sent < 1024 and b" 413 " not in answer:
            sock.sendall(piece)
            sent += 1
            sock.setblocking(False)
            try:
                answer += sock.recv(65536)
            except ssl.SSLWantReadError:
                pass
            sock.setblocking(True)
    check.true(sent < 200, sent)
    good(upload(session, ("f", b"x")), 1)
    drop(session)


@check.test
def chunked_is_the_same():
    session = make()
    body = form(("f", b"x" * 100000))
    good(upload(session, chunks=[body[i:i + 7777] for i in range(0, len(body), 7777)]), 1, 100000)
    drop(session)


@check.test
def b17_the_workspace_is_full():
    session = make(trust_level="untrusted")  # 64 MiB
    says(session, "head -c 60M /dev/zero > ballast; echo old > f")
    details = refused(upload(session, ("first", b"1"), ("f", b"x" * 16 * MIB)), 413, "workspace_cap_exceeded")
    check.equal(details["part"], "f")
    # what fitted stays, what did not left nothing, the old one is there
    check.equal(says(session, "cat first f; ls -A | tr '\\n' ' '"), b"1old\nballast f first ")
    details = refused(upload(session, ("many.tar", tar([(f"m/{i}", b"x" * 65536) for i in range(200)]))), 413, "workspace_cap_exceeded")
    check.equal(says(session, "ls -A | tr '\\n' ' '"), b"ballast f first ")
    says(session, "rm ballast")
    good(upload(session, ("f", b"x" * 16 * MIB)), 1)
    drop(session)


@check.test
def b17_inodes_end():
    session = make(trust_level="untrusted")
    says(session, "mkdir d; cd d; seq 99000 | xargs touch", timeout_sec=50)
    refused(upload(session, ("many.tar", tar([(f"m/{i}", b"") for i in range(2000)]))), 413, "workspace_cap_exceeded")
    check.equal(says(session, "ls -A"), b"d\n")
    drop(session)


@check.test
def b17_a_client_leaves():
    session = make()
    good(upload(session, ("f", b"old")), 1)
    body = form(("f", b"x" * 8 * MIB))
    head = (f"POST {SESSIONS}/{session}/files HTTP/1.1\r\nHost: {c.HOST}\r\nX-API-KEY: {c.KEY}\r\n"
            f"Content-Type: multipart/form-data; boundary={BOUNDARY}\r\nContent-Length: {len(body)}\r\n\r\n").encode()
    for part in (0, len(body) // 2, len(body) - 3):
        with ssl.create_default_context(cafile=c.CA).wrap_socket(socket.create_connection((c.HOST, c.PORT)), server_hostname=c.HOST) as sock:
            sock.sendall(head + body[:part])
    time.sleep(0.5)
    check.equal(says(session, "cat f; ls -A"), b"oldf\n")
    drop(session)


@check.test
def refused_behind_the_gate_leaves_nothing():
    """The session goes while the body comes: the gate has the files then, and nobody wants them."""
    session = make()
    body = form(("f", b"x" * 8 * MIB))
    with ssl.create_default_context(cafile=c.CA).wrap_socket(socket.create_connection((c.HOST, c.PORT)), server_hostname=c.HOST) as sock:
        sock.sendall((f"POST {SESSIONS}/{session}/files HTTP/1.1\r\nHost: {c.HOST}\r\nX-API-KEY: {c.KEY}\r\nConnection: close\r\n"
                      f"Content-Type: multipart/form-data; boundary={BOUNDARY}\r\nContent-Length: {len(body)}\r\n\r\n").encode() + body[:1000])
        time.sleep(0.3)
        drop(session)
        sock.sendall(body[1000:])
        check.has(sock.recv(4096), b" 404 ")
    check.wait_for(lambda: not glob.glob(f"{c.DATA_DIR}/uploads/*/*"), 5, "the staged files to go")


@check.test
def what_nobody_takes_is_removed():
    """A worker or the database dies between the gate's last byte and the operation: the runner looks, and doctor knows the folder."""
    import pwd
    old, fresh = "01900000-0000-7000-8000-0000000000ac", "01900000-0000-7000-8000-0000000000ad"
    folders = [f"{c.DATA_DIR}/uploads/{name[-2:]}/{name}" for name in (old, fresh)]
    for folder in folders:
        os.makedirs(folder)
        with open(folder + "/0", "wb") as file:
            file.write(b"x")
        for path in (os.path.dirname(folder), folder, folder + "/0"):
            os.chown(path, pwd.getpwnam("cordon-gate").pw_uid, os.stat(f"{c.DATA_DIR}/uploads").st_gid)
            os.chmod(path, 0o2770 if os.path.isdir(path) else 0o660)
    os.utime(folders[0], (time.time() - 300,) * 2)
    os.kill(c.program_pid("cordon-runner"), signal.SIGTERM)
    check.wait_for(lambda: not os.path.exists(folders[0]), 20, "the old one to go")
    check.true(os.path.exists(folders[1]))
    os.utime(folders[1], (time.time() - 7200,) * 2)
    said = subprocess.run([os.path.join(check.TOP, os.environ.get("CORDON_BUILD", "build"), "bin", "cordonctl"), "--policy", c.POLICY, "doctor",
                           "--leaks"], capture_output=True, text=True, timeout=60)
    check.equal(said.returncode, 2)
    check.has(said.stdout, fresh)
    subprocess.run(["rm", "-r", folders[1]], check=True)


@check.test
def without_a_body():
    session = make()
    begin = time.monotonic()
    for lines, status in (([], 415), (["Content-Length: 0"], 415), ([f"Content-Type: multipart/form-data; boundary={BOUNDARY}"], 422)):
        with ssl.create_default_context(cafile=c.CA).wrap_socket(socket.create_connection((c.HOST, c.PORT)), server_hostname=c.HOST) as sock:
            head = [f"POST {SESSIONS}/{session}/files HTTP/1.1", f"Host: {c.HOST}", f"X-API-KEY: {c.KEY}", "Connection: close"] + lines
            sock.sendall(("\r\n".join(head) + "\r\n\r\n").encode())
            check.has(sock.recv(4096), b" %d " % status)
    check.true(time.monotonic() - begin < 4, "nobody waits for a body that does not come")
    drop(session)


@check.test
def eight_are_unpacked_at_one_time():
    """Uploads of many sessions leave slots to runs: more than eight wait, and all of them are carried out."""
    sessions = [make() for _ in range(14)]
    body = tar([(f"d{i % 10}/{i}", b"x") for i in range(8000)])
    uploads = "SELECT id FROM operation WHERE finished_at IS NULL AND kind = 'upload'"
    most = 0
    with concurrent.futures.ThreadPoolExecutor(14) as pool:
        answers = [pool.submit(upload, session, ("many.tar", body)) for session in sessions]
        while not all(a.done() for a in answers):
            under_way = set(c.sql(uploads).split())
            boxes = 0
            for path in glob.glob(c.RUN_DIR + "/boxes/*"):
                try:
                    with open(path, "rb") as file:
                        text = file.read().decode("latin-1")
                except FileNotFoundError:
                    continue
                boxes += any(each in text for each in under_way)
            most = max(most, boxes)
            time.sleep(0.02)
    for answer in answers:
        good(answer.result(), 8000)
    check.true(1 <= most <= 8, most)
    for session in sessions:
        drop(session)


@check.test
def a_delete_ends_an_upload():
    session = make()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answer = pool.submit(upload, session, ("many.tar", tar([(f"d{i % 100}/{i}", b"x") for i in range(60000)])))
        claimed = f"SELECT 1 FROM operation JOIN job ON job.object_id = operation.id WHERE sandbox_id = '{session}' AND job.state = 'claimed'"
        check.wait_for(lambda: answer.done() or c.sql(claimed).strip(), 20, "the upload")
        begin = time.monotonic()
        drop(session)
        check.true(time.monotonic() - begin < 12, "the delete does not wait for it")
        check.true(answer.result().status in (200, 404), answer.result().body)
    check.wait_for(lambda: not glob.glob(f"{c.DATA_DIR}/uploads/*/*"), 5, "the staged files to go")


@check.test
def b17_visible_to_the_next_run():
    session = make()
    for i in range(60):
        good(upload(session, ("script.sh", b"echo %d\n" % i)), 1)
        check.equal(says(session, "sh script.sh"), b"%d\n" % i)
    drop(session)


@check.test
def b17_over_a_file_that_runs():
    session = make()
    good(upload(session, ("prog.tar", tar([("prog", b"#!/bin/sh\nwhile [ ! -e stop ]; do sleep 0.05; done\necho first\n", 0o755)]))), 1)
    run = c.request("POST", c.BASE + "/runs", {"session_id": session, "command": ["./prog"]}, headers={"Prefer": "respond-async"}).json()
    c.wait_phase(run["id"], ("running",))
    good(upload(session, ("prog", b"#!/bin/sh\necho second\n")), 1)
    good(upload(session, ("stop", b"")), 1)
    check.equal(c.wait_run(run["id"])["phase"], "completed")
    check.equal(c.output(c.follow(run["id"])[0], "stdout"), b"first\n")
    check.equal(says(session, "sh prog"), b"second\n")
    drop(session)


@check.test
def b17_a_folder_where_a_file_should_be():
    session = make()
    says(session, "mkdir d; echo x > f")
    check.equal(refused(upload(session, ("d", b"x")), 409, "conflict")["part"], "d")
    refused(upload(session, ("f/g", b"x")), 409, "conflict")
    refused(upload(session, ("t.tar", tar([("new", b"1"), ("d", b"2")]))), 409, "conflict")
    check.equal(says(session, "ls -AR | tr '\\n' ' '"), b".: d f  ./d: ")
    drop(session)


@check.test
def b17_all_or_nothing():
    """What cannot be placed takes back what was placed before it."""
    session = make(trust_level="untrusted")
    # inodes: a folder that is new needs none beyond its own
    says(session, "mkdir d; cd d; seq 89000 | xargs touch", timeout_sec=50)
    good(upload(session, ("t.tar", tar([("first", b"1")] + [(f"e/{i}", DIR) for i in range(6000)] + [("last", b"2")]))), 2)
    check.equal(says(session, "ls e | wc -l; cat first last"), b"6000\n12")
    refused(upload(session, ("t.tar", tar([("first", b"x")] + [(f"g{i}", DIR) for i in range(9000)] + [("last", b"x")]))), 413,
            "workspace_cap_exceeded")
    check.equal(says(session, "ls -A | tr '\\n' ' '; cat first last"), b"d e first last 12")
    drop(session)
    # rights: what stands before the folder in the archive, new and replaced, and what is behind it
    session = make()
    says(session, "mkdir ro; chmod 555 ro; echo old > old; echo zz > zz")
    before = says(session, "ls -lAR --time-style=+")
    details = refused(upload(session, ("t.tar", tar([("aaa", b"1"), ("n/x", b"1"), ("old", b"new"), ("ro/f", b"2"), ("zz", b"3")]))), 409, "conflict")
    check.equal(details["reason"], "ro/f: no right to write there in the workspace")
    check.equal(says(session, "ls -lAR --time-style=+; cat old zz"), before + b"old\nzz\n")
    refused(upload(session, ("ro/x", b"x")), 409, "conflict")
    says(session, "chmod 555 .")
    refused(upload(session, ("x", b"x")), 409, "conflict")
    says(session, "chmod 333 .")
    good(upload(session, ("x", b"x")), 1)
    says(session, "chmod 755 .; rm x")
    shut = make()
    says(shut, "chmod 0 .")
    refused(upload(shut, ("x", b"x")), 409, "conflict")
    drop(shut)
    # the reserved name
    says(session, "mkdir -p .cordon-upload/d/e; touch .cordon-upload/d/e/f; chmod 0 .cordon-upload/d .cordon-upload")
    good(upload(session, ("x", b"x")), 1)
    says(session, "echo > .cordon-upload; chmod 0 .cordon-upload")
    good(upload(session, ("x", b"y")), 1)
    check.equal(says(session, "ls -A | tr '\\n' ' '; cat x"), b"old ro x zz y")
    drop(session)


@check.test
def modes_and_times_of_folders():
    session = make()
    says(session, "mkdir -m 700 old")
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, mode, data in ((".", 0o700, None), ("old", 0o755, None), ("new", 0o2555, None), ("new/f", 0o444, b"one"), ("new/f", 0o444, b"two"),
                                 ("old/in", 0o750, None)):
            info = tarfile.TarInfo(name)
            info.mtime, info.mode, info.type, info.size = 1580000000, mode, DIR[0] if data is None else tarfile.REGTYPE, len(data or b"")
            archive.addfile(info, io.BytesIO(data or b""))
    good(upload(session, ("t.tar", file.getvalue())), 1, 3)
    check.equal(says(session, "cat new/f; stat -c ' %a %Y' new new/f old/in; stat -c %a old . "),
                b"two 555 1580000000\n 444 1580000000\n 750 1580000000\n700\n" + says(session, "stat -c %a ."))
    drop(session)


def beside_a_run_that_takes_the_folder(destroys):
    session = make()
    run = c.request("POST", c.BASE + "/runs", {"session_id": session, "command": ["sh", "-c", f"""
        n=0
        while [ ! -e stop ]; do
            chmod 0 .cordon-upload && sleep 0.01
            chmod 700 .cordon-upload; mv .cordon-upload away-$n && sleep 0.01
            {destroys}
            n=$((n + 1))
        done 2>/dev/null"""]}, headers={"Prefer": "respond-async"}).json()
    c.wait_phase(run["id"], ("running",))
    for i in range(20):
        answer = upload(session, ("t.tar", tar([(f"t{i}/{f}", b"x" * 1000) for f in range(100)])))
        check.true(answer.status == 200 or (answer.status, answer.json()["error"]["code"]) == (409, "conflict"), answer.body)
        count = int(says(session, f"ls t{i} 2>/dev/null | wc -l"))
        # what a run removes after it was counted, and before it is moved, is missing
        if answer.status == 409 or not destroys:
            check.equal(count, 100 if answer.status == 200 else 0, (i, answer.body))
    while upload(session, ("stop", b"")).status != 200:
        pass
    check.equal(c.wait_run(run["id"])["phase"], "completed")
    says(session, "rm -rf away-* t*")
    good(upload(session, ("f", b"x")), 1)
    drop(session)


@check.test
def b17_a_run_takes_the_folder():
    """It moves or shuts .cordon-upload while an upload grows in it: whole, or a conflict; so it is too when it empties it."""
    beside_a_run_that_takes_the_folder("")
    beside_a_run_that_takes_the_folder("rm -rf .cordon-upload")


# --- archives ------------------------------------------------------------------------------------------------


@check.test
def archives_are_unpacked():
    entries = [("d", DIR), ("d/f", b"one"), ("run", b"#!/bin/sh\necho ran\n", 0o755), ("d/empty", DIR), ("caf\u00e9", b"two")]
    for name, data in (("a.tar", tar(entries)), ("a.tar.gz", tar(entries, "w:gz")), ("A.TGZ", tar(entries, "w:gz")),
                       ("a.tar.bz2", tar(entries, "w:bz2")), ("a.tbz2", tar(entries, "w:bz2"))):
        session = make()
        good(upload(session, (name, data)), 3, 6 + 19, skipped=0)
        check.equal(says(session, "cat d/f caf\u00e9; ./run; find . -mindepth 1 | LC_ALL=C sort | tr '\\n' ' '; stat -c ' %Y %a' d/f"),
                    "onetworan\n./caf\u00e9 ./d ./d/empty ./d/f ./run  1580000000 644\n".encode(), name)
        drop(session)
    session = make()
    good(upload(session, ("z.zip", zipped([("d/f", "one"), ("e/", ""), ("caf\u00e9", "two"), ("big", b"x" * 5 * MIB)]))), 3)
    check.equal(says(session, "cat d/f caf\u00e9; stat -c %s big; ls -d e"), b"onetwo5242880\ne\n")
    # into what is there: folders stay, files are replaced
    good(upload(session, ("z.zip", zipped([("d/g", "new"), ("d/f", "again")]))), 2)
    check.equal(says(session, "cat d/f d/g; ls | tr '\\n' ' '"), "againnewbig caf\u00e9 d e ".encode())
    # what is none is a file
    good(upload(session, ("a.tar.xz", b"no archive"), ("x.zipped", b"no archive")), 2)
    drop(session)


@check.test
def b24_archives_with_traps():
    session = make()
    says(session, "ln -s / out")
    traps = tar([("../up", b"1"), ("/abs", b"2"), ("a/../../up", b"3"), ("sym", LINK, "/etc"), ("sym/passwd", b"4"),
                 ("hard", HARD, "/etc/passwd"), ("fifo", FIFO), ("dev", CHAR), ("blk", BLOCK),
                 ("out/x", b"5"), ("good", b"6"), ("suid", b"7", 0o6755), ("n" * 255, b"8"), ("m" * 256, b"9"), ("../", DIR)])
    answer = upload(session, ("t.tar", traps))
    check.equal(answer.status, 200, answer.body)
    got = answer.json()
    # a name below a link of the archive is a folder of ours, for the link was left out
    check.equal((got["file_count"], got["bytes_received"]), (4, 4), got)
    check.equal(says(session, "cat sym/passwd good suid; stat -c ' %a' suid; ls -A | LC_ALL=C sort | tr '\\n' ' '"),
                b"467 755\ngood " + b"n" * 255 + b" out suid sym ")
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        link = zipfile.ZipInfo("link")
        link.create_system, link.external_attr = 3, (0o120777 << 16)
        archive.writestr(link, "/etc")
        archive.writestr("../zup", "x")
        archive.writestr("zgood", "y")
    got = upload(session, ("t.zip", file.getvalue())).json()
    check.equal((got["file_count"], got["skipped"]), (1, 2), got)
    drop(session)


@check.test
def b24_damaged_archives_leave_nothing():
    session = make()
    whole = tar([(f"f{i}", os.urandom(20000)) for i in range(20)], "w:gz")
    zip_whole = zipped([(f"f{i}", os.urandom(20000)) for i in range(20)])
    for name, data in (("cut.tgz", whole[:len(whole) // 2]), ("cut.zip", zip_whole[:len(zip_whole) // 2]), ("text.tar", b"no tar" * 1000),
                       ("empty.zip", b""), ("flip.tgz", whole[:5000] + bytes(b ^ 0x55 for b in whole[5000:5100]) + whole[5100:])):
        details = refused(upload(session, ("before", b"1"), (name, data), ("after", b"2")), 422, "invalid_archive")
        check.equal(details["part"], name)
        check.true(details["reason"], details)
        # the part before it is there, nothing of it, nothing behind it
        check.equal(says(session, "ls -A"), b"before\n", name)
    # each cut of an archive: refused, or whole
    for cut in range(0, len(whole), len(whole) // 12):
        answer = upload(session, ("c.tgz", whole[:cut]))
        check.true(answer.status == 422 or cut == 0, (cut, answer.body))
    check.equal(says(session, "ls -A"), b"before\n")
    drop(session)


@check.test
def b24_bombs():
    """What grows without end meets the end of the workspace, or of time and memory."""
    session = make(trust_level="untrusted")
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        for i in range(20):
            archive.writestr(f"b{i}", bytes(40 * MIB))
    start = time.monotonic()
    refused(upload(session, ("b.zip", bomb.getvalue())), 413, "workspace_cap_exceeded")
    check.true(time.monotonic() - start < 30)
    deep = "d/" * 1900 + "f"
    good(upload(session, ("deep.tar", tar([(deep, b"x")]))), 1)
    check.equal(says(session, "find . -type f | wc -c"), b"%d\n" % (len(deep) + 3))
    good(upload(session, ("again.tar", tar([("same", b"%d" % i) for i in range(1000)]))), 1)
    check.equal(says(session, "cat same"), b"999")
    drop(session)


@check.test
def b24_damaged_zips():
    session = make()
    text = bytes((i * i + i // 7) % 251 for i in range(203000))
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", method) as archive:
            archive.writestr("before", b"x" * 1000)
            archive.writestr("f", text)
        whole = file.getvalue()
        good(upload(session, ("z.zip", whole)), 2, 204000)
        says(session, "rm before f")
        middle = whole.index(b"f", 1000 if method == zipfile.ZIP_STORED else 60) + 1
        for at in range(middle + 10, whole.index(b"PK\x01\x02") - 1, (len(whole) - middle) // 12):
            flipped = whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1:]
            refused(upload(session, ("z.zip", flipped)), 422, "invalid_archive")
        for old, new in ((len(text).to_bytes(4, "little"), (0x70000000).to_bytes(4, "little")),
                         (zipfile.crc32(text).to_bytes(4, "little"), b"1234")):
            check.true(whole.count(old) >= 2)
            refused(upload(session, ("z.zip", whole.replace(old, new))), 422, "invalid_archive")
        check.equal(says(session, "ls -A"), b"")
    drop(session)


class Pipe(io.RawIOBase):
    """A file in which nobody can go back: the sizes of a zip's entries follow their data."""

    def __init__(self):
        self.data = b""

    def writable(self):
        return True

    def write(self, data):
        self.data += bytes(data)
        return len(data)


@check.test
def zips_of_all_kinds():
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        for file in (Pipe(), io.BytesIO()):
            session = make()
            with zipfile.ZipFile(file, "w", method) as archive:
                archive.writestr("d/f", b"hello" * 1000)
                archive.writestr("e/", "")
                archive.writestr("empty", b"")
                with archive.open("zip64", "w", force_zip64=True) as entry:
                    entry.write(b"x" * 100000)
            good(upload(session, ("z.zip", file.data if isinstance(file, Pipe) else file.getvalue())), 3, 105000)
            check.equal(says(session, "cat d/f zip64 | md5sum; ls"),
                        __import__("hashlib").md5(b"hello" * 1000 + b"x" * 100000).hexdigest().encode() + b"  -\nd\ne\nempty\nzip64\n")
            drop(session)


@check.test
def b24_deep_and_wide():
    session = make()
    data = tar([("d/" * 1900 + str(i), b"x") for i in range(1200)], "w:gz")
    for _ in range(2):
        start = time.monotonic()
        good(upload(session, ("deep.tgz", data)), 1200, 1200)
        check.true(time.monotonic() - start < 20, time.monotonic() - start)
    check.equal(says(session, "rm -r d; ls -A"), b"")
    drop(session)


@check.test
def b24_holes_without_end():
    """A sum of sizes beyond what is counted: 2,100 files of a TiB, all hole."""
    session = make()
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        for i in range(2100):
            info = tarfile.TarInfo(f"GNUSparseFile.0/{i}")
            info.size = 512
            info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": f"s/{i}", "GNU.sparse.realsize": str(1 << 40)}
            archive.addfile(info, io.BytesIO(b"0\n".ljust(512, b"\0")))
    good(upload(session, ("t.tgz", file.getvalue()), ("u.tgz", file.getvalue())), 4200, 1 << 52)
    check.equal(says(session, "ls s | wc -l; stat -c '%s' s/7; find s -type f -size -1073741824k | wc -l"), b"2100\n1099511627776\n0\n")
    drop(session)


# --- at once, and crashes ------------------------------------------------------------------------------------


@check.test
def many_at_once():
    session, others = make(), [make() for _ in range(4)]
    answers = c.many(16, 8, lambda i: upload(session, (f"f{i}", b"%d" % i * 100000), ("same", b"%d" % i * 50000)).status)
    check.equal(answers, [200] * 16)
    check.equal(says(session, "ls | wc -l; sort -u same | wc -l; stat -c %s same | head -c 1"), b"17\n1\n" + says(session, "stat -c %s same | head -c 1"))
    answers = c.many(16, 8, lambda i: upload(others[i % 4], (f"f{i}", os.urandom(MIB))).status)
    check.equal(answers, [200] * 16)
    for each in others + [session]:
        drop(each)


@check.test
def programs_die_during_an_upload():
    session = make()
    for name in ("cordon-runner", "cordon-box", "cordon-gate"):
        for round_ in range(2):
            answers = []
            data = tar([(f"d/{i}", os.urandom(100000)) for i in range(200)])
            thread = threading.Thread(target=lambda: answers.append(upload(session, ("t.tar", data))))
            thread.start()
            time.sleep(0.1 + 0.15 * round_)
            os.kill(c.program_pid(name), signal.SIGKILL)
            thread.join()
            check.true(answers[0].status in (200, 422, 500, 502, 503), answers[0].body)
            check.wait_for(lambda: c.sql(f"SELECT COUNT(*) FROM operation WHERE sandbox_id = '{session}' AND state NOT IN "
                                         "('succeeded', 'failed')").strip() == "0", 30, "the operation to end")
            # whole or not at all; what is left of the killed one goes with the next
            count = int(says(session, "ls d 2>/dev/null | wc -l"))
            check.true(count == 200 or (count == 0 and answers[0].status != 200), (count, answers[0].body))
            says(session, "rm -rf d")
    good(upload(session, ("f", b"x")), 1)
    check.equal(says(session, "ls -A"), b"f\n")
    time.sleep(0.5)
    for left in glob.glob(f"{c.DATA_DIR}/uploads/*/*"):  # of the killed gate: the sweep takes them after an hour
        os.utime(left, (0, 0))
    check.equal(c.request("DELETE", f"{SESSIONS}/{session}").status, 200)
    os.kill(c.program_pid("cordon-runner"), signal.SIGTERM)
    check.wait_for(lambda: not glob.glob(f"{c.DATA_DIR}/uploads/*/*"), 20, "the files of the killed gate to go")


check.main()
