"""Compares what a server or driver gave with what a unified test expects.

The rules are those of the unified test format: documents at the root may have more fields than the
expectation, documents inside of others may not. Numbers of all types compare by value. A field or value
may be a special operator, whose name begins with `$$`.
"""

import binascii
import datetime
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from bson import Binary, Code, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp, json_util

JSON_OPTIONS = json_util.JSONOptions(tz_aware=False)

# What stands for a field that is not there.
ABSENT = object()

TYPES: dict[str, tuple[type, ...]] = {
    "double": (float,),
    "string": (str,),
    "object": (Mapping,),
    "array": (list,),
    "binData": (Binary, bytes),
    "undefined": (type(None),),
    "objectId": (ObjectId,),
    "bool": (bool,),
    "date": (datetime.datetime,),
    "null": (type(None),),
    "regex": (Regex, re.Pattern),
    "dbPointer": (DBRef,),
    "javascript": (Code,),
    "symbol": (str,),
    "javascriptWithScope": (Code,),
    "timestamp": (Timestamp,),
    "long": (Int64,),
    "decimal": (Decimal128,),
    "minKey": (MinKey,),
    "maxKey": (MaxKey,),
}


class Mismatch(Exception):
    """What was given is not what is expected."""


class Context(NamedTuple):
    """What special operators ask for beside the values."""

    entity: Callable[[str], Any]
    lsid: Callable[[str], Any]


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def has_type(name: str, value: Any) -> bool:
    if name == "int":
        return is_number(value) and isinstance(value, int) and not isinstance(value, Int64)
    if name == "number":
        return is_number(value) or isinstance(value, Decimal128)
    return isinstance(value, TYPES[name])


def operator_of(expected: Any) -> tuple[str, Any] | None:
    """The special operator that an expectation consists of, with its operand."""
    if not isinstance(expected, Mapping) or len(expected) != 1:
        return None
    name, operand = next(iter(expected.items()))
    return (name, operand) if name.startswith("$$") else None


def fail(path: str, expected: Any, actual: Any) -> None:
    shown = "no value" if actual is ABSENT else repr(actual)
    raise Mismatch(f"{path or 'the value'}: expected {expected!r}, got {shown}")


def match_operator(name: str, operand: Any, actual: Any, path: str, is_root: bool, context: Context) -> None:
    """Compares a value with a special operator. Raises Mismatch."""
    if name == "$$exists":
        if operand != (actual is not ABSENT):
            fail(path, {name: operand}, actual)
        return
    if name == "$$unsetOrMatches":
        if actual is not ABSENT and not (path == "" and actual is None):
            match(operand, actual, context, path, is_root)
        return
    if actual is ABSENT:
        fail(path, {name: operand}, actual)
    if name == "$$type":
        names = [operand] if isinstance(operand, str) else operand
        fits = any(has_type(type_name, actual) for type_name in names)
    elif name == "$$matchesEntity":
        match(context.entity(operand), actual, context, path, is_root)
        return
    elif name == "$$matchesHexBytes":
        fits = bytes(actual) == binascii.unhexlify(operand)
    elif name == "$$sessionLsid":
        fits = actual == context.lsid(operand)
    elif name == "$$lte":
        fits = is_number(actual) and actual <= operand
    elif name == "$$matchAsDocument":
        match(operand, json_util.loads(actual, json_options=JSON_OPTIONS), context, path, False)
        return
    elif name == "$$matchAsRoot":
        match(operand, actual, context, path, True)
        return
    else:
        raise ValueError(f"unknown special operator {name}")
    if not fits:
        fail(path, {name: operand}, actual)


def match_document(expected: Mapping, actual: Any, context: Context, path: str, is_root: bool) -> None:
    if not isinstance(actual, Mapping):
        fail(path, expected, actual)
    for key, value in expected.items():
        match(value, actual.get(key, ABSENT), context, f"{path}.{key}" if path else key, False)
    extra = [key for key in actual if key not in expected]
    if extra and not is_root:
        raise Mismatch(f"{path or 'the document'}: has more fields than expected: {extra}")


def match_array(expected: list, actual: Any, context: Context, path: str, is_root: bool) -> None:
    if not isinstance(actual, list):
        fail(path, expected, actual)
    if len(expected) != len(actual):
        raise Mismatch(f"{path or 'the array'}: expected {len(expected)} elements, got {len(actual)}: {actual!r}")
    for index, (wanted, given) in enumerate(zip(expected, actual, strict=True)):
        match(wanted, given, context, f"{path}[{index}]", is_root)


def match(expected: Any, actual: Any, context: Context, path: str = "", is_root: bool = True) -> None:
    """Compares a value with an expectation. Raises Mismatch, which says where they differ."""
    operator = operator_of(expected)
    if operator is not None:
        match_operator(*operator, actual, path, is_root, context)
    elif isinstance(expected, Mapping):
        match_document(expected, actual, context, path, is_root)
    elif isinstance(expected, list):
        match_array(expected, actual, context, path, is_root)
    elif is_number(expected) and is_number(actual):
        if expected != actual:
            fail(path, expected, actual)
    elif type(expected) is not type(actual) or expected != actual:
        fail(path, expected, actual)
