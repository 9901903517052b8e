#!/usr/bin/env bash
# Hundreds of clients over verbs that connect, are silent, and die at once,
# beside one that reads. The test binary is the first argument; it starts
# servers on rxe0. Clients are on rxe1.
set -euo pipefail
# shellcheck source=tests/rxe/guest/net.sh
source "$(dirname "${BASH_SOURCE[0]}")/net.sh"
rxe_up 2
ulimit -n 4096
REMORA_RDMA_DEVICE=rxe1 timeout 120 "$1" --test-threads=1 --nocapture
