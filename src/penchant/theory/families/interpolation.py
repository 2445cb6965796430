"""What training a regression could select: the potential of its parametrisation."""

from typing import Any

import numpy as np

from ...settings.base import Setting
from ...settings.potentials import Quadratic
from ...settings.square_models import SignedPowers, SignedSquares, Squares


def own_potential(setting: Setting, start: Any) -> Any:
    """What gradient flow from `start` minimises among interpolants; plain weights and their Gram form have the same."""
    if _is_square(setting):
        return setting.parametrisation.potential(start)
    return Quadratic(np.asarray(setting.weight(start)))


def _is_square(setting: Setting) -> bool:
    return isinstance(setting.parametrisation, Squares | SignedSquares | SignedPowers)
