#!/usr/bin/env bash
# First process of the guest once the host's userland is there: runs
# /run/rxe/command and tells the host its exit status. All that is still
# running then is killed.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
ulimit -l unlimited # memory regions are locked memory
ip link set lo up
hostname rxe
: >/run/rxe/booted

if [[ -e /run/rxe/shell ]]; then
    setsid --ctty --wait bash /run/rxe/command </dev/ttyS0 >/dev/ttyS0 2>&1
    status=$?
else
    # Through a pipe, as only one file may have the port open at a time.
    exec 3> >(exec cat >"$(echo /dev/vport*p1)")
    cat=$!
    bash /run/rxe/command </dev/null >&3 2>&1 3>&-
    status=$?
    exec 3>&-
    for process in /proc/[0-9]*; do
        pid=${process#/proc/}
        [[ $pid == 1 || $pid == "$cat" ]] || kill -KILL "$pid"
    done 2>/dev/null
    wait "$cat"
fi

echo "$status" >/run/rxe/result
# The device isa-debug-exit: qemu exits with 2 * 42 + 1.
printf '\x2a' | dd of=/dev/port bs=1 seek=$((0xf4)) status=none
