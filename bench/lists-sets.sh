#!/usr/bin/env bash
# Measures commands on lists and sets against Redis 7 and Valkey 9, over RESP by
# redis-benchmark, and prints a Markdown table of the server's CPU for each
# operation: medians of the rounds, in each of which every server has its turn
# at every command. Ratios are taken within a round.
#
#   bench/lists-sets.sh               five rounds
#   bench/lists-sets.sh --short       one round of few operations, to see that it works
#   --rounds N                        so many rounds
#   --only "lpush sadd"               only these rows
#   --binary PATH                     another build of `remora` takes part too
#
# 50 connections, one request or 16 at a time; SINTER of large sets by one connection. Elements
# and members have 20 bytes. The list that LRANGE reads has 5,000 elements; the
# large sets have 100,000 members each, of which half are in both; the small one has 100. SISMEMBER
# finds half of what it asks for. The server has one core, its clients another one.
# Needs redis-server, redis-cli and redis-benchmark, python3 with venv, taskset.
# Progress goes to standard error.
set -euo pipefail

rounds=5 divisor=1 only="" binary=""
usage() { sed -n '/^#   bench/,/^#   --binary/s/^#   //p' "$0" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case "$1" in
    --short) rounds=1 divisor=20 ;;
    --rounds) rounds="${2:?}"; shift ;;
    --only) only="${2:?}"; shift ;;
    --binary) binary="$(realpath "${2:?}")"; shift ;;
    *) usage ;;
  esac
  shift
done
# shellcheck source=bench/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=bench/servers.sh
. "$(dirname "$0")/servers.sh"
needs_tools
start_bench
find_cores
share_cores $((total / 2))
install_peers

start_redis redis7 "Redis $(version redis-server)" "$(command -v redis-server)"
start_redis valkey "Valkey $(version "$valkey")" "$valkey"
start_remora one 1
if [ -n "$binary" ]; then
  this="$remora" remora="$binary"
  start_remora other 1
  remora="$this"
fi

# members COMMAND KEY FROM TO: inline commands of 20 bytes' words.
members() { awk -v c="$1" -v k="$2" -v i="$3" -v n="$4" 'BEGIN { for (; i < n; i++) printf "%s %s element:%012d\r\n", c, k, i }'; }
for name in "${servers[@]}"; do
  say "loading: ${title[$name]}"
  { members RPUSH list 0 5000; members SADD one 0 100000; members SADD two 50000 150000; members SADD small 49950 50050; } |
    redis-cli -p "${port[$name]}" --pipe >"$work/load" 2>&1
  [ "$(redis-cli -p "${port[$name]}" scard two)" = 100000 ] || { cat "$work/load" >&2; exit 1; }
done

# What is run: name, connections, requests one at a time, requests 16 at a time (0: not), range of random
# numbers, and the command.
rows=(
  "lpush 50 100000 400000 1000000000 LPUSH queue element:__rand_int__"
  "rpop 50 100000 400000 1000000000 RPOP queue"
  "lrange 50 40000 80000 1 LRANGE list 0 99"
  "lrange-middle 50 40000 80000 1 LRANGE list 2450 2549"
  "sadd 50 100000 400000 1000000 SADD grown element:__rand_int__"
  "sismember 50 100000 400000 200000 SISMEMBER one element:__rand_int__"
  "sinter 1 20 0 1 SINTER one two"
  "sinter-small 50 40000 80000 1 SINTER small one"
)

declare -A cpu
# turn NAME CASE CONNECTIONS PIPELINE REQUESTS RANGE COMMAND...: one server's turn at one case.
turn() {
  local name="$1" case="$2" before after number="$5"
  before="$(cpu_ns "$name")"
  taskset -c "$on_client" redis-benchmark -h 127.0.0.1 -p "${port[$name]}" -c "$3" -P "$4" -n "$number" -r "$6" \
    --csv "${@:7}" >"$work/load" 2>&1 || { cat "$work/load" >&2; exit 1; }
  after="$(cpu_ns "$name")"
  cpu["$name"]="$(awk -v d=$((after - before)) -v n="$number" 'BEGIN { printf "%.5f", d / n / 1000 }')"
  keep "$case.$name.cpu" "${cpu[$name]}"
  keep "$case.$name.rate" "$(tail -n 1 "$work/load" | tr -d '"' | awk -F, '{ print $(NF - 6) }')"
}

cases=()
for round in $(seq "$rounds"); do
  for name in "${servers[@]}"; do redis-cli -p "${port[$name]}" del queue grown >/dev/null; done
  # One row after another, so that RPOP finds what LPUSH brought.
  for row in "${rows[@]}"; do
    read -r what connections single batched range words <<<"$row"
    [ -z "$only" ] || [[ " $only " == *" $what "* ]] || continue
    for pipeline in 1 16; do
      number=$((single / divisor))
      if [ "$pipeline" = 16 ]; then number=$((batched / divisor)); fi
      if [ "$number" = 0 ]; then continue; fi
      say "round $round of $rounds, $what, $pipeline at a time"
      case="$what.$pipeline"
      # shellcheck disable=SC2086
      for name in "${servers[@]}"; do turn "$name" "$case" "$connections" "$pipeline" "$number" "$range" $words; done
      for name in "${servers[@]}"; do
        for peer in redis7 valkey; do keep "$case.$name.of_$peer" "$(ratio "${cpu[$name]}" "${cpu[$peer]}")"; done
      done
      if [ "$round" = 1 ]; then cases+=("$case|$words, P $pipeline"); fi
    done
  done
done

echo "$(machine). Server on core(s) $on_server, clients on $on_client; medians of $rounds round(s)."
echo
echo "| | ${title[redis7]} | ${title[valkey]} | Remora: CPU us/op | of Redis's | of Valkey's |${binary:+ the other | of Redis's | of Valkey's |}"
echo "| --- | --- | --- | --- | --- | --- |${binary:+ --- | --- | --- |}"
for each in "${cases[@]}"; do
  key="${each%%|*}"
  figure() { printf " %.2f |" "$(median "$key.$1")"; }
  printf '| %s |' "${each#*|}"
  for name in redis7.cpu valkey.cpu one.cpu one.of_redis7 one.of_valkey; do figure "$name"; done
  if [ -n "$binary" ]; then for name in cpu of_redis7 of_valkey; do figure "other.$name"; done; fi
  echo
done
