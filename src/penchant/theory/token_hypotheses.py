"""The assumptions of the self-attention theorems as computable conditions with slack and worst offender.

Constants the paper leaves open are ours; where a condition is sufficient but far from necessary, a failed check says nothing
about the run, and the prediction is made all the same.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from scipy.special import expit

from ..references.base import Solution
from ..settings.base import Data, Setting
from ..settings.losses import AbstractLoss
from ..settings.tokens import TokenSelection
from .base import Hypothesis, at_least_zero

_EQUAL = 1e-9


def token_bound(data: TokenSelection) -> float:
    """B: the length of the longest token or query."""
    return float(max(np.linalg.norm(data.tokens, axis=-1).max(), np.linalg.norm(data.queries, axis=-1).max()))


def feasible(reference: Solution) -> Hypothesis:
    """The optimal tokens can be selected with a positive margin."""
    return Hypothesis("feasible", True, reference.margin, "", "maximum margin per unit of norm")


def unique_optimal(data: TokenSelection) -> Hypothesis:
    """One best token per sample."""
    scores = np.sort(np.asarray(data.scores), axis=1)
    gaps = (scores[:, -1] - scores[:, -2]) / np.abs(scores).max()
    worst = int(gaps.argmin())
    single, gap = bool(gaps[worst] > _EQUAL), float(gaps[worst])
    return Hypothesis("unique_optimal", single, gap, f"sample {worst}", "relative score gap")


def equal_scores(data: TokenSelection) -> Hypothesis:
    """Assumption 2: all non-optimal tokens of a sample score the same."""
    deficits = np.asarray(data.deficits())
    spread = (deficits.max(axis=1) - deficits.min(axis=1)) / deficits.max()
    worst = int(spread.argmax())
    detail = "relative spread of the non-optimal scores"
    return at_least_zero("equal_scores", _EQUAL - spread[worst], f"sample {worst}", detail)


def near_orthogonal_tokens(data: TokenSelection) -> Hypothesis:
    """Assumption 1 token by token: 4 n T max |<x, x'>| / min(|x|^2, |x'|^2) <= 1 over distinct tokens that are not both optimal.

    A token that is 0 has no such ratio with any other: the assumption fails there.
    """
    n, length, d = data.tokens.shape
    tokens = np.asarray(data.tokens).reshape(n * length, d)
    optimal = np.zeros((n, length), bool)
    optimal[np.arange(n), np.asarray(data.optimal)] = True
    optimal = optimal.ravel()
    gram = tokens @ tokens.T
    squares = gram.diagonal()
    zero = np.flatnonzero(~tokens.any(axis=1))
    if len(zero):
        offender = f"sample {zero[0] // length} token {zero[0] % length}"
        return Hypothesis("near_orthogonal_tokens", False, -np.inf, offender, "the token is 0, so that no ratio exists")
    # Squares of tiny tokens may underflow to 0 all the same.
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = 4 * n * length * np.abs(gram) / np.minimum.outer(squares, squares)
    ratio[np.logical_and.outer(optimal, optimal) | np.eye(n * length, dtype=bool)] = 0.0
    ratio *= np.logical_and.outer(data.mask().ravel(), data.mask().ravel())
    ratio = np.nan_to_num(ratio, nan=np.inf)
    a, b = np.unravel_index(ratio.argmax(), ratio.shape)
    offender = f"sample {a // length} token {a % length} with sample {b // length} token {b % length}"
    return _ratio_at_most_one("near_orthogonal_tokens", ratio, offender)


def _ratio_at_most_one(name: str, ratio: np.ndarray, offender: str) -> Hypothesis:
    worst = float(ratio.max())
    return Hypothesis(name, worst <= 1, 1 - worst, offender, f"ratio {worst:.3g}, at most 1")


def attention_floor(setting: Setting, start: PyTree, length: float) -> float:
    """xi: attention on the optimal tokens that a run with steps of this length cannot fall below."""
    share = _optimal_share(setting, start)
    return float(min(share.min(), expit(-2 * token_bound(setting.data) ** 2 * length)))


def _optimal_share(setting: Setting, start: PyTree) -> np.ndarray:
    """Attention on the optimal token of each sample."""
    data: TokenSelection = setting.data
    share = np.exp(np.asarray(data.log_attention(setting.margins(start))))
    return share[np.arange(len(data.optimal)), np.asarray(data.optimal)]


def smallest_share(setting: Setting, start: PyTree) -> float:
    """The least attention that an optimal token has."""
    return float(_optimal_share(setting, start).min())


def near_orthogonal_pairs(data: TokenSelection, loss: AbstractLoss, floor: float) -> Hypothesis:
    """Assumption 1 in the form that is used: no sample's gradient can pull another, unsaturated sample backwards.

    With F_i(s) = deficit |l'| s (1 - s), the worst pull sum_j F_j^max max(-K)_+ must not exceed the sample's own F_i^min min K.
    """
    n, others = data.others.shape
    deficit, best = np.asarray(data.deficits()).max(axis=1), np.asarray(data.best_scores())

    slope = lambda share: np.asarray(loss.log_slope(jnp.asarray(best[:, None] - deficit[:, None] * (1 - share))))
    top = slope(np.array([floor, 1.0])).max()  # only ratios matter: a common factor keeps huge scores from overflowing

    def force(share: np.ndarray) -> np.ndarray:
        return deficit[:, None] * np.exp(slope(share) - top) * share * (1 - share)

    strongest = force(np.linspace(floor, 1.0, 4001)).max(axis=1)
    weakest = force(np.linspace(floor, 0.5, 4001)).min(axis=1)
    gram = np.asarray(data.gram()).reshape(n, others, n, others)
    pull = np.maximum(-gram, 0.0).max(axis=3)
    pull[np.arange(n), :, np.arange(n)] = 0.0
    own = gram[np.arange(n), :, np.arange(n), :].min(axis=2)
    push = weakest[:, None] * np.maximum(own, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(push > 0, np.einsum("itj,j->it", pull, strongest) / push, np.inf)
    i, t = np.unravel_index(ratio.argmax(), ratio.shape)
    return _ratio_at_most_one("near_orthogonal_pairs", ratio, f"sample {i} token {int(data.others[i, t])}")


def small_start(setting: Setting, start: PyTree, floor: float) -> Hypothesis:
    """The start leaves every optimal token at least the attention xi."""
    share = _optimal_share(setting, start)
    worst = int(share.argmin())
    return at_least_zero("small_start", share[worst] - floor, f"sample {worst}", "attention on the optimal token")


def longest_step(data: TokenSelection) -> float:
    """1/(2 B^2): no step may be longer."""
    return 1 / (2 * token_bound(data) ** 2)


def short_steps(length: float, data: TokenSelection) -> Hypothesis:
    """Normalised descent: steps no longer than 1/(2 B^2)."""
    bound = longest_step(data)
    return at_least_zero("short_steps", bound - length, "", f"step length, at most {bound:.3g}")


def small_step_size(step: float, data: TokenSelection, loss: AbstractLoss) -> Hypothesis:
    """Gradient descent: the longest possible step is no longer than 1/(2 B^2)."""
    deficit, best = np.asarray(data.deficits()).max(axis=1), np.asarray(data.best_scores())
    with np.errstate(over="ignore"):
        slope = deficit * np.exp(np.asarray(loss.log_slope(jnp.asarray(best - deficit))))
    longest, worst = float(step * 0.5 * token_bound(data) ** 2 * slope.max()), int(slope.argmax())
    return at_least_zero("small_step_size", longest_step(data) - longest, f"sample {worst}", "longest possible step")


def short_polyak_steps(setting: Setting, reference: Solution, c: float) -> Hypothesis:
    """Polyak's rule: the longest possible step, |W_mm| / (c xi), is no longer than 1/(2 B^2). Sufficient; few data satisfy it."""
    bound = longest_step(setting.data)
    longest = reference.value / (c * attention_floor(setting, setting.start(), bound))
    detail = f"longest possible step, at most {bound:.3g}: sufficient, far from necessary"
    return at_least_zero("short_polyak_steps", bound - longest, "", detail)


def stability_number(data: Data, reference: Solution) -> float:
    """chi: largest curvature of log excess across the limit direction, in units of a Polyak step; above 2c the step overshoots."""
    return float(reference.value**2 * np.linalg.eigvalsh(_curvature(data, reference))[-1])


def _curvature(data: Data, reference: Solution) -> np.ndarray:
    """The Gram matrix of the support pairs between the roots of their shares, without the direction of W_mm."""
    support = reference.support
    gram = np.asarray(data.gram())[np.ix_(support, support)]
    root = np.sqrt(reference.dual[support] / reference.dual[support].sum())
    return root[:, None] * gram * root[None, :] - np.outer(root, root) / reference.value**2


def critical_length(data: Data, reference: Solution) -> float:
    """2 |W_mm| / chi: normalised steps longer than this oscillate across the limit direction, and |W| grows by less than them."""
    chi = stability_number(data, reference)
    return 2 * reference.value / chi if chi > 1e-12 else float("inf")  # one support vector: there is nothing to cross


def stable_normalised(data: Data, reference: Solution, length: float) -> Hypothesis:
    """Normalised steps do not oscillate across the limit direction."""
    critical = critical_length(data, reference)
    return Hypothesis("stable_steps", length < critical, critical - length, "", f"2 |W_mm| / chi = {critical:.4g}")


def stable_polyak(data: Data, reference: Solution, c: float) -> Hypothesis:
    """Polyak's step does not oscillate across the limit direction: chi / c < 2."""
    ratio = stability_number(data, reference) / c
    return Hypothesis("stable_polyak", ratio < 2, 2 - ratio, "", f"chi / c = {ratio:.4g}, below 2")
