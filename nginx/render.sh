#!/usr/bin/env bash
# render.sh OUT NAME=VALUE...: writes nginx's configuration to the folder OUT: cordon.conf from cordon.conf.in with @NAME@
# replaced, and the includes beside it. Names: RUN DATA LISTEN CERT KEY TEMP ACCESS_LOG BODY_BYTES WORKER_SECONDS.
# A file that would not change is left alone. Exit 1 when a name is missing or a value has a character that nginx could read
# as more than a value.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${1:?usage: render.sh OUT NAME=VALUE...}
shift
mkdir -p "$out"
text=$(cat "$here/cordon.conf.in"; echo .)
text=${text%.}
for pair in "$@"; do
  name=${pair%%=*}
  value=${pair#*=}
  if ! [[ "$name" =~ ^[A-Z_]+$ && "$value" =~ ^[][A-Za-z0-9/._:-]+$ ]]; then
    echo "render.sh: $name has a value that cannot stand in nginx's configuration" >&2
    exit 1
  fi
  text=${text//@$name@/$value}
done
# comments may speak of @NAME@
if left=$(grep -v '^ *#' <<<"$text" | grep -o '@[A-Z_]*@' | sort -u | tr '\n' ' ') && [ -n "$left" ]; then
  echo "render.sh: no value for $left" >&2
  exit 1
fi
put() {
  if cmp -s "$1.new" "$1"; then rm -f "$1.new"; else mv "$1.new" "$1"; fi
}
printf '%s' "$text" >"$out/cordon.conf.new"
put "$out/cordon.conf"
for file in cordon-fastcgi.conf cordon-bytes.conf cordon-artifact.conf cordon-error-pages.conf cordon-errors.conf; do
  cp "$here/$file" "$out/$file.new"
  put "$out/$file"
done
