"""What a run of a deep linear network is told before it starts: a start that cannot move is refused, broken assumptions are announced."""

from collections.abc import Iterable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..errors import ArgumentError, CriticalPointError, DivergedRun, StepSizeError, warn
from ..flow.flow import GradientFlow, is_flow
from ..optimisers.base import Optimiser
from ..optimisers.layerwise import risk_bounds, safe_step
from ..problem import Reading, read_once
from ..settings.base import Setting
from ..settings.deep_linear import layer_norms, layered, risk_of_zero
from .events import Limits
from .status import Status
from .trajectory import Trajectory

_FAINT = 1e-12  # a gradient this small, relative to the product of the layers, is mostly rounding


def check_networks(members: Iterable[tuple[Setting, Optimiser | GradientFlow, PyTree]], levels: Limits) -> None:
    """Check every run of a call whose weight is a product of layers; one warning per kind, however many runs."""
    above, count, faint, steep = [], 0, False, ""
    for setting, optimiser, start in members:
        if not layered(setting):
            continue
        reading = read_once(setting, start)
        if jnp.isneginf(reading.log_slope_norm):
            raise CriticalPointError("train")
        count += 1
        above.append(float(reading.log_excess) - risk_of_zero(setting))
        faint = faint or float(jnp.exp(reading.log_slope_norm)) < _FAINT * float(jnp.prod(layer_norms(start)))
        steep = steep or _steep(setting, optimiser, start)
        if is_flow(optimiser):
            _check_level(reading, levels)
    high = [rise for rise in above if rise > 0]
    if high:
        which = "The start lies" if count == 1 else f"{len(high)} of {count} starts lie"
        text = f"{which} above the risk of weight 0, by up to {max(high):.3g} in log R (Assumption 2): nothing is promised. `ensure_assumption2(setting, start)` repairs it."
        warn(text)
    if faint:
        warn("The gradient at the start is below 1e-12 of the product of the layers: rounding decides where it points.")
    if steep:
        warn(steep)


def _check_level(reading: Reading, levels: Limits) -> None:
    level, now = float(levels.log_excess), float(reading.log_excess)
    if level >= now:
        wanted = f"a LogExcessBelow under the log risk of the start, {now:.6g}"
        raise ArgumentError("until", "train with GradientFlow", wanted, f"{level:g}")


def _steep(setting: Setting, optimiser: Optimiser | GradientFlow, start: PyTree) -> str:
    """Assumption 4: the constants that a rule uses must bound slope and curvature of the risk, at least below the start."""
    rule: Any = getattr(optimiser, "rule", None)
    if hasattr(rule, "step") and setting.loss.kind == "exponential":
        safe, step = safe_step(setting, start), float(rule.step)
        bounded = f"The exponential loss has no bounds on slope and curvature (Assumption 4); those below the risk of the start allow a constant step of {safe:.3g}"
        return "" if step <= safe * (1 + 1e-9) else f"{bounded}, not {step:g}: nothing is promised."
    if not hasattr(rule, "slope"):
        return ""
    name, found = type(rule).__name__, risk_bounds(setting, start)
    if found is None:
        loss = type(setting.loss).__name__
        return f"{name} needs bounds on slope and curvature of the loss (Assumption 4), which are not known for {loss}."
    beta, slope = found
    room = 1 + 1e-9
    if beta <= room * float(rule.beta) and slope <= room * float(rule.slope):
        return ""
    return (
        f"{name} uses beta = {float(rule.beta):g}, slope = {float(rule.slope):g}, but this risk is only bounded by {beta:.6g} and {slope:.6g} "
        f"(Assumption 4): pass {name}(beta={beta:.6g}, slope={slope:.6g})."
    )


def raise_if_diverged(setting: Setting, optimiser: Optimiser | GradientFlow, start: PyTree, run: Trajectory) -> None:
    """A `StepSizeError` with a safe step for a constant step on layers, a `DivergedRun` for any other run that could not go on."""
    rule: Any = getattr(optimiser, "rule", None)
    if getattr(rule, "fixed", False) and run.status is Status.diverging_step:
        why = "it raised the risk ten times in a row, or left the region of the weights"
        raise StepSizeError(float(np.max(rule.step)), safe_step(setting, start), why)
    if run.status in (Status.diverging_step, Status.not_finite, Status.step_failed):
        raise DivergedRun(run, run.status.name, int(run.steps[-1]), run.ending)
