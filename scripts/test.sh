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

# What the tests need beside the Rust toolchain, one need a line:
# tool | Debian package | service that the package may start, or - | what needs it
needs='
redis-cli | redis-tools | - | tests that drive the server with redis-cli
redis-benchmark | redis-tools | - | tests that drive the server with redis-benchmark
redis-server | redis-server | redis-server | tests that hold our replies against those of a real redis-server
'

cd "$(dirname "${BASH_SOURCE[0]}")/.."
command -v cargo >/dev/null || PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"
export PATH

# Fills tools, packages, services and purposes of the needs that are not met.
look_for_missing() {
    tools=() packages=() services=() purposes=()
    local tool package service purpose
    while IFS='|' read -r tool package service purpose; do
        tool=${tool// /} package=${package// /} service=${service// /} purpose=${purpose# }
        if [[ -z $tool ]] || command -v "$tool" >/dev/null; then
            continue
        fi
        tools+=("$tool") purposes+=("$purpose")
        [[ " ${packages[*]-} " == *" $package "* ]] || packages+=("$package")
        [[ $service == - ]] || services+=("$service")
    done <<<"$needs"
}

install_missing() {
    local as_root=()
    if ! command -v apt-get >/dev/null; then
        return 0
    elif [[ $(id -u) != 0 ]]; then
        sudo -n true 2>/dev/null || return 0
        as_root=(sudo -n)
    fi
    local apt_get=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive
        apt-get -o DPkg::Lock::Timeout=300 --quiet=2)
    local service running=" "
    for service in "${services[@]}"; do
        pgrep -x "$service" >/dev/null 2>&1 && running+="$service "
    done
    echo "test: installing ${packages[*]}"
    "${apt_get[@]}" update </dev/null || true
    "${apt_get[@]}" install --yes --no-install-recommends "${packages[@]}" </dev/null || true
    # A service that was not running before has no business to run now.
    for service in "${services[@]}"; do
        if [[ $running != *" $service "* ]]; then
            "${as_root[@]}" service "$service" stop >/dev/null 2>&1 || true
        fi
    done
}

look_for_missing
if ((${#tools[@]} > 0)); then
    install_missing
    look_for_missing
fi
if ((${#tools[@]} > 0)); then
    echo "test: to run everything: sudo apt-get install --yes ${packages[*]}"
fi
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

# Nightly-only tools, where they are: what they could not run is told at the
# end, and is no skip.
nightly=$(mktemp)
trap 'rm -f "$log" "$nightly"' EXIT
sanitizers_failed=0
if ((steps_failed == 0)); then
    bash scripts/sanitize.sh 2>&1 | tee "$nightly" || sanitizers_failed=1
fi

# Sums of the closing lines of all test binaries: passed, failed, ignored.
read -r passed failed ignored < <(awk '
    /^test result: / {
        for (i = 2; i <= NF; i++) {
            if ($i == "passed;") passed += $(i - 1)
            if ($i == "failed;") failed += $(i - 1)
            if ($i == "ignored;") ignored += $(i - 1)
        }
    }
    END { print passed + 0, failed + 0, ignored + 0 }' "$log")
if ((steps_failed > 0 && failed == 0)); then
    failed=1 # a build, or a test process, that died without a closing line
fi
failed=$((failed + sanitizers_failed))
skipped=$((ignored + ${#tools[@]}))

echo
for at in "${!tools[@]}"; do
    echo "test: did not run, ${tools[at]} is missing: ${purposes[at]}"
done
if ((ignored > 0)); then
    echo "test: did not run, marked as ignored: $ignored"
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
