#!/usr/bin/env bash
# test_reflink.sh: the copies of workspaces (tests/api/test_box_copy) once more, with the data on an XFS of its own in a file, where copies
# share blocks. In a mount namespace of its own, so nothing is left behind.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
cd "$top"
build=${CORDON_BUILD:-build}
if [ "${1:-}" != inside ]; then
  command -v mkfs.xfs >/dev/null || { echo "skipped: no mkfs.xfs (xfsprogs)" && exit 77; }
  grep -qw xfs /proc/filesystems || modprobe xfs 2>/dev/null || { echo "skipped: this kernel has no XFS" && exit 77; }
  folder=$(mktemp -d /var/tmp/cordon-xfs-XXXXXX)
  trap 'rm -rf "$folder"' EXIT
  truncate -s 2G "$folder/disk"
  mkfs.xfs -q "$folder/disk"
  mkdir "$folder/data"
  status=0
  CORDON_TEST_DATA="$folder/data" unshare --mount --propagation private bash "$0" inside "$folder" || status=$?
  exit $status
fi
mount -o loop "$2/disk" "$2/data" || { echo "skipped: no loop device for an XFS here" && exit 77; }
"$build/tests/api/test_box_copy"
