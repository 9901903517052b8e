#!/usr/bin/env bash
# All that runs in the virtual machine: `make rxe`, and part of `make test`.
# Writes target/rxe/report.json.
#
# Exit: 0 all has run and passed, 1 something failed, 2 the machine cannot be
# made here.
set -euo pipefail

# Each line: name | options for run.sh | script
runs='
smoke | | tests/rxe/guest/smoke.sh
numa | --numa 2 | tests/rxe/guest/numa.sh
'
# The report's fields. A script in the guest that knows a field's value leaves
# it as JSON in $RXE_OUT/FIELD.json; a field that nothing knows is not written.
fields=(kernel devices conformance runs capture)

# shellcheck source=tests/rxe/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

bash tests/rxe/prepare.sh
rm -rf "$rxe/out" "$rxe/report.json"

passed=0 failed=0
while IFS='|' read -r name options script; do
    name=${name// /} script=${script// /}
    [[ -n $name ]] || continue
    read -ra options <<<"$options"
    if bash tests/rxe/run.sh --out "$rxe/out" "${options[@]}" "$script" </dev/null; then
        echo "rxe: $name: passed"
        passed=$((passed + 1))
    else
        echo "rxe: $name: FAILED"
        failed=$((failed + 1))
    fi
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
