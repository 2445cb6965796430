"""Claims on deep linear networks under polynomial tails: layers align as ever, and the maximum margin is lost."""

import numpy as np

from ...diagnostics.alignment import alignments, sine
from ...lab import Lab, claim
from ...references.euclidean_margin import max_margin
from ...references.polynomial_margin import polynomial_direction
from ...verdict import Verdict, all_of, at_most
from .evidence import eight_points, slow_tail
from .laws import DERIVED


@claim(
    "deep-linear/polynomial-tail",
    "Polynomial tails select the minimiser of sum <w, z_i>^-a on the sphere, not the maximum margin, at every depth.",
    DERIVED,
    kind="ours",
    slow=True,
)
def polynomial_tail(lab: Lab, planted: bool) -> Verdict:
    """With the tail z^-2 the limit is the minimiser of sum <w, z_i>^-2, at every depth; the maximum margin is elsewhere."""
    data = eight_points()
    widest = max_margin(data).weight
    wanted = widest if planted else polynomial_direction(np.asarray(data.signed), 2.0, widest)
    wanted = wanted / np.linalg.norm(wanted)
    return all_of(
        *(
            at_most(
                sine(slow_tail(lab, depth).weight(), wanted),
                1e-5,
                f"depth {depth}: sine of the angle to the predicted direction",
            )
            for depth in (1, 3)
        )
    )


@claim(
    "deep-linear/polynomial-alignment",
    "Layers align under polynomial tails too.",
    f"{DERIVED}; alignment is Theorem 1 of the paper",
    kind="ours",
)
def polynomial_alignment(lab: Lab, planted: bool) -> Verdict:
    """Alignment does not need the exponential tail."""
    run = slow_tail(lab, 3)
    found = alignments(run)
    record = 0 if planted else -1
    worst = float(max(found.deficit[record].max(), found.misfit[record].max()))
    return at_most(worst, 1e-3, "largest of 1 - spectral/Frobenius and 1 - |<v, u>|", "at the start" if planted else "")
