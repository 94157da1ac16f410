#!/usr/bin/env bash
# run.sh BUILD [GROUP...]: runs the tests of the groups unit, api, e2e (default: all) and ends with `N passed, N failed, N skipped`
# over all of them; exit 1 after a failure.
#
#   unit  BUILD/tests/unit/*, CUnit programs: nothing but themselves
#   api   BUILD/tests/api/*, CUnit programs against the private stack's MariaDB
#   e2e   tests/e2e/test_*.{py,sh} against the private stack; their last line is `N passed, N failed, N skipped`
#
# api and e2e bring the stack up before and down behind; cordonctl doctor --leaks before that and leaks.sh after it are tests as well, and
# so is that none of our programs crashed. A program finds in its environment what var/dev.env says, and CORDON_POLICY, CORDON_RUN, CORDON_DATA, CORDON_BUILD. Exit 77 means skipped, with the reason in the output.
# A program that dies by a signal, prints no summary, or fails without saying so counts as a failure. Outputs: BUILD/tests/log/.
# TEST_ONLY=word runs only the programs with that word in their name.
set -uo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
cd "$top" || exit 1
build=${1:?usage: run.sh BUILD [unit|api|e2e]...}
shift
groups=("$@")
[ ${#groups[@]} -gt 0 ] || groups=(unit api e2e)
for group in "${groups[@]}"; do
  case $group in unit | api | e2e) ;; *) echo "run.sh: unknown group $group (unit, api, e2e)" >&2 && exit 64 ;; esac
done
log=$build/tests/log
mkdir -p "$log"
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=1:strict_string_checks=1:abort_on_error=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export CORDON_BUILD=$build
limit=${TEST_LIMIT_S:-900}
passed=0 failed=0 skipped=0
failures=$log/failures # told again at the end: who sees only the last lines sees what failed
: >"$failures"
stack_tried=0

has_group() { [[ " ${groups[*]} " == *" $1 "* ]]; }

# summary FILE: "passed failed skipped" of a program's output, nothing when there is none
summary() {
  awk '
    $1 == "tests" && NF >= 6 && $2 ~ /^[0-9]+$/ { p = $4; f = $5; s = $2 - $3; found = 1 }
    /^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ { p = $1; f = $3; s = $5; found = 1 }
    END { if (found) print p, f, s }' "$1"
}

# run NAME COMMAND...: one program
run() {
  local name=$1 out=$log/${1//\//-}.log start=$EPOCHREALTIME status p f s seconds word
  shift
  if [ -n "${TEST_ONLY:-}" ] && [[ "$name" != *"$TEST_ONLY"* ]]; then return; fi
  printf '%-40s ' "$name"
  timeout --kill-after=10 "$limit" "$@" >"$out" 2>&1 </dev/null
  status=$?
  seconds=$(awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }')
  word=""
  read -r p f s < <(summary "$out") || { p="" f="" s=""; }
  if [ $status = 77 ]; then
    p=0 f=0 s=$((${s:-0} > 0 ? s : 1))
    word="skipped: $(grep -v " passed, " "$out" | tail -n 1 | sed "s|^skipped: ||")"
  elif [ -z "$p" ]; then
    p=0 f=1 s=0
    word="FAILED: no summary, exit status $status"
  elif [ $status = 124 ] || [ $status -ge 128 ]; then
    f=$((f + 1))
    word="FAILED: exit status $status"
  elif [ $status != 0 ] && [ "$f" = 0 ]; then
    f=1
    word="FAILED: exit status $status though no test failed"
  elif [ "$f" != 0 ]; then
    word="FAILED"
  fi
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  printf '%d passed, %d failed, %d skipped (%s s) %s\n' "$p" "$f" "$s" "$seconds" "$word"
  # CUnit's own table
  { grep -A 3 '^Run Summary' "$out" || true; } | sed 's/^/    /'
  if [ "$f" != 0 ]; then
    # CUnit and check.py name what failed; a program that died shows its end
    { grep -A 12 'FAILED' "$out" || tail -n 40 "$out"; } | head -n 80 | cut -c 1-400 | sed 's/^/    /' | tee "$log/last-failure"
    echo "    (all of it: $out)"
    { echo "$name: $word" && cat "$log/last-failure"; } >>"$failures"
  fi
}

# note NAME STATUS: a step that is a test of its own
note() {
  if [ "$2" = 0 ]; then
    passed=$((passed + 1))
    printf '%-40s 1 passed, 0 failed, 0 skipped\n' "$1"
  else
    failed=$((failed + 1))
    printf '%-40s 0 passed, 1 failed, 0 skipped FAILED\n' "$1" | tee -a "$failures"
  fi
}

# Programs of ours that ended by ABRT, BUS, FPE, SEGV, ILL or SYS; tests send none of these.
crashes() {
  { grep -hE '(: ended by signal |_crashed .*signal=)(4|6|7|8|11|31)$' var/log/cordon-*.log || true; } 2>/dev/null
}

stack_up() {
  stack_tried=1
  crashes_before=$(crashes | wc -l)
  if ! bash tests/stack/up.sh "$build" 2>&1 | sed 's/^/    /'; then
    note stack/up 1
    return 1
  fi
  note stack/up 0
  set -a
  # shellcheck disable=SC1091
  . var/dev.env
  set +a
  CORDON_POLICY=$(readlink -f var)/etc/policy.yaml
  CORDON_DATA=$(readlink -f var)/data
  CORDON_RUN=$(sed -n 's/^  run: *//p' "$CORDON_POLICY")
  export CORDON_POLICY CORDON_DATA CORDON_RUN
}

stack_down() {
  [ $stack_tried = 1 ] || return 0
  stack_tried=0
  if [ -x "$build/bin/cordonctl" ] && [ -S "${CORDON_RUN:-}/box/box.sock" ]; then
    "$build/bin/cordonctl" --policy "$CORDON_POLICY" doctor --leaks >"$log/doctor.log" 2>&1
    note stack/doctor $?
    grep -qx "nothing is left behind" "$log/doctor.log" || sed 's/^/    /' "$log/doctor.log"
  fi
  bash tests/stack/down.sh 2>&1 | sed 's/^/    /'
  crashes | tail -n "+$((crashes_before + 1))" >"$log/crashes.log"
  [ ! -s "$log/crashes.log" ]
  note stack/crashes $?
  sed 's/^/    /' "$log/crashes.log"
  bash tests/stack/leaks.sh >"$log/leaks.log" 2>&1
  local status=$?
  note stack/leaks $status
  [ $status = 0 ] || sed 's/^/    /' "$log/leaks.log"
}
trap 'stack_down >&2' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

if has_group unit; then
  for program in "$build"/tests/unit/test_*; do
    if [ -x "$program" ] && [ -f "$program" ]; then run "unit/${program##*/}" "$program"; fi
  done
fi
if has_group api || has_group e2e; then
  bash tests/stack/packages.sh stack || exit 1
  if stack_up; then
    if has_group api; then
      for program in "$build"/tests/api/test_*; do
        if [ -x "$program" ] && [ -f "$program" ]; then run "api/${program##*/}" "$program"; fi
      done
    fi
    if has_group e2e; then
      for program in tests/e2e/test_*.py; do
        [ ! -f "$program" ] || run "e2e/${program##*/}" python3 "$program"
      done
      for program in tests/e2e/test_*.sh; do
        [ ! -f "$program" ] || run "e2e/${program##*/}" bash "$program"
      done
    fi
  fi
  stack_down
fi
[ ! -s "$failures" ] || { echo && echo "what failed:" && cat "$failures"; }
printf '\n%d passed, %d failed, %d skipped\n' $passed $failed $skipped
[ $failed = 0 ]
