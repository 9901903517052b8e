#!/usr/bin/env bash
# Measures what keeping data costs: rates and CPU time of each durability, YCSB-A over rings,
# restarts, and snapshots under writes, all beside Redis 7 on the same disk. Prints Markdown
# tables: medians of the rounds, in each of which every server has its turn. Ratios are taken
# within a round; every second round begins with the last server.
#
#   bench/durability.sh             all parts, five rounds, about twenty minutes
#   bench/durability.sh rates       one part: rates, ycsb, recovery or snapshot
#   --quick                         three rounds of less work, about six minutes
#   --short                         one round of little work, to see that it works
#   --rounds N                      so many rounds
#   --records N                     of restarts and snapshots
#   --dir DIR                       a directory on the disk to measure [default: $TMPDIR, or /tmp]
#
# Nothing is pinned: logs are written by other threads than those that serve. CPU time is that of
# all threads of the server's process. Needs redis-server, redis-cli, redis-benchmark and python3.
# Progress goes to standard error.
set -euo pipefail

rounds=5 requests=200000 seconds=5 records=5000000 snapshot_records=2000000 parts=()
usage() { sed -n '/^#   bench/,/^#   --dir/s/^#   //p' "$0" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case "$1" in
    rates | ycsb | recovery | snapshot) parts+=("$1") ;;
    --quick) rounds=3 requests=100000 seconds=2 records=2000000 snapshot_records=1000000 ;;
    --short) rounds=1 requests=5000 seconds=0.2 records=50000 snapshot_records=50000 ;;
    --rounds) rounds="${2:?}"; shift ;;
    --records) records="${2:?}" snapshot_records="$2"; shift ;;
    --dir) export TMPDIR="${2:?}"; shift ;;
    *) usage ;;
  esac
  shift
done
[ ${#parts[@]} -gt 0 ] || parts=(rates ycsb recovery snapshot)
# shellcheck source=bench/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=bench/servers.sh
. "$(dirname "$0")/servers.sh"
needs_tools
start_bench
# Used by servers.sh.
# shellcheck disable=SC2034
python=python3
find_cores
on_server="$(among 0 "$total")"

# serve_remora NAME TITLE [FLAGS...] and serve_redis start a server; `kept` and `logged` one whose
# data lie in $work/NAME. `end NAME` kills it.
serve_remora() {
  port["$1"]="$(free_port)"
  start "$1" "$2" "$remora" serve --shards 1 --pin=false --max-memory 4GiB --socket "$work/$1.socket" \
    --bind 127.0.0.1 --port "${port[$1]}" --snapshot-log-bytes 64GiB "${@:3}"
}
serve_redis() {
  mkdir -p "$work/$1"
  port["$1"]="$(free_port)"
  start "$1" "$2" redis-server --port "${port[$1]}" --bind 127.0.0.1 --dir "$work/$1" --save "" \
    --auto-aof-rewrite-percentage 0 "${@:3}"
}
kept() { serve_remora "$1" "$2" --data-dir "$work/$1" --durability "${@:3}"; }
logged() { serve_redis "$1" "$2" --appendonly yes --appendfsync "${@:3}"; }
end() { end_process "${pid[$1]}"; }
end_process() {
  local process left=()
  kill -9 "$1"
  wait "$1" 2>/dev/null || true
  for process in "${pids[@]}"; do [ "$process" = "$1" ] || left+=("$process"); done
  pids=("${left[@]}")
}
drop() { end "$1"; rm -rf "${work:?}/$1"; }
info() { redis-cli -p "${port[$1]}" info | tr -d '\r' | sed -n "s/^$2://p"; }
# cell KEY DECIMALS and last KEY: the median, and this round's figure.
cell() { printf "%.$2f" "$(median "$1")"; }
last() { tail -n 1 "$work/all.$1"; }
# against KEY ONE OTHER FIGURE: keeps this round's ratio.
against() { keep "$1" "$(ratio "$(last "$2.$4")" "$(last "$3.$4")")"; }
# turns NAME...: the names, from the last one in every second round.
turns() { if [ $((round % 2)) = 1 ]; then echo "$@"; else printf '%s\n' "$@" | tac; fi; }

# launch NAME: by its name.
launch() {
  case "$1" in
    none) serve_remora "$1" "Remora, nothing kept" ;;
    memory | everysec | fsync) kept "$1" "Remora, $1" "$1" ;;
    redis_none) serve_redis "$1" "Redis, nothing kept" ;;
    redis_everysec | redis_always) logged "$1" "Redis, ${1#redis_}" "${1#redis_}" ;;
  esac
}

# one_rate NAME PIPELINE: SETs of 100 bytes by 64 connections.
one_rate() {
  local number=$((requests * ($2 > 1 ? 4 : 1))) before line
  case "$1" in fsync | redis_always) number=$((number / 4)) ;; esac
  before="$(cpu_ns "$1")"
  line="$(redis-benchmark -p "${port[$1]}" -t set -c 64 -P "$2" -n "$number" -r 100000 -d 100 --csv 2>"$work/load" | tail -n 1)"
  keep "rates.$1.$2.cpu" "$(awk -v d=$(($(cpu_ns "$1") - before)) -v n="$number" 'BEGIN { printf "%.4f", d / n / 1000 }')"
  keep "rates.$1.$2.rate" "$(echo "$line" | tr -d '"' | cut -d, -f2)"
}
rated=(none memory everysec fsync redis_none redis_everysec redis_always)
rates() {
  local name pipeline
  for name in $(turns "${rated[@]}"); do
    launch "$name"
    for pipeline in 1 16; do one_rate "$name" "$pipeline"; done
    drop "$name"
  done
  for pipeline in 1 16; do
    against "rates.memory.$pipeline" rates.everysec rates.memory "$pipeline.rate"
    against "rates.none.$pipeline" rates.everysec rates.none "$pipeline.rate"
    against "rates.always.$pipeline" rates.fsync rates.redis_always "$pipeline.rate"
    against "rates.cpu.$pipeline" rates.everysec rates.redis_everysec "$pipeline.cpu"
  done
}
print_rates() {
  local name
  printf '\n### SET, 64 connections, 100 bytes\n\n'
  echo "| | P 1: rate | server CPU us/op | P 16: rate | server CPU us/op |"
  echo "| --- | --- | --- | --- | --- |"
  for name in "${rated[@]}"; do
    echo "| ${title[$name]} | $(rate "$(median "rates.$name.1.rate")") | $(cell "rates.$name.1.cpu" 2) |" \
      "$(rate "$(median "rates.$name.16.rate")") | $(cell "rates.$name.16.cpu" 2) |"
  done
  printf '\n| | P 1 | P 16 | Target |\n| --- | --- | --- | --- |\n'
  echo "| rate of everysec, of memory's | $(cell rates.memory.1 2) | $(cell rates.memory.16 2) | at least 0.85 |"
  echo "| rate of everysec, of that without a directory | $(cell rates.none.1 2) | $(cell rates.none.16 2) | |"
  echo "| rate of fsync, of Redis always | $(cell rates.always.1 2) | $(cell rates.always.16 2) | at least 1 |"
  echo "| server CPU per SET of everysec, of Redis everysec | $(cell rates.cpu.1 2) | $(cell rates.cpu.16 2) | at most 0.9 |"
}

# YCSB-A: half of the operations are SETs. How Remora is asked (`choose`: a GET is a READ where the
# pointer is known and the record may be seen), clients, and requests that each keeps outstanding:
cases=("ask 1 1" "choose 1 1" "ask 1 32" "ask 8 1" "choose 8 1" "ask 8 16")
ycsb() {
  local name case path clients pipeline at flags
  for name in $(turns everysec redis_everysec); do
    launch "$name"
    for case in "${cases[@]}"; do
      read -r path clients pipeline <<<"$case"
      at="ycsb.$name.$path.$clients.$pipeline"
      if [ "$name" = everysec ]; then
        flags=(--path "$path" --server "$work/$name.socket")
      else
        flags=(--path resp --server "127.0.0.1:${port[$name]}")
      fi
      run ycsb "${flags[@]}" --reads 0.5 --dist zipf:0.99 --records 100000 --value-bytes 100 \
        --clients "$clients" --pipeline "$pipeline" --seconds "$seconds"
      keep "$at.rate" "$(field ycsb ops_per_s)"
      keep "$at.writes" "$(awk -v us="$(field ycsb server_cpu_us_per_op)" 'BEGIN { print 0.5e6 / us }')"
    done
    drop "$name"
  done
  for case in "${cases[@]}"; do
    at="${case// /.}"
    against "ycsb.$at" ycsb.everysec ycsb.redis_everysec "$at.writes"
  done
}
print_ycsb() {
  local case path clients pipeline at name
  printf '\n### YCSB-A with everysec: Remora over rings, Redis over RESP\n\n'
  echo "| Path, clients, outstanding each | Remora: operations | acknowledged writes per server CPU second | Redis: operations | acknowledged writes per server CPU second | times (target: at least 2) |"
  echo "| --- | --- | --- | --- | --- | --- |"
  for case in "${cases[@]}"; do
    read -r path clients pipeline <<<"$case"
    at="${case// /.}"
    printf '| %s, %s, %s |' "$path" "$clients" "$pipeline"
    for name in everysec redis_everysec; do
      printf ' %s | %s |' "$(rate "$(median "ycsb.$name.$at.rate")")" "$(rate "$(median "ycsb.$name.$at.writes")")"
    done
    echo " $(cell "ycsb.$at" 2) |"
  done
}

# Requests of N records; redis-benchmark's keys, and values that do not compress.
strings() {
  awk -v n="$1" 'BEGIN {
    srand(1); for (i = 0; i < 10100; i++) pool = pool sprintf("%c", 97 + int(rand() * 26))
    for (i = 0; i < n; i++) printf "SET key:%012d %s\r\n", i, substr(pool, 1 + int(rand() * 10000), 100)
  }'
}
# Ten fields of 20 bytes in each hash.
hashes() {
  awk -v n="$1" 'BEGIN {
    srand(1); for (i = 0; i < 10100; i++) pool = pool sprintf("%c", 97 + int(rand() * 26))
    for (i = 0; i < n / 10; i++) {
      printf "HSET hash:%012d", i
      for (field = 0; field < 10; field++) printf " field-%d %s", field, substr(pool, 1 + int(rand() * 10000), 20)
      printf "\r\n"
    }
  }'
}
fill() {
  say "loading $3 records, $2: ${title[$1]}"
  "$2" "$3" | redis-cli -p "${port[$1]}" --pipe >"$work/load" 2>&1 || { cat "$work/load" >&2; exit 1; }
}
# save NAME: BGSAVE, until it is written.
save() {
  redis-cli -p "${port[$1]}" bgsave >/dev/null
  while [ "$(info "$1" rdb_bgsave_in_progress)" != 0 ]; do sleep 0.02; done
  [ "$(info "$1" rdb_last_bgsave_status)" = ok ] || { say "no snapshot: ${title[$1]}"; exit 1; }
}

# The directories that restarts begin from. A name's first part is the server that wrote it.
restarted=(everysec_log everysec_snapshot redis_aof redis_rdb)
declare -A says=([everysec_log]="Remora, log alone" [everysec_snapshot]="Remora, snapshot"
  [redis_aof]="Redis, AOF alone" [redis_rdb]="Redis, RDB")
restart() {
  case "$1" in
    *.everysec_*) kept "$1" "${says[${1#*.}]}" everysec ;;
    *.redis_aof) logged "$1" "${says[redis_aof]}" everysec ;;
    *.redis_rdb) serve_redis "$1" "${says[redis_rdb]}" ;;
  esac
}
prepare() {
  local data name
  for data in strings hashes; do
    for name in "${restarted[@]}"; do
      restart "$data.$name"
      fill "$data.$name" "$data" "$records"
      case "$name" in *_snapshot | *_rdb) save "$data.$name" ;; *) sleep 2 ;; esac
      end "$data.$name"
    done
  done
}
# one_restart NAME: from the start of the process to the line that says it serves.
one_restart() {
  local began cpu keys
  began="$(date +%s%N)"
  restart "$1"
  until grep -aqE '^ready|Ready to accept' "$work/$1.server"; do sleep 0.005; done
  cpu="$(cpu_ns "$1")"
  keep "restart.$1.s" "$(awk -v d=$(($(date +%s%N) - began)) 'BEGIN { printf "%.3f", d / 1e9 }')"
  keep "restart.$1.cpu" "$(awk -v d="$cpu" 'BEGIN { printf "%.3f", d / 1e9 }')"
  keep "restart.$1.rate" "$(awk -v d="$cpu" -v n="$records" 'BEGIN { print n / d * 1e9 }')"
  case "$1" in strings.*) keys="$records" ;; *) keys=$((records / 10)) ;; esac
  [ "$(redis-cli -p "${port[$1]}" dbsize)" = "$keys" ] || { say "not all is there: $1"; exit 1; }
  end "$1"
}
recovery() {
  local data name
  [ "$round" -gt 1 ] || prepare
  for data in strings hashes; do
    for name in $(turns "${restarted[@]}"); do one_restart "$data.$name"; done
    against "restart.$data.log" "restart.$data.redis_aof" "restart.$data.everysec_log" s
    against "restart.$data.snapshot" "restart.$data.redis_rdb" "restart.$data.everysec_snapshot" s
  done
}
print_recovery() {
  local data name
  printf '\n### Restart, one shard\n\n'
  echo "| | seconds to serve | CPU seconds | records per CPU second (target: at least 1 M/s) |"
  echo "| --- | --- | --- | --- |"
  for data in strings hashes; do
    for name in "${restarted[@]}"; do
      echo "| $data: ${says[$name]} | $(cell "restart.$data.$name.s" 2) | $(cell "restart.$data.$name.cpu" 2) |" \
        "$(rate "$(median "restart.$data.$name.rate")") |"
    done
  done
  printf '\n| Time of Redis, of ours (target: more than 1) | strings | hashes |\n| --- | --- | --- |\n'
  echo "| AOF alone, of the log alone | $(cell restart.strings.log 2) | $(cell restart.hashes.log 2) |"
  echo "| RDB, of the snapshot | $(cell restart.strings.snapshot 2) | $(cell restart.hashes.snapshot 2) |"
}

# pss PID: proportional set size of a process and its children, KiB.
pss() {
  local process files=("/proc/$1/smaps_rollup")
  for process in $(cat /proc/"$1"/task/*/children 2>/dev/null); do files+=("/proc/$process/smaps_rollup"); done
  # A child may have ended meanwhile.
  { cat "${files[@]}" 2>/dev/null || true; } | awk '/^Pss:/ { sum += $2 } END { print sum + 0 }'
}
one_snapshot() {
  local name="$1" process="${pid[$1]}" load before peak now began
  fill "$name" strings "$snapshot_records"
  redis-benchmark -p "${port[$name]}" -t set -c 16 -P 16 -n 2000000000 -r "$snapshot_records" -d 100 --csv >/dev/null 2>&1 &
  load=$!
  pids+=("$load")
  # Every record is written again before: memory in use has settled.
  until [ "$(info "$name" total_commands_processed)" -gt $((3 * snapshot_records)) ]; do sleep 0.2; done
  before="$(pss "$process")" peak="$before" began="$(date +%s%N)"
  redis-cli -p "${port[$name]}" bgsave >/dev/null
  while [ "$(info "$name" rdb_bgsave_in_progress)" != 0 ]; do
    now="$(pss "$process")"
    if [ "$now" -gt "$peak" ]; then peak="$now"; fi
  done
  keep "snapshot.$name.s" "$(awk -v d=$(($(date +%s%N) - began)) 'BEGIN { printf "%.2f", d / 1e9 }')"
  end_process "$load"
  keep "snapshot.$name.memory" "$(ratio "$peak" "$before")"
  keep "snapshot.$name.before" $((before / 1024))
}
snapshot() {
  local name
  for name in $(turns everysec redis_everysec); do
    launch "$name"
    one_snapshot "$name"
    if [ "$name" = everysec ]; then
      keep snapshot.turns "$(info "$name" snapshot_turns)"
      keep snapshot.turn "$(info "$name" snapshot_longest_turn_us)"
      keep snapshot.turn_cpu "$(info "$name" snapshot_longest_turn_cpu_us)"
    else
      keep snapshot.fork "$(info "$name" latest_fork_usec)"
    fi
    drop "$name"
  done
}
print_snapshot() {
  local name
  printf '\n### A snapshot under random SETs, %s strings of 100 bytes\n\n' "$snapshot_records"
  echo "| | memory before, MiB | peak, of that (target: at most 1.1) | seconds | no client is served for, at most |"
  echo "| --- | --- | --- | --- | --- |"
  for name in everysec redis_everysec; do
    printf '| %s | %s | %s | %s |' "${title[$name]}" "$(cell "snapshot.$name.before" 0)" \
      "$(cell "snapshot.$name.memory" 2)" "$(cell "snapshot.$name.s" 2)"
    if [ "$name" = everysec ]; then
      echo " $(cell snapshot.turn 0) us in the longest of $(cell snapshot.turns 0) turns, with $(cell snapshot.turn_cpu 0) us of CPU time in one at most (target: under 1 ms) |"
    else
      echo " $(cell snapshot.fork 0) us in fork |"
    fi
  done
}

for part in "${parts[@]}"; do
  for round in $(seq "$rounds"); do
    say "$part: round $round of $rounds"
    "$part"
  done
done
echo "$(machine). $(redis-server --version | sed 's/ sha=.*//'); one shard, medians of $rounds round(s)," \
  "on $(df --output=fstype "$work" | tail -n 1) of $(df --output=source "$work" | tail -n 1)."
for part in "${parts[@]}"; do "print_$part"; done
