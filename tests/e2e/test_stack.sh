#!/usr/bin/env bash
# test_stack: the restart loop and the scripts of the private stack, on the stack that runs.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/stack/env.sh
. "$here/../stack/env.sh"
passed=0 failed=0
result() {
  if [ "$2" = 0 ]; then
    passed=$((passed + 1))
    echo "  $1 ... passed"
  else
    failed=$((failed + 1))
    echo "  $1 ... FAILED"
  fi
}
[ -e "$PIDS/nginx.loop" ] || { echo "skipped: the private stack is not up" && echo "0 passed, 0 failed, 1 skipped" && exit 77; }

# another_pid PROGRAM OLD
another_pid() {
  local pid
  pid=$(pid_of "$1")
  [ -n "$pid" ] && [ "$pid" != "$2" ]
}
now_ms() { echo $((${EPOCHREALTIME/./} / 1000)); }

restarts_after_a_kill() {
  local old start
  old=$(pid_of "$1")
  start=$(now_ms)
  kill -KILL "$old" || return 1
  wait_for 5 another_pid "$1" "$old" || return 1
  echo "    $1 is back after $(($(now_ms) - start)) ms"
  [ $(($(now_ms) - start)) -lt 300 ]
}
answers() { curl -s -o /dev/null --max-time 5 --cacert "$ETC/tls.crt" "https://localhost:$(cat "$ETC/port")/"; }

off_switch() {
  local old
  old=$(pid_of nginx)
  touch "$OFF/nginx"
  kill -KILL "$old"
  sleep 0.6
  if [ -n "$(pid_of nginx)" ] || answers; then rm -f "$OFF/nginx" && return 1; fi
  rm -f "$OFF/nginx"
  wait_for 5 another_pid nginx "$old" && wait_for 5 answers
}

up_again_changes_nothing() {
  local before after
  before=$(cat "$PIDS"/* 2>/dev/null | sort)
  bash "$here/../stack/up.sh" "${CORDON_BUILD:-build}" || return 1
  after=$(cat "$PIDS"/* 2>/dev/null | sort)
  [ "$before" = "$after" ]
}

a_second_loop_is_refused() {
  ! "$TOP/${CORDON_BUILD:-build}/tests/tools/restart_loop" --name nginx --log /dev/null --pids "$PIDS" --off "$OFF" -- /bin/true
}

sleep 3.1 # a program that lived 3 s starts without back-off
for program in "${STACK_PROGRAMS[@]}"; do
  [ -e "$PIDS/$program.loop" ] || continue
  restarts_after_a_kill "$program"
  result "$program is back within 0.3 s" $?
done
wait_for 10 answers
result "nginx answers again" $?
wait_for 30 mariadb --no-defaults --socket="$RUN/db/mariadb.sock" -e "SELECT 1"
result "mariadb answers again" $?
off_switch
result "the off switch" $?
up_again_changes_nothing >/dev/null
result "up again changes nothing" $?
a_second_loop_is_refused 2>/dev/null
result "a second loop of one name is refused" $?
! bash "$here/../stack/leaks.sh" >/dev/null
result "leaks.sh sees a running stack" $?
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
