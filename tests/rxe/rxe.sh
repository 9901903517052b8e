#!/usr/bin/env bash
# All that runs in the virtual machine: `make rxe`, and part of `make test`.
# Writes target/rxe/report.json.
#
# Exit: 0 all has run and passed, 1 something failed, 2 the machine cannot be
# made here.
set -euo pipefail

# Each line: name | options for run.sh | script and its arguments
runs='
smoke | | tests/rxe/guest/smoke.sh
numa | --numa 2 | tests/rxe/guest/numa.sh
doctor | --memory 2048 --seconds 200 | tests/rxe/guest/doctor.sh
'
# The report's fields. A script in the guest that knows a field's value leaves
# it as JSON in $RXE_OUT/FIELD.json; a field that nothing knows is not written.
fields=(kernel devices conformance runs capture)

# shellcheck source=tests/rxe/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

bash tests/rxe/prepare.sh
rm -rf "$rxe/out" "$rxe/report.json"

passed=0 failed=0
judge() { # name, and whether it passed: a command
    if "${@:2}"; then
        echo "rxe: $1: passed"
        passed=$((passed + 1))
    else
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
((failed == 0 && passed > 0)) && [[ -s $rxe/report.json ]]
