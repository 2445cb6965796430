"""Claims on restricted isometry: what the printed lemma says, its repair, and recovery without the condition."""

from itertools import combinations

import numpy as np

from ...diagnostics.restricted_isometry import restricted_isometry
from ...lab import Lab, claim, recipe
from ...verdict import ROUNDING, Outcome, Verdict, all_of, at_least, at_most
from .evidence import DERIVED
from .margin_theorems import NOTES
from .sparse_recovery import single_run
from .time_window import error_at


def _equal_columns() -> np.ndarray:
    """Two equal columns and a third one orthogonal to them."""
    return np.sqrt(2.0) * np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])


@recipe
def _designs(lab: Lab) -> tuple[np.ndarray, ...]:
    """Thirty designs with eight columns: normal ones, nearly equal columns, and eight columns in few dimensions."""
    rng = np.random.default_rng(13)
    normal = [rng.standard_normal((n, 8)) for n in (4, 8, 16, 64) for _ in range(5)]
    near = [np.sqrt(8) * np.eye(8) + rng.standard_normal((8, 1)) + 0.1 * rng.standard_normal((8, 8)) for _ in range(5)]
    return (*normal, *near, *(np.sqrt(3) * np.linalg.qr(rng.standard_normal((8, 3)))[0].T for _ in range(5)))


def _largest_product(inputs: np.ndarray, sparsity: int) -> float:
    """Largest |v'(A - I)w| over unit v, w with `sparsity` entries each, by trying all pairs of supports."""
    excess = inputs.T @ inputs / len(inputs) - np.eye(inputs.shape[1])
    supports = np.array(list(combinations(range(inputs.shape[1]), sparsity)))
    blocks = excess[supports[:, None, :, None], supports[None, :, None, :]]
    return float(np.linalg.norm(blocks, 2, axis=(2, 3)).max())


def _products(inputs: np.ndarray, sparsity: int, delta_of: int, factor: float) -> Verdict:
    delta = restricted_isometry(inputs, delta_of)
    return at_most(
        _largest_product(inputs, sparsity),
        factor * delta.upper * (1 + ROUNDING),
        f"largest |v'(A - I)w| over {sparsity}-sparse unit v, w, against {factor:g} delta_{delta_of}",
        f"delta_{delta_of} = {delta.upper:g}, exact: {delta.exact}",
    )


@recipe
def _ratios(lab: Lab, sparsity: int, delta_of: int) -> np.ndarray:
    """Largest |v'(A - I)w| over delta, for all designs; both by enumeration."""
    return np.array([_largest_product(x, sparsity) / restricted_isometry(x, delta_of).upper for x in _designs(lab)])


@claim(
    "sparse/isometry-as-printed",
    "(r, delta)-RIP gives |v'(A - I)w| <= 4 delta for r-sparse unit v, w, also for r = 1, as printed.",
    f"{NOTES}, Lemma 9.11",
    kind="proved",
    expected=Outcome.refuted,
)
def isometry_printed(lab: Lab, planted: bool) -> Verdict:
    return _products(_equal_columns(), 1, 1, 1.0 if planted else 4.0)


@claim(
    "sparse/isometry-from-two-on",
    "For r >= 2 the lemma is true, with 2 delta_r for even and 3 delta_r for odd r instead of 4 delta_r.",
    f"{NOTES}, Lemma 9.11; constants {DERIVED}",
    kind="sharpened",
)
def isometry_larger(lab: Lab, planted: bool) -> Verdict:
    """r = 2 and 3 on thirty designs, against 2 delta_r and 3 delta_r, which are below the 4 delta_r of the lemma; planted: delta_r / 2."""
    return all_of(
        *(
            at_most(
                float(_ratios(lab, sparsity, sparsity).max()),
                0.5 if planted else factor,
                f"r = {sparsity}: largest |v'(A - I)w| over delta_r, thirty designs",
            )
            for sparsity, factor in ((2, 2.0), (3, 3.0))
        )
    )


@claim(
    "sparse/isometry",
    "|v'(A - I)w| <= delta_2r for r-sparse unit v, w.",
    f"repair of {NOTES}, Lemma 9.11",
    kind="repaired",
)
def isometry_repaired(lab: Lab, planted: bool) -> Verdict:
    """With delta_2r, on two equal columns (where it is attained) and on thirty designs; planted: half of it."""
    factor = 0.5 if planted else 1.0
    return all_of(
        _products(_equal_columns(), 1, 2, factor),
        *(
            at_most(
                float(_ratios(lab, r, 2 * r).max()),
                factor * (1 + ROUNDING),
                f"r = {r}: largest |v'(A - I)w| over delta_{2 * r}, thirty designs",
            )
            for r in (1, 2, 3)
        ),
    )


@claim(
    "sparse/isometry-not-needed",
    "Descent recovers the signal where restricted isometry certainly fails: the condition is sufficient, not necessary.",
    DERIVED,
    kind="ours",
)
def isometry_hopeless(lab: Lab, planted: bool) -> Verdict:
    """delta_2 is near 1 and delta_4 certainly above it, where recovery works all the same; planted: delta_4 below 1."""
    run, _ = single_run(lab, 1e-6)
    bounds = restricted_isometry(np.asarray(run.setting.data.inputs), 4)
    truth = np.zeros(200)
    truth[0] = 1.0
    lower = (
        at_most(bounds.lower, 1.0, "lower bound on delta_4")
        if planted
        else at_least(bounds.lower, 1.0, "lower bound on delta_4")
    )
    return all_of(lower, at_most(error_at(run, -1, truth), 1e-12, "squared error of descent"))
