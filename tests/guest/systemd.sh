#!/bin/bash
# systemd.sh: started as a service in the guest of `run.sh BUILD systemd`. Installs Cordon by the blocks of docs/operations.md, "On a real
# host", as they stand there, judges the units with work going on, reboots once with work going on, judges again, uninstalls, powers off.
# Each check is a line `guest: NAME ... passed` or FAILED, with the end of what it said below.
set -uo pipefail
shopt -s inherit_errexit
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 LC_ALL=C.UTF-8
manual=/usr/share/doc/cordon/operations.md
state=/var/lib/cordon-guest
slice=/sys/fs/cgroup/cordonboxes.slice
programs=(cordon-box cordon-runner cordon-gate cordon-fcgi cordon-nginx)
units=("${programs[@]}" cordon-gate.socket cordon-fcgi.socket cordon-boxes cordonboxes.slice)
mkdir -p $state

say() { echo "guest: $*"; }

# check NAME COMMAND...: the function in a shell of its own that ends with the first thing that fails
check() {
  local name=$1 status start=$SECONDS
  shift
  (set -ex && "$@") >$state/log 2>&1 </dev/null
  status=$?
  if [ $status = 0 ]; then
    say "$name ... passed ($((SECONDS - start)) s)"
  else
    say "$name ... FAILED ($((SECONDS - start)) s)"
    tail -n 40 $state/log | cut -c 1-300 | sed 's/^/guest:   /'
    journalctl -b --no-pager -o short-monotonic --since "-$((SECONDS - start + 5))s" | tail -n 40 | cut -c 1-300 | sed 's/^/guest:   journal: /'
  fi
}

# until SECONDS COMMAND...: again until it succeeds
until_good() {
  local -
  set +x
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ $SECONDS -lt $end ] || return 1
    sleep 0.3
  done
}

# block HEADING: the first block of that part of the manual
block() {
  awk -v h="### $1" '$0 == h { on = 1; next } on && /^#/ { exit } on && /^```sh$/ { p = 1; next } p && /^```$/ { exit } p' $manual
}
pasted() {
  local text
  text=$(block "$1")
  [ -n "$text" ]
  timeout 300 bash -euo pipefail -c "$text"
}

# --- clients ---------------------------------------------------------------------------------------------------

key() { [ -s $state/key ] || cordonctl key create --tenant guest --user guest >$state/key; cat $state/key; }
client() {
  CORDON_API_KEY=$(key) && export CORDON_API_KEY
  export CORDON_URL=https://localhost:8443 CORDON_CA=/etc/cordon/tls.crt
}
# call METHOD PATH [BODY]
call() {
  local -
  set +x
  client
  curl -sS --max-time 60 --fail-with-body --cacert $CORDON_CA -H "X-API-KEY: $CORDON_API_KEY" -H 'Prefer: respond-async' -X "$1" \
    ${3:+-H "Content-Type: application/json" --data-binary "$3"} "$CORDON_URL$2"
}
# field NAME: a text or number of JSON on stdin, the first of that name
field() { grep -oE "\"$1\":(\"[^\"]*\"|[0-9a-z]+)" | head -n 1 | sed -E 's/^"[^"]*"://; s/"//g'; }
phase() { call GET "/api/v1/sandbox/runs/$1" | field phase; }
has_ended() { [[ "$(phase "$1")" =~ ^(completed|failed|killed)$ ]]; }
is_phase() { [ "$(phase "$1")" = "$2" ]; }
# start_run MARK SECONDS: prints the id of a run that counts to SECONDS and is in its box
start_run() {
  local id
  id=$(call POST /api/v1/sandbox/runs "{\"base_image\":\"host\",\"command\":[\"sh\",\"-c\",\
\"i=0; while [ \$i -lt $2 ]; do i=\$((i+1)); echo line \$i; sleep 1; done; echo all of $1; exit 0\"]}" | field id)
  until_good 60 is_phase "$id" running
  until_good 30 in_box "$1" >&2
  echo "$id"
}
# in_box MARK: the process of the host that is the command of that run
in_box() {
  local -
  set +x
  local p words=()
  for p in /proc/[0-9]*; do
    { mapfile -d '' words <"$p/cmdline"; } 2>/dev/null || continue
    if [ "${words[0]:-}" = sh ] && [[ "${words[2]:-}" == *"all of $1;"* ]]; then
      echo "${p#/proc/}"
      return 0
    fi
  done
  return 1
}
# run_ends ID MARK SECONDS: as it would without any of us
run_ends() {
  local out
  until_good 120 has_ended "$1"
  call GET "/api/v1/sandbox/runs/$1"
  is_phase "$1" completed
  client
  out=$(cordonctl logs "$1")
  [ "$out" = "$(for ((i = 1; i <= $3; i++)); do echo "line $i"; done; echo "all of $2")" ]
}
# sandbox command ID TEXT: prints its answer
sandbox() { call POST "/v1/sandboxes/$1/runtime/terminals/commands" "{\"command\":\"$2\"}"; }
sandbox_says() { sandbox "$1" "$2" | grep -qF "\"stdout\":\"$3\\n\""; }

# --- units ---------------------------------------------------------------------------------------------------------

all_active() {
  local unit
  for unit in "${units[@]}"; do until_good 60 systemctl is-active -q "$unit" || { systemctl status --no-pager "$unit" || true; return 1; }; done
  [ -z "$(systemctl --failed --no-legend --plain 'cordon*')" ]
}
main_pid() { systemctl show -p MainPID --value "$1"; }
is_new() { [ "$(main_pid "$1")" != 0 ] && [ "$(main_pid "$1")" != "$2" ] && systemctl is-active -q "$1"; }
doctor_is_content() { until_good 30 cordonctl doctor; }
no_leaks() { until_good 60 cordonctl doctor --leaks; }
ours() { { readlink /proc/[0-9]*/exe || true; } | grep -E '/cordon|memfd:.*cordon' || true; }
# A child of a killed cordon-box may still end when systemd looks ("remains running"): what stays is looked for by "a stop of everything".
# Lines of a stack that the kernel shows for a box out of memory name functions.
# complaints: what systemd, the kernel or our programs said of rights
complaints() {
  journalctl -b -o short-monotonic --no-pager -u 'cordon*' |
    grep -iE 'EPERM|EACCES|not permitted|permission denied|read-only file system|no such device|Failed at step|left-over|level=(error|warning)' |
    grep -vF "$1" || true
  journalctl -b -k -o short-monotonic --no-pager | grep -vE ' running in system mode \(|kernel:  \? ' | grep -iE 'seccomp|type=1326|segfault|oom-kill.*cordon-(box|runner|gate|fcgi)' || true
}

packages_are_there() {
  local name count=0
  for name in $(block Packages | tr -c 'a-z0-9.+\n-' ' '); do
    case $name in apt-get | install | --*) continue ;; esac
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$name")" = installed ]
    count=$((count + 1))
  done
  [ $count -gt 5 ]
}
first_run() {
  local out
  out=$(pasted 'First run')
  [ "$out" = $'hello from a box\n1000' ]
}
file_and_artifact() {
  local id
  client
  head -c 300000 /dev/urandom >$state/big
  cordonctl run --file $state/big --artifact out -- sh -c 'cat big >out; wc -c <out'
  id=$(call GET '/api/v1/sandbox/runs?limit=1' | field id)
  cordonctl artifacts "$id" out --to - | cmp - $state/big
}
memory_is_limited() {
  local id
  id=$(call POST /api/v1/sandbox/runs '{"base_image":"host","command":["tail","/dev/zero"]}' | field id)
  until_good 120 is_phase "$id" killed
  call GET "/api/v1/sandbox/runs/$id" | grep -F out_of_memory
}
# groups MARK: what is set in the groups from the process up to the slice
groups() {
  local dir file
  dir=$(sed -n 's/^0:://p' "/proc/$(in_box "$1")/cgroup")
  [[ "$dir" == /cordonboxes.slice/cordon-main/* ]] || { echo "the box is in $dir" >&2 && return 1; }
  while [ "$dir" != /cordonboxes.slice ]; do
    for file in memory.max memory.swap.max pids.max cpu.max cgroup.controllers; do
      echo "$dir $file $(cat "/sys/fs/cgroup$dir/$file" 2>/dev/null)"
    done
    dir=${dir%/*}
  done
  cat $slice/cgroup.subtree_control
}
slice_keeps_boxes() {
  local id before
  id=$(start_run 0001 40)
  before=$(groups 0001)
  grep -E ' memory.max [0-9]+$' <<<"$before"
  grep -E ' pids.max [0-9]+$' <<<"$before"
  systemctl daemon-reload
  [ "$(groups 0001)" = "$before" ]
  systemctl set-property cordonboxes.slice CPUWeight=50
  [ "$(groups 0001)" = "$before" ]
  [ "$(cat $slice/cpu.weight)" = 50 ]
  systemctl daemon-reexec
  until_good 30 systemctl is-active -q cordonboxes.slice
  [ "$(groups 0001)" = "$before" ]
  run_ends "$id" 0001 40
  memory_is_limited
}
restart_and_kill_of() {
  local id pid
  id=$(start_run "$2" 45)
  systemctl restart "$1"
  systemctl is-active -q "$1"
  in_box "$2"
  until_good 20 is_new "$1" 0
  pid=$(main_pid "$1")
  systemctl kill --kill-whom=main --signal=KILL "$1"
  until_good 30 is_new "$1" "$pid"
  # a machine under load may have come to its end by now, so nothing is said of its phase before that
  run_ends "$id" "$2" 45
}
stop_and_start_box() {
  local id
  id=$(start_run 0030 20)
  systemctl stop cordon-box
  [ "$(systemctl is-active cordon-box)" = inactive ]
  sleep 2
  in_box 0030
  systemctl start cordon-box
  run_ends "$id" 0030 20
}
# everybody at once, new requests are made meanwhile
sockets_refuse_nobody() {
  local i status=0
  client
  for i in 1 2 3; do
    systemctl restart cordon-fcgi &
    sleep 0.2
    curl -sS --max-time 60 --cacert $CORDON_CA -o /dev/null -w '%{http_code}\n' "$CORDON_URL/api/v1/sandbox/health/public" | grep -x 200 || status=1
    wait $!
    # systemd starts a unit at most five times in ten seconds
    sleep 3
  done
  return $status
}
upgrade_with_work() {
  local id
  id=$(start_run 0031 25)
  pasted Upgrade
  pasted 'Web server'
  systemctl reload cordon-nginx
  all_active
  run_ends "$id" 0031 25
}
policy_with_work() {
  local id
  id=$(start_run 0032 20)
  sed -i 's/^images:/runs:\n  max_timeout_sec: 1800\nimages:/' /etc/cordon/policy.yaml
  pasted 'Change the policy'
  all_active
  run_ends "$id" 0032 20
}
sandbox_lives() {
  local id
  id=$(call POST /v1/sandboxes '{"name":"guest"}' | field id)
  [ -n "$id" ]
  echo "$id" >$state/sandbox
  grep -F "$id" /sys/block/loop*/loop/backing_file
  sandbox_says "$id" 'echo kept >/workspace/file; cat /workspace/file' kept
  systemctl restart cordon-box cordon-runner
  until_good 30 sandbox_says "$id" 'cat /workspace/file' kept
  call POST "/v1/sandboxes/$id/stop" ''
  call POST "/v1/sandboxes/$id/resume" ''
  sandbox_says "$id" 'cat /workspace/file' kept
}
access_log_turns() {
  client
  curl -sS --cacert $CORDON_CA "$CORDON_URL/api/v1/sandbox/health/public"
  until_good 5 test -s /var/log/cordon/access.json
  logrotate -f /etc/logrotate.d/cordon
  sleep 2
  curl -sS --cacert $CORDON_CA "$CORDON_URL/api/v1/sandbox/health/public"
  until_good 10 grep -q health /var/log/cordon/access.json
  [ -s /var/log/cordon/access.json.1 ]
}
boxes_are_gone() {
  [ -z "$(find $slice -mindepth 1 -name 'cordon*' -type d 2>/dev/null)" ]
  [ -z "$(cat $slice/cgroup.procs 2>/dev/null)" ]
  [ "$(grep -cE ' /(var/lib|run)/cordon[^-]' /proc/self/mounts)" = 0 ]
  [ -z "$(cat /sys/block/loop*/loop/backing_file 2>/dev/null)" ]
  [ -z "$(in_box "$1")" ]
}
end_all() {
  local id
  id=$(start_run 0040 100)
  echo "$id" >$state/lost
  pasted 'End all boxes'
  boxes_are_gone 0040
  [ "$(systemctl is-active cordon-box)" = inactive ]
  systemctl start cordon-box cordon-runner
  until_good 60 is_phase "$id" failed
  call GET "/api/v1/sandbox/runs/$id" | grep -F box_lost
  all_active
}
is_stopped() { [ "$(call GET "/v1/sandboxes/$1" | field status)" = stopped ]; }
sandbox_comes_back() {
  local id
  id=$(cat $state/sandbox)
  until_good 60 is_stopped "$id"
  call POST "/v1/sandboxes/$id/resume" ''
  sandbox_says "$id" 'cat /workspace/file' kept
}
stop_all() {
  systemctl stop cordon-nginx cordon-fcgi.socket cordon-fcgi cordon-gate.socket cordon-gate cordon-runner cordon-boxes
  boxes_are_gone x
  [ -z "$(ours)" ]
  systemctl start cordon-box cordon-runner cordon-gate cordon-fcgi cordon-nginx
  all_active
}
nobody_complains() {
  complaints "${1:-nothing}" >$state/complaints
  cat $state/complaints
  [ ! -s $state/complaints ]
}
# the words of systemd's own judgement, to see what is open
exposure() { systemd-analyze security --no-pager 2>/dev/null | grep '^cordon-' | sed 's/^/guest: note: /'; }

deleted() { call DELETE "/v1/sandboxes/$(cat $state/sandbox)"; }
lost_by_reboot() {
  local id
  id=$(cat $state/lost)
  until_good 60 is_phase "$id" failed
  call GET "/api/v1/sandbox/runs/$id" | grep -F box_lost
}
uninstall() {
  pasted Uninstall
  [ -z "$(systemctl list-units --all --no-legend --plain 'cordon*')" ]
  [ -z "$(ours)" ]
  boxes_are_gone x
  [ ! -d $slice ]
}

first_boot() {
  say "note: devices of clocks: $(grep -w rtc /proc/devices || echo none); cordon-box may open: $(systemctl show -p DeviceAllow --value cordon-box | tr '\n' ' ')"
  say "note: $(systemd --version | head -n 1), $(uname -r), $(mariadbd --version | grep -o 'Ver [^ ]*'), $(nginx -v 2>&1)"
  check "packages of the manual" packages_are_there
  check "block: Programs" pasted Programs
  check "block: Policy" pasted Policy
  check "block: Database" pasted Database
  check "block: Certificate" pasted Certificate
  check "block: Web server" pasted 'Web server'
  check "block: Start" pasted Start
  check "every unit is active" all_active
  check "block: First run" first_run
  check "files and artifacts" file_and_artifact
  check "memory of a box is limited" memory_is_limited
  check "daemon-reload, set-property and daemon-reexec leave boxes alone" slice_keeps_boxes
  mark=10
  for unit in "${programs[@]}"; do
    check "restart and SIGKILL of $unit with a run" restart_and_kill_of "$unit" 00$mark
    mark=$((mark + 1))
  done
  check "stop and start of cordon-box with a run" stop_and_start_box
  check "a restart of cordon-fcgi refuses nobody" sockets_refuse_nobody
  check "a sandbox outlives cordon-box" sandbox_lives
  check "block: Change the policy, with a run" policy_with_work
  check "block: Upgrade, with a run" upgrade_with_work
  check "the access log turns" access_log_turns
  check "block: End all boxes" end_all
  check "the sandbox comes back" sandbox_comes_back
  check "a stop of everything leaves nothing" stop_all
  check "doctor --leaks" no_leaks
  check "doctor" doctor_is_content
  check "no complaint in the journal" nobody_complains
  exposure
  say "note: rebooting with a run and a sandbox"
  (set -e && call POST "/v1/sandboxes/$(cat $state/sandbox)/resume" '' && start_run 0050 1000 >$state/lost) >/dev/null 2>&1
  date +%s >$state/rebooted
  systemctl reboot
}

second_boot() {
  say "note: the reboot took $(($(date +%s) - $(cat $state/rebooted))) s"
  check "every unit is active after a reboot" all_active
  check "the run of before is box_lost" lost_by_reboot
  check "the sandbox of before comes back" sandbox_comes_back
  check "block: First run, again" first_run
  check "delete of the sandbox" deleted
  check "doctor --leaks after a reboot" no_leaks
  check "no complaint in the journal after a reboot" nobody_complains
  check "block: Uninstall" uninstall
  say end
  systemctl poweroff
}

if [ -e $state/rebooted ]; then second_boot; else first_boot; fi
