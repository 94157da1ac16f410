#!/usr/bin/env bash
# render.sh OUT NAME=VALUE...: writes nginx's configuration to the folder OUT: cordon.conf from cordon.conf.in with @NAME@
# replaced, and the includes beside it. Names: RUN DATA LISTEN CERT KEY TEMP ACCESS_LOG BODY_BYTES UPLOAD_BYTES WORKER_SECONDS.
# POLICY=FILE takes RUN, DATA, BODY_BYTES, UPLOAD_BYTES and WORKER_SECONDS from that policy, by `cordonctl --dump-config` (CORDONCTL in the
# environment names another program that can). What stands behind it on the line wins.
# A file that would not change is left alone. Exit 1, and nothing is written, when a name is missing or unknown or a value is not of
# the kind that its name needs; what nginx could read as more than a value is never taken.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${1:?usage: render.sh OUT NAME=VALUE...}
shift
refuse() {
  echo "render.sh: $1" >&2
  exit 1
}
declare -A values=()

# of_policy SECTION NAME: one value of the effective policy in $dump
of_policy() {
  awk -v s="$1:" -v k="$2:" '/^[^ ]/ { in_it = $1 == s } in_it && $1 == k { gsub(/"/, "", $2); print $2 }' <<<"$dump"
}

# take NAME VALUE: judges by the name
take() {
  local kind
  case $1 in
  LISTEN) kind='a port, or address:port such as 127.0.0.1:8443 or [::]:443' && [[ "$2" =~ ^(([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):)?[1-9][0-9]{0,4}$ ]] ;;
  RUN | DATA | CERT | KEY | TEMP | ACCESS_LOG) kind='an absolute path of A-Za-z0-9/._-' && [[ "$2" =~ ^(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+$ ]] ;;
  BODY_BYTES | UPLOAD_BYTES | WORKER_SECONDS) kind='a number from 1' && [[ "$2" =~ ^[1-9][0-9]{0,14}$ ]] ;;
  *) refuse "$1 is no name that the configuration has" ;;
  esac || refuse "$1=$2: it must be $kind"
  values[$1]=$2
}

for pair in "$@"; do
  [[ "$pair" == ?*=* ]] || refuse "$pair is not NAME=VALUE"
  name=${pair%%=*}
  value=${pair#*=}
  if [ "$name" = POLICY ]; then
    dump=$("${CORDONCTL:-cordonctl}" --policy "$value" --dump-config) || refuse "POLICY=$value: the policy is refused"
    take RUN "$(of_policy paths run)"
    take DATA "$(of_policy paths data)"
    take BODY_BYTES "$(of_policy http body_bytes)"
    # the files and what the form says of them; the gate counts the files themselves
    take UPLOAD_BYTES $((($(of_policy sessions upload_mb) + 4) * 1048576))
    # a little longer than a worker gives itself
    take WORKER_SECONDS $(($(of_policy pool request_timeout_ms) / 1000 + 5))
  else
    take "$name" "$value"
  fi
done
text=$(cat "$here/cordon.conf.in"; echo .)
text=${text%.}
for name in "${!values[@]}"; do text=${text//@$name@/${values[$name]}}; done
# comments may speak of @NAME@
if left=$(grep -v '^ *#' <<<"$text" | grep -o '@[A-Z_]*@' | sort -u | tr -d @ | tr '\n' ' ') && [ -n "$left" ]; then
  refuse "no value for ${left% }"
fi
mkdir -p "$out"
put() {
  if cmp -s "$1.new" "$1"; then rm -f "$1.new"; else mv "$1.new" "$1"; fi
}
printf '%s' "$text" >"$out/cordon.conf.new"
put "$out/cordon.conf"
for file in cordon-fastcgi.conf cordon-bytes.conf cordon-artifact.conf cordon-error-pages.conf cordon-errors.conf; do
  cp "$here/$file" "$out/$file.new"
  put "$out/$file"
done
