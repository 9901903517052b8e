#!/usr/bin/env bash
# Measures this clone's binary against another build of `remora`, with the work
# of bench/keys.sh and bench/places.sh, and prints a Markdown table.
#
#   bench/against.sh BINARY            five rounds, about five minutes
#   bench/against.sh BINARY --short    one round of less work, to see that it works
#
# In one round each row is run by both, one right after the other, and the other
# one begins in every second round: a slow minute of the machine hits both. A
# ratio is taken within its round; the table shows medians over the rounds, and
# the least and greatest ratio. Progress goes to standard error.
set -euo pipefail

rounds=5 keys=1000000 read_ops=5000000 ask_ops=1000000 places=100000 searches=500000
other="$(realpath "${1:-}" 2>/dev/null)" || other=""
case "${2:-}" in
  "") ;;
  --short) rounds=1 keys=100000 read_ops=500000 ask_ops=100000 places=10000 searches=5000 ;;
  *) other="" ;;
esac
[ -x "$other" ] || { echo "usage: bench/against.sh BINARY [--short]" >&2; exit 2; }
# shellcheck source=bench/lib.sh
. "$(dirname "$0")/lib.sh"
start_bench
this="$(realpath "$remora")"

# once KEY BINARY NAME BENCH FLAGS...: keeps the rate of one run.
once() {
  local kept="$1"
  # Used by lib.sh.
  # shellcheck disable=SC2034
  remora="$2" bench="$4"
  local name="$3"
  shift 4
  run "$name" "$@"
  keep "$name.$kept" "$(field "$name" ops_per_s)"
}

names=()
# row NAME BENCH FLAGS...: one run of each.
row() {
  say "$*"
  if [ $((round % 2)) = 1 ]; then
    once this "$this" "$@"
    once other "$other" "$@"
  else
    once other "$other" "$@"
    once this "$this" "$@"
  fi
  keep "$1.ratio" "$(ratio "$(tail -n 1 "$work/all.$1.this")" "$(tail -n 1 "$work/all.$1.other")")"
  [ "$round" -gt 1 ] || names+=("$1")
}

key_row() { row "$1" keys --records "$keys" --shards 1 "${@:2}"; }
place_row() { row "$1" places --records "$places" --ops "$searches" "${@:2}"; }

for round in $(seq "$rounds"); do
  say "round $round of $rounds"
  key_row read --dist zipf:0.99 --path read --ops "$read_ops"
  key_row batch --dist zipf:0.99 --path read --batch 16 --ops "$read_ops"
  key_row ask --dist zipf:0.99 --path ask --wake poll --ops "$ask_ops"
  key_row deep --dist zipf:0.99 --path ask --wake poll --pipeline 32 --ops "$read_ops"
  key_row writes --dist zipf:0.99 --path ask --wake poll --pipeline 32 --reads 0 --ops "$ask_ops"
  for scale in 0.00001 0.01; do
    place_row "search-read-$scale" --scale "$scale" --path read
    place_row "search-ask-$scale" --scale "$scale" --path ask
  done
  place_row inserts --scale 0.00001 --inserts 0.1 --clients 4 --path ask
done

echo "$rounds round(s); $(machine); against $("$other" version)."
echo
echo "| Run | Rate | The other | Ratio, median | Least to greatest | Command |"
echo "| --- | --- | --- | --- | --- | --- |"
for name in "${names[@]}"; do
  range="$(sort -g "$work/all.$name.ratio" | sed -n '1p;$p' | xargs printf '%.2f to %.2f')"
  printf '| %s | %s | %s | %.2f | %s | `%s` |\n' "$name" "$(rate "$(median "$name.this")")" \
    "$(rate "$(median "$name.other")")" "$(median "$name.ratio")" "$range" "$(command_of "$name")"
done
