#!/usr/bin/env bash
# generate.sh statements.sql: writes the C header with one enum value, text and parameter count per statement.
set -euo pipefail
awk '
function flush() {
  if (name == "") return
  gsub(/[ \n]+/, " ", text); sub(/^ /, "", text); sub(/; *$/, "", text)
  if (text == "") { print "generate.sh: no text for " name > "/dev/stderr"; exit 1 }
  if (name in seen) { print "generate.sh: two statements named " name > "/dev/stderr"; exit 1 }
  seen[name] = 1
  bare = text; gsub(/\047[^\047]*\047/, "", bare); count = gsub(/\?/, "?", bare)
  gsub(/\\/, "\\\\", text); gsub(/"/, "\\\"", text)
  names[n] = name; texts[n] = text; counts[n] = count; n++
  name = ""; text = ""
}
BEGIN { n = 0 }
/^-- name: / { flush(); name = $3; next }
/^--/ { next }
{ if (name != "") text = text " " $0 }
END {
  flush()
  print "/* Generated from sql/statements.sql. */"
  print "#ifndef CORDON_STATEMENTS_H\n#define CORDON_STATEMENTS_H\n"
  print "enum statement {"
  for (i = 0; i < n; i++) print "\tSTMT_" names[i] ","
  print "\tSTMT__MAX\n};\n"
  print "#define STATEMENT_TABLE \\"
  for (i = 0; i < n; i++)
    print "\t[STMT_" names[i] "] = {\"" names[i] "\", \"" texts[i] "\", " counts[i] "}" (i < n - 1 ? ", \\" : "")
  print "\n#endif"
}' "$1"
