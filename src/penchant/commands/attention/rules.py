"""From the options of the command line to the rule, source and start of an attention regression."""

from argparse import Namespace

import numpy as np

from ...errors import ArgumentError
from ...papers.attention_regression.setting.problem import AttentionLayer, AttentionRegression
from ...papers.attention_regression.setting.sample import AttentionSample, spectral_layer
from ...papers.attention_regression.training.rules import (
    AbstractAttentionRule,
    LayerAdam,
    PlainDescent,
    PreconditionedDescent,
)
from ...papers.attention_regression.training.sources import AbstractSource, FullSample, Minibatch
from ...settings.files import read_arrays

_STEPS = {
    "default": "1/(4 s_1) over the geometry's stretch, halved until the objective of the sample falls",
    "adaptive": "adaptive",
}
_SMALL = 1e-3  # standard deviation of the start 'small'


def _default_step(options: Namespace) -> str:
    """Near the minima a constant step is faster; far from them, and on minibatches, which curve more, only adaptive ones are safe."""
    return "default" if options.start == "zeros" and options.batch is None else "adaptive"


def rule_of(options: Namespace, problem: AttentionRegression) -> PreconditionedDescent | AbstractAttentionRule:
    """Structure-aware descent, or plain descent (gd) or Adam, which need a step size."""
    name, size = options.optimiser, options.step_size
    if size not in (None, "adaptive") and not 0 < size < np.inf:
        raise ArgumentError("--step-size", "penchant", "positive and finite, or 'adaptive'", size)
    if name is None:
        step = _default_step(options) if size is None else size
        if options.layer_scale is not None and not 0 < options.layer_scale < np.inf:
            raise ArgumentError("--layer-scale", "penchant", "positive and finite", options.layer_scale)
        # at another scale the regulariser must not see it, and V must not grow: a sample's loss drifts along the scale
        return PreconditionedDescent(options.geometry or "two_sided", step, logit_limit=key_norm_of(options, problem))
    if options.geometry is not None:
        raise ArgumentError("--geometry", "penchant", f"left out with --optimiser {name}", options.geometry)
    for flag, given in (("--logit-limit", options.logit_limit), ("--layer-scale", options.layer_scale)):
        if given is not None:
            raise ArgumentError(flag, "penchant", f"left out with --optimiser {name}", given)
    if size in (None, "adaptive"):
        raise ArgumentError("--step-size", "penchant", f"a number with --optimiser {name}", size or "nothing")
    return PlainDescent(size) if name == "gd" else LayerAdam(size, epsilon=0.0)


def start_of(options: Namespace, sample: AttentionSample) -> AttentionLayer:
    """The spectral start, a random one ('small'), or U and V of a file; with --layer-scale c as (c U, V/c)."""
    layer, factor = _start_of(options, sample), options.layer_scale
    return layer if factor is None else AttentionLayer(factor * layer.value, layer.key_query / factor)


def key_norm_of(options: Namespace, problem: AttentionRegression) -> float | None:
    """The largest |V|, whitened, that the scale asked for allows; None at the balanced one."""
    limit, factor = options.logit_limit, options.layer_scale
    if factor is None:
        return limit
    norm = float(np.sqrt(problem.sizes[0])) / factor
    return norm if limit is None else min(norm, limit)


def _start_of(options: Namespace, sample: AttentionSample) -> AttentionLayer:
    if options.scale is not None and options.start != "small":
        fix = "it is the standard deviation of --start small; `--layer-scale` and `--logit-limit` set the scale c of (c U, V/c)"
        raise ArgumentError("--scale", "penchant", "left out unless --start small", options.scale, fix)
    if options.start == "zeros":  # the default of the command line; zeros are a critical point
        return spectral_layer(sample.estimated, options.gauge or "identity")
    if options.gauge is not None:
        raise ArgumentError("--gauge", "penchant", "left out unless the start is spectral", options.gauge)
    m, d = sample.estimated.planted.shape
    if options.start == "small":
        rng, scale = np.random.default_rng(options.seed), _SMALL if options.scale is None else options.scale
        if not 0 < scale < np.inf:
            raise ArgumentError("--scale", "penchant", "positive and finite", scale)
        return AttentionLayer(*(scale * rng.standard_normal(shape) for shape in ((m, d), (d, d))))
    arrays = read_arrays(options.start)
    if not {"U", "V"} <= set(arrays):
        raise ArgumentError("--start", "penchant", "a file with the arrays U and V", f"the arrays {sorted(arrays)}")
    return AttentionLayer(arrays["U"], arrays["V"])


def source_of(options: Namespace, sample: AttentionSample) -> AbstractSource:
    if options.batch is None:
        if options.keys is not None:
            raise ArgumentError("--keys", "penchant", "used with --batch", options.keys)
        return FullSample(sample)
    return Minibatch(sample, options.batch, keys=options.keys or "batch", seed=options.seed)


def run_settings(options: Namespace, steps: int) -> dict[str, str]:
    """The options of a run, with what was left open filled in."""
    spectral = options.start == "zeros"
    found = {
        "optimiser": options.optimiser or "preconditioned descent",
        "geometry": "euclidean" if options.optimiser else options.geometry or "two_sided",
        "step size": options.step_size or _STEPS[_default_step(options)],
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
