"""Operations of unified tests, through pymongo's public interface.

An operation is a function of the entities, the object that it is called on, and its arguments. It returns
what the driver returned. Operations without a function of their own are called by their name.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pymongo
from pymongo.client_session import ClientSession
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.driver_info import DriverInfo
from pymongo.operations import IndexModel, SearchIndexModel

from .arguments import keywords, pairs, snake
from .entities import Entities, common_options
from .requirements import NotApplicable

Arguments = Mapping[str, Any]
Operation = Callable[[Entities, Any, Arguments], Any]

# Called by their names, and their results are taken as they are.
BY_NAME = {
    "abortTransaction",
    "close",
    "commitTransaction",
    "countDocuments",
    "deleteMany",
    "deleteOne",
    "distinct",
    "dropIndexes",
    "endSession",
    "estimatedDocumentCount",
    "findOne",
    "findOneAndDelete",
    "findOneAndReplace",
    "findOneAndUpdate",
    "insertMany",
    "insertOne",
    "replaceOne",
    "updateMany",
    "updateOne",
}
# The driver has no such method.
NOT_OF_PYMONGO = {
    "count",
    "listCollectionObjects",
    "listDatabaseObjects",
    "listIndexNames",
    "mapReduce",
}
# Things that Remora does not have and does not claim to have.
REFUSED = {
    "createChangeStream": "change streams",
    "watch": "change streams",
    "download": "GridFS",
    "downloadByName": "GridFS",
    "upload": "GridFS",
    "delete": "GridFS",
    "deleteByName": "GridFS",
    "renameByName": "GridFS",
}


class FindCursor:
    """A cursor whose first batch is fetched at once, as createFindCursor asks for."""

    def __init__(self, cursor: Any) -> None:
        self.cursor = cursor
        self.first = list(self.take(1))

    def take(self, count: int) -> Any:
        for _ in range(count):
            try:
                yield next(self.cursor)
            except StopIteration:
                return

    def next(self) -> Any:
        """The next document. Waits for one, as long as the cursor is alive."""
        if self.first:
            return self.first.pop()
        while True:
            try:
                return next(self.cursor)
            except StopIteration:
                if not self.cursor.alive:
                    raise

    def try_next(self) -> Any:
        """The next document, or None. Asks the server once at most."""
        return self.first.pop() if self.first else next(self.cursor, None)

    def close(self) -> None:
        self.cursor.close()


def find(entities: Entities, target: Collection, arguments: Arguments) -> Any:
    return list(target.find(**keywords("find", arguments, entities)))


def create_find_cursor(entities: Entities, target: Collection, arguments: Arguments) -> FindCursor:
    return FindCursor(target.find(**keywords("find", arguments, entities)))


def aggregate(entities: Entities, target: Collection | Database, arguments: Arguments) -> Any:
    return list(target.aggregate(**keywords("aggregate", arguments, entities)))


def distinct(entities: Entities, target: Collection, arguments: Arguments) -> Any:
    return target.distinct(**keywords("distinct", arguments, entities))


def bulk_model(request: Mapping[str, Any], entities: Entities, namespaced: bool) -> Any:
    """One write of bulkWrite."""
    name, arguments = next(iter(request.items()))
    words = keywords(name, arguments, entities)
    if not namespaced:
        words.pop("namespace", None)
    model = getattr(pymongo, name[0].upper() + name[1:])
    return model(**words)


def bulk_write(entities: Entities, target: Collection, arguments: Arguments) -> Any:
    words = keywords("bulkWrite", arguments, entities)
    words["requests"] = [bulk_model(each, entities, False) for each in arguments["requests"]]
    return target.bulk_write(**words)


def client_bulk_write(entities: Entities, target: pymongo.MongoClient, arguments: Arguments) -> Any:
    words = keywords("clientBulkWrite", arguments, entities)
    words["models"] = [bulk_model(each, entities, True) for each in arguments["models"]]
    return target.bulk_write(**words)


def create_index(entities: Entities, target: Collection, arguments: Arguments) -> Any:
    words = keywords("createIndex", arguments, entities)
    return target.create_index(pairs(words.pop("keys")), **words)


def create_indexes(entities: Entities, target: Collection, arguments: Arguments) -> Any:
    words = keywords("createIndexes", arguments, entities)
    models = [IndexModel(pairs(each["keys"]), **{**each, "keys": None}) for each in words.pop("models")]
    return target.create_indexes(models, **words)


def drop_index(entities: Entities, target: Collection, arguments: Arguments) -> Any:
    words = keywords("dropIndex", arguments, entities)
    return target.drop_index(words.pop("name"), **words)


def list_indexes(entities: Entities, target: Collection, arguments: Arguments) -> Any:
    without(arguments, "batchSize")
    return list(target.list_indexes(**keywords("listIndexes", arguments, entities)))


def without(arguments: Arguments, *names: str) -> None:
    there = [name for name in names if name in arguments]
    if there:
        raise NotApplicable(f"pymongo: it has no argument {there} here")


def create_search_index(entities: Entities, target: Collection, arguments: Arguments) -> Any:
    return target.create_search_index(SearchIndexModel(**arguments["model"]))


def create_search_indexes(entities: Entities, target: Collection, arguments: Arguments) -> Any:
    return target.create_search_indexes([SearchIndexModel(**model) for model in arguments["models"]])


def list_search_indexes(entities: Entities, target: Collection, arguments: Arguments) -> Any:
    return list(target.list_search_indexes(arguments.get("name"), **arguments.get("aggregationOptions", {})))


def drop_search_index(entities: Entities, target: Collection, arguments: Arguments) -> Any:
    return target.drop_search_index(arguments["name"])


def update_search_index(entities: Entities, target: Collection, arguments: Arguments) -> Any:
    return target.update_search_index(arguments["name"], arguments["definition"])


def create_collection(entities: Entities, target: Database, arguments: Arguments) -> Any:
    words = keywords("createCollection", arguments, entities)
    # Otherwise pymongo lists the collections first.
    return target.create_collection(words.pop("collection"), check_exists=False, **words)


def drop_collection(entities: Entities, target: Database, arguments: Arguments) -> Any:
    words = keywords("dropCollection", arguments, entities)
    return target.drop_collection(words.pop("collection"), **words)


def drop_database(entities: Entities, target: pymongo.MongoClient, arguments: Arguments) -> Any:
    words = keywords("dropDatabase", arguments, entities)
    return target.drop_database(words.pop("database"), **words)


def modify_collection(entities: Entities, target: Database, arguments: Arguments) -> Any:
    rest = dict(arguments)
    return target.command({"collMod": rest.pop("collection"), **rest})


def rename(entities: Entities, target: Collection, arguments: Arguments) -> Any:
    words = keywords("rename", arguments, entities)
    if "to" not in words:
        raise NotApplicable("runner: GridFS")
    return target.rename(words.pop("to"), **words)


def command_of(arguments: Arguments) -> dict[str, Any]:
    """The command with its name in front, where the server looks for it."""
    command = dict(arguments["command"])
    name = arguments.get("commandName", next(iter(command)))
    return {name: command.pop(name), **command}


def run_command(entities: Entities, target: Database, arguments: Arguments) -> Any:
    words = keywords("runCommand", arguments, entities)
    words = {name: words[name] for name in ("session", "read_preference") if name in words}
    return target.command(command_of(arguments), **words)


def open_command_cursor(entities: Entities, target: Database, arguments: Arguments) -> Any:
    without(arguments, "timeoutMode", "cursorType")
    words = {name: arguments[name] for name in ("comment",) if name in arguments}
    if "session" in arguments:
        words["session"] = entities[arguments["session"]]
    cursor = target.cursor_command(command_of(arguments), max_await_time_ms=arguments.get("maxTimeMS"), **words)
    if "batchSize" in arguments:
        cursor.batch_size(arguments["batchSize"])
    return cursor


def run_cursor_command(entities: Entities, target: Database, arguments: Arguments) -> Any:
    return list(open_command_cursor(entities, target, arguments))


def create_command_cursor(entities: Entities, target: Database, arguments: Arguments) -> FindCursor:
    return FindCursor(open_command_cursor(entities, target, arguments))


def list_collections(entities: Entities, target: Database, arguments: Arguments) -> Any:
    return list(target.list_collections(**keywords("listCollections", arguments, entities)))


def list_collection_names(entities: Entities, target: Database, arguments: Arguments) -> Any:
    return target.list_collection_names(**keywords("listCollectionNames", arguments, entities))


def list_databases(entities: Entities, target: pymongo.MongoClient, arguments: Arguments) -> Any:
    return list(target.list_databases(**keywords("listDatabases", arguments, entities)))


def list_database_names(entities: Entities, target: pymongo.MongoClient, arguments: Arguments) -> Any:
    return target.list_database_names(**keywords("listDatabaseNames", arguments, entities))


def iterate_until(entities: Entities, target: FindCursor, arguments: Arguments) -> Any:
    return target.next()


def iterate_once(entities: Entities, target: FindCursor, arguments: Arguments) -> Any:
    return target.try_next()


def start_transaction(entities: Entities, target: ClientSession, arguments: Arguments) -> Any:
    target.start_transaction(**common_options(arguments))


def append_metadata(entities: Entities, target: pymongo.MongoClient, arguments: Arguments) -> Any:
    target.append_metadata(DriverInfo(**arguments["driverInfoOptions"]))


OPERATIONS: dict[str, Operation] = {
    "aggregate": aggregate,
    "appendMetadata": append_metadata,
    "bulkWrite": bulk_write,
    "clientBulkWrite": client_bulk_write,
    "createCollection": create_collection,
    "createCommandCursor": create_command_cursor,
    "createFindCursor": create_find_cursor,
    "createIndex": create_index,
    "createIndexes": create_indexes,
    "createSearchIndex": create_search_index,
    "createSearchIndexes": create_search_indexes,
    "dropCollection": drop_collection,
    "dropDatabase": drop_database,
    "dropIndex": drop_index,
    "dropSearchIndex": drop_search_index,
    "find": find,
    "iterateOnce": iterate_once,
    "iterateUntilDocumentOrError": iterate_until,
    "listCollectionNames": list_collection_names,
    "listCollections": list_collections,
    "listDatabaseNames": list_database_names,
    "listDatabases": list_databases,
    "listIndexes": list_indexes,
    "listSearchIndexes": list_search_indexes,
    "modifyCollection": modify_collection,
    "rename": rename,
    "runCommand": run_command,
    "runCursorCommand": run_cursor_command,
    "startTransaction": start_transaction,
    "updateSearchIndex": update_search_index,
}


def call(name: str, entities: Entities, target: Any, arguments: Arguments) -> Any:
    """Calls an operation. Raises what the driver raises; NotApplicable where there is no such operation."""
    if name in REFUSED:
        raise NotApplicable(f"not in Remora: {REFUSED[name]}")
    if name in NOT_OF_PYMONGO:
        raise NotApplicable(f"pymongo: it has no {name}")
    arguments = dict(arguments)
    timeout_ms = arguments.pop("timeoutMS", None)
    with pymongo.timeout(timeout_ms / 1000 if timeout_ms else None):
        if name in OPERATIONS:
            return OPERATIONS[name](entities, target, arguments)
        if name in BY_NAME:
            return getattr(target, snake(name))(**keywords(name, arguments, entities))
    raise LookupError(f"unknown operation {name}")
