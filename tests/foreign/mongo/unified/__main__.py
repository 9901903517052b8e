"""Runs unified tests at a server.

usage: python3 -m unified TESTS ADDRESS [options]

TESTS is the folder `test` of pymongo's source; ADDRESS is HOST:PORT or a URI. Prints a line for each file
with its counts, a line for each failure, and sums. Exit: 0 if every test passes or is said not to apply.
"""

import argparse
import re
import sys
from collections import Counter
from pathlib import Path

from pymongo import MongoClient
from pymongo.uri_parser import parse_uri

from .lists import check_folders, judge, read_list, read_not_applicable, unused
from .requirements import Server, ask_server
from .runner import Outcome, is_unified, run_file

HERE = Path(__file__).resolve().parent.parent
RUN = "run"
# Of a failure's text; --verbose prints all of it.
SHOWN = 400


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="unified", description=__doc__.splitlines()[0])
    parser.add_argument("tests", type=Path)
    parser.add_argument("address")
    parser.add_argument("--only", default="", metavar="TEXT", help="only files whose path contains this")
    parser.add_argument("--name", default="", metavar="TEXT", help="only tests whose description contains this")
    parser.add_argument("--folder", action="append", help="this folder, instead of those of the list")
    parser.add_argument("--list", type=Path, default=HERE / "not-applicable.txt", help="tests that do not apply")
    parser.add_argument("--assume-version", metavar="VERSION", help="of the server, for the tests' requirements")
    parser.add_argument("--must-fail", action="store_true", help="no test may pass: tests of the runner itself")
    parser.add_argument("--verbose", action="store_true", help="a line for each test, and whole texts")
    return parser.parse_args()


def uri_of(address: str) -> str:
    return address if address.startswith("mongodb") else f"mongodb://{address}/"


def show(file: str, outcomes: list[Outcome], verbose: bool) -> None:
    """Prints a file's line, and those of its failures."""
    counts = Counter(outcome.verdict for outcome in outcomes)
    text = ", ".join(f"{counts[name]} {name}" for name in ("passed", "failed", "not applicable") if counts[name])
    print(f"{file}: {text or 'no tests'}")
    for outcome in outcomes:
        if outcome.verdict == "failed" or verbose:
            reason = outcome.reason if verbose or len(outcome.reason) <= SHOWN else outcome.reason[:SHOWN] + " ..."
            print(f"  {outcome.verdict}: {file} | {outcome.description} | {reason}", flush=True)


def group_of(reason: str) -> str:
    """The reason of a test that does not apply, without what differs from test to test."""
    if not reason.startswith("requirements:"):
        return reason
    needs = sorted(set(re.findall(r"needs (\w+)", reason)))
    return f"requirements: {', '.join(needs)}"


def show_sums(outcomes: list[Outcome]) -> Counter:
    counts = Counter(outcome.verdict for outcome in outcomes)
    reasons = Counter(group_of(outcome.reason) for outcome in outcomes if outcome.verdict == "not applicable")
    print("\nnot applicable, by reason:")
    for reason, count in reasons.most_common():
        print(f"  {count:5} {reason}")
    print(
        f"\nunified: {counts['passed']} passed, {counts['failed']} failed, {counts['not applicable']} do not apply",
        flush=True,
    )
    return counts


def files_of(arguments: argparse.Namespace, folders: list[str]) -> list[Path]:
    paths = [path for folder in folders for path in sorted((arguments.tests / folder).glob("*.json"))]
    return [path for path in paths if arguments.only in path.as_posix() and (arguments.folder or is_unified(path))]


def is_whole(arguments: argparse.Namespace) -> bool:
    return not (arguments.only or arguments.name or arguments.folder)


def run(arguments: argparse.Namespace, server: Server, internal: MongoClient) -> int:
    folders = read_list(HERE / "folders.txt", 2)
    wrong = check_folders(arguments.tests, folders) if is_whole(arguments) else []
    entries = read_not_applicable(arguments.list)
    names = arguments.folder or [name for name, what in folders if what == RUN]
    all_outcomes, used, files = [], set(), set()
    for path in files_of(arguments, names):
        file = path.relative_to(arguments.tests).as_posix()
        files.add(file)
        found = run_file(path, uri_of(arguments.address), server, internal, arguments.name)
        outcomes = [judge(file, outcome, entries, used) for outcome in found]
        show(file, outcomes, arguments.verbose)
        all_outcomes += outcomes
    counts = show_sums(all_outcomes)
    if not arguments.name:
        left = unused(entries, used, None if is_whole(arguments) else files)
        wrong += [f"the list names no test that fails: {entry.file} | {entry.description}" for entry in left]
    for line in wrong:
        print(line)
    if arguments.must_fail:
        return 1 if counts["passed"] or not all_outcomes else 0
    return 1 if wrong or counts["failed"] or not counts["passed"] else 0


def main() -> int:
    arguments = parse_arguments()
    uri = uri_of(arguments.address)
    has_users = parse_uri(uri)["username"] is not None
    with MongoClient(uri, serverSelectionTimeoutMS=5_000) as internal:
        server = ask_server(internal, has_users, arguments.assume_version)
        print(f"server: {server.topology}, version {'.'.join(map(str, server.version))}")
        return run(arguments, server, internal)


sys.exit(main())
