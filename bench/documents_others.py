"""What a long query costs others: GETs by RESP alone, and beside a full scan with a sort.

Usage: documents_others.py PID RESP_PORT MONGO_PORT [DOCUMENTS] [ROUNDS] [BENCH]

Each round measures GETs alone, then beside the query, which is begun again when it ends. BENCH is the binary
whose bench sends the GETs.
"""

import json
import statistics
import subprocess
import sys
import threading
from typing import Any

import pymongo

SECONDS = 4
RECORDS = 10_000


def gets(binary: str, port: str) -> dict[str, Any]:
    """Latencies of GETs, one at a time."""
    command = [binary, "bench", "keys", "--server", f"127.0.0.1:{port}", "--path", "resp", "--json"]
    command += ["--records", str(RECORDS), "--reads", "1", "--seconds", str(SECONDS)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    resp_port, mongo_port = sys.argv[2], int(sys.argv[3])
    documents = int(sys.argv[4]) if len(sys.argv) > 4 else 200_000
    rounds = int(sys.argv[5]) if len(sys.argv) > 5 else 5
    binary = sys.argv[6] if len(sys.argv) > 6 else "target/release/remora"
    items = pymongo.MongoClient("127.0.0.1", mongo_port).bench.items
    for first in range(0, documents, 5000):
        items.insert_many(
            {"_id": at, "a": (at * 7919) % documents, "text": "x" * 150}
            for at in range(first, first + 5000)
        )
    is_over, queries = threading.Event(), 0

    def query() -> None:
        """Sorts all documents by a field without an index, and gives the first ten."""
        nonlocal queries
        while not is_over.is_set():
            found = list(items.find({"text": {"$exists": True}}).sort("a", -1).limit(10))
            assert len(found) == 10
            queries += 1

    ratios: dict[str, list[float]] = {}
    for number in range(rounds):
        alone = gets(binary, resp_port)
        is_over.clear()
        beside_it = threading.Thread(target=query)
        beside_it.start()
        beside = gets(binary, resp_port)
        is_over.set()
        beside_it.join()
        told = []
        for name in ("p50_us", "p99_us", "p999_us"):
            one, other = alone[name], beside[name]
            ratios.setdefault(name, []).append(other / one)
            told.append(f"{name} {one:.1f} and {other:.1f}")
        print(f"round {number}: {', '.join(told)}", flush=True)
    for name, all_of in ratios.items():
        print(f"{name}: {statistics.median(all_of):.2f} times that of GETs alone")
    print(f"{queries} queries over {documents} documents")


main()
