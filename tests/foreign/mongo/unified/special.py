"""Operations of unified tests on the runner itself: fail points, assertions about sessions, waits."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from pymongo import MongoClient
from pymongo.client_session import ClientSession

from .arguments import keywords
from .entities import Entities
from .events import kind_of
from .match import Mismatch
from .requirements import NotApplicable, Server

Arguments = Mapping[str, Any]
Operate = Callable[[Mapping[str, Any], str], None]

# They ask about the inside of the driver, which its public interface does not show.
INSIDE = {
    "assertNumberConnectionsCheckedOut",
    "assertSessionDirty",
    "assertSessionNotDirty",
    "assertSessionPinned",
    "assertSessionUnpinned",
    "assertTopologyType",
    "recordTopologyDescription",
    "waitForPrimaryChange",
    "loop",
}


def last_lsids(entities: Entities, name: str) -> list[Any]:
    started = [event for event in entities.listeners[name].kept("command") if kind_of(event) == "commandStartedEvent"]
    if len(started) < 2:
        raise Mismatch(f"expected two commands at {name}, got {len(started)}")
    return [event.command.get("lsid") for event in started[-2:]]


class Special:
    """What the runner does for one test."""

    def __init__(self, entities: Entities, uri: str, server: Server) -> None:
        self.entities, self.uri, self.server = entities, uri, server
        self.fail_points: list[tuple[MongoClient, str]] = []

    def call(self, name: str, arguments: Arguments) -> Any:
        """Does an operation of the runner. Raises Mismatch for an assertion that does not hold."""
        if name in INSIDE:
            raise NotApplicable(f"runner: {name} looks inside of the driver")
        if name == "createEntities":
            return self.entities.create(arguments["entities"])
        if name in ("failPoint", "targetedFailPoint"):
            return self.set_fail_point(arguments)
        if name == "wait":
            return time.sleep(arguments["ms"] / 1000)
        if name in ("waitForEvent", "assertEventCount"):
            return self.look_for_events(name, arguments)
        if name in ("runOnThread", "waitForThread"):
            raise NotApplicable("runner: threads")
        return self.assert_that(name, arguments)

    def set_fail_point(self, arguments: Arguments) -> None:
        if not self.server.has_fail_command:
            raise NotApplicable("server: it has no fail points")
        if "client" not in arguments:
            raise NotApplicable("runner: fail points of pinned sessions")
        client, point = self.entities[arguments["client"]], arguments["failPoint"]
        client.admin.command(point)
        self.fail_points.append((client, point["configureFailPoint"]))

    def look_for_events(self, name: str, arguments: Arguments) -> None:
        listener, count = self.entities.listeners[arguments["client"]], arguments["count"]
        if name == "waitForEvent":
            listener.wait_for(arguments["event"], count, self.entities.context())
            return
        given = listener.count(arguments["event"], self.entities.context())
        if given != count:
            raise Mismatch(f"expected {count} events {arguments['event']!r}, got {given}")

    def assert_that(self, name: str, arguments: Arguments) -> None:
        if name in ("assertSameLsidOnLastTwoCommands", "assertDifferentLsidOnLastTwoCommands"):
            first, second = last_lsids(self.entities, arguments["client"])
            holds = (first == second) == name.startswith("assertSame")
        elif name == "assertSessionTransactionState":
            session = self.entities[arguments["session"]]
            holds = session.in_transaction == (arguments["state"] in ("starting", "in_progress"))
        elif name in ("assertCollectionExists", "assertCollectionNotExists"):
            holds = self.has_collection(arguments) == (name == "assertCollectionExists")
        elif name in ("assertIndexExists", "assertIndexNotExists"):
            holds = self.has_index(arguments) == (name == "assertIndexExists")
        else:
            raise ValueError(f"unknown operation of the runner: {name}")
        if not holds:
            raise Mismatch(f"{name} does not hold: {dict(arguments)!r}")

    def has_collection(self, arguments: Arguments) -> bool:
        with MongoClient(self.uri) as client:
            return arguments["collectionName"] in client[arguments["databaseName"]].list_collection_names()

    def has_index(self, arguments: Arguments) -> bool:
        with MongoClient(self.uri) as client:
            collection = client[arguments["databaseName"]][arguments["collectionName"]]
            return arguments["indexName"] in collection.index_information()

    def with_transaction(self, session: ClientSession, arguments: Arguments, operate: Operate) -> Any:
        def callback(_session: ClientSession) -> None:
            for operation in arguments["callback"]:
                operate(operation, f"callback ({operation['name']})")

        options = {name: value for name, value in arguments.items() if name != "callback"}
        return session.with_transaction(callback, **keywords("withTransaction", options, self.entities))

    def end(self) -> None:
        """Takes fail points away."""
        for client, name in self.fail_points:
            client.admin.command("configureFailPoint", name, mode="off")
