#!/usr/bin/env bash
# Repeats on this machine what docs/performance.md says of every core, target by
# target: each part is a script beside this one, which pins what it compares and
# prints its own Markdown tables. Takes about an hour and a half on two cores.
#
#   bench/every-core.sh             everything, to standard output
#   bench/every-core.sh --rounds N  so many rounds of each part [default: 5]
#
# Needs what bench/cores.sh needs, and cargo for the idle sessions.
set -euo pipefail

rounds=5
case "${1:-}" in
  "") ;;
  --rounds) rounds="${2:?}" ;;
  *) echo "usage: bench/every-core.sh [--rounds N]" >&2; exit 2 ;;
esac
cd "$(dirname "${BASH_SOURCE[0]}")"

part() {
  printf '\n## `bench/%s`\n\n' "$*"
  "./$@"
}

part cores.sh --rounds "$rounds"
part cores.sh --rounds "$rounds" --shared --connections 200
part fairness.sh --rounds "$rounds"
part places-peers.sh --rounds "$rounds"
part keys.sh
part tables.sh clients
for clients in 2 4; do
  part choice.sh --rounds "$rounds" --records 500000 --clients "$clients" --short
  part choice.sh --rounds "$rounds" --records 500000 --clients "$clients"
done
printf '\n## Memory of idle RESP connections, bytes each\n\n'
python3 idle_connections.py "${CARGO_TARGET_DIR:-../target}/release/remora"
printf '\n## Memory of idle sessions\n\n'
(cd .. && cargo test --release -p remora-tests --test end_to_end idle_memory:: -- --nocapture)
