"""Whether a start is near the minima, when the minima themselves are only known from a sample.

The spectral start of a sample is a minimum of the estimate, so its distance to the estimated minima says nothing: what counts
is how far the minima of an estimate are from the true ones. That error is drawn from the law of the estimate.
"""

from collections.abc import Iterator

import numpy as np
import scipy.linalg as sl

from ...theory.base import Hypothesis
from .setting.balanced_minima import nearest_minimum, polar
from .setting.curvature import balanced_point
from .setting.geometry import TwoSided
from .setting.problem import AttentionLayer, AttentionRegression
from .setting.sample import AttentionSample, noise_level

_DRAWS = 400
_LEVEL = 0.95  # quantile of the drawn errors


def start_errors(problem: AttentionRegression, samples: int, draws: int = _DRAWS, seed: int = 0) -> np.ndarray:
    """Two-sided distances of spectral starts of `samples` normal rows to the minima of the problem they were drawn from.

    The covariance of a sample has a Wishart law and least squares a normal one, so no sample is drawn, however large it is.

    >>> from penchant.papers.attention_regression.setting.generators import prescribed_spectrum
    >>> errors = start_errors(prescribed_spectrum(4, (0.05, 0.04, 0.03), 5.0, 11, 1e-3), 3200)
    >>> f"{np.sqrt(np.mean(errors**2)):.4f}"
    '0.0123'
    """
    stacked = balanced_point(problem)
    starts = _starts(problem, samples, draws, seed)
    return np.array([np.linalg.norm(start - stacked @ polar(stacked.T @ start)) for start in starts])


def start_excesses(problem: AttentionRegression, samples: int, draws: int = _DRAWS, seed: int = 0) -> np.ndarray:
    """Excesses of the same spectral starts."""
    m, target = problem.outputs, np.asarray(problem.target)
    starts = _starts(problem, samples, draws, seed)
    return np.array([np.sum((start[:m] @ start[m:].T - target) ** 2) for start in starts])


def _starts(problem: AttentionRegression, samples: int, draws: int, seed: int) -> Iterator[np.ndarray]:
    rng, target, deviation = np.random.default_rng(seed), np.asarray(problem.target), float(np.sqrt(problem.noise))
    return (_start(*_estimate(rng, target, deviation, samples)) for _ in range(draws))


def _estimate(
    rng: np.random.Generator, target: np.ndarray, deviation: float, samples: int
) -> tuple[np.ndarray, np.ndarray]:
    """Covariance and least-squares map of a sample whose inputs are white: whitening is exact, so no other case is needed."""
    m, d = target.shape
    lower = np.tril(rng.standard_normal((d, d)), -1) + np.diag(np.sqrt(rng.chisquare(samples - np.arange(d))))
    noise = deviation * rng.standard_normal((m, d))
    covariance = lower @ lower.T / samples
    return covariance, target + sl.solve_triangular(lower.T, noise.T, lower=False).T


def _start(covariance: np.ndarray, planted: np.ndarray) -> np.ndarray:
    """The spectral start of an estimate, whitened by the true covariance, which is the identity here."""
    values, vectors = np.linalg.eigh(covariance)
    root, back = (vectors * np.sqrt(values)) @ vectors.T, (vectors / np.sqrt(values)) @ vectors.T
    left, sizes, right = np.linalg.svd(planted @ root, full_matrices=False)
    signs = np.sign(right[np.arange(len(sizes)), np.abs(right).argmax(axis=1)])  # the convention of the gauge identity
    weights = signs * np.sqrt(sizes)
    return np.concatenate([(left * weights) @ back, back @ (right.T * weights) @ back])


def near_estimated_minima(sample: AttentionSample, layer: AttentionLayer) -> Hypothesis:
    """The start is within r_0 of the minima, by the distance to the estimated ones plus what the estimate may be wrong by.

    Undecided where that error, or that of r_0 = sqrt(4 s_d / 5), could change the answer. Both are first-order estimates.
    """
    problem, count = sample.estimated, sample.size
    found = nearest_minimum(problem, np.asarray(problem.whiten(layer)), TwoSided())
    error = float(np.quantile(start_errors(problem, count), _LEVEL))
    smallest, level = float(problem.sizes[-1]), noise_level(problem, count)
    least, most = (float(np.sqrt(0.8 * max(size, 0.0))) for size in (smallest - level, smallest + level))
    slack = least - found.distance - error
    holds = True if slack >= 0 else False if found.distance - error > most else None
    detail = (
        f"from {count} samples: r_0 = sqrt(4 s_d/5), at least {least:.3g} within the noise of s_d, minus the two_sided distance "
        f"{found.distance:.3g} to the estimated minima, minus their own error {error:.3g} (95 % of draws from the estimate)"
    )
    return Hypothesis("initialisation", holds, slack, f"component det R = {found.component:+d}", detail, "estimated")
