"""From options by name, of the command line or of a sweep, to a rule, a start and a source of gradients."""

from typing import Any

import numpy as np

from ...errors import ArgumentError, DataFileError
from ...settings.files import Arrays, read_arrays
from .setting.problem import AttentionLayer, AttentionRegression
from .setting.sample import AttentionSample, spectral_layer
from .training.rules import LayerAdam, PlainDescent, PreconditionedDescent, Rule
from .training.sources import AbstractSource, FullSample, Minibatch

_SMALL = 1e-3  # standard deviation of the start 'small'


def left_out(options: Any, names: tuple[str, ...], required: str, owner: str = "penchant", fix: str = "") -> None:
    """Refuse options that mean nothing here."""
    for name in names:
        if getattr(options, name) is not None:
            raise ArgumentError(f"--{name.replace('_', '-')}", owner, required, getattr(options, name), fix)


def _positive(flag: str, value: float, required: str = "positive and finite") -> float:
    if not 0 < value < np.inf:
        raise ArgumentError(flag, "penchant", required, value)
    return value


def sample_of(arrays: Arrays, ridge: float | None) -> tuple[AttentionSample, AttentionRegression | None]:
    """The sample, and the truth where the file has `covariance` and `planted` [and `noise`]."""
    missing = [name for name in ("inputs", "targets") if name not in arrays]
    if missing:
        found = ", ".join(sorted(arrays)) or "none"
        raise DataFileError(
            f"The setting 'attention-regression' needs the arrays inputs, targets, but {missing[0]} is missing. Found: {found}."
        )
    targets = np.asarray(arrays["targets"])
    sample = AttentionSample(arrays["inputs"], targets[:, None] if targets.ndim == 1 else targets, ridge or 0.0)
    if not {"covariance", "planted"} <= set(arrays):
        return sample, None
    noise = arrays.get("noise", sample.estimated.noise)
    truth = AttentionRegression(arrays["covariance"], arrays["planted"], np.asarray(noise).reshape(()))
    if truth.planted.shape != sample.estimated.planted.shape:
        wanted = f"of shape {sample.estimated.planted.shape}, as inputs and targets have it"
        raise ArgumentError("planted", "penchant", wanted, f"shape {truth.planted.shape}")
    return sample, truth


def default_step(options: Any) -> str:
    """Near the minima a constant step is faster; far from them, and on minibatches, which curve more, only adaptive ones are safe."""
    return "default" if options.start == "zeros" and options.batch is None else "adaptive"


def rule(options: Any, limit: float | None) -> Rule:
    """Structure-aware descent, or plain descent (gd) or Adam, which need a step size."""
    name, size = options.optimiser, options.step_size
    if size not in (None, "adaptive"):
        _positive("--step-size", size, "positive and finite, or 'adaptive'")
    if name is None:
        # at another scale the regulariser must not see it, and V must not grow: a sample's loss drifts along the scale
        return PreconditionedDescent(options.geometry or "two_sided", size or default_step(options), logit_limit=limit)
    left_out(options, ("geometry", "logit_limit", "layer_scale"), f"left out with --optimiser {name}")
    if size in (None, "adaptive"):
        raise ArgumentError("--step-size", "penchant", f"a number with --optimiser {name}", size or "nothing")
    return PlainDescent(size) if name == "gd" else LayerAdam(size, epsilon=0.0)


def key_norm(options: Any, problem: AttentionRegression) -> float | None:
    """The largest |V|, whitened, that the scale asked for allows; None at the balanced one."""
    limit, factor = options.logit_limit, options.layer_scale
    if factor is None:
        return limit
    norm = float(np.sqrt(problem.sizes[0])) / _positive("--layer-scale", factor)
    return norm if limit is None else min(norm, limit)


def start(options: Any, sample: AttentionSample) -> AttentionLayer:
    """The spectral start, a random one ('small'), or U and V of a file; with --layer-scale c as (c U, V/c)."""
    if options.start != "small":
        fix = "it is the standard deviation of --start small; `--layer-scale` and `--logit-limit` set the scale c of (c U, V/c)"
        left_out(options, ("scale",), "left out unless --start small", fix=fix)
    if options.start == "zeros":  # the default of the command line; zeros are a critical point
        layer = spectral_layer(sample.estimated, options.gauge or "identity")
    else:
        left_out(options, ("gauge",), "left out unless the start is spectral")
        layer = _other_start(options, *sample.estimated.planted.shape)
    factor = options.layer_scale
    return layer if factor is None else AttentionLayer(factor * layer.value, layer.key_query / factor)


def _other_start(options: Any, m: int, d: int) -> AttentionLayer:
    if options.start == "small":
        rng = np.random.default_rng(options.seed)
        scale = _SMALL if options.scale is None else _positive("--scale", options.scale)
        return AttentionLayer(*(scale * rng.standard_normal(shape) for shape in ((m, d), (d, d))))
    arrays = read_arrays(options.start)
    if not {"U", "V"} <= set(arrays):
        raise ArgumentError("--start", "penchant", "a file with the arrays U and V", f"the arrays {sorted(arrays)}")
    return AttentionLayer(arrays["U"], arrays["V"])


def source(options: Any, sample: AttentionSample) -> AbstractSource:
    if options.batch is None:
        left_out(options, ("keys",), "used with --batch")
        return FullSample(sample)
    return Minibatch(sample, options.batch, keys=options.keys or "batch", seed=options.seed)
