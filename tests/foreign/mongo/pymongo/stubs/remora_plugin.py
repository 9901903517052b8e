"""A plugin of pytest: it leaves out the tests of the list in LEFT_OUT, and answers what pymongo's tests ask of a
server before they begin, where it has no such command."""

import os
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import OperationFailure
from pymongo.synchronous.database import Database


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Leaves out the tests that do not apply: by their names, or by a beginning of names that ends with `*`."""
    if "LEFT_OUT" not in os.environ:
        return
    lines = Path(os.environ["LEFT_OUT"]).read_text().splitlines()
    names = [line.split(" | ")[0] for line in lines if line and not line.startswith("#")]
    exact = {name for name in names if not name.endswith("*")}
    beginnings = tuple(name[:-1] for name in names if name.endswith("*"))
    left_out = [item for item in items if item.nodeid in exact or item.nodeid.startswith(beginnings)]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


clients: list[MongoClient[Any]] = []


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Each test begins without what others have left in a collection that many share: among the tests that are left
    out are those that would remove it."""
    if not clients:
        clients.append(MongoClient(os.environ["DB_IP"], int(os.environ["DB_PORT"])))
    clients[0]["pymongo_test"]["coll"].drop()


# The tests only look for options and parameters in these, and find none.
ANSWERS: dict[str, dict[str, Any]] = {
    "getCmdLineOpts": {"argv": [], "parsed": {}, "ok": 1.0},
    "getParameter": {"enableTestCommands": False, "ok": 1.0},
}
COMMAND_NOT_FOUND = 59
UNAUTHORIZED = 13

of_database, of_async_database = Database.command, AsyncDatabase.command


def answer(command: Any, error: OperationFailure) -> dict[str, Any]:
    if not isinstance(command, str) or command not in ANSWERS or error.code not in (COMMAND_NOT_FOUND, UNAUTHORIZED):
        raise error
    return ANSWERS[command]


def command(self: Database, command: Any, *args: Any, **kwargs: Any) -> Any:
    try:
        return of_database(self, command, *args, **kwargs)
    except OperationFailure as error:
        return answer(command, error)


async def async_command(self: AsyncDatabase, command: Any, *args: Any, **kwargs: Any) -> Any:
    try:
        return await of_async_database(self, command, *args, **kwargs)
    except OperationFailure as error:
        return answer(command, error)


Database.command, AsyncDatabase.command = command, async_command
