#!/usr/bin/env bash
# Measures trees of places by the workloads of Catfish (W1 to W7) and prints
# Markdown tables, each row with what it was run by.
#
#   bench/places.sh                 small trees, some minutes: ratios and shapes
#   bench/places.sh --big           the paper's sizes (2 M objects; 10 M in the
#                                   table of sizes), an hour or more
#   bench/places.sh --tables "schemes data"   some tables only
#   bench/places.sh --data FILE     real rectangles for the table `data` (W6),
#                                   int32 quadruples, plain or .xz
#
# Tables: schemes trees sizes capacities inserts clients data fifty. The last
# is the scalability test (W7, 50 M objects, 12.8 M searches) and is run only
# if it is named; it takes several GB of memory for server and bench.
# Progress goes to standard error.
set -euo pipefail

records=100000 ops=20000 sizes="10000 100000" capacity_records=100000 data="" tables=""
while [ $# -gt 0 ]; do
  case "$1" in
    --big) records=2000000 ops=100000 sizes="10000 100000 1000000 10000000" capacity_records=1000000 ;;
    --tables) tables="$2"; shift ;;
    --data) data="$(realpath "$2")"; shift ;;
    *) echo "usage: bench/places.sh [--big] [--tables \"NAME...\"] [--data FILE]" >&2; exit 2 ;;
  esac
  shift
done
tables="${tables:-schemes trees sizes capacities inserts clients${data:+ data}}"
# shellcheck source=bench/lib.sh
. "$(dirname "$0")/lib.sh"
# Used by lib.sh.
# shellcheck disable=SC2034
bench=places
start_bench

# row LABEL FLAGS...: one run, one line.
row() {
  local label="$1"
  shift
  say "$label: $*"
  run row "$@"
  printf '| %s | %s | %.2f | %.2f | %.2f | %.2f | %.0f | %.4f | %.2f | %.2f | %s | %.0f |\n' \
    "$label" "$(rate "$(field row ops_per_s)")" \
    "$(field row p50_us)" "$(field row p99_us)" "$(field row server_cpu_us_per_op)" \
    "$(field row round_trips_per_op)" "$(field row bytes_per_op)" "$(field row results_per_op)" \
    "$(visited)" "$(field row nodes_read_per_op)" "$(field row tree_height)" \
    "$(field row bytes_per_record)"
  last="$(command_of row)"
}

# Over RESP nobody tells it.
visited() {
  local nodes
  nodes="$(field row nodes_visited_per_op)"
  echo "${nodes:-nan}"
}

begin_table() {
  printf '\n### %s\n\n' "$1"
  echo "| | rate | p50 us | p99 us | server CPU us/op | trips/op | bytes/op | results/op | nodes visited | nodes read | height | B/object |"
  echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
}

end_table() { printf '\nThe last row again:\n\n    %s\n' "$last"; }

table_schemes() {
  begin_table "Schemes (C26), $records objects, one client, by scale"
  for scale in 0.00001 0.01 power; do
    local base=(--records "$records" --ops "$ops" --scale "$scale")
    row "$scale, tcp" "${base[@]}" --scheme tcp
    row "$scale, resp" "${base[@]}" --path resp
    row "$scale, fast-messaging" "${base[@]}" --scheme fast-messaging
    row "$scale, ask in event mode" "${base[@]}" --path ask --wake event
    row "$scale, offload (single, no cache)" "${base[@]}" --scheme offload --cache-bytes 0
    row "$scale, multi, no cache" "${base[@]}" --path read --cache-bytes 0
    row "$scale, multi, cache of 1 MiB" "${base[@]}" --path read
  done
  end_table
}

table_trees() {
  begin_table "Trees, $records objects, read without a cache"
  for tree in guttman rstar hilbert; do
    for scale in 0.00001 0.01 power; do
      row "$tree, $scale" --tree "$tree" --records "$records" --ops "$ops" --scale "$scale" \
        --path read --cache-bytes 0
    done
  done
  row "rstar of capacity 100, 0.01" --capacity 100 --records "$records" --ops "$ops" \
    --scale 0.01 --path read --cache-bytes 0
  end_table
}

table_sizes() {
  begin_table "Sizes of the tree (Fig. 23), power law"
  for size in $sizes; do
    row "$size, read, no cache" --records "$size" --ops "$ops" --scale power --path read --cache-bytes 0
    row "$size, ask" --records "$size" --ops "$ops" --scale power --path ask
  done
  end_table
}

table_capacities() {
  begin_table "Entries of a node (Fig. 24), $capacity_records objects, power law, read without a cache"
  for capacity in 15 30 70 130; do
    row "$capacity" --capacity "$capacity" --records "$capacity_records" --ops "$ops" \
      --scale power --path read --cache-bytes 0
  done
  end_table
}

table_inserts() {
  begin_table "90 % searches, 10 % inserts (W4), $records objects, four clients"
  for scale in 0.00001 0.01 power; do
    for path in ask read; do
      row "$scale, $path" --records "$records" --ops "$ops" --scale "$scale" --inserts 0.1 \
        --clients 4 --path "$path"
    done
  done
  end_table
}

table_clients() {
  begin_table "Clients (W5), 10,000 searches each, $records objects, scale 0.00001"
  for clients in 1 64 256; do
    for path in ask read; do
      row "$clients, $path" --records "$records" --clients "$clients" --path "$path" \
        --scale 0.00001 --load bulk
    done
  done
  end_table
}

table_data() {
  [ -n "$data" ] || { say "the table data needs --data FILE"; exit 2; }
  begin_table "Real rectangles (W6): inserted by regions and rows, 50 to 150 results a search"
  for tree in guttman rstar hilbert; do
    row "$tree, read, no cache" --data "$data" --tree "$tree" --ops "$ops" --path read --cache-bytes 0
  done
  for path in "--path read" "--path ask" "--scheme tcp" "--path resp"; do
    # shellcheck disable=SC2086
    row "rstar, ${path#--}" --data "$data" --ops "$ops" $path
  done
  end_table
}

table_fifty() {
  begin_table "Scalability (W7): 50 M objects, 12.8 M searches, loaded at once"
  row "rstar, read" --records 50000000 --ops 12800000 --load bulk --scale 0.00001 --path read
  end_table
}

echo "$(machine)."
for table in $tables; do
  "table_$table"
done
