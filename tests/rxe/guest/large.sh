#!/usr/bin/env bash
# Large replies over RDMA: runs the test binary that is the first argument
# against a server on the other device.
set -euo pipefail
# shellcheck source=tests/rxe/guest/remora.sh
source "$(dirname "${BASH_SOURCE[0]}")/remora.sh"

rxe_up 2
server_start
export REMORA_RDMA_DEVICES=rxe1 REMORA_SERVER=10.0.0.1:7000
timeout 450 "$1" --test-threads=1 --nocapture || fail "large replies"
server_stop
passed "large replies"
