"""Runs of attention regression as rows of a sweep: data, options and measures by name, one run after the other."""

from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from ...errors import ArgumentError
from ...settings.files import read_arrays
from ...sweeps.spec import COMMON, SPEC, generated
from ...training.recorders import Every, LogSpaced
from . import asked
from .setting.geometry import GEOMETRIES
from .setting.problem import AttentionLayer, AttentionRegression
from .setting.sample import GAUGES, AttentionExperiment
from .setting.sample import KEYS as _ATTENDED
from .training.algorithm1 import train_attention
from .training.population import AttentionRun
from .training.rules import Rule
from .training.sources import AbstractSource

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


def member(row: Mapping[str, Any]) -> Member:
    """What a row asks for; 200 steps where nothing is said."""
    options = SimpleNamespace(**{**_OPTIONS, **row, "seed": row.get("start_seed", row["seed"])})
    made = None if "data" in row else generated(row)
    if made is not None and not isinstance(made, AttentionExperiment):
        raise ArgumentError("generator", SPEC, "attention_experiment for attention-regression", row["generator"])
    arrays = read_arrays(row["data"]) if made is None else {"inputs": made.inputs, "targets": made.targets}
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


def _late_excess(run: AttentionRun, one: Member) -> float:
    """Excess of the mean layer over the second half: the noise of single batches averages out, the bias stays."""
    if one.truth is None:
        raise ArgumentError("measures", SPEC, "left out without a known truth", "late_excess")
    late = run.steps >= run.steps[-1] // 2
    return float(one.truth.excess(AttentionLayer(run.value[late].mean(axis=0), run.key_query[late].mean(axis=0))))


MEASURES = {"late_excess": _late_excess}
ARRAYS = ("params", "series")
