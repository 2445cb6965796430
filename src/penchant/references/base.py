"""A reference: the convex program that theory says training solves, with its primal and dual solution."""

from typing import Protocol, runtime_checkable

import equinox as eqx
import numpy as np

from ..norms import Norm
from .bracket import Bracket

CERTIFIED = 1e-6  # largest relative gap at which a reference counts as known


INTERPOLATES = 1e-9  # largest relative residual of a weight that interpolates


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
    `iterations` counts the Newton steps of the whole path.
    """

    norm: str = eqx.field(static=True)
    weight: np.ndarray
    dual: np.ndarray
    bracket: Bracket
    resolved: bool = True
    iterations: int = 0

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
