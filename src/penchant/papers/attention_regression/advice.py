"""What a sample says of attention regression: hypotheses with slack, floors, and the geometry, step and scale to train with."""

import equinox as eqx
import numpy as np

from ...errors import ThresholdError
from ...theory.base import Hypothesis
from .diagnostics import near_estimated_minima
from .floor import predicted_floor, regular, start_gauge
from .setting.context_bias import Scale, minimum_bias, optimal_scale, sample_floor, spectral_floor
from .setting.geometry import GEOMETRIES
from .setting.problem import AttentionLayer, AttentionRegression
from .setting.sample import AttentionSample, moment_threshold, noise_level, spectral_layer, unreliable
from .theorems import asymptotic_factor, centred_inputs, check_assumptions, gaussian_inputs, near_minima
from .training.algorithm1 import train_attention
from .training.rules import DefaultStep, PreconditionedDescent
from .training.sources import FullSample

_INSIDE = 1.01  # A3 is a strict inequality
_TRIED = 5000  # rows up to which the first steps take seconds: time is quadratic in them


class Option(eqx.Module):
    """One geometry with its default step, the excess factor per step it promises, and steps per factor 10 of excess.

    `halvings`: how often the step was halved until the objective of the sample fell along the first steps; None: not tried.
    """

    geometry: str
    step: float
    factor: float
    steps_per_decade: float
    halvings: int | None = None


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
        """The geometry with the fastest promise; the one whose step was tried, if any was."""
        tried = [option for option in self.options if option.halvings is not None]
        return min(tried or self.options, key=lambda option: option.factor)


def advise(
    sample: AttentionSample,
    truth: AttentionRegression | None = None,
    start: AttentionLayer | None = None,
    trial_steps: int = 20,
    key_norm: float | None = None,
) -> Advice:
    """Read a sample: the estimated problem against every hypothesis, and what to train with.

    With the `truth` the hypotheses and the floors are exact; `start` is the spectral one of the sample where it is left out. The
    recommended step is tried for `trial_steps` steps on samples of at most 5000 rows, because a sample may curve more than
    the population that it estimates. `key_norm` is |V| of the whitened minima where training takes place at another scale than the
    balanced one.

    >>> from penchant.papers.attention_regression.setting.sample import attention_experiment
    >>> found = attention_experiment(n=2000)
    >>> advice = advise(AttentionSample(found.inputs, found.targets))
    >>> advice.recommended.geometry, [hypothesis.holds for hypothesis in advice.hypotheses][:3]
    ('two_sided', [True, None, True])
    """
    problem, count = sample.estimated, sample.size
    problem.check_shape(truth, "advise")
    scale, first = _scale(problem), spectral_layer(problem) if start is None else start
    return Advice(
        problem,
        noise_level(problem, count),
        _hypotheses(sample, truth, first, key_norm),
        _options(sample, first, trial_steps if count <= _TRIED else 0) if regular(problem) else (),
        _floors(problem if truth is None else truth, count, scale.factor, None if truth is None else first),
        scale,
        _gain(problem, scale),
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


def _options(sample: AttentionSample, start: AttentionLayer, trial_steps: int) -> tuple[Option, ...]:
    """All geometries with their default steps; that of the fastest one is tried."""
    problem = sample.estimated
    found = {name: _option(problem, name) for name in GEOMETRIES}
    if trial_steps > 0:
        best = min(found, key=lambda name: found[name].factor)
        run = train_attention(FullSample(sample), PreconditionedDescent(best), start, steps=trial_steps)
        found[best] = _option(problem, best, int(np.rint(-np.log2(run.step_factor[-1]))))
    return tuple(found.values())


def _option(problem: AttentionRegression, name: str, halvings: int | None = None) -> Option:
    geometry = GEOMETRIES[name]
    step = DefaultStep().constant(problem, geometry) / 2 ** (halvings or 0)
    factor = asymptotic_factor(problem, geometry, step) ** 2
    pace = float(np.log(10) / -np.log(factor)) if factor > 0 else 0.0  # one curvature only: a single step does it
    return Option(name, step, factor, pace, halvings)


def _floors(problem: AttentionRegression, count: int, factor: float, start: AttentionLayer | None) -> Floors:
    """The gauge is that of the spectral start: the identity in the estimate, the nearest one in the truth, whose signs may differ."""
    gauge = "identity" if start is None or not regular(problem) else start_gauge(problem, start)
    found = predicted_floor(problem, count, gauge)
    try:
        there = sample_floor(problem, factor) / count
    except ThresholdError:
        there = None
    return Floors(spectral_floor(problem) / count, found.value, found.bias, there)


def _scale(problem: AttentionRegression, power: float = 2.0) -> Scale:
    """The scale of least bias, but none that breaks A3(p) where the balanced minima meet it: |V| < 1/(2 p) at scale c too."""
    best, top = optimal_scale(problem), float(problem.sizes[0])
    least = float(np.sqrt(top / moment_threshold(power)))  # of all c with s_1/c^2 <= 1/(4 p^2)
    if least >= 1 or best.factor > least:
        return best
    factor = min(1.0, _INSIDE * least)
    return Scale(factor, minimum_bias(problem, factor), float(np.sqrt(top)) / factor)


def _gain(problem: AttentionRegression, scale: Scale) -> float | None:
    """B_1 of the balanced minimum over B_1 at the best scale; None where the former is infinite."""
    try:
        return minimum_bias(problem) / scale.bias
    except ThresholdError:
        return None


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
