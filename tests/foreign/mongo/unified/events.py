"""Events of a client: what it sent, what came back, and its connections, as unified tests compare them."""

import threading
import time
from collections.abc import Mapping
from typing import Any

from pymongo.monitoring import CommandListener, ConnectionPoolListener

from .match import Context, Mismatch, match
from .requirements import NotApplicable

# The driver shows them without their contents, because they can carry secrets.
SENSITIVE = {
    "authenticate",
    "saslstart",
    "saslcontinue",
    "getnonce",
    "createuser",
    "updateuser",
    "copydbgetnonce",
    "copydbsaslstart",
    "copydb",
}
HELLOS = {"hello", "ismaster"}
# How long an event that a test waits for may take, s.
WAIT_S = 10.0
KINDS = {
    "commandStartedEvent",
    "commandSucceededEvent",
    "commandFailedEvent",
    "poolCreatedEvent",
    "poolReadyEvent",
    "poolClearedEvent",
    "poolClosedEvent",
    "connectionCreatedEvent",
    "connectionReadyEvent",
    "connectionClosedEvent",
    "connectionCheckOutStartedEvent",
    "connectionCheckOutFailedEvent",
    "connectionCheckedOutEvent",
    "connectionCheckedInEvent",
}
FIELDS = {
    "command": "command",
    "commandName": "command_name",
    "databaseName": "database_name",
    "reply": "reply",
    "reason": "reason",
    "interruptInUseConnections": "interrupt_connections",
}


def kind_of(event: Any) -> str:
    """An event's name in the tests: that of its class, with a small letter."""
    name = type(event).__name__
    return name[0].lower() + name[1:]


class Listener(CommandListener, ConnectionPoolListener):
    """Keeps the events that a client entity observes."""

    def __init__(self, observed: list[str], ignored: list[str], sees_sensitive: bool) -> None:
        unknown = set(observed) - KINDS
        if unknown:
            raise NotApplicable(f"runner: it observes no {sorted(unknown)}")
        self.observed = set(observed)
        self.ignored = {name.lower() for name in ignored} | {"configurefailpoint"}
        self.sees_sensitive = sees_sensitive
        self.events: list[Any] = []
        self.lock = threading.Lock()

    def is_hidden(self, event: Any) -> bool:
        name = getattr(event, "command_name", "").lower()
        if name in self.ignored:
            return True
        if self.sees_sensitive or not name:
            return False
        is_empty_hello = name in HELLOS and not (getattr(event, "command", None) or getattr(event, "reply", None))
        return name in SENSITIVE or is_empty_hello

    def keep(self, event: Any) -> None:
        if kind_of(event) in self.observed and not self.is_hidden(event):
            with self.lock:
                self.events.append(event)

    def kept(self, event_type: str) -> list[Any]:
        """What was kept of a type: `command` or `cmap`."""
        with self.lock:
            events = list(self.events)
        return [event for event in events if kind_of(event).startswith("command") == (event_type == "command")]

    def count(self, expected: Mapping[str, Any], context: Context) -> int:
        """How many of the events fit an expectation."""
        with self.lock:
            events = list(self.events)
        return sum(fits(expected, event, context) for event in events)

    def wait_for(self, expected: Mapping[str, Any], count: int, context: Context) -> None:
        deadline = time.monotonic() + WAIT_S
        while self.count(expected, context) < count:
            if time.monotonic() > deadline:
                raise Mismatch(f"in {WAIT_S} s there were not {count} events like {expected!r}")
            time.sleep(0.01)

    started = succeeded = failed = keep
    pool_created = pool_ready = pool_cleared = pool_closed = keep
    connection_created = connection_ready = connection_closed = keep
    connection_check_out_started = connection_check_out_failed = keep
    connection_checked_out = connection_checked_in = keep


def match_event(expected: Mapping[str, Any], event: Any, context: Context, place: str) -> None:
    """Compares an event with an expectation. Raises Mismatch."""
    kind, fields = next(iter(expected.items()))
    if kind not in KINDS:
        raise NotApplicable(f"runner: it observes no {kind}")
    if kind_of(event) != kind:
        raise Mismatch(f"{place}: expected {kind} {fields!r}, got {event}")
    for name, value in fields.items():
        if name == "hasServiceId":
            is_there = event.service_id is not None
        elif name == "hasServerConnectionId":
            is_there = event.server_connection_id is not None
        elif name in FIELDS:
            # Commands and replies are root documents.
            match(value, getattr(event, FIELDS[name]), context, f"{place} {name}", True)
            continue
        else:
            raise ValueError(f"unknown field of an event: {name}")
        if is_there != value:
            raise Mismatch(f"{place} {name}: expected {value}, got {is_there}")


def fits(expected: Mapping[str, Any], event: Any, context: Context) -> bool:
    try:
        match_event(expected, event, context, "event")
    except Mismatch:
        return False
    return True


def check_events(expectation: Mapping[str, Any], listener: Listener, context: Context) -> None:
    """Compares the events of a client with those that a test expects, in order. Raises Mismatch."""
    event_type = expectation.get("eventType", "command")
    if event_type not in ("command", "cmap"):
        raise NotApplicable(f"runner: it observes no events of type {event_type}")
    given, expected = listener.kept(event_type), expectation["events"]
    for index, wanted in enumerate(expected):
        place = f"event {index} of {expectation['client']}"
        if index >= len(given):
            raise Mismatch(f"{place}: expected {wanted!r}, got no more events")
        match_event(wanted, given[index], context, place)
    if len(given) > len(expected) and not expectation.get("ignoreExtraEvents", False):
        raise Mismatch(f"more events than expected at {expectation['client']}: {given[len(expected)]}")
