"""Differences that are known, with the reason of each.

Each line of the list: a regular expression for the command's text, one for `FIRST => SECOND`, the reason.
"""

import re
from pathlib import Path
from typing import NamedTuple


class Known(NamedTuple):
    """A difference that is no failure."""

    command: re.Pattern
    replies: re.Pattern
    reason: str


def read_known(path: Path) -> list[Known]:
    """The list. Raises ValueError for a line that is none."""
    made = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = line.split(" | ")
        if len(parts) != 3:
            raise ValueError(f"{path.name}:{number}: expected three parts between ' | '")
        made.append(Known(re.compile(parts[0], re.DOTALL), re.compile(parts[1], re.DOTALL), parts[2]))
    return made


def reason_of(known: list[Known], command: str, first: str, second: str) -> str | None:
    """Why a difference is none to be told, or None."""
    for each in known:
        if each.command.search(command) and each.replies.search(f"{first} => {second}"):
            return each.reason
    return None
