"""Claims of the deep linear paper: Theorems 1 to 4, on two strips in the plane."""

import numpy as np

from ...diagnostics.alignment import sandwich, sine
from ...errors import quietly
from ...lab import Lab, claim
from ...references.euclidean_margin import max_margin
from ...theory.base import judge_direction
from ...training.events import LogExcessBelow, LogTimeAbove
from ...training.train import train
from ...verdict import ROUNDING, Verdict, all_of, at_least, at_most
from .evidence import FAR, descent, flow, geometry, layers, levels, mirrored_flow, problem, slow_tail
from .theorems import DeepLinearMaxMargin, start_below_zero


@claim(
    "deep-linear/risk",
    "Along the flow the risk tends to 0 and every layer grows without bound.",
    "Ji, Telgarsky, Gradient descent aligns the layers of deep linear networks, ICLR 2019, Theorem 1",
    kind="proved",
    slow=True,
)
def risk_vanishes(lab: Lab, planted: bool) -> Verdict:
    """The risk and every layer's norm, on the strips; the planted run starts on the stable manifold of the saddle."""
    if planted:
        run = mirrored_flow(lab, float(np.log(10.0)))
        return at_least(
            float(levels(run)[-1]),
            1.0,
            "-log R after time 10",
            f"start: {start_below_zero(run.setting, run.at(0)).slack:.2g} above the risk of zero",
        )
    run, growth = flow(lab, 4), layers(lab, 4).frobenius
    return all_of(
        at_least(float(levels(run)[-1]), 1e6 * (1 - ROUNDING), "-log R, to the rounding of the last step"),
        at_least(float((growth[-1] / growth[0]).min()), 10.0, "smallest growth of a Frobenius norm"),
        at_most(float(np.diff(run.log_excess).max()), 0.0, "largest rise of log R"),
    )


@claim(
    "deep-linear/aligned",
    "Every layer tends to rank one, and adjacent layers align.",
    "Ji, Telgarsky, Gradient descent aligns the layers of deep linear networks, ICLR 2019, Theorem 1",
    kind="proved",
    slow=True,
)
def layers_align(lab: Lab, planted: bool) -> Verdict:
    record = 0 if planted else -1
    found = layers(lab, 4)
    return all_of(
        at_most(float(found.deficit[record].max()), 2e-3, "largest 1 - spectral/Frobenius"),
        at_most(float(found.misfit[record].max()), 1e-6, "largest 1 - |<v, u>| of adjacent layers"),
        at_most(float(found.product[record]), 5e-3, "1 - |w| / product of the Frobenius norms"),
    )


@claim(
    "deep-linear/max-margin",
    "On separable data flow and descent on a deep linear network align adjacent layers, and the network converges in direction to the l2 maximum margin.",
    "Ji, Telgarsky, Gradient descent aligns the layers of deep linear networks, ICLR 2019, Theorem 2",
    kind="proved",
    slow=True,
)
def max_margin_direction(lab: Lab, planted: bool) -> Verdict:
    setting, _ = problem(lab, 4)
    prediction = DeepLinearMaxMargin().predict(setting, FAR)
    weight = prediction.rivals[-1].weight if planted else flow(lab, 4).weight()
    first = at_most(
        sine(layers(lab, 4).first[-1], geometry(lab).direction), 1e-6, "sine of the angle of v_1 to the maximum margin"
    )
    return all_of(judge_direction(prediction, weight), first)


@claim(
    "deep-linear/tails",
    "The maximum margin needs the exponential tail of the loss.",
    "Ji, Telgarsky, Gradient descent aligns the layers of deep linear networks, ICLR 2019, Theorem 2; the twin has a polynomial tail",
    kind="proved",
    slow=True,
)
def tails_matter(lab: Lab, planted: bool) -> Verdict:
    """Theorem 2 needs the exponential tail: its conclusion, tested on both losses."""
    run = slow_tail(lab, 3) if planted else flow(lab, 3)
    wanted = max_margin(run.setting.data).weight
    return at_most(
        sine(run.weight(), wanted / np.linalg.norm(wanted)),
        1e-3,
        "sine of the angle to the maximum margin",
        type(run.setting.loss).__name__,
    )


@claim(
    "deep-linear/descent-max-margin",
    "Gradient descent on the logistic risk turns to the maximum margin.",
    "Ji, Telgarsky, Gradient descent aligns the layers of deep linear networks, ICLR 2019, Theorem 4; line search instead of Assumption 5",
    kind="proved",
    slow=True,
)
def descent_margin(lab: Lab, planted: bool) -> Verdict:
    """250 steps of line search on the logistic risk, and 1 as the twin."""
    run, record = descent(lab), 1 if planted else -1
    lower, _ = sandwich(run)
    return all_of(
        at_most(
            float(np.degrees(np.arcsin(sine(run.weight(record), geometry(lab).direction)))),
            0.01,
            "angle to the maximum margin in degrees",
        ),
        at_least(float(lower[record] / geometry(lab).margin), 0.999, "margin over best margin"),
    )


@claim(
    "deep-linear/certificate",
    "A run brackets the best margin with its own weight and its own multipliers.",
    "Ji, Telgarsky, Gradient descent aligns the layers of deep linear networks, ICLR 2019, weak duality",
    kind="sharpened",
)
def certificate(lab: Lab, planted: bool) -> Verdict:
    lower, upper = sandwich(flow(lab, 4))
    best = geometry(lab).margin * (1.001 if planted else 1.0)
    return all_of(
        at_most(float(np.nanmax(lower)), best * (1 + ROUNDING), "largest margin along the run"),
        at_least(float(np.nanmin(upper)), best * (1 - ROUNDING), "smallest |sum q z| along the run"),
        at_most(float(upper[-1] - lower[-1]), 2e-8, "width of the sandwich at risk e^-1e6"),
    )


@claim(
    "deep-linear/other-starts",
    "Starts above the risk of zero reach small risk too.",
    "Ji, Telgarsky, Gradient descent aligns the layers of deep linear networks, ICLR 2019, open there: Assumption 2 is sufficient",
    kind="proved",
    slow=True,
)
def other_starts(lab: Lab, planted: bool) -> Verdict:
    """Assumption 2 is far from necessary: all of 20 normal starts above the risk of zero reach risk 0.1. The antisymmetric ones do not."""
    if planted:
        return at_least(
            float(levels(mirrored_flow(lab, float(np.log(10.0))))[-1]),
            np.log(10.0),
            "-log R after time 10 from w1 = -w2",
        )
    setting, _ = problem(lab, 3, logistic=True, width=6)
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
