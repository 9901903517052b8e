#!/usr/bin/env bash
# Runs a test binary for cargo, and notes how long it and each of its tests took
# in the file $REMORA_TEST_TIMES: "binary NAME SECONDS", "test NAME MODULE SECONDS".
#
# The test harness tells a test's time with a flag that it calls unstable. A
# binary that does not take the flag is run without it: the table then has no
# modules.
set -uo pipefail

binary=$1
shift
name=$(basename "$binary")
# cargo's hash is no part of the name. A documentation test is no file of `deps`.
if [[ $binary != */deps/* || -z ${REMORA_TEST_TIMES:-} ]]; then
    exec "$binary" "$@"
fi
name=${name%-*}
timed=(-Z unstable-options --report-time)
RUSTC_BOOTSTRAP=1 "$binary" "${timed[@]}" --list >/dev/null 2>&1 || timed=()
from=${EPOCHREALTIME/./}
RUSTC_BOOTSTRAP=1 "$binary" "$@" "${timed[@]}" |
    tee >(awk -v name="$name" '
        match($0, /^test .* <[0-9.]+s>$/) {
            module = $2
            sub(/::.*/, "", module)
            time = $NF
            gsub(/[<>s]/, "", time)
            print "test", name, module, time
        }' >>"$REMORA_TEST_TIMES")
status=${PIPESTATUS[0]}
took=$((${EPOCHREALTIME/./} - from))
printf 'binary %s %d.%03d\n' "$name" $((took / 1000000)) $((took / 1000 % 1000)) >>"$REMORA_TEST_TIMES"
exit "$status"
