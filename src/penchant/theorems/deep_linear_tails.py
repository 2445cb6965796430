"""Claims on deep linear networks under polynomial tails: layers align as ever, and the maximum margin is lost."""

import numpy as np

from ..diagnostics.alignment import alignments, sine
from ..references.euclidean_margin import max_margin
from ..references.polynomial_margin import polynomial_direction
from ..verdict import Verdict, all_of, at_most
from .base import Claim
from .deep_linear_laws import DERIVED, PAPER
from .deep_linear_problems import eight_points, slow_tail


def polynomial_tail(planted: bool) -> Verdict:
    """With the tail z^-2 the limit is the minimiser of sum <w, z_i>^-2, at every depth; the maximum margin is elsewhere."""
    data = eight_points()
    widest = max_margin(data).weight
    wanted = widest if planted else polynomial_direction(np.asarray(data.signed), 2.0, widest)
    wanted = wanted / np.linalg.norm(wanted)
    return all_of(
        *(
            at_most(
                sine(slow_tail(depth).weight(), wanted),
                1e-5,
                f"depth {depth}: sine of the angle to the predicted direction",
            )
            for depth in (1, 3)
        )
    )


def polynomial_alignment(planted: bool) -> Verdict:
    """Alignment does not need the exponential tail."""
    run = slow_tail(3)
    found = alignments(run)
    record = 0 if planted else -1
    worst = float(max(found.deficit[record].max(), found.misfit[record].max()))
    return at_most(worst, 1e-3, "largest of 1 - spectral/Frobenius and 1 - |<v, u>|", "at the start" if planted else "")


CLAIMS = (
    Claim(
        "deep-linear/polynomial-tail",
        PAPER,
        "Polynomial tails select the minimiser of sum <w, z_i>^-a on the sphere, not the maximum margin, at every depth.",
        DERIVED,
        polynomial_tail,
    ),
    Claim(
        "deep-linear/polynomial-alignment",
        PAPER,
        "Layers align under polynomial tails too.",
        f"{DERIVED}; alignment is Theorem 1 of the paper",
        polynomial_alignment,
    ),
)
