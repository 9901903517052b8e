#!/usr/bin/env bash
# Runs the tests of Redis 7.0.15 about users against Remora: unit/acl, unit/acl-v2 and unit/auth.
#
# usage: REMORA_BIN=target/release/remora run.sh DIRECTORY [--tls]
#
# DIRECTORY keeps the source of Redis, which fetch.sh gets. Redis's own test program starts the servers:
# the file redis-server beside this one stands in for Redis. adapted.sed says what is changed in the
# tests, not-applicable.txt which of them do not apply, and why. Needs
# tclsh and python3; with --tls, for all of it over TLS, openssl and Tcl's package tls too.
# Exit: 0 if all others pass, and all of the list are there.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
REMORA_BIN=$(realpath "$REMORA_BIN")
export REMORA_BIN
bash "$here/fetch.sh" "$1"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tar --extract --file "$1"/redis_7.0.15.orig.tar.gz --directory "$work" --strip-components=1
cd "$work"
sed --in-place --file "$here/adapted.sed" tests/unit/{acl,acl-v2,auth}.tcl
ln -s "$here/redis-server" src/redis-server
grep -v '^\(#\|$\)' "$here/not-applicable.txt" >skipped

flags=(--single unit/acl --single unit/acl-v2 --single unit/auth --durable --clients 1 --skipfile skipped)
over_tls=0
if [[ ${2:-} == --tls ]]; then
    over_tls=1
    flags+=(--tls)
    # It makes certificates; parameters of Diffie and Hellman would take minutes, and Remora has none.
    mkdir -p tests/tls && touch tests/tls/redis.dh
    sh utils/gen-test-certs.sh >certificates 2>&1 || { cat certificates && exit 1; }
fi
# A hundred ports below those that the kernel gives out, which the other of the two runs does not take.
flags+=(--baseport $((21032 + (RANDOM % 50 * 2 + over_tls) * 100)) --portcount 60)

status=0
tclsh tests/test_helper.tcl "${flags[@]}" >coloured 2>&1 || status=1
sed 's/\x1b\[[0-9;]*m//g' coloured >said
sed '/The End/,$d' said

# A test that was renamed, or is gone, would stay in the list unseen.
while IFS= read -r name; do
    grep --quiet --line-regexp --fixed-strings "[skip]: $name" said || { echo "no test has the name: $name" && status=1; }
done <skipped
grep --quiet '^\[3/3 done\]' said || { echo "it did not run to its end" && status=1; }
echo "redis: $(grep --count '^\[ok\]' said) passed, $(grep --count '^\[err\]' <(sed '/The End/,$d' said)) failed," \
    "$(grep --count '^\[skip\]' said) do not apply"
exit "$status"
