#!/usr/bin/env bash
# Measures a breadth-first search over the whole of a graph: in Redis 7 as a set for
# each user and SMEMBERS in a pipeline, and in Remora by links and in the form with
# keys, asked and read. Prints a Markdown table: medians of the rounds, in each of
# which all have their turn; ratios are taken within a round.
#
#   bench/links.sh --graph FILE       lines "from to", plain or .xz; five rounds
#   --bfs SOURCE                      where the search begins (1)
#   --rounds N                        so many rounds
#   --updates "0.01 0.1 0.5"          then, shares of the users that are written anew before a
#                                     search: how many hints are stale, and after five more searches
#
# The servers have half of the cores, the client the others, but for a row in which a client
# that READs has all of them, and as many threads. The client of Redis is
# ours too: it sends 256 requests together, and works on their replies while Redis
# works on the next ones. Needs redis-server, python3, taskset. Progress goes to
# standard error.
set -euo pipefail

graph="" source=1 rounds=5 updates="0.01 0.1 0.5"
usage() { sed -n '/^#   bench/,/^#                /s/^#   //p' "$0" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case "$1" in
    --graph) graph="$(realpath "${2:?}")"; shift ;;
    --bfs) source="${2:?}"; shift ;;
    --rounds) rounds="${2:?}"; shift ;;
    --updates) updates="${2?}"; shift ;;
    *) usage ;;
  esac
  shift
done
[ -n "$graph" ] || usage
# shellcheck source=bench/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=bench/servers.sh
. "$(dirname "$0")/servers.sh"
needs_tools
start_bench
find_cores
share_cores $((total / 2))
python=python3
bench=links
prefix=(taskset -c "$on_client")

start_redis redis "Redis $(version redis-server)" "$(command -v redis-server)"
start_remora links 1
start_remora keys 1
title[links]="Remora, links" title[keys]="Remora, keys"
rss() { awk '/^VmRSS/ { print $2 / 1024 }' "/proc/${pid[$1]}/status"; }

# The contenders: name, server, flags.
rows=(
  "redis redis --path resp"
  "links-read links --path read"
  "links-read-all links --path read --clients $total"
  "links-ask links --path ask"
  "keys-read keys --keys --path read"
  "keys-ask keys --keys --path ask"
)
search=(--graph "$graph" --bfs "$source")
# By READs the server has nothing to do: there is a row in which the client has its cores too.
cores_of() { case "$1" in *-all) among 0 "$total" ;; *) echo "$on_client" ;; esac; }

declare -A grown
for row in "redis redis --path resp" "links links --path ask" "keys keys --keys --path ask"; do
  read -r _ server flags <<<"$row"
  say "loading: ${title[$server]}"
  before="$(rss "$server")"
  # shellcheck disable=SC2086
  run "load" "${search[@]}" --server "127.0.0.1:${port[$server]}" $flags --cold
  grown["$server"]="$(awk -v a="$(rss "$server")" -v b="$before" 'BEGIN { printf "%.0f", a - b }')"
done

for round in $(seq "$rounds"); do
  for row in "${rows[@]}"; do
    read -r name server flags <<<"$row"
    say "round $round of $rounds: $name"
    prefix=(taskset -c "$(cores_of "$name")")
    # shellcheck disable=SC2086
    run "$name" "${search[@]}" --server "127.0.0.1:${port[$server]}" --loaded $flags
    for field in elapsed_s round_trips_per_op bytes_per_op server_cpu_us_per_op asked stale ops; do
      keep "$name.$field" "$(field "$name" "$field")"
    done
  done
  for row in "${rows[@]}"; do
    read -r name _ <<<"$row"
    keep "$name.faster" "$(ratio "$(field redis elapsed_s)" "$(field "$name" elapsed_s)")"
    keep "$name.over_keys_ask" "$(ratio "$(field keys-ask elapsed_s)" "$(field "$name" elapsed_s)")"
  done
done

prefix=(taskset -c "$on_client")
echo "$(machine). Server on core(s) $on_server, client on $on_client, with --clients $total on all; medians of $rounds round(s)."
echo
echo "| | s | times as fast as Redis | as keys that are asked for | items | round trips | bytes an item | server CPU s | asked | stale | memory of the graph, MiB |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
for row in "${rows[@]}"; do
  read -r name server flags <<<"$row"
  ops="$(median "$name.ops")"
  printf '| %s `%s` | %.3f | %.2f | %.2f | %.0f | %.0f | %.0f | %.3f | %.0f | %.0f | %s |\n' \
    "${title[$server]}" "$flags" "$(median "$name.elapsed_s")" "$(median "$name.faster")" \
    "$(median "$name.over_keys_ask")" "$ops" \
    "$(awk -v a="$(median "$name.round_trips_per_op")" -v n="$ops" 'BEGIN { print a * n }')" \
    "$(median "$name.bytes_per_op")" \
    "$(awk -v a="$(median "$name.server_cpu_us_per_op")" -v n="$ops" 'BEGIN { print a * n / 1e6 }')" \
    "$(median "$name.asked")" "$(median "$name.stale")" "${grown[$server]}"
done
echo
echo "Each row is one of:"
echo
for row in "${rows[@]}"; do read -r name _ <<<"$row"; echo "    $(command_of "$name")"; done

[ -n "$updates" ] || exit 0
echo
echo "| users written anew | stale hints in the search after | s | stale hints in the five searches after that | s of the last |"
echo "| --- | --- | --- | --- | --- |"
for share in $updates; do
  say "updates: $share"
  address="127.0.0.1:${port[links]}"
  run updated "${search[@]}" --server "$address" --loaded --path read --cold --updates "$share"
  printf '| %s | %.0f | %.3f |' "$share" "$(field updated stale)" "$(field updated elapsed_s)"
  run mended "${search[@]}" --server "$address" --loaded --path read --cold --rounds 5
  stale="$(grep -o '"stale":[0-9]*' "$work/mended.json" | sed 's/.*://' | tail -n +2 | head -5 | tr '\n' ' ')"
  printf ' %s| %.3f |\n' "$stale" "$(field mended elapsed_s)"
done
