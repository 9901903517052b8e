"""Replies in a form in which two servers can be compared.

What MongoDB does not promise is taken away: the order without a sort, the texts of errors, the types of
counts, the order of the fields that an update adds. Types of values in documents stay.
"""

import math
from collections.abc import Mapping
from typing import Any

from bson import Int64, ObjectId, json_util

OPTIONS = json_util.JSONOptions(json_mode=json_util.JSONMode.CANONICAL)
COUNTS = ("n", "nModified")


def text_of(value: Any) -> str:
    """A value as text with its type; fields in the order of their names."""
    if isinstance(value, Mapping):
        fields = sorted((name, text_of(each)) for name, each in value.items())
        return "{" + ", ".join(f"{name}: {text}" for name, text in fields) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(text_of(each) for each in value) + "]"
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, Int64):
        return f"{int(value)}L"
    return json_util.dumps(value, json_options=OPTIONS)


def is_ordered(command: Mapping[str, Any]) -> bool:
    if "aggregate" in command:
        return not any("$group" in stage for stage in command["pipeline"])
    return "sort" in command


def failure(reply: Mapping[str, Any]) -> str:
    return f"error {reply.get('code')}"


def statement_errors(reply: Mapping[str, Any]) -> list[str]:
    return [f"{each['index']}: error {each.get('code')}" for each in reply.get("writeErrors", [])]


def upserted(reply: Mapping[str, Any]) -> list[str]:
    made = []
    for each in reply.get("upserted") or []:
        identity = "generated" if isinstance(each["_id"], ObjectId) else text_of(each["_id"])
        made.append(f"{each['index']}: {identity}")
    return made


def write_reply(command: Mapping[str, Any], reply: Mapping[str, Any]) -> str:
    """Counts and errors. The error of a lone statement is told as one of the command, as some servers do."""
    errors = reply.get("writeErrors") or []
    if errors and len(command.get("updates") or command.get("deletes") or []) == 1:
        return failure(errors[0])
    counts = {name: int(reply[name]) for name in COUNTS if name in reply}
    return f"{counts} upserted {upserted(reply)} errors {statement_errors(reply)}"


def documents_of(command: Mapping[str, Any], documents: list[Any]) -> str:
    texts = [text_of(document) for document in documents]
    return "\n".join(texts if is_ordered(command) else sorted(texts))


def modified(reply: Mapping[str, Any]) -> str:
    last = reply.get("lastErrorObject") or {}
    return f"{text_of(reply.get('value'))} n {int(last.get('n', 0))} existing {last.get('updatedExisting')}"


def normalised(command: Mapping[str, Any], reply: Mapping[str, Any]) -> str:
    """What a reply says, as text."""
    if not reply.get("ok"):
        return failure(reply)
    name = next(iter(command))
    if name in ("find", "aggregate"):
        return documents_of(command, reply["cursor"]["firstBatch"])
    if name == "distinct":
        return "\n".join(sorted(text_of(value) for value in reply["values"]))
    if name == "count":
        return str(int(reply["n"]))
    if name == "findAndModify":
        return modified(reply)
    if name in ("insert", "update", "delete"):
        return write_reply(command, reply)
    return "done"
