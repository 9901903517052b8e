"""A plugin of pytest: what pymongo's tests ask of a server before they begin, where it has no such command."""

from typing import Any

from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import OperationFailure
from pymongo.synchronous.database import Database

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
