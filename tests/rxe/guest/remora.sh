# shellcheck shell=bash
# A server on device rxe0 and clients on rxe1, by the binary $REMORA_BIN. For
# scripts in the guest, sourced.

# shellcheck source=tests/rxe/guest/net.sh
source "$(dirname "${BASH_SOURCE[0]}")/net.sh"
work=$(mktemp -d)
test=$(basename "$0" .sh)

passed() { echo "$test: ok, ${SECONDS} s: $*"; }
fail() {
    echo "$test: FAILED: $*" >&2
    for log in "$work"/*.log; do
        [[ $(wc -l <"$log") == 2 ]] || tail -v -n 5 "$log" >&2 # two lines: all went well
    done
    exit 1
}

# Starts a server of one shard, with further arguments; it is up when this
# returns.
server_start() {
    "$REMORA_BIN" serve --bind 10.0.0.1 --port 6379 --socket "$work/socket" --fabric-address 10.0.0.1:7000 \
        --shards 1 --max-memory 64mb --pin=false --protected-mode=false "$@" >"$work/server.log" 2>&1 &
    server=$!
    rxe_wait info shards || fail "the server does not start"
}

# Ends it; it has to be told only once.
server_stop() {
    kill -TERM "$server"
    ended "$server" || fail "the server failed at its end: $?"
}

# Waits for the end of a process, and gives its exit status.
ended() {
    rxe_wait eval "! kill -0 $1 2>/dev/null" || fail "process $1 hangs"
    wait "$1"
}

# A field of the server's INFO.
info() {
    local connection
    {
        exec {connection}<>/dev/tcp/10.0.0.1/6379 || return
        printf 'INFO\r\nQUIT\r\n' >&"$connection"
        sed -n "s/^$1:\([^\r]*\).*/\1/p" <&"$connection" | grep . || return
        exec {connection}>&-
    } 2>/dev/null
}

# usage: bench NAME ARGUMENTS: one JSON object into the file $work/NAME, what is
# said beside it into NAME.log. With all records looked up once before. What is
# chosen goes by pointers: times decide nothing, so that counts are known.
bench() {
    REMORA_RDMA_DEVICES=rxe1 timeout 180 "$REMORA_BIN" bench keys --server 10.0.0.1:6379 --json \
        --policy pointer --records "$records" "${@:2}" >"$work/$1" 2>"$work/$1.log"
}
records=200

# The same by `choose` or `ask`, in the background, as process $client; returns
# when it has begun with what it measures: each record was sent and asked for.
bench_start() {
    local before
    before=$(info ring_frames)
    bench "$@" &
    # shellcheck disable=SC2034  # for those who source this
    client=$!
    rxe_wait eval "((\$(info ring_frames) >= $before + 2 * records))" || fail "no client runs"
    sleep 0.5
}

# usage: broken WHAT PATTERN: the running client, started with the name `broken`,
# has to end by itself, with an error that says this.
broken() {
    local status=0
    ended "$client" || status=$?
    [[ $status == 1 ]] || fail "$1: the client's exit status is $status"
    grep -qE "^remora: .*($2)" "$work/broken.log" || fail "$1: the client says something else"
    passed "$1: $(tail -n 1 "$work/broken.log")"
}

# Sends it a signal; what it is, `timeout` runs.
bench_signal() {
    local process
    process=$(<"/proc/$client/task/$client/children")
    process=${process// /}
    process=$(<"/proc/$process/task/$process/children")
    kill "-$1" "${process// /}"
}
bench_kill() {
    bench_signal KILL
    ended "$client" || true
}

# A number of the JSON object of a run.
number() { sed -n "s/.*\"$2\":\([0-9.]*\).*/\1/p" "$work/$1"; }

# The counts of a run, which its seed decides.
counts() {
    grep -oE '"(round_trips_per_op|bytes_per_op|asked|read|hits|stale|retries|lease_expired|behind_writes|undecided|ops|missing|wrong)":[0-9.]+' \
        "$work/$1"
}

# How many lookups of a run the clock let ask instead of READ: the read lease
# had lapsed, or a lease was to be renewed.
late() { echo $(($(number "$1" read_lease_lapsed) + $(number "$1" renewals))); }

# The counts of a run had nothing been late: where something was, trips and
# bytes are left out.
in_time() {
    counts "$1" | awk -F: -v OFS=: -v late="$2" -v own="$(late "$1")" '
        late && /round_trips|bytes_per/ { next }
        $1 == "\"asked\"" { $2 -= own }
        $1 == "\"read\"" { $2 += own }
        { print }'
}

# How many READs the client of a run has counted, when each lookup READs at
# most once: its round trips, but for those that asked.
reads_of() {
    awk -v trips="$(number "$1" round_trips_per_op)" -v ops="$(number "$1" ops)" \
        -v asked="$(number "$1" asked)" 'BEGIN { printf "%.0f\n", trips * ops - asked }'
}

# How many READs of records are in the capture $1. (Connecting READs header
# pages too, of 4 KiB.)
record_reads() { count_reads "$1" 'udp[32:4] < 1024'; }
