"""Ji and Telgarsky's theorem for the user's own network, and the replay of a run's steps against Assumption 5."""

import equinox as eqx
import numpy as np

from ...errors import ArgumentError
from ...optimisers.layerwise import LayerDescent, risk_bounds, smoothness
from ...optimisers.step_rules import Constant
from ...references.base import Solution
from ...references.support_geometry import support_geometry
from ...theory.base import Hypothesis, Prediction, Theorem
from ...theory.families import layers
from ...theory.families.linear import descends, is_flow, loss_shape, separable
from ...training.trajectory import Trajectory

JI = "Ji, Telgarsky, Gradient descent aligns the layers of deep linear networks, ICLR 2019"


def _covers(optimiser: eqx.Module) -> bool:
    return is_flow(optimiser) or isinstance(optimiser, LayerDescent) or descends(optimiser, Constant)


def _hypotheses(asked: Prediction[Solution]) -> tuple[Hypothesis, ...]:
    setting, geometry = asked.setting, support_geometry(asked.setting.data, asked.reference)
    found = (separable(asked.reference), layers.data_norm(setting.data), loss_shape(setting.loss))
    found = (*found, *layers.span(geometry), layers.generic(geometry))
    if is_flow(asked.optimiser):
        return found
    return (*found, layers.smooth_loss(setting), layers.proved_steps(setting, asked.optimiser))


MAX_MARGIN = Theorem(
    "deep-linear-max-margin",
    "On separable data flow and descent on a deep linear network align adjacent layers, and the network converges in direction to the l2 maximum margin.",
    f"{JI}, Theorems 1 to 4",
    layers.DEEP_LINEAR,
    _covers,
    _hypotheses,
)
THEOREMS = (MAX_MARGIN,)


_ROUNDING = 1e-12  # in log R, and relative for radii: what recomputing from the records may differ by


def replay(run: Trajectory) -> tuple[Hypothesis, ...]:
    """Assumption 5, the descent inequality and the sum of the steps, as far as a finite run can tell.

    beta and G are those of the risk as it is reduced (for the exponential loss below the risk of the start), whatever the rule believed. Needs the account of `LayerDescent` and `recorder=Every()`.
    """
    if run.account is None or not np.array_equal(run.steps, np.arange(len(run))):
        raise ArgumentError(
            "run", "replay", "a run of LayerDescent with recorder=Every()", run.header["optimiser"]["kind"]
        )
    return _assumption5(run, run.account), _descent(run, run.account), _sum(run.account)


def _assumption5(run: Trajectory, account: dict[str, np.ndarray]) -> Hypothesis:
    """Every eta <= min(1/beta(R), 1), layers at least 1 inside the ball, and a ball that grows only when it must."""
    constants = risk_bounds(run.setting, run.at(0))
    if constants is None:
        text = f"beta and G are not known for {type(run.setting.loss).__name__} (Assumption 4)"
        return Hypothesis("steps", None, float("nan"), "", text, "not checkable")
    largest = np.array([max(np.linalg.norm(layer) for layer in run.at(k)) for k in range(len(run) - 1)])
    radius, log_step = account["radius"][1:], account["log_step"][1:]  # record k + 1 tells of the step at record k
    with np.errstate(divide="ignore"):
        bound = -np.log(np.maximum(smoothness(np.maximum(radius, 1.0), len(run.at(0)), *constants), 1.0))
    forced = np.append(True, largest[1:] > radius[:-1] - 1)
    grown = np.append(0.0, np.abs(np.diff(radius)) / radius[1:])
    slacks = {
        "a step longer than 1/beta(R)": bound - log_step,
        "a layer too near the boundary of the ball": (radius - 1 - largest) / radius,
        "a radius below 1": radius - 1,
        "a ball that grew without need": np.where(forced, np.inf, -grown),
    }
    worst = {name: float(values.min()) for name, values in slacks.items()}
    slack, known = min(worst.values()), f"beta = {constants[0]:.6g}, G = {constants[1]:.6g}"
    if slack >= -_ROUNDING:
        return Hypothesis("steps", True, max(slack, 0.0), "", f"Assumption 5 at every step, with {known}", "exact")
    first, name = min(
        (int(np.argmax(values < -_ROUNDING)), name) for name, values in slacks.items() if worst[name] < -_ROUNDING
    )
    return Hypothesis("steps", False, slack, f"step {first}: {name}", f"Assumption 5 with {known}", "exact")


def _descent(run: Trajectory, account: dict[str, np.ndarray]) -> Hypothesis:
    """R falls by at least eta/2 |grad R|^2, in logarithms."""
    before, after = run.log_excess[:-1], run.log_excess[1:]
    drop = 0.5 * np.exp(np.minimum(account["log_step"][1:] + 2 * run.log_slope[:-1] + before, 1.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        slack = np.where(drop < 1, before + np.log1p(-np.where(drop < 1, drop, 0.0)) - after, -np.inf)
    worst = int(slack.argmin())
    holds = bool(slack[worst] >= -_ROUNDING)
    text = "smallest surplus of descent over eta/2 |grad R|^2 in this run, in log R"
    return Hypothesis("descent", holds, float(slack[worst]), f"step {worst}", text, "exact")


def _sum(account: dict[str, np.ndarray]) -> Hypothesis:
    total = float(account["log_step_sum"][-1])
    return Hypothesis("steps_sum_to_infinity", None, total, "", f"log of the sum so far {total:.4g}", "not checkable")
