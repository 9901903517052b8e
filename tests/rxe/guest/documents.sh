#!/usr/bin/env bash
# Documents over verbs: insert, delete, update and query with 1 and 16 connections, or as many as the arguments
# say, beside TCP on the same network, and finds by READs. Replies and documents are checked by the bench.
# Times say nothing of real devices; the ratios of this machine are printed as a table. With 100 connections that
# ask at once Soft-RoCE fails to send acknowledgements on a busy machine, and connections end.
set -euo pipefail
# shellcheck source=tests/rxe/guest/remora.sh
source "$(dirname "${BASH_SOURCE[0]}")/remora.sh"

# usage: documents NAME ARGUMENTS: as bench.
documents() {
    REMORA_RDMA_DEVICES=rxe1 timeout 300 "$REMORA_BIN" bench documents --server "$work/socket" --json --wake event \
        --records "$records" "${@:2}" >"$work/$1" 2>"$work/$1.log" || fail "documents: $*: $(<"$work/$1.log")"
}
wrong() { echo $(($(number "$1" errors) + $(number "$1" missing) + $(number "$1" wrong))); }
ratio() { awk -v a="$(number verbs "$1")" -v b="$(number tcp "$1")" 'BEGIN { printf "%.2f", a / b }'; }

(($# > 0)) || set -- 1 16
rxe_up 2
server_start
records=1000
table='| Operation | Connections | rate of TCP'"'"'s | p50 of TCP'"'"'s | server CPU of TCP'"'"'s |
| --- | --- | --- | --- | --- |'
for operation in insert delete update query; do
    for connections; do
        for transport in verbs tcp; do
            documents "$transport" --op "$operation" --path ask --connections "$connections" --ops "$records" \
                --transport $transport
            grep -q "\"transport\":\"$transport\"" "$work/$transport" || fail "$operation is not over $transport"
            [[ $(wrong $transport) == 0 ]] || fail "$operation over $transport: $(<"$work/$transport")"
            [[ $(number $transport round_trips_per_op) == 1.0 ]] || fail "$operation: $(<"$work/$transport")"
            [[ $(number $transport asked) == "$records" ]] || fail "$operation: $(<"$work/$transport")"
        done
        [[ $(number verbs bytes_per_op) == "$(number tcp bytes_per_op)" ]] || fail "$operation: other bytes"
        table+="
| $operation | $connections | $(ratio ops_per_s) | $(ratio p50_us) | $(ratio server_cpu_us_per_op) |"
    done
    passed "$operation: as many round trips and bytes as over TCP, with $* connections"
done
echo "$table"

documents find --op find --path read --transport verbs --ops "$records"
lapsed=$(number find read_lease_lapsed)
(($(number find asked) <= lapsed)) || fail "find: asked without a reason: $(<"$work/find")"
[[ $(wrong find) == 0 ]] || fail "find: $(<"$work/find")"
passed "find: $(number find read) documents by READs alone, $(number find asked) asked"
server_stop
passed "the server ends"
