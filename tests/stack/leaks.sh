#!/usr/bin/env bash
# leaks.sh [INSTANCE]: lists what a private stack that is down has left: processes, mounts, loop devices, cgroups, network
# namespaces and interfaces, sockets, uid blocks. Exit 1 when there is anything, else 0. Without INSTANCE: this tree's.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/stack/env.sh
. "$here/env.sh"
instance=${1:-$INSTANCE}
var=$STACK_BASE/$instance
run=$RUN_BASE/$instance
found=0
leak() {
  printf 'left behind: %s\n' "$*"
  found=$((found + 1))
}

# by cgroup, environment, command line, program file and root folder
for process in /proc/[0-9]*; do
  pid=${process#/proc/}
  if [ "$pid" = $$ ] || [ "$pid" = "$BASHPID" ]; then continue; fi
  # a dead process that its parent has not read yet holds nothing
  if [ "$(awk '/^State:/ { print $2 }' "$process/status" 2>/dev/null)" = Z ]; then continue; fi
  command=$({ tr '\0' ' ' <"$process/cmdline"; } 2>/dev/null) || continue
  why=""
  if grep -qs "cordon-$instance" "$process/cgroup"; then
    why=cgroup
  elif { tr '\0' '\n' <"$process/environ"; } 2>/dev/null | grep -qsx "CORDON_STACK=$instance"; then
    why=environment
  elif [[ " $command" == *[\ =:]"$var/"* || " $command" == *[\ =:]"$run/"* ]]; then
    why="command line"
  elif [[ "$(readlink "$process/cwd" 2>/dev/null)/" == "$var/"* || "$(readlink "$process/root" 2>/dev/null)/" == "$var/"* ]]; then
    why=folder
  fi
  case $command in *leaks.sh* | *down.sh* | *up.sh* | *clean-data.sh* | *tests/run.sh*) why="" ;; esac
  [ -z "$why" ] || leak "process $pid ($why): ${command:0:160}"
done

while read -r line; do leak "mount $line"; done < <(awk -v v="$var" -v r="$run" -v i="$instance" '
  index($5, v "/") == 1 || index($5, r "/") == 1 || $5 == v || $5 == r || index($0, "cordon-" i) { print $5 }' /proc/self/mountinfo)

while read -r line; do [ -z "$line" ] || leak "loop device $line"; done < <(
  losetup --list --noheadings --output NAME,BACK-FILE 2>/dev/null | grep -F "$var/" || true)

while read -r root; do
  for group in "$root/cordon-$instance"*; do [ ! -d "$group" ] || leak "cgroup $group"; done
done < <(cgroup_roots)

for name in /run/netns/*"$instance"*; do [ ! -e "$name" ] || leak "network namespace $name"; done
while read -r line; do [ -z "$line" ] || leak "network interface $line"; done < <(
  ip -o link show 2>/dev/null | awk -F': ' '{print $2}' | grep -F "$instance" || true)
[ ! -e "$run" ] || leak "folder $run: $(find "$run" -mindepth 1 2>/dev/null | head -n 5 | tr '\n' ' ')"
while read -r line; do [ -z "$line" ] || leak "uid block $line"; done < <(
  grep -lsx "$instance" "$RUN_BASE"/uid/* 2>/dev/null || true)

if [ $found -gt 0 ]; then
  printf 'stack: %d things of instance %s are left\n' $found "$instance"
  exit 1
fi
printf 'stack: nothing of instance %s is left\n' "$instance"
