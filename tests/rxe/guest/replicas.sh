#!/usr/bin/env bash
# A replica over verbs: a copy, the log with and without loss, acknowledgements
# that wait for completed WRITEs, a replica that stands still, a cable that is
# pulled, and a promotion once the primary is dead.
set -euo pipefail
# shellcheck source=tests/rxe/guest/remora.sh
source "$(dirname "${BASH_SOURCE[0]}")/remora.sh"

# usage: ask HOST PORT COMMAND: the first line of the reply, without CR.
ask() {
    local connection reply
    {
        exec {connection}<>"/dev/tcp/$1/$2" || return
        printf '%s\r\n' "$3" >&"$connection"
        read -r -t 20 reply <&"$connection" || return
        exec {connection}>&-
    } 2>/dev/null
    printf '%s\n' "${reply%$'\r'}"
}
primary() { ask 10.0.0.1 6379 "$1"; }
# A field of the replica's INFO.
of_replica() {
    local connection
    {
        exec {connection}<>/dev/tcp/10.0.0.2/6380 || return
        printf 'INFO replication\r\nQUIT\r\n' >&"$connection"
        sed -n "s/^$1:\([^\r]*\).*/\1/p" <&"$connection" | grep . || return
        exec {connection}>&-
    } 2>/dev/null
}
in_sync() { [[ $(info in_sync_replicas) == 1 ]]; }
caught_up() { [[ $(of_replica slave_repl_offset) == "$(info master_repl_offset)" ]]; }
# Both hold the same.
same() {
    local own other
    rxe_wait caught_up || fail "$1: the replica has $(of_replica slave_repl_offset) of $(info master_repl_offset)"
    own=$(primary "DEBUG DIGEST") other=$(ask 10.0.0.2 6380 "DEBUG DIGEST")
    [[ $own == +???* && $own == "$other" ]] || fail "$1: the replica holds $other, the primary $own"
}
load() { bench load --path ask --transport verbs --reads 0 --ops 300 || fail "$1: changes are not acknowledged"; }
# How many RDMA WRITE requests to the replica are in a capture: first, middle,
# last, only, and those with an immediate.
count_writes() {
    tcpdump -r "$1" -n 'udp port 4791 and dst 10.0.0.2 and udp[8] >= 6 and udp[8] <= 11' 2>/dev/null | wc -l
}

rxe_up 2
server_start --min-replicas 1
[[ $(primary "SET first 1") == -NOREPLICAS* ]] || fail "a change without a replica: $(primary "SET first 1")"
REMORA_RDMA_DEVICES=rxe1 "$REMORA_BIN" serve --bind 10.0.0.2 --port 6380 --socket "$work/replica" \
    --fabric-address 10.0.0.2:7000 --shards 1 --max-memory 64mb --pin=false --protected-mode=false --transport verbs \
    --replica-of 10.0.0.1:7000 --replica-reads stale >"$work/replica.log" 2>&1 &
replica=$!
rxe_wait in_sync || fail "the replica does not follow: $(of_replica master_trouble)"
grep -q 'following the primary at 10.0.0.1:7000 by verbs' "$work/replica.log" || fail "it follows by something else"
[[ $(primary "SET first 1") == +OK ]] || fail "a change with a replica"
passed "a copy over verbs, and a change that waited for a completed WRITE"

capture_start 1 "$work/capture"
load "no loss"
capture_stop "$work/capture"
writes=$(count_writes "$work/capture")
((writes > 0)) || fail "the log came, and no WRITE is on the wire"
same "no loss"
passed "300 changes and more, $writes WRITEs to the replica on the wire, both hold the same"

rxe_loss 2
load "loss"
dropped=$(rxe_lost)
rxe_loss 0
((dropped > 0)) || fail "2 % loss, but nothing was lost"
same "loss"
passed "$dropped packets lost: both hold the same"

kill -STOP "$replica"
# It lies in the replica's memory, or waits; once the replica has left the set, changes are refused.
refused() { [[ $(primary "SET still 1") == -NOREPLICAS* ]]; }
filled() { bench filler --path ask --transport verbs --reads 0 --ops 50 || true; refused; }
rxe_wait filled || fail "the replica stands still, and changes are acknowledged"
kill -CONT "$replica"
rxe_wait in_sync || fail "the replica stood still, and does not come back: $(of_replica master_trouble)"
load "after it stood still"
same "after it stood still"
passed "a replica that stood still left the set and came back"

copies=$(of_replica slave_copies)
rxe_unplug 1
down() { [[ $(of_replica master_link_status) == down ]]; }
rxe_wait down || fail "unplugged, and the replica's link is up"
rxe_plug 1
rxe_wait in_sync || fail "plugged in, and the replica does not follow: $(of_replica master_trouble)"
load "plugged in"
same "plugged in"
[[ $(of_replica slave_copies) == "$copies" ]] || fail "plugged in: another copy"
passed "plugged in: it goes on without a copy"

[[ $(primary "SET last 1") == +OK ]] || fail "the last change"
kill -KILL "$server"
wait "$server" || true
rxe_wait down || fail "the primary is dead, and the replica's link is up"
[[ $(ask 10.0.0.2 6380 "REPLICAOF NO ONE") == +OK ]] || fail "no promotion"
[[ $(ask 10.0.0.2 6380 "EXISTS last") == :1 ]] || fail "the last acknowledged change is lost"
passed "the primary died, the replica leads with all that was acknowledged"
kill -TERM "$replica"
ended "$replica" || fail "the replica failed at its end: $?"
