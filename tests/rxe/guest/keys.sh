#!/usr/bin/env bash
# Keys from end to end by the release binary: over verbs as over shared memory,
# and cached GETs that the server's shard does not notice. The report's fields
# `runs` and `capture`.
set -euo pipefail
# shellcheck source=tests/rxe/guest/remora.sh
source "$(dirname "${BASH_SOURCE[0]}")/remora.sh"

rxe_up 2

# What the server's shard has done: how often its thread went onto a processor
# or off it, by the kernel's count. (Asking it would let it do something.)
shard_did() {
    local process
    for process in /proc/"$server"/task/*; do
        [[ $(<"$process/comm") != shard-0 ]] ||
            awk '/ctxt_switches/ { sum += $2 } END { print sum }' "$process/status"
    done
}
# usage: watch SECONDS: the same before and after, while the client runs.
watch() {
    before=$(shard_did)
    sleep "$1"
    after=$(shard_did)
    kill -0 "$client" 2>/dev/null || fail "the client ended before it was looked at"
}
wakeups() { echo $((after - before)); }

# Slowly until the shard has been looked at. On a fresh server: where records were
# overwritten, their leases let the shard wake ten times a second.
rxe_delay 10
server_start
capture_start 1 "$work/capture"
bench_start cached --path choose --pointer-cache private --transport verbs --ops 1400
# A lookup that is late asks (see `same`), and the shard is looked at again.
window=0 more=0 first=$(info ring_frames)
sleep 0.5 # until the shard has done with that
until ((window > 0 && before == after)) || ((window == 15)); do
    bytes=$(stat -c %s "$work/capture")
    watch 0.5
    more=$(($(stat -c %s "$work/capture") - bytes))
    window=$((window + 1))
done
asked=$(($(info ring_frames) - first))
rxe_delay 0
ended "$client" || fail "cached GETs"
rxe_loss 0 # nothing acts on packets any more
capture_stop "$work/capture"
on_wire=$(record_reads "$work/capture") counted=$(reads_of cached) woken=$(wakeups)
printf '{"read_requests":%d,"client_reads":%d,"server_wakeups_during_cached_gets":%d}' \
    "$on_wire" "$counted" "$woken" >"$RXE_OUT/capture.json"
((counted + $(late cached) >= 1200)) || fail "cached GETs, but $(counts cached)"
[[ $on_wire == "$counted" ]] || fail "the client has READ $counted times, on the wire are $on_wire READs"
((more > 0)) || fail "nothing crossed while the shard was looked at"
[[ $before == "$after" ]] || fail "cached GETs let the shard do something: $before, then $after"
((asked <= $(late cached))) || fail "cached GETs asked $asked times, but $(late cached) were late"
((window == 1 || $(late cached) > 0)) || fail "nothing was late, and the shard ran"
passed "cached GETs: $counted READs, $on_wire on the wire, the shard's thread ran $woken times (window $window)"

# The control arm: who asks does wake it.
server_stop
server_start
bench_start asked --path ask --transport verbs --seconds 40
watch 0.3
bench_kill
(($(wakeups) > 0)) || fail "GETs that ask, and the shard never ran"
passed "GETs that ask: the shard's thread ran $(wakeups) times"

# What the server gave to its device, what came, and how often that woke a shard.
posts=$(info verbs_posts) pieces=$(info verbs_pieces)
immediates=$(info verbs_immediates) signals=$(info verbs_signals)
((posts > 0 && pieces >= posts)) || fail "$pieces pieces by $posts posts"
((signals > 0 && signals <= immediates)) || fail "$signals signals for $immediates immediates"
passed "$pieces pieces by $posts posts, $immediates immediates, $signals signals"

# A run gives the same counts over verbs as over shared memory. A machine that
# stands still for 200 ms lets a read lease lapse, and then the client asks:
# it counts these, and the counts are the same without them.
run=0
same() {
    local late tries
    run=$((run + 1))
    # A run that was late for the most part tells nothing: then there is another.
    for ((tries = 0; tries < 5; tries++)); do
        bench "$run.shm" "$@" --transport shm || fail "over shm: $*"
        bench "$run.verbs" "$@" --transport verbs || fail "over verbs: $*"
        late=$(($(late "$run.shm") + $(late "$run.verbs")))
        ((2 * late < $(number "$run.verbs" ops))) && break
    done
    grep -q '"transport":"verbs","times":"meaningless' "$work/$run.verbs" ||
        fail "not labelled as verbs in software: $*"
    diff <(in_time "$run.shm" "$late") <(in_time "$run.verbs" "$late") >&2 ||
        fail "over verbs other counts than over shm: $*"
    ((2 * late < $(number "$run.verbs" ops))) || fail "most was late: $*"
    passed "$*: $(number "$run.verbs" asked) asked, $(number "$run.verbs" read) read over verbs as over shm, $late late"
}
mixed=(--ops 300 --reads 0.9)
same --path ask "${mixed[@]}"
same --path read --pointer-cache off "${mixed[@]}"
same --path read --pointer-cache private "${mixed[@]}"
same --path read --pointer-cache shared "${mixed[@]}"
same --path choose --pointer-cache private "${mixed[@]}"
same --path read --batch 16 --ops 640
same --path read --value-bytes 20000 --ops 100

separator='['
for one in "$work"/*.{shm,verbs}; do
    # Nor do times of an emulated processor mean anything.
    printf '%s%s' "$separator" \
        "$(sed 's/"transport":"shm",/&"times":"meaningless: emulated processor",/' "$one")"
    separator=','
done >"$RXE_OUT/runs.json"
echo ']' >>"$RXE_OUT/runs.json"
server_stop
passed "the server ends"

