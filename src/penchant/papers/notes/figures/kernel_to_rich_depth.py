"""How depth changes the way to sparsity: w+^D - w-^D from small starts, next to squares."""

import numpy as np

from ....diagnostics.rates import end_slope
from ....exhibits import Figure, Line, Shown, Table
from ....references.interpolation import potential_path
from ....references.l1_uniqueness import strict_dual
from ....settings.potentials import q_alpha
from ....settings.power_models import PowerEntropy
from ....settings.regression import Regression

_DEPTHS = (2, 3, 4)
_GRID = np.geomspace(1.0, 1e-5, 41)


def depth_parts(data: Regression, weight: np.ndarray) -> tuple[Figure, Table]:
    """Largest off-support coefficient against alpha at depths 2 to 4, and its exponent over the last decade that float64 resolves."""
    d, rho = len(weight), strict_dual(data, weight)
    lines, rows = [], []
    for depth in _DEPTHS:
        potential = q_alpha(1.0, d) if depth == 2 else PowerEntropy(np.zeros(d), depth)
        path = [one for one in potential_path(data, potential, tuple(np.log(_GRID))) if one.resolved]
        alphas = _GRID[: len(path)]
        off = np.array([np.abs(one.weight[weight == 0]).max() for one in path])
        predicted = 2 * (1 - rho) if depth == 2 else float(depth)
        lines.append(Line(f"depth {depth}", alphas, off))
        lines.append(
            Line(
                f"slope {predicted:.4g}", alphas[-16:], off[-1] * (alphas[-16:] / alphas[-1]) ** predicted, "prediction"
            )
        )
        last = float(alphas[-1])
        measured = end_slope(alphas[::-1], off[::-1], (last, 10 * last))
        rows.append(
            (
                str(depth),
                f"[{last:.2g}, {10 * last:.2g}]",
                Shown(measured, ".5g"),
                Shown(predicted, ".5g"),
                Shown(off[-1], ".3g"),
                Shown(path[-1].bracket.gap, ".1e"),
            )
        )
    figure = Figure(
        "depth",
        "Deeper parametrisations become sparse faster",
        "alpha",
        "largest off-support coefficient",
        tuple(lines),
        "Minimisers of Q_alpha of depth D; dashed, alpha^(2(1 - rho)) at depth 2 and alpha^D beyond.",
        "log",
        "log",
    )
    table = Table(
        "depth",
        "Exponent of the off-support coefficients in alpha",
        (
            "depth",
            "from alpha to alpha",
            "measured exponent",
            "predicted",
            "largest off-support coefficient",
            "certified gap",
        ),
        tuple(rows),
        f"rho = {rho:.5g}. Over the last decade of alpha that float64 resolves, or down to 1e-5.",
    )
    return figure, table
