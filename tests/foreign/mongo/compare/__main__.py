"""Sends random commands to two servers and compares what they answer.

usage: python3 -m compare FIRST SECOND [--seeds N..M] [--length N] [--list FILE] [--most N]

FIRST and SECOND are HOST:PORT; SECOND is the peer. A seed makes a sequence of commands on one collection.
After each command that changes something the contents are compared, too. A sequence whose replies differ is
shortened, and printed as commands. known-differences.txt says which differences are known. Exit: 0 if there
are no others.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import bson
from bson import json_util
from wire import Closed, Connection

from .generate import COLLECTION, Generator
from .known import Known, read_known, reason_of
from .normalise import OPTIONS, normalised

DATABASE = "remora_compare"
LIST = Path(__file__).resolve().parent / "known-differences.txt"
READS = ("find", "count", "distinct", "aggregate")
CONTENTS = {"find": COLLECTION, "sort": {"_id": 1}}
# Of the first server it is a failure, whatever the second one says.
NO_REPLY = "no reply"
# What a command cannot do without, and `_id`, without which the server may choose the document.
KEPT_FULL = {"documents", "updates", "deletes", "indexes", "key"}
KEPT = KEPT_FULL | {"_id", "q", "u", "multi", "limit", "query", "filter", "update", "remove", "name"}
KEPT |= {"pipeline", "cursor", "sort", "$sort"}
FILTERS = ("q", "query", "filter", "$match")

Command = dict[str, Any]


class Difference(NamedTuple):
    """The first command of a sequence whose replies differ, and the replies."""

    at: int
    command: Command
    first: str
    second: str


class Servers:
    """Two connections, which are opened again after an end."""

    def __init__(self, addresses: list[str]) -> None:
        self.addresses = addresses
        self.connections = [Connection(address) for address in addresses]
        self.sequence = 0

    def call(self, which: int, command: Command) -> str:
        try:
            # Each has a database of its own, and each sequence: the two can be one server, and a server may
            # fail to take the former contents away.
            reply = self.connections[which].command(command, f"{DATABASE}_{which}_{self.sequence}")
            return normalised(command, bson.decode(reply.raw))
        except Closed as closed:
            self.connections[which].close()
            self.connections[which] = Connection(self.addresses[which])
            return f"{NO_REPLY}: {closed}"

    def both(self, command: Command) -> tuple[str, str]:
        return self.call(0, command), self.call(1, command)


def text_of(command: Command) -> str:
    return json_util.dumps(command, json_options=OPTIONS)


class Looked(NamedTuple):
    """What a command has shown: an unknown difference, or whether there is a known one, and the replies."""

    difference: Difference | None
    is_known: bool
    first: str
    second: str


def look(servers: Servers, at: int, asked: Command, known: list[Known], seen: Counter) -> Looked:
    first, second = servers.both(asked)
    if first == second and not first.startswith(NO_REPLY):
        return Looked(None, False, first, second)
    reason = reason_of(known, text_of(asked), first, second)
    if reason is None:
        return Looked(Difference(at, asked, first, second), False, first, second)
    seen[reason] += 1
    return Looked(None, True, first, second)


def fails_between(command: Command, reply: str) -> bool:
    """Whether a change of many documents has failed: MongoDB does not promise which of them were before that."""
    return reply.startswith("error") and any(each.get("multi") for each in command.get("updates", []))


def differs(servers: Servers, commands: list[Command], known: list[Known], seen: Counter) -> Difference | None:
    """Runs a sequence on an empty collection. It ends where the contents may differ from then on."""
    servers.both({"dropDatabase": 1})
    servers.sequence += 1
    servers.both({"dropDatabase": 1})
    servers.both({"create": COLLECTION})
    for at, command in enumerate(commands):
        found = look(servers, at, command, known, seen)
        if found.difference:
            return found.difference
        if next(iter(command)) in READS:
            continue
        if fails_between(command, found.first):
            return None
        contents = look(servers, at, CONTENTS, known, seen)
        if contents.difference and not found.is_known:
            return contents.difference
        if found.is_known and contents.first != contents.second:
            return None
    return None


def shorter(commands: list[Command], fails: Callable[[list[Command]], bool]) -> list[Command]:
    """Leaves out parts, each half as long as the ones before, as long as it still fails."""
    size = max(len(commands) // 2, 1)
    while size >= 1:
        at = 0
        while at < len(commands):
            without = commands[:at] + commands[at + size :]
            if without and fails(without):
                commands = without
            else:
                at += size
        size //= 2
    return commands


def smaller_values(value: Any) -> list[Any]:
    """The same value with one field or element less, at any depth; what a command must have stays."""
    made: list[Any] = []
    if isinstance(value, dict):
        for name, each in value.items():
            if name not in KEPT:
                made.append({other: kept for other, kept in value.items() if other != name})
            less_of = smaller_values(each)
            # A condition does not become an empty document, which means another thing.
            less_of = [less for less in less_of if less != {} or name in FILTERS]
            made += [{**value, name: less} for less in less_of if less or name not in KEPT_FULL]
    elif isinstance(value, list):
        for index, each in enumerate(value):
            # Without an order the results may differ.
            if not (isinstance(each, dict) and "$sort" in each):
                made.append(value[:index] + value[index + 1 :])
            made += [value[:index] + [less] + value[index + 1 :] for less in smaller_values(each) if less != {}]
    return made


def simpler(commands: list[Command], fails: Callable[[list[Command]], bool]) -> list[Command]:
    """Takes fields and elements away from the commands, as long as it still fails."""
    at = 0
    while at < len(commands):
        name = next(iter(commands[at]))
        for less in smaller_values(commands[at]):
            # The command's name stays in front.
            if next(iter(less), None) == name and fails([*commands[:at], less, *commands[at + 1 :]]):
                commands = [*commands[:at], less, *commands[at + 1 :]]
                break
        else:
            at += 1
    return commands


def kinds_of(found: Difference) -> list[str]:
    """Of both replies: an error with its code, no reply, or a result."""
    kinds = (NO_REPLY, "error ")
    return [text if text.startswith(kinds) else "result" for text in (found.first, found.second)]


def shrink(servers: Servers, commands: list[Command], found: Difference, known: list[Known]) -> list[Command]:
    """The shortest sequence that was found, which differs at the same kind of command."""
    kind = next(iter(found.command))
    was = kinds_of(found)

    def fails(candidate: list[Command]) -> bool:
        other = differs(servers, candidate, known, Counter())
        if other is None or next(iter(other.command)) != kind:
            return False
        return kinds_of(other) == was

    return simpler(shorter(commands[: found.at + 1], fails), fails)


def show(seed: int, commands: list[Command], found: Difference | None) -> None:
    print(f"\nseed {seed}:")
    for command in commands:
        print(f"  {text_of(command)}")
    if found is None:
        print("  and does not differ when it is sent again", flush=True)
        return
    if found.command is not commands[-1]:
        print(f"  {text_of(found.command)}")
    print(f"  first:  {found.first}\n  second: {found.second}", flush=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="compare", description=__doc__.splitlines()[0])
    parser.add_argument("first")
    parser.add_argument("second")
    parser.add_argument("--seeds", default="1..500", metavar="N..M", help="sequences, each from its seed")
    parser.add_argument("--length", type=int, default=30, help="commands of a sequence")
    parser.add_argument("--list", type=Path, default=LIST, help="known differences")
    parser.add_argument("--most", type=int, default=10, help="sequences that differ, before the run ends")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    known = read_known(arguments.list)
    servers = Servers([arguments.first, arguments.second])
    begin, end = (int(word) for word in arguments.seeds.split(".."))
    seen, failed, count = Counter(), 0, 0
    for seed in range(begin, end + 1):
        commands = Generator(seed).sequence(arguments.length)
        count += len(commands)
        found = differs(servers, commands, known, seen)
        if found is None:
            continue
        failed += 1
        short = shrink(servers, commands, found, known)
        show(seed, short, differs(servers, short, known, Counter()))
        if failed == arguments.most:
            break
    for reason, times in seen.most_common():
        print(f"  {times:5} known: {reason}")
    print(f"compare: seeds {begin}..{seed}, {count} commands, {failed} sequences differ")
    return 1 if failed else 0


sys.exit(main())
