#!/usr/bin/env bash
# Measures keys against Redis and against a local map, and prints the table of
# docs/performance.md as Markdown.
#
#   bench/keys.sh            five rounds, about five minutes
#   bench/keys.sh --short    one round on fewer records, to see that it works
#
# One round runs every measurement once, one after the other, so that a slow
# minute of the machine hits all of them. A ratio is taken within its round;
# the table shows medians over the rounds. Progress goes to standard error.
#
# Redis runs on a Unix socket with 50 connections and no persistence. Its
# benchmark draws keys evenly; Remora's runs draw them by zipf:0.99. Both have
# the same keys (key:000000000000 and so on, 16 bytes) and 32-byte values.
set -euo pipefail

rounds=5 records=1000000 read_ops=5000000 ask_ops=1000000 redis_ops=400000
case "${1:-}" in
  "") ;;
  --short) rounds=1 records=100000 read_ops=500000 ask_ops=100000 redis_ops=50000 ;;
  *) echo "usage: bench/keys.sh [--short]" >&2; exit 2 ;;
esac
# shellcheck source=bench/lib.sh
. "$(dirname "$0")/lib.sh"

have_redis() {
  command -v redis-server && command -v redis-benchmark && command -v redis-cli
} >/dev/null 2>&1

if ! have_redis; then
  if [ "$(id -u)" -ne 0 ]; then
    say "This needs Redis: sudo apt-get install -y redis-server redis-tools"
    exit 2
  fi
  say "installing redis-server and redis-tools"
  DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y \
    redis-server redis-tools >&2
  # apt starts a service that nobody asked for.
  service redis-server stop >&2 || true
fi

redis_pid=""
at_end() {
  if [ -n "$redis_pid" ]; then
    kill "$redis_pid" 2>/dev/null || true
    wait "$redis_pid" 2>/dev/null || true
  fi
}
start_bench

socket="$work/redis.sock"
redis-server --port 0 --unixsocket "$socket" --save '' --appendonly no --dir "$work" \
  >"$work/redis.log" 2>&1 &
redis_pid=$!
for _ in $(seq 100); do
  [ "$(redis-cli -s "$socket" ping 2>/dev/null)" = PONG ] && break
  sleep 0.05
done
[ "$(redis-cli -s "$socket" ping)" = PONG ] || { cat "$work/redis.log" >&2; exit 1; }

say "loading $records records into Redis"
awk -v n="$records" 'BEGIN {
  for (i = 0; i < n; i++) printf "SET key:%012d %032d\r\n", i, i
}' | redis-cli -s "$socket" --pipe >&2
[ "$(redis-cli -s "$socket" dbsize)" = "$records" ] || { say "Redis did not take all records"; exit 1; }

# redis_get PIPELINE OPS: prints operations a second.
redis_get() {
  redis-benchmark -s "$socket" -c 50 -t get -r "$records" -P "$1" -n "$2" --csv 2>/dev/null |
    awk -F'","' '/^"GET/ { print $2; found = 1 } END { exit !found }'
}

remora_keys() { run "$@" --records "$records" --dist zipf:0.99 --shards 1; }

for round in $(seq "$rounds"); do
  say "round $round of $rounds"
  redis1="$(redis_get 1 "$redis_ops")"
  remora_keys read --path read --ops "$read_ops"
  remora_keys local --path local --ops "$read_ops"
  redis16="$(redis_get 16 "$((redis_ops * 5))")"
  remora_keys batch --path read --batch 16 --ops "$read_ops"
  remora_keys ask --path ask --wake poll --ops "$ask_ops"
  remora_keys deep --path ask --wake poll --pipeline 32 --ops "$read_ops"

  keep redis1 "$redis1"
  keep redis16 "$redis16"
  for name in read local batch ask deep; do keep "$name" "$(field "$name" ops_per_s)"; done
  keep read_redis "$(ratio "$(field read ops_per_s)" "$redis1")"
  keep read_local "$(ratio "$(field local ops_per_s)" "$(field read ops_per_s)")"
  keep read_cpu "$(field read server_cpu_us_per_op)"
  keep read_trips "$(field read round_trips_per_op)"
  keep batch_redis "$(ratio "$(field batch ops_per_s)" "$redis16")"
  keep ask_p50 "$(field ask p50_us)"
done

# row WORK MEASURED VALUE RELATION TARGET UNIT, where RELATION is least or most
row() {
  awk -v work="$1" -v measured="$2" -v value="$3" -v relation="$4" -v target="$5" -v unit="$6" '
    BEGIN {
      met = relation == "least" ? value >= target : value <= target
      printf "| %s | %s | %.4g%s | at %s %s%s | %s |\n", work, measured, value, unit, relation,
        target, unit, met ? "met" : "missed"
    }'
}
median_rate() { rate "$(median "$1")"; }

echo "$records records, 16-byte keys, 32-byte values; medians of $rounds round(s);"
echo "$(machine), $(redis-server --version | awk '{ print $1, $2, $3 }')."
echo
echo "| Work | Measured | Figure | Target | |"
echo "| --- | --- | --- | --- | --- |"
row "cached GET, one at a time" "$(median_rate read), Redis $(median_rate redis1)" "$(median read_redis)" least 20 " times"
row "the same, time against a local map" "map $(median_rate local)" "$(median read_local)" most 2 " times"
row "the same, server CPU" "per operation" "$(median read_cpu)" most 0.05 " us"
row "the same, round trips" "per operation" "$(median read_trips | awk '{ printf "%.2f", $1 }')" most 1.00 ""
row "cached GET in batches of 16" "$(median_rate batch), Redis P16 $(median_rate redis16)" "$(median batch_redis)" least 12 " times"
row "GET asked, one outstanding, polling" "$(median_rate ask)" "$(median ask_p50)" most 1.2 " us p50"
row "GET asked, 32 outstanding, one shard" "$(median_rate deep)" "$(awk -v v="$(median deep)" 'BEGIN { print v / 1e6 }')" least 3 " M/s"
echo
echo "Commands of a round:"
echo
echo '```sh'
echo "redis-benchmark -s SOCKET -c 50 -t get -r $records -P 1 -n $redis_ops --csv"
echo "redis-benchmark -s SOCKET -c 50 -t get -r $records -P 16 -n $((redis_ops * 5)) --csv"
for name in read local batch ask deep; do command_of "$name"; done
echo '```'
