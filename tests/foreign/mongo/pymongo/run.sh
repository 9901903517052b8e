#!/usr/bin/env bash
# Runs pymongo's own tests against a running server, those of its clients with and without asyncio.
#
# usage: run.sh DIRECTORY ADDRESS [options of pytest]
#   DIRECTORY  where fetch.sh has put pymongo's source
#   ADDRESS    HOST:PORT
#
# files.txt says which files of tests run, not-applicable.txt which of their tests do not apply, and why. pymongo
# leaves out further ones by itself, and they are printed with its reasons.
# Exit: 0 if all others pass, and all of the lists are there.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=/usr/bin/python3
directory=$(cd "$1" && pwd)
address=$2
shift 2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# A copy, because the tests write into their folder.
cp -r "$directory/source/." "$work"
cd "$work"
export PYTHONPATH=$work:$directory/lib:$here/stubs PYTHONDONTWRITEBYTECODE=1
export DB_IP=${address%:*} DB_PORT=${address##*:}
lines() { grep -v '^\(#\|$\)' "$1" || true; }
mapfile -t names < <(lines "$here/files.txt")
mapfile -t left_out < <(lines "$here/not-applicable.txt" | sed 's/ | .*//')
tests() {
    "$python" -m pytest --quiet -p no:cacheprovider -p remora_plugin --override-ini addopts= \
        --override-ini filterwarnings= --timeout 60 --tb short "$@"
}
status=0
tests --collect-only "${names[@]/#/test/}" "${names[@]/#/test/asynchronous/}" >all
for name in "${left_out[@]}"; do
    grep --quiet --fixed-strings "${name%\*}" all || { echo "no test has the name: $name" && status=1; }
done
for kind in test test/asynchronous; do
    LEFT_OUT=$here/not-applicable.txt tests -r fEs "$@" "${names[@]/#/$kind/}" >said 2>&1 || status=1
    cat said
    echo "pymongo, $kind: $(tail --lines 1 said)"
done
exit "$status"
