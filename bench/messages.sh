#!/usr/bin/env bash
# Compares ways to pass messages, and ways to share the work of a shard
# (HydraDB 4.2.1, 6.2 and 6.2.1), and prints a table as Markdown.
#
#   bench/messages.sh            five rounds
#   bench/messages.sh --short    one round of few operations, to see that it works
#
# One round runs every form on every mix, one after the other, so that a slow
# minute of the machine hits all of them. A ratio is taken within its round;
# the table shows medians over the rounds. All forms run in the same small
# server and client of the bench's own (--like-for-like); the column "product"
# is what Remora itself does on the same work. Progress goes to standard error.
set -euo pipefail

rounds=5 records=1000000 ops=1000000
case "${1:-}" in
  "") ;;
  --short) rounds=1 records=200 ops=400 ;;
  *) echo "usage: bench/messages.sh [--short]" >&2; exit 2 ;;
esac
cd "$(dirname "$0")/.."

say() { echo "$*" >&2; }

cargo build --release -p remora >&2
remora="${CARGO_TARGET_DIR:-target}/release/remora"

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# As the paper's: a client for each core that the shard leaves, at least two.
clients="$(($(nproc) > 3 ? $(nproc) - 1 : 2))"
common="--path ask --records $records --ops $ops --shards 1 --clients $clients --json"
mixes="zipf:0.99/1 zipf:0.99/0.9 zipf:0.99/0.5 uniform/1 uniform/0.9 uniform/0.5"
# name:flags; the first is what the others are compared with.
forms=(
  "ring:--like-for-like --messages ring"
  "sendrecv:--messages sendrecv"
  "indicator:--messages indicator"
  "pipelined:--messages ring --shard-model pipelined"
  "sendrecv-pipelined:--messages sendrecv --shard-model pipelined"
  "indicator-pipelined:--messages indicator --shard-model pipelined"
  "product:"
)

# run KEY FLAGS...: keeps the JSON object of the run as KEY.
run() {
  local key="$1"
  shift
  # shellcheck disable=SC2086
  "$remora" bench keys $common "$@" >"$work/$key.json" 2>"$work/$key.log" ||
    { cat "$work/$key.log" >&2; exit 1; }
}
field() { sed -n "s/.*\"$2\":\([-+.0-9eE]*\).*/\1/p" "$work/$1.json"; }
keep() { echo "$2" >>"$work/all.$1"; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.4f\n", a / b }'; }
median() {
  sort -g "$work/all.$1" |
    awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}
# A mix's name in files and in the table.
slug() { echo "${1//[:\/]/-}"; }

for round in $(seq "$rounds"); do
  for mix in $mixes; do
    say "round $round of $rounds: $mix"
    for form in "${forms[@]}"; do
      key="$(slug "$mix").${form%%:*}"
      # shellcheck disable=SC2086
      run "$key" --dist "${mix%/*}" --reads "${mix#*/}" ${form#*:}
      rate="$(field "$key" ops_per_s)"
      keep "$key.rate" "$rate"
      keep "$key.ratio" "$(ratio "$(field "$(slug "$mix").ring" ops_per_s)" "$rate")"
      keep "$key.cpu" "$(field "$key" server_cpu_us_per_op)"
    done
  done
done

rate() { awk -v v="$1" 'BEGIN { printf v < 1e6 ? "%.0fk/s" : "%.2fM/s", v < 1e6 ? v / 1e3 : v / 1e6 }'; }

cpu="$(awk -F': ' '/^model name/ { print $2; exit }' /proc/cpuinfo)"
echo "$records records, 16-byte keys, 32-byte values, one shard, $clients clients with one request each;"
echo "medians of $rounds round(s); $(nproc) cores, ${cpu:-CPU unknown}; $(uname -sr), $("$remora" version)."
echo "A figure is how many times the throughput of a form the ring with one thread for each shard has,"
echo "and in brackets the form's server CPU for each operation."
echo
header="| GETs, keys | ring, single |" line="| --- | --- |"
for form in "${forms[@]:1}"; do
  header+=" ${form%%:*} |"
  line+=" --- |"
done
echo "$header"
echo "$line"
for mix in $mixes; do
  key="$(slug "$mix")"
  row="| $(awk -v reads="${mix#*/}" 'BEGIN { printf "%d%%", 100 * reads }'), ${mix%/*} |"
  row+=" $(rate "$(median "$key.ring.rate")") ($(printf '%.2f' "$(median "$key.ring.cpu")") us) |"
  for form in "${forms[@]:1}"; do
    name="$key.${form%%:*}"
    row+=" $(printf '%.2f' "$(median "$name.ratio")") ($(printf '%.2f' "$(median "$name.cpu")") us) |"
  done
  echo "$row"
done
echo
echo "Commands of a round on the last mix:"
echo
echo '```sh'
for form in "${forms[@]}"; do
  sed -n 's/.*"command":"\([^"]*\)".*/\1/p' "$work/$(slug "$mix").${form%%:*}.json"
done
echo '```'
