#!/usr/bin/env bash
# `remora doctor` with two devices, with one of them unplugged, without
# /dev/infiniband and under a low limit of locked memory; the errors of server
# and client under that limit; then a server and a client that reads, as
# docs/rdma.md says. The binary is the first argument.
set -euo pipefail
# shellcheck source=tests/rxe/guest/net.sh
source "$(dirname "${BASH_SOURCE[0]}")/net.sh"
work=$(mktemp -d)
chmod 755 "$work"
# Where another user may run it too, wherever the repository lies.
remora=$work/remora
cp "${1:-$REMORA_BIN}" "$remora"
chmod 755 "$remora"
install -d -m 700 -o 65534 -g 65534 "$work/user"
install -d -m 700 "$work/root"
failures=0

# Runs a command; its output is in $work/out, and is printed.
run() { # wanted exit status, command
    local status=0
    echo "== ${*:2}"
    timeout 180 "${@:2}" >"$work/out" 2>&1 || status=$?
    cat "$work/out"
    [[ $status == "$1" ]] || fail "exit status $status, not $1"
}
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}
has() { # patterns that a line of the last output has
    local pattern
    for pattern; do
        grep -Eq -- "$pattern" "$work/out" || fail "no line has: $pattern"
    done
}
# As somebody without capabilities, who may lock 64 KiB.
as_user=(prlimit --memlock=65536:65536 setpriv --reuid 65534 --regid 65534 --clear-groups
    --bounding-set=-all --inh-caps=-all env -C "$work/user" HOME="$work/user" XDG_RUNTIME_DIR="$work/user")
limit_told=("memlock\) is 65536 bytes, of which [0-9]+ are in use" LimitMEMLOCK=infinity
    "memlock unlimited. in /etc/security/limits.conf" "--ulimit memlock=-1:-1" "Kubernetes: has no field")

rxe_up 2
run 0 "$remora" doctor
has '^ok +port rxe0/1 +Ethernet, state ACTIVE' '^ok +gid rxe0/1/[0-9]+ +rank 1: 10.0.0.1 on veth0; RoCE v2 with an IPv4' \
    '^ok +gid rxe1/1/[0-9]+ +rank 2: 10.0.0.2' '^ok +loopback rxe0 ' '^ok +loopback rxe1 ' '^unknown +ecn veth0' \
    '^unknown +pfc veth0' '^warn +device rxe0 +in software'

# Devices are tried with the settings of packets, by flags or from the environment.
run 0 env REMORA_RDMA_TRAFFIC_CLASS=104 "$remora" doctor --rdma-mtu 256
has '^ok +loopback rxe0 .*in packets of at most 256 bytes, traffic class 104,'
run 1 env REMORA_RDMA_PKEY_INDEX=9 "$remora" doctor
has '^broken +loopback rxe0 .*has no P_Key at index 9'

chmod 666 /dev/infiniband/uverbs* # as udev makes them

rxe_unplug 1
run 0 "$remora" doctor
has '^ok +loopback rxe0 ' '^warn +port rxe1/1 +Ethernet, state DOWN' \
    '^warn +gid rxe1/1/[0-9]+ +not used: 10.0.0.2 .*the port is not active'
! grep -q 'loopback rxe1' "$work/out" || fail "a port that is down was tried"
rxe_plug 1

run 1 "${as_user[@]}" "$remora" doctor
has '^broken +memlock +64KiB' LimitMEMLOCK=infinity '^ok +loopback rxe0 '
run 3 "${as_user[@]}" "$remora" serve --bind 10.0.0.1 --port 6380 --fabric-address 10.0.0.1:7001 --transport verbs --protected-mode=false \
    --max-memory 64MiB
has "cannot register [0-9]+ bytes" "${limit_told[@]}"

serve=("$remora" serve --bind 10.0.0.1 --port 6379 --fabric-address 10.0.0.1:7000 --transport verbs --protected-mode=false
    --max-memory 64MiB)
XDG_RUNTIME_DIR=$work/root "${serve[@]}" >"$work/log" 2>&1 &
server=$!
rxe_wait grep -q 'rxe1 is RDMA in software' "$work/log" || cat "$work/log"
bench=("$remora" bench keys --server 10.0.0.1:6379 --transport verbs --records 200 --ops 200 --path read --seconds 1)
run 0 "${bench[@]}" # over one device, to itself
has 'read over verbs'
run 0 env REMORA_RDMA_DEVICES=rxe1 "${bench[@]}"
has 'read over verbs'
run 3 "${as_user[@]}" env REMORA_RDMA_DEVICES=rxe1 "${bench[@]}"
has "cannot register [0-9]+ bytes" "${limit_told[@]}"
run 3 env REMORA_RDMA_DEVICES=rxe7 "${bench[@]}"
has "there is no RDMA device rxe7"
kill -TERM "$server"
wait "$server" || fail "the server ended with $?"
cat "$work/log"

# What a container without the device sees: sysfs, but no file to open.
mount -t tmpfs none /dev/infiniband
run 1 "$remora" doctor
has '^broken +loopback rxe0 ' 'docker run --device=/dev/infiniband'
run 1 "$remora" doctor --json
has '^\{"version":.*"broken":2,.*\}$'
umount /dev/infiniband

((failures == 0)) || exit 1
echo "doctor: passed"
