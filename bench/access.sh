#!/usr/bin/env bash
# Measures what rights and TLS 1.3 cost: the server's CPU for each GET by a user who may do all, by one with rules
# about commands and keys, and over TLS, beside Redis 7 and Valkey 9 with the same, over RESP by redis-benchmark.
# Prints a Markdown table; medians of the rounds, ratios taken within a round.
#
#   bench/access.sh              five rounds
#   bench/access.sh --short      one round of few operations, to see that it works
#   --rounds N                   so many rounds
#
# 50 connections, one request or 16 at a time, 100,000 keys with values of 32 bytes. A peer that was built
# without TLS has none here.
# Needs redis-server, redis-cli and redis-benchmark with TLS, openssl, python3 with venv, taskset.
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
needs_tools
start_bench
find_cores
share_cores $((total / 2))
install_peers

make_certificates
tls_peers=()
# start_tls_redis NAME TITLE BINARY: only if it speaks TLS.
start_tls_redis() {
  port["$1"]="$(free_port)"
  local flags=(--port 0 --tls-port "${port[$1]}" --bind 127.0.0.1 --save "" --appendonly no --dir "$work"
    --tls-cert-file "$work/server.pem" --tls-key-file "$work/server.key" --tls-ca-cert-file "$work/ca.pem"
    --tls-auth-clients no)
  # One that does not speak it ends by itself.
  local status=0
  timeout 1 "$3" "${flags[@]}" >"$work/probe.log" 2>&1 || status=$?
  if [ "$status" != 124 ]; then
    say "$2: it does not speak TLS"
    return
  fi
  start "$1" "$2" "$3" "${flags[@]}"
  tls_peers+=("$1")
}
start_redis redis "Redis $(version redis-server)" "$(command -v redis-server)"
start_redis valkey "Valkey $(version "$valkey")" "$valkey"
start_remora remora 1
start_tls_redis redis-tls "Redis $(version redis-server), TLS" "$(command -v redis-server)"
start_tls_redis valkey-tls "Valkey $(version "$valkey"), TLS" "$valkey"
start_remora_tls remora-tls

encrypted=(--tls --cacert "$work/ca.pem")
records=$((100000 / divisor))
for name in "${servers[@]}"; do
  flags=()
  [[ "$name" != *-tls ]] || flags=("${encrypted[@]}")
  say "loading: ${title[$name]}"
  awk -v n="$records" 'BEGIN { for (i = 0; i < n; i++) printf "SET key:%012d %032d\r\n", i, i }' |
    redis-cli "${flags[@]}" -p "${port[$name]}" --pipe >"$work/load" 2>&1
  redis-cli "${flags[@]}" -p "${port[$name]}" acl setuser limited on ">pass" "~key:*" "~session:*" "%R~shared:*" \
    +@read +@write -@dangerous >"$work/load" 2>&1
  grep -q OK "$work/load" || { cat "$work/load" >&2; exit 1; }
done

# turn SERVER CASE PIPELINE REQUESTS FLAGS...: one server's turn; its CPU per GET, in us.
turn() {
  local name="$1" before after
  before="$(cpu_ns "$name")"
  taskset -c "$on_client" redis-benchmark -h 127.0.0.1 -p "${port[$name]}" "${@:5}" -c 50 -P "$3" -n "$4" \
    -r "$records" --csv GET key:__rand_int__ >"$work/load" 2>&1 || { cat "$work/load" >&2; exit 1; }
  after="$(cpu_ns "$name")"
  us="$(awk -v d=$((after - before)) -v n="$4" 'BEGIN { printf "%.5f", d / n / 1000 }')"
  keep "$2.${name%-tls}" "$us"
}
# beside CASE PIPELINE REQUESTS SUFFIX FLAGS...: all servers, and Remora's share of each peer's CPU.
beside() {
  local case="$1.$2" peer
  turn "remora$4" "$case" "$2" "$3" "${@:5}"
  local own="$us"
  for peer in redis valkey; do
    [[ -z "$4" || " ${tls_peers[*]} " == *" $peer$4 "* ]] || continue
    turn "$peer$4" "$case" "$2" "$3" "${@:5}"
    keep "$case.of_$peer" "$(ratio "$own" "$us")"
  done
}
for round in $(seq "$rounds"); do
  for pipeline in 1 16; do
    say "round $round of $rounds, $pipeline at a time"
    requests=$(((pipeline == 1 ? 400000 : 3200000) / divisor))
    beside all "$pipeline" "$requests" ""
    beside rights "$pipeline" "$requests" "" --user limited -a pass
    beside tls "$pipeline" "$((requests / 2))" -tls "${encrypted[@]}"
  done
done

shown() { if [ -e "$work/all.$1" ]; then printf " %.2f |" "$(median "$1")"; else printf " |"; fi; }
echo "$(machine). Server on core(s) $on_server, clients on $on_client; medians of $rounds round(s)."
echo
echo "| GET | ${title[redis]} | ${title[valkey]} | Remora: CPU us/op | of Redis's | of Valkey's |"
echo "| --- | --- | --- | --- | --- | --- |"
for each in "all|by a user who may do all" "rights|by a user with rules about commands and keys" "tls|over TLS 1.3"; do
  for pipeline in 1 16; do
    key="${each%%|*}.$pipeline"
    printf '| %s, P %s |' "${each#*|}" "$pipeline"
    for name in redis valkey remora of_redis of_valkey; do shown "$key.$name"; done
    echo
  done
done
