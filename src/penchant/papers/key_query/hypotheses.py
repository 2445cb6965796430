"""The assumptions of the key-query theorems as computable conditions with slack and worst offender."""

from itertools import combinations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ...problem import read_once
from ...settings.base import Setting
from ...settings.factored import Factors, Pair
from ...settings.losses import AbstractLoss
from ...settings.tokens import TokenSelection
from ...theory.base import Hypothesis, at_least_zero
from ...training.trajectory import Trajectory

_ZERO = 1e-9  # relative size below which an equality counts as exact


_log_gap = eqx.filter_jit(lambda loss, best, deficit: loss.log_gap(best, jnp.log(deficit)))


def initial_loss(setting: Setting, tokens: TokenSelection, start: PyTree) -> Hypothesis:
    """Assumption 3: the loss at the start is below that of every point where one sample attends to a wrong token only.

    The wrong token that costs least is the second best one of a sample; the paper's Assumption 2 makes all others as bad.
    Compared as log(L - L*) with min_j log((l(second_j) - l(best_j))/n), which needs no cancellation; sufficient, not necessary.
    """
    others, best = np.asarray(tokens.deficits()), tokens.best_scores()
    deficit = np.where(np.asarray(tokens.tied), np.inf, others).min(axis=1)
    gaps = np.asarray(_log_gap(setting.loss, best, deficit))
    if setting.reduction == "mean":
        gaps = gaps - np.log(len(gaps))
    if len(gaps) == 1 and deficit[0] == others.max():
        return Hypothesis("initial_loss", True, float("inf"), "", "one sample, its other tokens alike: always true")
    worst = int(gaps.argmin())
    token = int(np.flatnonzero(others[worst] == deficit[worst])[0])
    slack = float(gaps[worst]) - float(read_once(setting, start).log_excess)
    offender = f"sample {worst} token {int(np.asarray(tokens.others)[worst, token])}"
    detail = "log of (excess with all attention of that sample on that token / excess at the start)"
    return at_least_zero("initial_loss", slack, offender, detail)


def exponential_loss(loss: AbstractLoss) -> Hypothesis:
    """The paper trains with the exponential loss throughout; for another one its conclusions are conjectures."""
    holds = loss.kind == "exponential"
    detail = (
        "the loss the theorem is proved for" if holds else "proved for the exponential loss only; a conjecture here"
    )
    return Hypothesis("exponential_loss", holds, 1.0 if holds else -1.0, "" if holds else type(loss).__name__, detail)


def _optimal_tokens(data: TokenSelection) -> np.ndarray:
    return np.asarray(data.tokens)[np.arange(len(data.optimal)), np.asarray(data.optimal)]


def _directions(rows: np.ndarray) -> np.ndarray:
    """Rows of length 1; a row of zeros has no direction and stays 0."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1.0)


def _without_direction(data: TokenSelection) -> tuple[str, str] | None:
    """The first sample whose optimal token is 0, and why that matters."""
    zero = np.flatnonzero(~_optimal_tokens(data).any(axis=1))
    why = "its optimal token is 0: no direction (shifting all tokens of a sample keeps its margins, not Assumption 4)"
    return (f"sample {zero[0]}", why) if len(zero) else None


def orthogonal_optimal(data: TokenSelection) -> Hypothesis:
    """Assumption 4 (i): optimal tokens mutually orthogonal, queries mutually orthogonal."""
    worst, offender = 0.0, ""
    for name, rows in (("optimal tokens", _optimal_tokens(data)), ("queries", np.asarray(data.queries))):
        unit = _directions(rows)
        for i, j in combinations(range(len(unit)), 2):
            size = abs(float(unit[i] @ unit[j]))
            if size > worst:
                worst, offender = size, f"{name} of samples {i} and {j}"
    return at_least_zero("orthogonal_optimal", _ZERO - worst, offender, "largest cosine")


def parallel_queries(data: TokenSelection) -> Hypothesis:
    """Assumption 4 (ii): each query is parallel to the optimal token of its sample."""
    rows, columns = data.weight_shape
    if rows != columns:
        detail = f"tokens have {rows} dimensions, queries {columns}: none can be parallel"
        return Hypothesis("parallel_queries", False, -1.0, "every sample", detail)
    if missing := _without_direction(data):
        return Hypothesis("parallel_queries", False, -1.0, *missing)
    cosine = np.abs((_directions(_optimal_tokens(data)) * _directions(np.asarray(data.queries))).sum(axis=1))
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
    found = pairings(data)
    if not found:
        why = "an odd number of other tokens cannot be paired"
        return Hypothesis("paired_tokens", False, -1.0, "every sample", why)
    residuals = [sample.residual for sample in found]
    worst = int(np.argmax(residuals))
    return at_least_zero("paired_tokens", _ZERO - residuals[worst], f"sample {worst}", "largest mismatch of a pair")


def pairwise_scores(data: TokenSelection) -> Hypothesis:
    """Assumption 2 as far as Lemma 5.1 needs it: the two tokens of each pair score the same."""
    found, scores = pairings(data), np.asarray(data.scores)
    if not found:
        return Hypothesis("pairwise_scores", False, -1.0, "every sample", "the other tokens cannot be paired")
    others = np.asarray(data.others)
    spread = [
        max(abs(np.diff(scores[i, others[i, list(pair)]])[0]) for pair in one.pairs) for i, one in enumerate(found)
    ]
    worst, size = int(np.argmax(spread)), 1 + np.abs(scores).max()
    slack = float(_ZERO - spread[worst] / size)
    return at_least_zero("pairwise_scores", slack, f"sample {worst}", "relative score difference in a pair")


class Pairing(eqx.Module):
    """The other tokens of one sample in pairs (indices among the others), the share c of each pair, and the largest mismatch.

    The mismatch is relative to the longest token, and infinite if some c is not in [-1, 1).
    """

    pairs: tuple[tuple[int, int], ...]
    shares: tuple[float, ...]
    residual: float


def pairings(data: TokenSelection) -> tuple[Pairing, ...]:
    """A pairing of every sample, exact where there is one; empty where the number of other tokens is odd, or not the same everywhere."""
    n, others = data.others.shape
    return (
        () if others % 2 or bool(np.asarray(data.padded).any()) else tuple(_pairing(*_split(data, i)) for i in range(n))
    )


def _split(data: TokenSelection, sample: int) -> tuple[np.ndarray, np.ndarray]:
    tokens = np.asarray(data.tokens)[sample]
    return tokens[np.asarray(data.optimal)[sample]], tokens[np.asarray(data.others)[sample]]


def _pairing(best: np.ndarray, others: np.ndarray) -> Pairing:
    square = best @ best
    along = others @ best / (square if square > 0 else 1.0)
    across = others - along[:, None] * best
    cost = np.linalg.norm(across[:, None] + across[None], axis=-1)
    cost = cost + np.sqrt(square) * np.abs(along[:, None] - along[None])
    pairs = _matching(cost)
    shares = tuple(float(along[list(pair)].mean()) for pair in pairs)
    longest = max(np.linalg.norm(best), np.linalg.norm(others, axis=1).max())
    inside = all(-1 - _ZERO <= share < 1 for share in shares)
    return Pairing(pairs, shares, float(max(cost[pair] for pair in pairs) / longest) if inside else float("inf"))


def _matching(cost: np.ndarray) -> tuple[tuple[int, int], ...]:
    """Each token with the nearest of those that are left: exact where an exact pairing exists, for then all partners of a token at cost 0 are alike."""
    left, pairs = list(range(len(cost))), []
    while left:
        token = left.pop(0)
        pairs.append((token, left.pop(int(cost[token, left].argmin()))))
    return tuple(pairs)


def one_sided_start(params: Pair) -> Hypothesis:
    """Equation (5): in every coordinate one of the two diagonals starts at 0 and the other does not."""
    first, second = np.asarray(params.first), np.asarray(params.second)
    size = first**2 + second**2
    product = np.abs(first * second) / np.where(size > 0, size, 1.0)
    frozen = np.flatnonzero(size == 0)
    worst = int(frozen[0]) if len(frozen) else int(product.argmax())
    slack = -1.0 if len(frozen) else float(_ZERO - product[worst])
    detail = "both factors are 0: it never moves" if len(frozen) else "|a b| / (a^2 + b^2)"
    return at_least_zero("one_sided_start", slack, f"coordinate {worst}", detail)


def aligned_start(data: TokenSelection, params: Factors) -> Hypothesis:
    """Definition 5.1: in the frame of the optimal tokens and of the queries, K and Q are diagonal up to one common rotation.

    The rows of U_K'K and U_Q'Q are orthogonal to one another and across the two, parallel sample by sample; outside the data
    K'K and Q'Q commute and do not meet those rows.
    """
    if missing := _without_direction(data):
        return Hypothesis("aligned_start", False, -1.0, *missing)
    frames = [_directions(rows) for rows in (_optimal_tokens(data), np.asarray(data.queries))]
    factors = [np.asarray(leaf) for leaf in (params.key, params.query)]
    size = sum((factor**2).sum() for factor in factors)
    if size == 0:
        return Hypothesis("aligned_start", False, -1.0, "K = Q = 0", "a stationary point: nothing ever moves")
    inside = [frame @ factor for frame, factor in zip(frames, factors, strict=True)]
    outside = [factor - frame.T @ rows for frame, factor, rows in zip(frames, factors, inside, strict=True)]
    (keys, queries), (key_rest, query_rest) = inside, outside
    apart = lambda product: np.linalg.norm(product - np.diag(product.diagonal()))
    lengths = np.linalg.norm(keys, axis=1) * np.linalg.norm(queries, axis=1)
    residuals = {
        "rows not orthogonal": max(apart(a @ b.T) for a, b in ((keys, keys), (queries, queries), (keys, queries))),
        "rows not parallel": np.abs(np.abs((keys * queries).sum(axis=1)) - lengths).max(),
        "rest meets the data": max(np.linalg.norm(rest @ rows.T) for rest in outside for rows in inside),
    }
    squares = [rest.T @ rest for rest in (key_rest, query_rest)]
    residuals["rests do not commute"] = np.linalg.norm(squares[0] @ squares[1] - squares[1] @ squares[0]) / size
    offender = max(residuals, key=lambda name: residuals[name])
    slack = float(_ZERO - residuals[offender] / size)
    return at_least_zero("aligned_start", slack, offender, "residual over |K|^2 + |Q|^2")


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


def moved(run: Trajectory) -> str:
    """How far W / margin has moved since the margin was e times smaller: the theorems assume that it converges."""
    margin = run.smallest_margin()
    before = np.flatnonzero((margin > 0) & (margin <= margin[-1] / np.e))
    if margin[-1] <= 0 or not len(before):
        return ""
    record = int(before[-1])
    now, then = run.weight() / margin[-1], run.weight(record) / margin[record]
    apart = np.linalg.norm(now - then) / np.linalg.norm(now)
    return f"W / margin has moved by {apart:.2g} of its length since margin {margin[record]:.3g}"
