#!/usr/bin/env bash
# Measures commands on sorted sets of 100, 10,000 and 1,000,000 members against Redis 7 and Valkey 9, over RESP
# by redis-benchmark, and prints a Markdown table of the server's CPU for each operation: see commands.sh. A second
# table has the same asked over rings (`remora bench elements --of sorted`).
#
#   bench/sorted-sets.sh              five rounds
#   bench/sorted-sets.sh --short      one round of few operations, to see that it works
#   --rounds N                        so many rounds
#   --only "zadd-100 rings-rank-100" only these rows
#   --binary PATH                     another build of `remora` takes part too
#
# 50 connections, one request or 16 at a time; ZUNIONSTORE by one connection, of two sets of which half of the
# members are in both. Members have 20 bytes, and scores are integers of as many values as there are members.
# ZADD gives a member of the set another score; zadd-new adds new ones to one set. ZPOPMIN takes from sets that
# hold 1,000,000 members together: 10,000 sets of 100, 100 of 10,000, one. ZRANGEBYSCORE gives 50 members
# from a random score on. Progress goes to standard error.
set -euo pipefail
# shellcheck source=bench/commands.sh
. "$(dirname "$0")/commands.sh"

sizes=(100 10000 1000000)
# members KEY FROM TO: inline commands; scores are the numbers below their count, mixed.
members() {
  awk -v k="$1" -v from="$2" -v to="$3" 'BEGIN {
    count = to - from
    for (i = from; i < to; i++) printf "ZADD %s %d element:%012d\r\n", k, (i * 7919) % count, i
  }'
}
# shellcheck disable=SC2329
fill() {
  local size
  for size in "${sizes[@]}"; do
    members "z$size" 0 "$size"
    members "half$size" $((size / 2)) $((size / 2 + size))
  done
}
# pops SIZE: sets of this size, from which members are taken.
pops() {
  awk -v size="$1" 'BEGIN {
    for (set = 0; set < 1000000 / size; set++)
      for (i = 0; i < size; i++) printf "ZADD pop%d:%012d %d element:%012d\r\n", size, set, (i * 7919) % size, i
  }'
}
load_all fill

rows=("zadd-new 50 100000 400000 1000000000 ZADD grown __rand_int__ element:__rand_int__")
for size in "${sizes[@]}"; do
  unions=$((size > 100000 ? 3 : 2000000 / size))
  rows+=(
    "zadd-$size 50 100000 400000 $size ZADD z$size __rand_int__ element:__rand_int__"
    "zscore-$size 50 100000 400000 $size ZSCORE z$size element:__rand_int__"
    "zrank-$size 50 100000 400000 $size ZRANK z$size element:__rand_int__"
    "zrangebyscore-$size 50 40000 80000 $size ZRANGEBYSCORE z$size __rand_int__ +inf LIMIT 0 50"
    "zpopmin-$size 50 40000 200000 $((1000000 / size)) ZPOPMIN pop$size:__rand_int__"
    "zunionstore-$size 1 $unions 0 1 ZUNIONSTORE union$size 2 z$size half$size"
  )
done
# shellcheck disable=SC2329
prepare() {
  local size
  redis-cli -p "${port[$1]}" del grown >/dev/null
  for size in "${sizes[@]}"; do
    [ -z "$only" ] || [[ " $only " == *" zpopmin-$size "* ]] || continue
    # Full again: those that are there get their scores.
    load "$1" "pops_of_$size"
  done
}
# shellcheck disable=SC2329
pops_of_100() { pops 100; }
# shellcheck disable=SC2329
pops_of_10000() { pops 10000; }
# shellcheck disable=SC2329
pops_of_1000000() { pops 1000000; }
measure_rows prepare

# The same asked over rings, one request at a time, by Remora's client: one server for each row.
bench=elements
calls=(add score rank range pop union)
for round in $(seq "$rounds"); do
  for size in "${sizes[@]}"; do
    for call in "${calls[@]}"; do
      [ -z "$only" ] || [[ " $only " == *" rings-$call-$size "* ]] || continue
      ops=$((100000 / divisor)) more=()
      case "$call" in
        # Each takes one away.
        pop) ops=$((size < ops ? size : ops)) more=(--cold) ;;
        union) ops=$((size > 100000 ? 3 : 200000 / size)) ;;
      esac
      say "round $round of $rounds, $call of $size over rings"
      run rings --of sorted --path ask --call "$call" --records "$size" --range 50 --ops "$ops" "${more[@]}"
      keep "rings.$call.$size" "$(field rings server_cpu_us_per_op)"
    done
  done
done
echo
echo "Asked over rings: the server's CPU, us an operation."
echo
echo "| Members |$(printf ' %s |' "${calls[@]}")"
echo "| --- |$(printf ' --- |%.0s' "${calls[@]}")"
for size in "${sizes[@]}"; do
  printf '| %s |' "$size"
  for call in "${calls[@]}"; do
    if [ -e "$work/all.rings.$call.$size" ]; then printf ' %.2f |' "$(median "rings.$call.$size")"; else printf ' |'; fi
  done
  echo
done
