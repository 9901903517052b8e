# Sourced by the scripts that measure commands against Redis 7 and Valkey 9, over RESP by redis-benchmark: their
# flags, the servers, turns and the table. Medians of the rounds are shown, in each of which every server has
# its turn at every command; ratios are taken within a round. The server has one core, its clients another one.
#
# A script loads the servers with `load_all FUNCTION`, whose function writes inline commands; names what is run in
# `rows`; and calls `measure_rows [FUNCTION]`, whose function prepares the server of this name for a round. A row:
# name, connections, requests one at a time, requests 16 at a time (0: not), range of random numbers, command.
# Needs redis-server, redis-cli and redis-benchmark, python3 with venv, taskset.
# shellcheck shell=bash
# What the scripts beside it have.
# shellcheck disable=SC2154

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

# load NAME FUNCTION: what the function writes goes to a server.
load() {
  "$2" | redis-cli -p "${port[$1]}" --pipe >"$work/load" 2>&1
  grep -q "errors: 0," "$work/load" || { cat "$work/load" >&2; exit 1; }
}
# load_all FUNCTION
load_all() {
  local name
  for name in "${servers[@]}"; do
    say "loading: ${title[$name]}"
    load "$name" "$1"
  done
}

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

rows=() cases=()
# all_turns CASE WHAT CONNECTIONS PIPELINE REQUESTS RANGE COMMAND...: each server's turn at one case of a round.
all_turns() {
  local case="$1" name peer
  say "round $round of $rounds, $2, $4 at a time"
  for name in "${servers[@]}"; do turn "$name" "$case" "${@:3}"; done
  for name in "${servers[@]}"; do
    for peer in redis7 valkey; do keep "$case.$name.of_$peer" "$(ratio "${cpu[$name]}" "${cpu[$peer]}")"; done
  done
  if [ "$round" = 1 ]; then cases+=("$case|${*:7}, P $4"); fi
}

# measure_rows [PREPARE]: runs all rows in each round, and prints the table.
measure_rows() {
  local round name row what connections single batched range words pipeline number
  for round in $(seq "$rounds"); do
    for name in "${servers[@]}"; do "${1:-:}" "$name"; done
    # One row after another, so that one finds what another one brought.
    for row in "${rows[@]}"; do
      read -r what connections single batched range words <<<"$row"
      [ -z "$only" ] || [[ " $only " == *" $what "* ]] || continue
      for pipeline in 1 16; do
        number="$single"
        if [ "$pipeline" = 16 ]; then number="$batched"; fi
        if [ "$number" = 0 ]; then continue; fi
        number=$((number < divisor ? 1 : number / divisor))
        # shellcheck disable=SC2086
        all_turns "$what.$pipeline" "$what" "$connections" "$pipeline" "$number" "$range" $words
      done
    done
  done
  print_table
}

print_table() {
  local each key name
  echo "$(machine). Server on core(s) $on_server, clients on $on_client; medians of $rounds round(s)."
  echo
  echo "| | ${title[redis7]} | ${title[valkey]} | Remora: CPU us/op | of Redis's | of Valkey's |${binary:+ the other | of Redis's | of Valkey's |}"
  echo "| --- | --- | --- | --- | --- | --- |${binary:+ --- | --- | --- |}"
  for each in "${cases[@]}"; do
    key="${each%%|*}"
    printf '| %s |' "${each#*|}"
    for name in redis7.cpu valkey.cpu one.cpu one.of_redis7 one.of_valkey; do printf " %.2f |" "$(median "$key.$name")"; done
    if [ -n "$binary" ]; then
      for name in cpu of_redis7 of_valkey; do printf " %.2f |" "$(median "$key.other.$name")"; done
    fi
    echo
  done
}
