#!/usr/bin/env bash
# A variable that is released at the end of its block must have a value from its first line on: an early return releases it as it is.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
if git grep -nE '^[[:space:]]*scope_[a-z]+ [^=]*;' -- fcgi handlers runners; then
  echo "check_scope: the lines above have no initial value" >&2
  exit 1
fi
