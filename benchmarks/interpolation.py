"""Interpolants and label noise against their peers: SLSQP, CVXPY, a general integrator, a per-sample PyTorch loop."""

from typing import Any

import cvxpy as cp
import numpy as np
import torch
from scipy.integrate import solve_ivp
from scipy.optimize import minimize

from penchant.flow.mirror import follow_dual
from penchant.references.interpolation import basis_pursuit, minimum_norm, minimum_potential
from penchant.references.interpolation_bracket import interpolation_bracket
from penchant.settings.base import Setting
from penchant.settings.generators import sparse_regression
from penchant.settings.losses import Squared
from penchant.settings.parametrisations import SignedSquares
from penchant.settings.potentials import q_alpha
from penchant.training.noise import label_noise

from .machine import Limits
from .section import Section, ratio
from .timing import alternate, once, say

ABOUT = """arg min Q_alpha subject to X theta = y on n samples in d dimensions with five signals. SLSQP gets the exact gradient, both Jacobians and
1000 iterations; CVXPY gets the relative-entropy form with Clarabel's defaults. "off" is the relative distance to our certified solution.
Basis pursuit is HiGHS (ours, with certificate) against CVXPY with Clarabel. "start 1e-30" integrates the flow from alpha = 1e-30: we in the dual
variable and in log t, the peer (SciPy's Radau, default tolerances) in the parameters to t = 10 000; both claim success. Label noise is one
chain step on 15 samples in 30 dimensions: ours over 256 chains at once, the peer an autograd loop in PyTorch, one chain as one would write it
and 256 chains as one batch. Ours also records the product w+ w- and the largest step."""


def compare(limits: Limits, quick: bool) -> Section:
    sizes = ((10, 100),) if quick else ((10, 100), (40, 100), (100, 400))
    rows = [_potential(n, d, alpha) for n, d in sizes for alpha in (1e-1, 1e-4)]
    rows += [_pursuit(n, d) for n, d in sizes]
    rows += [_tiny(), _noise(500 if quick else 2_000)]
    notes = [
        "SLSQP with exact derivatives finds the same point on small problems, at a cost that grows with d^3 per iteration; it has no certificate.",
        _clarabel(rows),
        "SciPy's Radau is right by its own rule: every parameter is below its absolute tolerance of 1e-6, so it need not move.",
        "Per sample, PyTorch pays for its graph at every step; batched over the chains it does not, and that is the fair comparison. "
        "Our compilation is left out.",
    ]
    return Section(
        "interpolation", "Interpolants and label noise against SLSQP, CVXPY, SciPy and PyTorch", ABOUT, rows, notes
    )


def _clarabel(rows: list[dict[str, Any]]) -> str:
    """What the rows say of the relative-entropy form, in their own numbers."""
    solved = [row for row in rows if row["task"].startswith("Q_alpha") and "faster than CVXPY" in row]
    if not solved:
        return "Clarabel solved none of the relative-entropy programs."
    times = [row["faster than CVXPY"].value for row in solved]
    worst = max(solved, key=lambda row: row["CVXPY off"])
    return (
        f"Clarabel on the relative-entropy form takes {min(times):.2g} to {max(times):.2g} times our time; it is furthest off at "
        f"{worst['task']}, by {worst['CVXPY off']:.1g}, where it says '{worst['CVXPY says']}'."
    )


def _off(weight: Any, reference: np.ndarray) -> float:
    return float(np.linalg.norm(np.asarray(weight) - reference) / np.linalg.norm(reference))


def _potential(n: int, d: int, alpha: float) -> dict[str, Any]:
    say(f"interpolation: Q_alpha n={n} d={d} alpha={alpha:g}")
    data, _ = sparse_regression(n, d, 5)
    inputs, targets, potential = np.asarray(data.inputs), np.asarray(data.targets), q_alpha(alpha, d)
    ours = minimum_potential(data, potential)
    time = alternate({"ours": lambda: minimum_potential(data, potential)}, 3)["ours"]
    constraint = {"type": "eq", "fun": lambda w: inputs @ w - targets, "jac": lambda w: inputs}
    peer, slow = once(
        lambda: minimize(
            potential.value,
            minimum_norm(data).weight,
            jac=potential.gradient,
            constraints=[constraint],
            method="SLSQP",
            options={"maxiter": 1000 if d <= 100 else 100, "ftol": 1e-12},
        )
    )
    row = {"task": f"Q_alpha, n={n}, d={d}, alpha={alpha:g}", "ours": time, "gap, ours": abs(ours.bracket.gap)}
    row |= {
        "SLSQP": slow,
        "faster than SLSQP": ratio(slow, time),
        "SLSQP off": _off(peer.x, ours.weight),
        "SLSQP says": str(peer.message),
    }
    try:
        (theirs, status), cone = once(lambda: _cones(inputs, targets, alpha))
    except cp.SolverError as error:
        return row | {"CVXPY says": str(error)[:40]}
    return row | {
        "CVXPY": cone,
        "faster than CVXPY": ratio(cone, time),
        "CVXPY off": _off(theirs, ours.weight),
        "CVXPY says": status,
    }


def _cones(inputs: np.ndarray, targets: np.ndarray, alpha: float) -> tuple[np.ndarray, str]:
    d = inputs.shape[1]
    u, v, level = cp.Variable(d, nonneg=True), cp.Variable(d, nonneg=True), np.full(d, alpha**2)
    cost = cp.sum(cp.kl_div(u, level) + cp.kl_div(v, level))
    problem = cp.Problem(cp.Minimize(cost), [inputs @ (u - v) == targets])
    problem.solve(solver="CLARABEL")
    return u.value - v.value, problem.status


def _pursuit(n: int, d: int) -> dict[str, Any]:
    data, _ = sparse_regression(n, d, 5)
    inputs, targets = np.asarray(data.inputs), np.asarray(data.targets)
    ours = basis_pursuit(data)
    time = alternate({"ours": lambda: basis_pursuit(data)}, 3)["ours"]

    def solve() -> np.ndarray:
        variable = cp.Variable(d)
        cp.Problem(cp.Minimize(cp.norm1(variable)), [inputs @ variable == targets]).solve(solver="CLARABEL")
        return variable.value

    theirs, cone = once(solve)
    return {
        "task": f"basis pursuit, n={n}, d={d}",
        "ours": time,
        "gap, ours": abs(ours.bracket.gap),
        "CVXPY": cone,
        "faster than CVXPY": ratio(cone, time),
        "CVXPY off": _off(theirs, ours.weight),
    }


def _tiny() -> dict[str, Any]:
    say("interpolation: start 1e-30")
    data, weight = sparse_regression()
    inputs, targets, potential = np.asarray(data.inputs), np.asarray(data.targets), q_alpha(1e-30, 100)
    setting = Setting(data, SignedSquares(1e-30), Squared(), "sum")
    path, time = once(lambda: follow_dual(setting))
    found = potential.link(path.dual[-1] @ inputs)
    bracket = interpolation_bracket(data, found, path.dual[-1], potential)

    def field(_: float, state: np.ndarray) -> np.ndarray:
        slope = 2 * (inputs @ (state[:100] ** 2 - state[100:] ** 2) - targets) @ inputs
        return np.concatenate([-slope * state[:100], slope * state[100:]])

    peer, general = once(lambda: solve_ivp(field, (0, 1e4), np.full(200, 1e-30), method="Radau"))
    end = peer.y[:100, -1] ** 2 - peer.y[100:, -1] ** 2
    return {
        "task": "flow, start 1e-30",
        "ours": time,
        "gap, ours": abs(bracket.gap),
        "ours off": _off(found, weight),
        "SciPy": general,
        "SciPy off": _off(end, weight),
        "SciPy says": f"success: {peer.success}",
    }


def _noise(steps: int) -> dict[str, Any]:
    say("interpolation: label noise")
    data, _ = sparse_regression(15, 30, 2, 0, unit_columns=True)
    start, chains = np.full((2, 30), 0.5), 256
    run = lambda: label_noise(data, start, step=0.005, deviation=1.0, steps=[steps], chains=chains)
    run()
    _, ours = once(run)
    _, single = once(lambda: _loop(data, start[None], steps))
    _, many = once(lambda: _loop(data, np.repeat(start[None], chains, axis=0), steps))
    ours, single, many = ours.scaled(1 / (steps * chains)), single.scaled(1 / steps), many.scaled(1 / (steps * chains))
    return {
        "task": "label noise, one chain step",
        "ours": ours,
        "PyTorch": single,
        "faster than PyTorch": ratio(single, ours),
        "PyTorch, 256 chains": many,
        "faster than that": ratio(many, ours),
    }


def _loop(data: Any, start: np.ndarray, steps: int) -> np.ndarray:
    """One sample per chain and step, the gradient by autograd; the chains are independent, so their losses are summed."""
    inputs, targets = torch.tensor(np.asarray(data.inputs)), torch.tensor(np.asarray(data.targets))
    params = torch.tensor(start, requires_grad=True)
    for _ in range(steps):
        index = torch.randint(len(targets), (len(start),))
        predicted = (inputs[index] * (params[:, 0] ** 2 - params[:, 1] ** 2)).sum(dim=1)
        error = predicted - targets[index] - torch.randn(len(start), dtype=torch.float64)
        (gradient,) = torch.autograd.grad(0.5 * (error**2).sum(), params)
        with torch.no_grad():
            params.sub_(0.005 * gradient)
    return params.detach().numpy()
