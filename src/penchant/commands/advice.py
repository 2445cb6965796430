"""What a run says of itself beyond its numbers: by which steps it was made, what would decide it, and what happens where no weight separates."""

from argparse import Namespace
from typing import Any

import numpy as np

from ..case import Case
from ..errors import PenchantError
from ..references.base import Solution
from ..references.logistic import logistic_limit
from ..settings.base import Setting
from ..settings.classification import Classification
from ..settings.losses import Logistic
from ..settings.parametrisations import Direct, Gram
from ..theory.base import Prediction
from ..theory.judge import optimiser_name
from ..theory.verdicts import MARGIN
from ..training.status import Status
from ..training.trajectory import Trajectory, settings_of
from ..verdict import Outcome
from .options import longest_feature

_WORDS = {"momentum": "normalised momentum (heavy ball on gradients of length 1)"}
_CLOSE = 1e-8  # 1 - corr that a run must reach: below, rounding and time are against it


def describe_steps(options: Namespace, optimiser: Any) -> str:
    """The rule with its numbers, and whether the step size was chosen by the data."""
    chosen = " (step size: the default, from the data)" if _by_default(options) else ""
    return f"{_WORDS.get(options.optimiser, options.optimiser)}: {optimiser_name(settings_of(optimiser))}{chosen}"


def _by_default(options: Namespace) -> bool:
    return options.step_size is None and options.optimiser in (
        "gd",
        "ngd",
        "momentum",
        "accelerated",
        "adam",
        "sign",
        "signum",
        "muon",
    )


def would_decide(case: Case, options: Namespace) -> str:
    """The line to type where a verdict is undecided, or why no run decides; empty where one has decided or the status says what to do."""
    prediction, run = case.prediction, case.run
    if case.verdict.outcome is not Outcome.undecided or prediction is None:
        return ""
    if run.status not in (Status.out_of_steps, Status.reached_target):
        return f"not more steps: the run has ended as {run.status.name}"
    if not isinstance(prediction.reference, Solution):
        return f"more steps: --steps {10 * max(1, int(run.steps[-1]))}"
    if not prediction.reference.certified:
        return "no run: the reference itself is not known well enough"
    if prediction.separation / 10 < _CLOSE:
        nearest = min(prediction.rivals, key=lambda rival: rival.separation)
        return f"hardly a run: the rival '{nearest.name}' is at 1 - corr {nearest.separation:.1g} only"
    return _larger_margin(prediction, run, options)


def _larger_margin(prediction: Prediction, run: Trajectory, options: Namespace) -> str:
    """The margin is short of its maximum by the share H(p) / margin, with p the dual weights: what is left at margin M is known beforehand."""
    shares = prediction.reference.dual / prediction.reference.dual.sum()
    entropy = -float((shares * np.log(np.where(shares > 0, shares, 1.0))).sum())
    target, margin, steps = max(20.0, 2 * entropy / MARGIN), float(run.smallest_margin()[-1]), int(run.steps[-1])
    state = f"smallest margin {margin:.3g}" + (", the data are not separated yet" if margin <= 0 else "")
    flow = f"--optimiser flow --margin {max(target, 10 * margin):.0f}"
    if options.optimiser == "flow":
        return f"a longer flow ({state}): --margin {max(target, 10 * margin):.0f}"
    if options.optimiser in ("ngd", "momentum", "polyak", "accelerated", "adam"):  # their margins grow like the steps
        more = steps * (max(2.0, target / margin) if margin > 0 else 10.0)
        return f"more steps ({state}; wanted: about {target:.0f}): --steps {float(f'{more:.1g}'):.0f}"
    pace = f"steps of a constant size gain margin like log t, and {target:.0f} takes about e^{target:.0f} of them"
    return f"{flow}, or --optimiser ngd{_steps(prediction, target)} ({state}; {pace})"


def _steps(prediction: Prediction, target: float) -> str:
    """How many normalised steps of the default length reach the margin; known beforehand where the weight itself is trained."""
    if not isinstance(prediction.setting.parametrisation, Direct | Gram):
        return ""
    needed = target * prediction.reference.value * 2 * longest_feature(prediction.setting.data)
    return f" --steps {float(f'{max(needed, 1000.0):.1g}'):.0f}"


def instead(setting: Setting) -> str:
    """What training a linear model does on data that no direction separates (Ji, Telgarsky 2019)."""
    linear = isinstance(setting.data, Classification) and isinstance(setting.parametrisation, Direct | Gram)
    if not linear:
        return ""
    signed = np.asarray(setting.data.signed)
    try:
        found = logistic_limit(signed)
    except PenchantError as error:
        return f"\n  What training does instead could not be computed: {error}"
    apart, rest = int(found.separated.sum()), int((~found.separated).sum())
    loss = float(np.logaddexp(0, -signed[~found.separated] @ found.finite).sum()) / setting.samples
    known = (
        f" at |v| = {np.linalg.norm(found.finite):.4g}, loss {loss:.6g}" if isinstance(setting.loss, Logistic) else ""
    )
    if not apart:
        return f"\n  Training instead converges to the minimum v of the loss{known}: no direction helps a sample without hurting another."
    pace = f"{apart} of {apart + rest} samples are separated by a direction u that hurts no other one"
    return (
        f"\n  Training instead goes on as v + u log t: {pace} (margin {1 / np.linalg.norm(found.direction):.4g} per unit of norm, "
        f"orthogonal to the others), and v is the minimum of the loss of the other {rest}{known}."
    )
