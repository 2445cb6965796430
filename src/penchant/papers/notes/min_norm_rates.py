"""Claims on how fast interpolation is reached: the last relaxation of the flow, and the orders in the step size of descent."""

import numpy as np

from ...diagnostics.rates import log_log_slope
from ...flow.mirror import follow_dual
from ...lab import Lab, claim, recipe
from ...optimisers.base import gradient_descent
from ...references.interpolation import minimum_potential
from ...settings.base import Setting
from ...settings.generators import sparse_regression
from ...settings.losses import Squared
from ...settings.potentials import HyperbolicEntropy, q_alpha
from ...settings.power_models import SignedPowers
from ...settings.square_models import SignedSquares
from ...theory.interpolants import distance, relative_residual
from ...training.train import train
from ...verdict import Verdict, all_of, at_most, close
from .evidence import DERIVED
from .margin_theorems import NOTES
from .recovery_hypotheses import slowest_rate
from .time_window import recovery, square_setting

_RELAXATIONS = (12.0, 14.0)  # of the slowest direction: all others are gone, and rounding is far away
_STEPS = 100_000
_MODELS = ("signed squares", "depth 3", "squares")


def _setting(lab: Lab, name: str) -> Setting:
    if name == "squares":
        return square_setting(recovery(lab)[0], 1e-2)
    data, _ = sparse_regression(10, 25, 2, 3)
    return Setting(data, SignedSquares(0.3) if name == "signed squares" else SignedPowers(0.3, 3), Squared(), "sum")


@recipe
def _final_rates(lab: Lab, name: str) -> tuple[float, float, float]:
    """Rate at which the residual of the flow ends, the predicted one, and that with |theta| for the curvature C."""
    setting = _setting(lab, name)
    potential, inputs = setting.parametrisation.potential(setting.start()), np.asarray(setting.data.inputs)
    limit = minimum_potential(setting.data, potential).weight
    predicted = slowest_rate(setting, potential, limit)
    times = np.array(_RELAXATIONS) / predicted
    path = follow_dual(setting, log_times=np.log(times), tolerance=1e-9)
    fits = potential.link(path.dual[1:] @ inputs) @ inputs.T
    left = np.linalg.norm(fits - np.asarray(setting.data.targets), axis=1)
    curvature = potential.curvature(potential.gradient(limit))
    smallest = [np.linalg.svd(inputs * np.sqrt(scale), compute_uv=False)[-1] for scale in (np.abs(limit), curvature)]
    measured = float(np.log(left[0] / left[1]) / (times[1] - times[0]))
    return measured, predicted, float(predicted * (smallest[0] / smallest[1]) ** 2)


@claim(
    "mirror/final-rate",
    "The flow ends linearly at the rate c kappa lambda_min(X C X'), c = 4 for squares and D^2 alpha^(D-2) at depth D: for squares after n / lambda_min(2 X diag(theta) X').",
    f"{NOTES}, Theorem 9.18; rate {DERIVED}",
    kind="sharpened",
    slow=True,
)
def final_rate(lab: Lab, planted: bool) -> Verdict:
    """The last two relaxation times of three flows; planted: the modulus of the weight for the curvature of the dual potential."""
    checks = []
    for name in _MODELS:
        measured, predicted, other = _final_rates(lab, name)
        text = f"{name}: rate of the residual between {_RELAXATIONS[0]:g} and {_RELAXATIONS[1]:g} relaxation times"
        detail = f"n / lambda_min(2 X diag(theta) X') = {1 / predicted:.4g}" if name == "squares" else ""
        checks.append(close(measured, other if planted else predicted, 0.01, text, detail))
    return all_of(*checks)


_LOADS = np.array([0.4, 0.2, 0.1, 0.05])  # step size times 4 |X|^2


@recipe
def _ends(lab: Lab, alpha: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distances of where descent ends to arg min Q_alpha and to the minimiser for its own product w+ w-, and its residual, per step size."""
    data, _ = sparse_regression(10, 25, 2, 3)
    setting = Setting(data, SignedSquares(alpha), Squared(), "sum")
    top = 4 * float(np.linalg.norm(np.asarray(data.inputs), 2) ** 2)
    plain, rows = minimum_potential(data, q_alpha(alpha, 25)).weight, []
    for load in _LOADS:
        run = train(setting, gradient_descent(float(load / top)), steps=_STEPS)
        own = HyperbolicEntropy(np.log(run.at()).sum(axis=0), np.zeros(25))
        near = minimum_potential(data, own).weight
        left = relative_residual(data, run.margins[-1])
        rows.append((distance(run.weight(), plain), distance(run.weight(), near), left))
    first, second, residual = np.array(rows).T
    return first, second, residual


@claim(
    "q-alpha/step-orders",
    "Descent ends at a distance of first order in the step size from arg min Q_alpha, and of second order from the minimiser for its own product w+ w-.",
    DERIVED,
    kind="ours",
    slow=True,
)
def step_orders(lab: Lab, planted: bool) -> Verdict:
    """Slopes over four step sizes and two starts; planted: order 2 for Q_alpha itself, order 1 with the product."""
    checks = []
    for alpha in (0.3, 0.1):
        *found, residual = _ends(lab, alpha)
        checks.append(at_most(float(residual.max()), 1e-8, f"alpha = {alpha:g}: relative residual where descent ends"))
        for name, gaps, order in zip(
            ("arg min Q_alpha", "the minimiser for its own w+ w-"), found, (1, 2), strict=True
        ):
            slope = log_log_slope(_LOADS, gaps, (_LOADS[-1], _LOADS[0]))
            text = f"alpha = {alpha:g}: order in the step size of the distance to {name}"
            detail = f"{gaps[0]:.3g} to {gaps[-1]:.3g}"
            checks.append(close(slope, 3.0 - order if planted else float(order), 0.05, text, detail))
    return all_of(*checks)
