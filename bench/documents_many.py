"""A large collection with two indexes: memory beside the BSON of its documents, and how long counts take.

Usage: documents_many.py PID RESP_PORT MONGO_PORT [DOCUMENTS]
"""

import random
import sys
import time
from typing import Any, Callable

import bson
import pymongo

BATCH = 5000


def resident_bytes(pid: int) -> int:
    """What a process has in memory."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        line = next(line for line in status if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def person(draw: random.Random, number: int) -> dict[str, Any]:
    return {
        "_id": number,
        "name": f"user {number}",
        "city": f"city {draw.randrange(5000)}",
        "score": draw.randrange(1_000_000),
        "born": draw.randrange(1 << 40),
        "tags": [f"a{draw.randrange(50)}", f"b{draw.randrange(50)}"],
        "text": "x" * draw.randrange(60, 220),
    }


def show(name: str, count: Callable[[], int]) -> None:
    """Prints a count, and the shortest and the middle time of five."""
    times = []
    for _ in range(5):
        begun = time.monotonic()
        counted = count()
        times.append((time.monotonic() - begun) * 1000)
    times.sort()
    print(f"{name:40} {counted:9}  {times[0]:8.1f} ms at best, {times[2]:8.1f} ms in the middle")


def main() -> None:
    pid, mongo_port = int(sys.argv[1]), int(sys.argv[3])
    documents = int(sys.argv[4]) if len(sys.argv) > 4 else 3_000_000
    draw = random.Random(1)
    database = pymongo.MongoClient("127.0.0.1", mongo_port).bench
    people = database.people
    people.create_index("city")
    people.create_index([("score", 1), ("born", -1)])
    of_bson = 0
    for first in range(0, documents, BATCH):
        batch = [person(draw, number) for number in range(first, min(first + BATCH, documents))]
        of_bson += sum(len(bson.encode(one)) for one in batch)
        people.insert_many(batch, ordered=False)
    resident = resident_bytes(pid)
    print(f"{documents} documents, {of_bson} bytes of BSON, {resident} bytes resident: {resident / of_bson:.3f} times")

    def count(query: dict[str, Any]) -> Callable[[], int]:
        return lambda: database.command("count", "people", query=query)["n"]

    show("all", count({}))
    show("a range of the index on city", count({"city": {"$gte": "city 2", "$lt": "city 4"}}))
    show("a range of the index on score", count({"score": {"$gte": 100_000, "$lt": 900_000}}))
    show("aggregate, the same range", lambda: people.count_documents({"score": {"$gte": 100_000, "$lt": 900_000}}))
    show("a field without an index: a scan", count({"name": "user 77"}))


main()
