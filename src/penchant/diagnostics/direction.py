"""How far a direction is from a reference direction, without cancellation."""

from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..settings.parametrisations import Gram


def misalignment(weight: Any, reference: Any) -> float:
    """1 - corr = |W/|W| - V/|V||^2 / 2, from the difference: exact down to about 1e-28, where `1 - dot` ends at 1e-16.

    >>> misalignment([1.0, 0.0], [1.0, 1e-9])          # the angle is 1e-9
    5e-19
    >>> misalignment([1.0, 0.0], [0.0, 2.0])
    1.0

    NaN if either is 0, which has no direction.
    """
    weight, reference = np.asarray(weight, float), np.asarray(reference, float)
    if weight.shape != reference.shape:
        raise ArgumentError("reference", "misalignment", f"of shape {weight.shape}", f"shape {reference.shape}")
    weight, reference = weight.ravel(), reference.ravel()
    sizes = np.linalg.norm(weight), np.linalg.norm(reference)
    if 0.0 in sizes:
        return float("nan")
    difference = weight / sizes[0] - reference / sizes[1]
    return float(0.5 * difference @ difference)


def misalignments(run: Any, reference: Any) -> np.ndarray:
    """1 - corr of a run's weight with a reference solution at every record; NaN where the weight is zero."""
    if isinstance(run.setting.parametrisation, Gram):
        return _in_gram_form(run, np.asarray(reference.dual))
    found = np.full(len(run), np.nan)
    for record in np.flatnonzero(run.norm > 0):
        found[record] = misalignment(run.weight(int(record)), reference.weight)
    return found


def _in_gram_form(run: Any, dual: np.ndarray) -> np.ndarray:
    """The same in coefficients: W = frozen part + sum of c_k Z_k and V = sum of dual_k Z_k, with <Z_k, Z_l> = K_kl."""
    gram = run.setting.parametrisation
    matrix, frozen = np.asarray(gram.matrix), float(gram.frozen)
    norm = np.where(run.norm > 0, run.norm, np.nan)[:, None]
    inside = (run.params.coefficients + np.asarray(gram.shift)) / norm
    difference = inside - dual / np.sqrt(dual @ matrix @ dual)
    return 0.5 * (np.einsum("rk,kl,rl->r", difference, matrix, difference, optimize=True) + frozen / norm[:, 0] ** 2)
