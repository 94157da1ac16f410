#!/bin/bash
# init.sh: pid 1 of the guest of run.sh. Mounts what a host has, with one kind of control groups only, runs the tests, powers off.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 LC_ALL=C.UTF-8
exec >/dev/ttyS0 2>&1 </dev/null
mount -t proc proc /proc
mount -t sysfs sys /sys
mkdir -p /dev/shm /dev/pts
# for bash's <(...)
ln -s /proc/self/fd /dev/fd
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
hostname guest
word() { tr ' ' '\n' </proc/cmdline | sed -n "s/^cordon\.$1=//p"; }
mode=$(word mode)
CORDON_TEST_SLOW=$(word slow)
export CORDON_TEST_SLOW

if [ "$mode" = v2 ]; then
  mount -t cgroup2 cgroup2 /sys/fs/cgroup
else
  mount -t tmpfs cgroup /sys/fs/cgroup
  # cpu and cpuacct in one hierarchy, as systemd has them
  for group in memory pids cpu,cpuacct cpuset freezer blkio devices; do
    mkdir "/sys/fs/cgroup/$group"
    mount -t cgroup -o "$group" cgroup "/sys/fs/cgroup/$group"
  done
  ln -s cpu,cpuacct /sys/fs/cgroup/cpu
  ln -s cpu,cpuacct /sys/fs/cgroup/cpuacct
fi
if [ "$mode" = v2 ]; then have=$(cat /sys/fs/cgroup/cgroup.controllers); else have=$(echo /sys/fs/cgroup/*); fi
# a box must not pass its limit of memory by swapping
dd if=/dev/zero of=/swap bs=1M count=512 status=none && chmod 600 /swap && mkswap -q /swap && swapon /swap ||
  echo "guest: note: no swap"
echo "guest: note: Linux $(uname -r), cgroup $mode: ${have//\/sys\/fs\/cgroup\//}"

# "passed failed inactive" of CUnit's table
summary() {
  sed -n 's/^ *tests *[0-9][0-9]* *[0-9][0-9]* *\([0-9][0-9]*\) *\([0-9][0-9]*\) *\([0-9][0-9]*\)$/\1 \2 \3/p' "$1" | tail -n 1
}
for name in $(word tests | tr ',' ' '); do
  log=/tmp/$name.log
  start=$SECONDS
  timeout --kill-after=10 600 "/cordon/build/tests/api/$name" 2>&1 | tee "$log" | sed -u "s/^/$name| /" | cut -c 1-300
  status=${PIPESTATUS[0]}
  p="" f="" s=""
  read -r p f s < <(summary "$log")
  if [ "$status" = 77 ]; then
    p=0 f=0 s=1
  elif [ -z "$p" ]; then
    p=0 f=1 s=0
  elif [ "$status" != 0 ] && [ "$f" = 0 ]; then
    f=1
  fi
  echo "guest: $name: $p passed, $f failed, ${s:-0} skipped (status $status, $((SECONDS - start)) s)"
done
left=$(find /sys/fs/cgroup -name 'cordon-*' 2>/dev/null)
[ -z "$left" ] || echo "guest: note: groups are left: $left"
echo "guest: end"
sync
echo o >/proc/sysrq-trigger
sleep 60
