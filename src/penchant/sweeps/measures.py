"""What is measured at the end of a run, by name: functions of the run and of what it was made of."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..diagnostics.direction import misalignment
from ..errors import ArgumentError
from ..references.euclidean_margin import max_margin
from ..theory.selections import PROGRAMS, detect_limit
from ..training.trajectory import Trajectory

Measure = Callable[[Trajectory, Any], float | str]


def _misalignment(run: Trajectory, one: Any) -> float:
    """1 - corr to the solution of the program that the parametrisation solves: Frobenius or l2, nuclear, l1."""
    solve = PROGRAMS.get(type(run.setting.parametrisation), max_margin)
    return misalignment(run.weight(), solve(run.setting.data).weight)


def _planted(one: Any) -> np.ndarray:
    if one.truth is None:
        raise ArgumentError(
            "measures", "a sweep", "left out without a planted weight (generator sparse_regression)", "recovery"
        )
    return one.truth


def _recovery(run: Trajectory, one: Any) -> float:
    """Squared distance to the planted weight over its squared norm."""
    planted = _planted(one)
    return float(((run.weight() - planted) ** 2).sum() / (planted**2).sum())


def _l1_ratio(run: Trajectory, one: Any) -> float:
    return float(np.abs(run.weight()).sum() / np.abs(_planted(one)).sum())


MEASURES: dict[str, Measure] = {
    "misalignment": _misalignment,
    "limit": lambda run, one: detect_limit(run).kind,
    "recovery": _recovery,
    "l1_ratio": _l1_ratio,
    "l1_norm": lambda run, one: float(np.abs(run.weight()).sum()),
    "l2_norm": lambda run, one: float(np.linalg.norm(run.weight())),
}
