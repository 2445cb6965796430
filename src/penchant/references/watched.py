"""Solvers that can be watched: what each was asked and what it found, kept for those who prove it once more."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, NamedTuple, TypeVar

from ..errors import InfeasibleError

_Solver = TypeVar("_Solver", bound=Callable[..., Any])
_WATCHERS: list[list["Call"]] = []


class Call(NamedTuple):
    """A call of a solver: its name, the data, its other arguments, and what it returned or the proof that there is nothing to return."""

    solver: str
    data: Any
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    found: Any


def watched(solve: _Solver) -> _Solver:
    """The solver, which tells those who watch; it costs nothing where nobody does."""

    @wraps(solve)
    def telling(data: Any, *arguments: Any, **options: Any) -> Any:
        try:
            found = solve(data, *arguments, **options)
        except InfeasibleError as error:
            _tell(Call(solve.__name__, data, arguments, options, error))
            raise
        _tell(Call(solve.__name__, data, arguments, options, found))
        return found

    return telling  # pyright: ignore[reportReturnType]


def _tell(call: Call) -> None:
    for calls in _WATCHERS:
        calls.append(call)


@contextmanager
def watching() -> Iterator[list[Call]]:
    """The list of all calls made inside."""
    _WATCHERS.append([])
    try:
        yield _WATCHERS[-1]
    finally:
        _WATCHERS.pop()
