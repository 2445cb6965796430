"""Length and order of the next step: the least work per unit of clock time, as the classical extrapolation codes choose them."""

import math
from typing import NamedTuple

import numpy as np

from .integrator import HIGHEST, Errors

_SHRINK, _GROW, _SAFETY = 0.2, 4.0, 0.9
_WORK = np.cumsum(np.arange(1, HIGHEST + 1) + 1.0)  # slopes to an order; a factorisation counts as one
_GAIN = 0.9  # of the work per length of the order below, at which a step tries the order above


class Plan(NamedTuple):
    """The step to try next."""

    length: float
    order: int


def first_order(tolerance: float, highest: int) -> int:
    """An order to begin with."""
    return int(min(max(3, round(1.5 - 0.6 * math.log10(tolerance))), highest))


def accepted(errors: Errors) -> bool:
    """Whether a step is within its tolerances."""
    return bool(np.asarray(errors.orders)[int(errors.order) - 1] <= 1)


def next_plan(errors: Errors, tried: Plan, highest: int, longest: float) -> Plan:
    """The step after one that was tried, at most `longest`: of the order that promises the least work per length, or after a failure shorter."""
    reached, length = int(errors.order), tried.length
    orders, found = np.arange(2, reached + 1), np.asarray(errors.orders)[1:reached]
    if not np.isfinite(found).all():
        return Plan(_SHRINK * length, tried.order)
    factors = np.minimum(_SAFETY * np.maximum(found, 1e-16) ** (-1.0 / orders), _GROW)
    if not accepted(errors):
        return Plan(length * max(_SHRINK, float(factors[-1])), max(reached, tried.order))
    lengths = np.minimum(length * factors, longest)
    work = _WORK[orders - 1] / lengths
    best = int(np.argmin(work))
    order, chosen = int(orders[best]), float(lengths[best])
    if order == reached < highest and (best == 0 or work[best] < _GAIN * work[best - 1]):
        longer = min(chosen * _WORK[order] / _WORK[order - 1], _GROW * length, longest)
        return Plan(float(max(longer, chosen)), order + 1)
    return Plan(max(chosen, _SHRINK * length), order)
