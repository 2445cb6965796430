"""The desk of attention regression, a dialect of its own: a sample with estimates where there is no truth, and advice before a prediction."""

from argparse import Namespace
from typing import Any

import numpy as np

from ...errors import ArgumentError, DataFileError, ThresholdError
from ...papers.attention_regression.advice import Advice, advise
from ...papers.attention_regression.diagnostics import trajectory_moments
from ...papers.attention_regression.floor import (
    Floor,
    judge_floor,
    layer_scale,
    predicted_floor,
    regular,
    scaled_floor,
    start_gauge,
)
from ...papers.attention_regression.setting.context_bias import loss_bias
from ...papers.attention_regression.setting.context_sums import context_sums
from ...papers.attention_regression.setting.problem import AttentionLayer, AttentionRegression, ScaleFreeBalance
from ...papers.attention_regression.setting.sample import AttentionSample, covariance_width, map_errors, spectral_layer
from ...papers.attention_regression.theorems import CONVERGENCE, expected_gradients, expected_rate
from ...papers.attention_regression.training.algorithm1 import AttentionRun, train_attention
from ...papers.attention_regression.training.rules import (
    AbstractAttentionRule,
    AdaptiveStep,
    DefaultStep,
    LayerAdam,
    PlainDescent,
    PreconditionedDescent,
    step_warning,
)
from ...papers.attention_regression.training.sources import AbstractSource, FullSample
from ...report.panels.run import VERDICT
from ...settings.files import read_arrays
from ...theory.base import Hypothesis, all_hold
from ...training.status import Status
from ..flags import LAYERS
from ..own import Predicted, Trained, made
from .panels import RUN, AttentionCase, prediction_lines
from .rules import key_norm_of, rule_of, run_settings, source_of, start_of

_COMPARED = ("batch", "keys", "gauge", "geometry", "optimiser", "step_size", "scale", "logit_limit", "layer_scale")


def _sample(options: Namespace) -> tuple[AttentionSample, AttentionRegression | None]:
    """The sample, and the truth where the file has `covariance` and `planted` [and `noise`]."""
    arrays = read_arrays(options.data)
    missing = [name for name in ("inputs", "targets") if name not in arrays]
    if missing:
        found = ", ".join(sorted(arrays)) or "none"
        raise DataFileError(
            f"The setting '{LAYERS}' needs the arrays inputs, targets, but {missing[0]} is missing. Found: {found}."
        )
    targets = np.asarray(arrays["targets"])
    ridge = 0.0 if options.ridge is None else options.ridge
    sample = AttentionSample(arrays["inputs"], targets[:, None] if targets.ndim == 1 else targets, ridge)
    if not {"covariance", "planted"} <= set(arrays):
        return sample, None
    noise = arrays.get("noise", sample.estimated.noise)
    truth = AttentionRegression(arrays["covariance"], arrays["planted"], np.asarray(noise).reshape(()))
    if truth.planted.shape != sample.estimated.planted.shape:
        wanted = f"of shape {sample.estimated.planted.shape}, as inputs and targets have it"
        raise ArgumentError("planted", "penchant", wanted, f"shape {truth.planted.shape}")
    return sample, truth


def _advice(advice: Advice, sample: AttentionSample, known: bool) -> dict[str, Any]:
    problem, theorem = advice.problem, CONVERGENCE
    return {
        "theorem": theorem.name,
        "statement": theorem.statement,
        "citation": theorem.citation,
        "paper": theorem.paper,
        "estimate": {
            "samples": sample.size,
            "inputs": problem.inputs,
            "outputs": problem.outputs,
            "noise": float(problem.noise),
            "covariance_eigenvalues": np.asarray(problem.spread).tolist(),
            "sizes": np.asarray(problem.sizes).tolist(),
            "size_noise_level": advice.noise_level,
            "covariance": np.asarray(problem.covariance).tolist(),
            "covariance_half_width": covariance_width(sample),
            "planted": np.asarray(problem.planted).tolist(),
            "planted_standard_errors": map_errors(sample).tolist(),
        },
        "checked_against": "covariance and planted of the file" if known else "the estimate",
        "hypotheses": [vars(hypothesis) for hypothesis in advice.hypotheses],
        "holds": all_hold(advice.hypotheses),
        "rate": expected_rate(problem, _recommended(advice)),
        "geometries": [vars(option) for option in advice.options],
        "recommended": vars(advice.recommended) if advice.options else None,
        "floors": vars(advice.floors),
        "scale": {**vars(advice.scale), "gain": advice.gain, "how": _how(advice)},
        "warnings": list(advice.warnings),
    }


def _recommended(advice: Advice) -> PreconditionedDescent:
    """The rule that is recommended; the default one where nothing is."""
    if not advice.options:
        return PreconditionedDescent()
    return PreconditionedDescent(advice.recommended.geometry, advice.recommended.step)


def _how(advice: Advice) -> str:
    """How to train at the recommended scale: the regulariser of the theorem pulls c back to 1, the scale-free one does not."""
    if advice.scale.factor > 1:
        limit = f"--logit-limit {advice.scale.key_norm:.4g} (largest operator norm of the whitened V)"
        return f"train there with {limit}; the steps above are right at every scale"
    return f"train there with --layer-scale {advice.scale.factor:.4g}; the steps above are right at every scale, and c = 1 is the default"


def predict(options: Namespace) -> Predicted:
    """What the sample says: estimates against their noise, hypotheses, floors, and what to train with."""
    for name in _COMPARED:
        if getattr(options, name) is not None:
            flag, required = f"--{name.replace('_', '-')}", "left out: the prediction depends on the data only"
            raise ArgumentError(flag, "penchant predict", required, getattr(options, name))
    if options.start != "zeros":
        raise ArgumentError("--start", "penchant predict", "left out: the start is spectral", options.start)
    sample, truth = _sample(options)
    content = _advice(advise(sample, truth), sample, truth is not None)
    start, problem = spectral_layer(sample.estimated), sample.estimated
    arrays = {"U": start.value, "V": start.key_query, "covariance": problem.covariance, "planted": problem.planted}
    return Predicted(content, prediction_lines(content), arrays)


def train(options: Namespace) -> Trained:
    """Train on the sample; the excess is exact where the file has the truth, and estimated by leaving one out otherwise."""
    sample, truth = _sample(options)
    rule, source, start = rule_of(options, sample.estimated), source_of(options, sample), start_of(options, sample)
    steps = 200 if options.steps is None else options.steps
    limit = key_norm_of(options, sample.estimated)
    top = float(np.sqrt((sample.estimated if truth is None else truth).sizes[0]))
    norm = limit if limit is None or options.layer_scale is not None else min(limit, top)
    advice = advise(sample, truth, start, trial_steps=0, key_norm=norm)
    run = train_attention(source, rule, start, steps=steps, truth=truth)
    moments = trajectory_moments(run, truth=truth, samples=sample.size)
    floor = _floor(options, sample, truth, rule, run)
    verdict = judge_floor(run, source, rule, floor, truth)
    warnings = [*advice.warnings, *_step_warnings(sample, rule), *_loss_warnings(run, source)]
    numbers: dict[str, Any] = {
        "status": run.status.name,
        "message": run.status.message if run.status is Status.out_of_steps else _divergence(run, rule),
        "steps": int(run.steps[-1]),
        "safe_step": run.safe_step,
        "step_used": _step_used(run, rule),
        "loss": float(run.loss[-1]),
        "gradient_norm": float(run.gradient_norm[-1]),
        "excess": None if truth is None else float(run.excess[-1]),
        **_left_out(sample, run.at()),
        "predicted_excess": floor.value,
        "predicted_law": floor.law,
    }
    hypotheses = (*advice.hypotheses, moments, _gradients(run, options.batch))
    settings = made(options, rule) | run_settings(options, steps)
    case = AttentionCase(run, verdict, hypotheses, advice, floor, numbers, settings)
    text = [f"warning    {warning}" for warning in warnings]
    return Trained(case, (RUN, VERDICT), run.save, CONVERGENCE.paper, {"warnings": warnings}, text)


def _gradients(run: AttentionRun, batch: int | None) -> Hypothesis:
    """Theorem 2 assumes expected gradients; with the truth, by how much those of the run deviate at most."""
    return expected_gradients("empirical" if batch is None else "minibatch", float(run.deviation.max()))


def _step_warnings(sample: AttentionSample, rule: PreconditionedDescent | AbstractAttentionRule) -> list[str]:
    warning = step_warning(sample.estimated, rule)
    return [warning] if warning else []


def _left_out(sample: AttentionSample, layer: AttentionLayer) -> dict[str, float | None]:
    """Loss of queries that are not their own keys, less the noise, and what of it is due to a context of n keys (None: infinite)."""
    sums = context_sums(sample.inputs, sample.targets, layer.value, layer.key_query, include_self=False)
    problem = sample.estimated
    try:
        context = loss_bias(problem, layer, include_self=False) / sample.size
    except ThresholdError:
        context = None
    above = float(sums.loss) - problem.outputs * float(problem.noise)
    return {"left_out_loss_above_noise": above, "finite_context_part": context}


def _loss_warnings(run: AttentionRun, source: AbstractSource) -> list[str]:
    """A run may stay bounded and yet lose what it started with."""
    if not isinstance(source, FullSample) or run.status is not Status.out_of_steps or run.loss[-1] <= run.loss[0]:
        return []
    return [
        f"the loss of the sample rose from {run.loss[0]:.4g} to {run.loss[-1]:.4g}: this step is too long for it; "
        "`--step-size adaptive` tries every step before it is kept"
    ]


def _step_used(run: AttentionRun, rule: PreconditionedDescent | AbstractAttentionRule) -> str:
    """The step size of a run, where it came from, and what the safeguard made of it."""
    if isinstance(rule, PlainDescent | LayerAdam):
        return f"{float(rule.step):.4g}, as given"
    assert isinstance(rule, PreconditionedDescent)
    factor = float(run.step_factor[-1])
    if isinstance(rule.step, AdaptiveStep):
        why = f" times {factor:.3g} at the end, as the objective of the sample rose with longer ones" * (factor < 1)
        return f"adaptive, 1/(3|W|^2 + 2 s_1){why}"
    size = rule.step.constant(run.problem, rule.geometry) * factor
    if not isinstance(rule.step, DefaultStep):
        return f"{size:.4g}, as given"
    halvings = int(np.rint(-np.log2(factor)))
    why = f", halved {halvings} times until the objective of the sample fell" * (halvings > 0)
    return f"{size:.4g}: that of the population, 1/(4 s_1) over the geometry's stretch{why}"


def _divergence(run: AttentionRun, rule: PreconditionedDescent | AbstractAttentionRule) -> str:
    if run.status is Status.step_failed:
        return "No step, however short, lowered the objective of the sample; the last layer is kept. Usual cause: a gradient that is not finite."
    preconditioned = isinstance(rule, PreconditionedDescent)
    other = "--step-size adaptive, which tries every step before it is kept" if preconditioned else "no --optimiser"
    tried = f"--step-size {run.safe_step:.3g} (tried over as many steps), or " * bool(np.isfinite(run.safe_step))
    return (
        "The next step would have left every bounded region, so it was not taken; the last finite layer is kept. "
        "Steps from the sizes bound the curvature of the population: minibatches, heavy tails and few samples curve more. "
        f"Fix: {tried}{other}."
    )


def _floor(
    options: Namespace,
    sample: AttentionSample,
    truth: AttentionRegression | None,
    rule: PreconditionedDescent | AbstractAttentionRule,
    run: AttentionRun,
) -> Floor:
    """The law of this run: at the scale where it ended, or in its gauge, by name or that of the nearest minimum."""
    problem = sample.estimated if truth is None else truth
    within = options.batch if options.keys != "full" else None
    if isinstance(rule, PreconditionedDescent) and isinstance(rule.balance, ScaleFreeBalance):
        return scaled_floor(problem, sample.size, layer_scale(problem, run.at()), within)
    gauge: str | np.ndarray = options.gauge or "identity"
    if options.start != "zeros" and regular(problem):
        gauge = start_gauge(problem, run.at())
    elif gauge == "identity" and truth is not None and regular(problem):  # its signs are those of the estimate
        gauge = start_gauge(problem, spectral_layer(sample.estimated))
    return predicted_floor(problem, sample.size, gauge, within)
