#!/usr/bin/env bash
# Shows that a machine with two NUMA nodes has two, each with a processor and
# memory of its own; and that a server with two shards has one on each, its
# arena's pages there and nowhere else (HydraDB 4.1.2, H5).
set -euo pipefail
for node in 0 1; do
    directory=/sys/devices/system/node/node$node
    processors=$(<$directory/cpulist)
    memory=$(awk '$3 == "MemTotal:" { print $4 }' $directory/meminfo)
    echo "numa: node $node: processor $processors, $memory KiB"
    if [[ $processors != "$node" ]] || ((memory < 100000)); then
        echo "numa: FAILED: node $node should have processor $node, and memory" >&2
        exit 1
    fi
done

work=$(mktemp -d)
"$REMORA_BIN" serve --port 0 --socket "$work/socket" --shards 2 --max-memory 64mb --pin=true \
    >"$work/ready" 2>"$work/log" &
server=$!
trap 'kill "$server" 2>/dev/null || cat "$work/log"' EXIT
for ((tries = 0; tries < 300; tries++)); do
    [[ -s $work/ready ]] && break
    sleep 0.2
done
"$REMORA_BIN" bench keys --server "$work/socket" --path ask --records 20000 --ops 100 --value-bytes 500 >/dev/null
# Pages of each arena by node, as N0=... and N1=..., sorted.
arenas=$(grep memfd:remora-arena "/proc/$server/numa_maps" | grep -o 'N[01]=[0-9]*' | sort)
echo "numa: pages of the arenas:" $arenas
nodes=$(cut -d= -f1 <<<"$arenas" | tr '\n' ' ')
if [[ $nodes != "N0 N1 " ]]; then
    echo "numa: FAILED: each arena should lie on a node of its own" >&2
    cat "$work/log" >&2
    exit 1
fi
