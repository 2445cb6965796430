"""Where training on a sample settles: the law that applies to a run, whether the run has settled, and the verdict."""

from typing import Any

import equinox as eqx
import numpy as np

from ...errors import ThresholdError
from ...training.status import Status
from ...verdict import Outcome, Verdict
from .setting.balanced_minima import nearest_minimum
from .setting.context_bias import oracle_shift, sample_floor, scaled
from .setting.geometry import TwoSided, split_gradient
from .setting.problem import AttentionLayer, AttentionRegression, ScaleFreeBalance, Unregularised
from .setting.sample import UNRELIABLE
from .theorems import asymptotic_factor
from .training.algorithm1 import AttentionRun, total_gradient
from .training.rules import AbstractAttentionRule, AdaptiveStep, PreconditionedDescent, safe_step
from .training.sources import AbstractSource, FullSample

FACTOR = 4.0  # one data set scatters about the mean that the law is about
_SETTLED = 0.25  # of the floor: what may still change in a run that has settled


class Floor(eqx.Module):
    """A law for the excess after training, its value (None where it is infinite or unknown) and the part of it that is bias."""

    law: str
    value: float | None
    bias: float | None = None


def regular(problem: AttentionRegression) -> bool:
    """A2: the estimated map has full column rank."""
    return problem.rank == problem.inputs


def predicted_floor(
    problem: AttentionRegression, count: int, gauge: str | np.ndarray = "identity", within: int | None = None
) -> Floor:
    """v/n + b_2/n^2 on n = `count` samples in a gauge, or v/n + b_2/B^2 where batches of B = `within` attend within themselves.

    Batches whose keys are all samples have unbiased gradients, so `within` is None for them.
    """
    law = "v/n + b_2/n^2" if within is None else f"v/n + b_2/B^2 with B = {within}"
    try:
        spread = sample_floor(problem) / count
        if not regular(problem):
            return Floor("v/n", spread)
        bias = oracle_shift(problem, gauge, sample_balance=within is None).excess / (within or count) ** 2
    except ThresholdError:
        return Floor(law, None)
    return Floor(law, spread + bias, bias)


def scaled_floor(problem: AttentionRegression, count: int, factor: float, within: int | None = None) -> Floor:
    """v/n at the minima of scale c = `factor`, where regulariser and steps do not see c; b_2 is known at c = 1 only."""
    law = f"v/n at the scale c = {factor:.3g}"
    if within is not None:
        return Floor(f"{law} + b_2/B^2, of which b_2 is known at c = 1 only", None)
    try:
        return Floor(law, sample_floor(problem, factor) / count)
    except ThresholdError:
        return Floor(law, None)


def layer_scale(problem: AttentionRegression, layer: AttentionLayer) -> float:
    """The c of a layer (c U, V/c): that which makes both whitened norms equal when it is undone."""
    whitened = problem.whiten(layer)
    return float(ScaleFreeBalance().scale(whitened[: problem.outputs], whitened[problem.outputs :]))


def start_gauge(problem: AttentionRegression, layer: AttentionLayer) -> np.ndarray:
    """The rotation of the minimum nearest to a layer."""
    return nearest_minimum(problem, np.asarray(problem.whiten(layer)), TwoSided()).rotation


def unsettled(
    run: AttentionRun, source: AbstractSource, rule: PreconditionedDescent | AbstractAttentionRule, floor: float
) -> str:
    """Why the excess may still move by a quarter of the floor; empty once it cannot."""
    if run.steps[-1] == 0:
        return "no step was taken"
    if isinstance(source, FullSample):
        return _still_descending(run, source, rule, floor)
    return _still_fluctuating(run, rule, floor)


def _still_descending(run: AttentionRun, source: AbstractSource, rule: Any, floor: float) -> str:
    """The gradient across the minima, over the least curvature 2 s_d, bounds the way that is left; |W| = sqrt(2 s_1) makes it an excess."""
    balance = rule.balance if isinstance(rule, PreconditionedDescent) else Unregularised()
    problem, m = run.problem, run.problem.outputs
    sizes, whitened = np.asarray(problem.sizes), problem.whiten(run.at())
    scale = balance.scale(whitened[:m], whitened[m:])  # 1 unless the regulariser is blind to it
    level = np.asarray(scaled(whitened, m, 1 / scale))
    gradient = np.asarray(scaled(total_gradient(source, run.at(), balance), m, scale))
    if isinstance(balance, ScaleFreeBalance):
        gradient = _without(gradient, np.concatenate([level[:m], -level[m:]]))  # c itself changes no excess
    normal = split_gradient(level, gradient)[1]
    left = 2 * sizes[0] * (normal / (2 * sizes[-1])) ** 2 if sizes[-1] > 0 else np.inf
    return f"the gradient leaves room for {left:.2g} of excess" if not left <= _SETTLED * floor else ""


def _without(vector: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """The part of an array that is orthogonal to a direction."""
    return vector - direction * np.sum(vector * direction) / np.sum(direction**2)


def _still_fluctuating(run: AttentionRun, rule: Any, floor: float) -> str:
    """The gradient of a minibatch never vanishes: the transient must have decayed, and the excess must no longer drift."""
    problem, steps = run.problem, int(run.steps[-1])
    if not isinstance(rule, PreconditionedDescent) or not regular(problem):
        return "for this rule nothing says how long a transient on minibatches lasts"
    if isinstance(rule.step, AdaptiveStep):
        step = safe_step(problem, rule.geometry, problem.whiten(run.at()))
    else:
        step = rule.step.constant(problem, rule.geometry)
    factor = asymptotic_factor(problem, rule.geometry, step)
    transient = max(float(run.excess[0]), floor) * factor ** (2 * steps)
    if not transient <= _SETTLED * floor:
        return f"a transient of {transient:.2g} is left at {factor**2:.4g} per step"
    earlier = run.excess[(run.steps > steps / 4) & (run.steps <= steps / 2)]
    later = run.excess[run.steps > steps / 2]
    if min(len(earlier), len(later)) < 3:
        return "too few steps to see whether it drifts"
    drift = float(np.median(later) / np.median(earlier))
    return f"the excess changed by a factor {drift:.2g} over the second half" if not 0.5 <= drift <= 2.0 else ""


def judge_floor(
    run: AttentionRun,
    source: AbstractSource,
    rule: PreconditionedDescent | AbstractAttentionRule,
    floor: Floor,
    truth: AttentionRegression | None,
) -> Verdict:
    """Whether a run that has settled is at its floor, up to a factor 4 either way; undecided until then."""
    undecided = lambda why: Verdict(Outcome.undecided, why)
    if run.status is not Status.out_of_steps:
        return undecided(f"the run ended with {run.status.name}")
    if truth is None:
        return undecided("the population excess needs the arrays covariance and planted in the file")
    if floor.value is None:
        return undecided(f"no floor is predicted here: {floor.law}")
    waiting = unsettled(run, source, rule, floor.value)
    if waiting:
        return undecided(f"the run has not settled: {waiting}")
    excess = float(run.excess[-1])
    ratio, smallest = excess / floor.value, float(run.problem.sizes[-1])
    inside = 1 / FACTOR <= ratio <= FACTOR
    text = f"excess / ({floor.law}) = {ratio:.3g} is {'' if inside else 'not '}between 1/{FACTOR:g} and {FACTOR:g}"
    load = 1 / (_count(source) * smallest) if smallest > 0 else np.inf
    if not inside and load > UNRELIABLE:
        return Verdict(
            Outcome.undecided, f"{text}, but 1/(n s_d) = {load:.2g} is beyond first order", floor.value, excess
        )
    return Verdict(Outcome.confirmed if inside else Outcome.refuted, text, floor.value, excess)


def _count(source: Any) -> int:
    """Size of the smallest context."""
    return source.size if getattr(source, "keys", "full") == "batch" else source.sample.size
