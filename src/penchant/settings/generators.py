"""Small data sets with known answers; each one is a function of its seed."""

from typing import Any

import numpy as np

from ..errors import ArgumentError
from .classification import Classification
from .regression import Regression
from .tokens import TokenSelection


def _positive(owner: str, **values: Any) -> None:
    for name, value in values.items():
        if not value > 0:
            raise ArgumentError(name, owner, "positive", value)


def separable(n: int = 30, d: int = 4, seed: int = 5) -> Classification:
    """Normal inputs made separable by a first coordinate above 1/2 (in the direction of the label).

    >>> separable().signed.shape
    (30, 4)
    """
    _positive("separable", n=n, d=d)
    rng = np.random.default_rng(seed)
    signed = rng.standard_normal((n, d))
    signed[:, 0] = 0.5 + np.abs(rng.standard_normal(n))
    return Classification(signed, np.ones(n))


def _in_unit_ball(inputs: np.ndarray, labels: np.ndarray) -> Classification:
    return Classification(inputs / np.linalg.norm(inputs, axis=1).max(), labels)


def strips(
    seed: int = 0, n: int = 40, tilt: float = 15.0, gap: float = 0.8, spread: float = 0.7, half: float = 6.0
) -> Classification:
    """Two parallel strips in the plane, tilted by `tilt` degrees: a wide separable cloud whose two support vectors lie far apart.

    >>> strips().signed.shape
    (40, 2)
    """
    _positive("strips", n=n - 1, gap=gap, spread=spread, half=half)
    rng, angle = np.random.default_rng(seed), np.deg2rad(tilt)
    labels = np.where(np.arange(n) < n // 2, 1.0, -1.0)
    along = rng.uniform(-half, half, n)
    away = labels * (gap + np.abs(rng.normal(0.0, spread, n)))
    inputs = np.outer(along, [np.cos(angle), np.sin(angle)]) + np.outer(away, [-np.sin(angle), np.cos(angle)])
    return _in_unit_ball(inputs, labels)


def teacher(n: int, d: int, seed: int = 0, push: float = 0.0) -> Classification:
    """Normal inputs labelled by a random unit teacher, and pushed away from its boundary by `push`."""
    _positive("teacher", n=n, d=d)
    rng = np.random.default_rng(seed)
    inputs, direction = rng.standard_normal((n, d)), rng.standard_normal(d)
    direction /= np.linalg.norm(direction)
    labels = np.where(inputs @ direction >= 0, 1.0, -1.0)
    return _in_unit_ball(inputs + push * np.outer(labels, direction), labels)


def blobs(n: int, d: int, seed: int = 0, centre: float = 4.0) -> Classification:
    """Signed points z ~ N(centre e_1, I): two opposite blobs, with fewer support vectors than dimensions."""
    _positive("blobs", n=n, d=d)
    signed = np.random.default_rng(seed).standard_normal((n, d))
    signed[:, 0] += centre
    return _in_unit_ball(signed, np.ones(n))


def signal_tokens(
    n: int = 10,
    length: int = 6,
    d: int = 300,
    signal: float = 2.0,
    noise: float = 0.1,
    seed: int = 0,
    *,
    antipodal: bool = False,
    position: str = "random",
) -> TokenSelection:
    """One token per sample is the mean of its class, the others are noise orthogonal to both means (Example 1 of the paper).

    The class means are orthogonal, or opposite if `antipodal`; the decoder gives the signal token the score 1 and every
    other token exactly 0. `position` of the signal token: "random", "first" or "not_first".
    """
    _positive("signal_tokens", n=n, length=length - 1, d=d - 1, signal=signal, noise=noise)
    rng = np.random.default_rng(seed)
    labels = rng.choice([-1, 1], n)
    tokens = noise * rng.standard_normal((n, length, d))
    means = np.zeros((2, d))
    means[0, 0] = signal
    means[1, 0 if antipodal else 1] = -signal if antipodal else signal
    tokens[:, :, : 1 if antipodal else 2] = 0.0
    if position == "random":
        where = rng.integers(0, length, n)
    elif position == "not_first":
        where = rng.integers(1, length, n)
    elif position == "first":
        where = np.zeros(n, int)
    else:
        raise ArgumentError("position", "signal_tokens", "'random', 'first' or 'not_first'", repr(position))
    tokens[np.arange(n), where] = means[np.where(labels == 1, 0, 1)]
    head = means[0] / signal**2 if antipodal else (means[0] - means[1]) / signal**2
    return TokenSelection(tokens, labels, head)


def local_pair(first: float = 1.0, second: float = 0.1) -> TokenSelection:
    """Two samples of two tokens with score gaps `first` and `second`: a small second gap sends training to a local direction."""
    _positive("local_pair", first=first, second=second)
    e1, e2, e3 = np.eye(3)
    tokens = np.array([[e3, e3 + e1], [e3, e3 - 2 * e1 + e2]])
    return TokenSelection(tokens, np.ones(2), np.array([first, second + 2 * first, 0.0]))


def local_single() -> TokenSelection:
    """One sample, three tokens with scores 0, 1 and 0.9: training selects the third although the second is best."""
    tokens = np.array([[[0.0, 0.0, 1.0], [-2.0, 0.5, 1.0], [4.0, 0.0, 1.0]]])
    return TokenSelection(tokens, np.ones(1), np.array([0.225, 2.9, 0.0]))


def random_tokens(
    n: int, length: int, d: int, seed: int, *, equal_scores: bool = False, **options: Any
) -> TokenSelection:
    """Normal tokens of unit expected length, with a random head (or, if `equal_scores`, score 1 for one token and 0 for the rest)."""
    _positive("random_tokens", n=n, length=length - 1, d=d)
    rng = np.random.default_rng(seed)
    tokens = rng.standard_normal((n, length, d)) / np.sqrt(d)
    if equal_scores:
        scores = np.zeros((n, length))
        scores[np.arange(n), rng.integers(0, length, n)] = 1.0
        return TokenSelection(tokens, scores=scores, **options)
    labels = rng.choice([-1, 1], n)
    return TokenSelection(tokens, labels, rng.standard_normal(d), **options)


def sparse_regression(
    n: int = 40, d: int = 100, sparsity: int = 5, seed: int = 0, *, signed: bool = True, unit_columns: bool = False
) -> tuple[Regression, np.ndarray]:
    """Normal inputs and targets of a sparse weight: its first entries are 1, with random signs if `signed`. Returns data and weight.

    `unit_columns` scales every column to mean square 1.

    >>> data, weight = sparse_regression(4, 6, 2)
    >>> data.inputs.shape, weight.tolist()
    ((4, 6), [-1.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    """
    _positive("sparse_regression", n=n, d=d, sparsity=sparsity)
    if sparsity > d:
        raise ArgumentError("sparsity", "sparse_regression", f"at most d = {d}", sparsity)
    rng = np.random.default_rng(seed)
    inputs = rng.standard_normal((n, d))
    if unit_columns:
        inputs = inputs / np.sqrt((inputs**2).mean(axis=0))
    weight = np.zeros(d)
    weight[:sparsity] = rng.choice([-1, 1], sparsity) if signed else 1.0
    return Regression(inputs, inputs @ weight), weight
