#!/usr/bin/env bash
# Trees of places from end to end by the release binary: searched over verbs as
# over shared memory, each node that the client counts a READ on the wire, and
# while another client inserts.
set -euo pipefail
# shellcheck source=tests/rxe/guest/remora.sh
source "$(dirname "${BASH_SOURCE[0]}")/remora.sh"

rxe_up 2
# shellcheck disable=SC2119  # it has arguments of its own
server_start
objects=2000 searches=150
node=384 # bytes, of 8 entries

# usage: places NAME ARGUMENTS: as `bench`, for trees.
places() {
    REMORA_RDMA_DEVICES=rxe1 timeout 300 "$REMORA_BIN" bench places --server 10.0.0.1:6379 --json --records $objects \
        --capacity 8 --load bulk --scale 0.1 --ops $searches --cold "${@:2}" >"$work/$1" 2>"$work/$1.log"
}
# What the seed decides, if nothing was late.
counted() {
    grep -oE '"(round_trips_per_op|asked|read|nodes_visited_per_op|nodes_read_per_op|results_per_op|tree_height|wrong)":[0-9.]+' \
        "$work/$1"
}
results() { number "$1" results_per_op; }

run=0
same() {
    local late tries
    run=$((run + 1))
    # A run that was late for the most part tells nothing: then there is another.
    for ((tries = 0; tries < 5; tries++)); do
        places "$run.shm" "$@" --transport shm || fail "over shm: $*"
        places "$run.verbs" "$@" --transport verbs || fail "over verbs: $*"
        late=$(($(number "$run.shm" read_lease_lapsed) + $(number "$run.verbs" read_lease_lapsed)))
        ((2 * late < searches)) && break
    done
    [[ $(results "$run.shm") == "$(results "$run.verbs")" ]] || fail "other results over verbs: $*"
    ((late > 0)) || diff <(counted "$run.shm") <(counted "$run.verbs") >&2 ||
        fail "over verbs other counts than over shm: $*"
    ((2 * late < searches)) || fail "most was late: $*"
    passed "$*: $(results "$run.verbs") results, $(number "$run.verbs" nodes_read_per_op) nodes read, $(number "$run.verbs" round_trips_per_op) trips for each over verbs as over shm, $late late"
}
same --path ask
same --path read --issue single --cache-bytes 0
same --path read --issue multi --cache-bytes 0
same --path read --issue multi
same --path read --issue multi --tree hilbert
same --path ask --inserts 0.5

# Each node that a client reads is one READ, and the shard does nothing for it.
capture_start 1 "$work/capture"
places wire --path read --issue multi --cache-bytes 0 --transport verbs || fail "searches"
capture_stop "$work/capture"
on_wire=$(count_reads "$work/capture" "udp[32:4] = $node")
read=$(awk -v each="$(number wire nodes_read_per_op)" -v ops=$searches 'BEGIN { printf "%.0f", each * ops }')
[[ $on_wire == "$read" ]] || fail "the client has read $read nodes, on the wire are $on_wire"
passed "$read nodes read, $on_wire READs of nodes on the wire"

# One inserts while another reads the same tree: no result is wrong, and what is
# read is not asked.
places mixed --path read --inserts 0.5 --clients 2 --transport verbs || fail "inserts under searches"
[[ $(number mixed wrong) == 0 ]] || fail "wrong: $(counted mixed)"
(($(number mixed read) > 0)) || fail "nothing was read: $(counted mixed)"
passed "searches under inserts: $(number mixed read) read, $(number mixed asked) asked, $(number mixed retries) READs again"
server_stop
passed "the server ends"
