#!/usr/bin/env bash
# Shows that a machine with two NUMA nodes has two, each with a processor and
# memory of its own.
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
