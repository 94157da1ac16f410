#!/usr/bin/env bash
# check_sql.sh BUILD: the schema and the statement catalogue against a fresh temporary MariaDB: migrations, grants, every statement
# prepared, collations, the plan of the claim (tests/tools/sql.c). Prints nothing when all is well.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tool=${1:-build}/tests/tools/sql
[ -x "$tool" ] || { echo "$tool is not built (make)" && exit 1; }
[ "$(id -u)" = 0 ] || { echo "needs root" && exit 1; }
dir=$(mktemp -d /tmp/cordon-sql-XXXXXX)
pid=
finish() {
  if [ -n "$pid" ]; then kill -TERM "$pid" 2>/dev/null && wait "$pid" 2>/dev/null; fi
  rm -rf "$dir"
}
trap finish EXIT
mariadb-install-db --no-defaults --user=root --datadir="$dir/db" --auth-root-authentication-method=socket --auth-root-socket-user=root \
  --skip-test-db --skip-name-resolve >"$dir/install.log" 2>&1 || { tail -n 20 "$dir/install.log" && exit 1; }
mariadbd --no-defaults --user=root --datadir="$dir/db" --socket="$dir/s" --pid-file="$dir/pid" --skip-networking \
  --innodb-flush-log-at-trx-commit=0 --innodb-buffer-pool-size=32M >"$dir/log" 2>&1 &
pid=$!
for ((i = 0; i < 300; i++)); do
  [ ! -S "$dir/s" ] || break
  sleep 0.1
done
[ -S "$dir/s" ] || { tail -n 20 "$dir/log" && exit 1; }
"$tool" "$dir/s" sql
