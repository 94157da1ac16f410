#!/usr/bin/env bash
# bench.sh BUILD: ratios, measured side by side in one run: Cordon over HTTPS beside bubblewrap and a plain nginx. A table on stdout, JSON in
# BUILD/bench.json. It brings the private stack up with a policy of its own (queue 10,000, concurrency 64) and down behind.
# BENCH_SCALE=N divides the counts (default 1) for a quick look.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
cd "$top"
build=${1:-build}
bash tests/stack/packages.sh stack bench
policy=$(mktemp)
trap 'bash tests/stack/down.sh >/dev/null 2>&1 || true; rm -f "$policy"' EXIT
# the stack's own policy with the bench's limits behind
cat tests/stack/policy.yaml.in - >"$policy" <<'YAML'
queue:
  max_length: 10000
runner:
  concurrency: 64
YAML
CORDON_POLICY_TEMPLATE=$policy bash tests/stack/up.sh "$build" >&2
set -a
# shellcheck disable=SC1091
. var/dev.env
set +a
python3 tests/bench/bench.py "$build" "$(readlink -f var)"
