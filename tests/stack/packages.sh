#!/usr/bin/env bash
# packages.sh GROUP...: installs what is missing of the named groups of packages.txt (Debian 12, root). Without root it names them.
# nginx is installed while a temporary policy-rc.d forbids starting it: the private stack starts its own.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
missing=()
for group in "$@"; do
  while read -r package; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing+=("$package")
  done < <(awk -v g="$group" '$1 == g {print $2}' "$here/packages.txt")
done
[ ${#missing[@]} -gt 0 ] || exit 0
if [ "$(id -u)" != 0 ]; then
  echo "cordon: these packages are missing, install them as root: apt-get install ${missing[*]}" >&2
  exit 1
fi
echo "cordon: installing ${missing[*]}"
rc=/usr/sbin/policy-rc.d
made=0
if [ ! -e $rc ]; then
  printf '#!/bin/sh\nexit 101\n' >$rc
  chmod 755 $rc
  made=1
fi
trap '[ $made = 0 ] || rm -f $rc' EXIT
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
if ! { apt-get update -q && apt-get install -y -q --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
  tail -n 30 "$log" >&2
  rm -f "$log"
  exit 1
fi
rm -f "$log"
