#!/usr/bin/env bash
# Hundreds of clients over verbs that connect, are silent, and die at once,
# beside one that reads. The test binary is the first argument; it starts
# servers on rxe0, and its clients are on rxe1. And what the bench tells of
# queue pairs.
set -euo pipefail
# shellcheck source=tests/rxe/guest/remora.sh
source "$(dirname "${BASH_SOURCE[0]}")/remora.sh"

rxe_up 2
ulimit -n 4096
REMORA_RDMA_DEVICES=rxe1 timeout 360 "$1" --test-threads=1 --nocapture

server_start
bench pairs --path read --transport verbs --clients 3 --ops 90 || fail "the bench"
pairs="$(number pairs queue_pairs), unshared $(number pairs queue_pairs_unshared)"
[[ $pairs == "1, unshared 3" ]] || fail "queue pairs $pairs"
server_stop
passed "the bench with 3 clients and 1 shard: queue pairs $pairs"
