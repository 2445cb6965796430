"""Claims on restricted isometry: what the printed lemma says, its repair, and recovery without the condition."""

import numpy as np

from ..diagnostics.restricted_isometry import restricted_isometry
from ..verdict import Outcome, Verdict, all_of, at_least, at_most
from .base import Claim
from .interpolation_problems import DERIVED, PAPER
from .linear_models import NOTES
from .sparse_recovery_claims import single_run
from .time_window_claims import error_at


def _products(delta_of: int, factor: float) -> Verdict:
    """Largest |v'(A - I)w| over unit v, w with one entry each, against factor * delta, on two equal columns."""
    inputs = np.sqrt(2.0) * np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    excess = inputs.T @ inputs / 2 - np.eye(3)
    delta = restricted_isometry(inputs, delta_of)
    return at_most(
        float(np.abs(excess).max()),
        factor * delta.upper,
        f"largest |v'(A - I)w| over 1-sparse unit v, w, against {factor:g} delta_{delta_of}",
        f"delta_{delta_of} = {delta.upper:g}, exact: {delta.exact}",
    )


def isometry_printed(planted: bool) -> Verdict:
    return _products(1, 1.0 if planted else 4.0)


def isometry_repaired(planted: bool) -> Verdict:
    """With delta_2r; planted: half of it."""
    return _products(2, 0.5 if planted else 1.0)


def isometry_hopeless(planted: bool) -> Verdict:
    """delta_2 is near 1 and delta_4 certainly above it, where recovery works all the same; planted: delta_4 below 1."""
    run, _ = single_run(1e-6)
    bounds = restricted_isometry(np.asarray(run.setting.data.inputs), 4)
    truth = np.zeros(200)
    truth[0] = 1.0
    lower = (
        at_most(bounds.lower, 1.0, "lower bound on delta_4")
        if planted
        else at_least(bounds.lower, 1.0, "lower bound on delta_4")
    )
    return all_of(lower, at_most(error_at(run, -1, truth), 1e-12, "squared error of descent"))


CLAIMS = (
    Claim(
        "sparse/isometry-as-printed",
        PAPER,
        "(r, delta)-RIP gives |v'(A - I)w| <= 4 delta for r-sparse unit v, w, also for r = 1, as printed.",
        f"{NOTES}, Lemma 9.11",
        isometry_printed,
        Outcome.refuted,
    ),
    Claim(
        "sparse/isometry",
        PAPER,
        "|v'(A - I)w| <= delta_2r for r-sparse unit v, w.",
        f"repair of {NOTES}, Lemma 9.11",
        isometry_repaired,
    ),
    Claim(
        "sparse/isometry-not-needed",
        PAPER,
        "Descent recovers the signal where restricted isometry certainly fails: the condition is sufficient, not necessary.",
        DERIVED,
        isometry_hopeless,
    ),
)
