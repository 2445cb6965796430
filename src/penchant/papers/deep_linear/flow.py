"""Claims of the deep linear paper on the flow: Theorems 1 and 2 on two strips in the plane, and tails of the loss that are polynomial."""

import numpy as np

from ...diagnostics.alignment import alignments, sandwich, sine
from ...errors import quietly
from ...lab import Lab, claim
from ...references.euclidean_margin import max_margin
from ...references.logistic import polynomial_direction
from ...theory.families.layers import start_below_zero
from ...theory.verdicts import judge_direction
from ...training.events import LogExcessBelow, LogTimeAbove
from ...training.train import train
from ...verdict import ROUNDING, Verdict, all_of, at_least, at_most
from .evidence import (
    DERIVED,
    FAR,
    descent,
    eight_points,
    flow,
    geometry,
    layers,
    levels,
    mirrored_flow,
    problem,
    slow_tail,
)
from .theorems import JI, MAX_MARGIN


@claim("deep-linear/risk", f"{JI}, Theorem 1", "proved", slow=True)
def risk_vanishes(lab: Lab, planted: bool) -> Verdict:
    """Along the flow the risk tends to 0 and every layer grows without bound.
    The risk and every layer's norm, on the strips; the planted run starts on the stable manifold of the saddle."""
    if planted:
        run = mirrored_flow(lab, float(np.log(10.0)))
        above = f"start: {start_below_zero(run.setting, run.at(0)).slack:.2g} above the risk of zero"
        return at_least(float(levels(run)[-1]), 1.0, "-log R after time 10", above)
    run, growth = flow(lab, 4), layers(lab, 4).frobenius
    return all_of(
        at_least(float(levels(run)[-1]), 1e6 * (1 - ROUNDING), "-log R, to the rounding of the last step"),
        at_least(float((growth[-1] / growth[0]).min()), 10.0, "smallest growth of a Frobenius norm"),
        at_most(float(np.diff(run.log_excess).max()), 0.0, "largest rise of log R"),
    )


@claim("deep-linear/aligned", f"{JI}, Theorem 1", "proved", slow=True)
def layers_align(lab: Lab, planted: bool) -> Verdict:
    """Every layer tends to rank one, and adjacent layers align."""
    record, found = 0 if planted else -1, layers(lab, 4)
    return all_of(
        at_most(float(found.deficit[record].max()), 2e-3, "largest 1 - spectral/Frobenius"),
        at_most(float(found.misfit[record].max()), 1e-6, "largest 1 - |<v, u>| of adjacent layers"),
        at_most(float(found.product[record]), 5e-3, "1 - |w| / product of the Frobenius norms"),
    )


@claim("deep-linear/max-margin", f"{JI}, Theorem 2", "proved", slow=True)
def max_margin_direction(lab: Lab, planted: bool) -> Verdict:
    """On separable data flow and descent on a deep linear network align adjacent layers, and the network converges in direction to the l2 maximum margin."""
    setting, _ = problem(lab, 4)
    prediction = MAX_MARGIN.predict(setting, FAR)
    weight = prediction.rivals[-1].weight if planted else flow(lab, 4).weight()
    first = sine(layers(lab, 4).first[-1], geometry(lab).direction)
    return all_of(
        judge_direction(prediction, weight), at_most(first, 1e-6, "sine of the angle of v_1 to the maximum margin")
    )


@claim(
    "deep-linear/descent-max-margin", f"{JI}, Theorem 4; line search instead of Assumption 5", "sharpened", slow=True
)
def descent_margin(lab: Lab, planted: bool) -> Verdict:
    """Gradient descent on the logistic risk turns to the maximum margin.
    250 steps of line search on the logistic risk, and 1 as the twin."""
    run, record = descent(lab), 1 if planted else -1
    angle = float(np.degrees(np.arcsin(sine(run.weight(record), geometry(lab).direction))))
    margin = float(sandwich(run)[0][record] / geometry(lab).margin)
    return all_of(
        at_most(angle, 0.01, "angle to the maximum margin in degrees"),
        at_least(margin, 0.999, "margin over best margin"),
    )


@claim("deep-linear/certificate", f"{JI}, weak duality", "ours")
def certificate(lab: Lab, planted: bool) -> Verdict:
    """A run brackets the best margin with its own weight and its own multipliers."""
    lower, upper = sandwich(flow(lab, 4))
    best = geometry(lab).margin * (1.001 if planted else 1.0)
    return all_of(
        at_most(float(np.nanmax(lower)), best * (1 + ROUNDING), "largest margin along the run"),
        at_least(float(np.nanmin(upper)), best * (1 - ROUNDING), "smallest |sum q z| along the run"),
        at_most(float(upper[-1] - lower[-1]), 2e-8, "width of the sandwich at risk e^-1e6"),
    )


@claim("deep-linear/other-starts", f"{JI}, open there: Assumption 2 is sufficient", "observed", slow=True)
def other_starts(lab: Lab, planted: bool) -> Verdict:
    """Starts above the risk of zero reach small risk too.
    Assumption 2 is far from necessary: all of 20 normal starts above the risk of zero reach risk 0.1. The antisymmetric ones do not."""
    if planted:
        level = float(levels(mirrored_flow(lab, float(np.log(10.0))))[-1])
        return at_least(level, np.log(10.0), "-log R after time 10 from w1 = -w2")
    setting, _ = problem(lab, 3, logistic=True, width=6)
    drawn = (setting.start(seed, 0.6) for seed in range(60))
    starts = [start for start in drawn if not start_below_zero(setting, start).holds][:20]
    until = (LogExcessBelow(float(np.log(0.1))), LogTimeAbove(5.0))
    with quietly():
        runs = [train(setting, FAR, start, until=until, steps=20_000) for start in starts]
    reached = [run.log_excess[-1] <= np.log(0.1) + 1e-9 for run in runs]
    return at_least(float(np.mean(reached)), 1.0, f"share of {len(runs)} starts that reach risk 0.1 before t = e^5")


@claim("deep-linear/polynomial-tail", DERIVED, "ours", slow=True)
def polynomial_tail(lab: Lab, planted: bool) -> Verdict:
    """Polynomial tails select the minimiser of sum <w, z_i>^-a on the sphere, not the maximum margin, at every depth.
    With the tail z^-2 the limit is the minimiser of sum <w, z_i>^-2, at every depth; the maximum margin is elsewhere."""
    data = eight_points()
    widest = max_margin(data).weight
    wanted = widest if planted else polynomial_direction(np.asarray(data.signed), 2.0, widest)
    wanted, what = wanted / np.linalg.norm(wanted), "sine of the angle to the predicted direction"
    sines = {depth: sine(slow_tail(lab, depth).weight(), wanted) for depth in (1, 3)}
    return all_of(*(at_most(found, 1e-5, f"depth {depth}: {what}") for depth, found in sines.items()))


@claim("deep-linear/polynomial-alignment", f"{JI}, Theorem 1", "proved")
def polynomial_alignment(lab: Lab, planted: bool) -> Verdict:
    """Layers align under polynomial tails too.
    Alignment does not need the exponential tail."""
    found, record = alignments(slow_tail(lab, 3)), 0 if planted else -1
    worst = float(max(found.deficit[record].max(), found.misfit[record].max()))
    return at_most(worst, 1e-3, "largest of 1 - spectral/Frobenius and 1 - |<v, u>|", "at the start" if planted else "")
