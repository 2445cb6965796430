"""What the commands do, as functions that take the parsed options."""

from collections.abc import Iterable
from typing import NamedTuple


class Said(NamedTuple):
    """What a command found: for programs, the same for people, and its exit code."""

    content: object
    lines: Iterable[str]
    code: int = 0
