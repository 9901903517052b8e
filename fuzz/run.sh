#!/usr/bin/env bash
# Runs every fuzz target for some seconds (default 20), from its seeds.
#
#   fuzz/run.sh [seconds] [target ...]
#
# Targets named *_session play whole sessions: slow, some tens to some hundreds
# a second, and of use from some hundred bytes of script on.
# Needs a nightly toolchain and cargo-fuzz; installs nothing. What it writes
# stays in fuzz/target (or CARGO_TARGET_DIR) and fuzz/artifacts. Ends with 2 if
# a tool is missing, with 1 if a target failed.
set -euo pipefail
cd "$(dirname "$0")"

seconds="${1:-20}"
shift || true
if ! [[ "$seconds" =~ ^[1-9][0-9]*$ ]]; then
    echo "usage: fuzz/run.sh [seconds] [target ...]" >&2
    exit 2
fi
if ! cargo +nightly --version >/dev/null 2>&1; then
    echo "fuzz: no nightly toolchain. Install one: rustup toolchain install nightly" >&2
    exit 2
fi
if ! cargo +nightly fuzz --version >/dev/null 2>&1; then
    echo "fuzz: cargo-fuzz is missing. Install it: cargo install cargo-fuzz" >&2
    exit 2
fi

targets=("$@")
if [ "${#targets[@]}" -eq 0 ]; then
    mapfile -t targets < <(cargo +nightly fuzz list)
fi
target_dir="${CARGO_TARGET_DIR:-target}"

passed=0
failed=()
for target in "${targets[@]}"; do
    # New inputs go to a directory of the build, so that seeds stay few.
    found="$target_dir/fuzz-corpus/$target"
    mkdir -p "$found" "corpus/$target"
    echo "fuzz: $target for $seconds s"
    lengths=()
    if [[ "$target" == *_session ]]; then
        lengths=(-len_control=0 -max_len=1500)
    fi
    log="$target_dir/fuzz-corpus/$target.log"
    if cargo +nightly fuzz run "$target" "$found" "corpus/$target" -- \
        -max_total_time="$seconds" "${lengths[@]}" -print_final_stats=1 -verbosity=1 >"$log" 2>&1; then
        passed=$((passed + 1))
        echo "fuzz: $target: $(grep -E 'number_of_executed_units' "$log" | grep -oE '[0-9]+' || echo 0) executions"
    else
        failed+=("$target")
        tail -n 40 "$log" >&2
        echo "fuzz: $target FAILED; its input is in fuzz/artifacts/$target" >&2
    fi
done

echo "$passed passed, ${#failed[@]} failed"
[ "${#failed[@]}" -eq 0 ]
