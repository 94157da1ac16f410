#!/usr/bin/env bash
# check_units.sh BUILD: installs below a scratch folder and lets systemd judge the units there; the policy that is installed is good, and users and
# folders of sysusers and tmpfiles are those that the private stack makes.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
build=${1:-build}
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
if ! make -s install BUILD="$build" DESTDIR="$root" >"$root/log" 2>&1; then
  cat "$root/log"
  exit 1
fi
status=0
# systemd's own units and the programs that ours name
for dir in usr/lib/systemd/system usr/bin bin; do mkdir -p "$root/$dir"; done
for unit in network.target network-online.target local-fs.target sockets.target multi-user.target basic.target sysinit.target shutdown.target slices.target; do
  printf '[Unit]\nDescription=%s\n' "$unit" >"$root/usr/lib/systemd/system/$unit"
done
mkdir -p "$root/usr/sbin"
for file in bin/kill bin/true usr/sbin/nginx; do
  printf '#!/bin/sh\n' >"$root/$file"
  chmod 755 "$root/$file"
done
for unit in systemd/*.service systemd/*.socket systemd/*.slice; do
  if ! out=$(systemd-analyze verify --root="$root" --recursive-errors=no --man=no "${unit##*/}" 2>&1); then
    printf '%s:\n%s\n' "$unit" "$out"
    status=1
  fi
done
if ! "$build/bin/cordonctl" --policy "$root/etc/cordon/policy.yaml" --check-config; then status=1; fi
# boxes inherit the filter of cordon-box.service: it must let pass the families that theirs does
for family in $(sed -nE 's/.*families\[\] = \{([A-Z0-9_, ]+)\}.*/\1/p' runners/exec/filter.c | tr -d ',') AF_NETLINK; do
  if ! grep -qE "^RestrictAddressFamilies=.*\b$family\b" systemd/cordon-box.service; then
    echo "cordon-box.service refuses $family, which boxes may use"
    status=1
  fi
done
# with ProtectClock (or PrivateDevices) only devices that are named can be opened
for device in /dev/loop-control block-loop; do
  grep -q "^DeviceAllow=$device rw" systemd/cordon-box.service || { echo "cordon-box.service refuses $device, which workspaces need" && status=1; }
done
# the unit that ends boxes must find the ones that cordon-box makes
options() { sed -nE '/^Exec(Start|Stop)=.*cordon-box /,/[^\\]$/p' "systemd/$1.service" | tr -d '\\\n' | grep -oE -- '--(run-dir|data-dir|instance|limits|slice) [^ ]+' | sort; }
if [ "$(options cordon-box | wc -l)" != 5 ] || [ "$(options cordon-box)" != "$(options cordon-boxes)" ]; then
  echo "cordon-box.service and cordon-boxes.service name other folders or groups:"
  diff <(options cordon-box) <(options cordon-boxes)
  status=1
fi
# whatever the tree has for a host is installed, and the manual starts each unit that can be enabled
for file in systemd/*; do
  find "$root" -type f -exec cmp -s "$file" {} \; -print | grep -q . || { echo "make install leaves out $file" && status=1; }
  if grep -qs '^\[Install\]' "$file" && ! grep '^systemctl enable --now cordon' docs/operations.md | tr ' ' '\n' | sed 's/$/.service/' |
    grep -qE "^${file##*/}(\.service)?\$"; then
    echo "docs/operations.md does not enable ${file##*/}"
    status=1
  fi
done
# logrotate judges its file as far as it is here
if command -v logrotate >/dev/null && ! out=$(logrotate -d "$root/etc/logrotate.d/cordon" 2>&1); then
  echo "logrotate: $out"
  status=1
fi
# the same folders with the same modes in both places
want=$(sed -nE 's|^d /run/cordon/([a-z-]+) +0?([0-7]+) +([a-z-]+) +([a-z-]+) .*|\1 \3 \4 \2|p' systemd/cordon.tmpfiles | sort)
# shellcheck disable=SC2016
have=$(sed -nE 's|^ *folder "\$RUN/([a-z-]+)" ([a-z-]+) ([a-z-]+) ([0-7]+)$|\1 \2 \3 \4|p' tests/stack/up.sh | grep -v '^db ' | sort)
if [ "$want" != "$have" ]; then
  echo "systemd/cordon.tmpfiles and tests/stack/up.sh differ:"
  diff <(echo "$want") <(echo "$have")
  status=1
fi
exit $status
