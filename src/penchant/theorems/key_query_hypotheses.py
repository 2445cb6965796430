"""The assumptions of the key-query theorems as computable conditions with slack and worst offender."""

from itertools import combinations
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.optimize import linear_sum_assignment

from ..settings.base import Setting
from ..settings.tokens import TokenSelection
from .base import Hypothesis

_ZERO = 1e-9  # relative size below which an equality counts as exact


def initial_loss(setting: Setting, tokens: TokenSelection, start: Any) -> Hypothesis:
    """Assumption 3: the loss at the start is below that of every point where one sample attends to a wrong token only.

    Compared as log(L - L*) with min_j log((l(worst_j) - l(best_j))/n), which needs no cancellation; sufficient, not necessary.
    """
    deficit, best = np.asarray(tokens.deficits()).max(axis=1), tokens.best_scores()
    gaps = np.asarray(setting.loss.log_gap(best, jnp.log(jnp.asarray(deficit))))
    if setting.reduction == "mean":
        gaps = gaps - np.log(len(gaps))
    if len(gaps) == 1:
        return Hypothesis("initial_loss", True, float("inf"), "", "one sample: always true")
    worst = int(gaps.argmin())
    slack = float(gaps[worst] - setting.weigh(setting.margins(start)).log_excess)
    return Hypothesis(
        "initial_loss", slack >= 0, slack, f"sample {worst}", "log of (allowed excess / excess at the start)"
    )


def orthogonal_optimal(data: TokenSelection) -> Hypothesis:
    """Assumption 4 (i): optimal tokens mutually orthogonal, queries mutually orthogonal."""
    best = np.asarray(jnp.take_along_axis(data.tokens, data.optimal[:, None, None], axis=1))[:, 0]
    worst, offender = 0.0, ""
    for name, rows in (("optimal tokens", best), ("queries", np.asarray(data.queries))):
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        for i, j in combinations(range(len(unit)), 2):
            size = abs(float(unit[i] @ unit[j]))
            if size > worst:
                worst, offender = size, f"{name} of samples {i} and {j}"
    return Hypothesis("orthogonal_optimal", worst <= _ZERO, _ZERO - worst, offender, "largest cosine")


def parallel_queries(data: TokenSelection) -> Hypothesis:
    """Assumption 4 (ii): each query is parallel to the optimal token of its sample."""
    best = np.asarray(jnp.take_along_axis(data.tokens, data.optimal[:, None, None], axis=1))[:, 0]
    queries = np.asarray(data.queries)
    cosine = np.abs((best * queries).sum(axis=1)) / np.linalg.norm(best, axis=1) / np.linalg.norm(queries, axis=1)
    worst = int(cosine.argmin())
    return Hypothesis(
        "parallel_queries",
        bool(1 - cosine[worst] <= _ZERO),
        float(_ZERO - 1 + cosine[worst]),
        f"sample {worst}",
        "1 - |cosine|",
    )


def paired_tokens(data: TokenSelection) -> Hypothesis:
    """Assumption 4 (iii): the other tokens of a sample come in pairs c x_opt +- e with e orthogonal to x_opt and -1 <= c < 1."""
    n, others = data.others.shape
    if others % 2:
        return Hypothesis(
            "paired_tokens", False, -1.0, "every sample", "an odd number of other tokens cannot be paired"
        )
    residuals = [_pairing(*_split(data, i)) for i in range(n)]
    worst = int(np.argmax(residuals))
    return Hypothesis(
        "paired_tokens",
        bool(residuals[worst] <= _ZERO),
        float(_ZERO - residuals[worst]),
        f"sample {worst}",
        "largest mismatch of a pair",
    )


def _split(data: TokenSelection, sample: int) -> tuple[np.ndarray, np.ndarray]:
    tokens = np.asarray(data.tokens[sample])
    return tokens[int(data.optimal[sample])], tokens[np.asarray(data.others[sample])]


def _pairing(best: np.ndarray, others: np.ndarray) -> float:
    """The largest mismatch of the best pairing, over the length of the longest token; infinite if some c is not in [-1, 1)."""
    square = best @ best
    along = others @ best / square
    across = others - along[:, None] * best
    cost = np.linalg.norm(across[:, None] + across[None], axis=-1) + np.sqrt(square) * np.abs(
        along[:, None] - along[None]
    )
    np.fill_diagonal(cost, 1e3 * (1 + cost.max()))
    rows, partners = linear_sum_assignment(cost)
    if not np.array_equal(partners[partners], rows):  # not an involution: no exact pairing exists
        return float(cost[rows, partners].max() + _ZERO * 10)
    if not ((along >= -1 - _ZERO) & (along < 1)).all():
        return float("inf")
    longest = max(np.linalg.norm(best), np.linalg.norm(others, axis=1).max())
    return float(cost[rows, partners].max() / longest)


def wide_enough(width: int, shape: tuple[int, ...], rank: int) -> Hypothesis:
    """The width does not constrain the rank of W; below the dimension the program is not convex, but the relaxation may fit."""
    least = min(shape)
    detail = (
        "no constraint on the rank of W"
        if width >= least
        else f"rank <= {width} makes the program non-convex; the certified relaxation has rank {rank}, "
        + ("so it solves the constrained program too" if rank <= width else "so the constrained optimum may be larger")
    )
    return Hypothesis("wide_enough", width >= least or rank <= width, float(width - min(least, rank)), "", detail)


def limit_exists() -> Hypothesis:
    """The theorem assumes that W / margin converges; no finite run can check it."""
    return Hypothesis("limit_exists", None, float("nan"), "", "assumed by the theorem, not checkable")
