"""A reference: the convex program that theory says training solves, with its primal and dual solution."""

import equinox as eqx
import numpy as np

from .bracket import Bracket


class Solution(eqx.Module):
    """Primal (scaled to smallest margin 1) and dual of a reference program, certified by a bracket."""

    norm: str = eqx.field(static=True)
    weight: np.ndarray
    dual: np.ndarray
    bracket: Bracket

    @property
    def value(self) -> float:
        """The minimum of the norm subject to margins >= 1."""
        return self.bracket.upper

    @property
    def margin(self) -> float:
        """The maximum margin per unit of norm."""
        return 1.0 / self.bracket.upper

    @property
    def support(self) -> np.ndarray:
        """Margins with a positive multiplier (above 1e-9 of the largest)."""
        return self.dual > 1e-9 * self.dual.max()
