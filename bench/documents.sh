#!/usr/bin/env bash
# Server CPU of MongoDB's operations through pymongo, beside GET through redis-py, in one run.
#
#     bench/documents.sh [DOCUMENTS] [OPERATIONS] [ROUNDS]
#     bench/documents.sh peer [DOCUMENTS] [OPERATIONS] [ROUNDS]   mongo-java-server as well, which needs Java and Maven
#     bench/documents.sh others [DOCUMENTS] [ROUNDS]     what a full scan with a sort costs others' GETs
#     bench/documents.sh many [DOCUMENTS]     memory of a large collection, and how long counts take
#
# It builds the release, starts a server with one shard, and takes pymongo and redis-py from the package registry.
set -euo pipefail
cd "$(dirname "$0")/.."
script=documents.py memory=1GiB driver=pymongo
case ${1:-} in
many) script=documents_many.py memory=6GiB && shift ;;
others) script=documents_others.py && shift ;;
# Newer versions do not speak with it.
peer) driver=pymongo==4.8.0 && shift ;;
esac
cargo build --release --quiet -p remora
directory=$(mktemp -d)
trap 'kill $server 2>/dev/null; rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet "$driver" redis
target/release/remora serve --port 0 --mongo-port 0 --socket "$directory/socket" --shards 1 --max-memory $memory \
    >"$directory/ready" 2>"$directory/log" &
server=$!
until grep -q '^ready' "$directory/ready"; do
    kill -0 $server || { cat "$directory/log"; exit 1; }
    sleep 0.1
done
port() { sed -n "s/.*$1=[^ ]*:\([0-9]*\).*/\1/p" "$directory/ready"; }
if [[ $driver == *==* ]]; then
    export PEER_JVM=-Xmx2g
    coproc peer { exec bash tests/foreign/mongo/peer/start.sh "$directory/peer" 0; }
    # shellcheck disable=SC2154  # bash sets it for the coprocess
    export PEER_PID=$peer_PID
    read -r -t 300 -u "${peer[0]}" PEER_ADDRESS
    export PEER_ADDRESS=${PEER_ADDRESS#ready mongo=}
fi
"$directory/venv/bin/python" "bench/$script" $server "$(port resp)" "$(port mongo)" "$@"
