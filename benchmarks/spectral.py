"""The spectral maximum-margin reference of multiclass data against CVXPY."""

from typing import Any

import cvxpy as cp
import numpy as np

import penchant as pt
from penchant.norms import Spectral
from penchant.settings.generators import clusters

from .machine import Limits
from .section import Section, ratio, seconds
from .timing import PATIENCE, Timing, alternate, once, say

SMALL = ((10, 10, 30, 0.3), (20, 20, 60, 0.4))
SIZES = (*SMALL, (30, 30, 60, 0.5), (50, 50, 50, 0.5), (100, 100, 100, 0.5), (100, 100, 1000, 0.5))
LARGEST = {"Clarabel": 60_000, "SCS": 1_000_000}  # numbers N k, beyond which the solver was left out
LIMIT = 100.0  # seconds on the wall that a solver may take
SOLVERS = {
    "Clarabel": {"solver": "CLARABEL", "time_limit": LIMIT},
    "SCS": {"solver": "SCS", "eps": 1e-9, "max_iters": 100_000, "time_limit_secs": LIMIT},
}

ABOUT = f"""max t subject to all N = n(k-1) margins >= t and a largest singular value of at most 1, on `clusters(k, d, n, spread, 0)`. CVXPY gets one
matrix constraint, with its default settings for Clarabel and eps = 1e-9 for SCS. Gaps are relative and certified by `penchant.bracket` for every solver
alike, also those of answers that a solver calls inaccurate. A solver may take {LIMIT:.0f} s on the wall; Clarabel was left out where N k exceeds
{LARGEST["Clarabel"]:,}, SCS where it exceeds {LARGEST["SCS"]:,}."""


def compare(limits: Limits, quick: bool) -> Section:
    _solve(clusters(3, 4, 9, 0.5, 0), SOLVERS["Clarabel"])  # the first problem pays for CVXPY's imports
    rows = [_row(size, quick) for size in (SMALL if quick else SIZES)]
    notes = [
        "Ours solves in the multipliers of the pairs that may be active; CVXPY's program has an SDP of size k + d."
    ]
    return Section("spectral", "The spectral reference against CVXPY", ABOUT, rows, notes)


def _row(size: tuple[int, int, int, float], quick: bool) -> dict[str, Any]:
    say(f"spectral: k, d, n, spread = {size}")
    data, norm = clusters(*size, 0), Spectral()
    solution, first = once(lambda: pt.references.norm_margin(data, norm))
    repeats = {"": lambda: pt.references.norm_margin(data, norm)} if first.median < PATIENCE else {}
    cells: dict[str, Any] = {"ours": alternate(repeats, 1 if quick else 3).get("", first)}
    gaps: dict[str, float] = {}
    for name, options in SOLVERS.items():
        if len(solution.dual) * size[0] > LARGEST[name]:
            cells[name] = "left out"
            continue
        (status, *found), timing = once(lambda options=options: _solve(data, options))
        if not status.startswith("optimal"):
            cells[name] = f"{status} after {seconds(timing.median)}"
            continue
        again = alternate({"": lambda options=options: _solve(data, options)}, 2) if timing.median < PATIENCE else {}
        cells[name], gaps[f"gap, {name}"] = again.get("", timing), pt.bracket(data, *found, norm).gap
    faster = {
        f"faster than {name}": ratio(cells[name], cells["ours"]) for name in SOLVERS if isinstance(cells[name], Timing)
    }
    shown = {
        "k, d, n": ", ".join(map(str, size[:3])),
        "N": size[2] * (size[0] - 1),
        "margin": f"{solution.margin:.10g}",
    }
    return {**shown, **cells, "ours, first call": first, **faster, "gap, ours": solution.bracket.gap, **gaps}


def _solve(data: Any, options: dict[str, Any]) -> tuple[str, np.ndarray, np.ndarray]:
    """Status, weight and multipliers by CVXPY, with margins by sample: no row of N x kd numbers."""
    (k, d), others = data.weight_shape, np.asarray(data.others)
    weight, level = cp.Variable((k, d)), cp.Variable()
    logits = np.asarray(data.inputs) @ weight.T
    left = np.asarray(data.pairs()[0]).reshape(*others.shape, k)
    margins = [cp.matmul(left[i], logits[i]) >= level for i in range(len(others))]
    problem = cp.Problem(cp.Maximize(level), [*margins, cp.sigma_max(weight) <= 1])
    try:
        problem.solve(**options)
    except cp.error.SolverError:
        return "no answer", np.zeros(0), np.zeros(0)
    return problem.status, weight.value, np.concatenate([np.ravel(one.dual_value) for one in margins])
