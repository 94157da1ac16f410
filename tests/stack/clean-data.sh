#!/usr/bin/env bash
# clean-data.sh: removes the data of this tree's private stack, after a down.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/stack/env.sh
. "$here/env.sh"
need_root clean-data
lock_tree
[ ! -d "$RUN" ] || fail "the stack is up: make down first"
[ "$(readlink "$TOP/var" 2>/dev/null)" != "$VAR" ] || rm -f "$TOP/var"
if [ -d "$VAR" ]; then
  rm -rf --one-file-system "$VAR"
  rmdir "$STACK_BASE" 2>/dev/null || true
  say "removed $VAR"
else
  say "there is no data"
fi
