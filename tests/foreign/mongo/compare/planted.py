"""A relay that plants a mistake: in all that a client sends, one text stands for another of the same length.

usage: python3 -m compare.planted ADDRESS WANTED OTHER

Prints `ready mongo=HOST:PORT`. With it the comparer must find a difference between a server and itself.
"""

import socket
import sys
import threading


def pump(source: socket.socket, target: socket.socket, wanted: bytes, other: bytes) -> None:
    """Copies what comes, with one text for the other, until an end closes. A text that two reads share stays."""
    try:
        while part := source.recv(1 << 16):
            target.sendall(part.replace(wanted, other) if wanted else part)
    except OSError:
        pass
    finally:
        for each in (source, target):
            each.close()


def main() -> None:
    address, wanted, other = sys.argv[1], sys.argv[2].encode(), sys.argv[3].encode()
    if len(wanted) != len(other):
        raise SystemExit("planted: the texts differ in length")
    host, port = address.rsplit(":", 1)
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"ready mongo=127.0.0.1:{listener.getsockname()[1]}", flush=True)
    while True:
        client, _ = listener.accept()
        server = socket.create_connection((host, int(port)))
        for ends in ((client, server, wanted, other), (server, client, b"", b"")):
            threading.Thread(target=pump, args=ends, daemon=True).start()


main()
