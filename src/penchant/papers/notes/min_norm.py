"""Claims on interpolation: least norm from any start, finite steps and tiny starts."""

import numpy as np
from scipy.integrate import solve_ivp

from ...flow.flow import GradientFlow, Levels
from ...flow.mirror import follow_dual
from ...lab import Lab, claim
from ...norms import L2
from ...optimisers.adam import Adam
from ...optimisers.base import Descent, gradient_descent
from ...optimisers.memory import HeavyBall
from ...optimisers.step_rules import Constant
from ...references.interpolation import minimum_norm, minimum_potential
from ...settings.base import Setting
from ...settings.losses import Squared
from ...settings.parametrisations import Direct
from ...settings.potentials import HyperbolicEntropy, q_alpha
from ...theory.interpolants import distance
from ...training.noise import sample_noise
from ...training.train import train
from ...verdict import Verdict, all_of, at_most
from .evidence import ADAM, DERIVED, dense, signed, sparse
from .margin_theorems import NOTES


@claim(
    "min-norm/projection",
    "Descent, heavy ball and single-sample SGD on consistent least squares end at the solution nearest to the start.",
    f"{NOTES}, Theorem 9.3",
    kind="proved",
    slow=True,
)
def nearest_solution(lab: Lab, planted: bool) -> Verdict:
    """Gradient descent, heavy ball and single-sample SGD, from 0 and from a random start; planted: Adam."""
    data, start = dense(lab)
    setting = Setting(data, Direct(), Squared(), "sum")
    inputs, step = np.asarray(data.inputs), 1 / float(np.linalg.norm(np.asarray(data.inputs), 2) ** 2)
    if planted:
        run = train(setting, Adam(**ADAM), steps=20_000)
        return at_most(
            distance(run.weight(), minimum_norm(data).weight),
            1e-11,
            "Adam: relative distance to the least-norm solution",
        )
    worst = 0.0
    for begin in (np.zeros(50), start):
        limit = minimum_norm(data, begin).weight
        ends = [
            train(setting, rule, begin, steps=5_000).weight()
            for rule in (gradient_descent(step), Descent(Constant(step), L2(), HeavyBall(0.9)))
        ]
        pace = 0.5 / float((inputs**2).sum(axis=1).max())
        ends.append(sample_noise(inputs, data.targets, pace, 60_000, 1, start=begin)[0])
        worst = max(worst, *(distance(end, limit) for end in ends))
    return at_most(
        worst,
        1e-11,
        "largest relative distance to the projection of the start",
        "descent, heavy ball, single-sample SGD",
    )


@claim(
    "min-norm/closed-form",
    "In each singular direction the error decays like exp(-s^2 t) (flow) or (1 - step s^2)^k (descent).",
    f"{NOTES}, section 9.1",
    kind="proved",
    slow=True,
)
def closed_form(lab: Lab, planted: bool) -> Verdict:
    """Flow and descent against their closed forms in the singular directions."""
    data, start = dense(lab)
    setting = Setting(data, Direct(), Squared(), "sum")
    sizes, right = np.linalg.svd(np.asarray(data.inputs), full_matrices=False)[1:]
    limit = minimum_norm(data, start).weight
    step = 0.5 / sizes[0] ** 2
    rate = sizes if planted else sizes**2
    descent = train(setting, gradient_descent(step), start, steps=100)
    flow = train(setting, GradientFlow(tolerance=1e-9), start, recorder=Levels("log_time", np.log([0.01, 0.1])))
    checks = []
    for name, weight, decay in (
        ("100 steps of descent", descent.weight(), (1 - step * rate) ** 100),
        ("flow at t = 0.01", flow.weight(1), np.exp(-0.01 * rate)),
        ("flow at t = 0.1", flow.weight(2), np.exp(-0.1 * rate)),
    ):
        predicted = limit + right.T @ ((decay) * (right @ (start - limit)))
        checks.append(at_most(distance(weight, predicted), 1e-9, f"{name}: relative distance to the closed form"))
    return all_of(*checks)


@claim(
    "q-alpha/finite-steps",
    "Descent with finite steps ends at the minimiser of the potential of its own shrunken product w+ w-.",
    DERIVED,
    kind="ours",
)
def finite_steps(lab: Lab, planted: bool) -> Verdict:
    """Descent ends at the minimiser for the start shrunk by its own steps, nearer than to Q_alpha by far; planted: the start as it was."""
    data, _ = sparse(lab)
    setting, alpha = signed(lab, 0.3), 0.3
    step = 0.5 / (4 * float(np.linalg.norm(np.asarray(data.inputs), 2) ** 2))
    run = train(setting, gradient_descent(step), steps=20_000)
    ends = run.at()
    scale = np.full(100, 2 * np.log(alpha)) if planted else np.log(ends[0]) + np.log(ends[1])
    limit = minimum_potential(data, HyperbolicEntropy(scale, np.zeros(100))).weight
    return at_most(
        distance(run.weight(), limit),
        2e-4,
        "relative distance of descent to arg min of the potential of w+ w- at the end",
    )


@claim(
    "q-alpha/tiny-start",
    "From alpha = 1e-30 the flow reaches the sparse solution; nothing stalls at the saddle.",
    DERIVED,
    kind="ours",
    slow=True,
)
def tiny_start(lab: Lab, planted: bool) -> Verdict:
    """From alpha = 1e-30 the dual flow reaches the sparse solution; planted: a general integrator with an absolute tolerance."""
    data, weight = sparse(lab)
    if planted:
        inputs, targets = np.asarray(data.inputs), np.asarray(data.targets)

        def field(_: float, state: np.ndarray) -> np.ndarray:
            slope = 2 * (inputs @ (state[:100] ** 2 - state[100:] ** 2) - targets) @ inputs
            return np.concatenate([-slope * state[:100], slope * state[100:]])

        found = solve_ivp(field, (0, 1e4), np.full(200, 1e-30), method="Radau")
        end = found.y[:100, -1] ** 2 - found.y[100:, -1] ** 2
        detail = f"scipy's Radau with its default tolerances reports success = {found.success}"
    else:
        path = follow_dual(signed(lab, 1e-30))
        end = q_alpha(1e-30, 100).link(path.dual[-1] @ np.asarray(data.inputs))
        detail = f"t = {np.exp(path.log_time[-1]):.2g}, {path.status.name}"
    return at_most(distance(end, weight), 1e-5, "relative distance to the l1 solution, start 1e-30", detail)
