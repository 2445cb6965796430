"""The nuclear-norm maximum-margin reference against CVXPY."""

from typing import Any

import cvxpy as cp
import numpy as np

import penchant as pt
from penchant.references.nuclear_margin import Nuclear
from penchant.settings.generators import random_tokens

from .machine import Limits
from .section import Section, ratio
from .timing import alternate, once, say

SIZES = ((10, 10, 20), (20, 10, 30), (50, 10, 50), (100, 20, 100))
BUDGETS = {
    "Clarabel": 500_000,
    "SCS": 2_000_000,
}  # entries of the constraint matrix beyond which a solver takes minutes
SOLVERS = {"Clarabel": {"solver": "CLARABEL"}, "SCS": {"solver": "SCS", "eps": 1e-9, "max_iters": 100_000}}

ABOUT = """min ||W||_* subject to all N = n(L-1) margins >= 1. CVXPY gets one matrix constraint, with its default settings for Clarabel and
eps = 1e-9 for SCS. Gaps are relative and certified by `penchant.bracket` for every solver alike. CVXPY was left out where its
constraint matrix has too many entries to finish within minutes."""


def compare(limits: Limits, quick: bool) -> Section:
    _solve(random_tokens(3, 3, 4, 0), SOLVERS["Clarabel"])  # the first problem pays for CVXPY's imports
    rows = [_row(size, quick) for size in (SIZES[:2] if quick else SIZES)]
    notes = [
        "CVXPY solves any convex program through an SDP of size 2d; ours works in factors and in the active pairs."
    ]
    return Section("nuclear", "The nuclear-norm reference against CVXPY", ABOUT, rows, notes)


def _row(size: tuple[int, int, int], quick: bool) -> dict[str, Any]:
    n, length, d = size
    say(f"nuclear: n={n} L={length} d={d}")
    data = random_tokens(n, length, d, 0)
    solution, first = once(lambda: pt.nuclear_margin(data))
    entries = n * (length - 1) * d * d
    solvers = {name: options for name, options in SOLVERS.items() if entries <= BUDGETS[name]}
    tasks = {"ours": lambda: pt.nuclear_margin(data)}
    tasks |= {name: lambda options=options: _solve(data, options) for name, options in solvers.items()}
    times = alternate(tasks, 1 if quick else 3)
    gaps = {
        f"gap, {name}": pt.bracket(data, *_solve(data, options), Nuclear()).gap for name, options in solvers.items()
    }
    return {
        "n, L, d": f"{n}, {length}, {d}",
        **times,
        "ours, first call": first,
        **{f"faster than {name}": ratio(times[name], times["ours"]) for name in solvers},
        "gap, ours": solution.bracket.gap,
        **gaps,
    }


def _solve(data: Any, options: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Weight and multipliers by CVXPY."""
    differences, queries = np.asarray(data.differences()), np.asarray(data.queries)
    features = np.einsum("ntd,ne->ntde", differences, queries).reshape(-1, differences.shape[2] * queries.shape[1])
    weight = cp.Variable(data.weight_shape)
    margins = features @ cp.vec(weight, order="C") >= 1
    cp.Problem(cp.Minimize(cp.norm(weight, "nuc")), [margins]).solve(**options)
    return weight.value, margins.dual_value
