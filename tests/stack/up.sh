#!/usr/bin/env bash
# up.sh [BUILD]: starts the private stack of this tree (default BUILD: build). Harmless when repeated: what runs with the same
# files and settings is left alone, what changed is started again. `make down` stops it, `make clean-data` removes its data.
#
# It changes on the machine: packages (group stack of packages.txt), system users cordon-*, /var/lib/cordon-dev/<instance>
# and /run/cordon-dev/<instance>. CORDON_PORT chooses the port (default: the first free pair from 8443),
# CORDON_POLICY_TEMPLATE another policy than policy.yaml.in.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/stack/env.sh
. "$here/env.sh"
need_root up
build=$TOP/${1:-build}
lock_tree
umask 022

[ -x "$build/tests/tools/restart_loop" ] || fail "nothing is built in $build (make)"
bash "$here/packages.sh" stack

# --- users, folders ------------------------------------------------------------------------------

make_group() {
  getent group "$1" >/dev/null || { say "adding the system group $1" && groupadd --system "$1"; }
}
make_user() {
  make_group "$1"
  getent passwd "$1" >/dev/null || {
    say "adding the system user $1"
    useradd --system --gid "$1" --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin "$1"
  }
}
# member USER GROUP
member() { id -nG "$1" | tr ' ' '\n' | grep -qx "$2" || usermod --append --groups "$2" "$1"; }

make_users() {
  local user
  make_group cordon
  make_group cordon-notify
  make_group cordon-artifact
  for user in cordon-web cordon-gate cordon-run cordon-egress cordon-db; do
    make_user $user
    member $user cordon
  done
  for user in cordon-web cordon-gate cordon-run; do member $user cordon-notify; done
  for user in cordon-gate www-data; do member $user cordon-artifact; done
}

# folder PATH OWNER GROUP MODE
folder() { mkdir -p "$1" && chown "$2:$3" "$1" && chmod "$4" "$1"; }

# The link var names the data of this tree. After a reboot (or a move of the tree) the instance is a new one and takes over the
# data of the old one; what another tree left at this path is stopped, its data is kept.
take_over_earlier() {
  local old path inode
  for old in "$STACK_BASE"/*; do
    old=${old##*/}
    if [ "$old" = "$INSTANCE" ] || [ ! -f "$STACK_BASE/$old/tree" ]; then continue; fi
    { read -r path && read -r inode; } <"$STACK_BASE/$old/tree" || continue
    if [ "$inode" = "$TREE_INODE" ]; then
      bash "$here/down.sh" --instance "$old" 9<&-
      # inode numbers are used again: only our own link proves that the data is ours
      if [ "$(readlink "$TOP/var")" != "$STACK_BASE/$old" ]; then
        say "note: $STACK_BASE/$old is the data of a tree that is gone; remove it if nobody needs it"
      elif [ ! -e "$VAR" ]; then
        say "taking over the data of the earlier instance $old"
        mv "$STACK_BASE/$old" "$VAR"
      fi
    elif [ "$path" = "$TOP" ]; then
      if [ -d "$RUN_BASE/$old" ]; then bash "$here/down.sh" --instance "$old" 9<&-; fi
      say "note: $STACK_BASE/$old is the data of an earlier tree at this path; remove it if nobody needs it"
    fi
  done
}

make_folders() {
  if [ -e "$TOP/var" ] && [ ! -L "$TOP/var" ]; then fail "$TOP/var is no link"; fi
  take_over_earlier
  folder $STACK_BASE root root 755
  folder $RUN_BASE root root 755
  folder "$VAR" root root 755
  printf '%s\n%s\n' "$TOP" "$TREE_INODE" >"$VAR/tree"
  ln -sfn "$VAR" "$TOP/var"
  folder "$ETC" root root 755
  folder "$LOGS" root root 755
  folder "$OFF" root root 755
  folder "$VAR/tmp" root root 755
  folder "$VAR/tmp/db" cordon-db cordon-db 700
  folder "$VAR/tmp/nginx" www-data www-data 700
  folder "$DATA" root cordon 751
  folder "$DATA/spool" cordon-run cordon-gate 2750
  folder "$DATA/staging" cordon-web cordon-run 2770
  folder "$DATA/artifacts" cordon-run cordon-artifact 2750
  folder "$DATA/uploads" cordon-gate cordon-run 2770
  folder "$DATA/images" root root 755
  folder "$DATA/workspaces" root root 700
  folder "$RUN" root root 755
  folder "$PIDS" root root 755
  folder "$RUN/db" cordon-db cordon 750
  folder "$RUN/web" cordon-web www-data 2750
  folder "$RUN/gate" cordon-gate www-data 2750
  folder "$RUN/notify-gate" cordon-gate cordon-notify 2750
  folder "$RUN/notify-run" cordon-run cordon-notify 2750
  folder "$RUN/input-run" cordon-run cordon-gate 2750
  folder "$RUN/box" root cordon-run 2750
  folder "$RUN/agents" root cordon-run 2750
  rm -f "$OFF"/*
}

# --- port and user ids ---------------------------------------------------------------------------

port_is_free() {
  python3 - "$1" <<'PY'
import socket, sys
for port in (int(sys.argv[1]), int(sys.argv[1]) + 1):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("127.0.0.1", port))
PY
}

# A port that another stack has chosen, though its nginx may not listen yet.
port_is_promised() {
  local file
  for file in "$RUN_BASE"/*/port; do
    [ "$file" = "$RUN/port" ] || [ "$(cat "$file" 2>/dev/null)" != "$1" ] || return 0
  done
  return 1
}

choose_port() {
  local before="" lock
  exec {lock}<"$RUN_BASE"
  flock "$lock"
  [ ! -f "$ETC/port" ] || before=$(cat "$ETC/port")
  if loop_lives nginx && [ -n "$before" ] && [ "${CORDON_PORT:-$before}" = "$before" ]; then
    PORT=$before
    echo "$PORT" >"$RUN/port"
    exec {lock}<&-
    return
  fi
  if [ -n "${CORDON_PORT:-}" ]; then
    if ! [[ "$CORDON_PORT" =~ ^[1-9][0-9]{0,4}$ ]] || [ "$CORDON_PORT" -ge 65535 ]; then
      fail "CORDON_PORT=$CORDON_PORT is no port from 1 to 65534"
    fi
    PORT=$CORDON_PORT
    loop_lives nginx || port_is_free "$PORT" 2>/dev/null || fail "port $PORT or $((PORT + 1)) is in use"
  else
    PORT=8443
    while port_is_promised "$PORT" || ! port_is_free "$PORT" 2>/dev/null; do
      PORT=$((PORT + 2))
      [ $PORT -lt 9443 ] || fail "no free pair of ports from 8443 to 9443"
    done
  fi
  echo "$PORT" >"$ETC/port"
  echo "$PORT" >"$RUN/port"
  exec {lock}<&-
}

# A block of 2^22 ids from 0x10000000 up that no other instance has, whose lock no other cordon-box holds and that /etc/subuid does
# not give away.
choose_uids() {
  local n base file owner lock
  mkdir -p $RUN_BASE/uid
  exec 8<$RUN_BASE
  flock 8
  for ((n = 0; n < 512; n++)); do
    base=$((0x10000000 + n * (1 << 22)))
    file=$RUN_BASE/uid/$base
    owner=$(cat "$file" 2>/dev/null || true)
    if [ -n "$owner" ] && [ "$owner" != "$INSTANCE" ] && [ -d "$RUN_BASE/$owner" ]; then continue; fi
    # the name is the one of runners/exec/slot.c
    lock=$(printf '/run/cordon-box/uid-%x.lock' $base)
    if lock_is_held "$lock" && ! { [ "$owner" = "$INSTANCE" ] && loop_lives cordon-box &&
      grep -qsx "uid_base=$base" "$ETC/box.limits"; }; then continue; fi
    if awk -F: -v a=$base -v b=$((base + (1 << 22))) '$2 < b && $2 + $3 > a { hit = 1 } END { exit !hit }' \
      /etc/subuid /etc/subgid 2>/dev/null; then continue; fi
    echo "$INSTANCE" >"$file"
    UID_BASE=$base
    exec 8>&-
    return
  done
  fail "no free block of user ids"
}

# --- configuration -------------------------------------------------------------------------------

# render TEMPLATE FILE: replaces @NAME@; the file changes only when its text does
render() {
  sed -e "s|@PORT@|$PORT|g" -e "s|@RUN@|$RUN|g" -e "s|@VAR@|$VAR|g" -e "s|@DATA@|$DATA|g" -e "s|@UID_BASE@|$UID_BASE|g" \
    "$1" >"$2.new"
  if cmp -s "$2.new" "$2"; then rm -f "$2.new"; else mv "$2.new" "$2"; fi
}

make_certificate() {
  if [ -s "$ETC/tls.key" ] && openssl x509 -in "$ETC/tls.crt" -noout -checkend 604800 >/dev/null 2>&1; then return; fi
  say "making a self-signed certificate for localhost"
  (umask 077 && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 825 -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -addext basicConstraints=critical,CA:TRUE \
    -addext keyUsage=critical,digitalSignature,keyCertSign -addext extendedKeyUsage=serverAuth \
    -keyout "$ETC/tls.key" -out "$ETC/tls.crt") 2>/dev/null || fail "openssl cannot make the certificate"
  chmod 644 "$ETC/tls.crt"
}

make_configuration() {
  local template=${CORDON_POLICY_TEMPLATE:-$here/policy.yaml.in}
  # judged beside the live one: a file that is refused changes nothing
  render "$template" "$ETC/policy.yaml.try"
  "$build/tests/tools/policy" --policy "$ETC/policy.yaml.try" --check-config >"$ETC/policy.log" 2>&1 ||
    { sed "s|$ETC/policy.yaml.try|$template|" "$ETC/policy.log" >&2 && fail "the policy is refused; the one in force stays"; }
  rm -f "$ETC/policy.yaml.try" "$ETC/policy.log"
  render "$template" "$ETC/policy.yaml"
  (umask 077 && "$build/tests/tools/policy" --policy "$ETC/policy.yaml" box-limits >"$ETC/box.limits")
  render "$here/my.cnf.in" "$ETC/my.cnf"
  make_certificate
  CORDONCTL=$build/tests/tools/policy bash "$TOP/nginx/render.sh" "$ETC/nginx" POLICY="$ETC/policy.yaml" \
    LISTEN="127.0.0.1:$PORT" CERT="$ETC/tls.crt" KEY="$ETC/tls.key" TEMP="$VAR/tmp/nginx" ACCESS_LOG="$LOGS/access.json"
  if ! loop_lives nginx && [ "$(stat -c %s "$LOGS/access.json" 2>/dev/null || echo 0)" -gt $((64 << 20)) ]; then
    mv "$LOGS/access.json" "$LOGS/access.json.1"
  fi
  nginx -e stderr -t -q -c "$ETC/nginx/cordon.conf" || fail "nginx refuses its configuration"
}

# The tree may lie in a home that the programs' users cannot enter, and a rebuild must not pull a file from under a program.
install_programs() {
  local file
  folder "$BIN" root root 755
  for file in "$build"/bin/*; do
    if [ ! -f "$file" ] || cmp -s "$file" "$BIN/${file##*/}"; then continue; fi
    install -m 755 "$file" "$BIN/${file##*/}.new"
    mv "$BIN/${file##*/}.new" "$BIN/${file##*/}"
  done
}

# --- programs ------------------------------------------------------------------------------------

make_stack_group() {
  local name
  [ -n "$STACK_GROUP" ] || { say "note: no cgroup of our own here; make down finds processes by their environment" && return; }
  for name in "${STACK_PROGRAMS[@]}"; do
    mkdir -p "$STACK_GROUP/$name" || fail "cannot make the cgroup $STACK_GROUP/$name"
  done
}

group_is_empty() { [ -z "$(cat "$1")" ]; }

# what is left of a program whose loop died
clear_group() {
  local pid file=$STACK_GROUP/$1/cgroup.procs
  if [ -z "$STACK_GROUP" ] || group_is_empty "$file"; then return; fi
  say "removing what is left of $1"
  while read -r pid; do kill -KILL "$pid" 2>/dev/null || true; done <"$file"
  wait_for 10 group_is_empty "$file" || fail "what is left of $1 does not end"
}

# Leftovers of dead loops hold ports and sockets: they go before anything is chosen.
clear_dead() {
  local name
  [ -n "$STACK_GROUP" ] || return 0
  for name in "${STACK_PROGRAMS[@]}"; do loop_lives "$name" || [ ! -d "$STACK_GROUP/$name" ] || clear_group "$name"; done
}

hash_of() { "$@" | sha256sum | cut -c 1-16; }

# renew NAME STOP_SECONDS program|configuration: the loop and its sockets stay; a new configuration is read on HUP where the program does
# that, else the program is started anew
renew() {
  local name=$1 pid
  pid=$(pid_of "$name")
  case $3:$name in
  configuration:cordon-fcgi | configuration:cordon-gate | configuration:nginx)
    say "$name has a new configuration: reloading it"
    kill -HUP "$(cat "$PIDS/$name.loop")"
    ;;
  *)
    say "$name has changed: starting it anew"
    [ -z "$pid" ] || kill -TERM "$pid" 2>/dev/null || true
    new_pid() { [ -n "$(pid_of "$name")" ] && [ "$(pid_of "$name")" != "$pid" ]; }
    wait_for $(($2 + 5)) new_pid || fail "$name does not start anew"
    ;;
  esac
}

# SOCKETS: WORD=PATH pairs that the loop of the next start listens on for its program, as a socket unit does
SOCKETS=()

# start NAME STOP_SECONDS kill|keep USER|root FILES -- COMMAND...: under a restart loop, unless it already runs just like that. kill or
# keep: what becomes of its process group when it ends. FILES: configuration whose change means a new start.
start() {
  local name=$1 stop_s=$2 rest=$3 user=$4 stamp before pid socket
  local -a files command group sockets
  sockets=()
  for socket in "${SOCKETS[@]}"; do sockets+=(--socket "$socket"); done
  SOCKETS=()
  shift 4
  while [ "$1" != -- ]; do
    files+=("$1")
    shift
  done
  shift
  command=("$@")
  if [ ! -x "${command[0]}" ]; then
    say "left out: $name (${command[0]} is not built)"
    return
  fi
  # three parts: how it is called, the program, its configuration
  stamp="$(hash_of printf '%s\n' "$user" "$stop_s" "${sockets[@]}" "${command[@]}") $(hash_of cat "${command[0]}") \
$(hash_of sha256sum "${files[@]}")"
  if loop_lives "$name"; then
    before=$(cat "$PIDS/$name.stamp" 2>/dev/null || true)
    if [ "$stamp" = "$before" ]; then
      say "$name runs already"
      return
    fi
    if [ "${stamp%% *}" = "${before%% *}" ]; then
      renew "$name" "$stop_s" "$([ "${stamp% *}" = "${before% *}" ] && echo configuration || echo program)"
      echo "$stamp" >"$PIDS/$name.stamp"
      return
    fi
    say "$name is called in another way now: stopping it"
    pid=$(cat "$PIDS/$name.loop")
    kill -TERM "$pid"
    wait_for $((stop_s + 5)) test ! -d "/proc/$pid" || fail "$name does not stop"
  fi
  clear_group "$name"
  say "starting $name"
  [ "$user" = root ] || command=(/usr/bin/setpriv --reuid "$user" --regid "$user" --init-groups "${command[@]}")
  group=()
  [ -z "$STACK_GROUP" ] || group=(--cgroup "$STACK_GROUP/$name")
  env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 CORDON_STACK="$INSTANCE" \
    "$build/tests/tools/restart_loop" --name "$name" --log "$LOGS/$name.log" --pids "$PIDS" --off "$OFF" \
    "${group[@]}" "${sockets[@]}" --stop-s "$stop_s" --rest "$rest" -- "${command[@]}" || fail "cannot start $name"
  echo "$stamp" >"$PIDS/$name.stamp"
}

# ready NAME SECONDS COMMAND...: waits, and shows the end of the log when it does not come
ready() {
  local name=$1
  [ -e "$PIDS/$name.loop" ] || return 0
  shift
  wait_for "$@" && return
  tail -n 20 "$LOGS/$name.log" >&2
  fail "$name is not ready after $1 s (log: $LOGS/$name.log)"
}

sql() { mariadb --no-defaults --default-character-set=utf8mb4 --socket="$RUN/db/mariadb.sock" --batch --skip-column-names "$@"; }

make_database() {
  if [ ! -d "$VAR/db/mysql" ]; then
    say "making the database (a few seconds)"
    folder "$VAR/db" cordon-db cordon-db 700
    mariadb-install-db --no-defaults --user=cordon-db --datadir="$VAR/db" --auth-root-authentication-method=socket \
      --auth-root-socket-user=root --skip-test-db --skip-name-resolve >"$LOGS/install-db.log" 2>&1 ||
      { tail -n 20 "$LOGS/install-db.log" >&2 && rm -rf "$VAR/db" && fail "mariadb-install-db failed"; }
  fi
  start mariadb 60 kill cordon-db "$ETC/my.cnf" -- /usr/sbin/mariadbd --defaults-file="$ETC/my.cnf"
  ready mariadb 60 sql -e "SELECT 1"
  sql -e "CREATE DATABASE IF NOT EXISTS cordon CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"
  if [ -x "$BIN/cordonctl" ]; then
    (cd "$TOP" && "$BIN/cordonctl" --policy "$ETC/policy.yaml" migrate) || fail "the migrations failed"
  else
    say "left out: migrations (cordonctl is not built)"
  fi
}

# key TENANT USER ROLE: makes an API key and prints it
make_key() {
  "$BIN/cordonctl" --policy "$ETC/policy.yaml" key create --tenant "$1" --user "$2" --role "$3" --json |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["key"])'
}

make_env() {
  local api="" admin="" other=""
  if [ -s "$ETC/keys" ]; then
    { read -r api && read -r admin && read -r other; } <"$ETC/keys"
  elif [ -x "$BIN/cordonctl" ]; then
    say "making API keys"
    api=$(make_key dev dev user)
    admin=$(make_key dev operator operator)
    other=$(make_key other other user)
    (umask 077 && printf '%s\n' "$api" "$admin" "$other" >"$ETC/keys")
  fi
  (
    umask 077
    cat >"$VAR/dev.env.new" <<ENV
CORDON_URL=https://localhost:$PORT
CORDON_CA=$ETC/tls.crt
CORDON_API_KEY=$api
CORDON_ADMIN_KEY=$admin
CORDON_OTHER_KEY=$other
ENV
  )
  mv "$VAR/dev.env.new" "$VAR/dev.env"
}

make_users
make_folders
clear_dead
choose_port
choose_uids
make_configuration
install_programs
make_stack_group
make_database
start cordon-box 20 keep root "$ETC/box.limits" -- \
  "$BIN/cordon-box" --run-dir "$RUN" --data-dir "$DATA" --instance "$INSTANCE" --limits "$ETC/box.limits"
SOCKETS=("control-fd=$RUN/gate/control.sock" "bytes-fd=$RUN/gate/bytes.sock")
start cordon-gate 20 kill cordon-gate "$ETC/policy.yaml" -- "$BIN/cordon-gate" --policy "$ETC/policy.yaml"
ready cordon-box 20 test -S "$RUN/box/box.sock"
start cordon-runner 30 kill cordon-run "$ETC/policy.yaml" -- "$BIN/cordon-runner" --policy "$ETC/policy.yaml"
SOCKETS=("socket-fd=$RUN/web/fcgi.sock")
start cordon-fcgi 40 kill cordon-web "$ETC/policy.yaml" -- "$BIN/cordon-fcgi" --policy "$ETC/policy.yaml"
ready cordon-gate 20 test -S "$RUN/gate/control.sock" -a -S "$RUN/gate/bytes.sock"
ready cordon-runner 20 test -S "$RUN/notify-run/runner.sock"
ready cordon-fcgi 20 test -S "$RUN/web/fcgi.sock"
web_answers_or_has_no_port() {
  curl -s -o /dev/null --max-time 3 --cacert "$ETC/tls.crt" "https://localhost:$PORT/" || tail -c "+$((log_bytes + 1))" "$LOGS/nginx.log" | grep -q 'Address already in use'
}
log_bytes=$(stat -c %s "$LOGS/nginx.log" 2>/dev/null || echo 0)
start nginx 20 kill root "$ETC"/nginx/* "$ETC/tls.crt" -- /usr/sbin/nginx -e stderr -c "$ETC/nginx/cordon.conf"
# somebody took the port between the choice and now
if [ -z "${CORDON_PORT:-}" ] && [ "${CORDON_UP_TRY:-1}" -lt 5 ] && wait_for 20 web_answers_or_has_no_port &&
  ! curl -s -o /dev/null --max-time 3 --cacert "$ETC/tls.crt" "https://localhost:$PORT/"; then
  say "port $PORT was taken meanwhile: choosing another one"
  pid=$(cat "$PIDS/nginx.loop")
  kill -TERM "$pid"
  wait_for 25 test ! -d "/proc/$pid" || fail "nginx does not stop"
  CORDON_UP_TRY=$((${CORDON_UP_TRY:-1} + 1)) exec bash "$0" "$@" 9<&-
fi
ready nginx 20 curl -s -o /dev/null --max-time 3 --cacert "$ETC/tls.crt" "https://localhost:$PORT/"
make_env
say "up: https://localhost:$PORT (instance $INSTANCE); settings for clients: var/dev.env"
