#!/usr/bin/env bash
# The documents as a site, in target/book: `cargo xtask book`, with mdBook, which it needs.
# mdBook is installed below the target directory, from its sources: minutes, once.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
command -v cargo >/dev/null || PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"
export PATH

mdbook_version=0.5.4
tools=${CARGO_TARGET_DIR:-target}/tools

if [[ $("$tools/bin/mdbook" --version 2>/dev/null) != "mdbook v$mdbook_version" ]]; then
    echo "book: installing mdBook $mdbook_version into $tools, which takes some minutes"
    # Without the server that shows a book while it is written.
    cargo install --quiet --locked --version "$mdbook_version" --root "$tools" \
        --no-default-features --features search mdbook </dev/null
fi
exec cargo xtask book "$@"
