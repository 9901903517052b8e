#!/usr/bin/env bash
# Runs the conformance body of the fabric between two devices, in one process
# and between two. Its test binary is the first argument. The report's field
# `conformance`: the body's checks, and the two tests of lost wake-ups.
set -euo pipefail
# shellcheck source=tests/rxe/guest/net.sh
source "$(dirname "${BASH_SOURCE[0]}")/net.sh"
rxe_up 2
export REMORA_TEST_DEVICES=rxe0,rxe1
said=$(mktemp)
status=0
timeout 450 "$1" verbs_conformance:: --test-threads=1 --nocapture 2>&1 | tee "$said" || status=$?

awk -v status="$status" '
    match($0, /conformance: [0-9]+ checks/) { split(substr($0, RSTART), words, " "); all += words[2] }
    /conformance: [a-z_]+: ok/ { passed++ }
    /^test verbs_conformance::no_wake_up_is_lost/ { all++ }
    /^test verbs_conformance::conforms_with_a_target_elsewhere/ { all++ }
    /^conformance: no wake-up is lost/ { passed++ }
    /^test verbs_conformance::no_wake_up_is_lost \.\.\. ok$/ { passed++ }
    END {
        failed = status != 0
        skipped = all - passed - failed
        printf "{\"passed\":%d,\"failed\":%d,\"skipped\":%d}", passed, failed, skipped
        exit failed || skipped || !passed
    }' "$said" >"$RXE_OUT/conformance.json" || status=1
echo "conformance: $(<"$RXE_OUT/conformance.json")"
exit "$status"
