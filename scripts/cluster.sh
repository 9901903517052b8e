#!/usr/bin/env bash
# A failover before one's eyes: `make cluster`. ZooKeeper is installed first, if that is allowed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/needs.sh

meet_needs "$(grep zookeeper <<<"$needs_of_tests")"
((${#tools[@]} == 0)) || exit 2
cargo build --locked --release --package remora
"${CARGO_TARGET_DIR:-target}/release/remora" demo --cluster "$@"
