"""Margins along a run."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..settings.parametrisations import Direct, Gram


def sizes(run: Any, norm: Callable[[np.ndarray], float] | None = None) -> np.ndarray:
    """A norm of the weight at every record, by default the l2 norm; `run.norm` is that of the parameters, which may be others."""
    if norm is None and isinstance(run.setting.parametrisation, Direct | Gram):
        return run.norm
    measure = norm or (lambda weight: float(np.linalg.norm(weight)))
    return np.array([measure(run.weight(record)) for record in range(len(run))])


def normalised_margins(run: Any, norm: Callable[[np.ndarray], float] | None = None) -> np.ndarray:
    """Smallest margin divided by a norm of the weight, by default the l2 norm; NaN at the origin."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return run.smallest_margin() / sizes(run, norm)


def smooth_margins(run: Any) -> np.ndarray:
    """-log(L - L*) divided by the l2 norm: for the exponential loss, summed, a lower bound on the normalised margin."""
    with np.errstate(divide="ignore"):
        return -run.log_excess / sizes(run)
