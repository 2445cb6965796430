"""What `predict` and `train` do with `--setting attention-regression`: the user's own inputs and targets."""

from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ArgumentError, DataFileError
from ..optimisers.layer_rules import AbstractLayerRule, LayerAdam, PlainDescent
from ..optimisers.preconditioned import PreconditionedDescent
from ..report.page import render
from ..settings.attention_regression import AttentionLayer, AttentionRegression
from ..settings.attention_sample import AttentionSample, spectral_layer
from ..settings.context_bias import oracle_shift
from ..settings.context_sums import context_sums
from ..settings.files import read_arrays
from ..studies import own_attention
from ..studies.base import Study, save
from ..theorems.attention_advice import Advice, advise, step_warning
from ..theorems.attention_regression import PAPER, AttentionConvergence, expected_gradients
from ..theorems.base import Hypothesis
from ..training.algorithm1 import AttentionRun, train_attention
from ..training.attention_sources import AbstractSource, FullSample, Minibatch
from ..training.status import Status
from ..training.trajectory import write_npz
from ..verdict import Outcome, Verdict, at_most
from .options import check_writable, npz_name
from .own_data import number

NAME = "attention-regression"
_UNUSED = ("widths", "alpha", "cap", "time", "log_time", "margin")


def _sample(options: Namespace) -> tuple[AttentionSample, AttentionRegression | None]:
    """The sample, and the truth where the file has `covariance` and `planted` [and `noise`]."""
    arrays = read_arrays(options.data)
    missing = [name for name in ("inputs", "targets") if name not in arrays]
    if missing:
        found = ", ".join(sorted(arrays)) or "none"
        raise DataFileError(
            f"The setting '{NAME}' needs the arrays inputs, targets, but {missing[0]} is missing. Found: {found}."
        )
    targets = np.asarray(arrays["targets"])
    sample = AttentionSample(arrays["inputs"], targets[:, None] if targets.ndim == 1 else targets)
    if not {"covariance", "planted"} <= set(arrays):
        return sample, None
    noise = arrays.get("noise", sample.estimated.noise)
    truth = AttentionRegression(arrays["covariance"], arrays["planted"], np.asarray(noise).reshape(()))
    if truth.planted.shape != sample.estimated.planted.shape:
        wanted = f"of shape {sample.estimated.planted.shape}, as inputs and targets have it"
        raise ArgumentError("planted", "penchant", wanted, f"shape {truth.planted.shape}")
    return sample, truth


def _refuse(options: Namespace) -> None:
    """Options that mean nothing here are refused, not ignored."""
    unused = {
        "--joint": options.joint,
        "--reduction": options.reduction != "mean",
        "--loss": options.loss != "exponential",
        "--bias": options.bias,
        "--ties": options.ties != "raise",
    }
    for name in _UNUSED:
        unused[f"--{name.replace('_', '-')}"] = getattr(options, name, None) is not None
    for name, given in unused.items():
        if given:
            raise ArgumentError(name, "penchant", f"left out with --setting {NAME}", "a value")
    if options.seed < 0:
        raise ArgumentError("--seed", "penchant", "a nonnegative integer", options.seed)


def rule_of(options: Namespace) -> PreconditionedDescent | AbstractLayerRule:
    """Structure-aware descent, or plain descent (gd) or Adam, which need a step size."""
    name, size = options.optimiser, options.step_size
    if size is not None and not 0 < size < np.inf:
        raise ArgumentError("--step-size", "penchant", "positive and finite", size)
    if name is None:
        far = (
            getattr(options, "start", "zeros") != "zeros"
        )  # near the minima a constant step is faster, far from them only adaptive ones are safe
        default = "adaptive" if far else "default"
        return PreconditionedDescent(options.geometry or "two_sided", default if size is None else size)
    if name not in ("gd", "adam"):
        raise ArgumentError("--optimiser", "penchant", f"gd, adam or left out with --setting {NAME}", name)
    if options.geometry is not None:
        raise ArgumentError("--geometry", "penchant", f"left out with --optimiser {name}", options.geometry)
    if size is None:
        raise ArgumentError("--step-size", "penchant", f"given with --optimiser {name}", "nothing")
    return PlainDescent(size) if name == "gd" else LayerAdam(size)


def _start(options: Namespace, sample: AttentionSample) -> AttentionLayer:
    """The spectral start, a random one ('small'), or U and V of a file."""
    gauge = options.gauge or "identity"
    if (
        options.start == "zeros"
    ):  # the default of the command line; zeros are a critical point, and the spectral start is the paper's
        return spectral_layer(sample.estimated, gauge)
    if options.gauge is not None:
        raise ArgumentError("--gauge", "penchant", "left out unless the start is spectral", options.gauge)
    m, d = sample.estimated.planted.shape
    if options.start == "small":
        rng = np.random.default_rng(options.seed)
        return AttentionLayer(*(options.scale * rng.standard_normal(shape) for shape in ((m, d), (d, d))))
    arrays = read_arrays(options.start)
    if not {"U", "V"} <= set(arrays):
        raise ArgumentError("--start", "penchant", "a file with the arrays U and V", f"the arrays {sorted(arrays)}")
    return AttentionLayer(arrays["U"], arrays["V"])


def _source(options: Namespace, sample: AttentionSample) -> AbstractSource:
    if options.batch is None:
        if options.keys is not None:
            raise ArgumentError("--keys", "penchant", "used with --batch", options.keys)
        return FullSample(sample)
    return Minibatch(sample, options.batch, keys=options.keys or "batch", seed=options.seed)


def _advice(advice: Advice, count: int) -> dict[str, Any]:
    problem, theorem = advice.problem, AttentionConvergence()
    return {
        "theorem": theorem.name,
        "statement": theorem.statement,
        "citation": theorem.citation,
        "paper": PAPER,
        "estimate": {
            "samples": count,
            "inputs": problem.inputs,
            "outputs": problem.outputs,
            "noise": float(problem.noise),
            "covariance_eigenvalues": np.asarray(problem.spread).tolist(),
            "sizes": np.asarray(problem.sizes).tolist(),
            "size_noise_level": advice.noise_level,
        },
        "hypotheses": [vars(hypothesis) for hypothesis in advice.hypotheses],
        "holds": all(hypothesis.holds for hypothesis in advice.hypotheses),
        "geometries": [vars(option) for option in advice.options],
        "recommended": vars(advice.recommended) if advice.options else None,
        "floors": vars(advice.floors),
        "scale": {**vars(advice.scale), "gain": advice.gain},
        "warnings": list(advice.warnings),
    }


def predict(options: Namespace) -> dict[str, Any]:
    """What the sample says: estimates against their noise, hypotheses, floors, and what to train with."""
    _refuse(options)
    for name in ("batch", "keys", "gauge", "geometry"):
        if getattr(options, name) is not None:
            raise ArgumentError(f"--{name}", "penchant predict", "left out: the prediction compares them", "a value")
    sample, _ = _sample(options)
    content = _advice(advise(sample), sample.size)
    if options.save:
        check_writable(npz_name(options.save))
        start, problem = spectral_layer(sample.estimated), sample.estimated
        arrays = {"U": start.value, "V": start.key_query, "covariance": problem.covariance, "planted": problem.planted}
        content["saved"] = str(write_npz(options.save, content, arrays))
    return content


def train(options: Namespace) -> dict[str, Any]:
    """Train on the sample; the excess is exact where the file has the truth, and estimated by leaving one out otherwise."""
    _refuse(options)
    if options.save:
        check_writable(npz_name(options.save))
    if options.out:
        check_writable(str(Path(options.out) / "index.html"))
    sample, truth = _sample(options)
    rule, source = rule_of(options), _source(options, sample)
    steps = 200 if options.steps is None else options.steps
    run = train_attention(source, rule, _start(options, sample), steps=steps, truth=truth)
    advice = advise(sample)
    floor = _floor(sample, advice, options.batch)
    verdict = _judge(run, floor, truth)
    content: dict[str, Any] = {
        "status": run.status.name,
        "message": _message(run),
        "steps": int(run.steps[-1]),
        "safe_step": run.safe_step,
        "loss": float(run.loss[-1]),
        "gradient_norm": float(run.gradient_norm[-1]),
        "excess": None if truth is None else float(run.excess[-1]),
        "estimated_excess": _left_out(sample, run.at()),
        "predicted_excess": floor,
        "hypotheses": [vars(hypothesis) for hypothesis in _along(run, truth, options.batch)],
        "verdict": verdict.outcome.value,
        "inequality": verdict.inequality,
        "warnings": [*advice.warnings, *_step_warnings(sample, rule)],
    }
    if options.save:
        content["saved"] = str(run.save(options.save))
    if options.out:
        study = Study("own-data", f"Your data: {Path(options.data).name}", PAPER, lambda *_: None)  # pyright: ignore
        result = own_attention.page(run, advice, verdict)
        save(study, result, options.out, seed=options.seed, full=False, seconds=0.0)
        content["page"] = str(render(options.out))
    return content


def _along(run: AttentionRun, truth: AttentionRegression | None, batch: int | None) -> tuple[Hypothesis, ...]:
    """Theorem 2 assumes expected gradients; with the truth, by how much those of the run deviate at most."""
    if truth is None:
        return ()
    return (expected_gradients("empirical" if batch is None else "minibatch", float(run.deviation.max())),)


def _step_warnings(sample: AttentionSample, rule: PreconditionedDescent | AbstractLayerRule) -> list[str]:
    if not isinstance(rule, PreconditionedDescent):
        return []
    warning = step_warning(sample.estimated, rule)
    return [warning] if warning else []


def _left_out(sample: AttentionSample, layer: AttentionLayer) -> float:
    """Mean loss of queries that are not their own keys, less the estimated noise: an estimate of the excess."""
    sums = context_sums(sample.inputs, sample.targets, layer.value, layer.key_query, include_self=False)
    return float(sums.loss) - sample.estimated.outputs * float(sample.estimated.noise)


def _message(run: AttentionRun) -> str:
    if run.status is Status.out_of_steps:
        return run.status.message
    return (
        "The next step would have left every bounded region, so it was not taken; the last finite layer is kept. "
        f"Fix: --step-size {run.safe_step:.3g} or less, or no --step-size."
    )


def _floor(sample: AttentionSample, advice: Advice, batch: int | None) -> float | None:
    """Predicted excess after training: v/n + b_2/n^2, or v/n + b_2/B^2 for attention within batches."""
    if batch is None or advice.floors.trained is None or advice.floors.bias is None:
        return advice.floors.trained
    within = oracle_shift(sample.estimated, sample_balance=False).excess / batch**2
    return advice.floors.trained - advice.floors.bias + within


def _judge(run: AttentionRun, floor: float | None, truth: AttentionRegression | None) -> Verdict:
    """Whether the excess is at the floor that the samples allow; undecided where the truth is unknown or the run broke off."""
    if run.status is not Status.out_of_steps:
        return Verdict(Outcome.undecided, f"the run ended with {run.status.name}")
    if truth is None or floor is None:
        return Verdict(Outcome.undecided, "the population excess needs the arrays covariance and planted in the file")
    return at_most(float(run.excess[-1]), 4 * floor, "excess, against four times its predicted floor")


def print_prediction(content: dict[str, Any]) -> None:
    found = content["estimate"]
    sizes = ", ".join(f"{size:.4g}" for size in found["sizes"])
    spread = f"{found['covariance_eigenvalues'][0]:.4g} to {found['covariance_eigenvalues'][-1]:.4g}"
    print(f"theorem    {content['theorem']}: {content['statement']}\n           {content['citation']}")
    print(
        f"estimate   n = {found['samples']}, d = {found['inputs']}, m = {found['outputs']}; noise {found['noise']:.4g}"
    )
    print(f"           covariance eigenvalues {spread}")
    print(f"           sizes of A Sigma^(1/2): {sizes}; noise level {found['size_noise_level']:.3g}")
    for hypothesis in content["hypotheses"]:
        mark = "  ?  " if hypothesis["holds"] is None else "holds" if hypothesis["holds"] else "FAILS"
        offender = f", worst: {hypothesis['offender']}" if hypothesis["offender"] else ""
        print(
            f"hypothesis {mark}  {hypothesis['name']}: slack {hypothesis['slack']:.4g}{offender} ({hypothesis['detail']})"
        )
    floors = content["floors"]
    print(
        f"excess     spectral start {floors['start']:.3g}, after training {number(floors['trained'])} (of it bias {number(floors['bias'])})"
    )
    for option in content["geometries"]:
        chosen = "  <- recommended" if option == content["recommended"] else ""
        print(
            f"train with {option['geometry']}, step {option['step']:.4g}: {option['steps_per_decade']:.3g} steps per factor 10{chosen}"
        )
    scale = content["scale"]
    gain = "from infinite" if scale["gain"] is None else f"{scale['gain']:.3g} times smaller"
    print(
        f"scale      (c U, V/c) with c = {scale['factor']:.4g} has the least bias, B_1 = {scale['bias']:.4g} ({gain})"
    )
    for warning in content["warnings"]:
        print(f"warning    {warning}")
    if "saved" in content:
        print(f"saved      {content['saved']}")


def print_run(content: dict[str, Any]) -> None:
    print(f"status     {content['status']}: {content['message']}")
    print(
        f"run        {content['steps']} steps, empirical loss {content['loss']:.8g}, gradient {content['gradient_norm']:.4g}"
    )
    print(
        f"excess     {number(content['excess'])}; leave-one-out estimate {content['estimated_excess']:.4g}; predicted {number(content['predicted_excess'])}"
    )
    for hypothesis in content["hypotheses"]:
        print(f"hypothesis FAILS  {hypothesis['name']}: slack {hypothesis['slack']:.4g} ({hypothesis['detail']})")
    print(f"verdict    {content['verdict']}: {content['inequality']}")
    for warning in content["warnings"]:
        print(f"warning    {warning}")
    for key in ("saved", "page"):
        if key in content:
            print(f"{key:10} {content[key]}")
