"""The nuclear-norm maximum-margin reference against CVXPY."""

from typing import Any

import cvxpy as cp
import numpy as np

import penchant as pt
from penchant.norms import Nuclear
from penchant.settings.generators import random_tokens

from .machine import Limits
from .section import Section, ratio, seconds
from .timing import PATIENCE, Timing, alternate, once, say

SIZES = ((10, 10, 20), (20, 10, 30), (50, 10, 50), (100, 20, 100))
LIMIT = 400.0  # seconds on the wall that a solver may take
CONE = 100_000_000  # entries of the dense block of the semidefinite cone beyond which Clarabel needs many gigabytes
SOLVERS = {
    "Clarabel": {"solver": "CLARABEL", "time_limit": LIMIT},
    "SCS": {"solver": "SCS", "eps": 1e-9, "max_iters": 100_000, "time_limit_secs": LIMIT},
}

ABOUT = f"""min ||W||_* subject to all N = n(L-1) margins >= 1. CVXPY gets one matrix constraint, with its default settings for Clarabel and
eps = 1e-9 for SCS. Gaps are relative and certified by `penchant.bracket` for every solver alike. A solver may take {LIMIT:.0f} s on the wall; what it has
not solved by then says so. Clarabel was left out where the dense block of its semidefinite cone has more than {CONE:,} entries."""


def compare(limits: Limits, quick: bool) -> Section:
    _solve(random_tokens(3, 3, 4, 0), SOLVERS["Clarabel"])  # the first problem pays for CVXPY's imports
    rows = [_row(size, quick) for size in (SIZES[:2] if quick else SIZES)]
    notes = [
        "CVXPY solves any convex program through an SDP of size 2d; ours is an interior point as well, and uses that its pairs have rank one."
    ]
    return Section("nuclear", "The nuclear-norm reference against CVXPY", ABOUT, rows, notes)


def _row(size: tuple[int, int, int], quick: bool) -> dict[str, Any]:
    n, length, d = size
    say(f"nuclear: n={n} L={length} d={d}")
    data = random_tokens(n, length, d, 0)
    solution, first = once(lambda: pt.references.nuclear_margin(data))
    cells: dict[str, Any] = {"ours": alternate({"": lambda: pt.references.nuclear_margin(data)}, 1 if quick else 3)[""]}
    gaps: dict[str, float] = {}
    for name, options in SOLVERS.items():
        if name == "Clarabel" and (d * (2 * d + 1)) ** 2 > 2 * CONE:
            cells[name] = "left out"
            continue
        (status, *found), timing = once(lambda options=options: _solve(data, options))
        if status != "optimal":
            cells[name] = f"{status} after {seconds(timing.median)}"
            continue
        repeats = alternate({"": lambda options=options: _solve(data, options)}, 2) if timing.median < PATIENCE else {}
        cells[name], gaps[f"gap, {name}"] = repeats.get("", timing), pt.bracket(data, *found, Nuclear()).gap
    ratios = {
        f"faster than {name}": ratio(cells[name], cells["ours"]) for name in SOLVERS if isinstance(cells[name], Timing)
    }
    return {
        "n, L, d": f"{n}, {length}, {d}",
        **cells,
        "ours, first call": first,
        **ratios,
        "gap, ours": solution.bracket.gap,
        **gaps,
    }


def _solve(data: Any, options: dict[str, Any]) -> tuple[str, np.ndarray, np.ndarray]:
    """Status, weight and multipliers by CVXPY."""
    differences, queries = np.asarray(data.differences()), np.asarray(data.queries)
    features = np.einsum("ntd,ne->ntde", differences, queries).reshape(-1, differences.shape[2] * queries.shape[1])
    weight = cp.Variable(data.weight_shape)
    margins = features @ cp.vec(weight, order="C") >= 1
    problem = cp.Problem(cp.Minimize(cp.norm(weight, "nuc")), [margins])
    try:
        problem.solve(**options)
    except cp.error.SolverError:
        return "no answer", np.zeros(0), np.zeros(0)
    return problem.status, weight.value, margins.dual_value
