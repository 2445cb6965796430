"""Structure-aware descent against its rivals: excess along minibatch training from a spectral and from a random start."""

from itertools import product

import jax.numpy as jnp
import numpy as np

from ....exhibits import DEFINITIONS, Figure, Line, Table
from ....lab import Lab, Study, recipe
from ....training.recorders import Every
from ..evidence import BATCH, STEP, STEPS, experiment_rules, experiment_run
from ..samples import minibatch_law, sooner, start_excess
from ..setting.context_bias import oracle_shift, sample_floor
from ..setting.geometry import balanced_point
from ..setting.problem import AttentionLayer
from ..setting.sample import GAUGE, GAUGES, AttentionExperiment, AttentionSample, attention_experiment, spectral_layer
from ..training.algorithm1 import AttentionRun, train_attention
from ..training.rules import PreconditionedDescent
from ..training.sources import Minibatch, Population

SHOWN = (100, 500, 1000, 2000)


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


def sign_choices(found: AttentionExperiment) -> str:
    """The excess of the spectral start here, and over all signs of the singular vectors, among which the gauge identity chooses."""
    estimated = AttentionSample(found.inputs, found.targets).estimated
    signs = product((1.0, -1.0), repeat=len(estimated.sizes))
    starts = [estimated.unwhiten(jnp.asarray(balanced_point(estimated, np.diag(one)))) for one in signs]
    values = [float(found.problem.excess(start)) for start in starts]
    return f"The spectral start has excess {values[0]:.4g}; over all signs of the singular vectors it is {min(values):.4g} to {max(values):.4g}"


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
        f"L* = {infimum:.3g}; zero predictor {np.sum(np.asarray(problem.sizes) ** 2):.3g}; seed {lab.seed}. {sign_choices(found)}. "
        f"{'' if lab.full else 'Only with --full: the spectral start with keys of all samples.'}"
    )
    return Table("excess", "Excess along training", columns, tuple(rows), text)


def seeds(lab: Lab) -> Table:
    """First steps at a tenth of L* for three problems, samples and starts, the seed of the study first."""
    chosen, rows = range(lab.seed, lab.seed + 3), []
    for name in ("two_sided + reg", "left + reg", "SGD", "Adam, 0.03", "two_sided + reg, adaptive"):
        lab.progress(f"three seeds, {name}")
        infima = {one: float(attention_experiment(seed=one).problem.infimum().value) for one in chosen}
        firsts = (experiment_run(lab, name, one).first_below(0.1 * level) for one, level in infima.items())
        rows.append((name, *("-" if first is None else first for first in firsts)))
    columns = ("method", *(f"seed {one}" for one in chosen))
    text = f"Minibatches of {BATCH}, step {STEP:g} where none is named, {STEPS} steps; - where it is not reached."
    return Table("seeds", "First step with excess at most 0.1 L*", columns, tuple(rows), text)


def gauges(lab: Lab) -> Table:
    """B^2 times the excess of the mean late layer from the spectral start in each gauge, with B^2 (v/n + b_2/B^2)."""
    found = attention_experiment(seed=lab.seed)
    problem, sample = found.problem, AttentionSample(found.inputs, found.targets)
    rule, rows = PreconditionedDescent("two_sided", STEP), []
    for gauge in GAUGES:
        lab.progress(f"spectral start in the gauge {gauge}")
        start, source = spectral_layer(sample.estimated, gauge), Minibatch(sample, BATCH)
        run = train_attention(source, rule, start, steps=STEPS, recorder=Every(10), truth=problem)
        late = run.steps >= STEPS // 2
        layer = AttentionLayer(run.value[late].mean(axis=0), run.key_query[late].mean(axis=0))
        level = oracle_shift(problem, gauge, sample_balance=False).excess
        whole = level + BATCH**2 * sample_floor(problem) / sample.size
        settled = (float(problem.excess(layer)), float(np.median(run.excess[late])))
        rows.append((gauge, *(f"{value:.3g}" for value in (*(BATCH**2 * one for one in settled), level, whole))))
    columns = ("gauge", "B^2 excess of the mean layer", "B^2 median excess", "b_2", "b_2 + B^2 v/n")
    text = (
        f"Two-sided steps of {STEP:g} from the spectral start, B = {BATCH}, second half of {STEPS} steps. "
        f"1/(B s_d) = {1 / (BATCH * float(problem.sizes[-1])):.2g}: where it is not small the prediction is too large."
    )
    title = "What attention within batches settles at, by gauge of the start"
    return Table("gauges", title, columns, tuple(rows), text)


STUDIES = (
    Study(
        "attention-regression",
        "Structure-aware descent on softmax attention regression",
        claims=(sooner, start_excess, minibatch_law),
        exhibits=(curves, excesses, seeds, gauges),
        definitions=DEFINITIONS
        | {
            "gauge": GAUGE,
            "excess": "population loss above its infimum, |(U Sigma V - A) Sigma^(1/2)|^2",
            "L*": "m sigma^2, the loss of the planted map",
            "two_sided, left, euclidean": "gradient preconditioned by the covariance on both sides, on one side, not at all",
            "v/n, b_2/B^2": "predicted excess of training on n samples, and of attention within batches of size B",
            "reg": "with the regulariser that balances the two factors",
        },
    ),
)
