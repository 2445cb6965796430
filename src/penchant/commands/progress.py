"""Progress on long work, and a sign of life before it."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, SupportsFloat, SupportsInt, runtime_checkable


@runtime_checkable
class Show(Protocol):
    """Tell what is being done, and by how many steps the work has advanced."""

    def __call__(self, text: str, advance: int = 0) -> None: ...


_STOP = threading.Event()  # set where something else writes to the terminal


@contextmanager
def spinner(text: str, after: float = 0.4) -> Iterator[None]:
    """A turning line on stderr from half a second on, for terminals only: imports and compiled code have nothing else to show.

    It ends with the block, or where a bar begins. Plain characters, as a package that draws would have to be imported first.
    """
    if not sys.stderr.isatty():
        yield
        return
    _STOP.clear()
    thread = threading.Thread(target=_spin, args=(text, after), daemon=True)
    thread.start()
    try:
        yield
    finally:
        _STOP.set()
        thread.join()


def _spin(text: str, wait: float) -> None:
    turn = 0
    while not _STOP.wait(wait):
        print(f"\r{'|/-'[turn % 3]} {text}", end="", file=sys.stderr, flush=True)
        turn, wait = turn + 1, 0.15
    if turn:
        print("\r\033[K", end="", file=sys.stderr, flush=True)


@contextmanager
def progress(total: int) -> Iterator[Show]:
    """A bar on a terminal, plain lines otherwise; always on stderr, so that stdout stays clean for --json."""
    if not sys.stderr.isatty():
        yield lambda text, advance=0: print(text, file=sys.stderr, flush=True)
        return
    from rich.console import Console
    from rich.progress import Progress

    _STOP.set()
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda text, advance=0: bar.update(task, description=text, advance=advance)


def sparse(
    show: Show, loss: str = "log(L - L*)", margins: bool = True, seconds: float = 5.0
) -> Callable[[SupportsInt, SupportsFloat, SupportsFloat], None]:
    """A `progress` for `train` that says where the run is every few seconds, first after that time: short runs stay silent.

    `loss` names what is followed; a regression has no `margins`.
    """
    last = time.monotonic()

    def tell(steps: SupportsInt, log_excess: SupportsFloat, margin: SupportsFloat) -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            reached = f", smallest margin {float(margin):.4g}" if margins else ""
            show(f"step {int(steps)}: {loss} {float(log_excess):.6g}{reached}")

    return tell
