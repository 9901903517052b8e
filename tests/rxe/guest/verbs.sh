#!/usr/bin/env bash
# Runs the fabric's tests that need devices between two of them, but for the
# conformance body, one after the other. They may pull cables: net.sh is left to
# them as $REMORA_RXE_NET. Their binary is the first argument.
set -uo pipefail
REMORA_RXE_NET=$(realpath "$(dirname "${BASH_SOURCE[0]}")/net.sh")
# shellcheck source=tests/rxe/guest/net.sh
source "$REMORA_RXE_NET"
rxe_up 2 || exit
export REMORA_RXE_NET REMORA_TEST_DEVICES=rxe0,rxe1
timeout 840 "$1" --skip verbs_conformance:: --test-threads=1 --nocapture
