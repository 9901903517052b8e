#!/usr/bin/env bash
# Measures insert, delete, update and query of documents over the rings of shared memory beside the same requests
# over TCP and beside MongoDB's protocol, with 1, 100 and 400 connections (RDMA_Mongo 5, row M31). Prints a Markdown
# table: medians of the rounds, in each of which all have their turn; ratios are taken within a round.
#
#   bench/documents-connections.sh       five rounds
#   --short                              one round of few operations, to see that it works
#   --rounds N                           so many rounds
#   --connections "1 100 400"            other numbers of connections
#   --ops N                              operations of a run (40,000)
#
# Each run has a server of its own with one shard; it and its clients sleep while they wait. Of the
# query a client asks for one document by an indexed field. Every reply is checked.
set -euo pipefail
rounds=5 connections="1 100 400" ops=40000
while [ $# -gt 0 ]; do
  case "$1" in
    --short) rounds=1 ops=4000 ;;
    --rounds) rounds="${2:?}"; shift ;;
    --connections) connections="${2:?}"; shift ;;
    --ops) ops="${2:?}"; shift ;;
    *) sed -n '/^#   bench/,/^#   --ops/s/^#   //p' "$0" >&2; exit 2 ;;
  esac
  shift
done
# shellcheck source=bench/lib.sh
. "$(dirname "$0")/lib.sh"
start_bench
# shellcheck disable=SC2034  # lib.sh reads it
bench=documents

declare -A paper=([insert]="1.297" [delete]="1.30" [update]="1.17" [query]="1.15")
# What is compared: name and flags.
paths=("ring --path ask --transport shm" "tcp --path ask --transport tcp" "mongo --path mongo")

# turn OPERATION CONNECTIONS NAME FLAGS...
turn() {
  local key="$1.$2.$3"
  run "$3" --op "$1" --connections "$2" --records "$ops" --ops "$ops" --wake event "${@:4}"
  for what in ops_per_s p50_us server_cpu_us_per_op round_trips_per_op; do
    keep "$key.$what" "$(field "$3" "$what")"
  done
}
for round in $(seq "$rounds"); do
  for operation in insert delete update query; do
    for count in $connections; do
      say "round $round of $rounds: $operation, $count connection(s)"
      for path in "${paths[@]}"; do
        # shellcheck disable=SC2086
        turn "$operation" "$count" $path
      done
      for what in ops_per_s p50_us server_cpu_us_per_op; do
        for other in tcp mongo; do
          keep "$operation.$count.$other.$what.ratio" "$(ratio "$(field ring $what)" "$(field "$other" $what)")"
        done
      done
    done
  done
done

echo "$(machine). $ops operations on as many documents a run, medians of $rounds round(s), load $(cut -d' ' -f1 /proc/loadavg) at the end."
echo
echo "| Operation | Connections | rate of TCP's | the paper's gain | p50 of TCP's | server CPU us: rings | TCP | ratio | MongoDB's protocol | ratio |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
for operation in insert delete update query; do
  for count in $connections; do
    key="$operation.$count"
    printf '| %s | %s | %.2f | %s | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f |\n' "$operation" "$count" \
      "$(median "$key.tcp.ops_per_s.ratio")" "${paper[$operation]}" "$(median "$key.tcp.p50_us.ratio")" \
      "$(median "$key.ring.server_cpu_us_per_op")" "$(median "$key.tcp.server_cpu_us_per_op")" \
      "$(median "$key.tcp.server_cpu_us_per_op.ratio")" "$(median "$key.mongo.server_cpu_us_per_op")" \
      "$(median "$key.mongo.server_cpu_us_per_op.ratio")"
  done
done
