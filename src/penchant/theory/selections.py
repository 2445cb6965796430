"""Which tokens a run has settled on, and whether theory calls that a local direction."""

from collections.abc import Callable
from itertools import product

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ..diagnostics.direction import misalignment
from ..errors import ArgumentError, InfeasibleError, NonUniqueOptimalToken, UndecidedMargin
from ..references.base import Solution
from ..references.euclidean_margin import max_margin
from ..references.norm_margin import nuclear_margin
from ..references.polyhedral_margin import diagonal_margin
from ..settings.base import Setting
from ..settings.diagonal import DiagonalTokens
from ..settings.factored import Hadamard, KeyQuery, PlusMinus
from ..settings.joint import JointTokens
from ..settings.tokens import TokenSelection
from ..training.trajectory import Trajectory
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
    except (InfeasibleError, NonUniqueOptimalToken, UndecidedMargin):
        return Selection(chosen, False, None, float("nan"), None)
    margins = np.asarray(marked.margins(jnp.asarray(solution.weight))).reshape(marked.others.shape)
    scores = np.asarray(data.scores)
    gap = scores[np.arange(len(chosen)), list(chosen)][:, None] - np.take_along_axis(
        scores, np.asarray(marked.others), axis=1
    )
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
    data, weight, program = run.setting.data, run.weight(), program_of(run.setting)
    if isinstance(data, DiagonalTokens):
        data, weight = data.tokens, np.diag(weight)
    if not isinstance(data, TokenSelection):
        raise ArgumentError("run", "detect_limit", "a run on `TokenSelection` data", type(data).__name__)
    shares = np.exp(np.asarray(data.log_attention(jnp.asarray(run.margins[-1]))))
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
    except (InfeasibleError, UndecidedMargin):
        wide = nan
    plateau = -np.inf if is_global else _plateau(run, scores, best)
    distance = np.inf if is_global else abs(float(run.log_excess[-1]) - plateau)
    return Limit("global" if is_global else "local", tokens, reached, near, wide, float(plateau), float(distance))


def _plateau(run: Trajectory, scores: np.ndarray, best: np.ndarray) -> float:
    """log excess with all attention on the reached tokens."""
    deficit = best - scores
    with np.errstate(divide="ignore"):
        gaps = np.asarray(run.setting.loss.log_gap(jnp.asarray(best), jnp.asarray(np.log(deficit))))
    gaps = np.where(deficit > 0, gaps, -np.inf)
    total = float(np.logaddexp.reduce(gaps))
    return total - (np.log(len(gaps)) if run.setting.reduction == "mean" else 0.0)
