"""The same comparison on three seeds, and what minibatch training settles at from the spectral start in each gauge."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ....exhibits import Finding, Table
from ....training.recorders import Every
from ....verdict import all_of, at_least, at_most
from ..setting.context_bias import oracle_shift, sample_floor
from ..setting.generators import AttentionExperiment, attention_experiment
from ..setting.problem import AttentionLayer
from ..setting.sample import GAUGES, AttentionSample, spectral_layer
from ..theorems import GOEL
from ..training.algorithm1 import train_attention
from ..training.layer_rules import LayerAdam, PlainDescent
from ..training.preconditioned import PreconditionedDescent
from ..training.sources import Minibatch

OURS = f"derived here, for {GOEL}"


def _rules(step: float) -> dict[str, Any]:
    return {
        "two_sided + reg": PreconditionedDescent("two_sided", step),
        "left + reg": PreconditionedDescent("left", step),
        "SGD": PlainDescent(step),
        "Adam, 0.03": LayerAdam(0.03, epsilon=1e-8),
        "two_sided + reg, adaptive": PreconditionedDescent("two_sided", "adaptive"),
    }


def seeds_section(
    seed: int, batch: int, step: float, steps: int, progress: Callable[[str], None]
) -> tuple[Table, Finding]:
    """First steps at a tenth of L* for three problems, samples and starts, the seed of the study first."""
    seeds, rows = (seed, seed + 1, seed + 2), {name: [] for name in _rules(step)}
    for one in seeds:
        found = attention_experiment(seed=one)
        source = Minibatch(AttentionSample(found.inputs, found.targets), batch)
        level = 0.1 * float(found.problem.infimum().value)
        for name, rule in _rules(step).items():
            progress(f"seed {one}, {name}")
            run = train_attention(source, rule, found.start, steps=steps, recorder=Every(1), truth=found.problem)
            rows[name].append(run.first_below(level))
    cell = lambda first: "-" if first is None else first
    table = Table(
        "seeds",
        "First step with excess at most 0.1 L*",
        ("method", *(f"seed {one}" for one in seeds)),
        tuple((name, *map(cell, firsts)) for name, firsts in rows.items()),
        f"Minibatches of {batch}, step {step:g} where none is named, {steps} steps; - where it is not reached.",
    )
    late = lambda first: float(steps if first is None else first)
    checks = [
        at_least(late(theirs) / late(ours), 5.0, f"steps of SGD over two_sided + reg, seed {one}")
        for one, ours, theirs in zip(seeds, rows["two_sided + reg"], rows["SGD"], strict=True)
    ]
    text = "On each of three seeds two-sided training reaches 0.1 L* at least 5 times sooner than SGD."
    return table, Finding(text, all_of(*checks), GOEL)


def gauges_section(
    found: AttentionExperiment, batch: int, step: float, steps: int, progress: Callable[[str], None]
) -> tuple[Table, Finding]:
    """B^2 times the excess of the mean late layer from the spectral start in each gauge, with B^2 (v/n + b_2/B^2)."""
    problem, sample = found.problem, AttentionSample(found.inputs, found.targets)
    rule, rows, floors = PreconditionedDescent("two_sided", step), [], {}
    for gauge in GAUGES:
        progress(f"spectral start in the gauge {gauge}")
        start = spectral_layer(sample.estimated, gauge)
        run = train_attention(Minibatch(sample, batch), rule, start, steps=steps, recorder=Every(10), truth=problem)
        late = run.steps >= steps // 2
        layer = AttentionLayer(run.value[late].mean(axis=0), run.key_query[late].mean(axis=0))
        floors[gauge] = batch**2 * float(problem.excess(layer))
        level = oracle_shift(problem, gauge, sample_balance=False).excess
        whole = level + batch**2 * sample_floor(problem) / sample.size
        numbers = (floors[gauge], batch**2 * float(np.median(run.excess[late])), level, whole)
        rows.append((gauge, *(f"{value:.3g}" for value in numbers)))
    table = Table(
        "gauges",
        "What attention within batches settles at, by gauge of the start",
        ("gauge", "B^2 excess of the mean layer", "B^2 median excess", "b_2", "b_2 + B^2 v/n"),
        tuple(rows),
        f"Two-sided steps of {step:g} from the spectral start, B = {batch}, second half of {steps} steps. "
        f"1/(B s_d) = {1 / (batch * float(problem.sizes[-1])):.2g}: where it is not small the prediction is too large.",
    )
    order = all_of(
        at_most(floors["minus"] / floors["identity"], 1.0, "floor in the gauge minus over identity"),
        at_most(floors["identity"] / floors["plus"], 0.7, "floor in the gauge identity over plus"),
    )
    return table, Finding("The gauge of the start decides the floor: least for minus, largest for plus.", order, OURS)
