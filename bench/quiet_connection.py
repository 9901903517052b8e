"""One quiet RESP connection: a GET now and then, one at a time, and how long each takes.

    python3 bench/quiet_connection.py PORT RECORDS SECONDS

Asks for keys as `redis-benchmark -r RECORDS` names them, the next a millisecond after the
one before, or as soon as that is answered. A request's time ends with the kernel's stamp
of its reply, so that busy clients on the same core are not counted where they only keep
this program from running. Prints p50, p99 and the longest in us, the number of requests,
and the commands a second of all other connections, as the server counts them.
Called by fairness.sh.
"""

import random
import socket
import struct
import sys
import time

EVERY_NS = 1_000_000
# Before the first that counts: the kernel begins to stamp some time after it is asked to.
WARM = 200
# As Linux numbers it on x86-64 and arm64.
SO_TIMESTAMPNS = 35


def now():
    """The clock of the kernel's stamps."""
    return time.clock_gettime_ns(time.CLOCK_REALTIME)


def ask(connection, request):
    """The bulk string that is the reply, when it was asked for, and what came with its end."""
    began, reply, whole = now(), b"", None
    connection.sendall(request)
    while whole is None or len(reply) < whole:
        some, stamps, _, _ = connection.recvmsg(65536, 64)
        if not some:
            raise SystemExit("the server closed the quiet connection")
        reply += some
        if whole is None and b"\r\n" in reply:
            head = reply.split(b"\r\n")[0]
            if head[:1] != b"$" or head == b"$-1":
                raise SystemExit(f"not a value: {head!r}")
            whole = len(head) + int(head[1:]) + 4
    return reply, began, stamps


def stamped(connection, key):
    """Nanoseconds of one GET; None if the kernel has set no stamp."""
    request = b"*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n" % (len(key), key)
    _, began, stamps = ask(connection, request)
    for _, kind, data in stamps:
        if kind == SO_TIMESTAMPNS:
            seconds, rest = struct.unpack("qq", data)
            return seconds * 1_000_000_000 + rest - began
    return None


def commands(connection):
    """Commands that the server has executed, and when it said so."""
    reply, _, _ = ask(connection, b"*2\r\n$4\r\nINFO\r\n$5\r\nstats\r\n")
    for line in reply.split(b"\r\n"):
        if line.startswith(b"total_commands_processed:"):
            return int(line.split(b":")[1]), now()
    raise SystemExit("INFO counts no commands")


def main():
    port, records, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    random.seed(1)
    for _ in range(WARM):
        stamped(connection, b"key:%012d" % random.randrange(records))
    before, began = commands(connection)
    times, due = [], began
    while due < began + seconds * 1e9:
        time.sleep(max(0, due - now()) / 1e9)
        due = now() + EVERY_NS
        times.append(stamped(connection, b"key:%012d" % random.randrange(records)))
        due = max(due, now())
    after, ended = commands(connection)
    if None in times:
        raise SystemExit("the kernel stamps no replies")
    # The first INFO is among the commands of the second.
    others = (after - before - len(times) - 1) * 1e9 / (ended - began)
    times.sort()
    share = [times[int(len(times) * part)] / 1000 for part in (0.5, 0.99)]
    print(f"{share[0]:.1f} {share[1]:.1f} {times[-1] / 1000:.1f} {len(times)} {others:.0f}")


main()
