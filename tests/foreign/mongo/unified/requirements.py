"""Whether a test or file of tests can run at this server: its version, its topology, what it can do."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

# Of the schema of the test files. Minor versions add fields, and a field that the runner does not know is an error.
SCHEMA_MAJOR = 1
SCHEMA_MINOR = 28


class NotApplicable(Exception):
    """The test needs something that this server or this runner does not have. The text is the reason."""


class Server(NamedTuple):
    """What requirements ask about a server."""

    version: tuple[int, ...]
    topology: str
    parameters: Mapping[str, Any]
    has_users: bool
    has_fail_command: bool


def parse_version(text: str) -> tuple[int, ...]:
    """The three numbers of a version; what is missing is 0."""
    numbers = [int(word) for word in re.findall(r"\d+", text)[:3]]
    return tuple(numbers + [0] * (3 - len(numbers)))


def hello_of(client: MongoClient) -> Mapping[str, Any]:
    """The answer to the handshake, by its old name where the server has no other."""
    try:
        return client.admin.command("hello")
    except OperationFailure:
        return client.admin.command("ismaster")


def topology_of(hello: Mapping[str, Any]) -> str:
    if hello.get("msg") == "isdbgrid":
        return "sharded"
    return "replicaset" if "setName" in hello else "single"


def has_fail_command(client: MongoClient) -> bool:
    try:
        client.admin.command("configureFailPoint", "failCommand", mode="off")
    except OperationFailure:
        return False
    return True


def ask_server(client: MongoClient, has_users: bool, assumed_version: str | None) -> Server:
    """Asks a server what it is. The version can be assumed, to run tests that it would not run otherwise."""
    version = assumed_version or client.server_info()["version"]
    try:
        parameters = client.admin.command("getParameter", "*")
    except PyMongoError:
        parameters = {}
    return Server(
        version=parse_version(version),
        topology=topology_of(hello_of(client)),
        parameters=parameters,
        has_users=has_users,
        has_fail_command=has_fail_command(client),
    )


def unmet(requirement: Mapping[str, Any], server: Server) -> str | None:
    """Why a server does not meet a requirement, or None."""
    for name, value in requirement.items():
        if name == "minServerVersion":
            is_met = parse_version(value) <= server.version
        elif name == "maxServerVersion":
            is_met = server.version <= parse_version(value)
        elif name == "topologies":
            # A sharded cluster with replicas was a topology of its own once.
            is_met = server.topology in [word.removesuffix("-replicaset") for word in value]
        elif name == "serverParameters":
            is_met = all(server.parameters.get(key) == wanted for key, wanted in value.items())
        elif name == "auth":
            is_met = value == server.has_users
        elif name == "authMechanism":
            is_met = value == "SCRAM-SHA-256"
        elif name == "serverless":
            is_met = value != "require"
        elif name == "csfle":
            is_met = value is False
        else:
            raise ValueError(f"unknown requirement {name}")
        if not is_met:
            return f"needs {name} {value}"
    return None


def check_requirements(owner: Mapping[str, Any], server: Server) -> None:
    """Raises NotApplicable if none of the requirements of a test or file is met."""
    reasons = [unmet(requirement, server) for requirement in owner.get("runOnRequirements", [])]
    if reasons and None not in reasons:
        raise NotApplicable(f"requirements: {' or '.join(sorted({str(reason) for reason in reasons}))}")


def check_schema(version: str) -> None:
    """Raises ValueError for a version of the schema that this runner does not know."""
    major, minor = parse_version(version)[:2]
    if major != SCHEMA_MAJOR or minor > SCHEMA_MINOR:
        raise ValueError(f"unknown schemaVersion {version}")
