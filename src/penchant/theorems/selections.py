"""Which tokens a run has settled on, and whether theory calls that a local direction."""

from itertools import product
from typing import overload

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ..diagnostics.direction import misalignment
from ..errors import ArgumentError, InfeasibleSVM, NonUniqueOptimalToken, UndecidedMargin
from ..references.base import Solution
from ..references.euclidean_margin import max_margin
from ..settings.diagonal import DiagonalTokens
from ..settings.tokens import TokenSelection
from ..training.joint import JointTrajectory
from ..training.trajectory import Trajectory
from .joint_limits import JointLimit, detect_joint_limit

_ACTIVE = 1e-7  # a margin this close to 1 counts as active


class Selection(eqx.Module):
    """A choice of one token per sample with its maximum-margin direction.

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
    the run tends to and `plateau_distance` how far it still is.
    """

    kind: str
    tokens: tuple[int, ...]
    reached: Selection | None
    misalignment: float
    global_misalignment: float
    plateau: float
    plateau_distance: float


def is_locally_optimal(data: TokenSelection, tokens: tuple[int, ...]) -> Selection:
    """Decide local optimality of a selection in the sense of Tarzanagh et al."""
    chosen = tuple(int(token) for token in tokens)
    try:
        marked = data.select(np.asarray(chosen))
        solution = max_margin(marked)
    except (InfeasibleSVM, NonUniqueOptimalToken, UndecidedMargin):
        return Selection(chosen, False, None, float("nan"), None)
    margins = np.asarray(marked.margins(jnp.asarray(solution.weight))).reshape(marked.others.shape)
    scores = np.asarray(data.scores)
    gap = scores[np.arange(len(chosen)), list(chosen)][:, None] - np.take_along_axis(
        scores, np.asarray(marked.others), axis=1
    )
    gap = np.where(np.abs(margins - 1) <= _ACTIVE, gap, np.inf)
    sample = int(gap.min(axis=1).argmin())
    return Selection(chosen, bool(gap.min() > 0), solution, float(gap.min()), sample)


def locally_optimal_selections(data: TokenSelection, limit: int = 4096) -> list[Selection]:
    """All locally optimal selections, by enumeration."""
    n, length = data.scores.shape
    if length**n > limit:
        raise ArgumentError(
            "data",
            "locally_optimal_selections",
            f"small enough for {limit} selections",
            f"{length}^{n}",
            "use `detect_limit(run)`",
        )
    found = (is_locally_optimal(data, tokens) for tokens in product(range(length), repeat=n))
    return [selection for selection in found if selection.locally_optimal]


@overload
def detect_limit(run: Trajectory) -> Limit: ...
@overload
def detect_limit(run: JointTrajectory) -> JointLimit: ...
def detect_limit(run: Trajectory | JointTrajectory) -> Limit | JointLimit:
    """Name where a token-selection run has gone, from its last record; of a joint run, with the programs of both blocks."""
    if isinstance(run, JointTrajectory):
        return detect_joint_limit(run)
    data, weight = run.setting.data, run.weight()
    if isinstance(data, DiagonalTokens):
        data, weight = data.tokens, np.diag(weight)
    if not isinstance(data, TokenSelection):
        raise ArgumentError("run", "detect_limit", "a run on `TokenSelection` data", type(data).__name__)
    shares = np.exp(np.asarray(data.log_attention(jnp.asarray(run.margins[-1]))))
    tokens = tuple(int(token) for token in shares.argmax(axis=1))
    nan = float("nan")
    if shares.max(axis=1).min() < 0.9:
        return Limit("undecided", tokens, None, nan, nan, nan, nan)
    scores = np.asarray(data.scores)[np.arange(len(tokens)), list(tokens)]
    best = np.asarray(data.best_scores())
    is_global = bool(np.all(best - scores <= 0) or np.array_equal(tokens, data.optimal))
    reached = is_locally_optimal(data, tokens)
    near = misalignment(weight, reached.solution.weight) if reached.solution is not None else nan
    try:
        wide = near if is_global else misalignment(weight, max_margin(data).weight)
    except (InfeasibleSVM, UndecidedMargin):
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
