"""Theorems 2 and 4, where the network turns to, and what lies outside their hypotheses."""

from collections.abc import Iterator

import numpy as np

from ...diagnostics.alignment import sine
from ...diagnostics.rates import log_log_slope
from ...lab import Lab, claim
from ...references.euclidean_margin import max_margin
from ...references.logistic import polynomial_direction
from ...theory.judge import judge_direction
from ...verdict import Verdict, at_most
from .drawn import DESCENTS, PACE, STEPS, beside_flow, drawn, flows, weights_of
from .evidence import DERIVED, FAR, eight_points, flow, problem, slow_tail
from .theorems import JI, MAX_MARGIN


@claim("deep-linear/max-margin", f"{JI}, Theorem 2", "proved", slow=True)
def max_margin_direction(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Where the support vectors span, the flow turns v_1 and the network to the l2 maximum margin.
    To risk e^-1000000 on the strips at depth 4, and on 24 draws at depths 2 and 3 by how fast it turns. Planted: a rival of the prediction."""
    setting, _ = problem(lab, 4)
    prediction = MAX_MARGIN.predict(setting, FAR)
    yield judge_direction(prediction, prediction.rivals[-1].weight if planted else flow(lab, 4).weight())
    yield from turned(lab)


@claim("deep-linear/theorem-4", f"{JI}, Theorem 4; by way of the flow", "sharpened", slow=True)
def theorem4(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """With Assumption 5's own steps descent on the logistic risk turns v_1 and the network to the maximum margin.
    24 draws of Assumption 3 at depths 2 and 3. Its steps are too short to go far: at the risk that it reaches it has the layers of the flow, as far as
    theorem-3 says, and the flow goes on to turn. Planted: a direction one per cent away from the maximum margin."""
    apart = max(beside_flow(lab)[1])
    yield at_most(apart, PACE, f"largest distance from the flow at the risk reached in {STEPS} steps, over the way")
    yield from turned(lab, 0.01 * planted)


def turned(lab: Lab, tilt: float = 0.0) -> Iterator[Verdict]:
    """On draws of Assumption 3 the sines of w and v_1 to the maximum margin, or to a direction so far from it, fall at least like half of the power -1 over the last decade of -log R."""
    slopes = []
    for depth in DESCENTS:
        (_, _, found), run = drawn(lab, depth), flows(lab, depth)
        weights, first = weights_of(run.layers), np.linalg.svd(run.layers[0])[2][..., 0, :]
        for geometry, level, *paths in zip(found, -run.log_risk, weights, first, strict=True):
            unit = geometry.direction + tilt * geometry.offset / np.linalg.norm(geometry.offset)
            unit, late, window = unit / np.linalg.norm(unit), level > 0.09 * level[-1], (level[-1] / 10, level[-1])
            for vectors in paths:
                sines = np.array([sine(one, unit) for one in vectors[late]])
                slopes.append(log_log_slope(level[late], sines, window))
    yield at_most(max(slopes), -0.5, f"slowest exponent in -log R of the sine of w or v_1, {len(slopes) // 2} draws")


@claim("deep-linear/polynomial-tail", DERIVED, "ours", slow=True)
def polynomial_tail(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Polynomial tails select the minimiser of sum <w, z_i>^-a on the sphere, not the maximum margin, at every depth.
    The loss (1 + z)^-2 to risk e^-30, at depths 1 and 3, up to what 1 is to the smallest margin; planted: the maximum margin."""
    data = eight_points()
    signed, widest = np.asarray(data.signed), max_margin(data).weight
    wanted = widest if planted else polynomial_direction(signed, 2.0, widest)
    for depth in (1, 3):
        weight = slow_tail(lab, depth).weight()
        found = sine(weight, wanted / np.linalg.norm(wanted))
        yield at_most(
            found, 1 / (signed @ weight).min(), f"depth {depth}: sine of the angle to the predicted direction"
        )
