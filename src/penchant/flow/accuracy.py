"""How far the integration of a flow has left what the exact flow keeps, in units of what is allowed."""

from typing import Any

import numpy as np
from jaxtyping import PyTree

from ..settings.base import Setting
from ..settings.deep_linear import DeepLinear, imbalance_constant, imbalances
from .clocks import Clock, RelativeDrop

_CLOCK = 1e-3  # of log(L - L*), times the root of its size where that exceeds 1
_DRIFT = 1e-5  # of W_k W_k' - W_{k+1}' W_{k+1}, times 1 + D


def clock_bound(log_excess: Any) -> float:
    """How far log(L - L*) may be from what the clock `RelativeDrop` says."""
    return float(_CLOCK * np.sqrt(max(1.0, abs(float(log_excess)))))


def drift_bound(start: PyTree) -> float:
    """How far the conserved matrices of a deep linear network may drift."""
    return _DRIFT * (1 + imbalance_constant(start))


class Accuracy:
    """The larger of clock error and conservation drift over their bounds; 0 where a flow has neither."""

    def __init__(self, setting: Setting, clock: Clock, params: PyTree, log_excess: Any):
        self.timed, self.log_excess = isinstance(clock, RelativeDrop), float(log_excess)
        self.conserved = imbalances(params) if isinstance(setting.parametrisation, DeepLinear) else []
        self.drift = drift_bound(params) if self.conserved else np.inf

    def __call__(self, params: PyTree, log_excess: Any, elapsed: float) -> float:
        found = [0.0]
        if self.timed:
            error = abs(self.log_excess - float(log_excess) - np.expm1(elapsed))
            found.append(error / clock_bound(log_excess))
        if self.conserved:
            pairs = zip(imbalances(params), self.conserved, strict=True)
            found.append(max(float(np.linalg.norm(now - then, 2)) for now, then in pairs) / self.drift)
        return max(found)
