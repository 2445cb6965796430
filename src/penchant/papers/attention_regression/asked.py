"""From options by name, of the command line or of a sweep, to a sample, a rule, a start and gradients; and the rows of a sweep of attention regression."""

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...errors import ArgumentError, DataFileError
from ...optimisers.base import Adam
from ...settings.files import Arrays, read_arrays
from ...sweeps.spec import COMMON, SPEC, generated, own_arrays
from ...training.events import Every, LogSpaced
from . import asked
from .setting.geometry import GEOMETRIES
from .setting.problem import AttentionLayer, AttentionRegression, Unregularised
from .setting.sample import GAUGES, AttentionExperiment, AttentionSample, spectral_layer
from .setting.sample import KEYS as _ATTENDED
from .training.algorithm1 import train_attention
from .training.rules import LayerRule, PreconditionedDescent, Rule
from .training.run import AttentionRun
from .training.sources import AbstractSource, FullSample, Minibatch

_SMALL = 1e-3  # standard deviation of the start 'small'


def left_out(options: Namespace, names: tuple[str, ...], required: str, owner: str = "penchant", fix: str = "") -> None:
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


def default_step(options: Namespace) -> str:
    """Near the minima a constant step is faster; far from them, and on minibatches, which curve more, only adaptive ones are safe."""
    return "default" if options.start == "zeros" and options.batch is None else "adaptive"


def rule(options: Namespace, limit: float | None) -> Rule:
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
    return PreconditionedDescent("euclidean", size, Unregularised()) if name == "gd" else LayerRule(Adam(size, eps=0.0))


def key_norm(options: Namespace, problem: AttentionRegression) -> float | None:
    """The largest |V|, whitened, that the scale asked for allows; None at the balanced one."""
    limit, factor = options.logit_limit, options.layer_scale
    if factor is None:
        return limit
    norm = float(np.sqrt(problem.sizes[0])) / _positive("--layer-scale", factor)
    return norm if limit is None else min(norm, limit)


def start(options: Namespace, sample: AttentionSample) -> AttentionLayer:
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


def _other_start(options: Namespace, m: int, d: int) -> AttentionLayer:
    if options.start == "small":
        rng = np.random.default_rng(options.seed)
        scale = _SMALL if options.scale is None else _positive("--scale", options.scale)
        return AttentionLayer(*(scale * rng.standard_normal(shape) for shape in ((m, d), (d, d))))
    arrays = read_arrays(options.start)
    if not {"U", "V"} <= set(arrays):
        raise ArgumentError("--start", "penchant", "a file with the arrays U and V", f"the arrays {sorted(arrays)}")
    return AttentionLayer(arrays["U"], arrays["V"])


def source(options: Namespace, sample: AttentionSample) -> AbstractSource:
    if options.batch is None:
        left_out(options, ("keys",), "used with --batch")
        return FullSample(sample)
    return Minibatch(sample, options.batch, keys=options.keys or "batch", seed=options.seed)


KEYS = COMMON | {
    "setting": ("attention-regression",),
    "optimiser": ("gd", "adam"),
    "start": ("zeros", "small"),
    "geometry": tuple(GEOMETRIES),
    "gauge": GAUGES,
    "keys": _ATTENDED,
    "batch": int,
    **dict.fromkeys(("step_size", "scale", "ridge", "logit_limit", "layer_scale"), float),
}
_OPTIONS = dict.fromkeys(KEYS) | {"start": "zeros"}


class Member(NamedTuple):
    """One run before it starts; `truth` is what its excess is measured against, where it is known."""

    source: AbstractSource
    rule: Rule
    start: AttentionLayer
    steps: int
    truth: AttentionRegression | None
    takes = tuple(KEYS)  # what means nothing to a run is refused where it is made


def member(row: Mapping[str, Any]) -> Member:
    """What a row asks for; 200 steps where nothing is said."""
    options = Namespace(**{**_OPTIONS, **row, "seed": row.get("start_seed", row["seed"])})
    made = None if "data" in row else generated(row)
    if made is not None and not isinstance(made, AttentionExperiment):
        raise ArgumentError("generator", SPEC, "attention_experiment for attention-regression", row["generator"])
    arrays = own_arrays(row) if made is None else {"inputs": made.inputs, "targets": made.targets}
    sample, truth = asked.sample_of(arrays, options.ridge)
    truth = truth if made is None else made.problem
    rule, start = asked.rule(options, asked.key_norm(options, sample.estimated)), asked.start(options, sample)
    return Member(asked.source(options, sample), rule, start, row.get("steps", 200), truth)


def runs(made: Mapping[int, Member], records: int) -> Iterator[tuple[int, AttentionRun | Exception]]:
    """Each run to its end."""
    for k, (source, rule, start, steps, truth) in made.items():
        recorder = LogSpaced(records) if records > 1 else Every(max(1, steps // 100))
        try:
            yield k, train_attention(source, rule, start, steps=steps, recorder=recorder, truth=truth)
        except Exception as error:
            yield k, error


def outcome(run: AttentionRun) -> dict[str, Any]:
    """The end of a run in numbers."""
    known = {} if np.isnan(run.excess[-1]) else {"excess": float(run.excess[-1])}
    numbers = {name: float(getattr(run, name)[-1]) for name in ("loss", "gradient_norm", "step_factor")}
    return {"status": run.status.name, "reason": "", "steps_taken": int(run.steps[-1]), **known, **numbers}


def arrays(run: AttentionRun, wanted: Sequence[str]) -> dict[str, np.ndarray]:
    """Arrays that are kept of a run: U and V at its end, or the series of its records."""
    layer = run.at()
    found = {"params_U": layer.value, "params_V": layer.key_query} if "params" in wanted else {}
    series = ("steps", "loss", "excess") if "series" in wanted else ()
    return {name: np.asarray(part) for name, part in found.items()} | {
        f"series_{name}": np.asarray(getattr(run, name)) for name in series
    }


PLANTED = {"late_excess": "the generator attention_experiment, or covariance and planted in the file"}
MEASURES = {"late_excess": lambda run, one: run.late_excess(one.truth)}
ARRAYS = ("params", "series")
