"""What references are made of: the convex program that theory says training solves, with its primal and dual solution.

Programs take data with margins, or a regression (anything else is named, with what to pass instead), and the features of data, the rows
that a weight is multiplied with to give the margins, some at a time. They can be watched: what each was asked and what it found is
kept for those who prove it once more.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import numpy as np

from ..errors import INFEASIBLE, ArgumentError, kind
from ..logspace import check_float64
from ..norms import Norm
from ..settings.base import Data
from ..settings.regression import Regression
from ..settings.tokens import TokenSelection

S = TypeVar("S", bound=Callable)
CERTIFIED = 1e-6  # largest relative gap at which a reference counts as known
INTERPOLATES = (
    5e-10  # largest relative residual of a weight that interpolates: in any norm that a reader may take, below 1e-9
)
_BLOCK = 500  # rows at once: a unit matrix for all of them would be N by N


class Bracket(eqx.Module):
    """lower <= min ||W|| subject to margins >= 1 <= upper, and the four residuals of the optimality conditions.

    The residuals are 0 at the optimum: `infeasibility` (shortfall of the smallest margin below 1 after rescaling),
    `negativity` (most negative dual entry, relative to the largest), `complementarity` (dual mass on margins above the
    smallest), `misalignment` (1 - <W, V> / (||W|| ||V||_dual) with V the weight the dual points to). Both bounds hold for the numbers as
    stored: `rounding` is the part of the gap by which they were moved outward, which no better points would take away.
    """

    lower: float
    upper: float
    infeasibility: float
    negativity: float
    complementarity: float
    misalignment: float
    rounding: float = 0.0

    @property
    def gap(self) -> float:
        """Relative width upper/lower - 1; infinite while one side is missing."""
        return self.upper / self.lower - 1 if self.lower > 0 else float("inf")


def pinned(bracket: Bracket) -> bool:
    """Whether bounds on an interpolant prove its value, 0 included, about a weight that interpolates."""
    narrow = bracket.upper - bracket.lower <= CERTIFIED * bracket.upper < np.inf
    return narrow and bracket.infeasibility <= INTERPOLATES


@runtime_checkable
class Reference(Protocol):
    """What a prediction says is selected: a direction, an interpolant, or a set of minima; `norm` names what is least there."""

    @property
    def norm(self) -> str: ...


class Solution(eqx.Module):
    """Primal (scaled to smallest margin 1) and dual of a reference program, certified by a bracket; `norm` is what its data call the norm `measure`."""

    norm: str = eqx.field(static=True)
    weight: np.ndarray
    dual: np.ndarray
    bracket: Bracket
    measure: Norm

    @property
    def value(self) -> float:
        """The minimum of the norm subject to margins >= 1."""
        return self.bracket.upper

    @property
    def certified(self) -> bool:
        """Whether the bracket proves the value to a relative 1e-6."""
        return self.bracket.gap <= CERTIFIED

    @property
    def margin(self) -> float:
        """The maximum margin per unit of norm."""
        return 1.0 / self.bracket.upper

    @property
    def support(self) -> np.ndarray:
        """Margins with a positive multiplier (above 1e-9 of the largest)."""
        return self.dual > 1e-9 * self.dual.max()


class Interpolant(eqx.Module):
    """The weight of least norm, or least potential, among those with X theta = y; certified by a bracket.

    `resolved` is False if coefficients that decide the answer have fallen below what float64 resolves. Where the reference is still
    `certified`, its weight interpolates and only its small coefficients are not known to any relative accuracy; else nothing is.
    Where weights must be nonnegative and few of them are positive, floats
    hardly ever have a solution: the bracket is then about targets within an `allowance`, relative to the sizes of the terms, of those that are stored.
    """

    norm: str = eqx.field(static=True)
    weight: np.ndarray
    dual: np.ndarray
    bracket: Bracket
    resolved: bool = True
    allowance: float = 0.0

    @property
    def value(self) -> float:
        """The minimum of the norm or potential."""
        return self.bracket.upper

    @property
    def certified(self) -> bool:
        """Whether the bracket proves the value to a relative 1e-6, and the weight interpolates."""
        return pinned(self.bracket)

    @property
    def support(self) -> np.ndarray:
        """Coefficients above 1e-9 of the largest."""
        return np.abs(self.weight) > 1e-9 * np.abs(self.weight).max()


def _require(wanted: Any, words: str, data: object, owner: str) -> Any:
    """The data, if they are of the kind wanted and in float64: no certificate allows for sums that are rounded to seven digits."""
    fits = isinstance(data, Regression)
    if isinstance(data, type) or not isinstance(data, wanted) or (wanted is Data and fits):
        fix = "pass `setting.data`" if hasattr(data, "parametrisation") else ""
        raise ArgumentError("data", owner, words, kind(data), "`minimum_norm(data)` is its program" if fits else fix)
    check_float64()
    if any(leaf.dtype == np.float32 for leaf in jax.tree.leaves(data)):
        fix = "build the data again with jax's 64-bit mode on"
        raise ArgumentError("data", owner, "float64 throughout", "float32 arrays", fix)
    return data


require_margins: Callable[[object, str], Data] = partial(
    _require, Data, "data with margins, such as Classification(inputs, labels)"
)
require_tokens: Callable[[object, str], TokenSelection] = partial(_require, TokenSelection, "a TokenSelection")
require_regression: Callable[[object, str], Regression] = partial(_require, Regression, "a Regression(inputs, targets)")
_adjoints = eqx.filter_jit(lambda data, units: jax.vmap(data.adjoint)(units))


def parts(values: np.ndarray) -> list[np.ndarray]:
    """Values split as `row_blocks` splits the rows they belong to."""
    return np.array_split(values, 1 + len(values) // _BLOCK)


def row_blocks(data: Data, active: np.ndarray) -> Iterator[np.ndarray]:
    """The features of the active margins, one row each, in blocks."""
    for part in parts(np.flatnonzero(active)):
        if (own := getattr(data, "signed", None)) is not None:  # features of their own, which no product need find
            yield np.asarray(own)[part]
            continue
        units = (part[:, None] == np.arange(len(active))).astype(float)
        yield np.asarray(_adjoints(data, units)).reshape(len(part), -1)


def feature_rows(data: Data, active: np.ndarray) -> np.ndarray:
    """All features of the active margins."""
    return np.concatenate(list(row_blocks(data, active)))


def placed(values: np.ndarray, where: np.ndarray) -> np.ndarray:
    """Values where they belong, 0 elsewhere."""
    found = np.zeros(len(where))
    found[where] = values
    return found


class Call(NamedTuple):
    """A call of a solver: its name, the data, its other arguments, and what it returned, or, `refused`, the proof that there is nothing to return."""

    solver: str
    data: Any
    arguments: tuple
    options: dict
    found: Any
    refused: bool = False


_WATCHERS: list[list[Call]] = []


def watched(solve: S) -> S:
    """The solver, which tells those who watch; it costs nothing where nobody does."""

    @wraps(solve)
    def telling(data: object, *arguments: object, **options: object) -> object:
        try:
            found = solve(data, *arguments, **options)
        except INFEASIBLE as error:
            _tell(Call(solve.__name__, data, arguments, options, error, refused=True))
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
