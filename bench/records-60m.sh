#!/usr/bin/env bash
# Loads 60 million records (HydraDB 6, H42) and prints what they cost as
# Markdown: bytes of memory for each record beyond its key and value, the time
# to load them, and a sample of cold GETs.
#
#   bench/records-60m.sh             60 M records; 10 GB of free memory, minutes
#   bench/records-60m.sh --short     600 k records, to see that it works
#   bench/records-60m.sh --records N
#
# Keys are key:000000000000 and so on, 16 bytes; values have 32. The server is
# a process of its own; the bench keeps a table of the keys, 16 bytes each, and
# no pointers: 60 M of them would take 4 GB, and a cold GET begins at the
# bucket. The second run overwrites every record once, so its figures of memory
# are those of a server that is in use. Memory is exact; times are this
# machine's, while nothing else runs. Progress goes to standard error.
set -euo pipefail

records=60000000 ops=1000000
case "${1:-}" in
  "") ;;
  --short) records=600000 ops=100000 ;;
  --records) records="${2:?--records N}" ;;
  *) echo "usage: bench/records-60m.sh [--short | --records N]" >&2; exit 2 ;;
esac
cd "$(dirname "$0")/.."

say() { echo "$*" >&2; }

# 80 bytes of slot and 20 of table; a sixteenth may wait for leases; and room.
max_memory=$((records * 120 + (64 << 20)))
need_kib=$(((max_memory + records * 16) / 1024 + (512 << 10)))
free_kib="$(awk '/^MemAvailable/ { print $2 }' /proc/meminfo)"
if [ "$free_kib" -lt "$need_kib" ]; then
  say "This needs $((need_kib >> 20)) GiB of free memory; there are $((free_kib >> 20))."
  exit 2
fi

cargo build --release -p remora >&2
remora="${CARGO_TARGET_DIR:-target}/release/remora"

work="$(mktemp -d)"
chmod 700 "$work"
server_pid=""
stop_server() {
  if [ -n "$server_pid" ]; then
    kill "$server_pid" 2>/dev/null || true
    wait "$server_pid" 2>/dev/null || true
    server_pid=""
  fi
}
clean_up() {
  stop_server
  rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

now_us() { echo "${EPOCHREALTIME/[.,]/}"; }

# start_server FLAGS...: sets server_pid and port.
start_server() {
  mkfifo "$work/ready"
  "$remora" serve --port 0 --socket "$work/s" --log warn "$@" \
    >"$work/ready" 2>"$work/server.log" &
  server_pid=$!
  local line
  if ! read -r line <"$work/ready"; then
    cat "$work/server.log" >&2
    exit 1
  fi
  rm "$work/ready"
  line="${line#ready resp=}"
  line="${line%% *}"
  port="${line##*:}"
}

# ask COMMAND: the reply's first line; INFO's text goes to a file.
ask() {
  exec 3<>"/dev/tcp/127.0.0.1/$port"
  printf '%s\r\nQUIT\r\n' "$1" >&3
  tr -d '\r' <&3
  exec 3<&- 3>&-
}
keep_info() { ask INFO >"$work/$1.info"; }
info() { sed -n "s/^$2:\([0-9]*\).*/\1/p" "$work/$1.info"; }
resident_kib() { awk '/^VmRSS/ { print $2 }' "/proc/$server_pid/status"; }
anonymous_kib() { awk '/^RssAnon/ { print $2 }' "/proc/$server_pid/status"; }

# An empty server of 8 GiB: from exec to its first PONG.
began="$(now_us)"
start_server --shards 1 --max-memory 8GiB
pong="$(ask PING | head -n 1)"
until_pong_us=$(($(now_us) - began))
empty_kib="$(resident_kib)"
[ "$pong" = "+PONG" ] || { say "no PONG: $pong"; exit 1; }
stop_server

start_server --shards 1 --max-memory "$max_memory"
started_kib="$(resident_kib)"

# run NAME PATH: loads everything, then GETs; keeps JSON, log and INFO.
run() {
  say "loading $records records, then $ops GETs by path $2"
  "$remora" bench keys --server "$work/s" --path "$2" --records "$records" --ops "$ops" \
    --dist uniform --pointer-cache off --cold --json >"$work/$1.json" 2>"$work/$1.log" ||
    { tail -n 20 "$work/$1.log" "$work/server.log" >&2; exit 1; }
  sleep 1 # The counts of INFO are some milliseconds old.
  keep_info "$1"
  resident_kib >"$work/$1.resident"
  anonymous_kib >"$work/$1.anonymous"
}
run read read
run ask ask

field() { sed -n "s/.*\"$2\":\([-+.0-9eE]*\).*/\1/p" "$work/$1.json"; }
load_s() { sed -n 's/^loaded .* in \([0-9.]*\) s$/\1/p' "$work/$1.log"; }
# row WHAT UNIT EXPRESSION: the expression, in awk, for both runs.
row() {
  local what="$1" form="$2" name values=""
  for name in read ask; do
    values+=" | $(awk -v n="$records" \
      -v used="$(info "$name" used_memory)" -v table="$(info "$name" table_bytes)" \
      -v buckets="$(info "$name" buckets)" -v overflow="$(info "$name" overflow_buckets)" \
      -v tails="$(info "$name" span_tail_bytes)" -v waits="$(info "$name" quarantine_bytes)" \
      -v early="$(info "$name" slots_reused_early)" \
      -v rss="$(cat "$work/$name.resident")" -v anon="$(cat "$work/$name.anonymous")" \
      -v started="$started_kib" -v load="$(load_s "$name")" \
      "BEGIN { printf \"$form\", $3 }")"
  done
  echo "| $what$values |"
}

keep_info last
count="$(sed -n 's/^db0:keys=\([0-9]*\),.*/\1/p' "$work/last.info")"
[ "$count" = "$records" ] || { say "the server has $count of $records records"; exit 1; }

cpu="$(awk -F': ' '/^model name/ { print $2; exit }' /proc/cpuinfo)"
echo "$count records, 16-byte keys, 32-byte values, one shard, max_memory $max_memory;"
echo "$(nproc) cores, ${cpu:-CPU unknown}; $(uname -sr), $("$remora" version)."
echo
echo "| | loaded once | every record overwritten once |"
echo "| --- | --- | --- |"
row "slots of records and overflow buckets, bytes a record" "%.2f" "used / n"
row "table, overflow buckets included, bytes a record" "%.2f" "table / n"
row "main buckets; overflow buckets" "%d; %d" "buckets, overflow"
# An overflow bucket is a slot of 80 bytes, and counted in both.
row "all that is not free, bytes a record" "%.2f" "(used + table + tails - overflow * 80) / n"
row "beyond key and value, bytes a record" "%.2f" "(used + table + tails - overflow * 80) / n - 48"
row "resident memory of the process, bytes a record" "%.2f" "(rss - started) * 1024 / n"
row "of it not shared memory, KiB" "%d" "anon"
row "waiting for leases, MiB; reused early" "%.1f; %d" "waits / 1048576, early"
row "time to load, s; records/s" "%.1f; %.0f" "load, n / load"
echo
echo "| Cold GET of $ops, without pointers | records/s | p50, us | round trips |"
echo "| --- | --- | --- | --- |"
for name in read ask; do
  printf '| %s | %.0f | %.2f | %.2f |\n' "$name" "$(field "$name" ops_per_s)" \
    "$(field "$name" p50_us)" "$(field "$name" round_trips_per_op)"
done
echo
awk -v us="$until_pong_us" -v kib="$empty_kib" 'BEGIN {
  printf "An empty server of 8 GiB answers PING %.2f s after its start (target: below 2 s, 0.22 s of it", us / 1e6
  printf " the wait for former readers; %s) and has %.1f MiB resident.\n", us < 2e6 ? "met" : "missed", kib / 1024
}'
