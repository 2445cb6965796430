"""The desk of attention regression: a sample, with estimates where the file has no truth, and advice before a prediction."""

from argparse import Namespace

import numpy as np

from ..errors import ArgumentError
from ..papers.attention_regression import asked
from ..papers.attention_regression.advice import (
    Advice,
    Floor,
    advise,
    judge_floor,
    layer_scale,
    predicted_floor,
    regular,
    scaled_floor,
    start_gauge,
)
from ..papers.attention_regression.diagnostics import trajectory_moments
from ..papers.attention_regression.setting.problem import AttentionRegression
from ..papers.attention_regression.setting.sample import AttentionSample, covariance_width, map_errors, spectral_layer
from ..papers.attention_regression.theorems import CONVERGENCE, expected_gradients, expected_rate
from ..papers.attention_regression.training.algorithm1 import train_attention
from ..papers.attention_regression.training.rules import PreconditionedDescent, Rule, step_warning
from ..papers.attention_regression.training.run import AttentionRun
from ..papers.attention_regression.training.sources import AbstractSource
from ..report.panels.attention import PANELS, AttentionCase, prediction_lines
from ..settings.files import read_arrays
from ..theory.base import all_hold
from ..training.status import Status
from .own import Predicted, Trained, made

_COMPARED = ("batch", "keys", "gauge", "geometry", "optimiser", "step_size", "scale", "logit_limit", "layer_scale")
_STEPS = {
    "default": "1/(4 s_1) over the geometry's stretch, halved until the objective of the sample falls",
    "adaptive": "adaptive",
}


def _advice(advice: Advice, sample: AttentionSample, known: bool) -> dict:
    problem, theorem = advice.problem, CONVERGENCE
    best = advice.recommended if advice.options else None
    rule = PreconditionedDescent() if best is None else PreconditionedDescent(best.geometry, best.step)
    return {
        "theorem": theorem.name,
        **{name: getattr(theorem, name) for name in ("statement", "citation", "paper")},
        "estimate": {
            "samples": sample.size,
            "inputs": problem.inputs,
            "outputs": problem.outputs,
            **{
                name: np.asarray(getattr(problem, name)).tolist()
                for name in ("noise", "sizes", "covariance", "planted")
            },
            "covariance_eigenvalues": np.asarray(problem.spread).tolist(),
            "size_noise_level": advice.noise_level,
            "covariance_half_width": covariance_width(sample),
            "planted_standard_errors": map_errors(sample).tolist(),
        },
        "checked_against": "covariance and planted of the file" if known else "the estimate",
        "hypotheses": [vars(hypothesis) for hypothesis in advice.hypotheses],
        "holds": all_hold(advice.hypotheses),
        "rate": expected_rate(problem, rule),
        "geometries": [vars(option) for option in advice.options],
        "recommended": None if best is None else vars(best),
        "floors": vars(advice.floors),
        "scale": {**vars(advice.scale), "gain": advice.gain, "how": _how(advice)},
        "warnings": list(advice.warnings),
    }


def _how(advice: Advice) -> str:
    """How to train at the recommended scale: the regulariser of the theorem pulls c back to 1, the scale-free one does not."""
    if advice.scale.factor > 1:
        limit = f"--logit-limit {advice.scale.key_norm:.4g} (largest operator norm of the whitened V)"
        return f"train there with {limit}; the steps above are right at every scale"
    return f"train there with --layer-scale {advice.scale.factor:.4g}; the steps above are right at every scale, and c = 1 is the default"


def predict(options: Namespace) -> Predicted:
    """What the sample says: estimates against their noise, hypotheses, floors, and what to train with."""
    asked.left_out(options, _COMPARED, "left out: the prediction depends on the data only", "penchant predict")
    if options.start != "zeros":
        raise ArgumentError("--start", "penchant predict", "left out: the start is spectral", options.start)
    sample, truth = asked.sample_of(read_arrays(options.data), options.ridge)
    content = _advice(advise(sample, truth), sample, truth is not None)
    start, problem = spectral_layer(sample.estimated), sample.estimated
    arrays = {"U": start.value, "V": start.key_query, "covariance": problem.covariance, "planted": problem.planted}
    return Predicted(content, prediction_lines(content), arrays)


def train(options: Namespace) -> Trained:
    """Train on the sample; the excess is exact where the file has the truth, and estimated by leaving one out otherwise."""
    sample, truth = asked.sample_of(read_arrays(options.data), options.ridge)
    limit = asked.key_norm(options, sample.estimated)
    rule, source, start = asked.rule(options, limit), asked.source(options, sample), asked.start(options, sample)
    steps = 200 if options.steps is None else options.steps
    top = float(np.sqrt((sample.estimated if truth is None else truth).sizes[0]))
    norm = limit if limit is None or options.layer_scale is not None else min(limit, top)
    advice = advise(sample, truth, start, key_norm=norm)
    run = train_attention(source, rule, start, steps=steps, truth=truth)
    floor = _floor(options, sample, truth, rule, run)
    gradients = expected_gradients("empirical" if options.batch is None else "minibatch", float(run.deviation.max()))
    case = AttentionCase(
        run,
        rule,
        sample,
        judge_floor(run, source, rule, floor, truth),
        (*advice.hypotheses, trajectory_moments(run, truth=truth, samples=sample.size), gradients),
        advice,
        floor,
        tuple(filter(None, (*advice.warnings, step_warning(sample.estimated, rule), _loss_warning(run, source)))),
        made(options, rule) | _settings(options, steps),
    )
    return Trained(case, PANELS, run.save, CONVERGENCE.paper)


def _loss_warning(run: AttentionRun, source: AbstractSource) -> str:
    """A run may stay bounded and yet lose what it started with."""
    if source.rows != "all" or run.status is not Status.out_of_steps or run.loss[-1] <= run.loss[0]:
        return ""
    return (
        f"the loss of the sample rose from {run.loss[0]:.4g} to {run.loss[-1]:.4g}: this step is too long for it; "
        "`--step-size adaptive` tries every step before it is kept"
    )


def _floor(
    options: Namespace, sample: AttentionSample, truth: AttentionRegression | None, rule: Rule, run: AttentionRun
) -> Floor:
    """The law of this run: at the scale where it ended, or in its gauge, by name or that of the nearest minimum."""
    problem = sample.estimated if truth is None else truth
    within = options.batch if options.keys != "full" else None
    if rule.balance.scale_free:
        return scaled_floor(problem, sample.size, layer_scale(problem, run.at()), within)
    gauge: str | np.ndarray = options.gauge or "identity"
    if options.start != "zeros" and regular(problem):
        gauge = start_gauge(problem, run.at())
    elif gauge == "identity" and truth is not None and regular(problem):  # its signs are those of the estimate
        gauge = start_gauge(problem, spectral_layer(sample.estimated))
    return predicted_floor(problem, sample.size, gauge, within)


def _settings(options: Namespace, steps: int) -> dict[str, str]:
    """The options of a run, with what was left open filled in."""
    spectral = options.start == "zeros"
    found = {
        "optimiser": options.optimiser or "preconditioned descent",
        "geometry": "euclidean" if options.optimiser else options.geometry or "two_sided",
        "step size": options.step_size or _STEPS[asked.default_step(options)],
        "start": "spectral" if spectral else options.start,
        "gauge": (options.gauge or "identity") if spectral else "that of the start",
        "batch": options.batch or "all samples",
        "keys": "all samples" if options.batch is None else options.keys or "batch",
        "ridge": options.ridge or 0.0,
        "logit limit": options.logit_limit or "none",
        "layer scale c": options.layer_scale or 1.0,
        "steps": steps,
    }
    return {name: str(value) for name, value in found.items()}
