#!/usr/bin/env bash
# The project's own checks, with what they need: `cargo xtask check`, whose arguments
# and exit code it has.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
command -v cargo >/dev/null || PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"
export PATH

# shellcheck source=scripts/needs.sh
source scripts/needs.sh
meet_cargo_deny
exec cargo xtask check "$@"
