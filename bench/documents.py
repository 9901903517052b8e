"""Server CPU of MongoDB's operations through pymongo, beside GET through redis-py, in one run.

Usage: documents.py PID RESP_PORT MONGO_PORT [DOCUMENTS] [OPERATIONS] [ROUNDS]

With PEER_PID and PEER_ADDRESS another server of MongoDB's protocol is measured beside it.
"""

import os
import random
import statistics
import sys
from typing import Callable

import pymongo
import redis

TICKS = os.sysconf("SC_CLK_TCK")
BATCH = 1000


def cpu_s(pid: int) -> float:
    """Seconds of CPU that a process has had."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def measured(pid: int, operations: int, one: Callable[[int], object]) -> float:
    """Microseconds of the server's CPU for each operation."""
    before = cpu_s(pid)
    for at in range(operations):
        one(at)
    return (cpu_s(pid) - before) * 1e6 / operations


Ways = dict[str, Callable[[int], object]]


def filled(address: str, documents: int, text: str) -> Ways:
    """The operations on a collection at this address that has so many documents."""
    draw = random.Random(7)
    collection = pymongo.MongoClient(f"mongodb://{address}").bench.documents
    collection.drop()
    collection.create_index("number")
    for first in range(0, documents, BATCH):
        collection.insert_many(
            {"_id": at, "number": at, "kind": at % 10, "text": text} for at in range(first, first + BATCH)
        )
    fresh = iter(range(documents, 10**9))
    return {
        "find by _id": lambda _: collection.find_one({"_id": draw.randrange(documents)}),
        "insert": lambda _: collection.insert_one({"_id": (at := next(fresh)), "number": at, "kind": 1, "text": text}),
        "update": lambda _: collection.update_one({"_id": draw.randrange(documents)}, {"$inc": {"kind": 1}}),
        "find by index": lambda _: collection.find_one({"number": draw.randrange(documents)}),
    }


def main() -> None:
    pid, resp_port, mongo_port = (int(word) for word in sys.argv[1:4])
    documents, operations, rounds = (
        int(sys.argv[at]) if len(sys.argv) > at else default
        for at, default in ((4, 100_000), (5, 20_000), (6, 5))
    )
    draw = random.Random(7)
    text = "".join(draw.choice("abcdefghij") for _ in range(200))
    keys = redis.Redis(port=resp_port)
    for first in range(0, documents, BATCH):
        pipeline = keys.pipeline(transaction=False)
        for at in range(first, first + BATCH):
            pipeline.set(f"key:{at}", text + "x" * 50)
        pipeline.execute()
    get: Ways = {"GET": lambda _: keys.get(f"key:{draw.randrange(documents)}")}
    ways = [(pid, "", get | filled(f"127.0.0.1:{mongo_port}", documents, text))]
    if peer := os.environ.get("PEER_PID"):
        ways.append((int(peer), "mongo-java-server, ", filled(os.environ["PEER_ADDRESS"], documents, text)))
    seen: dict[str, list[float]] = {}
    for _ in range(rounds):
        for of, prefix, operations_of in ways:
            for name, one in operations_of.items():
                seen.setdefault(prefix + name, []).append(measured(of, operations, one))
    of_get = statistics.median(seen["GET"])
    for name, each in seen.items():
        middle = statistics.median(each)
        print(f"{name:32} {middle:7.2f} us of server CPU, {middle / of_get:5.2f} of GET")


if __name__ == "__main__":
    main()
