#!/usr/bin/env bash
# Measures boxes of points against peers: the same points and the same boxes,
# by GEOADD and GEOSEARCH BYBOX, at a redis-server and at ours; at ours also by
# RTREE.SEARCH, and by our own client, asking and reading (whose objects are
# the small rectangles around those points). Over RESP each search waits for
# the one before, or 32 are sent together; PINGs show what any request costs.
# Prints Markdown tables: medians of the rounds, in each of which all have their
# turn.
#
#   bench/places-peers.sh            200,000 points
#   bench/places-peers.sh --big      2,000,000 points
#   bench/places-peers.sh --rounds N --ops N --clients N
#
# Needs redis-server on the PATH. A tile38-server there is measured as well, by
# SET ... POINT and INTERSECTS ... BOUNDS. Progress goes to standard error.
set -euo pipefail

records=200000 ops=20000 rounds=5 clients=1
while [ $# -gt 0 ]; do
  case "$1" in
    --big) records=2000000 ;;
    --rounds) rounds="$2"; shift ;;
    --ops) ops="$2"; shift ;;
    --clients) clients="$2"; shift ;;
    *) echo "usage: bench/places-peers.sh [--big] [--rounds N] [--ops N] [--clients N]" >&2; exit 2 ;;
  esac
  shift
done
command -v redis-server >/dev/null || { echo "redis-server is not on the PATH" >&2; exit 1; }
# shellcheck source=bench/lib.sh
. "$(dirname "$0")/lib.sh"
start_bench

servers=()
# Called by lib.sh.
# shellcheck disable=SC2329
at_end() { [ ${#servers[@]} -eq 0 ] || kill "${servers[@]}" 2>/dev/null || true; }

redis="127.0.0.1:$(free_port)"
redis-server --port "${redis#*:}" --bind 127.0.0.1 --save "" --appendonly no \
  --dir "$work" >"$work/redis.log" 2>&1 &
servers+=($!)
ours="127.0.0.1:$(free_port)"
"$remora" serve --shards 1 --max-memory 4GiB --socket "$work/s" --bind 127.0.0.1 --port "${ours#*:}" \
  >"$work/remora.log" 2>&1 &
servers+=($!)
rows=(redis geosearch rtree ask read ping.redis ping.remora)
pipelined=(redis geosearch rtree ping.redis ping.remora)
pipeline=32
addresses=("$redis" "$ours")
if command -v tile38-server >/dev/null; then
  tile38="127.0.0.1:$(free_port)"
  tile38-server -h 127.0.0.1 -p "${tile38#*:}" -d "$work/tile38" --appendonly no \
    >"$work/tile38.log" 2>&1 &
  tile38_pid=$!
  servers+=("$tile38_pid")
  rows+=(tile38)
  addresses+=("$tile38")
fi
for address in "${addresses[@]}"; do wait_for_server "$address"; done

# geo NAME FLAGS...: one run of points.
geo() {
  local name="$1"
  shift
  bench=geo run "$name" --records "$records" --clients "$clients" --ops "$ops" "$@"
}

# peers SUFFIX SCALE FLAGS...: a run of points at each server.
peers() {
  local suffix="$1" scale="$2"
  shift 2
  geo "redis.$suffix" --server "$redis" --scale "$scale" --loaded --keep "$@"
  geo "geosearch.$suffix" --server "$ours" --scale "$scale" --loaded --keep "$@"
  geo "rtree.$suffix" --server "$ours" --by rtree --scale "$scale" --loaded --keep "$@"
  geo "ping.redis.$suffix" --server "$redis" --by ping --scale "$scale" "$@"
  geo "ping.remora.$suffix" --server "$ours" --by ping --scale "$scale" "$@"
}

# places NAME PATH SCALE: one run of rectangles by our own client.
places() {
  bench=places run "$1" --server "$work/s" --load bulk --records "$records" \
    --clients "$clients" --ops "$ops" \
    --path "$2" --scale "$3"
}

keep_row() {
  local row="$1" field
  for field in ops_per_s p50_us p99_us server_cpu_us_per_op results_per_op; do
    keep "$row.$field" "$(field "$row" "$field")"
  done
}

say "loading $records points"
geo load --server "$redis" --keep
geo load --server "$ours" --keep
geo load --server "$ours" --by rtree --keep

for row in "${rows[@]}"; do
  [ "$row" = tile38 ] && geo load --server "$tile38" --by tile38 --keep
done

for round in $(seq "$rounds"); do
  for scale in 0.00001 0.01; do
    say "round $round of $rounds, scale $scale"
    peers "$scale" "$scale"
    peers "$scale.piped" "$scale" --pipeline "$pipeline"
    if [ -n "${tile38:-}" ]; then
      geo "tile38.$scale" --server "$tile38" --server-pid "$tile38_pid" --by tile38 \
        --scale "$scale" --loaded --keep
    fi
    places "ask.$scale" ask "$scale"
    places "read.$scale" read "$scale"
    for row in "${rows[@]}"; do keep_row "$row.$scale"; done
    for row in "${pipelined[@]}"; do keep_row "$row.$scale.piped"; done
  done
done

name_of() {
  case "$1" in
    ping.redis) echo "Redis, PING of 56 bytes" ;;
    ping.remora) echo "Remora, PING of 56 bytes" ;;
    redis) echo "Redis, GEOSEARCH BYBOX" ;;
    geosearch) echo "Remora, GEOSEARCH BYBOX" ;;
    rtree) echo "Remora, RTREE.SEARCH" ;;
    ask) echo "Remora's client, ask" ;;
    read) echo "Remora's client, read" ;;
    tile38) echo "Tile38, INTERSECTS BOUNDS" ;;
  esac
}

echo "$(machine), $(redis-server --version | sed 's/ sha=.*//'). $records points, $clients clients," \
  "$ops searches, medians of $rounds rounds."
# table SCALE SUFFIX ROW...: the rows of a scale.
table() {
  local scale="$1" suffix="$2" row cpu theirs
  shift 2
  echo "| | rate | p50 us | p99 us | server CPU us/search | results/search | searches per CPU second, times Redis's |"
  echo "| --- | --- | --- | --- | --- | --- | --- |"
  theirs="$(median "redis.$scale$suffix.server_cpu_us_per_op")"
  for row in "$@"; do
    cpu="$(median "$row.$scale$suffix.server_cpu_us_per_op")"
    printf '| %s | %s | %.2f | %.2f | %.2f | %.4f | %s |\n' "$(name_of "$row")" \
      "$(rate "$(median "$row.$scale$suffix.ops_per_s")")" \
      "$(median "$row.$scale$suffix.p50_us")" "$(median "$row.$scale$suffix.p99_us")" \
      "$cpu" "$(median "$row.$scale$suffix.results_per_op")" \
      "$(awk -v a="$theirs" -v b="$cpu" 'BEGIN { if (b > 0) printf "%.1f", a / b; else print "-" }')"
  done
}

for scale in 0.00001 0.01; do
  printf '\n### Boxes with edges in (0, %s] degrees\n\n' "$scale"
  table "$scale" "" "${rows[@]}"
  printf '\nThe same, %s searches at a time:\n\n' "$pipeline"
  table "$scale" ".piped" "${pipelined[@]}"
done
for row in "${rows[@]}"; do printf '\n    %s\n' "$(command_of "$row.0.01")"; done
