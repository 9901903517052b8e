#!/usr/bin/env bash
# Fetches mongo-java-server and starts it, until its standard input ends.
#
# usage: start.sh DIRECTORY PORT
#   DIRECTORY  keeps its jars
#   PORT       0: a free one
#
# Prints `ready mongo=HOST:PORT`.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$1"
directory=$(cd "$1" && pwd)
# Named in full, so that Maven looks for no newer version.
copy=org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies

if ! cmp --quiet "$here/pom.xml" "$directory/pom.xml"; then
    rm -rf "${directory:?}/jars"
    mvn --batch-mode --quiet --file "$here/pom.xml" "$copy" -DincludeScope=runtime -DoutputDirectory="$directory/jars" >&2
    cp "$here/pom.xml" "$directory/pom.xml"
fi
# Unless the caller says otherwise, a small JVM that starts soon.
read -ra jvm <<<"${PEER_JVM:--XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xmx512m}"
exec java "${jvm[@]}" -cp "$directory/jars/*" "$here/Peer.java" "$2"
