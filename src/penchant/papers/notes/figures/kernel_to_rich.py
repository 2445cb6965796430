"""From the kernel regime to the sparse one: what a start selects by its size."""

import numpy as np

from ....exhibits import DEFINITIONS, Figure, Finding, Line, Result, Shown, Table
from ....lab import Lab, Study
from ....references.interpolation import basis_pursuit, minimum_norm, potential_path
from ....references.l1_uniqueness import strict_dual
from ....settings.generators import sparse_regression
from ....settings.potentials import q_alpha
from ....settings.regression import Regression
from .. import depth as depth_claims
from ..evidence import DERIVED
from ..margin_theorems import NOTES
from ..q_alpha import kernel_deviation, kernel_limit, sparse_rate, three_routes
from .kernel_to_rich_depth import depth_parts

_ALPHA = {**DEFINITIONS, "alpha": "size of the start of every parameter"}


def kernel_to_rich(lab: Lab) -> Result:
    seed, full, progress = lab.seed, lab.full, lab.progress
    data, weight = sparse_regression(seed=seed)
    alphas = np.geomspace(1e3, 1e-14, 69)
    progress("the path of minimisers from alpha = 1000 to 1e-14")
    path = [found for found in potential_path(data, q_alpha(1.0, 100), tuple(np.log(alphas))) if found.resolved]
    alphas = alphas[: len(path)]
    least, short = basis_pursuit(data).value, float(np.linalg.norm(minimum_norm(data).weight))
    l1 = np.array([np.abs(found.weight).sum() for found in path]) - least
    l2 = np.array([np.linalg.norm(found.weight) for found in path]) - short
    error = np.array([np.linalg.norm(found.weight - weight) for found in path])
    exponent = 2 * (1 - strict_dual(data, weight))
    guide = l1[-10] * (alphas / alphas[-10]) ** exponent
    low = alphas < 1e-3
    curves = Figure(
        "phase",
        "From the kernel regime to the sparse one",
        "alpha",
        "excess over the minimum",
        (
            Line("l1 norm over its minimum", alphas, np.maximum(l1, 1e-16)),
            Line("l2 norm over its minimum", alphas, np.maximum(l2, 1e-16)),
            Line("distance to the sparse weight", alphas, error),
            Line("predicted slope 2(1 - rho)", alphas[low], guide[low], "prediction"),
        ),
        f"Minimisers of Q_alpha on {data.inputs.shape[0]} samples in {data.inputs.shape[1]} dimensions; every point is certified.",
        "log",
        "log",
    )
    draws, ratios = (10 if full else 3), (20, 40, 80)
    grid = np.array([1.0, 0.1, 0.03, 0.01, 1e-3])
    lines = []
    for n in ratios:
        progress(f"sample-size map: n = {n}")
        errors = np.zeros((draws, len(grid)))
        for draw in range(draws):
            sample, truth = sparse_regression(n, 100, 5, 100 + 10 * seed + draw)
            found = potential_path(sample, q_alpha(1.0, 100), tuple(np.log(grid)))
            errors[draw] = [np.linalg.norm(one.weight - truth) ** 2 / 5 for one in found]
        lines.append(Line(f"n = {n}", grid, np.maximum(errors.mean(axis=0), 1e-12)))
    map_ = Figure(
        "sample-size",
        "Relative population error against alpha",
        "alpha",
        "relative squared error",
        tuple(lines),
        f"Mean over {draws} draws, five signals in 100 dimensions.",
        "log",
        "log",
    )
    picked = [
        int(np.argmin(np.abs(np.log(alphas / alpha))))
        for alpha in (1e3, 1.0, 0.1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8)
        if alpha >= alphas[-1]
    ]
    rows = tuple(
        (
            Shown(alphas[k], ".3g"),
            Shown(l1[k] + least, ".10g"),
            Shown(l2[k] + short, ".10g"),
            Shown(path[k].bracket.gap, ".1e"),
        )
        for k in picked
    )
    table = Table(
        "norms",
        "Norms of the selected interpolant",
        ("alpha", "l1 norm", "l2 norm", "certified gap"),
        rows,
        f"Least l1 norm {least:.10g}, least l2 norm {short:.10g}.",
    )
    findings = (
        Finding(
            "The flow on w+^2 - w-^2 converges to the minimiser of Q_alpha.",
            three_routes(lab, False, seed),
            f"{NOTES}, Theorem 9.18",
        ),
        Finding("Off-support coefficients vanish like alpha^(2(1 - rho)).", sparse_rate(lab, False, seed), DERIVED),
        Finding(
            "For large alpha the flow follows its tangent kernel, with a deviation of order alpha^-4.",
            kernel_limit(lab, False),
            f"{NOTES}, section 9.3; exponent {DERIVED}",
        ),
    )
    progress("depths 2, 3 and 4")
    deeper, exponents = depth_parts(data, weight)
    findings += (
        Finding(
            "The flow on w+^D - w-^D converges to the minimiser of Q_alpha of depth D, for D = 3 and 4.",
            depth_claims.three_routes(lab, False),
            DERIVED,
        ),
        Finding(
            "At depths 3 and 4 off-support coefficients vanish like alpha^D.",
            depth_claims.sparse_rate(lab, False),
            DERIVED,
        ),
    )
    return Result(
        findings,
        (curves, map_, deeper),
        (table, exponents, _kernel_table(data)),
        {},
        {
            **_ALPHA,
            "w+, w-": "the two squared parameters of each coefficient; at depth D they are raised to the power D",
            "off-support coefficient": "a coefficient of the selected interpolant that is 0 in the sparse weight",
            "Q_alpha of depth D": "what the flow on w+^D - w-^D minimises from the start alpha; Q_alpha itself at depth 2",
            "tangent kernel": "the flow of the model linearised at its start, which is known in closed form",
            "excess over the minimum": "a norm of the selected interpolant minus the least such norm of any interpolant",
            "relative squared error": "squared l2 distance to the sparse weight over its squared norm: the error on fresh samples",
            "rho": "smallest largest off-support entry of X' mu among mu with X_S' mu = signs; below 1 the l1 solution is unique",
        },
    )


def _kernel_table(data: Regression) -> Table:
    """How far the flow is from its tangent kernel halfway through the relaxation of the slowest direction."""
    rows = tuple(
        (Shown(alpha, "g"), Shown(time, ".3g"), Shown(gap, ".3g"))
        for alpha, time, gap in ((alpha, *kernel_deviation(data, alpha)) for alpha in (1.0, 10.0, 100.0))
    )
    columns = ("alpha", "time", "relative distance of flow and tangent kernel")
    caption = (
        "At the time 0.5 / (8 alpha^2 s^2), s the smallest singular value of the inputs; loss |X theta - y|^2 / 2."
    )
    return Table("kernel", "Deviation from the tangent kernel", columns, rows, caption)


STUDIES = (Study("kernel-to-rich", "From the kernel regime to the sparse one: Q_alpha", kernel_to_rich),)
