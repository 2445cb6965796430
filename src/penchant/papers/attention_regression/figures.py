"""Structure-aware descent against its rivals: excess along minibatch training from a spectral and from a random start."""

import numpy as np

from ...exhibits import DEFINITIONS, Figure, Line, Table
from ...lab import Lab, Study, recipe
from ...training.events import At, Every
from .evidence import BATCH, STEP, STEPS, experiment_rules, experiment_run, layer_of, scaling_problem, start_near
from .lemmas import context_means, context_variances, gradient_bias, lemma8, weight_moments
from .rates import exact_factor, lemma4
from .samples import minibatch_law, oracle_floor, sample_floor_law, scaling_law, sooner, start_excess
from .setting.context_bias import oracle_shift, sample_floor
from .setting.geometry import TwoSided, attraction_radius
from .setting.sample import (
    GAUGE,
    AttentionExperiment,
    AttentionSample,
    attention_experiment,
    draw_sample,
    spectral_layer,
)
from .theorems import GOEL
from .training.algorithm1 import train_attention
from .training.rules import PreconditionedDescent
from .training.run import AttentionRun
from .training.sources import AbstractSource, FullSample, Minibatch, Population

SHOWN = (100, 500, 1000, 2000)
GRID = (0, 5, 10, 20, 40)


@recipe
def _random_start(lab: Lab) -> dict[str, AttentionRun]:
    runs = {}
    for name in experiment_rules():
        lab.progress(f"{name}, {STEPS} minibatch steps")
        runs[name] = experiment_run(lab, name, lab.seed)
    return runs


@recipe
def _spectral_start(lab: Lab) -> dict[str, AttentionRun]:
    found = attention_experiment(seed=lab.seed)
    sample = AttentionSample(found.inputs, found.targets)
    start, runs = spectral_layer(sample.estimated), {}
    sources = {"two_sided": Minibatch(sample, BATCH), "left": Minibatch(sample, BATCH)}
    if lab.full:
        sources["two_sided, keys of all samples"] = Minibatch(sample, BATCH, keys="full")
    for name, source in sources.items():
        lab.progress(f"spectral start, {name}")
        rule = PreconditionedDescent(name.split(",")[0], STEP)
        run = train_attention(source, rule, start, steps=STEPS, recorder=Every(2), truth=found.problem)
        runs[f"spectral start, {name}"] = run
    return runs


def _levels(found: AttentionExperiment, steps: np.ndarray) -> tuple[Line, ...]:
    problem, ends = found.problem, np.array([max(1, steps[0]), steps[-1]], float)
    levels = {
        "zero predictor": float(np.sum(np.asarray(problem.sizes) ** 2)),
        "v/n": sample_floor(problem) / len(found.inputs),
        "b_2/B^2": oracle_shift(problem, sample_balance=False).excess / BATCH**2,
    }
    return tuple(Line(name, ends, np.full(2, level), "prediction") for name, level in levels.items())


def _figure(name: str, title: str, runs: dict[str, AttentionRun], found: AttentionExperiment, relative: bool) -> Figure:
    infimum = float(found.problem.infimum().value)
    shift, unit, label = (infimum, infimum, "L / L*") if relative else (0.0, 1.0, "excess")
    lines = tuple(Line(label, run.steps[1:], (shift + run.excess[1:]) / unit) for label, run in runs.items())
    levels = () if relative else _levels(found, next(iter(runs.values())).steps)
    caption = f"Minibatches of {BATCH}, n = {len(found.inputs)}."
    return Figure(name, title, "step", label, lines + levels, caption, "log", "log")


def curves(lab: Lab) -> tuple[Figure, ...]:
    found, random = attention_experiment(seed=lab.seed), _random_start(lab)
    first = {**_spectral_start(lab), "SGD": random["SGD"]}
    return (
        _figure("spectral", "Spectral start against SGD from a random start", first, found, False),
        _figure("spectral-relative", "The same, as the paper plots it (Figure 1)", first, found, True),
        _figure("random", "The same random start", random, found, False),
        _figure("relative", "The same, as the paper plots it (Figure 2)", random, found, True),
    )


def excesses(lab: Lab) -> Table:
    found = attention_experiment(seed=lab.seed)
    problem, infimum = found.problem, float(found.problem.infimum().value)
    rule, recorder = PreconditionedDescent("two_sided", STEP), Every(2)
    exact = train_attention(Population(problem), rule, found.start, steps=STEPS, recorder=recorder, truth=problem)
    rows = []
    for name, run in {**_random_start(lab), "population gradients, two_sided": exact, **_spectral_start(lab)}.items():
        cells = [f"{run.excess_at(step):.3g}" if step <= run.steps[-1] else run.status.name for step in SHOWN]
        firsts = (run.first_below(share * infimum) for share in (0.1, 0.01))
        rows.append((name, *cells, *("-" if first is None else first for first in firsts)))
    columns = ("method", *(f"step {step}" for step in SHOWN), "first step <= 0.1 L*", "first step <= 0.01 L*")
    text = (
        f"L* = {infimum:.3g}; zero predictor {np.sum(np.asarray(problem.sizes) ** 2):.3g}; seed {lab.seed}."
        f"{'' if lab.full else 'Only with --full: the spectral start with keys of all samples.'}"
    )
    return Table("excess", "Excess along training", columns, tuple(rows), text)


@recipe
def _grid_rows(lab: Lab) -> dict[str, list[float]]:
    """Mean excess after the steps of the grid on n samples, from a start at distance r_0 of the gauge identity."""
    problem, rule = scaling_problem(lab, 1e-3), PreconditionedDescent("two_sided", 5.0)
    start, recorder = layer_of(problem, start_near(problem, attraction_radius(problem, TwoSided()), 21)), At(GRID)
    sources: dict[str, list[AbstractSource]] = {"infinity": [Population(problem)]}
    for count, sets in ((200, 20), (800, 10), (3200, 5)) if lab.full else ((200, 5), (800, 5)):
        draws = (draw_sample(problem, count, np.random.default_rng([50 + k, lab.seed])) for k in range(sets))
        sources[str(count)] = [FullSample(sample) for sample in draws]
    rows = {}
    for count, those in sources.items():
        lab.progress(f"n = {count}, {len(those)} runs from distance r_0")
        go = lambda source: train_attention(source, rule, start, steps=GRID[-1], recorder=recorder, truth=problem)
        runs = [go(source) for source in those]
        rows[count] = [float(np.mean([run.excess_at(step) for run in runs])) for step in GRID]
    return rows


def grid(lab: Lab) -> Figure:
    """The scaling law of Theorem 2: contraction in T, then a floor that falls with n."""
    found, problem, lines = _grid_rows(lab), scaling_problem(lab, 1e-3), []
    for count, values in found.items():
        lines.append(Line(f"n = {count}", np.array(GRID, float), np.array(values)))
        if count.isdigit():
            n, ends = int(count), np.array([0.0, GRID[-1]])
            level = sample_floor(problem) / n + oracle_shift(problem).excess / n**2
            lines.append(Line(f"v/n + b_2/n^2, n = {count}", ends, np.full(2, level), "prediction"))
    caption = "Two-sided descent with step 5 from distance r_0 of the gauge identity, mean over data sets, noise variance 1e-3."
    title = "Contraction in T, then the floor of the data"
    return Figure("grid", title, "step", "excess", tuple(lines), caption, "linear", "log")


def lemmas(lab: Lab) -> Table:
    """What the claims on Lemmas 8 to 23 measured, against bounds and laws."""
    found = ((one, one(lab)) for one in (lemma8, weight_moments, context_means, context_variances))
    rows = [
        (one.citation.removeprefix(f"{GOEL}, "), line)
        for one, verdict in found
        for line in verdict.inequality.split("; ")
    ]
    text = "Contexts of 30 and 60 normal keys, 120 queries with layers of their own."
    return Table(
        "lemmas", "Lemmas 8 to 23: measured against bounds and laws", ("lemma", "inequality"), tuple(rows), text
    )


STUDIES = (
    Study(
        "attention-regression",
        "Structure-aware descent on softmax attention regression (Algorithm 1, Figures 1 and 2)",
        claims=(
            *(sooner, start_excess, exact_factor, lemma4, gradient_bias),
            *(scaling_law, oracle_floor, sample_floor_law, minibatch_law),
        ),
        exhibits=(curves, excesses, grid, lemmas),
        aliases=("attention-rates", "attention-landscape", "attention-bias", "attention-scaling-law"),
        definitions=DEFINITIONS
        | {
            "gauge": GAUGE,
            "excess": "population loss above its infimum, |(U Sigma V - A) Sigma^(1/2)|^2",
            "L*": "m sigma^2, the loss of the planted map",
            "two_sided, left, euclidean": "gradient preconditioned by the covariance on both sides, on one side, not at all",
            "v/n, b_2/B^2": "predicted excess of training on n samples, and of attention within batches of size B",
            "v/n + b_2/n^2": "predicted excess of training on all n samples of one data set, from the gauge identity",
            "reg": "with the regulariser that balances the two factors",
        },
    ),
)
