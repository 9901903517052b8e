#!/usr/bin/env bash
# Runs a program with one of MongoDB's drivers against a running server.
#
# usage: run.sh DIRECTORY DRIVER ADDRESS
#   DIRECTORY  keeps what is fetched, by the checksums of the lock files, and what is built
#   DRIVER     node, java, go, mongosh or python
#   ADDRESS    HOST:PORT
#
# The program inserts, finds in batches, changes, indexes, groups and deletes, and looks at each answer; that of
# python logs in as several users.
# Exit: 0 if it prints `all is well` in the end.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$1"
directory=$(cd "$1" && pwd)
driver=$2 address=$3
work=$directory/$driver
mkdir -p "$work"

# Fetches what package-lock.json names, unless it is there.
fetch_from_npm() {
    cmp --quiet "$here/$driver/package-lock.json" "$work/has" && return
    cp "$here/$driver"/package*.json "$work"
    (cd "$work" && npm ci --omit=optional --ignore-scripts --no-audit --no-fund --silent >&2)
    cp "$here/$driver/package-lock.json" "$work/has"
}

fetch_from_maven() {
    # Named in full, so that Maven looks for no newer version.
    local copy=org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies
    cmp --quiet "$here/java/pom.xml" "$work/has" && return
    rm -rf "${work:?}/jars"
    mvn --batch-mode --quiet --file "$here/java/pom.xml" "$copy" -DincludeScope=runtime \
        -DoutputDirectory="$work/jars" >&2
    cp "$here/java/pom.xml" "$work/has"
}

case $driver in
node)
    fetch_from_npm
    NODE_PATH=$work/node_modules node "$here/node/client.js" "$address"
    ;;
mongosh)
    fetch_from_npm
    # It keeps its settings in the home directory.
    HOME=$work "$work/node_modules/.bin/mongosh" --norc --quiet "mongodb://$address/remora_mongosh" \
        "$here/mongosh/script.js"
    ;;
java)
    fetch_from_maven
    java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xmx256m -cp "$work/jars/*" "$here/java/Client.java" "$address"
    ;;
go)
    (cd "$here/go" && go build -buildvcs=false -o "$work/client" .)
    "$work/client" "$address"
    ;;
python)
    bash "$here/../foreign/mongo/fetch.sh" "$work"
    PYTHONPATH=$work/source:$work/lib PYTHONDONTWRITEBYTECODE=1 \
        /usr/bin/python3 "$here/python/logins.py" "$address"
    ;;
*)
    echo "run.sh: no program has the driver: $driver" >&2
    exit 1
    ;;
esac | tee "$work/said"
[[ $(tail --lines 1 "$work/said") == "all is well" ]]
