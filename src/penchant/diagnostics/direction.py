"""How far a direction is from a reference direction, without cancellation."""

from typing import Any

import numpy as np


def misalignment(weight: Any, reference: Any) -> float:
    """1 - corr = |W/|W| - V/|V||^2 / 2, from the difference: exact down to about 1e-28, where `1 - dot` ends at 1e-16.

    >>> misalignment([1.0, 0.0], [1.0, 1e-9])          # the angle is 1e-9
    5e-19
    >>> misalignment([1.0, 0.0], [0.0, 2.0])
    1.0
    """
    weight, reference = np.ravel(np.asarray(weight, float)), np.ravel(np.asarray(reference, float))
    difference = weight / np.linalg.norm(weight) - reference / np.linalg.norm(reference)
    return float(0.5 * difference @ difference)


def misalignments(run: Any, reference: Any) -> np.ndarray:
    """1 - corr of a run's weight with a reference at every record; NaN where the weight is zero."""
    found = np.full(len(run), np.nan)
    for record in range(len(run)):
        weight = run.weight(record)
        if weight.any():
            found[record] = misalignment(weight, reference)
    return found
