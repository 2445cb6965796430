"""Sparse recovery: restricted isometry, which is hard to compute and bounded here, and the signal and noise of squared parameters."""

from collections.abc import Sequence
from itertools import combinations, islice
from math import comb

import equinox as eqx
import numpy as np
from numpy.typing import ArrayLike

from ..errors import ArgumentError
from ..settings.check import is_whole, real_array
from ..settings.regression import Regression

_ENUMERATED = 1_000_000  # supports tried, all of them
_CHUNK = 20_000  # at a time
_STARTS, _ROUNDS = 50, 30


class Isometry(eqx.Module):
    """lower <= delta_s <= upper; `support` attains the lower bound; `exact` if every support was tried.

    A bound above 1 proves nothing about recovery: the condition is sufficient, not necessary.
    """

    lower: float
    upper: float
    exact: bool
    support: tuple[int, ...]


def restricted_isometry(inputs: object, sparsity: object, seed: int = 0, *, most: int | None = None) -> Isometry:
    """Bounds on delta_s = max over supports T of size s of |A_TT - I|, with A = X'X/n; exact with at most `most` supports (1e6 by default)."""
    rows = real_array(inputs, "inputs", "restricted_isometry", "(n, d)", 2)
    n, d = rows.shape
    if not (is_whole(sparsity) and 1 <= sparsity <= d):
        raise ArgumentError("sparsity", "restricted_isometry", f"an integer between 1 and {d}", repr(sparsity))
    size = int(sparsity)
    excess = rows.T @ rows / n - np.eye(d)
    if comb(d, size) <= (_ENUMERATED if most is None else most):
        support = _enumerate(excess, size)
        value = _deviation(excess, support)
        return Isometry(value, value, True, support)
    support, own = _search(excess, size, np.random.default_rng(seed)), np.diag(excess)
    circles = np.abs(own).max() + (size - 1) * np.abs(excess - np.diag(own)).max()  # Gershgorin's
    upper = float(min(circles, np.abs(np.linalg.eigvalsh(excess)).max()))
    return Isometry(_deviation(excess, support), upper, False, tuple(int(j) for j in support))


def _enumerate(excess: np.ndarray, sparsity: int) -> tuple[int, ...]:
    """The support of largest deviation, by trying all."""
    supports, best, most = combinations(range(len(excess)), sparsity), (), -np.inf
    while len(chunk := np.array(list(islice(supports, _CHUNK)))):
        values = np.abs(np.linalg.eigvalsh(excess[chunk[:, :, None], chunk[:, None, :]])).max(axis=1)
        if values.max() > most:
            best, most = tuple(int(j) for j in chunk[values.argmax()]), values.max()
    return best


def _deviation(excess: np.ndarray, support: Sequence[int] | np.ndarray) -> float:
    index = list(support)
    return float(np.abs(np.linalg.eigvalsh(excess[np.ix_(index, index)])).max())


def _search(excess: np.ndarray, sparsity: int, rng: np.random.Generator) -> np.ndarray:
    """Truncated power iteration from the heaviest columns and from random starts, both ends of the spectrum."""
    d = len(excess)
    best, most = np.arange(sparsity), -np.inf
    shift = np.abs(excess).sum(axis=1).max()
    starts = [*np.eye(d)[np.argsort(-np.abs(excess).max(axis=1))[:_STARTS]], *rng.standard_normal((_STARTS, d))]
    for sign in (1.0, -1.0):
        matrix = sign * excess + shift * np.eye(d)
        for vector in starts:
            support = best
            for _ in range(_ROUNDS):
                vector = matrix @ vector
                support = np.argpartition(-np.abs(vector), sparsity - 1)[:sparsity]
                kept = np.zeros(d)
                kept[support] = vector[support]
                vector = kept / np.linalg.norm(kept)
            if _deviation(excess, support) > most:
                best, most = np.sort(support), _deviation(excess, support)
    return best


class Decomposition(eqx.Module):
    r"""$\beta^t = r_te_1 + \zeta_t$ along a run (records first): `signal` r, `noise` $\zeta$ (its first entry is 0), and the parts of the gradient
    $[(r^2-1)e_1 - u + v]\odot\beta$ with $u = (r^2-1)(I-A)e_1$, $v = A(\zeta\odot\zeta)$."""

    signal: np.ndarray
    noise: np.ndarray
    u: np.ndarray
    v: np.ndarray


def decompose(data: Regression, params: ArrayLike) -> Decomposition:
    """Split the parameters (records x d) of a run on squares with truth e_1."""
    path, inputs = np.asarray(params), np.asarray(data.inputs)
    gram = inputs.T @ inputs / len(inputs)
    signal, noise = path[:, 0], path.copy()
    noise[:, 0] = 0.0
    u = (signal**2 - 1)[:, None] * (np.eye(len(gram))[0] - gram[0])
    v = noise**2 @ gram
    return Decomposition(signal, noise, u, v)
