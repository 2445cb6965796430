"""Theorem 2 on two strips in the plane, and what lies outside its hypotheses."""

from collections.abc import Iterator

import numpy as np

from ...diagnostics.alignment import sine
from ...lab import Lab, claim
from ...references.euclidean_margin import max_margin
from ...references.logistic import polynomial_direction
from ...theory.judge import judge_direction
from ...verdict import Verdict, at_most
from .drawn import turned
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
