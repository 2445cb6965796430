"""Token data for separately trained keys and queries; each one is a function of its seed."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ..errors import ArgumentError
from .factored import Factors
from .tokens import TokenSelection


def equal_score_tokens(
    n: int, length: int, d: int, seed: int, *, gap: float = 6.0, other: float = 0.0
) -> TokenSelection:
    """Normal tokens and queries with labels +1, -1, +1, ...; the optimal token scores `other + gap`, every other one exactly `other`.

    The head has norm `gap`, so the geometry of the tokens does not depend on the gap.

    >>> equal_score_tokens(3, 4, 5, seed=0).deficits().round(9).max()
    Array(6., dtype=float64)
    """
    for name, value, least in (("n", n, 1), ("length", length, 2), ("d", d, 1)):
        if value < least:
            raise ArgumentError(name, "equal_score_tokens", f"at least {least}", value)
    if not gap > 0:
        raise ArgumentError("gap", "equal_score_tokens", "positive", gap)
    rng = np.random.default_rng(seed)
    head = rng.standard_normal(d)
    head *= gap / np.linalg.norm(head)
    labels = np.where(np.arange(n) % 2 == 0, 1.0, -1.0)
    tokens, queries = rng.standard_normal((n, length, d)), rng.standard_normal((n, d))
    scores = np.full((n, length), float(other))
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

    def start(self, scales: Any, width: int, seed: int) -> Factors:
        """An aligned start: K = U_K L_K V', Q = U_Q L_Q V', where in each coordinate one of the two diagonals is sqrt(2) scale."""
        d = len(self.key_basis)
        scales = np.broadcast_to(np.asarray(scales, float), (d,))
        if width < d or not (scales > 0).all():
            raise ArgumentError(
                "width" if width < d else "scales",
                "Aligned.start",
                f"at least {d}" if width < d else "positive",
                width if width < d else scales,
            )
        rng = np.random.default_rng(seed)
        frame = np.linalg.qr(rng.standard_normal((width, width)))[0]
        picked = rng.integers(0, 2, d).astype(bool)
        diagonal = lambda chosen: np.where(chosen, np.sqrt(2) * scales, 0.0)[:, None] * frame.T[:d]
        return Factors(
            jnp.asarray(self.key_basis @ diagonal(picked)), jnp.asarray(self.query_basis @ diagonal(~picked))
        )

    def residual(self, params: Factors) -> float:
        """How far the rows of U_K'K and U_Q'Q are from one common orthogonal frame: 0 if the parameters are aligned."""
        keys, queries = self.key_basis.T @ np.asarray(params.key), self.query_basis.T @ np.asarray(params.query)
        off = 0.0
        for a, b in ((keys, keys), (queries, queries), (keys, queries)):
            product = a @ b.T
            off = max(off, float(np.linalg.norm(product - np.diag(product.diagonal()))))
        return float(off / (np.linalg.norm(keys) ** 2 + np.linalg.norm(queries) ** 2))


def aligned_tokens(
    lengths: Any = (1.0, 1.5, 0.8),
    query_lengths: Any = (1.0, 0.7, 1.2),
    shares: Any = (0.05, 0.0, -0.05),
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
    if tokens % 2 == 0 or tokens < 3:
        raise ArgumentError("tokens", "aligned_tokens", "odd and at least 3: the other tokens come in pairs", tokens)
    if len(b) != n:
        raise ArgumentError("query_lengths", "aligned_tokens", f"one per sample ({n})", len(b))
    if n >= d:
        raise ArgumentError("d", "aligned_tokens", f"above the number of samples ({n})", d)
    if not ((c >= -1) & (c < 1)).all():
        raise ArgumentError("shares", "aligned_tokens", "in [-1, 1)", c)
    if c.shape not in ((n,), (n, pairs)):
        raise ArgumentError("shares", "aligned_tokens", f"of shape {(n,)} or {(n, pairs)}", f"shape {c.shape}")
    c = np.broadcast_to(c if c.ndim == 2 else c[:, None], (n, pairs))
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    query_basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    noise = rng.standard_normal((n, pairs, d))
    optimal = rng.integers(0, tokens, n)
    signs = np.where(np.arange(n) % 2 == 0, 1.0, -1.0)
    query_basis = basis * np.append(signs, np.ones(d - n)) if parallel else query_basis
    head = (
        basis[:, :n] @ (signs * score / a) + outside * basis[:, n]
    )  # labels +1, -1, +1, ..., as in `equal_score_tokens`
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
