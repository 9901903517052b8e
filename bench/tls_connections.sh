#!/usr/bin/env bash
# Measures many TLS connections: memory of idle ones, the CPU of a server that has thousands of them, and busy
# ones among them. Prints a Markdown table: medians of the rounds, in each of which Redis with TLS and Remora without
# and with TLS have their turn.
#
#   bench/tls_connections.sh        three rounds, about five minutes
#   --short                         one round of few connections, to see that it works
#   --rounds N                      so many rounds
#   --connections N                 [10000, the most that Remora takes]
#   --busy N                        so many of them [1000]
#
# Each connection asks once. Then all are idle, for ten seconds. Then the busy ones ask, all at once, a hundred times,
# and at last each of all asks once more. What the kernel keeps for a socket is not counted.
# The clients are one process of Python. Needs openssl, redis-server and python3, and some more open files than connections.
# Progress goes to standard error.
set -euo pipefail

rounds=3 connections=10000 busy=1000
usage() { sed -n '/^#   bench/,/^#   --busy/s/^#   //p' "$0" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case "$1" in
    --short) rounds=1 connections=500 busy=100 ;;
    --rounds) rounds="${2:?}"; shift ;;
    --connections) connections="${2:?}"; shift ;;
    --busy) busy="${2:?}"; shift ;;
    *) usage ;;
  esac
  shift
done
# shellcheck source=bench/lib.sh
. "$(dirname "$0")/lib.sh"
ulimit -n "$(ulimit -Hn)"
start_bench
for round in $(seq "$rounds"); do
  say "round $round of $rounds"
  python3 bench/tls_connections.py "$remora" "$connections" "$busy" >"$work/round"
  while read -r server figure value; do keep "$server.$figure" "$value"; done <"$work/round"
done

echo "$connections connections, $busy of them busy later; rounds: $rounds; $(machine)."
echo
echo "| Server | bytes for an idle connection | server CPU of ten idle seconds | answers to the busy ones | rate | server CPU for an answer |"
echo "| --- | --- | --- | --- | --- | --- |"
for server in redis_tls:"Redis, TLS" remora:"Remora" remora_tls:"Remora, TLS"; do
  of="${server%%:*}"
  printf '| %s | %.0f | %.1f ms | %.0f of %d | %s | %.1f us |\n' "${server#*:}" "$(median "$of.bytes")" \
    "$(median "$of.idle_cpu_ms")" "$(median "$of.answers")" "$((busy * 100))" "$(rate "$(median "$of.rate")")" \
    "$(median "$of.cpu_us")"
done
