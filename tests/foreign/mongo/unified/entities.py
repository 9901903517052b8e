"""What a unified test names: clients, databases, collections, sessions, cursors, results."""

import copy
from collections.abc import Mapping
from typing import Any

from pymongo import MongoClient, read_preferences
from pymongo.client_session import ClientSession, TransactionOptions
from pymongo.read_concern import ReadConcern
from pymongo.server_api import ServerApi
from pymongo.write_concern import WriteConcern

from .events import Listener
from .match import Context, Mismatch
from .requirements import NotApplicable

# A server that is gone fails a test soon, ms.
SERVER_SELECTION_MS = 5_000


def write_concern(text: Mapping[str, Any]) -> WriteConcern:
    names = {"wtimeoutMS": "wtimeout", "journal": "j"}
    return WriteConcern(**{names.get(name, name): value for name, value in text.items()})


def read_preference(text: Mapping[str, Any]) -> Any:
    mode = text["mode"][0].upper() + text["mode"][1:]
    if mode == "Primary":
        return read_preferences.Primary()
    return getattr(read_preferences, mode)(
        tag_sets=text.get("tagSets"), max_staleness=text.get("maxStalenessSeconds", -1)
    )


def common_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of databases, collections and transactions."""
    makers = {
        "readConcern": ("read_concern", lambda text: ReadConcern(text.get("level"))),
        "writeConcern": ("write_concern", write_concern),
        "readPreference": ("read_preference", read_preference),
        "maxCommitTimeMS": ("max_commit_time_ms", lambda number: number),
    }
    unknown = set(options) - set(makers)
    if unknown:
        raise NotApplicable(f"pymongo: it has no options {sorted(unknown)} here")
    return {makers[name][0]: makers[name][1](value) for name, value in options.items()}


def session_options(options: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in options.items():
        if name == "causalConsistency":
            made["causal_consistency"] = value
        elif name == "snapshot":
            made["snapshot"] = value
        elif name == "defaultTransactionOptions":
            made["default_transaction_options"] = TransactionOptions(**common_options(value))
        else:
            raise NotApplicable(f"pymongo: sessions have no option {name}")
    return made


class Entities:
    """The entities of one test, by name."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.by_name: dict[str, Any] = {}
        self.listeners: dict[str, Listener] = {}
        # A session's id, which a session that has ended does not tell.
        self.lsids: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self.by_name:
            raise Mismatch(f"there is no entity {name}")
        return self.by_name[name]

    def add(self, name: str, entity: Any) -> None:
        if name in self.by_name:
            raise ValueError(f"there are two entities {name}")
        self.by_name[name] = entity

    def context(self) -> Context:
        return Context(entity=self.__getitem__, lsid=lambda name: self.lsids[name])

    def create(self, described: list[Mapping[str, Any]]) -> None:
        makers = {
            "client": self.make_client,
            "database": self.make_database,
            "collection": self.make_collection,
            "session": self.make_session,
        }
        refused = {
            "bucket": "GridFS is an affair of drivers",
            "clientEncryption": "encryption is an affair of drivers",
            "thread": "threads",
        }
        for entity in described:
            kind, text = next(iter(entity.items()))
            if kind in refused:
                raise NotApplicable(f"runner: {refused[kind]}")
            if kind not in makers:
                raise ValueError(f"unknown kind of entity: {kind}")
            self.add(text["id"], makers[kind](text))

    def make_client(self, text: Mapping[str, Any]) -> MongoClient:
        for option in ("autoEncryptOpts", "observeLogMessages", "awaitMinPoolSizeMS"):
            if option in text:
                raise NotApplicable(f"runner: its clients have no {option}")
        options = {"serverSelectionTimeoutMS": SERVER_SELECTION_MS, **text.get("uriOptions", {})}
        if "serverApi" in text:
            api = text["serverApi"]
            options["server_api"] = ServerApi(
                api["version"], strict=api.get("strict"), deprecation_errors=api.get("deprecationErrors")
            )
        listener = Listener(
            text.get("observeEvents", []),
            text.get("ignoreCommandMonitoringEvents", []),
            text.get("observeSensitiveCommands", False),
        )
        self.listeners[text["id"]] = listener
        return MongoClient(self.uri, event_listeners=[listener], **options)

    def make_database(self, text: Mapping[str, Any]) -> Any:
        options = common_options(text.get("databaseOptions", {}))
        return self[text["client"]].get_database(text["databaseName"], **options)

    def make_collection(self, text: Mapping[str, Any]) -> Any:
        options = common_options(text.get("collectionOptions", {}))
        return self[text["database"]].get_collection(text["collectionName"], **options)

    def make_session(self, text: Mapping[str, Any]) -> ClientSession:
        session = self[text["client"]].start_session(**session_options(text.get("sessionOptions", {})))
        self.lsids[text["id"]] = copy.deepcopy(session.session_id)
        return session

    def close(self) -> None:
        """Ends all sessions and clients."""
        entities = list(self.by_name.values())
        for kind, end in ((ClientSession, "end_session"), (MongoClient, "close")):
            for entity in entities:
                if isinstance(entity, kind):
                    getattr(entity, end)()
