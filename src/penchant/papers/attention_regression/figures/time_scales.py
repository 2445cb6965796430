"""Three time scales: descent to the minima, drift along them to the gauge the data select, convergence there."""

import jax.numpy as jnp
import numpy as np

from ....exhibits import DEFINITIONS, Figure, Finding, Line, Result, Table
from ....lab import Lab, Study
from ....training.recorders import At, LogSpaced
from ....verdict import Verdict, all_of, at_least, at_most
from ..context import scaling_problem
from ..setting.balanced_minima import nearest_minimum
from ..setting.curvature import attraction_radius, balanced_point, split_gradient
from ..setting.geometry import TwoSided
from ..setting.problem import AttentionLayer, AttentionRegression
from ..setting.sample import AttentionSample, draw_sample
from ..theorems import GOEL
from ..training.algorithm1 import AttentionRun, total_gradient, train_attention
from ..training.preconditioned import PreconditionedDescent
from ..training.sources import AbstractSource, FullSample
from .words import GAUGE

OURS = f"derived here, for {GOEL}"
SHOWN = (0, 5, 10, 100, 1000)
SIGNS = (-1.0, -1.0, 1.0)
OTHER = "spectral, modes 1 and 2 flipped"
WORDS = {
    **DEFINITIONS,
    "gauge": GAUGE,
    "tangential": "part of the whitened gradient along W Omega, Omega skew: directions that change the gauge only",
    "normal": "the rest of the gradient",
    "gauge angle": "|R - R_0|_F between the gauges of the nearest minima now and at the start",
}


def observe(source: AbstractSource, run: AttentionRun, truth: AttentionRegression) -> dict[str, np.ndarray]:
    """Tangential and normal gradient, and the gauge angle, at every record."""
    first, rows = None, []
    for record in range(len(run)):
        layer = run.at(record)
        whitened = np.asarray(source.problem.whiten(layer))
        gradient = np.asarray(total_gradient(source, layer))
        rotation = nearest_minimum(truth, np.asarray(truth.whiten(layer)), TwoSided()).rotation
        first = rotation if first is None else first
        rows.append((*split_gradient(whitened, gradient), float(np.linalg.norm(rotation - first))))
    tangential, normal, angle = np.array(rows).T
    return {"tangential": tangential, "normal": normal, "angle": angle}


def _starts(sample: AttentionSample, gauges: int) -> dict[str, AttentionLayer]:
    """The spectral start, the same a quarter of r_0 away or with other signs of the singular vectors, and in other gauges."""
    problem = sample.estimated
    rng = np.random.default_rng(21)
    point = balanced_point(problem)
    direction = rng.standard_normal(point.shape)
    near = point + attraction_radius(problem, TwoSided()) / 4 * direction / np.linalg.norm(direction)
    starts = {"spectral": point, "spectral, moved": near, OTHER: balanced_point(problem, np.diag(SIGNS))}
    for k in range(1, gauges + 1):
        rotation = np.linalg.qr(rng.standard_normal((problem.inputs, problem.inputs)))[0]
        starts[f"gauge {k}"] = balanced_point(problem, rotation)
    return {name: problem.unwhiten(jnp.asarray(whitened)) for name, whitened in starts.items()}


def time_scales(lab: Lab) -> Result:
    seed, full, progress = lab.seed, lab.full, lab.progress
    truth = scaling_problem(lab, 1e-3)
    sample = draw_sample(truth, 200, np.random.default_rng(5 + seed))
    source, steps = FullSample(sample), 20_000 if full else 4000
    rule = PreconditionedDescent("two_sided", 5.0)
    recorder = At(tuple(sorted({*SHOWN, *LogSpaced(60).schedule(steps).tolist()})))
    runs: dict[str, AttentionRun] = {}
    for name, start in _starts(sample, 6 if full else 3).items():
        progress(f"{steps} steps from {name}")
        runs[name] = train_attention(source, rule, start, steps=steps, recorder=recorder, truth=truth)
    progress("gradients along and across the minima")
    seen = {name: observe(source, run, truth) for name, run in runs.items()}
    ends = np.array([float(run.loss[-1]) for run in runs.values()])
    signs = {"spectral": "", OTHER: ", modes 1 and 2 flipped"}
    findings = (
        Finding(
            "Ten steps end the descent across the minima; the gradient that is left points along them.",
            all_of(*(one for name, what in signs.items() for one in _collapse(runs[name], seen[name], what))),
            OURS,
        ),
        Finding(
            "Then the layer drifts along the minima, for a hundred times as long, to a gauge that the data select.",
            all_of(*(one for name, what in signs.items() for one in _drift(runs[name], seen[name], what))),
            OURS,
        ),
        Finding(
            "A start moved by r_0/4 ends at the same predictor.",
            at_most(
                _apart(truth, runs["spectral"], runs["spectral, moved"]), 1e-2, "relative distance of the final maps"
            ),
            OURS,
        ),
        Finding(
            "Every gauge drifts to the same limit.",
            at_most(float(ends.max() / ends.min() - 1), 1e-6, "relative spread of the final empirical losses"),
            "a tempting reading of the drift; examined here",
        ),
    )
    return Result(findings, _figures(runs, seen), (_table(runs, seen),), {}, WORDS)


def _collapse(run: AttentionRun, parts: dict[str, np.ndarray], what: str) -> tuple[Verdict, ...]:
    """The normal gradient is gone at step 10, the tangential one is not."""
    early = int(np.flatnonzero(run.steps == 10)[0])
    normal, tangential = parts["normal"], float(parts["tangential"][early])
    return (
        at_most(float(normal[early] / normal[0]), 0.1, f"normal gradient at step 10 over start{what}"),
        at_least(tangential / float(normal[early]), 3.0, f"tangential over normal then{what}"),
    )


def _drift(run: AttentionRun, parts: dict[str, np.ndarray], what: str) -> tuple[Verdict, ...]:
    """The gauge turns until the tangential gradient is gone as well."""
    early = int(np.flatnonzero(run.steps == 10)[0])
    left = float(parts["tangential"][-1] / parts["tangential"][early])
    return (
        at_least(float(parts["angle"][-1]), 0.5, f"gauge angle at the end{what}"),
        at_most(left, 1e-2, f"tangential gradient, end over step 10{what}"),
    )


def _apart(truth: AttentionRegression, first: AttentionRun, second: AttentionRun) -> float:
    """Distance of the final maps U Sigma V of two runs, over the distance of the first to the planted map."""
    product = lambda layer: np.asarray(layer.value @ truth.covariance @ layer.key_query @ truth.root)
    return float(np.linalg.norm(product(first.at()) - product(second.at())) / np.sqrt(first.excess[-1]))


def _figures(runs: dict[str, AttentionRun], seen: dict[str, dict[str, np.ndarray]]) -> tuple[Figure, ...]:
    lines = []
    for name in ("spectral", OTHER):
        run = runs[name]
        lines.append(Line(f"normal, {name}", run.steps[1:], seen[name]["normal"][1:]))
        lines.append(Line(f"tangential, {name}", run.steps[1:], seen[name]["tangential"][1:]))
    excess = tuple(Line(name, run.steps[1:], run.excess[1:]) for name, run in runs.items())
    angle = tuple(Line(name, run.steps[1:], seen[name]["angle"][1:]) for name, run in runs.items())
    caption = "One data set of 200 samples, two-sided descent with step 5."
    return (
        Figure("gradient", "Gradient across and along the minima", "step", "norm", tuple(lines), caption, "log", "log"),
        Figure("excess", "Excess", "step", "excess", excess, caption, "log", "log"),
        Figure("gauge", "Drift of the gauge", "step", "gauge angle", angle, caption, "log"),
    )


def _table(runs: dict[str, AttentionRun], seen: dict[str, dict[str, np.ndarray]]) -> Table:
    rows = []
    for name, run in runs.items():
        for step in (*SHOWN, int(run.steps[-1])) if name.startswith("spectral") else (int(run.steps[-1]),):
            k = int(np.flatnonzero(run.steps == step)[0])
            parts = (f"{seen[name][part][k]:.3g}" for part in ("normal", "tangential", "angle"))
            rows.append((name, int(run.steps[k]), *parts, f"{run.excess[k]:.4g}", f"{run.loss[k]:.8g}"))
    columns = ("start", "step", "normal gradient", "tangential gradient", "gauge angle", "excess", "empirical loss")
    caption = (
        "The total gradient norm is no stopping rule. The spectral start is the gauge identity of the estimate, which depends on the signs of its "
        "singular vectors: here the largest entry of each right one is positive, and once more with the signs of modes 1 and 2 flipped."
    )
    return Table("scales", "Three time scales", columns, tuple(rows), caption)


STUDIES = (Study("attention-time-scales", "Descent to the minima, drift along them, convergence", time_scales),)
