"""The scatter of the gradient of a sample: its covariance against n on the minima, and along training, with what theory says."""

from typing import Any

import numpy as np

from ....exhibits import DEFINITIONS, Figure, Finding, Line, Result, Table
from ....lab import Lab, Study
from ....training.recorders import At
from ....verdict import Verdict, all_of, at_least
from ..context import agrees, scaling_problem
from ..setting.gradient_noise import gradient_covariance
from ..setting.gradient_scatter import extrapolated, gradient_draws, scatter
from ..setting.measured_bias import Estimate
from ..setting.problem import AttentionLayer
from ..setting.sample import spectral_layer
from ..theorems import GOEL
from ..training.population import train_population
from ..training.preconditioned import PreconditionedDescent
from .grid import perturbed_start

OURS = f"derived here, for {GOEL}"
WORDS = {
    **DEFINITIONS,
    "scatter": "n times the trace of the covariance of the gradient of the loss of n samples, by W (whitened)",
    "limit": "the covariance of what one row does to the gradient, as a query and as a key: the scatter as n grows",
    "queries alone": "the same without what rows do as keys: the scatter that independent losses would have",
    "without 1/n": "2 x scatter at 2n - scatter at n",
}


def _limit(lab: Lab, layer: AttentionLayer, keys: bool = True) -> float:
    return float(np.trace(np.asarray(gradient_covariance(scaling_problem(lab, 1e-3), layer, keys=keys))))


def _scatters(lab: Lab, layer: AttentionLayer, counts: tuple[int, ...], draws: int, seed: int) -> dict[int, Estimate]:
    problem = scaling_problem(lab, 1e-3)
    return {n: scatter(gradient_draws(problem, layer, n, draws, seed=n + 10_000 * seed)) for n in counts}


def _minimum(lab: Lab, counts: tuple[int, ...], draws: int, seed: int) -> tuple[Figure, Table, list[Finding]]:
    layer = spectral_layer(scaling_problem(lab, 1e-3))
    found = _scatters(lab, layer, counts, draws, seed)
    limit, alone = _limit(lab, layer), _limit(lab, layer, keys=False)
    sizes, means = np.array(counts, float), np.array([one.mean for one in found.values()])
    rest = {n: extrapolated(found[n], found[2 * n]) for n in counts if 2 * n in found}
    rows = [
        (
            n,
            f"{one.mean:.4g}",
            f"{one.error:.2g}",
            *((f"{rest[n].mean:.4g}", f"{rest[n].error:.2g}") if n in rest else ("-", "-")),
        )
        for n, one in found.items()
    ]
    table = Table(
        "minimum",
        "Scatter of the gradient on the minima",
        ("n", "scatter", "standard error", "without 1/n", "standard error of it"),
        tuple(rows),
        f"{draws} samples of each size. Limit {limit:.4g}; queries alone {alone:.4g}. Sizes (.05, .04, .03), m = 4, noise variance 1e-3.",
    )
    lines = (
        Line("measured", sizes, means, "points"),
        Line("limit", sizes, np.full(len(sizes), limit), "prediction"),
        Line("queries alone", sizes, np.full(len(sizes), alone), "prediction"),
    )
    figure = Figure(
        "minimum", "Scatter of the gradient on the minima", "n", "scatter", lines, table.caption, "log", "log"
    )
    last = max(rest)
    findings = [
        Finding(
            "On the minima the scatter tends to the limit, not to that of queries alone.",
            all_of(agrees(rest[last], limit, "scatter without 1/n"), _apart(rest[last], alone)),
            OURS,
        ),
        Finding(
            "At moderate n the scatter is well above its limit: pairs of rows count as much as single ones.",
            at_least(found[counts[0]].mean / limit, 1.5, f"scatter over its limit at n = {counts[0]}"),
            OURS,
        ),
    ]
    return figure, table, findings


def _apart(found: Estimate, value: float) -> Verdict:
    return at_least(found.away(value), 4.0, f"distance to {value:.3g} in standard errors")


def _path(
    lab: Lab, records: tuple[int, ...], count: int, draws: int, seed: int, progress: Any
) -> tuple[Figure, Finding]:
    problem = scaling_problem(lab, 1e-3)
    rule = PreconditionedDescent()
    run = train_population(problem, rule, perturbed_start(problem), steps=records[-1], recorder=At(records))
    limits, found = [], []
    for k, step in enumerate(run.steps):
        progress(f"scatter of the gradient at step {step}")
        layer = run.at(k)
        pair = _scatters(lab, layer, (count, 2 * count), draws, seed)
        found.append(extrapolated(pair[count], pair[2 * count]))
        limits.append(_limit(lab, layer))
    steps = run.steps.astype(float)
    ends = [np.array([one.mean + sign * one.error for one in found]) for sign in (-2.0, 2.0)]
    lines = (
        Line("measured", steps, np.array([one.mean for one in found]), "points"),
        *(Line(f"measured {sign} 2 standard errors", steps, end) for sign, end in zip("-+", ends, strict=True)),
        Line("limit", steps, np.array(limits), "prediction"),
    )
    caption = f"Two-sided descent with population gradients from distance r_0; n = {count} and {2 * count}, without the term in 1/n."
    figure = Figure(
        "path", "Scatter of the gradient along training", "step", "scatter", lines, caption, "linear", "log"
    )
    checks = [
        agrees(one, limit, f"scatter at step {step}") for one, limit, step in zip(found, limits, run.steps, strict=True)
    ]
    return figure, Finding("The scatter is at its limit all along training.", all_of(*checks), OURS)


def run(lab: Lab) -> Result:
    """On the minima against n, then along a run."""
    seed, full, progress = lab.seed, lab.full, lab.progress
    counts, draws = ((100, 200, 400, 800, 1600), 4000) if full else ((100, 200, 400), 3000)
    progress(f"scatter of the gradient on the minima, {draws} samples of each size")
    figure, table, findings = _minimum(lab, counts, draws, seed)
    path, along = _path(lab, (0, 1, 2, 4, 8, 16) if full else (0, 2), 400 if full else 200, draws, seed, progress)
    return Result((*findings, along), (figure, path), (table,), {}, WORDS)


STUDIES = (Study("attention-gradient-noise", "Scatter of the gradients of samples in attention regression", run),)
