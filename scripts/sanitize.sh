#!/usr/bin/env bash
# Runs tests under ThreadSanitizer and Miri, where a nightly toolchain has them.
#
# Each tool also runs a control arm: a copy of the tree with a planted data race
# (xtask/planted/plain-copy.patch), which it must report. One that reports nothing
# there would report nothing elsewhere, so that is a failure.
# What a nightly toolchain lacks for them, rustup is asked for once. Without a
# nightly toolchain, or without a tool, the script says so and goes on.
#
# usage: sanitize.sh [tsan | tsan_short] [miri | miri_short]     (tsan and miri, if none is named)
#   tsan_short, miri_short   what `make test` has the time for
# Exit: 0 what could run has passed, 1 something failed.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
command -v cargo >/dev/null || PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"
export PATH
target=${CARGO_TARGET_DIR:-target}
[[ $target == /* ]] || target=$PWD/$target
triple=x86_64-unknown-linux-gnu
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0

# Package, then what cargo test is told: tests in which threads meet, whose
# binaries ThreadSanitizer watches. The last one is a whole server.
tsan_tests='
remora-arena  --test arena publication::
remora-fabric --lib -- --skip models
remora-fabric --test fabric shm_conformance::
remora-ring   --test ring
remora-index  --test index rtree_walks::threads_search
remora-engine --test engine -- readers::walks_beside ask_only::
remora-tests  --test in_process
'
# Without the last ones, whose crates take a build of minutes.
tsan_short_tests='
remora-arena  --test arena publication::
remora-fabric --lib -- --skip models
remora-fabric --test fabric shm_conformance::
remora-ring   --test ring
'
# For Miri what lies over heap words. What
# needs shared memory, epoll or many rounds is left to ThreadSanitizer.
miri_short_tests='
remora-arena  --lib -- --skip fork --skip seals --skip numa --skip every_size --skip a_long_random --skip a_peer --skip is_zeroed
remora-arena  --test arena publication::
'
# These take Miri many minutes.
miri_tests="$miri_short_tests"'
remora-ring   --test ring -- --skip over_many_laps --skip no_bytes
remora-index  --test index rtree_walks::threads_search
remora-index  --test index rtree_cursor::what_is_there
remora-engine --test engine readers::walks_beside
remora-client-core --lib read_lease::tests
'
planted='remora-arena --test arena publication::readers_see_one_record'

say() { echo "sanitize: $*"; }

has_nightly() {
    command -v rustup >/dev/null && rustup run nightly rustc --version >/dev/null 2>&1
}
has_miri() { cargo +nightly miri --version >/dev/null 2>&1; }
has_source() {
    [[ -e $(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library/Cargo.lock ]]
}
has_tsan() {
    [[ -e $(rustc +nightly --print target-libdir --target $triple)/librustc-nightly_rt.tsan.a ]]
}

# Runs one line of a list by a tool; the output goes to the log as well.
run_one() {
    local tool=$1 package=$2
    shift 2
    "${tool}_test" --locked --package "$package" "$@" </dev/null >"$log" 2>&1
}

# All lines of a list.
run_list() {
    local tool=$1 list=$2 line words
    while read -r line; do
        [[ -n $line ]] || continue
        read -ra words <<<"$line"
        if run_one "$tool" "${words[@]}"; then
            say "$tool: $line: $(grep -c '^test .* ok$' "$log") passed"
            grep -q '^test .* ok$' "$log" || { say "$tool: $line: no test ran"; failed=1; }
        else
            tail -n 80 "$log" >&2
            say "$tool: $line: FAILED"
            failed=1
        fi
    done <<<"$list"
}

# The planted race: the tool must fail, and say why.
run_planted() {
    local tool=$1 words tree
    read -ra words <<<"$planted"
    tree=$(cargo xtask planted --copy plain-copy)
    local is_caught=0
    (cd "$tree" && run_one "$tool" "${words[@]}") || is_caught=1
    # Cargo takes what it built of the copy for the tree's own: the files have the same
    # names, and the tree's are older.
    find "$target/$tool" -path "*/.fingerprint/${words[0]}-*" -prune -exec rm -rf {} +
    if ((is_caught)) && grep -qi 'data race' "$log"; then
        say "$tool: the planted race was caught"
    else
        tail -n 40 "$log" >&2
        say "$tool: the planted race was NOT caught"
        failed=1
    fi
}

# Frames of every report, and no going on after the first one. The atomic
# copying primitive stands in for the vector one, which no tool can look into.
tsan_test() {
    TSAN_OPTIONS="halt_on_error=1 ${TSAN_OPTIONS:-}" \
        RUSTFLAGS="-Zsanitizer=thread --cfg remora_atomic_copy ${tsan_flags}" \
        CARGO_TARGET_DIR=$target/tsan \
        timeout 1800 cargo +nightly test "${tsan_std[@]}" --target $triple "$@"
}

miri_test() {
    MIRIFLAGS="-Zmiri-disable-isolation ${MIRIFLAGS:-}" \
        CARGO_TARGET_DIR=$target/miri PROPTEST_CASES=4 \
        timeout 1800 cargo +nightly miri test "$@"
}

tools=("$@")
((${#tools[@]} > 0)) || tools=(tsan miri)
if ! has_nightly; then
    say "did not run, there is no nightly toolchain: ${tools[*]}"
    exit 0
fi
if ! has_miri || ! has_source; then
    timeout 120 rustup component add --toolchain nightly miri rust-src >/dev/null 2>&1 || true
fi
for tool in "${tools[@]}"; do
    case $tool in
    tsan | tsan_short)
        if ! has_tsan; then
            say "did not run, the nightly toolchain has no ThreadSanitizer: tsan"
            continue
        fi
        # With its source the standard library is watched too. Without it, what
        # it synchronizes by fences alone could look like a race.
        tsan_std=() tsan_flags="-Cunsafe-allow-abi-mismatch=sanitizer"
        if has_source; then
            tsan_std=(-Zbuild-std) tsan_flags=
        fi
        ;;
    miri | miri_short)
        if ! has_miri || ! has_source; then
            say "did not run, the nightly toolchain has no Miri: $tool"
            continue
        fi
        ;;
    *)
        say "unknown tool: $tool" >&2
        exit 1
        ;;
    esac
    list=${tool}_tests
    run_planted "${tool%_short}"
    run_list "${tool%_short}" "${!list}"
done
exit $failed
