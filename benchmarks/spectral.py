"""The spectral maximum-margin reference of multiclass data against CVXPY."""

from typing import Any

import cvxpy as cp
import numpy as np

import penchant as pt
from penchant.norms import Spectral
from penchant.settings.generators import clusters

from .machine import Limits
from .nuclear import LIMIT, SOLVERS
from .section import Section, ratio, seconds
from .timing import PATIENCE, Timing, alternate, once, say

SIZES = ((10, 10, 30, 0.3), (20, 20, 60, 0.4), (30, 30, 60, 0.5), (100, 100, 100, 0.5))
LARGEST = {"Clarabel": 900, "SCS": 1000}  # entries of the weight, beyond which the solver was left out

ABOUT = f"""max t subject to all N = n(k-1) margins >= t and a largest singular value of at most 1, on `clusters(k, d, n, spread, 0)`. CVXPY gets one
matrix constraint, with its default settings for Clarabel and eps = 1e-9 for SCS. Gaps are relative and certified by `penchant.bracket` for every solver
alike. A solver may take {LIMIT:.0f} s on the wall; it was left out where the weight has more entries than {LARGEST}."""


def compare(limits: Limits, quick: bool) -> Section:
    _solve(clusters(3, 4, 9, 0.5, 0), SOLVERS["Clarabel"])  # the first problem pays for CVXPY's imports
    rows = [_row(size, quick) for size in (SIZES[:2] if quick else SIZES)]
    notes = [
        "Ours solves in the multipliers of the pairs that may be active; CVXPY's program has an SDP of size k + d."
    ]
    return Section("spectral", "The spectral reference against CVXPY", ABOUT, rows, notes)


def _row(size: tuple[int, int, int, float], quick: bool) -> dict[str, Any]:
    say(f"spectral: k, d, n, spread = {size}")
    data, norm = clusters(*size, 0), Spectral()
    solution, first = once(lambda: pt.references.norm_margin(data, norm))
    repeats = alternate({"": lambda: pt.references.norm_margin(data, norm)}, 1 if quick else 3)
    cells: dict[str, Any] = {"ours": repeats[""]}
    gaps: dict[str, float] = {}
    for name, options in SOLVERS.items():
        if size[0] * size[1] > LARGEST[name]:
            cells[name] = "left out"
            continue
        (status, *found), timing = once(lambda options=options: _solve(data, options))
        if status != "optimal":
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
