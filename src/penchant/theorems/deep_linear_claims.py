"""Claims of the deep linear paper: Theorems 1 to 4, on two strips in the plane."""

import numpy as np

from ..diagnostics.alignment import sandwich, sine
from ..errors import quietly
from ..references.euclidean_margin import max_margin
from ..training.events import LogExcessBelow, LogTimeAbove
from ..training.train import train
from ..verdict import ROUNDING, Verdict, all_of, at_least, at_most
from .base import judge_direction
from .deep_linear import DeepLinearMaxMargin, sourced, start_below_zero
from .deep_linear_problems import (
    FAR,
    descent,
    flow,
    geometry,
    layers,
    levels,
    mirrored_flow,
    problem,
    slow_tail,
)


def risk_vanishes(planted: bool) -> Verdict:
    """The risk and every layer's norm, on the strips; the planted run starts on the stable manifold of the saddle."""
    if planted:
        run = mirrored_flow(float(np.log(10.0)))
        return at_least(
            float(levels(run)[-1]),
            1.0,
            "-log R after time 10",
            f"start: {start_below_zero(run.setting, run.at(0)).slack:.2g} above the risk of zero",
        )
    run, growth = flow(4), layers(4).frobenius
    return all_of(
        at_least(float(levels(run)[-1]), 1e6 * (1 - ROUNDING), "-log R, to the rounding of the last step"),
        at_least(float((growth[-1] / growth[0]).min()), 10.0, "smallest growth of a Frobenius norm"),
        at_most(float(np.diff(run.log_excess).max()), 0.0, "largest rise of log R"),
    )


def layers_align(planted: bool) -> Verdict:
    record = 0 if planted else -1
    found = layers(4)
    return all_of(
        at_most(float(found.deficit[record].max()), 2e-3, "largest 1 - spectral/Frobenius"),
        at_most(float(found.misfit[record].max()), 1e-6, "largest 1 - |<v, u>| of adjacent layers"),
        at_most(float(found.product[record]), 5e-3, "1 - |w| / product of the Frobenius norms"),
    )


def max_margin_direction(planted: bool) -> Verdict:
    setting, _ = problem(4)
    prediction = DeepLinearMaxMargin().predict(setting, FAR)
    weight = prediction.rivals[-1].weight if planted else flow(4).weight()
    first = at_most(
        sine(layers(4).first[-1], geometry().direction), 1e-6, "sine of the angle of v_1 to the maximum margin"
    )
    return all_of(judge_direction(prediction, weight), first)


def tails_matter(planted: bool) -> Verdict:
    """Theorem 2 needs the exponential tail: its conclusion, tested on both losses."""
    run = slow_tail(3) if planted else flow(3)
    wanted = max_margin(run.setting.data).weight
    return at_most(
        sine(run.weight(), wanted / np.linalg.norm(wanted)),
        1e-3,
        "sine of the angle to the maximum margin",
        type(run.setting.loss).__name__,
    )


def descent_margin(planted: bool) -> Verdict:
    """250 steps of line search on the logistic risk, and 1 as the twin."""
    run, record = descent(), 1 if planted else -1
    lower, _ = sandwich(run)
    return all_of(
        at_most(
            float(np.degrees(np.arcsin(sine(run.weight(record), geometry().direction)))),
            0.01,
            "angle to the maximum margin in degrees",
        ),
        at_least(float(lower[record] / geometry().margin), 0.999, "margin over best margin"),
    )


def certificate(planted: bool) -> Verdict:
    lower, upper = sandwich(flow(4))
    best = geometry().margin * (1.001 if planted else 1.0)
    return all_of(
        at_most(float(np.nanmax(lower)), best * (1 + ROUNDING), "largest margin along the run"),
        at_least(float(np.nanmin(upper)), best * (1 - ROUNDING), "smallest |sum q z| along the run"),
        at_most(float(upper[-1] - lower[-1]), 2e-8, "width of the sandwich at risk e^-1e6"),
    )


def other_starts(planted: bool) -> Verdict:
    """Assumption 2 is far from necessary: all of 20 normal starts above the risk of zero reach risk 0.1. The antisymmetric ones do not."""
    if planted:
        return at_least(
            float(levels(mirrored_flow(float(np.log(10.0))))[-1]), np.log(10.0), "-log R after time 10 from w1 = -w2"
        )
    setting, _ = problem(3, logistic=True, width=6)
    starts = [
        start
        for start in (setting.start(seed, 0.6) for seed in range(60))
        if not start_below_zero(setting, start).holds
    ][:20]
    until = (LogExcessBelow(float(np.log(0.1))), LogTimeAbove(5.0))
    with quietly():
        runs = [train(setting, FAR, start, until=until, steps=20_000) for start in starts]
    reached = [run.log_excess[-1] <= np.log(0.1) + 1e-9 for run in runs]
    return at_least(float(np.mean(reached)), 1.0, f"share of {len(runs)} starts that reach risk 0.1 before t = e^5")


CLAIMS = (
    sourced(
        "risk", "Along the flow the risk tends to 0 and every layer grows without bound.", "Theorem 1", risk_vanishes
    ),
    sourced("aligned", "Every layer tends to rank one, and adjacent layers align.", "Theorem 1", layers_align),
    sourced("max-margin", DeepLinearMaxMargin.statement, "Theorem 2", max_margin_direction),
    sourced(
        "tails",
        "The maximum margin needs the exponential tail of the loss.",
        "Theorem 2; the twin has a polynomial tail",
        tails_matter,
    ),
    sourced(
        "descent-max-margin",
        "Gradient descent on the logistic risk turns to the maximum margin.",
        "Theorem 4; line search instead of Assumption 5",
        descent_margin,
    ),
    sourced(
        "certificate",
        "A run brackets the best margin with its own weight and its own multipliers.",
        "weak duality",
        certificate,
    ),
    sourced(
        "other-starts",
        "Starts above the risk of zero reach small risk too.",
        "open there: Assumption 2 is sufficient",
        other_starts,
    ),
)
