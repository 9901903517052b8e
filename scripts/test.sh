#!/usr/bin/env bash
# Builds everything and runs the tests of a tier.
#
# usage: test.sh [fast | long]
#   fast   unit tests, and each crate's tests against oracles: under 3 minutes
#          after a build on two cores. Installs nothing.
#   (none) all that a change must pass: at most 20 minutes after a build
#   long   the same, and what takes hours: worlds, planted mistakes, whole
#          ThreadSanitizer and Miri, fuzzing; REMORA_LONG_MINUTES for worlds and for fuzzing, 60 by default
#
# Installs what the tests need when it is root or may sudo without a password.
# Otherwise it prints the one apt line, runs what needs none of it, lists what
# did not run, and exits 2. With CI=true a skip is a failure.
# The tests learn from REMORA_SKIP (names, separated by commas) which tools are
# absent, and from REMORA_BIN where the release binary is.
# It ends with a table of how long each part took, and with the sums.
# Exit: 0 all passed, 1 something failed, 2 something was skipped.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
command -v cargo >/dev/null || PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"
command -v go >/dev/null || PATH="$PATH:/usr/local/go/bin"
export PATH
tier=${1:-usual}
[[ $tier =~ ^(fast|usual|long)$ ]] || { sed -n 's/^# usage:/usage:/p' "$0" >&2 && exit 1; }

# shellcheck source=scripts/needs.sh
source scripts/needs.sh
# shellcheck source=scripts/parts.sh
source scripts/parts.sh
tools=() purposes=() rxe_can_run=0
if [[ $tier != fast ]]; then
    meet_needs "$needs_of_tests$needs_of_rxe"
    rxe_can_run=$(look_for_missing "$needs_of_rxe"; echo $((${#tools[@]} == 0)))
fi
REMORA_SKIP=$(IFS=,; echo "${tools[*]-}")
target=${CARGO_TARGET_DIR:-target}
[[ $target == /* ]] || target=$PWD/$target
export REMORA_SKIP REMORA_BIN=$target/release/remora

# What test-fast leaves out: real processes and worlds, which take longest. So do
# models, which are modules of other crates too.
not_fast=(--exclude remora-tests --exclude remora-models --exclude remora-sim --exclude couriers --exclude dispatch
    --exclude leaderboard --exclude rate-limiter --exclude remora-zookeeper)

# Cargo's own steps, whose test binaries end with closing lines that are counted.
# Nothing runs after a build that failed.
steps_failed=0 build_failed=0
step() {
    ((build_failed == 0)) || return 0
    part "$@"
    ((status == 0)) || steps_failed=1
    [[ $1 != build* ]] || build_failed=$steps_failed
}
# What counts as one test: whether a command succeeds.
one_passed=0 one_failed=0
one_test() {
    ((steps_failed == 0)) || return 0
    part "$@"
    if ((status == 0)); then one_passed=$((one_passed + 1)); else one_failed=$((one_failed + 1)); fi
}

if [[ $tier == fast ]]; then
    step "build of the tests" cargo test --locked --workspace "${not_fast[@]}" --no-run
    step tests cargo_test --workspace "${not_fast[@]}" --tests -- --skip models::
else
    # The other binaries are built without optimizations, by the tests.
    step build cargo build --locked --release --package remora
    step "build of the tests" cargo test --locked --workspace --no-run
    step tests cargo_test --workspace --tests
    step "documentation tests" cargo test --locked --workspace --no-fail-fast --doc
    # A type that a newcomer adds has to build and pass its tests.
    one_test newcomer cargo xtask newcomer
    # Mistakes in a copy of the tree have to be found.
    one_test "planted mistakes, short" cargo xtask planted --short
fi

# Nightly-only tools, where they are: what they could not run is told at the
# end, and is no skip.
sanitizers_failed=0
if ((steps_failed == 0)) && [[ $tier != fast ]]; then
    sanitizers=(tsan_short miri_short)
    [[ $tier == usual ]] || sanitizers=(tsan miri)
    for tool in "${sanitizers[@]}"; do
        part "$tool" bash scripts/sanitize.sh "$tool"
        ((status == 0)) || sanitizers_failed=1
    done
fi

# Real verbs, in a virtual machine; test binaries in it end with the same
# closing lines. 2: there can be no such machine here.
rxe_failed=0 rxe_skipped=0
if ((steps_failed == 0 && rxe_can_run)); then
    part "virtual machine" bash tests/rxe/rxe.sh
    case $status in
    0) ;;
    2) rxe_skipped=1 ;;
    *) rxe_failed=1 ;;
    esac
fi

if [[ $tier == long ]]; then
    minutes=${REMORA_LONG_MINUTES:-60}
    one_test worlds make --no-print-directory worlds "ARGS=--minutes $minutes"
    one_test torture env "REMORA_TORTURE_SECONDS=$((minutes * 10))" \
        cargo test --locked --package remora-tests --test end_to_end torture::
    one_test crashes env "REMORA_CRASH_ROUNDS=$((minutes * 5))" \
        cargo test --locked --package remora-tests --test end_to_end crash::
    one_test failovers env REMORA_FAILOVERS=10000 \
        cargo test --locked --package remora-cluster --test cluster world::failing_over
    one_test "all planted mistakes" cargo xtask planted
    one_test fuzzing bash fuzz/run.sh "$((minutes * 6))"
fi

# Sums of the closing lines of all test binaries and of rxe.sh: passed, failed, ignored.
read -r passed failed ignored < <(awk '
    /^test result: / {
        for (i = 2; i <= NF; i++) {
            if ($i == "passed;") passed += $(i - 1)
            if ($i == "failed;") failed += $(i - 1)
            if ($i == "ignored;") ignored += $(i - 1)
        }
    }
    /^rxe: [0-9]+ passed, [0-9]+ failed$/ {
        passed += $2
        failed += $4
    }
    END { print passed + 0, failed + 0, ignored + 0 }' "$log")
if ((steps_failed + rxe_failed > 0 && failed == 0)); then
    failed=1 # a build, or a test process, that died without a closing line
fi
passed=$((passed + one_passed))
failed=$((failed + one_failed + sanitizers_failed))
skipped=$((ignored + ${#tools[@]} + rxe_skipped))

print_times
echo
for at in "${!tools[@]}"; do
    echo "test: did not run, ${tools[at]} is missing: ${purposes[at]}"
done
if ((ignored > 0)); then
    echo "test: did not run, marked as ignored: $ignored"
fi
if ((rxe_skipped > 0)); then
    echo "test: did not run, there is no virtual machine here: real verbs"
fi
grep '^sanitize: did not run' "$log" | sed 's/^sanitize/test/' || true
if ((skipped > 0)); then
    echo "$passed passed, $failed failed, $skipped skipped"
else
    echo "$passed passed, $failed failed"
fi

if ((failed > 0 || passed == 0)); then
    exit 1
elif ((skipped > 0)); then
    [[ ${CI:-} == true ]] && exit 1
    exit 2
fi
