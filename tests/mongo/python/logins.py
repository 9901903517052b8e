"""pymongo logs in at a server with users, and is refused what its user may not do.

usage: logins.py HOST:PORT

The server has the password `top`, and the user `ann` with `>p +doc.find ~db.*`. Prints `all is well` in the end.
What is not as expected ends it with a stack.
"""

import sys
from typing import Any

from pymongo import MongoClient
from pymongo.errors import OperationFailure

UNAUTHORIZED, AUTHENTICATION_FAILED = 13, 18
COUNT = 250


def connect(user: str | None, password: str | None, **options: Any) -> MongoClient:
    host, port = sys.argv[1].rsplit(":", 1)
    options |= {"username": user, "password": password} if user else {}
    return MongoClient(host, int(port), serverSelectionTimeoutMS=5000, **options)


def fails(code: int, call: Any) -> str:
    """The text of the error, which has this code."""
    try:
        call()
    except OperationFailure as error:
        assert error.code == code, error
        return str(error.details["errmsg"])
    raise AssertionError(f"expected the error {code}")


def without_login() -> None:
    with connect(None, None) as client:
        assert client.admin.command("hello")["isWritablePrimary"]
        fails(UNAUTHORIZED, client.db.things.find_one)
        fails(UNAUTHORIZED, lambda: client.db.things.insert_one({}))
        fails(UNAUTHORIZED, client.list_database_names)


def right_password() -> None:
    for options in ({}, {"compressors": "zlib"}, {"authMechanism": "SCRAM-SHA-256"}, {"authSource": "db"}):
        with connect("default", "top", **options) as client:
            client.drop_database("db")
            client.drop_database("other")
            for collection in (client.db.things, client.other.things):
                collection.insert_many({"_id": number} for number in range(COUNT))
                assert sum(1 for _ in collection.find(batch_size=7)) == COUNT
            assert set(client.list_database_names()) >= {"db", "other"}


def wrong_logins() -> None:
    # The answers do not show which users there are.
    texts = set()
    for user, password in (("default", "wrong"), ("ann", "top"), ("nobody", "p"), ("nobody", "top")):
        with connect(user, password) as client:
            texts.add(fails(AUTHENTICATION_FAILED, client.db.things.find_one))
    assert len(texts) == 1, texts


def restricted_user() -> None:
    with connect("ann", "p") as client:
        assert client.db.things.find_one({"_id": 7}) == {"_id": 7}
        assert len(client.db.things.find(batch_size=7).to_list()) == COUNT
        # An aggregate of many documents gives others their turn, for which no right is needed.
        (group,) = client.db.things.aggregate([{"$group": {"_id": None, "sum": {"$sum": "$_id"}}}])
        assert group["sum"] == COUNT * (COUNT - 1) // 2, group
        fails(UNAUTHORIZED, lambda: client.db.things.insert_one({}))
        fails(UNAUTHORIZED, lambda: client.db.things.update_one({"_id": 7}, {"$set": {"a": 1}}))
        fails(UNAUTHORIZED, lambda: client.db.things.delete_one({"_id": 7}))
        fails(UNAUTHORIZED, client.other.things.find_one)
        fails(UNAUTHORIZED, lambda: client.db.things.create_index("a"))
        fails(UNAUTHORIZED, client.db.things.drop)
        # Nor by a command about another collection, or about none.
        for stage in ({"$out": "made"}, {"$out": {"db": "other", "coll": "made"}}, {"$merge": "things"}):
            fails(UNAUTHORIZED, lambda stage=stage: client.db.things.aggregate([stage]))
        for write in (
            {"insert": 0, "document": {}},
            {"update": 0, "filter": {}, "updateMods": {"$set": {"a": 1}}, "multi": True},
            {"delete": 0, "filter": {}, "multi": True},
        ):
            for name in ("db.things", "other.things"):
                command = {"bulkWrite": 1, "ops": [write], "nsInfo": [{"ns": name}]}
                fails(UNAUTHORIZED, lambda command=command: client.admin.command(command))
        assert client.db.things.count_documents({}) == COUNT
        # It is still logged in.
        assert client.db.things.find_one({"_id": 7}) == {"_id": 7}


without_login()
right_password()
wrong_logins()
restricted_user()
print("all is well")
