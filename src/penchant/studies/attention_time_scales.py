"""Three time scales: descent to the minima, drift along them to the gauge the data select, convergence there."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

from ..optimisers.preconditioned import PreconditionedDescent
from ..references.balanced_minima import nearest_minimum
from ..settings.attention_curvature import balanced_point
from ..settings.attention_geometry import TwoSided
from ..settings.attention_regression import AttentionLayer, AttentionRegression
from ..settings.attention_sample import draw_sample
from ..theorems.attention_context_claims import DERIVED, PAPER, small_problem
from ..training.algorithm1 import AttentionRun, total_gradient, train_attention
from ..training.attention_sources import AbstractSource, FullSample
from ..training.recorders import LogSpaced
from ..verdict import all_of, at_least, at_most
from .attention_scaling import perturbed_start
from .base import DEFINITIONS, Figure, Finding, Line, Result, Study, Table

WORDS = {
    **DEFINITIONS,
    "tangential": "part of the whitened gradient along W Omega, Omega skew: directions that change the gauge only",
    "normal": "the rest of the gradient",
    "gauge angle": "|R - R_0|_F between the gauges of the nearest minima now and at the start",
}


def split_gradient(whitened: np.ndarray, gradient: np.ndarray) -> tuple[float, float]:
    """Norms of the tangential and the normal part of a gradient at W."""
    d = whitened.shape[1]
    pairs = [(i, j) for i in range(d) for j in range(i)]
    tangents = np.zeros((len(pairs), *whitened.shape))
    for k, (i, j) in enumerate(pairs):
        tangents[k, :, i], tangents[k, :, j] = whitened[:, j], -whitened[:, i]
    basis = np.linalg.qr(tangents.reshape(len(pairs), -1).T)[0]
    along = basis @ (basis.T @ gradient.ravel())
    return float(np.linalg.norm(along)), float(np.linalg.norm(gradient.ravel() - along))


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


def time_scales(seed: int, full: bool, progress: Callable[[str], None]) -> Result:
    truth = small_problem(1e-3)
    sample = draw_sample(truth, 200, np.random.default_rng(5 + seed))
    source, steps = FullSample(sample), 20_000 if full else 3000
    rule = PreconditionedDescent("two_sided", 5.0)
    starts = {
        "minimum, gauge 1": truth.unwhiten(jnp.asarray(balanced_point(truth))),
        "distance r_0": perturbed_start(truth),
    }
    runs: dict[str, AttentionRun] = {}
    for name, start in starts.items():
        progress(f"{steps} steps from {name}")
        runs[name] = train_attention(source, rule, start, steps=steps, recorder=LogSpaced(60), truth=truth)
    progress("gradients along and across the minima")
    seen = {name: observe(source, run, truth) for name, run in runs.items()}
    main, parts = runs["minimum, gauge 1"], seen["minimum, gauge 1"]
    early = int(np.searchsorted(main.steps, 10))
    findings = (
        Finding(
            "The normal gradient collapses within ten steps while the tangential one stays.",
            all_of(
                at_most(
                    float(parts["normal"][early] / parts["normal"][0]), 0.05, "normal gradient at step 10 over start"
                ),
                at_least(
                    float(parts["tangential"][early] / parts["tangential"][0]), 0.5, "tangential gradient, the same"
                ),
            ),
            DERIVED,
        ),
        Finding(
            "Then the layer drifts along the minima to a gauge that the data select, and the excess falls.",
            all_of(
                at_least(float(parts["angle"][-1]), 0.5, "gauge angle at the end"),
                at_most(float(main.excess[-1] / main.excess[early]), 0.8, "excess at the end over that at step 10"),
            ),
            DERIVED,
        ),
        Finding(
            "Another start ends at the same predictor.",
            at_most(_apart(truth, runs, main), 0.05 if full else 0.3, "relative distance of the two final maps"),
            DERIVED,
        ),
    )
    return Result(findings, _figures(runs, seen), (_table(runs, seen),), {}, WORDS)


def _apart(truth: AttentionRegression, runs: dict[str, AttentionRun], main: AttentionRun) -> float:
    """Distance of the final maps U Sigma V of the two runs, over the distance of the first to the planted map."""
    product = lambda layer: np.asarray(layer.value @ truth.covariance @ layer.key_query @ truth.root)
    layers: list[AttentionLayer] = [run.at() for run in runs.values()]
    gap = np.linalg.norm(product(layers[0]) - product(layers[1]))
    return float(gap / np.sqrt(main.excess[-1]))


def _figures(runs: dict[str, AttentionRun], seen: dict[str, dict[str, np.ndarray]]) -> tuple[Figure, ...]:
    lines = []
    for name, run in runs.items():
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
        for step in (0, 5, 10, 100, 1000, int(run.steps[-1])):
            k = min(int(np.searchsorted(run.steps, step)), len(run) - 1)
            parts = (f"{seen[name][part][k]:.3g}" for part in ("normal", "tangential", "angle"))
            rows.append((name, int(run.steps[k]), *parts, f"{run.excess[k]:.3g}"))
    columns = ("start", "step", "normal gradient", "tangential gradient", "gauge angle", "excess")
    return Table("scales", "Three time scales", columns, tuple(rows), "The total gradient norm is no stopping rule.")


STUDY = Study("attention-time-scales", "Descent to the minima, drift along them, convergence", PAPER, time_scales)
