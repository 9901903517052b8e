#!/usr/bin/env bash
# Measures commands on lists and sets against Redis 7 and Valkey 9, over RESP by
# redis-benchmark, and prints a Markdown table of the server's CPU for each
# operation: see commands.sh.
#
#   bench/lists-sets.sh               five rounds
#   bench/lists-sets.sh --short       one round of few operations, to see that it works
#   --rounds N                        so many rounds
#   --only "lpush sadd"               only these rows
#   --binary PATH                     another build of `remora` takes part too
#
# 50 connections, one request or 16 at a time; SINTER of large sets by one connection. Elements
# and members have 20 bytes. The list that LRANGE reads has 5,000 elements; the
# large sets have 100,000 members each, of which half are in both; the small one has 100. SISMEMBER
# finds half of what it asks for. Progress goes to standard error.
set -euo pipefail
# shellcheck source=bench/commands.sh
. "$(dirname "$0")/commands.sh"

# members COMMAND KEY FROM TO: inline commands of 20 bytes' words.
members() { awk -v c="$1" -v k="$2" -v i="$3" -v n="$4" 'BEGIN { for (; i < n; i++) printf "%s %s element:%012d\r\n", c, k, i }'; }
# shellcheck disable=SC2329
fill() {
  members RPUSH list 0 5000
  members SADD one 0 100000
  members SADD two 50000 150000
  members SADD small 49950 50050
}
load_all fill

rows=(
  "lpush 50 100000 400000 1000000000 LPUSH queue element:__rand_int__"
  "rpop 50 100000 400000 1000000000 RPOP queue"
  "lrange 50 40000 80000 1 LRANGE list 0 99"
  "lrange-middle 50 40000 80000 1 LRANGE list 2450 2549"
  "sadd 50 100000 400000 1000000 SADD grown element:__rand_int__"
  "sismember 50 100000 400000 200000 SISMEMBER one element:__rand_int__"
  "sinter 1 20 0 1 SINTER one two"
  "sinter-small 50 40000 80000 1 SINTER small one"
)
# shellcheck disable=SC2329
prepare() { redis-cli -p "${port[$1]}" del queue grown >/dev/null; }
measure_rows prepare
