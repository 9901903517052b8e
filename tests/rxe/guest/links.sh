#!/usr/bin/env bash
# Links from end to end by the release binary: a graph searched over verbs as over
# shared memory, each hop along a link one READ on the wire, and with stale hints.
set -euo pipefail
# shellcheck source=tests/rxe/guest/remora.sh
source "$(dirname "${BASH_SOURCE[0]}")/remora.sh"

rxe_up 2
# shellcheck disable=SC2119  # it has arguments of its own
server_start
users=300

# Each user follows the next one and four drawn ones.
awk -v users=$users 'BEGIN { srand(7); for (user = 0; user < users; user++) {
    print user, (user + 1) % users; for (each = 0; each < 4; each++) print user, int(rand() * users) } }' >"$work/graph"

# usage: links NAME ARGUMENTS: as `bench`, for the search.
links() {
    REMORA_RDMA_DEVICES=rxe1 timeout 300 "$REMORA_BIN" bench links --server 10.0.0.1:6379 --json \
        --graph "$work/graph" --bfs 7 "${@:2}" >"$work/$1" 2>"$work/$1.log"
}
# What the graph decides, if nothing was late.
counted() {
    grep -oE '"(round_trips_per_op|bytes_per_op|asked|read|lookups|chases|reached|stale|retries)":[0-9.]+|"levels":"[0-9|]+"' \
        "$work/$1"
}
levels() { grep -oE '"levels":"[0-9|]+"' "$work/$1"; }

run=0
same() {
    local late tries
    run=$((run + 1))
    # A run that was late for the most part tells nothing, nor does one in which a client read a header or the
    # clock in between: then there is another.
    for ((tries = 0; tries < 5; tries++)); do
        links "$run.shm" "$@" --transport shm || fail "over shm: $*"
        links "$run.verbs" "$@" --transport verbs || fail "over verbs: $*"
        late=$(($(number "$run.shm" read_lease_lapsed) + $(number "$run.verbs" read_lease_lapsed)))
        ((late == 0)) && diff -q <(counted "$run.shm") <(counted "$run.verbs") >"$work/differ" && break
    done
    [[ $(levels "$run.shm") == "$(levels "$run.verbs")" ]] || fail "other users over verbs: $*"
    [[ $(number "$run.verbs" reached) == "$users" ]] || fail "not all users are reached: $*"
    ((late > 0)) || diff <(counted "$run.shm") <(counted "$run.verbs") >&2 ||
        fail "over verbs other counts than over shm: $*"
    ((2 * late < users)) || fail "most was late: $*"
    passed "$*: $(number "$run.verbs" round_trips_per_op) trips and $(number "$run.verbs" bytes_per_op) bytes for each hop over verbs as over shm, $late late"
}
same --path ask --batch 1
same --path read --batch 1
same --path read --batch 64

# Each hop of a search whose hints are good is one READ.
capture_start 1 "$work/capture"
links wire --path read --batch 1 --loaded --cold --transport verbs || fail "a search"
capture_stop "$work/capture"
on_wire=$(count_reads "$work/capture")
late=$(number wire read_lease_lapsed)
hops=$(($(number wire lookups) + $(number wire chases)))
# The first user is looked up: its bucket and its record. Beside them the client READs headers and clocks.
((on_wire >= hops + 1 - late)) || fail "the client has made $hops hops, on the wire are only $on_wire READs"
((on_wire < hops + hops / 4)) || ((late > 0)) || fail "$hops hops, and $on_wire READs on the wire"
passed "$hops hops, $on_wire READs on the wire, $late late"

# Users that were written anew lie elsewhere: a client that follows a link to them finds them, and no other.
links stale --path read --batch 1 --loaded --updates 0.5 --transport verbs || fail "a search by stale hints"
[[ $(number stale reached) == "$users" ]] || fail "by stale hints: $(counted stale)"
(($(number stale stale) > 0)) || fail "no hint was stale: $(counted stale)"
passed "half of the users written anew: $(number stale stale) stale hints, $(number stale asked) messages, all users found"
same --path read --keys --batch 1
server_stop
passed "the server ends"
