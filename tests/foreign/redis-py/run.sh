#!/usr/bin/env bash
# Runs redis-py's own tests about users and TLS against two running servers of Remora.
#
# usage: run.sh DIRECTORY ADDRESS TLS_ADDRESS CA CERTIFICATE KEY
#   DIRECTORY    keeps what is fetched: redis-py's source and the tools of its tests, by checksum
#   ADDRESS      HOST:PORT of a server that `default` may use without a password
#   TLS_ADDRESS  of one that speaks TLS and asks for no certificate
#   CA           the authority of its certificate; CERTIFICATE and KEY are a client's, of the same
#
# not-applicable.txt says which tests do not apply, and why. They are run twice, over RESP2 and RESP3.
# Exit: 0 if all others pass, and all of the list are there.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=/usr/bin/python3
files=(tests/test_commands.py tests/test_asyncio/test_commands.py
    tests/test_credentials.py tests/test_asyncio/test_credentials.py
    tests/test_connection_pool.py tests/test_asyncio/test_connection_pool.py
    tests/test_ssl.py tests/test_asyncio/test_ssl.py tests/test_auth)
about="acl or auth or hello or credential or ssl"

mkdir -p "$1"
directory=$(cd "$1" && pwd)
wanted=$(cat "$here"/{requirements,source}.txt)
if [[ $(cat "$directory/has" 2>/dev/null) != "$wanted" ]]; then
    rm -rf "${directory:?}"/{has,lib,source}
    pip=("$python" -m pip --quiet --disable-pip-version-check)
    "${pip[@]}" install --no-deps --require-hashes --only-binary :all: --root-user-action ignore \
        --target "$directory/lib" --requirement "$here/requirements.txt"
    PYTHONPATH=$directory/lib "${pip[@]}" download --no-deps --require-hashes --no-binary :all: \
        --no-build-isolation --dest "$directory/source" --requirement "$here/source.txt"
    echo "$wanted" >"$directory/has"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tar --extract --file "$directory"/source/redis-*.tar.gz --directory "$work" --strip-components=1
# Where the tests look for certificates.
certificates=$work/dockers/standalone/tls
mkdir -p "$certificates"
cp "$4" "$certificates/ca.crt"
for name in client redis; do
    cp "$5" "$certificates/$name.crt"
    cp "$6" "$certificates/$name.key"
done
cd "$work"

# redis-py is taken from its source, not from Debian's package.
export PYTHONPATH=$directory/lib:$here/stubs PYTHONDONTWRITEBYTECODE=1
mapfile -t left_out < <(grep -v '^\(#\|$\)' "$here/not-applicable.txt")
tests() {
    "$python" -m pytest --quiet -p no:cacheprovider -p remora_plugin --override-ini addopts= \
        --override-ini filterwarnings= --timeout 60 --tb short -r s --redis-url "redis://$address/0" \
        --redis-ssl-url "rediss://$tls_address" --redis-mod-url "redis://$address" -k "$about" "$@" "${files[@]}"
}
address=$2 tls_address=$3
status=0
tests --collect-only >all
for name in "${left_out[@]}"; do
    grep --quiet --fixed-strings "$name" all || { echo "no test has the name: $name" && status=1; }
done
for protocol in 2 3; do
    tests --protocol "$protocol" "${left_out[@]/#/--deselect=}" >"said.$protocol" 2>&1 || status=1
    cat "said.$protocol"
    echo "redis-py over RESP$protocol: $(tail --lines 1 "said.$protocol")"
done
exit "$status"
