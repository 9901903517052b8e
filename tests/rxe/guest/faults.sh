#!/usr/bin/env bash
# What a client over verbs and its server do when packets are lost, the cable
# is pulled, and one of them dies or stands still.
set -euo pipefail
# shellcheck source=tests/rxe/guest/remora.sh
source "$(dirname "${BASH_SOURCE[0]}")/remora.sh"

# What the kernel keeps for the server's device.
kept() { rdma resource show | grep 'rxe0:'; }
# No session is left, and nothing of one.
none_left() { [[ $(info connected_sessions_verbs) == 0 && $(kept) == "$kept_first" ]]; }
works() { bench works --path read --transport verbs --ops 50 || fail "$1: a new connection does not work"; }
# The client tells for each lookup of a run by cached pointers why it asked.
explained() {
    (($(number "$1" asked) == $(late "$1") + $(number "$1" ops) - $(number "$1" hits) + $(number "$1" stale) + \
        $(number "$1" lease_expired) + $(number "$1" undecided)))
}
# How often a client's device has sent something again.
retried() { cat /sys/class/infiniband/rxe1/ports/1/hw_counters/completer_retry_err; }
lost='the connection to the peer is lost'
silent='RDMA device does not answer'

rxe_up 2
server_start
kept_first=$(kept)
works "at first"
rxe_wait none_left || fail "a client that left is still there: $(kept), at first $kept_first"

bench whole --path ask --transport verbs --ops 100
rxe_loss 2
capture_start 1 "$work/capture"
bench asks --path ask --transport verbs --ops 100 || fail "loss: asked"
# It asks for each record once, and then READs from its cache.
tried=$(retried)
bench reads --path choose --transport verbs --ops 600 || fail "loss: READ"
tried=$(($(retried) - tried))
capture_stop "$work/capture"
dropped=$(rxe_lost)
rxe_loss 0
((dropped > 0)) || fail "2 % loss, but nothing was lost"
[[ $(counts asks) == "$(counts whole)" ]] || fail "loss: other counts: $(counts asks)"
(($(number reads asked) + $(number reads read) == 600)) || fail "loss: other counts: $(counts reads)"
explained reads || fail "loss: asked without a reason: $(counts reads)"
# What was lost once is there before the read lease lapses.
lapsed=$(number reads read_lease_lapsed)
((tried > 0 && 2 * lapsed <= tried)) || fail "loss: $tried tries more, the read lease lapsed $lapsed times"
on_wire=$(record_reads "$work/capture") counted=$(reads_of reads)
[[ $on_wire == "$counted" ]] || fail "loss: the client has READ $counted times, on the wire are $on_wire READs"
passed "$dropped packets lost: all is asked and READ as without loss, $counted READs, $on_wire on the wire," \
    "$tried tries more, the read lease lapsed $lapsed times"

for path in choose ask; do
    bench_start broken --path $path --transport verbs --seconds 40
    rxe_unplug 1
    broken "unplugged, $path" "$silent|$lost"
    if [[ $path == ask ]]; then
        status=0
        bench down --path ask --transport verbs --ops 50 || status=$?
        [[ $status == 3 ]] || fail "unplugged: a new connection ends with $status"
        grep -q 'no RDMA device has an active port' "$work/down.log" || fail "unplugged: another error"
    fi
    rxe_plug 1
done
works "plugged in"
rxe_wait none_left || fail "unplugged: something is left: $(kept), at first $kept_first"
passed "plugged in: a new connection works, nothing is left of the old ones"

granted=$(info total_sessions_granted)
bench_start frozen --path choose --transport verbs --seconds 3
kill -STOP "$server"
sleep 1
kill -CONT "$server"
ended "$client" || fail "the server stood still, and the client failed"
# One to load, one to measure.
(($(info total_sessions_granted) == granted + 2)) || fail "the server stood still, and the client dialled again"
# The right to read has lapsed meanwhile.
(($(number frozen read_lease_lapsed) > 0)) || fail "the server stood still for 1 s, and the client read on"
explained frozen || fail "the server stood still: asked without a reason: $(counts frozen)"
passed "server frozen for 1 s: goes on, $(number frozen read) read, $(number frozen asked) asked"

bench_start killed --path ask --transport verbs --seconds 40
[[ $(info connected_sessions_verbs) == 1 ]] || fail "one client, but $(info connected_sessions_verbs) sessions"
bench_kill
rxe_wait none_left || fail "client killed: something is left: $(kept), at first $kept_first"
passed "client killed: its session is over, nothing is left of it"

bench_start broken --path ask --transport verbs --seconds 40
kill -KILL "$server"
broken "server killed" "$silent|$lost"
wait "$server" || true
server_start
works "server killed"

bench_start broken --path choose --transport verbs --seconds 40
server_stop
# Its WRITE may meet the end of its window before it is told.
broken "server ended" "$silent|$lost|withdrawn|ended"
