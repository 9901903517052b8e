#!/usr/bin/env bash
# Shows that the machine is fit for tests of verbs: with Debian's programs, two
# and four devices, what they send is on the wire and can be counted, lost and
# cut off.
set -euo pipefail
# shellcheck source=tests/rxe/guest/net.sh
source "$(dirname "${BASH_SOURCE[0]}")/net.sh"
work=$(mktemp -d)

# usage: pair CLIENT SERVER PROGRAM ARGUMENTS: the program on devices rxeCLIENT
# and rxeSERVER, both ends.
pair() {
    local client=$1 server=$2 server_process gid_option=-g
    shift 2
    [[ $1 == ibv_rc_pingpong ]] || gid_option=-x
    # The server prints more than the client; it listens once its queue pair is there.
    timeout 180 "$@" -d "rxe$server" "$gid_option" "$(rxe_gid_index "$server")" >"$work/server" 2>&1 &
    server_process=$!
    rxe_wait listening
    timeout 180 "$@" -d "rxe$client" "$gid_option" "$(rxe_gid_index "$client")" 127.0.0.1 >"$work/client" 2>&1 &&
        wait "$server_process" && return
    echo "smoke: failed: $*" >&2
    cat "$work/client" "$work/server" >&2
    return 1
}
# Whether something listens at port 18515 (0x4853).
listening() { grep -q ':4853 0*:0000 0A' /proc/net/tcp /proc/net/tcp6; }
pingpong() { pair "$1" "$2" ibv_rc_pingpong -p 18515 -i 1 -s 1024 -n "$3"; }
# $2 READs by rxe$1 of rxe1, all of which must be in the capture.
reads() {
    local counted
    capture_start "$1" "$work/reads"
    pair "$1" 1 ib_read_lat -p 18515 -F -n "$2" -s 64
    capture_stop "$work/reads"
    counted=$(count_reads "$work/reads")
    [[ $counted == "$2" ]] || fail "$2 READs, but $counted in the capture"
}
passed() { echo "smoke: ok, ${SECONDS} s: $*"; }
fail() {
    echo "smoke: FAILED: $*" >&2
    exit 1
}

rxe_up 2
capture_start 0 "$work/sends"
pingpong 0 1 200
capture_stop "$work/sends"
counted=$(count_reads "$work/sends")
[[ $counted == 0 ]] || fail "ping-pong by SEND, but $counted READs in the capture"
passed "two devices: ping-pong"

reads 0 300
passed "two devices: 300 READs, 300 requests in the capture"

rxe_loss 2
reads 0 300
lost=$(rxe_lost)
((lost > 0)) || fail "2 % loss, but nothing was lost"
rxe_loss 0
passed "two devices: 300 READs, $lost packets lost and sent again, 300 requests"

rxe_unplug 1
pingpong 0 1 10 &
ping=$!
sleep 3
kill -0 "$ping" 2>/dev/null || fail "unplugged, but the ping-pong ended"
rxe_plug 1
wait "$ping" || fail "the ping-pong did not end after its link came back"
passed "two devices: unplugged, no ping-pong; plugged in, it ends"
rxe_down

rxe_up 4
pingpong 1 0 100
pingpong 2 1 100
pingpong 3 0 100
printf '"%s"' "$(uname -r)" >"$RXE_OUT/kernel.json"
printf '["%s"]' "$(basename -a /sys/class/infiniband/* | paste -sd, | sed 's/,/","/g')" >"$RXE_OUT/devices.json"
rxe_down
passed "four devices: ping-pong of every device"
