"""Small data sets with known answers; each one is a function of its seed."""

from collections.abc import Sequence

import equinox as eqx
import jax
import numpy as np

from ..errors import ArgumentError
from .classification import Classification, Multiclass
from .factored import Factors
from .regression import Regression
from .tokens import TokenSelection


def _positive(owner: str, least: int = 0, **values: float | int) -> None:
    for name, value in values.items():
        if not value > least:
            raise ArgumentError(name, owner, f"above {least}" if least else "positive", value)


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
    """Two parallel strips in the plane, tilted by `tilt` degrees: a wide separable cloud whose two support vectors lie far apart."""
    _positive("strips", 1, n=n)
    _positive("strips", gap=gap, spread=spread, half=half)
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


def clusters(classes: int, d: int, n: int, spread: float = 1.0, seed: int = 0) -> Multiclass:
    """Normal class means, labels 0, 1, ..., k - 1, 0, 1, ..., and inputs at a normal distance of `spread` from the mean of their class.

    >>> clusters(4, 8, 12).weight_shape
    (4, 8)
    """
    _positive("clusters", 1, classes=classes, n=n)
    _positive("clusters", d=d, spread=spread)
    rng, labels = np.random.default_rng(seed), np.arange(n) % classes
    means = rng.standard_normal((classes, d))
    return Multiclass(means[labels] + spread * rng.standard_normal((n, d)), labels, classes)


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
    _positive("signal_tokens", 1, length=length, d=d)
    _positive("signal_tokens", n=n, signal=signal, noise=noise)
    rng = np.random.default_rng(seed)
    labels = rng.choice([-1, 1], n)
    tokens = noise * rng.standard_normal((n, length, d))
    means = np.zeros((2, d))
    means[0, 0] = signal
    means[1, 0 if antipodal else 1] = -signal if antipodal else signal
    tokens[:, :, : 1 if antipodal else 2] = 0.0
    ranges = {"random": (0, length), "not_first": (1, length), "first": (0, 1)}
    if position not in ranges:
        raise ArgumentError("position", "signal_tokens", "'random', 'first' or 'not_first'", repr(position))
    where = rng.integers(*ranges[position], n)  # the last draw
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
    n: int, length: int, d: int, seed: int, *, equal_scores: bool = False, queries: object = None
) -> TokenSelection:
    """Normal tokens of unit expected length, with a random head (or, if `equal_scores`, score 1 for one token and 0 for the rest)."""
    _positive("random_tokens", 1, length=length)
    _positive("random_tokens", n=n, d=d)
    rng = np.random.default_rng(seed)
    tokens = rng.standard_normal((n, length, d)) / np.sqrt(d)
    if equal_scores:
        scores = np.zeros((n, length))
        scores[np.arange(n), rng.integers(0, length, n)] = 1.0
        return TokenSelection(tokens, scores=scores, queries=queries)
    labels = rng.choice([-1, 1], n)
    return TokenSelection(tokens, labels, rng.standard_normal(d), queries=queries)


def sparse_regression(
    n: int = 40,
    d: int = 100,
    sparsity: int = 5,
    seed: int = 0,
    *,
    signed: bool = True,
    unit_columns: bool = False,
    size: float = 1.0,
) -> tuple[Regression, np.ndarray]:
    """Normal inputs and targets of a sparse weight: its first entries are `size`, with random signs if `signed`. Returns data and weight.

    `unit_columns` scales every column to mean square 1.

    >>> data, weight = sparse_regression(4, 6, 2)
    >>> data.inputs.shape, weight.tolist()
    ((4, 6), [-1.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    """
    _positive("sparse_regression", n=n, d=d, sparsity=sparsity, size=size)
    if sparsity > d:
        raise ArgumentError("sparsity", "sparse_regression", f"at most d = {d}", sparsity)
    rng = np.random.default_rng(seed)
    inputs = rng.standard_normal((n, d))
    if unit_columns:
        inputs = inputs / np.sqrt((inputs**2).mean(axis=0))
    weight = np.zeros(d)
    weight[:sparsity] = size * (rng.choice([-1, 1], sparsity) if signed else 1.0)
    return Regression(inputs, inputs @ weight), weight


def equal_score_tokens(n: int, length: int, d: int, seed: int, *, gap: float = 6.0) -> TokenSelection:
    """Normal tokens and queries with labels +1, -1, +1, ...; the optimal token scores `gap`, every other one exactly 0.

    The head has norm `gap`, so the geometry of the tokens does not depend on the gap.

    >>> equal_score_tokens(3, 4, 5, seed=0).deficits().round(9).max()
    Array(6., dtype=float64)
    """
    _positive("equal_score_tokens", 1, length=length)
    _positive("equal_score_tokens", n=n, d=d, gap=gap)
    rng = np.random.default_rng(seed)
    head = rng.standard_normal(d)
    head *= gap / np.linalg.norm(head)
    labels = np.where(np.arange(n) % 2 == 0, 1.0, -1.0)
    tokens, queries = rng.standard_normal((n, length, d)), rng.standard_normal((n, d))
    scores = np.zeros((n, length))
    scores[np.arange(n), rng.integers(0, length, n)] += gap
    tokens += (labels[:, None] * scores - tokens @ head)[..., None] * head / (head @ head)
    # Scores as they are meant: read off the tokens they would differ by rounding, which decides who wins on a plateau.
    return TokenSelection(tokens, queries=queries, scores=scores)


class Aligned(eqx.Module):
    """Token data that satisfy Assumption 4, with the orthogonal matrices U_K and U_Q of Definition 5.1.

    `strengths` b_i = (1 - c_i) |x_opt| |q| give the maximum-margin matrix sum_i u_i^K u_i^Q' / b_i of both norms.
    """

    data: TokenSelection
    key_basis: np.ndarray
    query_basis: np.ndarray
    strengths: np.ndarray

    def solution(self) -> np.ndarray:
        n = len(self.strengths)
        return (self.key_basis[:, :n] / self.strengths) @ self.query_basis[:, :n].T

    def start(self, scales: object, width: int, seed: int) -> Factors:
        """An aligned start: K = U_K L_K V', Q = U_Q L_Q V', where in each coordinate one of the two diagonals is sqrt(2) scale."""
        d = len(self.key_basis)
        scales = np.broadcast_to(np.asarray(scales, float), (d,))
        if width < d:
            raise ArgumentError("width", "Aligned.start", f"at least {d}", width)
        _positive("Aligned.start", scales=scales.min())
        rng = np.random.default_rng(seed)
        frame = np.linalg.qr(rng.standard_normal((width, width)))[0]
        picked = rng.integers(0, 2, d).astype(bool)
        diagonal = lambda chosen: np.where(chosen, np.sqrt(2) * scales, 0.0)[:, None] * frame.T[:d]
        sides = self.key_basis @ diagonal(picked), self.query_basis @ diagonal(~picked)
        return Factors(*jax.device_put(sides))

    def residual(self, params: Factors) -> float:
        """How far the rows of U_K'K and U_Q'Q are from one common orthogonal frame: 0 if the parameters are aligned."""
        keys, queries = self.key_basis.T @ np.asarray(params.key), self.query_basis.T @ np.asarray(params.query)
        off = 0.0
        for a, b in ((keys, keys), (queries, queries), (keys, queries)):
            product = a @ b.T
            off = max(off, float(np.linalg.norm(product - np.diag(product.diagonal()))))
        return float(off / (np.linalg.norm(keys) ** 2 + np.linalg.norm(queries) ** 2))


def aligned_tokens(
    lengths: Sequence[float] = (1.0, 1.5, 0.8),
    query_lengths: Sequence[float] = (1.0, 0.7, 1.2),
    shares: object = (0.05, 0.0, -0.05),
    *,
    tokens: int = 5,
    d: int = 6,
    score: float = 12.0,
    outside: float = 1.0,
    parallel: bool = True,
    seed: int = 1,
) -> Aligned:
    """Assumptions 2 and 4: orthogonal optimal tokens, queries along them, the other tokens in pairs c x_opt +- e. Labels are
    +1, -1, +1, ..., and so are the signs of the queries.

    `lengths` and `query_lengths` of optimal tokens and queries, `shares` c in [-1, 1), one per sample, or one per sample and
    pair, which keeps Assumption 2 only pair by pair; `outside` is the part of the head outside the span of the optimal
    tokens, without which the nuclear-norm solution need not be unique; without `parallel` the queries have an orthogonal
    frame of their own, which drops Assumption 4 (ii) alone.
    """
    a, b, c = (np.asarray(value, float) for value in (lengths, query_lengths, shares))
    n, pairs = len(a), (tokens - 1) // 2
    for name, holds, required, found in (
        ("tokens", tokens % 2 == 1 and tokens >= 3, "odd and at least 3: the other tokens come in pairs", tokens),
        ("query_lengths", len(b) == n, f"one per sample ({n})", len(b)),
        ("d", n < d, f"above the number of samples ({n})", d),
        ("shares", ((c >= -1) & (c < 1)).all(), "in [-1, 1)", c),
        ("shares", c.shape in ((n,), (n, pairs)), f"of shape {(n,)} or {(n, pairs)}", f"shape {c.shape}"),
    ):
        if not holds:
            raise ArgumentError(name, "aligned_tokens", required, found)
    c = np.broadcast_to(c if c.ndim == 2 else c[:, None], (n, pairs))
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    query_basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    noise = rng.standard_normal((n, pairs, d))
    optimal = rng.integers(0, tokens, n)
    signs = np.where(np.arange(n) % 2 == 0, 1.0, -1.0)
    query_basis = basis * np.append(signs, np.ones(d - n)) if parallel else query_basis
    head = basis[:, :n] @ (signs * score / a) + outside * basis[:, n]  # labels +1, -1, +1, ...
    found, scores = np.zeros((n, tokens, d)), np.zeros((n, tokens))
    for i in range(n):
        frame = np.linalg.qr(np.column_stack([basis[:, i], head]))[0]
        apart = noise[i]
        for _ in range(2):  # twice, for rounding
            apart = apart - apart @ frame @ frame.T
        best = a[i] * basis[:, i]
        others = np.concatenate([[share * best + e, share * best - e] for share, e in zip(c[i], apart, strict=True)])
        found[i] = np.insert(others, optimal[i], best, axis=0)
        scores[i] = np.insert(score * np.repeat(c[i], 2), optimal[i], score)
    data = TokenSelection(found, queries=b[:, None] * query_basis[:, :n].T, scores=scores)
    return Aligned(data, basis, query_basis, (1 - c.max(axis=1)) * a * b)


def contrary_pair(gaps: tuple[float, float], others: tuple[float, float]) -> TokenSelection:
    """Two samples of two tokens whose differences (1, 0) and (-2, 1) pull against each other: where Assumption 3 matters."""
    differences = np.array([[1.0, 0.0], [-2.0, 1.0]])
    head = np.linalg.solve(differences, np.asarray(gaps, float))
    second = np.outer(others, head) / (head @ head)
    tokens = np.stack([second + differences, second], axis=1)
    return TokenSelection(tokens, np.ones(2), head, queries=np.ones((2, 2)))
