#!/usr/bin/env bash
# check.sh BUILD: what can be judged without running Cordon: layers, symbols, SQL, headers, format, scripts, nginx, documents.
# Each check prints what it found; the last line is `N passed, N failed, N skipped`. tests/check/check_*.sh BUILD are further checks.
set -uo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
cd "$top" || exit 1
build=${1:-build}
bash tests/stack/packages.sh check stack || exit 1
passed=0 failed=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# check NAME FUNCTION: passed when the function prints nothing and returns 0
check() {
  local name=$1 text status
  shift
  text=$("$@" 2>&1)
  status=$?
  if [ $status = 0 ] && [ -z "$text" ]; then
    passed=$((passed + 1))
    echo "  $name ... passed"
  else
    failed=$((failed + 1))
    echo "  $name ... FAILED"
    head -n 40 <<<"$text" | cut -c 1-300 | sed 's/^/    /'
  fi
}

# product FOLDER...: our own .c and .h files that exist
product() { { find "$@" -name '*.[ch]' 2>/dev/null || true; } | sort; }
every_product() { product fcgi handlers runners; }

# may_include FOLDER ALLOWED: the files of FOLDER include only ours that match the pattern ALLOWED
may_include() {
  local file
  for file in $(product "$1"); do
    grep -nE '^#[[:space:]]*include[[:space:]]+"' "$file" | grep -vE "include[[:space:]]+\"($2)" | sed "s|^|$file:|"
  done
}
layers() {
  local program
  may_include runners/base 'runners/base/'
  may_include runners/core 'runners/(base|core)/|statements\.h'
  may_include handlers 'handlers/|runners/(base|core)/|openapi_data\.h'
  may_include fcgi 'fcgi/|handlers/|runners/(base|core)/'
  for program in backend gate egress ctl; do may_include runners/$program "runners/(base|core|$program)/"; done
  may_include runners/supervisor 'runners/(base|core|supervisor|backend)/'
  may_include runners/exec 'runners/(base|exec)/'
  may_include runners/init 'runners/(base|init)/'
  return 0
}

# directly, or by a header of ours that does (dependency files name those, but no system headers)
fcgi_headers() {
  local header
  grep -rnE 'include[[:space:]]+<fcgi_stdio\.h>' --include='*.[ch]' fcgi handlers runners tests 2>/dev/null
  every_product | grep '\.c$' | grep -vE '^fcgi/(request|response)\.c$' | xargs -r grep -nE 'include[[:space:]]+["<]fcgiapp\.h'
  for header in $(every_product | grep '\.h$' | xargs -r grep -lE 'include[[:space:]]+["<]fcgiapp\.h'); do
    { find "$build/obj" -name '*.d' 2>/dev/null || true; } | grep -vE '/fcgi/(request|response)\.d$' |
      xargs -r grep -lE "[ /]$header( |\$)" | sed "s|^$build/obj/||; s|\.d$|.c knows fcgiapp.h by $header|"
  done
  return 0
}

# symbols SKIP PATTERN: undefined symbols that match, of our objects whose path does not match SKIP
symbols() {
  local object
  [ -d "$build/obj" ] || { echo "nothing is built in $build" && return 1; }
  while read -r object; do
    nm -u "$object" | awk '{ print $2 }' | sed 's/@.*//' | grep -xE "$2" | sed "s|^|$object: |"
  done < <(find "$build/obj" -name '*.o' | grep -vE "$1" | while read -r object; do
    source=${object#"$build/obj/"}
    if [ -e "${source%.o}.c" ]; then echo "$object"; fi
  done | sort)
}
banned_symbols() {
  symbols '^$' 'mysql_(query|real_query|real_escape_string|send_query|escape_string)|FCGI_.*'
  symbols '/obj/(tests/|runners/core/store_)' 'mysql_.*'
  symbols '/obj/(tests/|runners/core/uhttp\.o)' 'curl_.*'
  # late under libev: runners/gate/timer.h
  symbols '^$' 'lws_(sul_schedule|sul_cancel|set_timer_usecs)'
  return 0
}

sql_text() {
  every_product | grep '\.c$' | xargs -r grep -nE '"[[:space:]]*(SELECT|INSERT|UPDATE|DELETE|REPLACE|CREATE|ALTER|DROP|GRANT)[[:space:]]'
  return 0
}

headers_alone() {
  local header
  for header in $(product fcgi handlers runners tests/lib | grep '\.h$'); do
    printf '#include "%s"\n' "$header" |
      gcc -fsyntax-only -std=gnu17 -Wall -Wextra -Werror -I. -I"$build/gen" -isystem /usr/include/mariadb -D_GNU_SOURCE \
        -include runners/base/banned.h -x c - || echo "$header does not stand alone"
  done
}
header_guards() {
  local header
  for header in $(product fcgi handlers runners tests/lib | grep '\.h$'); do
    grep -qE '^#ifndef CORDON_' "$header" || echo "$header has no guard CORDON_..."
    [[ "$(head -c 2 "$header")" == '/*' ]] || echo "$header does not start with what it is for"
  done
}
format() { product fcgi handlers runners tests | xargs -r clang-format --dry-run --Werror; }
fuzz_harnesses() {
  local file
  for file in tests/fuzz/*.c; do
    [ ! -e "$file" ] || gcc -fsyntax-only -std=gnu17 -Wall -Wextra -Werror -I. -I"$build/gen" -isystem /usr/include/mariadb \
      -D_GNU_SOURCE -include runners/base/banned.h "$file"
  done
}

scripts() {
  local file
  for file in $(git ls-files --cached --others --exclude-standard); do
    [ -f "$file" ] || continue
    if [[ "$file" == *.sh || "$(head -n 1 "$file" | tr -d '\0')" == '#!'*bash* ]]; then
      bash -n "$file" && shellcheck -x "$file"
    fi
  done
}
python_files() { find tests -name '*.py' -exec python3 -c '
import ast, sys
for name in sys.argv[1:]:
    ast.parse(open(name, encoding="utf-8").read(), name)' {} +; }

# what render.sh refuses, each with a word that says why, and what it takes from a policy
nginx_values() {
  local pair text
  local -a good=(RUN=/run/cordon DATA=/var/lib/cordon LISTEN=8443 CERT=/c KEY=/k TEMP=/t ACCESS_LOG=/a BODY_BYTES=1 UPLOAD_BYTES=1 WORKER_SECONDS=35)
  for pair in 'RUN=/run;evil' RUN=... RUN= RUN=run RUN=/run/../etc LISTEN=... LISTEN=host LISTEN=0 'LISTEN=80 ssl' CERT=... KEY=/k/... BODY_BYTES=8m \
    WORKER_SECONDS=0 NAME=/run RUN POLICY=/no/such; do
    if text=$(CORDONCTL="$build/bin/cordonctl" bash nginx/render.sh "$scratch/bad" "${good[@]}" "$pair" 2>&1); then
      echo "render.sh took $pair"
    elif ! grep -q "^render.sh: ${pair%%=*}[= ]" <<<"$text"; then
      echo "render.sh does not say that $pair is bad: $text"
    fi
  done
  text=$(bash nginx/render.sh "$scratch/bad" "${good[@]:1}" 2>&1) && echo "render.sh took a missing name"
  [ "$text" = 'render.sh: no value for RUN' ] || echo "render.sh does not say what is missing: $text"
  [ ! -e "$scratch/bad" ] || echo "render.sh wrote what it refused"
  for pair in LISTEN=127.0.0.1:8443 'LISTEN=[::]:443' LISTEN=localhost:443; do
    bash nginx/render.sh "$scratch/good" "${good[@]}" "$pair" || echo "render.sh refused $pair"
  done
  CORDONCTL="$build/bin/cordonctl" bash nginx/render.sh "$scratch/good" POLICY=systemd/policy.yaml "${good[@]:2:5}" || return 1
  for text in 'unix:/run/cordon/web/fcgi.sock' 'alias /var/lib/cordon/artifacts/' 'client_max_body_size 8388608' 'fastcgi_read_timeout 35s'; do
    grep -qF "$text;" "$scratch/good/cordon.conf" || echo "render.sh did not take from the policy: $text"
  done
  return 0
}

nginx_conf() {
  mkdir -p "$scratch"/{run/web,run/gate,data/artifacts,temp}
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
    -keyout "$scratch/key" -out "$scratch/crt" 2>/dev/null || return 1
  bash nginx/render.sh "$scratch/etc" RUN="$scratch/run" DATA="$scratch/data" LISTEN=127.0.0.1:8443 CERT="$scratch/crt" \
    KEY="$scratch/key" TEMP="$scratch/temp" ACCESS_LOG="$scratch/access.json" BODY_BYTES=8388608 UPLOAD_BYTES=71303168 WORKER_SECONDS=35 || return 1
  nginx_values
  # -t binds, and the port may be in use by a stack that runs
  sed -i "s|127.0.0.1:8443|unix:$scratch/listen|; s| so_keepalive=[^;]*||" "$scratch/etc/cordon.conf"
  nginx -e stderr -t -q -c "$scratch/etc/cordon.conf"
}

documents() {
  local name
  for name in policy errors; do
    [ -x "$build/tests/tools/$name" ] || { echo "nothing is built in $build" && return 1; }
    "$build/tests/tools/$name" doc | cmp -s - "docs/$name.md" || echo "docs/$name.md is old: make docs"
  done
}
machine_paths() {
  git ls-files --cached --others --exclude-standard -z | xargs -0 -r grep -nIF "$top/" 2>/dev/null
  return 0
}

check layers layers
check "fcgi headers in two files only" fcgi_headers
check "banned symbols" banned_symbols
check "sql text only below sql/" sql_text
check "headers stand alone" headers_alone
check "headers say what they are for" header_guards
check format format
check "fuzz harnesses compile" fuzz_harnesses
check "scripts (shellcheck)" scripts
check "python parses" python_files
check "nginx -t" nginx_conf
check "generated documents" documents
check "no path of this machine" machine_paths
for more in tests/check/check_*.sh; do
  [ ! -f "$more" ] || check "${more##*/}" bash "$more" "$build"
done
long=$(every_product | xargs -r wc -l | awk '$2 != "total" && $1 > 800 { print "    " $2 ": " $1 " lines" }')
[ -z "$long" ] || printf '  files over 800 lines:\n%s\n' "$long"
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
