#!/usr/bin/env bash
# down.sh: stops the private stack of this tree and removes everything of it but its data. Harmless when it is down.
# down.sh --instance ID does the same for what an earlier instance of the tree left.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/stack/env.sh
. "$here/env.sh"
need_root down
if [ "${1:-}" = --instance ]; then
  [[ "$2" =~ ^[0-9a-f]{8}$ ]] || fail "no instance: $2"
  INSTANCE=$2 VAR=$STACK_BASE/$2 RUN=$RUN_BASE/$2 PIDS=$RUN_BASE/$2/pids
else
  lock_tree
fi

# read from the lock file itself, so that a pid that was given to somebody else is never hit
loop_pid() { lock_is_held "$PIDS/$1.loop" && cat "$PIDS/$1.loop"; }
is_gone() { ! lock_is_held "$PIDS/$1.loop"; }

# what runs now ends with its box
count_rows() { mariadb --no-defaults --socket="$RUN/db/mariadb.sock" --batch --skip-column-names cordon -e "SELECT COUNT(*) FROM $1" 2>/dev/null; }
count_runs() {
  local count
  count=$(count_rows "run WHERE phase IN ('starting', 'running')") || return 0
  [ "${count:-0}" = 0 ] || say "$count running runs end now and will be box_lost"
  count=$(count_rows "sandbox WHERE state = 'running'") || return 0
  [ "${count:-0}" = 0 ] || say "$count running sandboxes end now: they will be stopped, a resume brings their files back"
}

stop_loops() {
  local i name pid
  for ((i = ${#STACK_PROGRAMS[@]} - 1; i >= 0; i--)); do
    name=${STACK_PROGRAMS[i]}
    pid=$(loop_pid "$name") || continue
    say "stopping $name"
    kill -TERM "$pid" 2>/dev/null || true
    wait_for 20 is_gone "$name" || say "$name does not stop, its group will be killed"
  done
}

group_is_empty() { [ -z "$(find "$1" -name cgroup.procs -exec cat {} + 2>/dev/null)" ]; }

# kill_group DIR: everything in a cgroup and below, then the groups themselves
kill_group() {
  local pid file
  if [ -e "$1/cgroup.kill" ]; then
    echo 1 >"$1/cgroup.kill" || true
  fi
  while read -r file; do
    echo THAWED 2>/dev/null >"$file" || true
  done < <(find "$1" -name freezer.state 2>/dev/null)
  for pid in $(find "$1" -name cgroup.procs -exec cat {} + 2>/dev/null | sort -u); do
    [ "$pid" = $$ ] || kill -KILL "$pid" 2>/dev/null || true
  done
  wait_for 10 group_is_empty "$1" || say "processes in $1 do not end"
  find "$1" -depth -type d -exec rmdir {} + 2>/dev/null || true
}

remove_groups() {
  local root group
  while read -r root; do
    for group in "$root/cordon-$INSTANCE" "$root/cordon-$INSTANCE"[-.]*; do
      [ ! -d "$group" ] || kill_group "$group"
    done
  done < <(cgroup_roots)
}

# on hosts without a cgroup of ours: by the mark that up.sh puts into the environment of every program
kill_marked() {
  local process pid
  for process in /proc/[0-9]*; do
    pid=${process#/proc/}
    if [ "$pid" = $$ ] || [ "$pid" = "$PPID" ]; then continue; fi
    { tr '\0' '\n' <"$process/environ"; } 2>/dev/null | grep -qsx "CORDON_STACK=$INSTANCE" || continue
    kill -KILL "$pid" 2>/dev/null || true
  done
}

remove_mounts() {
  local point device
  # the last mounted first
  while read -r point; do
    umount "$point" 2>/dev/null || umount -l "$point" 2>/dev/null || say "cannot unmount $point"
  done < <(awk -v v="$VAR/" -v r="$RUN/" 'index($5, v) == 1 || index($5, r) == 1 { print $5 }' /proc/self/mountinfo | tac)
  while read -r device _; do
    losetup -d "$device" 2>/dev/null || say "cannot detach $device"
  done < <(losetup --list --noheadings --output NAME,BACK-FILE 2>/dev/null | grep -F "$VAR/" || true)
}

remove_network() {
  local name
  for name in /run/netns/*"$INSTANCE"*; do
    [ ! -e "$name" ] || ip netns delete "${name##*/}" 2>/dev/null || true
  done
  for name in $(ip -o link show 2>/dev/null | awk -F'[:@] *' '{print $2}' | grep -F "$INSTANCE" || true); do
    ip link delete "$name" 2>/dev/null || true
  done
}

release_uids() {
  local file
  for file in "$RUN_BASE"/uid/*; do
    ! grep -qsx "$INSTANCE" "$file" || rm -f "$file"
  done
}

was_up=0
[ ! -d "$RUN" ] || was_up=1
count_runs
stop_loops
remove_groups
kill_marked
remove_mounts
remove_network
release_uids
rm -rf --one-file-system "$RUN"
rmdir "$RUN_BASE/uid" "$RUN_BASE" 2>/dev/null || true
if [ $was_up = 1 ]; then say "down (data kept in $VAR)"; else say "nothing was up"; fi
