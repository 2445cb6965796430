"""Progress on long work, and a sign of life before it: always on stderr, so that stdout stays clean for --json."""

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
    show: Callable[[str], None], loss: str, margins: bool
) -> Callable[[SupportsInt, SupportsFloat, SupportsFloat], None]:
    """A `progress` for `train` that says every five seconds where the run is: short runs stay silent.

    `loss` names what is followed; a regression has no `margins`.
    """
    last = time.monotonic()

    def tell(steps: SupportsInt, log_excess: SupportsFloat, margin: SupportsFloat) -> None:
        nonlocal last
        if time.monotonic() - last >= 5.0:
            last = time.monotonic()
            reached = f", smallest margin {float(margin):.4g}" if margins else ""
            show(f"step {int(steps)}: {loss} {float(log_excess):.6g}{reached}")

    return tell
