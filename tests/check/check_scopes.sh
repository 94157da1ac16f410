#!/usr/bin/env bash
# check_scopes.sh: a variable that is released at the end of its block has a value before anything can return: a scope_buf is
# initialised by buf_init (or frame_start, which calls it) before the first return of its function, every other scope_* where it is declared.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck disable=SC2016
find fcgi handlers runners tests -name '*.c' -print0 | xargs -0 awk '
  FNR == 1 || /^}/ { delete open; n = 0 }
  /^[[:space:]]+scope_buf struct buf [a-z_0-9]+;/ {
    name = $0; sub(/.*struct buf /, "", name); sub(/;.*/, "", name); open[name] = FNR; n++
  }
  /(buf_init|frame_start)\(&/ { name = $0; sub(/.*(buf_init|frame_start)\(&/, "", name); sub(/[,)].*/, "", name); if (name in open) { delete open[name]; n-- } }
  /(^|[^a-z_])return([^a-z_]|$)/ && n > 0 {
    for (name in open) print FILENAME ":" FNR ": returns before buf_init(&" name ") of line " open[name]
  }
  /^[[:space:]]+scope_(free|close|json|policy|stmt)[^=]*;/ { print FILENAME ":" FNR ": declared without a value: " $0 }
'
