#!/usr/bin/env bash
# The codes that workers, gate and nginx answer with are those of handlers/errors.c, with the same status, and every row there is used.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
build=${1:-build}
[ -x "$build/tests/tools/errors" ] || { echo "nothing is built in $build" && exit 1; }
"$build/tests/tools/errors" list | python3 -c '
import glob, re, sys

table = dict(reversed(line.split()) for line in sys.stdin)
used, bad = set(), []


def meet(place, status, code):
    used.add(code)
    if code not in table:
        bad.append("%s: %s is not in handlers/errors.c" % (place, code))
    elif status and table[code] != status:
        bad.append("%s: %s comes with %s, the table says %s" % (place, code, status, table[code]))


for path in sorted(glob.glob("handlers/**/*.c", recursive=True) + glob.glob("fcgi/*.c") + glob.glob("runners/gate/*.c")):
    if path == "handlers/errors.c":
        continue
    with open(path) as file:
        text = file.read()
    # 404, "run_not_found" as arguments or in a table
    for status, code in re.findall(r"\b([2-5][0-9][0-9]),\s*\"([a-z][a-z_]*)\"", text):
        meet(path, status, code)
    # a text that is ready: \"code\":\"internal_error\"
    for code in re.findall(r"\\\"code\\\":\\\"([a-z_]+)", text):
        meet(path, None, code)
    # the code alone, where a helper knows the status
    for code in re.findall(r"\bfail[a-z_]*\([^;\"]*&e,\s*\"([a-z_]+)\"\)", text):
        meet(path, None, code)
for path in glob.glob("nginx/*.conf") + glob.glob("nginx/*.in"):
    with open(path) as file:
        for status, code in re.findall(r"return ([0-9]+) [^\n]*?\"code\":\"([a-z_]+)\"", file.read()):
            meet(path, status, code)
bad += ["handlers/errors.c: nothing uses %s" % code for code in table if code not in used]
print("\n".join(bad), end="\n" if bad else "")
sys.exit(1 if bad else 0)
'
