#!/usr/bin/env bash
# demo.sh notice: says what `make demo` changes on this machine and how to undo it, and does nothing.
# demo.sh BUILD: starts the private stack (up.sh) and does the main job through its public port (demo/demo.py). Exit 1 when a
# step differs from what is expected.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/stack/env.sh
. "$here/env.sh"

notice() {
  local packages
  packages=$(awk '$1 == "build" || $1 == "stack" { printf "%s%s", sep, $2; sep = " " }' "$here/packages.txt" | fold -s -w 96 | sed '2,$s/^/             /')
  cat <<TEXT
Cordon's demo builds Cordon, starts it on this machine for itself alone (127.0.0.1) and runs one job in a box.
What it changes:
  packages   Debian packages that are missing of:
             $packages
             No service is enabled or started by them.
  users      system users and groups cordon-web cordon-gate cordon-run cordon-egress cordon-db, groups cordon cordon-notify cordon-artifact (www-data becomes a member)
  folders    $STACK_BASE/<instance> (data, certificate, logs) and $RUN_BASE/<instance> (sockets);
             in this tree: build/ and the link var; locks in /run/cordon-box and control groups while it runs
How to undo it:
  make down         stops everything: no process, mount, cgroup or socket of it is left
  make clean-data   the same, and removes the data and the link
  make clean        removes build/
  Packages and users stay. To remove the users: userdel NAME, groupdel NAME.

TEXT
}

if [ "${1:-}" = notice ]; then
  notice
  exit 0
fi
need_root demo
build=${1:-build}
bash "$here/up.sh" "$build"
set -a
# shellcheck disable=SC1091
. "$TOP/var/dev.env"
set +a
mkdir -p "$VAR/demo"
cd "$TOP"
CORDON_BUILD=$build exec python3 "$here/demo/demo.py"
