"""Arguments of operations: from the names and shapes of the tests to those of pymongo."""

import re
from collections.abc import Mapping
from typing import Any

import pymongo
from pymongo import ReturnDocument

from .entities import Entities, common_options
from .requirements import NotApplicable

# What pymongo passes on in the command under the command's own name, by operation.
PASSED_ON: dict[str, set[str]] = {
    "aggregate": {"allowDiskUse", "batchSize", "bypassDocumentValidation", "collation", "maxTimeMS", "maxAwaitTimeMS"},
    "countDocuments": {"collation", "maxTimeMS", "hint"},
    "createCollection": {"*"},
    "createIndex": {"*"},
    "distinct": {"collation", "maxTimeMS"},
    "dropIndex": {"maxTimeMS"},
    "dropIndexes": {"maxTimeMS"},
    "estimatedDocumentCount": {"maxTimeMS"},
    "findOneAndDelete": {"collation", "maxTimeMS"},
    "findOneAndReplace": {"bypassDocumentValidation", "collation", "maxTimeMS"},
    "findOneAndUpdate": {"bypassDocumentValidation", "collation", "maxTimeMS"},
    "listCollections": {"batchSize"},
    "rename": {"dropTarget"},
}
# They take an order as a document, all others as pairs.
ORDER_IS_DOCUMENT = {"updateOne", "replaceOne"}
RENAMED = {
    "fieldName": "key",
    "maxTimeMS": "max_time_ms",
    "maxAwaitTimeMS": "max_await_time_ms",
    "showRecordId": "show_record_id",
}


def snake(name: str) -> str:
    """A name of pymongo's style: `batchSize` is `batch_size`."""
    return re.sub(r"([a-z])([A-Z])", lambda found: f"{found[1]}_{found[2].lower()}", name).lower()


def pairs(value: Any) -> Any:
    """An index or order as pymongo takes it; a name of an index stays one."""
    return list(value.items()) if isinstance(value, Mapping) else value


def cursor_type(name: str) -> int:
    names = {
        "nonTailable": pymongo.CursorType.NON_TAILABLE,
        "tailable": pymongo.CursorType.TAILABLE,
        "tailableAwait": pymongo.CursorType.TAILABLE_AWAIT,
    }
    return names[name]


def value_of(operation: str, name: str, value: Any, entities: Entities) -> Any:
    if name == "session":
        return entities[value]
    if name == "sort" and operation in ORDER_IS_DOCUMENT:
        return value
    if name in ("sort", "hint"):
        return pairs(value)
    if name == "returnDocument":
        return {"After": ReturnDocument.AFTER, "Before": ReturnDocument.BEFORE}[value]
    if name == "cursorType":
        return cursor_type(value)
    if name in ("readConcern", "writeConcern", "readPreference"):
        return next(iter(common_options({name: value}).values()))
    return value


def is_passed_on(operation: str, name: str) -> bool:
    if name in ("session", "keys", "comment", "filter"):
        return False
    passed_on = PASSED_ON.get(operation, set())
    return "*" in passed_on or name in passed_on


def keywords(operation: str, arguments: Mapping[str, Any], entities: Entities) -> dict[str, Any]:
    """The keyword arguments of pymongo for an operation."""
    made = {}
    for name, value in arguments.items():
        if name == "timeoutMode":
            raise NotApplicable("pymongo: it has no timeoutMode")
        as_is = is_passed_on(operation, name)
        made[name if as_is else RENAMED.get(name, snake(name))] = value_of(operation, name, value, entities)
    return made
