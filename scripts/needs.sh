# shellcheck shell=bash
# What tests need beside the Rust toolchain, and how it gets here. Sourced.
# Each line: command or file | Debian package | service that the package may
# start, or - | what needs it

# shellcheck disable=SC2034  # for those who source this
needs_of_tests='
redis-cli | redis-tools | - | tests that drive the server with redis-cli
redis-benchmark | redis-tools | - | tests that drive the server with redis-benchmark
redis-server | redis-server | redis-server | tests that hold our replies against those of a real redis-server
pg_lsclusters | postgresql | postgresql | tests that load from PostgreSQL
osmium | osmium-tool | - | tests that hold our OpenStreetMap files against those of osmium
/usr/lib/python3/dist-packages/redis | python3-redis | - | tests that drive the server with redis-py
tclsh | tcl | - | tests that Redis has of users
/usr/share/doc/tcl-tls/copyright | tcl-tls | - | tests that Redis has of users, over TLS
openssl | openssl | - | tests that Redis has of users, over TLS
/usr/bin/pip3 | python3-pip | - | tests that redis-py has of users and TLS, and those of pymongo
go | golang-go | - | tests that drive a cluster with go-redis, and documents with the MongoDB driver
javac | openjdk-17-jdk-headless | - | tests that drive a cluster with Lettuce, and documents with the MongoDB driver
mvn | maven | - | tests that drive a cluster with Lettuce, and documents with the MongoDB driver
node | nodejs | - | tests that drive documents with the MongoDB driver for Node and mongosh
npm | npm | - | tests that drive documents with the MongoDB driver for Node and mongosh
/usr/share/java/zookeeper.jar | zookeeper | - | tests of clusters with a real ZooKeeper
'
# shellcheck disable=SC2034
needs_of_rxe='
qemu-system-x86_64 | qemu-system-x86 | - | the virtual machine in which real verbs run
depmod | kmod | - | the virtual machine in which real verbs run
xz | xz-utils | - | the virtual machine in which real verbs run
rdma | iproute2 | - | devices of the virtual machine
/etc/libibverbs.d/rxe.driver | ibverbs-providers | - | devices of the virtual machine
ibv_rc_pingpong | ibverbs-utils | - | the smoke test of the virtual machine
ib_read_lat | perftest | - | the smoke test of the virtual machine
tcpdump | tcpdump | - | captures in the virtual machine
'

# Fills tools, packages, services and purposes of the needs in $1 that are not
# met.
look_for_missing() {
    tools=() packages=() services=() purposes=()
    local tool package service purpose
    while IFS='|' read -r tool package service purpose; do
        tool=${tool// /} package=${package// /} service=${service// /} purpose=${purpose# }
        if [[ -z $tool ]] || command -v "$tool" >/dev/null || [[ $tool == /* && -e $tool ]]; then
            continue
        fi
        tools+=("$tool") purposes+=("$purpose")
        [[ " ${packages[*]-} " == *" $package "* ]] || packages+=("$package")
        [[ $service == - ]] || services+=("$service")
    done <<<"$1"
}

# Sets as_root to what runs a command as root; fails where nothing does.
may_be_root() {
    as_root=()
    [[ $(id -u) == 0 ]] && return
    sudo -n true 2>/dev/null || return
    as_root=(sudo -n)
}

# apt-get as root, quiet and without questions; after may_be_root.
root_apt_get() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get -o DPkg::Lock::Timeout=300 --quiet=2 "$@" </dev/null
}

# Installs packages, where that is allowed.
install_missing() {
    command -v apt-get >/dev/null && may_be_root || return 0
    local service running=" "
    for service in "${services[@]}"; do
        pgrep -x "$service" >/dev/null 2>&1 && running+="$service "
    done
    echo "$(basename "$0" .sh): installing ${packages[*]}"
    root_apt_get update || true
    root_apt_get install --yes --no-install-recommends "${packages[@]}" || true
    # A service that was not running before has no business to run now.
    for service in "${services[@]}"; do
        if [[ $running != *" $service "* ]]; then
            "${as_root[@]}" service "$service" stop >/dev/null 2>&1 || true
        fi
    done
}

# Looks for what is missing of $1, installs it if allowed, and looks again.
# Prints the one apt line where something stays missing.
meet_needs() {
    look_for_missing "$1"
    ((${#tools[@]} == 0)) && return
    install_missing
    look_for_missing "$1"
    ((${#tools[@]} == 0)) && return
    echo "$(basename "$0" .sh): to run everything: sudo apt-get install --yes --no-install-recommends ${packages[*]}"
}

# cargo-deny looks at the dependencies for `cargo xtask check`. Debian has no package of it.
cargo_deny_version=0.20.2

# Installs cargo-deny where there is none: minutes, once for each machine.
meet_cargo_deny() {
    cargo deny --version >/dev/null 2>&1 && return
    echo "$(basename "$0" .sh): installing cargo-deny $cargo_deny_version, which takes some minutes"
    # Without optimizations, in half the time: it reads some files.
    cargo install --quiet --locked --debug --version "$cargo_deny_version" cargo-deny </dev/null ||
        echo "$(basename "$0" .sh): cargo-deny could not be installed; the checks that need it say so"
}
