"""From the kernel regime to the sparse one: what a start selects by its size; recovery by squared parameters."""

import numpy as np

from ....exhibits import DEFINITIONS, Figure, Line, Shown, Table
from ....lab import Lab, Study
from ....references.interpolation import basis_pursuit, minimum_norm, potential_path
from ....references.l1_uniqueness import strict_dual
from ....settings.potentials import q_alpha
from .. import depth as depth_claims
from .. import designs
from .. import q_alpha as claims
from .. import sparse_recovery as recovered
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


def _sketch(lab: Lab) -> Figure:
    """Figure 9.2 of the notes from data: descent on the empirical loss stays near the sparse weights, where it is as on the population loss."""
    run, parts = recovered.single_run(lab, 1e-3)
    signal = np.empty(len(run))
    signal[0] = 1e-3
    for k in range(len(run) - 1):
        signal[k + 1] = signal[k] * (1 + 0.02 * (1 - signal[k] ** 2))
    off = 1e-3 / np.sqrt(1 + 2e-6 * 0.02 * np.arange(len(run)))  # of the population flow
    size = np.sqrt(199.0)
    other = minimum_norm(run.setting.data).weight
    lines = (
        Line("descent on the empirical loss", parts.signal, np.linalg.norm(parts.noise, axis=1)),
        Line("descent on the population loss", signal, off * size, "prediction"),
        Line("the dense interpolant of least norm", other[:1], np.array([np.linalg.norm(other[1:])]), "points"),
    )
    title, axes = "Training stays among nearly sparse weights (Figure 9.2)", ("signal r_t", "l2 norm of the noise")
    caption = "One signal in 200 dimensions, 60 samples, alpha = 1e-3. The loss is 0 at the dense interpolant too; descent ends at the sparse one."
    return Figure("sketch", title, *axes, lines, caption, "linear", "log")


STUDIES = (
    Study(
        "sparse-recovery",
        "Sparse recovery by squared parameters (Figure 9.2)",
        claims=(designs.window_bound, designs.window_error, recovered.single_repaired),
        exhibits=(_sketch,),
        definitions={
            **DEFINITIONS,
            "alpha": "size of the start of every parameter",
            "signal r_t, noise": "the coefficient of the one planted signal, and all others",
            "interpolant": "a weight that fits all targets exactly",
        },
    ),
    Study(
        "kernel-to-rich",
        "From the kernel regime to the sparse one: Q_alpha",
        claims=(claims.three_routes, claims.sparse_rate, claims.kernel_limit, depth_claims.three_routes),
        exhibits=(path_of_minimisers,),
        definitions={
            **DEFINITIONS,
            "alpha": "size of the start of every parameter",
            "w+, w-": "the two squared parameters of each coefficient; at depth D they are raised to the power D",
            "off-support coefficient": "a coefficient of the selected interpolant that is 0 in the sparse weight",
            "excess over the minimum": "a norm of the selected interpolant minus the least such norm of any interpolant",
            "rho": "smallest largest off-support entry of X' mu among mu with X_S' mu = signs; below 1 the l1 solution is unique",
        },
    ),
)
