#!/usr/bin/env bash
# Measures what TLS 1.3 costs sessions over TCP: the server's CPU for each lookup that is asked for and that is
# read, one at a time and 16 at a time, without and with TLS. Prints a Markdown table; medians of the rounds,
# ratios taken within a round.
#
#   bench/tls_sessions.sh        five rounds
#   bench/tls_sessions.sh --short  one round of few operations, to see that it works
#   --rounds N                   so many rounds
#
# One client, 100,000 keys with values of 32 bytes. Needs openssl, python3, taskset.
set -euo pipefail
rounds=5 divisor=1
while [ $# -gt 0 ]; do
  case "$1" in
    --short) rounds=1 divisor=20 ;;
    --rounds) rounds="${2:?}"; shift ;;
    *) sed -n '/^#   bench/,/^#   --rounds/s/^#   //p' "$0" >&2; exit 2 ;;
  esac
  shift
done
# shellcheck source=bench/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=bench/servers.sh
. "$(dirname "$0")/servers.sh"
# shellcheck source=bench/certificates.sh
. "$(dirname "$0")/certificates.sh"
start_bench
find_cores
share_cores $((total / 2))
make_certificates

start_remora plain 1
start_remora_tls encrypted --fabric-address 127.0.0.1:0
prefix=(taskset -c "$on_client")

# turn NAME PATH BATCH OPS: the server's CPU of one lookup, us.
turn() {
  local ca=""
  [ "$1" = plain ] || ca="$work/ca.pem"
  REMORA_TLS_CA="$ca" run "$1" --server "127.0.0.1:${port[$1]}" --transport tcp --path "$2" --batch "$3" --ops "$4" \
    --records 100000 --reads 1
  us="$(field "$1" server_cpu_us_per_op)"
  keep "$2.$3.$1" "$us"
}
for round in $(seq "$rounds"); do
  for batch in 1 16; do
    for path in ask read; do
      say "round $round of $rounds: $path, $batch at a time"
      ops=$(((batch == 1 ? 200000 : 1600000) / divisor))
      turn plain "$path" "$batch" "$ops"
      plain="$us"
      turn encrypted "$path" "$batch" "$ops"
      keep "$path.$batch.ratio" "$(ratio "$us" "$plain")"
    done
  done
done

echo "$(machine). Server on core(s) $on_server, the client on $on_client; medians of $rounds round(s)."
echo
echo "| Lookups over TCP | server CPU us/op | with TLS 1.3 | ratio |"
echo "| --- | --- | --- | --- |"
for path in ask read; do
  for batch in 1 16; do
    key="$path.$batch"
    printf '| %s, %s at a time | %.2f | %.2f | %.2f |\n' "$path" "$batch" "$(median "$key.plain")" \
      "$(median "$key.encrypted")" "$(median "$key.ratio")"
  done
done
