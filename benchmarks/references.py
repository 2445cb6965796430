"""The Frobenius maximum-margin reference against CVXPY."""

from typing import Any

import cvxpy as cp
import jax
import numpy as np

import penchant as pt
from penchant.settings.generators import random_tokens

from .machine import Limits
from .section import Section, ratio, seconds
from .timing import alternate, once, say

SIZES = ((6, 8, 10), (20, 10, 30), (50, 10, 50), (100, 20, 100), (200, 20, 200))
BUDGET = 2_000_000  # entries of the constraint matrix beyond which CVXPY takes minutes or the memory
SOLVERS = {"Clarabel": {"solver": "CLARABEL"}, "SCS": {"solver": "SCS", "eps": 1e-9, "max_iters": 100_000}}

ABOUT = f"""min ||W||_F subject to all N = n(L-1) margins >= 1. CVXPY gets one matrix constraint (the quick way to state it) with its default
settings for Clarabel and eps = 1e-9 for SCS. Gaps are relative and certified by `penchant.bracket` for every solver alike: the
distance between a proven upper and a proven lower bound. "first call" includes the compilation of our linear maps. "floor" is one
Gram matrix and one Cholesky factorisation (4N²d + N³/3 flops) at the speed of a matrix product. CVXPY was left out where its
constraint matrix of N x d² entries has more than {BUDGET:,}."""


def compare(limits: Limits, quick: bool) -> Section:
    for options in SOLVERS.values():
        _solve(*_plain(random_tokens(3, 3, 4, 0)), options)  # the first problem pays for CVXPY's imports
    rows = [_row(size, limits, quick) for size in (SIZES[:2] if quick else SIZES)]
    notes = [
        "The ratio shrinks towards small problems, where a call of ours is mostly the certificate and the dispatching of compiled maps, and it is "
        "below 1 for the first call of a process on a small problem: compiling takes longer than CVXPY does.",
        "SCS is the stronger peer on these sizes; for one solution of moderate accuracy at d <= 50 it is good enough.",
        "CVXPY solves any convex program, we solve this one: its constraint matrix is dense and has d² columns, our Gram matrix does not see d.",
    ]
    return Section("references", "The maximum-margin reference against CVXPY", ABOUT, rows, notes)


def _row(size: tuple[int, int, int], limits: Limits, quick: bool) -> dict[str, Any]:
    n, length, d = size
    say(f"references: n={n} L={length} d={d}")
    data = random_tokens(n, length, d, 0)
    plain, count = _plain(data), n * (length - 1)
    jax.clear_caches()
    solution, first = once(lambda: pt.references.max_margin(data))
    tasks = {"ours": lambda: pt.references.max_margin(data)}
    solvers = SOLVERS if count * d * d <= BUDGET else {}
    tasks |= {name: lambda options=options: _solve(*plain, options) for name, options in solvers.items()}
    times = alternate(tasks, 1 if quick and d > 10 else 3)
    gaps = {f"gap, {name}": pt.bracket(data, *_solve(*plain, options)).gap for name, options in solvers.items()}
    return {
        "n, L, d": f"{n}, {length}, {d}",
        "N x d²": count * d * d,
        **times,
        "ours, first call": first,
        **{f"faster than {name}": ratio(times[name], times["ours"]) for name in solvers},
        "gap, ours": solution.bracket.gap,
        **gaps,
        "floor": seconds(limits.seconds(4 * count**2 * d + count**3 / 3)),
    }


def _plain(data: Any) -> tuple[np.ndarray, np.ndarray]:
    """What a user of CVXPY has in hand: numpy arrays of token differences and queries."""
    return np.asarray(data.differences()), np.asarray(data.queries)


def _solve(differences: np.ndarray, queries: np.ndarray, options: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Weight and multipliers by CVXPY."""
    d, e = differences.shape[2], queries.shape[1]
    features = np.einsum("ntd,ne->ntde", differences, queries).reshape(-1, d * e)
    weight = cp.Variable(d * e)
    margins = features @ weight >= 1
    cp.Problem(cp.Minimize(cp.sum_squares(weight)), [margins]).solve(**options)
    return weight.value.reshape(d, e), margins.dual_value
