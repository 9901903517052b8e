#!/usr/bin/env bash
# Counts the instructions of single operations under callgrind:
#   cached-get  a client reads a key by its cached pointer, over shared memory
#   asked-get, asked-set  a shard decodes and executes a request
#   tcp-get-1, tcp-get-1000  the thread of a server's one shard answers a GET over TCP,
#               beside so many idle sessions (INSTRUCTIONS_SERVER names another server)
#   search      a shard counts some 100 of 100,000 points in a window
#   insert      a shard puts a point into a tree of 100,000
# Each count is that of 2N operations less that of N, divided by N.
#
# bench/instructions.sh [--features before] [WHAT...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
command -v valgrind >/dev/null || { echo "instructions: install valgrind first"; exit 2; }
features=()
if [[ ${1:-} == --features ]]; then features=(--features "$2") && shift 2; fi
what=("$@")
((${#what[@]})) || what=(cached-get asked-get asked-set tcp-get-1 tcp-get-1000 search insert)

cargo build --quiet --release --package remora
cargo build --quiet --release --manifest-path bench/instructions/Cargo.toml "${features[@]}"
binary=bench/instructions/target/release/remora-bench-instructions
place=$(mktemp -d)
trap 'kill "${server:-0}" 2>/dev/null || true; rm -rf "$place"' EXIT

count() {
    valgrind --tool=callgrind --callgrind-out-file="$place/out" \
        --toggle-collect='*counted*' "$binary" "$1" "$2" "$place/socket" 2>"$place/log" ||
        { cat "$place/log" >&2; return 1; }
    sed -n 's/^.*Collected : *\([0-9]*\).*$/\1/p' "$place/log"
}

if [[ " ${what[*]} " == *" cached-get "* ]]; then
    target/release/remora serve --port 0 --socket "$place/socket" --wake event \
        --max-memory 64MiB >"$place/server" 2>&1 &
    server=$!
    for _ in {1..200}; do [[ -S $place/socket ]] && break; sleep 0.1; done
fi
# Counts what the shard's thread of a server executes while one session asks. The control
# thread beats for all sessions, however many requests there are.
count_server() {
    local idle=${1#tcp-get-} times=$2
    rm -f "$place"/tcp.*
    valgrind --tool=callgrind --instr-atstart=no --separate-threads=yes \
        --callgrind-out-file="$place/tcp.out" \
        "${INSTRUCTIONS_SERVER:-target/release/remora}" serve --port 0 --socket "$place/tcp.socket" \
        --wake event --shards 1 --max-memory 64MiB --fabric-address "127.0.0.1:$tcp_port" \
        >"$place/tcp.server" 2>"$place/tcp.log" &
    server=$!
    for _ in {1..600}; do [[ -S $place/tcp.socket ]] && break; sleep 0.1; done
    "$binary" tcp-get "$times" "127.0.0.1:$tcp_port" "$idle" "$server" >&2
    kill "$server"; wait "$server" || true
    sed -n 's/^totals: //p' $(grep -l ShardLoop "$place"/tcp.out-*)
}
tcp_port=${INSTRUCTIONS_PORT:-17391}
# A descriptor for each session, at both ends.
ulimit -n "$(ulimit -Hn)"

for one in "${what[@]}"; do
    if [[ $one == tcp-get-* ]]; then
        once=$(count_server "$one" 1000)
        twice=$(count_server "$one" 3000)
        printf '%-12s %d instructions\n' "$one" $(((twice - once) / 2000))
        continue
    fi
    times=2000
    [[ $one == insert || $one == search ]] && times=500
    once=$(count "$one" $times)
    twice=$(count "$one" $((2 * times)))
    printf '%-12s %d instructions\n' "$one" $(((twice - once) / times))
done
