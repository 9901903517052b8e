#!/usr/bin/env bash
# Runs test binaries of the fabric between two devices, one after the other;
# all of them, even if one fails. They may pull cables: net.sh is left to them
# as $REMORA_RXE_NET.
set -uo pipefail
REMORA_RXE_NET=$(realpath "$(dirname "${BASH_SOURCE[0]}")/net.sh")
# shellcheck source=tests/rxe/guest/net.sh
source "$REMORA_RXE_NET"
rxe_up 2 || exit
export REMORA_RXE_NET REMORA_TEST_DEVICES=rxe0,rxe1
status=0
for binary; do
    timeout 600 "$binary" --test-threads=1 --nocapture || status=$?
done
exit "$status"
