#!/usr/bin/env bash
# Runs a script of the repository in the virtual machine, as root, and streams
# what it prints.
#
# usage: run.sh [options] SCRIPT [ARGUMENTS]
#        run.sh [options] --shell             a shell on this terminal
#   --seconds N        time limit, with the boot: 90 (a shell's: 3600)
#   --boot-seconds N   time limit of the boot, 60; one that fails is tried again once
#   --memory MIB       1024
#   --numa N           NUMA nodes, 1; memory and the two processors are shared out
#   --out DIRECTORY    what the script leaves in $RXE_OUT goes there
#   --env NAME=VALUE   for the script; may be given several times
#   --qemu ARGUMENT    for qemu; may be given several times
#
# SCRIPT: a path inside the repository, or any program of this machine. It runs
# in the repository's root and finds there all files of this machine; what it
# writes outside of $RXE_OUT is gone at the end. Set for it: CARGO_TARGET_DIR,
# REMORA_BIN, RXE_OUT, HOME.
#
# Exit: the script's; 124 out of time; 125 the machine did not boot, or died.
set -euo pipefail

from=$PWD
# shellcheck source=tests/rxe/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
    say "$*"
    sed -n 's/^# usage:/usage:/p; s/^#  /  /p' "$repository/tests/rxe/run.sh" >&2
    exit 125
}

seconds='' boot_seconds=180 memory=1024 nodes=1 out='' shell='' variables=() more=()
while [[ ${1:-} == --* ]]; do
    case $1 in
    --shell) shell=yes && shift && continue ;;
    --seconds) seconds=${2:?} ;;
    --boot-seconds) boot_seconds=${2:?} ;;
    --memory) memory=${2:?} ;;
    --numa) nodes=${2:?} ;;
    --out) out=$(cd "$from" && realpath -m "${2:?}") ;;
    --env) variables+=("${2:?}") ;;
    --qemu) more+=("${2:?}") ;;
    *) usage "unknown option: $1" ;;
    esac
    shift 2
done
if [[ $shell ]]; then
    set -- bash -i
elif (($# == 0)); then
    usage "no script is named"
elif [[ ! -e $1 ]]; then
    usage "there is no $repository/$1"
elif [[ ! -x $1 ]]; then
    set -- bash "$@"
elif [[ $1 != /* ]]; then
    set -- "./$1" "${@:2}"
fi
seconds=${seconds:-$([[ $shell ]] && echo 3600 || echo 270)}

bash tests/rxe/prepare.sh

# The directory that both sides write: start.sh, command and shell for the
# guest; booted, result and out from it. One that a killed run left goes a day
# later.
find "$rxe" -maxdepth 1 -name 'run.*' -mmin +1440 -exec rm -rf {} +
run=$(mktemp -d "$rxe/run.XXXXXX")
qemu=
# shellcheck disable=SC2317  # called by the trap
finish() {
    [[ -z $qemu ]] || kill -KILL "$qemu" 2>/dev/null || true
    if [[ $out ]]; then
        mkdir -p "$out"
        cp -r "$run/out/." "$out/"
    fi
    rm -rf "$run"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

mkdir "$run/out"
cp tests/rxe/guest/start.sh "$run/"
[[ -z $shell ]] || : >"$run/shell"
{
    variables=("CARGO_TARGET_DIR=$target" "REMORA_BIN=$target/release/remora"
        RXE_OUT=/run/rxe/out HOME=/root "${variables[@]}")
    printf 'export %q\n' "${variables[@]}"
    printf 'cd %q\nexec' "$repository"
    printf ' %q' "$@"
    echo
} >"$run/command"

# Without fsrm and erms: with them READs of Soft-RoCE tear words here, probably
# as memcpy is then a `rep movsb`, which is emulated byte by byte.
# shellcheck disable=SC2054  # the commas are qemu's
arguments=(
    -accel tcg,thread=multi -cpu max,la57=off,fsrm=off,erms=off -machine q35 -smp 2,sockets=2 -m "$memory"
    -nodefaults -no-user-config -no-reboot -display none
    -kernel "$rxe/vmlinux" -initrd "$rxe/initrd"
    -append "console=ttyS0 quiet panic=-1 mitigations=off nokaslr tsc=reliable"
    -device "isa-debug-exit,iobase=0xf4,iosize=4"
    -fsdev "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap"
    -device "virtio-9p-pci,fsdev=root,mount_tag=root"
    -fsdev "local,id=run,path=${run//,/,,},security_model=none"
    -device "virtio-9p-pci,fsdev=run,mount_tag=run"
)
if [[ $shell ]]; then
    arguments+=(-serial mon:stdio)
else
    arguments+=(
        -serial "file:${run//,/,,}/console"
        -device virtio-serial-pci -chardev "file,id=output,path=/dev/fd/3"
        -device "virtserialport,chardev=output"
    )
fi
if ((nodes > 1)); then
    for ((node = 0; node < nodes; node++)); do
        arguments+=(-object "memory-backend-ram,id=memory$node,size=$((memory / nodes))M"
            -numa "node,nodeid=$node,memdev=memory$node")
        ((node > 1)) || arguments+=(-numa "cpu,node-id=$node,socket-id=$node")
    done
fi
arguments+=("${more[@]}")

# Boots once. Sets booted (tenths of a second, or empty), timed_out, ended.
boot() {
    local start=${EPOCHREALTIME/./} now=0 cat=
    booted='' timed_out=''
    rm -f "$run/booted" "$run/result" "$run/console"
    # Dies with this script, however this script dies. The script's output goes
    # through a pipe, as qemu would make the terminal non-blocking for all who
    # share it.
    if [[ $shell ]]; then
        setpriv --pdeathsig KILL qemu-system-x86_64 "${arguments[@]}" <&0 &
        qemu=$!
    else
        exec 3> >(exec cat)
        cat=$!
        setpriv --pdeathsig KILL qemu-system-x86_64 "${arguments[@]}" </dev/null >&2 &
        qemu=$!
        exec 3>&-
    fi
    while kill -0 "$qemu" 2>/dev/null; do
        now=$(((${EPOCHREALTIME/./} - start) / 100000))
        if [[ -z $booted && -e $run/booted ]]; then
            booted=$now
        fi
        if ((now > (booted ? seconds : boot_seconds) * 10)); then
            timed_out=yes
            kill -KILL "$qemu"
            break
        fi
        sleep 0.1
    done
    ended=0
    wait "$qemu" 2>/dev/null || ended=$?
    qemu=
    [[ -z $cat ]] || wait "$cat"
    [[ -z $booted && -e $run/booted ]] && booted=$now
    took=$(((${EPOCHREALTIME/./} - start) / 100000))
}
tenths() { echo "$(($1 / 10)).$(($1 % 10)) s"; }
console() { tail -n 40 "$run/console" 2>/dev/null | sed "s/^/rxe: console: /" >&2 || true; }

boot
if [[ -z $booted ]]; then
    say "the machine did not boot (qemu: $ended, $(tenths "$took")); trying again"
    console
    boot
fi
if [[ -z $booted ]]; then
    say "the machine did not boot (qemu: $ended, $(tenths "$took"))"
    console
    exit 125
elif [[ $timed_out ]]; then
    say "out of time after $seconds s: $*"
    console
    exit 124
elif [[ $ended != 85 || ! -s $run/result ]]; then
    say "the machine died (qemu: $ended, $(tenths "$took")): $*"
    console
    exit 125
fi
status=$(<"$run/result")
say "booted in $(tenths "$booted"), $(tenths "$took") in all, exit $status: $*"
[[ $status == 0 ]] || console
exit "$status"
