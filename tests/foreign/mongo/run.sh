#!/usr/bin/env bash
# Runs tests that others wrote for MongoDB against a server of any address.
#
# usage: run.sh DIRECTORY SUITE ADDRESS [options of the suite]
#   DIRECTORY  keeps what is fetched
#   ADDRESS    HOST:PORT
#   SUITE      unified    the unified tests of the driver specifications, by our runner (unified/)
#              must-fail  those of them that a runner must not pass: a test of the runner
#              corpus     the BSON corpus of the driver specifications (corpus.py)
#              compare    random commands, compared with mongo-java-server (compare/), which is started
#              planted    the server compared with itself, where nothing differs, and with itself behind a
#                         planted mistake, which must be found: a test of the comparer
#              pymongo    pymongo's own tests, for which pymongo/ has lists
#              places     ours: searches by place through pymongo, compared with the haversine formula
#
# Lists beside the suites say which tests do not apply, and why. README.md says how to use them.
# Exit: 0 if all others pass, and the lists name nothing that is not there or passes.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=/usr/bin/python3

bash "$here/fetch.sh" "$1"
directory=$(cd "$1" && pwd)
suite=$2 address=$3
shift 3
tests=$directory/source/test
export PYTHONPATH=$here:$directory/source:$directory/lib PYTHONDONTWRITEBYTECODE=1

# Sets `ready` to the address that a coprocess prints. It ends when this script does.
await_ready() {
    local line
    while read -r -t 120 line <&"$1"; do
        [[ $line == "ready mongo="* ]] && ready=${line#ready mongo=} && return
    done
    echo "run.sh: the other server has not started" >&2
    exit 1
}

case $suite in
unified) exec "$python" -m unified "$tests" "$address" "$@" ;;
must-fail)
    exec "$python" -m unified "$tests" "$address" --folder unified-test-format/valid-fail --must-fail "$@"
    ;;
corpus) exec "$python" "$here/corpus.py" "$tests" "$address" "$@" ;;
compare)
    coproc peer { bash "$here/peer/start.sh" "$directory/peer" 0; }
    await_ready "${peer[0]}"
    "$python" -m compare "$address" "$ready" "$@"
    ;;
planted)
    # shellcheck disable=SC2016  # names of MongoDB's operators
    coproc relay { exec "$python" -m compare.planted "$address" '$mul' '$inc'; }
    # shellcheck disable=SC2154  # bash sets it for the coprocess
    trap 'kill "$relay_PID" 2>/dev/null || true' EXIT
    await_ready "${relay[0]}"
    # With itself it agrees.
    "$python" -m compare "$address" "$address" --seeds 1..100 "$@"
    if "$python" -m compare "$address" "$ready" --seeds 1..100 --most 1 "$@"; then
        echo "run.sh: the planted mistake was not found" >&2
        exit 1
    fi
    ;;
places) exec "$python" "$here/places.py" "$address" ;;
pymongo) exec bash "$here/pymongo/run.sh" "$directory" "$address" "$@" ;;
*)
    echo "run.sh: no suite has the name: $suite" >&2
    exit 1
    ;;
esac
