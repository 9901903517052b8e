"""A connection that speaks OP_MSG and nothing else: a driver checks and converts too much.

It knows no users and no TLS.
"""

import socket
import struct
from typing import Any

import bson
from bson.raw_bson import RawBSONDocument

OP_MSG = 2013
HEADER = struct.Struct("<iiii")
# Of a reply: more is an error of the server's.
MAX_MESSAGE_BYTES = 48_000_000
# A server that is silent for as long has failed, s.
SILENCE_S = 10.0


class Closed(Exception):
    """The server has closed the connection, or does not answer."""


def element(kind: int, name: str, value: bytes) -> bytes:
    """The bytes of a field: its type, name and value."""
    return bytes([kind]) + name.encode() + b"\0" + value


def document(*elements: bytes) -> bytes:
    """The bytes of a document with these fields."""
    body = b"".join(elements)
    return struct.pack("<i", len(body) + 5) + body + b"\0"


class Connection:
    """One connection to HOST:PORT. Replies come in the order of the requests."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=SILENCE_S)
        self.requests = 0

    def close(self) -> None:
        self.socket.close()

    def read(self, count: int) -> bytes:
        parts, left = [], count
        while left:
            try:
                part = self.socket.recv(min(left, 1 << 16))
            except OSError as error:
                raise Closed(str(error)) from error
            if not part:
                raise Closed("the server has closed the connection")
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def send(self, body: bytes, sequences: dict[str, bytes]) -> None:
        """Sends a command's document, and documents beside it, whose bytes are not looked at."""
        sections = b"\0" + body
        for name, documents in sequences.items():
            words = name.encode() + b"\0" + documents
            sections += b"\1" + struct.pack("<i", len(words) + 4) + words
        self.requests += 1
        size = HEADER.size + 4 + len(sections)
        try:
            self.socket.sendall(HEADER.pack(size, self.requests, 0, OP_MSG) + b"\0\0\0\0" + sections)
        except OSError as error:
            raise Closed(str(error)) from error

    def receive(self) -> bytes:
        """The bytes of the document that answers."""
        size, _, answers, code = HEADER.unpack(self.read(HEADER.size))
        if not HEADER.size + 5 < size <= MAX_MESSAGE_BYTES or code != OP_MSG or answers != self.requests:
            raise Closed(f"a reply of {size} bytes, code {code}, to request {answers} of {self.requests}")
        message = self.read(size - HEADER.size)
        if message[4]:
            raise Closed(f"a reply that begins with a section of kind {message[4]}")
        return message[5 : 5 + struct.unpack_from("<i", message, 5)[0]]

    def call(self, body: bytes, sequences: dict[str, bytes] | None = None) -> bytes:
        self.send(body, sequences or {})
        return self.receive()

    def command(self, command: dict[str, Any], database: str) -> RawBSONDocument:
        """Runs a command. The reply is not decoded further than it is looked at."""
        return RawBSONDocument(self.call(bson.encode({**command, "$db": database})))
