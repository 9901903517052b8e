"""redis-py over TLS: host, port, authority, certificate, key."""

import ssl
import sys

import redis

host, port, authority, certificate, key = sys.argv[1:]
client = redis.Redis(
    host=host,
    port=int(port),
    ssl=True,
    ssl_ca_certs=authority,
    ssl_certfile=certificate,
    ssl_keyfile=key,
    ssl_check_hostname=True,
)
assert client.set("k", "v")
assert client.get("k") == b"v"
with client.pipeline(transaction=False) as pipeline:
    for number in range(10_000):
        pipeline.set(f"k{number}", "x" * 100)
    assert all(pipeline.execute())
assert client.get("k9999") == b"x" * 100
context = ssl.create_default_context(cafile=authority)
context.load_cert_chain(certificate, key)
context.maximum_version = ssl.TLSVersion.TLSv1_2
import socket

try:
    with socket.create_connection((host, int(port))) as plain:
        context.wrap_socket(plain, server_hostname=host)
    raise SystemExit("TLS 1.2 was spoken")
except ssl.SSLError:
    pass
connection = client.connection_pool.get_connection("PING")
print("over", connection._sock.version())
