"""One round of tls_connections.sh, as lines `SERVER FIGURE VALUE`.

    python3 bench/tls_connections.py target/release/remora CONNECTIONS BUSY

Needs openssl, redis-server, and some more open files than connections.
"""

import os
import resource
import socket
import ssl
import subprocess
import sys
import tempfile
import time

WARM = 100
ROUNDS = 100
IDLE_S = 10
REQUEST, REPLY = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", b"$1\r\nv\r\n"


def resident(pid):
    with open(f"/proc/{pid}/smaps_rollup") as rollup:
        return next(int(line.split()[1]) * 1024 for line in rollup if line.startswith("Rss:"))


def cpu_seconds(pid):
    """CPU time of all threads."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat") as counts:
            total += int(counts.read().split()[0])
    return total / 1e9


def certify(directory):
    """An authority, and a certificate of it for localhost: paths of the authority, certificate and key."""
    def at(name):
        return f"{directory}/{name}"

    new = ["openssl", "req", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj"]
    quiet = {"check": True, "stderr": subprocess.DEVNULL}
    subprocess.run([*new, "/CN=ours", "-x509", "-keyout", at("ca.key"), "-out", at("ca.pem")], **quiet)
    subprocess.run([*new, "/CN=server", "-keyout", at("key.pem"), "-out", at("request")], **quiet)
    with open(at("names"), "w") as names:
        names.write("subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
    subprocess.run(["openssl", "x509", "-req", "-in", at("request"), "-CA", at("ca.pem"), "-CAkey", at("ca.key"),
                    "-CAcreateserial", "-extfile", at("names"), "-out", at("cert.pem")], **quiet)
    return at("ca.pem"), at("cert.pem"), at("key.pem")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Clients:
    def __init__(self, port, context):
        self.port, self.context = port, context

    def connect(self):
        for _ in range(200):
            try:
                plain = socket.create_connection(("127.0.0.1", self.port))
                break
            except OSError:
                time.sleep(0.05)
        else:
            raise SystemExit("a server does not listen")
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self.context.wrap_socket(plain, server_hostname="localhost") if self.context else plain


def ask_all(connections):
    """Each asks, and then all replies are taken."""
    for connection in connections:
        connection.sendall(REQUEST)
    for connection in connections:
        reply = b""
        while len(reply) < len(REPLY):
            piece = connection.recv(len(REPLY) - len(reply))
            assert piece, "a connection has ended"
            reply += piece
        assert reply == REPLY, reply


def measure(name, clients, pid, many, busy):
    first = clients.connect()
    first.sendall(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n")
    assert first.recv(5) == b"+OK\r\n"
    all_of_them = [first] + [clients.connect() for _ in range(WARM - 1)]
    ask_all(all_of_them)
    before = resident(pid)
    while len(all_of_them) < many:
        all_of_them.append(clients.connect())
        ask_all(all_of_them[-1:])
    time.sleep(3)
    each = (resident(pid) - before) / (many - WARM)
    begun = cpu_seconds(pid)
    time.sleep(IDLE_S)
    idle = cpu_seconds(pid) - begun
    begun, since = cpu_seconds(pid), time.monotonic()
    for _ in range(ROUNDS):
        ask_all(all_of_them[-busy:])
    cpu, took = cpu_seconds(pid) - begun, time.monotonic() - since
    ask_all(all_of_them)
    asked = ROUNDS * busy
    figures = {"bytes": each, "idle_cpu_ms": idle * 1000, "answers": asked, "rate": asked / took,
               "cpu_us": cpu / asked * 1e6}
    for figure, value in figures.items():
        print(name, figure, f"{value:.2f}", flush=True)
    for connection in all_of_them:
        connection.close()


def main():
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    binary, many, busy = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory() as directory:
        ca, cert, key = certify(directory)
        context = ssl.create_default_context(cafile=ca)
        remora = [binary, "serve", "--shards", "1", "--wake", "event", "--bind", "127.0.0.1", "--socket", f"{directory}/s",
                  "--max-memory", "256MiB"]
        servers = {
            "redis_tls": (["redis-server", "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", directory,
                            "--maxclients", str(many + 100), "--port", "0", "--tls-cert-file", cert, "--tls-key-file", key,
                            "--tls-auth-clients", "no", "--tls-ca-cert-file", ca, "--tls-port"], context),
            "remora": ([*remora, "--port"], None),
            "remora_tls": ([*remora, "--tls-cert", cert, "--tls-key", key, "--port"], context),
        }
        for name, (command, of_clients) in servers.items():
            port = free_port()
            server = subprocess.Popen([*command, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                measure(name, Clients(port, of_clients), server.pid, many, busy)
            finally:
                server.terminate()
                server.wait()


main()
