# shellcheck shell=bash
# Parts of a test run, and how long each took. Sourced by scripts/test.sh.

# What the parts took, a line each; see scripts/run_test_binary.sh.
times=$(mktemp)
# What all parts said.
log=$(mktemp)
trap 'rm -f "$log" "$times"' EXIT

# part NAME COMMAND...: runs it, and keeps what it says and how long it took. The
# command's exit code is in `status`.
part() {
    local name=$1 from=${EPOCHREALTIME/./} took
    shift
    status=0
    "$@" </dev/null 2>&1 | tee -a "$log" || status=${PIPESTATUS[0]}
    took=$((${EPOCHREALTIME/./} - from))
    printf 'part %s %d.%03d\n' "${name// /_}" $((took / 1000000)) $((took / 1000 % 1000)) >>"$times"
}

# cargo_test ARGUMENTS: `cargo test`, whose binaries tell how long their tests took.
cargo_test() {
    local triple
    triple=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
    env "CARGO_TARGET_${triple}_RUNNER=bash $PWD/scripts/run_test_binary.sh" \
        "REMORA_TEST_TIMES=$times" cargo test --locked --no-fail-fast "$@"
}

# The table of what everything took: the parts, then the test binaries and their
# modules, the longest first. A module's time is the sum of its tests'; as many run
# at a time as there are processors.
print_times() {
    echo
    echo "test: minutes that each part took"
    awk 'function show(name, seconds) { printf "  %-40s %3d:%04.1f\n", name, seconds / 60, seconds % 60 }
        $1 == "part" { gsub(/_/, " ", $2); show($2, $3); all += $3 }
        END { show("all", all) }' "$times"
    grep -q '^binary' "$times" || return 0
    echo "test: minutes of each test binary, and of its modules the sums of their tests"
    awk 'function line(first, second, name, seconds) {
            printf "%09.1f %s %d %09.3f\t%-44s %3d:%04.1f\n", binaries[first], first, second == "", seconds,
                name, seconds / 60, seconds % 60
        }
        $1 == "binary" { binaries[$2] += $3 }
        $1 == "test" { modules[$2 " " $3] += $4; tests[$2 " " $3]++ }
        END {
            for (name in binaries) line(name, "", "  " name, binaries[name])
            for (both in modules) {
                split(both, names, " ")
                line(names[1], names[2], "    " names[2] " (" tests[both] ")", modules[both])
            }
        }' "$times" | sort -k1,1nr -k2,2 -k3,3nr -k4,4nr | cut -f2
}
