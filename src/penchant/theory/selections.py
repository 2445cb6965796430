"""Which tokens a run has settled on, and whether theory calls that a local direction.

The assumptions of the self-attention theorems as computable conditions with slack and worst offender.

Constants the paper leaves open are ours; where a condition is sufficient but far from necessary, a failed check says nothing
about the run, and the prediction is made all the same.
"""

from collections.abc import Callable
from itertools import product

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree
from scipy.special import expit

from ..diagnostics.direction import misalignment
from ..errors import ArgumentError, NonUniqueOptimalToken, NotSeparableError, UndecidedMargin
from ..references.base import Solution
from ..references.euclidean_margin import max_margin
from ..references.linear_programs import diagonal_margin
from ..references.norm_margin import nuclear_margin
from ..settings.base import Data, Setting
from ..settings.factored import DiagonalTokens, Hadamard, KeyQuery, PlusMinus, selection
from ..settings.joint import JointTokens
from ..settings.losses import AbstractLoss
from ..settings.tokens import TokenSelection
from ..training.trajectory import Trajectory
from .base import Hypothesis, at_least_zero
from .joint import SETTLED, JointLimit, detect_joint_limit

_ACTIVE = 1e-7  # a margin this close to 1 counts as active
_AT = 1e-2  # 1 - corr below which a run counts as being at a direction
_EXACT = 1e-10  # certified gap below which margins are known that well; above it, to its square root

Program = Callable[[TokenSelection], Solution]
PROGRAMS = {KeyQuery: nuclear_margin, Hadamard: diagonal_margin, PlusMinus: diagonal_margin}


class Selection(eqx.Module):
    """A choice of one token per sample with its maximum-margin direction, in the norm that `solution` names.

    `locally_optimal` holds if the direction exists and, in every sample, the chosen token scores better than every token
    whose margin is active; `slack` is the smallest such score difference (infinite if no margin is active) and `sample` where.
    """

    tokens: tuple[int, ...]
    locally_optimal: bool
    solution: Solution | None
    slack: float
    sample: int | None


class Limit(eqx.Module):
    """Where a run of token selection has gone.

    `kind` is "global" (the optimal tokens), "local" (other tokens) or "undecided" (attention is not concentrated yet). For a
    settled run: `misalignment` to the direction of the reached selection, and to the global one; `plateau` is the log excess
    the run tends to and `plateau_distance` how far it still is. Directions are those of the norm that the parametrisation
    minimises: Frobenius for W itself, nuclear for K and Q, l1 for their diagonals (`reached.solution.norm`).
    """

    kind: str
    tokens: tuple[int, ...]
    reached: Selection | None
    misalignment: float
    global_misalignment: float
    plateau: float
    plateau_distance: float

    @property
    def at_local_direction(self) -> bool:
        """Whether the run is at the direction of wrong tokens, ten times nearer than to the global one."""
        return self.kind == "local" and self.misalignment <= _AT and self.global_misalignment > 10 * self.misalignment

    def describe_local(self) -> str:
        """The wrong tokens of a settled run, how near it is to their direction, and the plateau of the loss there."""
        kind = "locally optimal" if self.reached is not None and self.reached.locally_optimal else "not locally optimal"
        near = f"1 - corr {self.misalignment:.3g}, plateau at log excess {self.plateau:.6g}"
        return f"local direction of tokens {list(self.tokens)} ({kind}), {near}"


def is_locally_optimal(data: TokenSelection, tokens: tuple[int, ...], program: Program = max_margin) -> Selection:
    """Decide local optimality of a selection in the sense of Tarzanagh et al., for the directions that `program` gives."""
    chosen = tuple(int(token) for token in tokens)
    try:
        marked = data.select(np.asarray(chosen))
        solution = program(marked)
    except (NotSeparableError, NonUniqueOptimalToken, UndecidedMargin):
        return Selection(chosen, False, None, float("nan"), None)
    margins = np.asarray(marked.margins(jax.device_put(solution.weight))).reshape(marked.others.shape)
    scores = np.asarray(data.scores)
    own, others = scores[np.arange(len(chosen)), list(chosen)], np.asarray(marked.others)
    gap = own[:, None] - np.take_along_axis(scores, others, axis=1)
    tolerance = _ACTIVE if solution.bracket.gap <= _EXACT else float(np.sqrt(solution.bracket.gap))
    gap = np.where(np.abs(margins - 1) <= tolerance, gap, np.inf)
    sample = int(gap.min(axis=1).argmin())
    return Selection(chosen, bool(gap.min() > 0), solution, float(gap.min()), sample)


def locally_optimal_selections(data: TokenSelection, limit: int = 4096, around: object = None) -> list[Selection]:
    """All locally optimal selections, by enumeration; beyond `limit` selections only those within one sample of `around`.

    `around` is the selection a run has reached (`detect_limit(run).tokens`), or the optimal one by default.

    >>> from penchant.settings.generators import local_pair
    >>> [found.tokens for found in locally_optimal_selections(local_pair(1.0, 0.1))]
    [(1, 0), (1, 1)]
    """
    n, length = data.scores.shape
    tried = product(range(length), repeat=n) if length**n <= limit else _flips(data, around, limit)
    found = (is_locally_optimal(data, tokens) for tokens in tried)
    return [selection for selection in found if selection.locally_optimal]


def _flips(data: TokenSelection, around: object, limit: int) -> list[tuple[int, ...]]:
    """A selection and all that differ from it in one sample."""
    n, length = data.scores.shape
    if n * (length - 1) + 1 > limit:
        found = f"{n * (length - 1) + 1} selections within one sample"
        raise ArgumentError("limit", "locally_optimal_selections", "at least the number of flips", found)
    first = np.asarray(data.optimal if around is None else around)
    data.select(first)  # names what is wrong with it
    tried = [first]
    for sample, token in product(range(n), range(length)):
        if token != first[sample]:
            flipped = first.copy()
            flipped[sample] = token
            tried.append(flipped)
    return [tuple(int(token) for token in tokens) for tokens in tried]


def program_of(setting: Setting) -> Program:
    """The margin program that the parametrisation of a token-selection setting is led to; its weight is a matrix."""
    solve = PROGRAMS.get(type(setting.parametrisation), max_margin)
    if not isinstance(setting.data, DiagonalTokens):
        return solve

    def diagonal(tokens: TokenSelection) -> Solution:
        found = solve(DiagonalTokens(tokens))
        return Solution(found.norm, np.diag(found.weight), found.dual, found.bracket, found.measure)

    return diagonal


def detect_limit(run: Trajectory) -> Limit | JointLimit:
    """Name where a token-selection run has gone, from its last record, as a `Limit`; of joint training, with the programs of both blocks, as a `JointLimit`."""
    return detect_joint_limit(run) if isinstance(run.data, JointTokens) else token_limit(run)


def token_limit(run: Trajectory) -> Limit:
    """The same of attention alone."""
    data, weight, program = selection(run.data), run.weight(), program_of(run.setting)
    if data is None:
        raise ArgumentError("run", "detect_limit", "a run on `TokenSelection` data", type(run.data).__name__)
    weight = weight if data is run.data else np.diag(weight)
    shares = np.exp(np.asarray(data.log_attention(jax.device_put(run.margins[-1]))))
    tokens = tuple(int(token) for token in shares.argmax(axis=1))
    nan = float("nan")
    if shares.max(axis=1).min() < SETTLED:
        return Limit("undecided", tokens, None, nan, nan, nan, nan)
    scores = np.asarray(data.scores)[np.arange(len(tokens)), list(tokens)]
    best = np.asarray(data.best_scores())
    is_global = bool(np.all(best - scores <= 0) or np.array_equal(tokens, data.optimal))
    reached = is_locally_optimal(data, tokens, program)
    near = misalignment(weight, reached.solution.weight) if reached.solution is not None else nan
    try:
        wide = near if is_global else misalignment(weight, program(data).weight)
    except (NotSeparableError, UndecidedMargin):
        wide = nan
    plateau = -np.inf if is_global else _plateau(run, scores, best)
    distance = np.inf if is_global else abs(float(run.log_excess[-1]) - plateau)
    return Limit("global" if is_global else "local", tokens, reached, near, wide, float(plateau), float(distance))


def _plateau(run: Trajectory, scores: np.ndarray, best: np.ndarray) -> float:
    """log excess with all attention on the reached tokens."""
    deficit = best - scores
    with np.errstate(divide="ignore"):
        gaps = np.asarray(run.setting.loss.log_gap(jax.device_put(best), jax.device_put(np.log(deficit))))
    gaps = np.where(deficit > 0, gaps, -np.inf)
    total = float(np.logaddexp.reduce(gaps))
    return total - (np.log(len(gaps)) if run.setting.reduction == "mean" else 0.0)


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

    slope = lambda share: np.asarray(loss.log_slope(jax.device_put(best[:, None] - deficit[:, None] * (1 - share))))
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
    return _ratio_at_most_one("near_orthogonal_pairs", ratio, f"sample {i} token {int(np.asarray(data.others)[i, t])}")


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
        slope = deficit * np.exp(np.asarray(loss.log_slope(jax.device_put(best - deficit))))
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
    support = reference.support
    gram = np.asarray(data.gram())[np.ix_(support, support)]
    root = np.sqrt(reference.dual[support] / reference.dual[support].sum())
    curvature = root[:, None] * gram * root[None, :] - np.outer(root, root) / reference.value**2
    return float(reference.value**2 * np.linalg.eigvalsh(curvature)[-1])


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
