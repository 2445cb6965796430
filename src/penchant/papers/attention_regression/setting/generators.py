"""Attention regressions with random or prescribed spectra; each one is a function of its seed."""

from typing import Any

import equinox as eqx
import numpy as np

from ....errors import ArgumentError
from ....settings.check import real_array
from .problem import AttentionLayer, AttentionRegression, symmetric_roots


class AttentionExperiment(eqx.Module):
    """A problem, a sample of it (`inputs` n x d, `targets` n x m) and a random start."""

    problem: AttentionRegression
    inputs: np.ndarray
    targets: np.ndarray
    start: AttentionLayer


def _counts(owner: str, **values: Any) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise ArgumentError(name, owner, "a positive integer", repr(value))


def attention_experiment(
    m: int = 10, d: int = 5, *, n: int = 10_000, seed: int = 0, largest: float = 0.05, noise: float = 1e-3
) -> AttentionExperiment:
    """The experiments' data: a Wishart covariance of norm 1, a normal map scaled to `largest` singular value of A Sigma^(1/2), a normal start.

    >>> found = attention_experiment()
    >>> np.asarray(found.problem.sizes).round(4).tolist(), round(float(found.problem.excess(found.start)), 4)
    ([0.05, 0.0367, 0.0267, 0.007, 0.0026], 35.2732)
    """
    _counts("attention_experiment", m=m, d=d, n=n)
    for name, value in {"largest": largest, "noise": noise}.items():
        if not 0 < value < np.inf and not (name == "noise" and value == 0):
            raise ArgumentError(name, "attention_experiment", "positive and finite", value)
    rng = np.random.default_rng(seed)
    factor, planted = rng.standard_normal((d, d)), rng.standard_normal((m, d))
    covariance = factor @ factor.T
    covariance /= np.linalg.norm(covariance, 2)
    root, _, _ = symmetric_roots(covariance)
    planted *= largest / np.linalg.norm(planted @ root, 2)
    inputs = rng.standard_normal((n, d)) @ root
    targets = inputs @ planted.T + np.sqrt(noise) * rng.standard_normal((n, m))
    start = AttentionLayer(rng.standard_normal((m, d)), rng.standard_normal((d, d)))
    return AttentionExperiment(AttentionRegression(covariance, planted, noise), inputs, targets, start)


def prescribed_spectrum(
    m: int, sizes: Any, condition: float = 1.0, seed: int = 0, noise: float = 0.0
) -> AttentionRegression:
    """A problem with the given singular values of A Sigma^(1/2) and a covariance of norm 1 with the given condition number.

    There are d = len(sizes) inputs; with m < d only the first m sizes have room.

    >>> problem = prescribed_spectrum(4, (0.05, 0.03, 0.01), condition=5.0)
    >>> np.asarray(problem.sizes).round(12).tolist(), np.asarray(problem.spread).round(12).tolist()
    ([0.05, 0.03, 0.01], [0.2, 0.4472135955, 1.0])
    """
    owner = "prescribed_spectrum"
    sizes = real_array(sizes, "sizes", owner, "(d,)", 1)
    d = len(sizes)
    _counts(owner, m=m)
    if (sizes < 0).any() or (np.diff(sizes) > 0).any():
        raise ArgumentError("sizes", owner, "nonnegative and in decreasing order", sizes.tolist())
    if not 1 <= condition < 1e12:
        raise ArgumentError("condition", owner, "between 1 and 1e12", condition)
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.standard_normal((d, d)))[0]
    left = np.linalg.qr(rng.standard_normal((m, d)))[0]
    right = np.linalg.qr(rng.standard_normal((d, d)))[0]
    covariance = (axes * np.geomspace(1, 1 / condition, d)) @ axes.T
    _, inverse_root, _ = symmetric_roots(covariance)
    width = left.shape[1]
    return AttentionRegression(covariance, (left * sizes[:width]) @ right[:, :width].T @ inverse_root, noise)
