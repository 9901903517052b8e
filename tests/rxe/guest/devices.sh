#!/usr/bin/env bash
# RDMA devices are removed under load, the server's and the client's: removing
# them ends, nobody hangs, the server goes on by TCP and shared memory, and
# serves a device anew that comes back.
set -euo pipefail
# shellcheck source=tests/rxe/guest/remora.sh
source "$(dirname "${BASH_SOURCE[0]}")/remora.sh"

# The kernel removes a device of this kind once its users have let go of it.
remove() {
    rdma link delete "$1" &
    ended $! || fail "$1 cannot be removed"
    [[ ! -e /sys/class/infiniband/$1 ]] || fail "$1 is still there"
}
add() {
    rdma link add "rxe$1" type rxe netdev "veth$1"
    rxe_wait rxe_gid_index "$1"
    rxe_wait rxe_active "$1"
}
no_session() { [[ $(info connected_sessions_verbs) == 0 ]]; }
offers() { [[ $(info transports) == "$1" && $(info rdma_devices) == "$2" ]]; }
works() { # by what is wanted, by what it has to be
    REMORA_BIN=$work/elsewhere bench works --path ask --transport "$1" --ops 50 || fail "by $1: it does not work"
    grep -q "\"transport\":\"$2\"" "$work/works" || fail "by $1: it is not over $2: $(<"$work/works")"
}
by_shm() { timeout 180 "$REMORA_BIN" bench keys --server "$work/socket" --ops 50 --records 50 --path read >/dev/null 2>&1; }
# What the device has pinned of the server's memory, in KiB.
pinned() { sed -n 's/^VmPin:\s*\([0-9]*\) kB/\1/p' "/proc/$server/status"; }
lost='the connection to the peer is lost|RDMA device does not answer'

# The binary as on another host: it shares no memory with the server.
cat >"$work/elsewhere" <<END
#!/bin/bash
exec unshare --mount bash -c 'mount --bind $work/elsewhere /proc/sys/kernel/random/boot_id; exec $REMORA_BIN "\$@"' - "\$@"
END
chmod +x "$work/elsewhere"

rxe_up 2
server_start --rdma-devices rxe0
offers shm,tcp,verbs rxe0 || fail "it offers $(info transports), $(info rdma_devices)"
whole=$(pinned)
((whole >= 65536)) || fail "the arena is not pinned: $whole KiB"
works verbs verbs
# At first with a client that stands still: nothing of it wakes the server.
for path in still ask choose; do
    bench_start broken --path "${path/still/ask}" --transport verbs --seconds 40
    [[ $path != still ]] || bench_signal STOP
    remove rxe0
    [[ $path != still ]] || bench_signal CONT
    broken "the server's device is removed, $path" "$lost|ended"
    rxe_wait offers shm,tcp '' || fail "it still offers $(info transports), $(info rdma_devices)"
    [[ $(pinned) == 0 ]] || fail "it has gone, and $(pinned) KiB are pinned for it"
    rxe_wait no_session || fail "a session is left"
    grep -q "a connection broke off.*this machine's RDMA device has gone" "$work/server.log" ||
        fail "the server does not say why"
    works auto tcp
    by_shm || fail "shared memory does not work"
    status=0
    bench none --path ask --transport verbs --ops 50 || status=$?
    [[ $status == 3 ]] || fail "over verbs without a device: $status"
    add 0
    rxe_wait offers shm,tcp,verbs rxe0 || fail "it does not take rxe0 in again"
    [[ $(pinned) == "$whole" ]] || fail "pinned are $(pinned) KiB, at first $whole"
    works auto verbs
    passed "rxe0 is back: over verbs again"
done

for path in ask choose; do
    bench_start broken --path $path --transport verbs --seconds 40
    remove rxe1
    broken "the client's device is removed, $path" "this machine's RDMA device has gone|$lost"
    rxe_wait no_session || fail "a session is left"
    offers shm,tcp,verbs rxe0 || fail "the server has lost its device"
    add 1
    works verbs verbs
done
server_stop

server_start
offers shm,tcp,verbs rxe0,rxe1 || fail "not all devices are used: $(info rdma_devices)"
remove rxe0
rxe_wait offers shm,tcp,verbs rxe1 || fail "it still offers $(info rdma_devices)"
works auto verbs
passed "one of two devices is removed: over the other"
add 0
rxe_wait offers shm,tcp,verbs rxe1,rxe0 || fail "it does not take rxe0 in again"
server_stop
