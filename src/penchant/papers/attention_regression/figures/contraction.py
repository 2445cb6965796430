"""Structure-aware descent against its rivals: excess along minibatch training from a spectral and from a random start."""

from collections.abc import Callable
from importlib.util import find_spec
from itertools import product
from typing import Any

import jax.numpy as jnp
import numpy as np

from ....exhibits import DEFINITIONS, Figure, Finding, Line, Result, Table
from ....lab import Lab, Study
from ....training.recorders import Every
from ....verdict import Verdict, all_of, at_least, at_most
from ..setting.balance import Unregularised
from ..setting.context_bias import oracle_shift, sample_floor, spectral_floor
from ..setting.curvature import balanced_point
from ..setting.generators import AttentionExperiment, attention_experiment
from ..setting.sample import AttentionSample, spectral_layer
from ..theorems import GOEL
from ..training.algorithm1 import AttentionRun, train_attention
from ..training.layer_rules import LayerAdam, LayerShampoo, PlainDescent
from ..training.preconditioned import PreconditionedDescent
from ..training.sources import AbstractSource, Minibatch, Population
from .seeds import gauges_section, seeds_section
from .words import GAUGE

BATCH, STEP, STEPS = 200, 0.1, 2000
SHOWN = (100, 500, 1000, 2000)
OURS = f"derived here, for {GOEL}"
WORDS = {
    **DEFINITIONS,
    "gauge": GAUGE,
    "excess": "population loss above its infimum, |(U Sigma V - A) Sigma^(1/2)|^2",
    "L*": "m sigma^2, the loss of the planted map",
    "two_sided, left, euclidean": "gradient preconditioned by the covariance on both sides, on one side, not at all",
    "v/n, b_2/B^2": "predicted excess of training on n samples, and of attention within batches of size B",
    "reg": "with the regulariser that balances the two factors",
}


def _rules() -> dict[str, Any]:
    plain = Unregularised()
    rules = {
        "two_sided + reg": PreconditionedDescent("two_sided", STEP),
        "two_sided, no reg": PreconditionedDescent("two_sided", STEP, plain),
        "left + reg": PreconditionedDescent("left", STEP),
        "left, no reg": PreconditionedDescent("left", STEP, plain),
        "euclidean + reg": PreconditionedDescent("euclidean", STEP),
        "SGD": PlainDescent(STEP),
        "SGD, step 0.3": PlainDescent(0.3),
        "Adam, 0.03": LayerAdam(0.03, epsilon=1e-8),
        "two_sided + reg, adaptive": PreconditionedDescent("two_sided", "adaptive"),
        "Shampoo, 3": LayerShampoo(3.0, epsilon=1e-4),
    }
    if find_spec("optax") is not None:
        from ....bridge.optax import muon

        rules["Muon, 0.02 (optax)"] = muon(0.02)
    return rules


def _train(source: AbstractSource, rule: Any, start: Any, found: AttentionExperiment) -> AttentionRun:
    return train_attention(source, rule, start, steps=STEPS, recorder=Every(2), truth=found.problem)


def _levels(found: AttentionExperiment, steps: np.ndarray) -> tuple[Line, ...]:
    problem, count = found.problem, len(found.inputs)
    ends = np.array([max(1, steps[0]), steps[-1]], float)
    levels = {
        "zero predictor": float(np.sum(np.asarray(problem.sizes) ** 2)),
        "v/n": sample_floor(problem) / count,
        "b_2/B^2": oracle_shift(problem, sample_balance=False).excess / BATCH**2,
    }
    return tuple(Line(name, ends, np.full(2, level), "prediction") for name, level in levels.items())


def _row(name: str, run: AttentionRun, infimum: float) -> tuple:
    first = lambda share: run.first_below(share * infimum)
    cells = [f"{run.excess_at(step):.3g}" if step <= run.steps[-1] else run.status.name for step in SHOWN]
    return (
        name,
        *cells,
        first(0.1) if first(0.1) is not None else "-",
        first(0.01) if first(0.01) is not None else "-",
    )


def _faster(runs: dict[str, AttentionRun], infimum: float) -> Verdict:
    """How many times sooner two-sided training is at 0.1 L* than SGD (which may not get there at all)."""
    ours, theirs = (runs[name].first_below(0.1 * infimum) for name in ("two_sided + reg", "SGD"))
    if ours is None:
        return at_most(float(runs["two_sided + reg"].excess.min()), 0.1 * infimum, "smallest excess, two_sided + reg")
    return at_least(
        (STEPS if theirs is None else theirs) / ours, 5.0, "steps of SGD over steps of two_sided + reg to 0.1 L*"
    )


def _random_start(found: AttentionExperiment, progress: Callable[[str], None]) -> dict[str, AttentionRun]:
    source = Minibatch(AttentionSample(found.inputs, found.targets), BATCH)
    runs = {}
    for name, rule in _rules().items():
        progress(f"{name}, {STEPS} minibatch steps")
        runs[name] = _train(source, rule, found.start, found)
    return runs


def _spectral_start(found: AttentionExperiment, full: bool, progress: Callable[[str], None]) -> dict[str, AttentionRun]:
    sample = AttentionSample(found.inputs, found.targets)
    start = spectral_layer(sample.estimated)
    sources = {"two_sided": Minibatch(sample, BATCH), "left": Minibatch(sample, BATCH)}
    if full:
        sources["two_sided, keys of all samples"] = Minibatch(sample, BATCH, keys="full")
    runs = {}
    for name, source in sources.items():
        progress(f"spectral start, {name}")
        runs[name] = _train(source, PreconditionedDescent(name.split(",")[0], STEP), start, found)
    return runs


def _sign_choices(found: AttentionExperiment) -> str:
    """The excess of the spectral start here, and over all signs of the singular vectors, among which the gauge identity chooses."""
    estimated = AttentionSample(found.inputs, found.targets).estimated
    signs = product((1.0, -1.0), repeat=len(estimated.sizes))
    starts = [estimated.unwhiten(jnp.asarray(balanced_point(estimated, np.diag(one)))) for one in signs]
    values = [float(found.problem.excess(start)) for start in starts]
    return f"The spectral start has excess {values[0]:.4g}; over all signs of the singular vectors it is {min(values):.4g} to {max(values):.4g}"


def _findings(found: AttentionExperiment, spectral: dict[str, AttentionRun], random: dict[str, AttentionRun]) -> tuple:
    problem, count = found.problem, len(found.inputs)
    infimum = float(problem.infimum().value)
    at_start, late = float(spectral["two_sided"].excess[0]), float(np.median(spectral["two_sided"].excess[-200:]))
    level = oracle_shift(problem, sample_balance=False).excess / BATCH**2
    last = lambda name: float(random[name].excess[-1])
    return (
        Finding(
            "The spectral start alone has excess about v_spec/n.",
            at_most(
                abs(np.log(at_start * count / spectral_floor(problem))), 1.0, "|log(n excess / v_spec)|, one data set"
            ),
            OURS,
        ),
        Finding(
            "Minibatch training with keys from the batch raises it, towards b_2/B^2.",
            all_of(
                at_least(late / at_start, 2.0, "excess late in training over that of the start"),
                at_most(abs(np.log(late / level)), 0.7, "|log(late excess / (b_2/B^2))|"),
            ),
            OURS,
        ),
        Finding("Two-sided training reaches 0.1 L* at least 5 times sooner than SGD.", _faster(random, infimum), GOEL),
        Finding(
            "The regulariser helps two-sided training.",
            at_least(last("two_sided, no reg") / last("two_sided + reg"), 1.0, "final excess without over with"),
            GOEL,
        ),
        Finding(
            "One-sided preconditioning is only mildly better than SGD.",
            at_most(last("SGD") / last("left + reg"), 5.0, "final excess of SGD over left + reg"),
            OURS,
        ),
        Finding(
            "The adaptive step is the fastest start.",
            at_most(
                float(random["two_sided + reg, adaptive"].excess_at(100)),
                float(random["two_sided + reg"].excess_at(100)),
                "excess at step 100, adaptive against constant step",
            ),
            OURS,
        ),
    )


def _figure(name: str, title: str, runs: dict[str, AttentionRun], found: AttentionExperiment, relative: bool) -> Figure:
    infimum = float(found.problem.infimum().value)
    shift, unit = (infimum, infimum) if relative else (0.0, 1.0)
    lines = tuple(Line(label, run.steps[1:], (shift + run.excess[1:]) / unit) for label, run in runs.items())
    levels = () if relative else _levels(found, next(iter(runs.values())).steps)
    y_label = "L / L*" if relative else "excess"
    return Figure(
        name, title, "step", y_label, lines + levels, f"Minibatches of {BATCH}, n = {len(found.inputs)}.", "log", "log"
    )


def attention_regression(lab: Lab) -> Result:
    seed, full, progress = lab.seed, lab.full, lab.progress
    found = attention_experiment(seed=seed)
    infimum = float(found.problem.infimum().value)
    spectral = _spectral_start(found, full, progress)
    random = _random_start(found, progress)
    spectral = {f"spectral start, {name}": run for name, run in spectral.items()}
    exact = {
        "population gradients, two_sided": _train(
            Population(found.problem), PreconditionedDescent("two_sided", STEP), found.start, found
        )
    }
    first = {**spectral, "SGD": random["SGD"]}
    figures = (
        _figure("spectral", "Spectral start against SGD from a random start", first, found, False),
        _figure("spectral-relative", "The same, as the paper plots it (Figure 1)", first, found, True),
        _figure("random", "The same random start", random, found, False),
        _figure("relative", "The same, as the paper plots it (Figure 2)", random, found, True),
    )
    rows = tuple(_row(name, run, infimum) for name, run in {**random, **exact, **spectral}.items())
    table = Table(
        "excess",
        "Excess along training",
        ("method", *(f"step {step}" for step in SHOWN), "first step <= 0.1 L*", "first step <= 0.01 L*"),
        rows,
        f"L* = {infimum:.3g}; zero predictor {np.sum(np.asarray(found.problem.sizes) ** 2):.3g}; seed {seed}. {_sign_choices(found)}. "
        f"{'' if full else 'Only with --full: the spectral start with keys of all samples.'}",
    )
    plain = {name.removeprefix("spectral start, "): run for name, run in spectral.items()}
    gauges, least = gauges_section(found, BATCH, STEP, STEPS, progress)
    seeds, every = seeds_section(seed, BATCH, STEP, STEPS, progress)
    findings = (*_findings(found, plain, random), every, least)
    return Result(findings, figures, (table, seeds, gauges), {}, WORDS)


STUDIES = (
    Study("attention-regression", "Structure-aware descent on softmax attention regression", attention_regression),
)
