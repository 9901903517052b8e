# shellcheck shell=bash
# A server on device rxe0 and clients on rxe1, by the binary $REMORA_BIN. For
# scripts in the guest, sourced after net.sh.

resp=10.0.0.1:6379 socket=/run/remora.sock

# Starts the server, with these further arguments; it is up when this returns.
server_start() {
    "$REMORA_BIN" serve --bind 10.0.0.1 --port 6379 --socket "$socket" --fabric-address 10.0.0.1:7000 \
        --shards 1 --max-memory 64mb --pin=false "$@" >"$work/server" 2>&1 &
    server=$!
    rxe_wait info shards
}

# Ends it, and waits for its end: exit status 0 within 10 s.
server_stop() {
    kill -TERM "$server"
    rxe_wait eval "! kill -0 $server 2>/dev/null" || fail "the server does not end"
    wait "$server" || fail "the server's exit status: $?"
}

# A field of the server's INFO.
info() {
    {
        exec {to}<>/dev/tcp/10.0.0.1/6379 || return
        printf 'INFO\r\nQUIT\r\n' >&"$to"
        sed -n "s/^$1:\([^\r]*\).*/\1/p" <&"$to" | grep . || return
        exec {to}>&-
    } 2>/dev/null
}

# Waits until a field has this value.
info_is() { rxe_wait eval "[[ \$(info $1) == $2 ]]"; }

# usage: bench OUTPUT ARGUMENTS: one JSON object into the file OUTPUT, what is
# said beside it into OUTPUT.log.
bench() {
    REMORA_RDMA_DEVICE=rxe1 timeout 60 "$REMORA_BIN" bench keys --server "$resp" --json \
        "${@:2}" >"$1" 2>"$1.log"
}

# Number or text of a field of a JSON object in one line.
field() { sed -n "s/.*\"$2\":\"\{0,1\}\([^,\"}]*\).*/\1/p" "$1"; }
