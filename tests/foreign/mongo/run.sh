#!/usr/bin/env bash
# Runs tests that others wrote for MongoDB against a server of any address.
#
# usage: run.sh DIRECTORY SUITE ADDRESS [options of the suite]
#   DIRECTORY  keeps what is fetched
#   ADDRESS    HOST:PORT, or a URI
#   SUITE      unified    the unified tests of the driver specifications, by our runner (unified/)
#              corpus     the BSON corpus of the driver specifications (corpus.py)
#              must-fail  those of them that a runner must not pass: a test of the runner
#
# folders.txt says which folders of unified tests run, lists which tests do not apply.
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
case $suite in
unified) exec "$python" -m unified "$tests" "$address" "$@" ;;
corpus) exec "$python" "$here/corpus.py" "$tests" "$address" "$@" ;;
must-fail)
    exec "$python" -m unified "$tests" "$address" --folder unified-test-format/valid-fail --must-fail "$@"
    ;;
*)
    echo "run.sh: no suite has the name: $suite" >&2
    exit 1
    ;;
esac
