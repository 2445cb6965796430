"""What a sample says of attention regression: hypotheses with slack, the geometry, step and scale to train with, and where training settles."""

from collections.abc import Callable

import equinox as eqx
import numpy as np

from ...errors import ThresholdError
from ...theory.base import Hypothesis
from ...training.status import Status
from ...verdict import Outcome, Verdict
from .diagnostics import near_estimated_minima
from .setting.balanced_minima import nearest_minimum
from .setting.context_bias import (
    Scale,
    minimum_bias,
    optimal_scale,
    oracle_shift,
    sample_floor,
    spectral_floor,
)
from .setting.geometry import GEOMETRIES, AbstractGeometry, TwoSided
from .setting.problem import AttentionLayer, AttentionRegression, ScaleFreeBalance
from .setting.sample import UNRELIABLE, AttentionSample, moment_threshold, noise_level, spectral_layer, unreliable
from .theorems import asymptotic_factor, centred_inputs, check_assumptions, gaussian_inputs, near_minima
from .training.rules import Rule
from .training.run import AttentionRun
from .training.sources import AbstractSource
from .training.steps import step_of

_INSIDE = 1.01  # A3 is a strict inequality
FACTOR = 4.0  # one data set scatters about the mean that the law is about
_SETTLED = 0.25  # of the floor: what may still change in a run that has settled


class Floor(eqx.Module):
    """A law for the excess after training, its value (None where it is infinite or unknown) and the part of it that is bias."""

    law: str
    value: float | None
    bias: float | None = None


def finite(compute: Callable[[], float]) -> float | None:
    """A number of the first-order theory, None beyond the threshold where it is infinite."""
    try:
        return compute()
    except ThresholdError:
        return None


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
    spread = finite(lambda: sample_floor(problem) / count)
    if spread is not None and not regular(problem):
        return Floor("v/n", spread)
    shift = finite(lambda: oracle_shift(problem, gauge, sample_balance=within is None).excess)
    if spread is None or shift is None:
        return Floor(law, None)
    bias = shift / (within or count) ** 2
    return Floor(law, spread + bias, bias)


def scaled_floor(problem: AttentionRegression, count: int, factor: float, within: int | None = None) -> Floor:
    """v/n at the minima of scale c = `factor`, where regulariser and steps do not see c; b_2 is known at c = 1 only."""
    law = f"v/n at the scale c = {factor:.3g}"
    if within is not None:
        return Floor(f"{law} + b_2/B^2, of which b_2 is known at c = 1 only", None)
    return Floor(law, finite(lambda: sample_floor(problem, factor) / count))


def layer_scale(problem: AttentionRegression, layer: AttentionLayer) -> float:
    """The c of a layer (c U, V/c): that which makes both whitened norms equal when it is undone."""
    whitened = problem.whiten(layer)
    return float(ScaleFreeBalance().scale(whitened[: problem.outputs], whitened[problem.outputs :]))


def start_gauge(problem: AttentionRegression, layer: AttentionLayer) -> np.ndarray:
    """The rotation of the minimum nearest to a layer."""
    return nearest_minimum(problem, np.asarray(problem.whiten(layer)), TwoSided()).rotation


def unsettled(run: AttentionRun, rule: Rule, floor: float) -> str:
    """Why the excess may still move by a quarter of the floor; empty once the transient has decayed and nothing drifts."""
    if run.steps[-1] == 0:
        return "no step was taken"
    problem, steps = run.problem, int(run.steps[-1])
    if not rule.structured or not regular(problem):
        return "for this rule nothing says how long a transient lasts"
    step = float(rule.bind(problem).size(problem.whiten(run.at())))
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
    run: AttentionRun, source: AbstractSource, rule: Rule, floor: Floor, truth: AttentionRegression | None
) -> Verdict:
    """Whether a run that has settled is at its floor, up to a factor 4 either way; undecided until then."""
    undecided = lambda why: Verdict(Outcome.undecided, why)
    if run.status is not Status.out_of_steps:
        return undecided(f"the run ended with {run.status.name}")
    if truth is None:
        return undecided("the population excess needs the arrays covariance and planted in the file")
    if floor.value is None:
        return undecided(f"no floor is predicted here: {floor.law}")
    waiting = unsettled(run, rule, floor.value)
    if waiting:
        return undecided(f"the run has not settled: {waiting}")
    excess = float(run.excess[-1])
    ratio, smallest = excess / floor.value, float(run.problem.sizes[-1])
    inside = 1 / FACTOR <= ratio <= FACTOR
    text = f"excess / ({floor.law}) = {ratio:.3g} is {'' if inside else 'not '}between 1/{FACTOR:g} and {FACTOR:g}"
    load = 1 / (source.context * smallest) if smallest > 0 else np.inf
    if not inside and load > UNRELIABLE:
        return Verdict(
            Outcome.undecided, f"{text}, but 1/(n s_d) = {load:.2g} is beyond first order", floor.value, excess
        )
    return Verdict(Outcome.confirmed if inside else Outcome.refuted, text, floor.value, excess)


class Option(eqx.Module):
    """One geometry with its default step, the excess factor per step it promises, and steps per factor 10 of excess."""

    geometry: str
    step: float
    factor: float
    steps_per_decade: float


class Floors(eqx.Module):
    """Predicted excess: of the spectral start, of training on the sample, its part b_2/n^2, and v/n at the scale of least bias.

    None beyond a threshold.
    """

    start: float
    trained: float | None
    bias: float | None
    scaled: float | None


class Advice(eqx.Module):
    """Everything `penchant predict` says of a sample. `scale` is that of the least bias of the loss, not of the least excess."""

    problem: AttentionRegression
    noise_level: float
    hypotheses: tuple[Hypothesis, ...]
    options: tuple[Option, ...]
    floors: Floors
    scale: Scale
    gain: float | None
    warnings: tuple[str, ...]

    @property
    def recommended(self) -> Option:
        """The geometry with the fastest promise."""
        return min(self.options, key=lambda option: option.factor)


def advise(
    sample: AttentionSample,
    truth: AttentionRegression | None = None,
    start: AttentionLayer | None = None,
    key_norm: float | None = None,
) -> Advice:
    """Read a sample: the estimated problem against every hypothesis, and what to train with.

    With the `truth` the hypotheses and the floors are exact; `start` is the spectral one of the sample where it is left out. `key_norm` is |V| of the whitened minima where training takes place at another scale than the
    balanced one.
    """
    problem, count = sample.estimated, sample.size
    problem.check_shape(truth, "advise")
    scale, first = _scale(problem), spectral_layer(problem) if start is None else start
    return Advice(
        problem,
        noise_level(problem, count),
        _hypotheses(sample, truth, first, key_norm),
        tuple(_option(problem, geometry) for geometry in GEOMETRIES.values()) if regular(problem) else (),
        _floors(problem if truth is None else truth, count, scale.factor, None if truth is None else first),
        scale,
        finite(lambda: minimum_bias(problem) / scale.bias),
        _warnings(sample, truth, key_norm),
    )


def _hypotheses(
    sample: AttentionSample, truth: AttentionRegression | None, start: AttentionLayer, key_norm: float | None
) -> tuple[Hypothesis, ...]:
    problem, count = (sample.estimated, sample.size) if truth is None else (truth, None)
    found = [
        *check_assumptions(problem, samples=count, strict=False, key_norm=key_norm),
        gaussian_inputs(sample.inputs),
        centred_inputs(sample.inputs),
    ]
    if regular(problem):
        two_sided = GEOMETRIES["two_sided"]
        near = near_estimated_minima(sample, start) if truth is None else near_minima(truth, start, two_sided)
        found.append(near)
    return tuple(found)


def _option(problem: AttentionRegression, geometry: AbstractGeometry) -> Option:
    step = step_of("default").constant(problem, geometry)
    factor = asymptotic_factor(problem, geometry, step) ** 2
    pace = float(np.log(10) / -np.log(factor)) if factor > 0 else 0.0  # one curvature only: a single step does it
    return Option(geometry.name, step, factor, pace)


def _floors(problem: AttentionRegression, count: int, factor: float, start: AttentionLayer | None) -> Floors:
    """The gauge is that of the spectral start: the identity in the estimate, the nearest one in the truth, whose signs may differ."""
    gauge = "identity" if start is None or not regular(problem) else start_gauge(problem, start)
    found = predicted_floor(problem, count, gauge)
    there = finite(lambda: sample_floor(problem, factor) / count)
    return Floors(spectral_floor(problem) / count, found.value, found.bias, there)


def _scale(problem: AttentionRegression, power: float = 2.0) -> Scale:
    """The scale of least bias, but none that breaks A3(p) where the balanced minima meet it: |V| < 1/(2 p) at scale c too."""
    best, top = optimal_scale(problem), float(problem.sizes[0])
    least = float(np.sqrt(top / moment_threshold(power)))  # of all c with s_1/c^2 <= 1/(4 p^2)
    if least >= 1 or best.factor > least:
        return best
    factor = min(1.0, _INSIDE * least)
    return Scale(factor, minimum_bias(problem, factor), float(np.sqrt(top)) / factor)


def _warnings(sample: AttentionSample, truth: AttentionRegression | None, key_norm: float | None) -> tuple[str, ...]:
    problem, found = sample.estimated if truth is None else truth, list(unreliable(sample, truth))
    top = float(problem.sizes[0])
    if key_norm is not None and key_norm**2 >= 0.5:
        found.append(f"|V|^2 = {key_norm**2:.3g} >= 1/2 at this scale: the bias of its minimum is infinite")
    if key_norm is None and top >= 0.5:
        found.append(
            f"s_1 = {top:.3g} >= 1/2: the bias of the balanced minimum is infinite; train at the scale that `penchant predict` recommends"
        )
    if not bool(centred_inputs(sample.inputs).holds):
        found.append("the inputs are not centred, and the model has no intercept: subtract their mean")
    return tuple(found)
