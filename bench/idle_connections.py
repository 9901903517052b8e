"""Memory of idle RESP connections beside Redis, in one run: resident bytes for each.

    python3 bench/idle_connections.py target/release/remora

Starts both servers on free ports, opens connections, and asks on each before it is
idle: a SET, a GET and 16 GETs at once. What the kernel keeps for a socket is not
counted: it is the same for both. Needs redis-server.
"""

import resource
import socket
import subprocess
import sys
import tempfile
import time

CONNECTIONS = 5000
WARM = 500
ASKED = b"SET k a-value-of-some-bytes\r\nGET k\r\n", b"GET k\r\n" * 16


def resident(pid):
    with open(f"/proc/{pid}/smaps_rollup") as rollup:
        return next(int(line.split()[1]) * 1024 for line in rollup if line.startswith("Rss:"))


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def connect(port):
    for _ in range(200):
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:
            time.sleep(0.05)
    raise SystemExit("a server does not listen")


def ask(connection):
    for requests in ASKED:
        connection.sendall(requests)
        lines, wanted = 0, requests.count(b"GET") * 2 + requests.count(b"SET")
        while lines < wanted:
            reply = connection.recv(65536)
            assert reply and b"-ERR" not in reply, reply
            lines += reply.count(b"\n")
    return connection


def measure(port, pid):
    first = [ask(connect(port)) for _ in range(WARM)]
    before = resident(pid)
    idle = [ask(connect(port)) for _ in range(CONNECTIONS)]
    time.sleep(3)
    grown = resident(pid) - before
    for connection in first + idle:
        connection.close()
    return grown / CONNECTIONS


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for name in ("Redis", "Remora"):
        port = free_port()
        with tempfile.TemporaryDirectory() as directory:
            commands = {
                "Redis": ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "",
                          "--appendonly", "no", "--dir", directory, "--maxclients", "10000"],
                "Remora": [sys.argv[1], "serve", "--shards", "1", "--port", str(port), "--bind", "127.0.0.1",
                           "--socket", f"{directory}/s", "--fabric-address", "127.0.0.1:0",
                           "--max-memory", "256MiB"],
            }
            server = subprocess.Popen(commands[name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                connect(port).close()
                print(f"{name}: {measure(port, server.pid):.0f} bytes for an idle connection", flush=True)
            finally:
                server.terminate()
                server.wait()


main()
