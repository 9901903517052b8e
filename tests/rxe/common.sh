# shellcheck shell=bash
# What the scripts of this directory share. Sourced; goes to the repository's
# root.

cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit
repository=$PWD
target=${CARGO_TARGET_DIR:-target}
[[ $target == /* ]] || target=$repository/$target
# The machine's parts, and what runs leave.
# shellcheck disable=SC2034  # for those who source this
rxe=$target/rxe

say() { echo "rxe: $*" >&2; }
