"""Steps with the gradients of samples: by how much they deviate, the bound that follows, and the distance to the minima that is observed."""

from collections.abc import Callable

import numpy as np

from ....exhibits import Figure, Finding, Line, Table
from ....lab import Lab
from ....verdict import Verdict, all_of, at_most
from ..perturbation import Perturbation
from ..perturbed import sampled_steps
from ..theorems import GOEL

WORDS = {
    "epsilon": "norm of the direction used minus that of the population, in the norm of the geometry: gradient, regulariser and preconditioner alike",
    "covariance error": "|Sigma^(1/2) S^-1 Sigma^(1/2) - 1|, S the covariance of the samples",
    "recursion": "dist^2 after a step <= (1 - step alpha + 2 step^2 beta^2) dist^2 + (step/alpha + 2 step^2) epsilon^2",
}
_SOURCES = {"full": "all samples", "batch": "minibatches of half of them"}


def _keeps(found: Perturbation, what: str) -> Verdict:
    after = found.distance[1:] ** 2
    return all_of(
        at_most(float(found.distance.max()), found.sure.radius, f"largest distance, {what}, bound r_0"),
        at_most(float((after / found.allowed).max()), 1.0, f"largest dist^2 over the recursion's bound, {what}"),
    )


def _row(geometry: str, count: int, source: str, found: Perturbation) -> tuple:
    numbers = (found.relative, found.error[0], found.error[-1], found.distance[-1] ** 2, found.bound[-1], found.limit)
    worst = float((found.distance[1:] ** 2 / found.allowed).max())
    return (geometry, count, _SOURCES[source], *(f"{value:.3g}" for value in numbers), f"{worst:.5f}")


def section(lab: Lab, full: bool, progress: Callable[[str], None]) -> tuple[Figure, Table, list[Finding]]:
    """Figure, table and findings; with `full` also for the left geometry and more samples."""
    plan = [("two_sided", 300), ("two_sided", 1200), ("left", 300)] if full else [("two_sided", 300)]
    rows, lines, findings = [], [], []
    for geometry, count in plan:
        for source, words in _SOURCES.items():
            progress(f"perturbed contraction, {geometry}, n = {count}, {words}")
            found = sampled_steps(lab, source, geometry, count)
            rows.append(_row(geometry, count, source, found))
            text = f"{geometry}, n = {count}, {words}: every step keeps the recursion of Lemma 4 with the epsilon measured at it."
            findings.append(Finding(text, _keeps(found, f"{geometry}, {source}"), f"{GOEL}, Lemma 4"))
            if (geometry, count) == plan[0]:
                steps = np.arange(len(found.distance), dtype=float)
                lines.append(Line(f"observed, {words}", steps, found.distance**2))
                lines.append(Line(f"bound, {words}", steps, found.bound, "prediction"))
    table = Table(
        "perturbed",
        "Steps with the gradients of samples, from the spectral start",
        (
            "geometry",
            "n",
            "gradients",
            "covariance error",
            "first epsilon",
            "last epsilon",
            "last dist^2",
            "bound",
            "its limit",
            "largest dist^2 / recursion",
        ),
        tuple(rows),
        "Sizes (.05, .04, .03), m = 4, condition 5, noise variance 1e-3, 150 steps of alpha/(4 beta^2). The constants hold for the worst direction, "
        f"so the bound is far above what is observed. {'' if full else 'Only with --full: n = 1200 and the left geometry.'}",
    )
    caption = "150 two-sided steps of alpha/(4 beta^2) on 300 samples; the bound is the recursion with the epsilon of each step."
    figure = Figure("perturbed", "Distance to the minima", "step", "dist^2", tuple(lines), caption, "linear", "log")
    return figure, table, findings
