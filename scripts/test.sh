#!/usr/bin/env bash
# Builds everything and runs all tests.
#
# Installs what the tests need when it is root or may sudo without a password.
# Otherwise it prints the one apt line, runs what needs none of it, lists what
# did not run, and exits 2. With CI=true a skip is a failure.
# The tests learn from REMORA_SKIP (names, separated by commas) which tools are
# absent, and from REMORA_BIN where the release binary is.
# Exit: 0 all passed, 1 something failed, 2 something was skipped.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
command -v cargo >/dev/null || PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"
export PATH

# shellcheck source=scripts/needs.sh
source scripts/needs.sh
meet_needs "$needs_of_tests$needs_of_rxe"
rxe_can_run=$(look_for_missing "$needs_of_rxe"; echo $((${#tools[@]} == 0)))
REMORA_SKIP=$(IFS=,; echo "${tools[*]-}")
target=${CARGO_TARGET_DIR:-target}
[[ $target == /* ]] || target=$PWD/$target
export REMORA_SKIP REMORA_BIN=$target/release/remora

log=$(mktemp)
trap 'rm -f "$log"' EXIT

steps_failed=0
cargo build --locked --release --workspace </dev/null || steps_failed=1
if ((steps_failed == 0)); then
    # Documentation tests are part of this run.
    cargo test --locked --workspace --no-fail-fast </dev/null 2>&1 | tee "$log" || steps_failed=1
fi

# A type that a newcomer adds has to build and pass its tests: one more test.
newcomer_failed=0 newcomer_passed=0
if ((steps_failed == 0)); then
    if cargo xtask newcomer </dev/null; then newcomer_passed=1; else newcomer_failed=1; fi
fi

# Mistakes in a copy of the tree have to be found: one more test.
planted_failed=0 planted_passed=0
if ((steps_failed == 0)); then
    if cargo xtask planted --short </dev/null; then planted_passed=1; else planted_failed=1; fi
fi

# Nightly-only tools, where they are: what they could not run is told at the
# end, and is no skip.
nightly=$(mktemp)
trap 'rm -f "$log" "$nightly"' EXIT
sanitizers_failed=0
if ((steps_failed == 0)); then
    bash scripts/sanitize.sh tsan miri_short 2>&1 | tee "$nightly" || sanitizers_failed=1
fi

# Real verbs, in a virtual machine; test binaries in it end with the same
# closing lines. 2: there can be no such machine here.
rxe_failed=0 rxe_skipped=0
if ((steps_failed == 0 && rxe_can_run)); then
    bash tests/rxe/rxe.sh 2>&1 | tee -a "$log" || case $? in
    2) rxe_skipped=1 ;;
    *) rxe_failed=1 ;;
    esac
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
passed=$((passed + newcomer_passed + planted_passed))
failed=$((failed + newcomer_failed + planted_failed + sanitizers_failed))
skipped=$((ignored + ${#tools[@]} + rxe_skipped))

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
grep '^sanitize: did not run' "$nightly" | sed 's/^sanitize/test/' || true
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
