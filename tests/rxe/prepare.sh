#!/usr/bin/env bash
# Makes the virtual machine's parts in target/rxe: `vmlinux` (Debian's kernel),
# `kernel` (its version), `initrd` (busybox, modules, guest/init). Does nothing
# if they are there. The kernel's package is unpacked, never installed.
#
# Exit: 0 all is there, 1 it could not be made, 2 something is missing that may
# not be installed or cannot be fetched.
set -euo pipefail

# In the order in which the guest loads them; what they need comes with them.
modules=(
    virtio_pci 9pnet_virtio 9p overlay virtio_console   # the root and the output
    crc32_generic crc32-pclmul                          # checksums of RoCE
    veth bridge sch_netem                               # the network
    rdma_rxe ib_uverbs                                  # the devices
)

# shellcheck source=tests/rxe/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
# shellcheck source=scripts/needs.sh
source scripts/needs.sh

meet_needs "$needs_of_rxe"
if ((${#tools[@]} > 0)); then
    say "missing: ${tools[*]}"
    exit 2
fi

mkdir -p "$rxe"
exec 9>"$rxe/lock"
flock 9
made_from=$(cat tests/rxe/prepare.sh tests/rxe/guest/init | sha256sum)
if [[ -e $rxe/made_from && $(<"$rxe/made_from") == "$made_from" ]]; then
    exit 0
fi

temporary=$(mktemp -d "$rxe/prepare.XXXXXX")
trap 'rm -rf "$temporary"' EXIT

# The package that linux-image-amd64 stands for.
kernel_package() {
    apt-cache depends linux-image-amd64 2>/dev/null |
        awk '$1 == "Depends:" && $2 ~ /^linux-image-/ { print $2; exit }'
}

download() {
    local package said
    package=$(kernel_package)
    [[ -n $package ]] || return
    # Only failures are of interest: as root it warns of what does no harm.
    said=$(cd "$temporary" && apt-get --quiet=2 download "$package" busybox-static 2>&1) && return
    echo "$said" >&2
    return 1
}

# Both packages are kept, for the next time this script changes.
if ! compgen -G "$rxe/packages/linux-image-*.deb" >/dev/null; then
    say "fetching a kernel (70 MB)"
    # Lists that are missing or old are fetched anew.
    if ! download && ! { may_be_root && root_apt_get update && download; }; then
        say "apt-get cannot download the package of linux-image-amd64, or busybox-static"
        exit 2
    fi
    mkdir -p "$rxe/packages"
    mv "$temporary"/busybox-static*.deb "$temporary"/linux-image-*.deb "$rxe/packages/"
fi

say "unpacking"
dpkg-deb --fsys-tarfile "$rxe"/packages/linux-image-*.deb | tar -x -C "$temporary" ./boot ./lib
dpkg-deb --fsys-tarfile "$rxe"/packages/busybox-static*.deb | tar -x -C "$temporary" ./bin/busybox
version=$(basename "$temporary"/lib/modules/*)

# The payload of a bzImage is the compressed vmlinux, with four bytes of length
# after it; the header says where it lies. A bzImage that unpacks itself hangs
# now and then under emulation; vmlinux does not.
image=$temporary/boot/vmlinuz-$version
number() { od -A n -t "u$2" -j "$1" -N "$2" "$image"; } # $2 bytes at $1
from=$((($(number 0x1f1 1) + 1) * 512 + $(number 0x248 4)))
length=$(($(number 0x24c 4) - 4))
head -c "$((from + length))" "$image" | tail -c "$length" | xz --decompress >"$temporary/vmlinux"

root=$temporary/root
mkdir -p "$root"/{bin,modules,proc,sys,dev,lower,upper,root}
mv "$temporary/bin/busybox" "$root/bin/"
ln -s busybox "$root/bin/sh"
cp tests/rxe/guest/init "$root/init"
chmod 755 "$root/init"
depmod -b "$temporary" "$version"
for module in "${modules[@]}"; do
    modprobe --dirname "$temporary" --set-version "$version" --show-depends "$module"
done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' |
    while read -r file; do
        cp "$file" "$root/modules/"
        basename "$file" >>"$root/modules/order"
    done
(cd "$root" && find . | "$root/bin/busybox" cpio -o -H newc >"$temporary/initrd" 2>/dev/null)

echo "$version" >"$temporary/kernel"
mv "$temporary"/{vmlinux,initrd,kernel} "$rxe/"
echo "$made_from" >"$rxe/made_from"
say "the virtual machine is made: Linux $version"
