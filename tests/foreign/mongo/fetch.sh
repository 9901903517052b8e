#!/usr/bin/env bash
# Fetches pymongo's source, which has the tests of the MongoDB driver specifications, and what it needs.
#
# usage: fetch.sh DIRECTORY
#
# Afterwards DIRECTORY has `source` (pymongo, unpacked) and `lib` (what it needs), by the checksums of
# source.txt and requirements.txt. pymongo runs from its source, without its parts in C.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=/usr/bin/python3

mkdir -p "$1"
directory=$(cd "$1" && pwd)
# Suites that run beside each other fetch once.
exec 9>"$directory/lock"
flock 9
wanted=$(cat "$here"/{requirements,source}.txt)
[[ $(cat "$directory/has" 2>/dev/null) != "$wanted" ]] || exit 0

rm -rf "${directory:?}"/{has,lib,archive,source}
pip=("$python" -m pip --quiet --disable-pip-version-check)
"${pip[@]}" install --no-deps --require-hashes --only-binary :all: --root-user-action ignore \
    --target "$directory/lib" --requirement "$here/requirements.txt"
PYTHONPATH=$directory/lib "${pip[@]}" download --no-deps --require-hashes --no-binary :all: \
    --no-build-isolation --dest "$directory/archive" --requirement "$here/source.txt"
mkdir "$directory/source"
tar --extract --file "$directory"/archive/pymongo-*.tar.gz --directory "$directory/source" --strip-components=1
echo "$wanted" >"$directory/has"
