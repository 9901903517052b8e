"""Runs the tests of one file of the unified test format.

A test has collections with known contents, operations with their results, the events that the driver saw,
and the contents in the end. Each test creates its entities anew.
"""

import json
import signal
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bson import json_util
from pymongo import MongoClient
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from . import special
from .entities import Entities
from .events import check_events
from .match import JSON_OPTIONS, Mismatch, match
from .operations import call
from .requirements import NotApplicable, Server, check_requirements, check_schema
from .results import check_error, result_of

# A test that takes longer has failed, s.
TEST_S = 60
TEST_FIELDS = {
    "description",
    "runOnRequirements",
    "skipReason",
    "operations",
    "expectEvents",
    "expectLogMessages",
    "outcome",
}
# Arguments without which an operation is none of the format.
MUST_HAVE = {"createFindCursor": {"filter"}, "find": {"filter"}}
# An operation whose outcome is ignored expects nothing of it.
EXPECTATIONS = {"expectError", "expectResult", "saveResultAsEntity"}
OPERATION_FIELDS = {
    "name",
    "object",
    "arguments",
    "expectError",
    "expectResult",
    "saveResultAsEntity",
    "ignoreResultAndError",
}


class BadTest(Exception):
    """The test breaks the rules of the format."""


class TookTooLong(Exception):
    """The test has not ended in time."""


class Outcome(NamedTuple):
    """How a test ended: `passed`, `failed` or `not applicable`, and why."""

    description: str
    verdict: str
    reason: str = ""


@contextmanager
def deadline(seconds: int) -> Any:
    """Raises TookTooLong in the main thread after so long."""

    def stop(_signal: int, _frame: Any) -> None:
        raise TookTooLong(f"it took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def load(path: Path) -> dict[str, Any]:
    """A file of tests. Raises ValueError if it is not one."""
    file = json_util.loads(path.read_text(), json_options=JSON_OPTIONS)
    missing = {"description", "schemaVersion", "tests"} - set(file)
    if missing:
        raise ValueError(f"{path.name} has no {sorted(missing)}")
    check_schema(file["schemaVersion"])
    return file


def is_unified(path: Path) -> bool:
    return "schemaVersion" in json.loads(path.read_text())


def fill(client: MongoClient, data: list[Mapping[str, Any]]) -> None:
    """Gives collections their contents before a test."""
    for each in data:
        majority = WriteConcern(w="majority")
        database = client.get_database(each["databaseName"], write_concern=majority)
        database.drop_collection(each["collectionName"])
        options = each.get("createOptions", {})
        if options or not each["documents"]:
            database.create_collection(each["collectionName"], check_exists=False, **options)
        if each["documents"]:
            database[each["collectionName"]].insert_many(each["documents"])


def check_contents(client: MongoClient, outcome: list[Mapping[str, Any]], entities: Entities) -> None:
    """Compares the contents of collections after a test, exactly."""
    for each in outcome:
        database = client.get_database(each["databaseName"], read_concern=ReadConcern("local"))
        given = list(database[each["collectionName"]].find(sort=[("_id", 1)]))
        place = f"{each['databaseName']}.{each['collectionName']} in the end"
        match(each["documents"], given, entities.context(), place, False)


class TestRun:
    """One test at a server."""

    def __init__(self, file: Mapping[str, Any], test: Mapping[str, Any], uri: str, server: Server) -> None:
        self.file, self.test, self.server = file, test, server
        self.uri = uri
        self.entities = Entities(uri)
        self.special = special.Special(self.entities, uri, server)

    def run(self, internal: MongoClient) -> None:
        """Runs it. Raises what makes it fail, or NotApplicable."""
        self.check_applicable()
        fill(internal, self.file.get("initialData", []))
        try:
            self.entities.create(self.file.get("createEntities", []))
            for index, operation in enumerate(self.test["operations"]):
                self.operate(operation, f"operation {index} ({operation['name']})")
            for expectation in self.test.get("expectEvents") or []:
                listener = self.entities.listeners[expectation["client"]]
                check_events(expectation, listener, self.entities.context())
            check_contents(internal, self.test.get("outcome", []), self.entities)
        finally:
            self.special.end()
            self.entities.close()

    def check_applicable(self) -> None:
        unknown = set(self.test) - TEST_FIELDS
        if unknown:
            raise BadTest(f"unknown fields of a test: {sorted(unknown)}")
        if "skipReason" in self.test:
            raise NotApplicable(f"skipped by its authors: {self.test['skipReason']}")
        check_requirements(self.file, self.server)
        check_requirements(self.test, self.server)
        if "expectLogMessages" in self.test:
            raise NotApplicable("runner: the driver's own log is not read")

    def operate(self, operation: Mapping[str, Any], place: str) -> None:
        """Calls one operation, and compares what comes of it."""
        unknown = set(operation) - OPERATION_FIELDS
        if unknown:
            raise BadTest(f"unknown fields of an operation: {sorted(unknown)}")
        if operation.get("ignoreResultAndError") and EXPECTATIONS & set(operation):
            raise BadTest("an operation whose outcome is ignored and expected")
        try:
            result = self.attempt(operation)
        except (PyMongoError, ValueError, TypeError, OSError, StopIteration) as error:
            self.take_error(operation, error, place)
        else:
            self.take_result(operation, result, place)

    def attempt(self, operation: Mapping[str, Any]) -> Any:
        name, arguments = operation["name"], operation.get("arguments", {})
        if name in MUST_HAVE and not MUST_HAVE[name] <= set(arguments):
            raise BadTest(f"{name} without {sorted(MUST_HAVE[name] - set(arguments))}")
        if operation["object"] == "testRunner":
            return self.special.call(name, arguments)
        target = self.entities[operation["object"]]
        if name == "withTransaction":
            return self.special.with_transaction(target, arguments, self.operate)
        return call(name, self.entities, target, arguments)

    def take_error(self, operation: Mapping[str, Any], error: Exception, place: str) -> None:
        # pymongo does not take the arguments: it is no outcome that can be ignored.
        if operation.get("ignoreResultAndError") and not isinstance(error, TypeError):
            return
        if "expectError" not in operation:
            raise Mismatch(f"{place}: {type(error).__name__}: {error}") from error
        try:
            check_error(operation["expectError"], error, self.entities.context())
        except Mismatch as mismatch:
            raise Mismatch(f"{place}: {mismatch}") from error

    def take_result(self, operation: Mapping[str, Any], result: Any, place: str) -> None:
        if operation.get("ignoreResultAndError"):
            return
        if "expectError" in operation:
            raise Mismatch(f"{place}: expected the error {operation['expectError']!r}, got {result!r}")
        if "saveResultAsEntity" in operation:
            self.entities.add(operation["saveResultAsEntity"], result)
        if "expectResult" in operation:
            try:
                match(operation["expectResult"], result_of(result), self.entities.context())
            except Mismatch as mismatch:
                raise Mismatch(f"{place}: {mismatch}") from None


def run_test(
    file: Mapping[str, Any], test: Mapping[str, Any], uri: str, server: Server, internal: MongoClient
) -> Outcome:
    """Runs one test, and says how it ended."""
    description = test["description"]
    try:
        with deadline(TEST_S):
            TestRun(file, test, uri, server).run(internal)
    except NotApplicable as reason:
        return Outcome(description, "not applicable", str(reason))
    except Mismatch as reason:
        return Outcome(description, "failed", str(reason))
    except Exception as error:  # a test that fails in a way of its own must not end the others
        return Outcome(description, "failed", f"{type(error).__name__}: {error}")
    return Outcome(description, "passed")


def run_file(path: Path, uri: str, server: Server, internal: MongoClient, name_filter: str) -> list[Outcome]:
    """Runs the tests of a file whose descriptions contain a text."""
    try:
        file = load(path)
    except (ValueError, TypeError) as error:
        return [Outcome("the file", "failed", str(error))]
    tests = [test for test in file["tests"] if name_filter in test["description"]]
    return [run_test(file, test, uri, server, internal) for test in tests]
