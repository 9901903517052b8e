#!/usr/bin/env bash
# Runs the conformance body of the fabric between two devices. Its test binary
# is the first argument.
set -euo pipefail
# shellcheck source=tests/rxe/guest/net.sh
source "$(dirname "${BASH_SOURCE[0]}")/net.sh"
rxe_up 2
export REMORA_RDMA_DEVICES=rxe0,rxe1
timeout 80 "$1" --include-ignored --test-threads=1 "${@:2}"
