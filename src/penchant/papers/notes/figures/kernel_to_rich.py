"""From the kernel regime to the sparse one: what a start selects by its size, for squares and in depth."""

import numpy as np

from ....diagnostics.rates import end_slope
from ....exhibits import DEFINITIONS, Figure, Line, Shown, Table
from ....lab import Lab, Study
from ....references.interpolation import basis_pursuit, minimum_norm, potential_path
from ....references.l1_uniqueness import strict_dual
from ....settings.generators import sparse_regression
from ....settings.potentials import PowerEntropy, q_alpha
from .. import depth as depth_claims
from .. import q_alpha as claims
from ..evidence import sparse

_PICKED = (1e3, 1.0, 0.1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8)  # starts of the table of norms


def path_of_minimisers(lab: Lab) -> tuple[Figure, Table]:
    """Norms of the selected interpolant over their least values, from alpha = 1000 down to 1e-14."""
    (data, weight), alphas = sparse(lab), np.geomspace(1e3, 1e-14, 69)
    lab.progress("the path of minimisers from alpha = 1000 to 1e-14")
    path = [found for found in potential_path(data, q_alpha(1.0, 100), tuple(np.log(alphas))) if found.resolved]
    alphas = alphas[: len(path)]
    least, short = basis_pursuit(data).value, float(np.linalg.norm(minimum_norm(data).weight))
    l1 = np.array([np.abs(found.weight).sum() for found in path]) - least
    l2 = np.array([np.linalg.norm(found.weight) for found in path]) - short
    error = np.array([np.linalg.norm(found.weight - weight) for found in path])
    guide = l1[-10] * (alphas / alphas[-10]) ** (2 * (1 - strict_dual(data, weight)))
    low = alphas < 1e-3
    lines = (
        Line("l1 norm over its minimum", alphas, np.maximum(l1, 1e-16)),
        Line("l2 norm over its minimum", alphas, np.maximum(l2, 1e-16)),
        Line("distance to the sparse weight", alphas, error),
        Line("predicted slope 2(1 - rho)", alphas[low], guide[low], "prediction"),
    )
    picked = [int(np.argmin(np.abs(np.log(alphas / alpha)))) for alpha in _PICKED if alpha >= alphas[-1]]
    cells = lambda k: (
        (alphas[k], ".3g"),
        (l1[k] + least, ".10g"),
        (l2[k] + short, ".10g"),
        (path[k].bracket.gap, ".1e"),
    )
    rows = tuple(tuple(Shown(*cell) for cell in cells(k)) for k in picked)
    title, axes = "From the kernel regime to the sparse one", ("alpha", "excess over the minimum")
    caption = f"Minimisers of Q_alpha on {data.inputs.shape[0]} samples in {data.inputs.shape[1]} dimensions; every point is certified."
    known = f"Least l1 norm {least:.10g}, least l2 norm {short:.10g}."
    columns = ("alpha", "l1 norm", "l2 norm", "certified gap")
    return (
        Figure("phase", title, *axes, lines, caption, "log", "log"),
        Table("norms", "Norms of the selected interpolant", columns, rows, known),
    )


def _sample_sizes(lab: Lab) -> Figure:
    """Error on fresh samples against alpha, for three sample sizes."""
    draws, grid, lines = (10 if lab.full else 3), np.array([1.0, 0.1, 0.03, 0.01, 1e-3]), []
    for n in (20, 40, 80):
        lab.progress(f"sample-size map: n = {n}")
        errors = np.zeros((draws, len(grid)))
        for draw in range(draws):
            sample, truth = sparse_regression(n, 100, 5, 100 + 10 * lab.seed + draw)
            found = potential_path(sample, q_alpha(1.0, 100), tuple(np.log(grid)))
            errors[draw] = [np.linalg.norm(one.weight - truth) ** 2 / 5 for one in found]
        lines.append(Line(f"n = {n}", grid, np.maximum(errors.mean(axis=0), 1e-12)))
    title, axes = "Relative population error against alpha", ("alpha", "relative squared error")
    caption = f"Mean over {draws} draws, five signals in 100 dimensions."
    return Figure("sample-size", title, *axes, tuple(lines), caption, "log", "log")


def depths(lab: Lab) -> tuple[Figure, Table]:
    """Largest off-support coefficient against alpha at depths 2 to 4, and its exponent over the last decade that float64 resolves."""
    (data, weight), grid = sparse(lab), np.geomspace(1.0, 1e-5, 41)
    d, rho, lines, rows = len(weight), strict_dual(data, weight), [], []
    for depth in (2, 3, 4):
        lab.progress(f"depth {depth}")
        potential = q_alpha(1.0, d) if depth == 2 else PowerEntropy(np.zeros(d), depth)
        path = [one for one in potential_path(data, potential, tuple(np.log(grid))) if one.resolved]
        alphas = grid[: len(path)]
        off = np.array([np.abs(one.weight[weight == 0]).max() for one in path])
        predicted = 2 * (1 - rho) if depth == 2 else float(depth)
        late, last = alphas[-16:], float(alphas[-1])
        lines.append(Line(f"depth {depth}", alphas, off))
        lines.append(Line(f"slope {predicted:.4g}", late, off[-1] * (late / last) ** predicted, "prediction"))
        measured = end_slope(alphas[::-1], off[::-1], (last, 10 * last))
        cells = ((measured, ".5g"), (predicted, ".5g"), (off[-1], ".3g"), (path[-1].bracket.gap, ".1e"))
        rows.append((str(depth), f"[{last:.2g}, {10 * last:.2g}]", *(Shown(*cell) for cell in cells)))
    title, axes = "Deeper parametrisations become sparse faster", ("alpha", "largest off-support coefficient")
    caption = "Minimisers of Q_alpha of depth D; dashed, alpha^(2(1 - rho)) at depth 2 and alpha^D beyond."
    measures = "measured exponent", "predicted", "largest off-support coefficient", "certified gap"
    resolved = f"rho = {rho:.5g}. Over the last decade of alpha that float64 resolves, or down to 1e-5."
    exponents, columns = (
        "Exponent of the off-support coefficients in alpha",
        ("depth", "from alpha to alpha", *measures),
    )
    return (
        Figure("depth", title, *axes, tuple(lines), caption, "log", "log"),
        Table("depth", exponents, columns, tuple(rows), resolved),
    )


def _kernel(lab: Lab) -> Table:
    """How far the flow is from its tangent kernel halfway through the relaxation of the slowest direction."""
    rows = []
    for alpha in (1.0, 10.0, 100.0):
        time, gap = claims.kernel_deviation(sparse(lab)[0], alpha)
        rows.append((Shown(alpha, "g"), Shown(time, ".3g"), Shown(gap, ".3g")))
    columns = ("alpha", "time", "relative distance of flow and tangent kernel")
    time = "At the time 0.5 / (8 alpha^2 s^2), s the smallest singular value of the inputs; loss |X theta - y|^2 / 2."
    return Table("kernel", "Deviation from the tangent kernel", columns, tuple(rows), time)


STUDIES = (
    Study(
        "kernel-to-rich",
        "From the kernel regime to the sparse one: Q_alpha",
        claims=(
            claims.three_routes,
            claims.sparse_rate,
            claims.kernel_limit,
            depth_claims.three_routes,
            depth_claims.sparse_rate,
        ),
        exhibits=(path_of_minimisers, _sample_sizes, depths, _kernel),
        definitions={
            **DEFINITIONS,
            "alpha": "size of the start of every parameter",
            "w+, w-": "the two squared parameters of each coefficient; at depth D they are raised to the power D",
            "off-support coefficient": "a coefficient of the selected interpolant that is 0 in the sparse weight",
            "Q_alpha of depth D": "what the flow on w+^D - w-^D minimises from the start alpha; Q_alpha itself at depth 2",
            "tangent kernel": "the flow of the model linearised at its start, which is known in closed form",
            "excess over the minimum": "a norm of the selected interpolant minus the least such norm of any interpolant",
            "relative squared error": "squared l2 distance to the sparse weight over its squared norm: the error on fresh samples",
            "rho": "smallest largest off-support entry of X' mu among mu with X_S' mu = signs; below 1 the l1 solution is unique",
        },
    ),
)
