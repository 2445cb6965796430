r"""Exponential moments of attention logits for Gaussian covariates, exact: where they are finite, finite-sample theory holds.

With the whitened key-query matrix $\tilde V$: the self-logit has $E e^{p x^\top Vx} = \det(I - 2p\,\mathrm{sym}\tilde V)^{-1/2}$, the logit of an independent key
$E e^{p x'^\top Vx} = \det(I - p^2\tilde V^\top\tilde V)^{-1/2}$. Both are infinite where the matrix inside is not positive definite.
"""

from typing import Any

import numpy as np

from ....errors import ArgumentError
from .problem import AttentionRegression


def _log_inverse_root(matrix: np.ndarray) -> float:
    """log det(matrix)^(-1/2), infinite where the matrix is not positive definite."""
    values = np.linalg.eigvalsh(matrix)
    return float(-0.5 * np.sum(np.log(values))) if values[0] > 0 else np.inf


def log_self_moment(whitened_key: Any, power: float) -> float:
    """log E exp(power x'Vx).

    >>> f"{log_self_moment([[0.1, 0.0], [0.0, 0.0]], 2.0):.6f}", log_self_moment([[0.3, 0.0], [0.0, 0.0]], 2.0)
    ('0.255413', inf)
    """
    key = np.asarray(whitened_key, float)
    return _log_inverse_root(np.eye(len(key)) - power * (key + key.T))


def log_cross_moment(whitened_key: Any, power: float) -> float:
    """log E exp(power x'Vy) for independent x and y."""
    key = np.asarray(whitened_key, float)
    return _log_inverse_root(np.eye(len(key)) - power**2 * key.T @ key)


def moment_threshold(power: float) -> float:
    """A3(p): the largest size s_1 for which the p-th moment of the self-logit is finite at every balanced minimum, 1/(4 p^2)."""
    if not 0 < power < np.inf:
        raise ArgumentError("power", "moment_threshold", "positive and finite", power)
    return 1 / (4 * power**2)


def integrable_radius(problem: AttentionRegression, power: float = 2.0) -> float:
    """Two-sided distance from the minima within which the p-th moments stay finite: 1/(2p) - sqrt(s_1), negative where A3 fails."""
    return float(np.sqrt(moment_threshold(power)) - np.sqrt(float(problem.sizes[0])))


def key_strength(whitened: Any, outputs: int) -> tuple[float, float]:
    """Largest eigenvalue of sym V and operator norm of V, whitened: below 1/(2p) and 1/p the p-th moments are finite."""
    key = np.asarray(whitened, float)[outputs:].T
    return float(np.linalg.eigvalsh((key + key.T) / 2)[-1]), float(np.linalg.norm(key, 2))


def first_violation(whitened: Any, outputs: int, power: float = 2.0) -> int | None:
    """Index of the first iterate (leading axis) whose p-th moments are infinite; None if there is none."""
    for k, one in enumerate(np.asarray(whitened, float)):
        top, norm = key_strength(one, outputs)
        if not (2 * power * top < 1 and power * norm < 1):
            return k
    return None
