"""The committed lists: which folders of tests run, and which tests do not apply.

Each line of a list has its parts between ` | `; lines that begin with `#` and empty ones are not read.
"""

from pathlib import Path
from typing import NamedTuple

from .runner import Outcome, is_unified

EVERY = "*"


class Entry(NamedTuple):
    """A test that does not apply. The description `*` stands for all tests of the file."""

    file: str
    description: str
    reason: str


def read_list(path: Path, parts: int) -> list[list[str]]:
    """The lines of a list. Raises ValueError for a line with another number of parts."""
    entries = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        entry = [part.strip() for part in line.split(" | ")]
        if len(entry) != parts or not all(entry):
            raise ValueError(f"{path.name}:{number}: expected {parts} parts between ' | '")
        entries.append(entry)
    return entries


def read_not_applicable(path: Path) -> list[Entry]:
    return [Entry(*parts) for parts in read_list(path, 3)]


def folders_with_tests(tests: Path) -> set[str]:
    """The folders that have unified tests."""
    return {path.parent.relative_to(tests).as_posix() for path in tests.rglob("*.json") if may_be_unified(path)}


def may_be_unified(path: Path) -> bool:
    try:
        return is_unified(path)
    except ValueError:
        return False


def check_folders(tests: Path, folders: list[list[str]]) -> list[str]:
    """What is wrong with the list of folders: each folder with tests is in it, once."""
    names = [folder for folder, _ in folders]
    there = folders_with_tests(tests)
    wrong = [f"folder without a line in the list: {name}" for name in sorted(there - set(names))]
    wrong += [f"the list has a folder that is not there: {name}" for name in names if name not in there]
    return wrong + [f"the list has it twice: {name}" for name in sorted(set(names)) if names.count(name) > 1]


def applies(entry: Entry, file: str, outcome: Outcome) -> bool:
    return entry.file == file and entry.description in (EVERY, outcome.description)


def judge(file: str, outcome: Outcome, entries: list[Entry], used: set[Entry]) -> Outcome:
    """An outcome in view of the list: a listed test must fail, and one of a file that is listed as a whole."""
    found = [entry for entry in entries if applies(entry, file, outcome)]
    if outcome.verdict == "passed":
        named = [entry for entry in found if entry.description != EVERY]
        used.update(named)
        text = "it passes: the list of tests that do not apply is out of date"
        return Outcome(outcome.description, "failed", text) if named else outcome
    used.update(found)
    if not found or outcome.verdict == "not applicable":
        return outcome
    return Outcome(outcome.description, "not applicable", f"list: {found[0].reason}")


def unused(entries: list[Entry], used: set[Entry], files: set[str] | None) -> list[Entry]:
    """Entries, of these files or of all, that name no test, or a file whose tests all pass."""
    return [entry for entry in entries if entry not in used and (files is None or entry.file in files)]
