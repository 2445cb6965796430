"""Progress on long work, and a sign of life before it: always on stderr, so that stdout stays clean for --json."""

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from shutil import get_terminal_size
from typing import SupportsFloat, SupportsInt

_STOP = threading.Event()  # set where something else writes to the terminal
_WIPE = "\r\033[K"


@contextmanager
def spinner(text: str) -> Iterator[None]:
    """A turning line from half a second on, for terminals only: imports and compiled code have nothing else to show. It ends with the block, or where
    progress is told."""
    if not sys.stderr.isatty():
        yield
        return
    _STOP.clear()
    thread = threading.Thread(target=_spin, args=(text,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        _STOP.set()
        thread.join()


def _spin(text: str) -> None:
    turn, wait = 0, 0.4
    while not _STOP.wait(wait):
        print(f"\r{'|/-'[turn % 3]} {text}", end="", file=sys.stderr, flush=True)
        turn, wait = turn + 1, 0.15
    if turn:
        print(_WIPE, end="", file=sys.stderr, flush=True)


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """What tells where the work is: on a terminal one line that changes, plain lines otherwise."""
    if not sys.stderr.isatty():
        yield lambda text: print(text, file=sys.stderr, flush=True)
        return
    _STOP.set()
    write = lambda text: print(f"{_WIPE}{text[: get_terminal_size().columns - 1]}", end="", file=sys.stderr, flush=True)
    try:
        yield write
    finally:
        write("")


def sparse(
    show: Callable[[str], None], loss: str, margins: bool, level: float = math.inf
) -> Callable[[SupportsInt, SupportsFloat, SupportsFloat], None]:
    """A `progress` for `train` that says every five seconds where the run is: short runs stay silent.

    `loss` names what is followed; a regression has no `margins`. A flow to a margin of `level` multiplies its margin at an even pace once it passes 1, which says what is left.
    """
    last, begun = time.monotonic(), []

    def tell(steps: SupportsInt, log_excess: SupportsFloat, margin: SupportsFloat) -> None:
        nonlocal last
        now, size = time.monotonic(), float(margin)
        if size > 1 and not begun:
            begun.append((now, size))
        if now - last >= 5.0:
            last = now
            reached = f", smallest margin {size:.4g}" if margins else ""
            show(f"step {int(steps)}: {loss} {float(log_excess):.6g}{reached}{_left(begun, now, size, level)}")

    return tell


def _left(begun: list[tuple[float, float]], now: float, margin: float, level: float) -> str:
    """The time that is left by the pace since then; nothing where there is none."""
    since, first = begun[0] if begun else (now, math.inf)
    if margin <= first or math.isinf(level):
        return ""
    return f", about {(now - since) * max(0.0, math.log(level / margin)) / math.log(margin / first):.2g} s left"
