# shellcheck shell=bash disable=SC2034
# env.sh: names of the private stack of this tree; sourced by the scripts here and by tests. No side effects.
#
#   instance    8 hex digits of the tree's path, the boot and the tree's inode; in every global name
#   VAR         /var/lib/cordon-dev/<instance>: data, database, logs, configuration; <tree>/var is a link to it
#   RUN         /run/cordon-dev/<instance>: sockets and pid files
#   ETC DATA    VAR/etc, VAR/data; LOGS, BIN likewise (the programs run as copies in VAR/bin)
#   PIDS        RUN/pids: <program> has the pid of the program, <program>.loop that of its restart loop
#   OFF         VAR/run-off: a file <program> there switches its restarts off
#   STACK_GROUP cgroup of the stack's own programs ("" when the host has none that can be used)
TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
STACK_BASE=/var/lib/cordon-dev
RUN_BASE=/run/cordon-dev
TREE_INODE=$(stat -c %d:%i "$TOP")
INSTANCE=$(printf '%s|%s|%s' "$TOP" "$(cat /proc/sys/kernel/random/boot_id)" "$TREE_INODE" | sha256sum | cut -c 1-8)
VAR=$STACK_BASE/$INSTANCE
RUN=$RUN_BASE/$INSTANCE
ETC=$VAR/etc
DATA=$VAR/data
PIDS=$RUN/pids
OFF=$VAR/run-off
LOGS=$VAR/log
BIN=$VAR/bin
# the order of starting; stopping goes backwards
STACK_PROGRAMS=(mariadb cordon-box cordon-gate cordon-runner cordon-fcgi nginx)

say() { printf 'stack: %s\n' "$*"; }
fail() {
  printf 'stack: %s\n' "$*" >&2
  exit 1
}

# need_root WHAT
need_root() { [ "$(id -u)" = 0 ] || fail "$1 needs root (try: sudo make $1)"; }

# lock_tree: one up, down or clean at a time for this tree; the lock is the open folder itself
lock_tree() {
  exec 9<"$TOP"
  flock -w 120 9 || fail "another up or down of this tree is running"
}

# cgroup_root: the mount point of the v2 hierarchy, else of any v1 hierarchy that can be written, else nothing
cgroup_root() {
  awk '
    { for (i = 7; i <= NF; i++) if ($i == "-") type = $(i + 1) }
    type == "cgroup2" && two == "" { two = $5 }
    type == "cgroup" && one == "" { one = $5 }
    END { print two != "" ? two : one }' /proc/self/mountinfo
}
cgroup_roots() {
  awk '{ for (i = 7; i <= NF; i++) if ($i == "-" && $(i + 1) ~ /^cgroup2?$/) print $5 }' /proc/self/mountinfo
}
STACK_GROUP=$(cgroup_root)
if [ -n "$STACK_GROUP" ] && [ -w "$STACK_GROUP" ]; then STACK_GROUP=$STACK_GROUP/cordon-$INSTANCE-stack; else STACK_GROUP=""; fi

# lock_is_held FILE: somebody lives who holds the lock of this file
lock_is_held() { [ -e "$1" ] && ! flock -n "$1" true; }
loop_lives() { lock_is_held "$PIDS/$1.loop"; }

# pid_of PROGRAM: the pid of a running program, or nothing
pid_of() {
  local pid
  pid=$(cat "$PIDS/$1" 2>/dev/null) || return 0
  [ -d "/proc/$pid" ] && printf '%s\n' "$pid"
  return 0
}

# wait_for SECONDS COMMAND...: until the command succeeds; 1 when the time is over
wait_for() {
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || return 1
    sleep 0.05
  done
}
