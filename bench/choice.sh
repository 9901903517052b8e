#!/usr/bin/env bash
# Holds the policies of the choice between asking and reading against the two
# fixed ways, on this machine: small and larger windows of a tree, and keys that
# are known or not, over shared memory and TCP, and keys of an ordered tree by 64
# clients. Slices of all policies take
# turns; each slice of a policy is compared with those of the same round. Prints
# a Markdown table: medians over the rounds, and the middle half of the ratios.
#
#   bench/choice.sh [--rounds N] [--records N] [--clients N] [--only WORKLOAD] [--short]
#
# --short: slices of a tenth: 40,000 searches over shared memory, 4,000 over
# TCP. The first tenth of a second counts there, in which a session learns.
# Progress goes to standard error. In virtual time: remora-sim compare.
set -euo pipefail

rounds=20 records=200000 clients=1 divisor=1 only=
while [ $# -gt 0 ]; do
  case "$1" in
    --rounds) rounds="$2"; shift ;;
    --records) records="$2"; shift ;;
    --clients) clients="$2"; shift ;;
    --only) only="$2"; shift ;;
    --short) divisor=10 ;;
    *) echo "usage: bench/choice.sh [--rounds N] [--records N] [--clients N] [--only WORKLOAD] [--short]" >&2; exit 2 ;;
  esac
  shift
done
# shellcheck source=bench/lib.sh
. "$(dirname "$0")/lib.sh"
start_bench

policies=(ask read catfish-literal catfish-keep cost)

# slice WORKLOAD POLICY
slice() {
  local transport="${1%%.*}" kind="${1#*.}" ops of="$clients"
  if [ "$kind" = ordered ]; then of=64; fi
  local flags=(--path choose --policy "$2" --transport "$transport" --records "$records" --clients "$of")
  case "$1" in
    shm.small | shm.middle | shm.large) ops=400000 ;;
    shm.*) ops=1000000 ;;
    *) ops=40000 ;;
  esac
  ops=$((ops / divisor))
  case "$kind" in
    small) bench=places run slice "${flags[@]}" --load bulk --ops "$ops" --scale 0.00001 ;;
    large) bench=places run slice "${flags[@]}" --load bulk --ops "$ops" --scale 0.03 ;;
    middle) bench=places run slice "${flags[@]}" --load bulk --ops "$ops" --scale 0.01 ;;
    known) run slice "${flags[@]}" --ops "$ops" ;;
    ordered) bench=ranges run slice "${flags[@]}" --ops "$ops" --learn 2000 ;;
    unknown) run slice "${flags[@]}" --ops "$ops" --pointer-cache off ;;
  esac
}

workloads=(shm.small shm.middle shm.large shm.known shm.unknown shm.ordered tcp.small tcp.middle tcp.large tcp.known tcp.unknown tcp.ordered)
if [ -n "$only" ]; then workloads=("$only"); fi
for round in $(seq "$rounds"); do
  for workload in "${workloads[@]}"; do
    say "round $round of $rounds, $workload"
    better=0
    for policy in "${policies[@]}"; do
      slice "$workload" "$policy"
      rate="$(field slice ops_per_s)"
      keep "$workload.$policy" "$rate"
      eval "rate_${policy//-/_}=$rate"
      case "$policy" in
        ask | read) better="$(awk -v a="$better" -v b="$rate" 'BEGIN { print (a > b ? a : b) }')" ;;
      esac
      if [ "$round" = 1 ]; then command_of slice >"$work/command.$workload.$policy"; fi
    done
    for policy in "${policies[@]}"; do
      rate="rate_${policy//-/_}"
      keep "$workload.$policy.ratio" "$(ratio "${!rate}" "$better")"
    done
  done
done

# quartile KEY SHARE: of all that were kept.
quartile() {
  sort -g "$work/all.$1" | awk -v share="$2" '{ v[NR] = $1 } END { print v[int((NR - 1) * share + 1.5)] }'
}

echo "$(machine). $records objects or records, $clients client(s), medians of $rounds rounds."
echo
echo "| workload | policy | rate | of the better of ask and read in its round | middle half |"
echo "| --- | --- | --- | --- | --- |"
for workload in "${workloads[@]}"; do
  for policy in "${policies[@]}"; do
    key="$workload.$policy"
    printf '| %s | %s | %s | %.2f | %.2f to %.2f |\n' "$workload" "$policy" "$(rate "$(median "$key")")" \
      "$(median "$key.ratio")" "$(quartile "$key.ratio" 0.25)" "$(quartile "$key.ratio" 0.75)"
  done
done
for workload in "${workloads[@]}"; do
  printf '\n    %s\n' "$(cat "$work/command.$workload.cost")"
done
