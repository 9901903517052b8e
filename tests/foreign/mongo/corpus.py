"""Sends the BSON corpus of the driver specifications to a server.

usage: python3 corpus.py TESTS ADDRESS [--only TEXT] [--verbose]

TESTS is the folder `test` of pymongo's source; ADDRESS is HOST:PORT. A valid document is inserted and found,
as a document and as a value in one: the same bytes come back. A broken one is refused with an error, or the
connection is closed; the server answers a new one. A list names the cases that do not apply, and why.
Exit: 0 if all is so.
"""

import argparse
import json
import struct
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import bson
from wire import Closed, Connection, document, element

DATABASE = "remora_corpus"
COLLECTION = "corpus"
LIST = Path(__file__).resolve().parent / "corpus-not-applicable.txt"
DOCUMENT, ARRAY, INT32 = 3, 4, 16


class Case(NamedTuple):
    """A document of the corpus, and the bytes that may come back; none if it is broken."""

    name: str
    sent: bytes
    accepted: tuple[bytes, ...]


def cases_of(path: Path) -> Iterator[Case]:
    corpus = json.loads(path.read_text())
    for case in corpus.get("valid", []):
        name = f"{path.stem} | {case['description']}"
        canonical = bytes.fromhex(case["canonical_bson"])
        yield Case(name, canonical, (canonical,))
        if "degenerate_bson" in case:
            # A server may keep it as it is, or mend it.
            degenerate = bytes.fromhex(case["degenerate_bson"])
            yield Case(f"{name} (degenerate)", degenerate, (degenerate, canonical))
    for case in corpus.get("decodeErrors", []):
        yield Case(f"{path.stem} | {case['description']}", bytes.fromhex(case["bson"]), ())


def identified(number: int, raw: bytes) -> bytes:
    """The document with an `_id` in front, if it has none."""
    if b"_id\0" in raw:
        return raw
    return document(element(INT32, "_id", struct.pack("<i", number)), raw[4:-1])


def nested(number: int, raw: bytes) -> bytes:
    """A document whose value is this one."""
    return document(element(INT32, "_id", struct.pack("<i", number)), element(DOCUMENT, "d", raw))


def insert_in_body(connection: Connection, raw: bytes) -> dict[str, Any]:
    array = document(element(DOCUMENT, "0", raw))
    fields = bson.encode({"insert": COLLECTION, "$db": DATABASE})[4:-1]
    return bson.decode(connection.call(document(fields, element(ARRAY, "documents", array))))


def insert_beside(connection: Connection, raw: bytes) -> dict[str, Any]:
    body = bson.encode({"insert": COLLECTION, "$db": DATABASE})
    return bson.decode(connection.call(body, {"documents": raw}))


def is_error(reply: dict[str, Any]) -> bool:
    return not reply.get("ok") or bool(reply.get("writeErrors"))


def found(connection: Connection) -> bytes:
    """The bytes of the one document of the collection."""
    reply = connection.command({"find": COLLECTION}, DATABASE)
    return reply["cursor"]["firstBatch"][0].raw


def comes_back(connection: Connection, case: Case, shape: Any, insert: Any) -> str:
    """What is wrong with a valid document in a shape, or nothing."""
    connection.command({"delete": COLLECTION, "deletes": [{"q": {}, "limit": 0}]}, DATABASE)
    reply = insert(connection, shape(1, case.sent))
    if is_error(reply):
        return f"refused: {reply}"
    given = found(connection)
    if given in [shape(1, raw) for raw in case.accepted]:
        return ""
    return f"sent {shape(1, case.sent).hex()}, got {given.hex()}"


def is_refused(address: str, raw: bytes, insert: Any) -> str:
    """What is wrong with how a broken document is taken, or nothing."""
    connection = Connection(address)
    try:
        reply = insert(connection, raw)
        if not is_error(reply):
            return "a broken document is not refused"
        connection.command({"ping": 1}, DATABASE)
    except Closed as closed:
        if "timed out" in str(closed):
            return "the server does not answer"
    finally:
        connection.close()
    return ""


def check(address: str, case: Case) -> str:
    """What is wrong with a case, or nothing. Afterwards the server answers."""
    connection = Connection(address)
    try:
        for insert in (insert_in_body, insert_beside):
            for shape in (identified, nested):
                if case.accepted:
                    wrong = comes_back(connection, case, shape, insert)
                else:
                    wrong = is_refused(address, case.sent if shape is identified else nested(1, case.sent), insert)
                if wrong:
                    return f"{insert.__name__}, {shape.__name__}: {wrong}"
        connection.command({"ping": 1}, DATABASE)
    except Closed as closed:
        return str(closed)
    finally:
        connection.close()
    return ""


def read_list(path: Path) -> dict[str, str]:
    """The cases that do not apply, with the reason of each."""
    lines = [line.split(" | ") for line in path.read_text().splitlines() if line.strip() and line[0] != "#"]
    return {f"{file} | {name}": reason for file, name, reason in lines}


def verdict_of(name: str, wrong: str, listed: dict[str, str]) -> tuple[str, str]:
    if name not in listed:
        return ("failed", wrong) if wrong else ("passed", "")
    if wrong:
        return "not applicable", listed[name]
    return "failed", "it passes: the list of cases that do not apply is out of date"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tests", type=Path)
    parser.add_argument("address")
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases whose name contains this")
    parser.add_argument("--verbose", action="store_true", help="a line for each case")
    arguments = parser.parse_args()
    listed, counts, names = read_list(LIST), Counter(), set()
    for path in sorted((arguments.tests / "bson_corpus").glob("*.json")):
        for case in cases_of(path):
            if arguments.only not in case.name:
                continue
            names.add(case.name)
            verdict, reason = verdict_of(case.name, check(arguments.address, case), listed)
            counts[verdict] += 1
            if verdict == "failed" or arguments.verbose:
                print(f"  {verdict}: {case.name} | {reason}", flush=True)
    unknown = [] if arguments.only else sorted(set(listed) - names)
    for name in unknown:
        print(f"no case has the name: {name}")
    print(f"corpus: {counts['passed']} passed, {counts['failed']} failed, {counts['not applicable']} do not apply")
    return 1 if counts["failed"] or unknown or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
