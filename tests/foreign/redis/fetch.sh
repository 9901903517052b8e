#!/usr/bin/env bash
# Fetches the source of Redis 7.0.15, whose tests run.sh runs: Debian 12's source package of it.
#
# usage: fetch.sh DIRECTORY
#
# The archive lies in DIRECTORY afterwards, with the checksum below. Needs no root: apt-get
# gets lists of its own, of the sources that this machine has its binary packages from.
set -euo pipefail

sha256=4b1dc4ee6d622a09fff9c6777191209750fb5e5a725ef78ea012d6eef4c22982
archive=redis_7.0.15.orig.tar.gz

is_there() { echo "$sha256  $1/$archive" | sha256sum --check --status 2>/dev/null; }

mkdir -p "$1"
directory=$(cd "$1" && pwd)
is_there "$directory" && exit

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/sources" "$work/state/lists/partial" "$work/cache/archives/partial" "$work/package"
# The same archives, for source packages; others than Debian's have none of Redis.
for file in /etc/apt/sources.list.d/*.sources; do
    grep -qs '^URIs:.*debian\(-security\)\?/\?$' "$file" || continue
    sed 's/^Types:.*/Types: deb-src/' "$file" >"$work/sources/$(basename "$file")"
done
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    [[ -e $file ]] || continue
    sed -n 's,^deb \(.*debian\(-security\)\?/\? .*\),deb-src \1,p' "$file" \
        >"$work/sources/$(basename "$file" .list).list"
done
options=(--quiet=2 -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$work/sources"
    -o "Dir::State=$work/state" -o "Dir::Cache=$work/cache" -o "APT::Sandbox::User=$(id -un)")
apt-get "${options[@]}" update
cd "$work/package"
apt-get "${options[@]}" source --download-only redis
is_there "$work/package" || { echo "fetch.sh: the source package has no $archive with its checksum" >&2; exit 1; }
mv "$work/package/$archive" "$directory/"
