#!/usr/bin/env bash
# bench.sh BUILD: the marks of docs/performance.md, measured side by side in one run. A table on stdout, JSON in BUILD/bench.json; parts and
# switches stand at the top of bench.py. It brings the private stack up with a policy of its own and down behind, and removes its data
# unless there was some before or BENCH_KEEP=1 asks for it. The policy: queue 10,000, no limits per user, concurrency 48, because the stack
# has slots for 64 boxes and sandboxes get what runs and waiting boxes leave.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
cd "$top"
build=${1:-build}
bash tests/stack/packages.sh stack bench
# shellcheck source=tests/stack/env.sh
. tests/stack/env.sh
[ ! -d "$RUN" ] || fail "the stack is up: make down first"
keep=${BENCH_KEEP:-}
[ ! -d "$VAR" ] || keep=1
policy=$(mktemp)
leave() {
  bash tests/stack/down.sh >/dev/null 2>&1 || true
  [ -n "$keep" ] || bash tests/stack/clean-data.sh >/dev/null 2>&1 || true
  rm -f "$policy"
}
trap leave EXIT
# bench.py ends what it started itself, so it must hear of it
child=""
stop() {
  [ -z "$child" ] || { kill -TERM "$child" 2>/dev/null && wait "$child"; } || true
  exit 143
}
trap stop INT TERM
# the stack's own policy with the bench's limits behind
cat tests/stack/policy.yaml.in - >"$policy" <<'YAML'
queue:
  max_length: 10000
  ttl_sec: 900
runner:
  concurrency: 48
YAML
CORDON_POLICY_TEMPLATE=$policy bash tests/stack/up.sh "$build" >&2
set -a
# shellcheck disable=SC1091
. var/dev.env
set +a
export CORDON_BUILD=$build CORDON_VAR=$VAR CORDON_RUN=$RUN PYTHONDONTWRITEBYTECODE=1
python3 tests/bench/bench.py &
child=$!
wait "$child"
