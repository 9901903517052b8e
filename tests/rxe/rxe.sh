#!/usr/bin/env bash
# All that runs in the virtual machine: `make rxe`, and part of `make test`.
# Builds what it runs there, and writes target/rxe/report.json.
#
# Exit: 0 all has run and passed, 1 something failed, 2 the machine cannot be
# made here.
set -euo pipefail

# The report's fields. A script in the guest that knows a field's value leaves
# it as JSON in $RXE_OUT/FIELD.json. All of them have to be there.
fields=(kernel devices conformance runs capture)

# shellcheck source=tests/rxe/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

bash tests/rxe/prepare.sh
rm -rf "$rxe/out" "$rxe/report.json"

command -v cargo >/dev/null || PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"
cargo build --locked --quiet --release --package remora </dev/null || exit 1
# The binary of a package's tests that need devices.
tests_of() {
    cargo test --locked --quiet --package "$1" --features rxe --test verbs --no-run \
        --message-format json </dev/null | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p'
}
fabric=$(tests_of remora-fabric) || exit 1
large=$(tests_of remora-client-core) || exit 1
many=$(tests_of remora-tests) || exit 1

# Each line: name | options for run.sh | script and its arguments
runs="
smoke | | tests/rxe/guest/smoke.sh
numa | --numa 2 | tests/rxe/guest/numa.sh
conformance | --seconds 540 | tests/rxe/guest/conformance.sh $fabric
verbs | --memory 2560 --seconds 900 | tests/rxe/guest/verbs.sh $fabric
doctor | --memory 2048 --seconds 600 | tests/rxe/guest/doctor.sh
large | --memory 2048 --seconds 600 | tests/rxe/guest/large.sh $large
keys | --memory 2048 --seconds 720 | tests/rxe/guest/keys.sh
places | --memory 2048 --seconds 720 | tests/rxe/guest/places.sh
links | --memory 2048 --seconds 720 | tests/rxe/guest/links.sh
documents | --memory 2048 --seconds 720 | tests/rxe/guest/documents.sh
replicas | --memory 2048 --seconds 720 | tests/rxe/guest/replicas.sh
many | --memory 3072 --seconds 450 | tests/rxe/guest/many.sh $many
devices | --memory 2048 --seconds 720 | tests/rxe/guest/devices.sh
faults | --memory 2048 --seconds 720 | tests/rxe/guest/faults.sh
"

passed=0 failed=0
said=$rxe/said
judge() { # name, and whether it passed: a command; what it says is of use if not
    if "${@:2}" >"$said" 2>&1; then
        grep -E '^(test result|rxe): ' "$said" || true
        echo "rxe: $1: passed"
        passed=$((passed + 1))
    else
        cat "$said"
        echo "rxe: $1: FAILED"
        failed=$((failed + 1))
    fi
}

# The control arm: a machine in which nothing can fail would show nothing.
status=0
bash tests/rxe/run.sh /bin/sh -c 'exit 41' </dev/null || status=$?
judge "a script that fails" test "$status" = 41

while IFS='|' read -r name options script; do
    [[ $name ]] || continue
    read -ra options <<<"$options"
    read -ra script <<<"$script"
    judge "${name% }" bash tests/rxe/run.sh --out "$rxe/out" "${options[@]}" "${script[@]}" </dev/null
done <<<"$runs"

separator='{'
for field in "${fields[@]}"; do
    if [[ -s $rxe/out/$field.json ]]; then
        printf '%s"%s":%s' "$separator" "$field" "$(<"$rxe/out/$field.json")"
        separator=','
    fi
done >"$rxe/report.json"
[[ $separator == '{' ]] || echo '}' >>"$rxe/report.json"

echo "rxe: $passed passed, $failed failed"
# All fields are there: nothing was left out.
for field in "${fields[@]}"; do
    [[ -s $rxe/out/$field.json ]] || exit 1
done
((failed == 0 && passed > 0)) && [[ -s $rxe/report.json ]]
