#!/usr/bin/env bash
# Measures the key store and prints tables for docs/performance.md as Markdown.
#
#   bench/tables.sh [--short] [--traces DIR] [--clients N] [SECTION...]
#
#   mixes      50, 90 and 100 % lookups, zipf and uniform, by pointer cache
#   traces     the same figures for real traces, from the directory --traces DIR
#   shard      one thread for each shard, or two that dispatch and two that execute
#   messages   rings, against SEND and RECEIVE and against indicator words
#   clients    1 to 64 clients that ask or read, by shared memory and by TCP
#   growth     cached GET on 10^4 to 10^7 records
#
# Without SECTION all of them, but traces only with --traces: under 20 minutes on
# two cores. --short runs few operations once, to see that it works. --clients is
# the number of clients where a section does not vary it: by default one for each
# core that the shard leaves; at least two for mixes and traces, as one alone meets
# no other's updates.
#
# One round runs every variant of a section once, one after the other, so that a
# slow minute of the machine hits all of them. A ratio is taken within its round;
# tables show medians of three rounds. Progress goes to standard error.
set -euo pipefail

all_sections="mixes shard messages clients growth"
usage() {
  echo "usage: bench/tables.sh [--short] [--traces DIR] [--clients N] [SECTION...], of: $all_sections traces" >&2
  exit 2
}

# Counts need a number of operations, rates a time.
rounds=3 seconds=1 records=1000000 trace_ops="" message_records=200000 client_records=10000
growth_records="10000 100000 1000000 10000000" growth_ops=2000000
traces="" sections=""
asking_clients="$(($(nproc) > 2 ? $(nproc) - 1 : 1))"
clients="$((asking_clients > 2 ? asking_clients : 2))"
while [ $# -gt 0 ]; do
  case "$1" in
    --short)
      rounds=1 seconds=0.03 records=500 trace_ops="--ops 2000" message_records=200 client_records=100
      growth_records="1000 10000" growth_ops=10000
      ;;
    --clients) clients="${2:?--clients N}" asking_clients="$2" && shift ;;
    --traces) traces="$(cd "${2:?--traces DIR}" && pwd)" && shift ;;
    mixes | traces | shard | messages | clients | growth) sections+=" $1" ;;
    *) usage ;;
  esac
  shift
done
[ -n "$sections" ] || sections="$all_sections${traces:+ traces}"

# shellcheck source=bench/lib.sh
. "$(dirname "$0")/lib.sh"
start_bench

# The paper's workloads (HydraDB 6, H42) by its letters: sets reads and dist. Of
# YCSB's, a is A and c is C; b has 90 % lookups where B has 95.
letters="a b c d e f"
mix() {
  case "$1" in [abc]) dist=zipf:0.99 ;; *) dist=uniform ;; esac
  case "$1" in [ad]) reads=0.5 ;; [be]) reads=0.9 ;; *) reads=1 ;; esac
}
mix_name() {
  mix "$1"
  awk -v letter="$1" -v reads="$reads" -v dist="$dist" 'BEGIN {
    printf "%s: %d %%, %s", letter, 100 * reads, dist
  }'
}

# keep_figures NAME: what the tables show of a run, as NAME.figure.
keep_figures() {
  local figure lookups
  for figure in ops_per_s p50_us p99_us round_trips_per_op bytes_per_op server_cpu_us_per_op; do
    keep "$1.$figure" "$(field "$1" "$figure")"
  done
  lookups="$(awk -v n="$(field "$1" ops)" -v reads="$(field "$1" reads)" 'BEGIN { print n * reads }')"
  for figure in hits stale lease_expired; do
    keep "$1.$figure" "$(awk -v n="$(field "$1" "$figure")" -v all="$lookups" 'BEGIN { print 1000 * n / all }')"
  done
  keep "$1.asked" "$(ratio "$(field "$1" asked)" "$(field "$1" ops)")"
}
# keep_ratio NAME A B FIELD: how many times B's figure A has, in this round.
keep_ratio() { keep "$1" "$(ratio "$(field "$2" "$4")" "$(field "$3" "$4")")"; }

# cell KEY DECIMALS: a median.
cell() { printf "%.$2f" "$(median "$1")"; }
cell_rate() { rate "$(median "$1.ops_per_s")"; }
# table_head COLUMN...: the table's first lines.
table_head() {
  printf '| %s ' "$@"
  echo "|"
  printf '| --- %.0s' "$@"
  echo "|"
}
# heading TEXT SENTENCE...
heading() {
  echo "## $1"
  echo
  shift
  printf '%s\n' "$@"
  echo "Medians of $rounds round(s); $(machine)."
  echo
}
# again NAME: the command of one run; the others differ by what the table names.
again() {
  local command
  command="$(command_of "$1")"
  echo
  echo "    ${command//"${traces:-/}"\//${traces:+DIR/}}"
  echo
}

# The pointer caches that are compared, as NAME:FLAGS. Without one every lookup
# on this path is asked, however the run begins.
caches=(
  "off:--pointer-cache off --cold --seconds $seconds"
  "private, cold:--pointer-cache private --cold"
  "shared, cold:--pointer-cache shared --cold"
)
warm_caches=(
  "private, warm:--pointer-cache private"
  "shared, warm:--pointer-cache shared"
)
cache_columns=("Pointer cache" ops/s "over off" "p50 us" "round trips/op" hits stale expired asked/op "server CPU us/op")
cache_sentences=(
  "$clients clients (threads of one process), one shard. Without a pointer cache each lookup is asked. With one it"
  "is one READ if a pointer is known, else it is asked and brings the pointer. Leases are the product's, 1 to 64 s."
  "Cold: no pointer is known at first. Hits, stale READs and expired pointers are counted for each 1000 lookups; as"
  "lookups are drawn by their share, a little more than 1000 of them may hit."
)
# run_caches NAME FORMS FLAGS...: a run for each pointer cache.
run_caches() {
  local name="$1" form key
  local -n forms="$2"
  shift 2
  for form in "${forms[@]}"; do
    key="$name.${form%%:*}"
    # shellcheck disable=SC2086
    run "$key" --path choose --shards 1 --clients "$clients" --lease-ms 1000 "$@" ${form#*:}
    keep_figures "$key"
    keep_ratio "$key.over" "$key" "$name.off" ops_per_s
  done
}
# cache_rows NAME TITLE FORMS
cache_rows() {
  local form key
  local -n forms="$3"
  for form in "${forms[@]}"; do
    key="$1.${form%%:*}"
    echo "| $2 | ${form%%:*} | $(cell_rate "$key") | $(cell "$key.over" 2) | $(cell "$key.p50_us" 2) |" \
      "$(cell "$key.round_trips_per_op" 3) | $(cell "$key.hits" 1) | $(cell "$key.stale" 1) |" \
      "$(cell "$key.lease_expired" 1) | $(cell "$key.asked" 3) | $(cell "$key.server_cpu_us_per_op" 3) |"
  done
}

measure_mixes() {
  local letter form all=("${caches[@]}" "${warm_caches[@]}")
  for letter in $letters; do
    mix "$letter"
    say "  $(mix_name "$letter")"
    run_caches "mixes.$letter" all --records "$records" --ops "$records" --dist "$dist" --reads "$reads"
  done
  for form in "${all[@]}"; do
    form="${form%%:*}"
    keep_ratio "mixes.zipf.$form" "mixes.c.$form" "mixes.a.$form" ops_per_s
    keep_ratio "mixes.uniform.$form" "mixes.f.$form" "mixes.d.$form" ops_per_s
  done
}
print_mixes() {
  local letter form all=("${caches[@]}" "${warm_caches[@]}")
  heading "Mixes" \
    "$records records of 16 + 32 bytes, as many requests (without a pointer cache $seconds s of them); a to f are the paper's workloads." \
    "${cache_sentences[@]}" "Warm: each client has looked up every record once."
  table_head "Lookups, keys" "${cache_columns[@]}"
  for letter in $letters; do cache_rows "mixes.$letter" "$(mix_name "$letter")" all; done
  echo
  echo "Throughput with 100 % lookups, as times that with 50 %:"
  echo
  table_head "Pointer cache" "zipf, c over a" "uniform, f over d"
  for form in "${all[@]}"; do
    form="${form%%:*}"
    echo "| $form | $(cell "mixes.zipf.$form" 2) | $(cell "mixes.uniform.$form" 2) |"
  done
  again "mixes.a.private, cold"
}

# NAME:BYTES of a key.
trace_files="web07:4 scarab-recs:8 w106:4 orm-busy:4"
trace_shares="1 0.9"
has_trace() { [ -f "$traces/$1.trace.xz" ]; }
measure_traces() {
  local file name share found=""
  for file in $trace_files; do
    name="${file%:*}"
    has_trace "$name" || continue
    found=1
    for share in $trace_shares; do
      say "  $name, share of lookups $share"
      # shellcheck disable=SC2086
      run_caches "traces.$name.$share" caches --dist "file:$traces/$name.trace.xz" \
        --trace-key-bytes "${file#*:}" --reads "$share" $trace_ops
    done
  done
  [ -n "$found" ] || { say "$traces holds none of the traces of docs/eviction.md"; exit 2; }
}
print_traces() {
  local file name share last=""
  heading "Traces" \
    "All keys of a trace are loaded first, 16 + 32 bytes each; then it is replayed once, each client its part" \
    "(without a pointer cache for $seconds s)." \
    "A tenth of the requests, drawn at random, are updates where the share of lookups is 90 %: the traces say none." \
    "${cache_sentences[@]}" \
    "A replay of web07 takes some hundredths of a second: trust its counts, not its times."
  table_head "Trace, lookups" "${cache_columns[@]}"
  for file in $trace_files; do
    name="${file%:*}"
    has_trace "$name" || continue
    for share in $trace_shares; do
      last="traces.$name.$share"
      cache_rows "$last" "$name, $(awk -v n="$share" 'BEGIN { print 100 * n }') %" caches
    done
  done
  again "$last.private, cold"
}

# There is nothing that would have to be warm: loading touches every record.
asking=(--path ask --cold --shards 1 --clients "$asking_clients" --records "$message_records")
asking+=(--seconds "$seconds")

measure_shard() {
  local letter depth model key
  for letter in $letters; do
    mix "$letter"
    say "  $(mix_name "$letter")"
    for depth in 1 32; do
      key="shard.$letter.$depth"
      for model in single pipelined; do
        run "$key.$model" "${asking[@]}" --dist "$dist" --reads "$reads" --pipeline "$depth" \
          --like-for-like --shard-model "$model"
        keep_figures "$key.$model"
      done
      keep_ratio "$key.over" "$key.single" "$key.pipelined" ops_per_s
      keep_ratio "$key.p50" "$key.single" "$key.pipelined" p50_us
    done
  done
}
print_shard() {
  local letter depth key
  heading "Threads of a shard" \
    "Single: one thread for each shard. Pipelined: two threads that detect and decode, two that execute and reply" \
    "(H4). Both in the bench's own server and client, over rings. $message_records records of 16 + 32 bytes," \
    "$asking_clients client(s) with a connection each, one shard."
  table_head "Lookups, keys" Outstanding "single ops/s" "pipelined ops/s" "single over pipelined" \
    "p50 us, single" "p50 us, pipelined" "its ratio" "server CPU us/op, single" "pipelined"
  for letter in $letters; do
    for depth in 1 32; do
      key="shard.$letter.$depth"
      echo "| $(mix_name "$letter") | $depth | $(cell_rate "$key.single") | $(cell_rate "$key.pipelined") |" \
        "$(cell "$key.over" 2) | $(cell "$key.single.p50_us" 2) | $(cell "$key.pipelined.p50_us" 2) |" \
        "$(cell "$key.p50" 2) | $(cell "$key.single.server_cpu_us_per_op" 2) |" \
        "$(cell "$key.pipelined.server_cpu_us_per_op" 2) |"
    done
  done
  again shard.a.1.pipelined
}

# NAME:FLAGS; the first is what the others are compared with.
message_forms=(
  "ring:--like-for-like"
  "sendrecv:--messages sendrecv"
  "indicator:--messages indicator"
  "product:"
)
measure_messages() {
  local letter form key
  for letter in $letters; do
    mix "$letter"
    say "  $(mix_name "$letter")"
    for form in "${message_forms[@]}"; do
      key="messages.$letter.${form%%:*}"
      # shellcheck disable=SC2086
      run "$key" "${asking[@]}" --dist "$dist" --reads "$reads" ${form#*:}
      keep_figures "$key"
      keep_ratio "$key.over" "messages.$letter.ring" "$key" ops_per_s
    done
    keep_ratio "messages.$letter.papers" "messages.$letter.indicator" "messages.$letter.sendrecv" ops_per_s
  done
}
print_messages() {
  local letter form key row
  heading "Messages" \
    "Rings of frames, posted buffers with completion queues (SEND and RECEIVE, H18), and one buffer each way between" \
    "two indicator words (H14 to H17), all over shared memory, in the bench's own server and client, one thread for" \
    "each shard; product is what Remora itself does. $message_records records of" \
    "16 + 32 bytes, $asking_clients client(s) with one request each, one shard. A figure is how many times the throughput of" \
    "a form the ring has; in brackets are the form's p50 and server CPU for each operation."
  table_head "Lookups, keys" "ring ops/s" "over sendrecv" "over indicator" "over product" \
    "indicator over sendrecv"
  for letter in $letters; do
    row="| $(mix_name "$letter") |"
    for form in "${message_forms[@]}"; do
      key="messages.$letter.${form%%:*}"
      if [ "${form%%:*}" = ring ]; then row+=" $(cell_rate "$key")"; else row+=" $(cell "$key.over" 2)"; fi
      row+=" ($(cell "$key.p50_us" 2) us, $(cell "$key.server_cpu_us_per_op" 2) us) |"
    done
    echo "$row $(cell "messages.$letter.papers" 2) |"
  done
  again messages.a.sendrecv
}

client_counts="1 2 4 16 64"
measure_clients() {
  local transport path count key
  for transport in shm tcp; do
    for path in ask read; do
      for count in $client_counts; do
        say "  $path over $transport, $count client(s)"
        key="clients.$transport.$path.$count"
        run "$key" --path "$path" --transport "$transport" --records "$client_records" \
          --dist zipf:0.99 --shards 1 --clients "$count" --seconds "$seconds"
        keep_figures "$key"
        keep_ratio "$key.over" "$key" "clients.$transport.$path.1" ops_per_s
      done
    done
  done
}
print_clients() {
  local transport path count key
  heading "Clients" \
    "A client is a thread of one process, with a session of its own: over shared memory each has its own pair of rings" \
    "for each shard, over TCP all share one connection. $client_records records of 16 + 32 bytes, zipf:0.99, lookups only, one request each, one shard." \
    "Those that read have a pointer cache each, which is warm. Rates are of all clients together."
  table_head Transport Path Clients ops/s "over one client" "p50 us" "p99 us" "server CPU us/op"
  for transport in shm tcp; do
    for path in ask read; do
      for count in $client_counts; do
        key="clients.$transport.$path.$count"
        echo "| $transport | $path | $count | $(cell_rate "$key") | $(cell "$key.over" 2) |" \
          "$(cell "$key.p50_us" 2) | $(cell "$key.p99_us" 2) | $(cell "$key.server_cpu_us_per_op" 3) |"
      done
    done
  done
  again clients.shm.ask.1
}

measure_growth() {
  local count path key
  for count in $growth_records; do
    say "  $count records"
    key="growth.$count"
    for path in read local; do
      run "$key.$path" --path "$path" --records "$count" --ops "$growth_ops" --dist uniform --shards 1
      keep_figures "$key.$path"
      keep "$key.$path.ns" "$(ratio 1e9 "$(field "$key.$path" ops_per_s)")"
    done
    keep_ratio "$key.over" "$key.local" "$key.read" ops_per_s
  done
}
print_growth() {
  local count key
  heading "Growth" \
    "Cached GET, one client, uniform keys, records of 16 + 32 bytes. The pointer cache is warm and has room for twice" \
    "the records. Beside it in the same round a HashMap of the client's own with the same stream of keys: what grows" \
    "in both is the price of misses in the processor's caches."
  table_head Records "GET ns/op" "map ns/op" "times the map" "p50 us" "round trips/op" bytes/op "hits per 1000"
  for count in $growth_records; do
    key="growth.$count"
    echo "| $count | $(cell "$key.read.ns" 0) | $(cell "$key.local.ns" 0) | $(cell "$key.over" 2) |" \
      "$(cell "$key.read.p50_us" 2) | $(cell "$key.read.round_trips_per_op" 3) |" \
      "$(cell "$key.read.bytes_per_op" 1) | $(cell "$key.read.hits" 1) |"
  done
  again "growth.${growth_records%% *}.read"
}

for section in $sections; do
  if [ "$section" = traces ] && [ -z "$traces" ]; then
    say "traces: give --traces DIR, a directory with some of these, in the formats of docs/eviction.md:"
    for file in $trace_files; do say "  ${file%:*}.trace.xz, keys of ${file#*:} bytes"; done
    continue
  fi
  for round in $(seq "$rounds"); do
    say "$section, round $round of $rounds"
    "measure_$section"
  done
  "print_$section"
done
