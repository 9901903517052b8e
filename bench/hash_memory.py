"""Memory of hashes, sets, sorted sets and lists beside Redis, in one run: resident bytes for each hash, field, member or
element.

    python3 bench/hash_memory.py target/release/remora [valkey-server [CASE...]]

CASE: only the cases whose names contain one of these words.

Starts the servers on free ports, once for each case, and fills each through one
connection. Each case has two figures: what the process grew by while the last 99 % came, and in
brackets what it grew by since its start, which includes what any server takes once (code and
buffers that are touched for the first time, a log of 1 MiB). Needs redis-server.
"""

import socket
import subprocess
import sys
import tempfile
import time

COUNT = 1_000_000
# What comes before the part that is measured: of each case, and SETs of one key that fill a log.
WARM_SHARE = 100
WARM_SETS = [(b"SET", b"warm", b"x" * 1000)] * 2000
PIPELINE = 500


def request(*words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)


def small_hashes():
    for at in range(COUNT):
        yield request(
            b"HSET", b"user:%07d" % at, b"name", b"name of %07d" % at, b"age", b"%d" % (at % 90),
            b"city", b"city%d" % (at % 1000), b"visits", b"%d" % (at % 10_000),
        )


def one_hash(pair):
    for start in range(0, COUNT, 10):
        words = [word for at in range(start, start + 10) for word in pair(at)]
        yield request(b"HSET", b"large", *words)


def one_set(member):
    for start in range(0, COUNT, 10):
        yield request(b"SADD", b"large", *(member(at) for at in range(start, start + 10)))


def one_list(element):
    for start in range(0, COUNT, 10):
        yield request(b"RPUSH", b"large", *(element(at) for at in range(start, start + 10)))


def one_sorted_set(member):
    for start in range(0, COUNT, 10):
        words = [word for at in range(start, start + 10) for word in (b"%d" % (at * 7919 % COUNT), member(at))]
        yield request(b"ZADD", b"large", *words)


def small_sorted_sets(size, member):
    for start in range(0, COUNT, size):
        words = [word for at in range(size) for word in (b"%d" % (at * 7919 % size), member(at))]
        yield request(b"ZADD", b"small:%07d" % start, *words)


CASES = {
    "1 M hashes of 4 fields": small_hashes,
    "1 M fields, 13 + 11 bytes": lambda: one_hash(lambda at: (b"field:%07d" % at, b"value %d" % at)),
    "1 M fields, 7 + 6 bytes": lambda: one_hash(lambda at: (b"f%d" % at, b"%d" % at)),
    "1 M members of 8 bytes": lambda: one_set(lambda at: b"m%07d" % at),
    "1 M integers as members": lambda: one_set(lambda at: b"%d" % at),
    "1 M scored members of 8 bytes": lambda: one_sorted_set(lambda at: b"m%07d" % at),
    "1 M scored members of 20 bytes": lambda: one_sorted_set(lambda at: b"element:%012d" % at),
    "1 M scored in sets of 100": lambda: small_sorted_sets(100, lambda at: b"m%07d" % at),
    "1 M scored in sets of 10": lambda: small_sorted_sets(10, lambda at: b"m%07d" % at),
    "1 M elements of 8 bytes": lambda: one_list(lambda at: b"m%07d" % at),
    "1 M elements of 14 bytes": lambda: one_list(lambda at: b"element:%06d" % at),
    "1 M integers as elements": lambda: one_list(lambda at: b"%d" % at),
}


def resident(pid):
    with open(f"/proc/{pid}/smaps_rollup") as rollup:
        return next(int(line.split()[1]) * 1024 for line in rollup if line.startswith("Rss:"))


def fill(port, requests):
    connection = socket.create_connection(("127.0.0.1", port))
    replies = connection.makefile("rb")

    def flush(batch):
        connection.sendall(b"".join(batch))
        for _ in batch:
            reply = replies.readline()
            assert not reply.startswith(b"-"), reply

    batch = []
    for one in requests:
        batch.append(one)
        if len(batch) == PIPELINE:
            flush(batch)
            batch = []
    flush(batch)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for(port):
    for _ in range(200):
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.05)
    raise SystemExit("a server does not listen")


def measure(command, port, requests):
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port)
        fresh = resident(server.pid)
        fill(port, (request(*words) for words in WARM_SETS))
        requests = list(requests)
        warm = len(requests) // WARM_SHARE
        fill(port, requests[:warm])
        before = resident(server.pid)
        fill(port, requests[warm:])
        after = resident(server.pid)
        return (after - before) / (COUNT - COUNT // WARM_SHARE), (after - fresh) / COUNT
    finally:
        server.kill()
        server.wait()


def main():
    binary = sys.argv[1]
    peers = {"Redis": "redis-server"} | {"Valkey": at for at in sys.argv[2:3]}
    print(f"{'case':32}", *(f"{name:>14}" for name in [*peers, "Remora"]), " bytes each")
    for name, requests in CASES.items():
        if sys.argv[3:] and not any(word in name for word in sys.argv[3:]):
            continue
        with tempfile.TemporaryDirectory() as directory:
            row = []
            for peer in peers.values():
                port = free_port()
                command = [peer, "--port", str(port), "--save", "", "--appendonly", "no"]
                row.append(measure(command, port, requests()))
            port = free_port()
            ours = [binary, "serve", "--port", str(port), "--socket", f"{directory}/s"]
            ours += ["--shards", "1", "--max-memory", "1GiB"]
            row.append(measure(ours, port, requests()))
            print(f"{name:32}", *(f"{each:7.1f} ({all:.1f})".rjust(14) for each, all in row), flush=True)


main()
