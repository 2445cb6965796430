"""Margins along a run."""

from typing import Any

import numpy as np


def normalised_margins(run: Any) -> np.ndarray:
    """Smallest margin divided by the norm of the weights; NaN at the origin."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return run.smallest_margin() / run.norm


def smooth_margins(run: Any) -> np.ndarray:
    """-log(L - L*) divided by the norm: for the exponential loss, summed, a lower bound on the normalised margin."""
    with np.errstate(divide="ignore"):
        return -run.log_excess / run.norm
