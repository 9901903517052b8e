# Sourced behind servers.sh: an authority and a certificate for 127.0.0.1, and servers with it.
# shellcheck shell=bash
# The variables are those of the scripts, and theirs these.
# shellcheck disable=SC2034,SC2154

new_key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1" 2>/dev/null; }

# $work/ca.pem, $work/server.pem and $work/server.key, with keys on P-256.
make_certificates() {
  new_key "$work/ca.key"
  openssl req -x509 -new -key "$work/ca.key" -subj "/CN=bench" -days 2 -out "$work/ca.pem" 2>/dev/null
  new_key "$work/server.key"
  openssl req -new -key "$work/server.key" -subj "/CN=localhost" -out "$work/server.csr" 2>/dev/null
  openssl x509 -req -in "$work/server.csr" -CA "$work/ca.pem" -CAkey "$work/ca.key" -CAcreateserial -days 2 \
    -extfile <(echo "subjectAltName=DNS:localhost,IP:127.0.0.1") -out "$work/server.pem" 2>/dev/null
}

# start_remora_tls NAME FLAGS...: one shard.
start_remora_tls() {
  local name="$1"
  shift
  port["$name"]="$(free_port)"
  start "$name" "Remora, TLS" "$remora" serve --shards 1 --max-memory 2GiB --socket "$work/$name.socket" \
    --bind 127.0.0.1 --port "${port[$name]}" --tls-cert "$work/server.pem" --tls-key "$work/server.key" "$@"
}
