"""Is the flow on (K, Q) at each margin the matrix of least spectral potential? Near it, but not it."""

import numpy as np

from ...lab import Lab, claim, recipe
from ...references.euclidean_margin import max_margin
from ...references.finite_margin import FiniteMargin, spectral_finite_margin, spectral_potential
from ...verdict import Outcome, Verdict, all_of, at_most
from .evidence import nuclear, scaled_run

PAPER = "kq_attention"
_SCALE = 100.0  # K = scale I, Q = 0: so large a start that the margins are balanced to a thousandth of the slack


@recipe
def _least(lab: Lab, seed: int, scale: float, margin: float) -> FiniteMargin:
    return spectral_finite_margin(scaled_run(lab, _SCALE, seed).setting.data, scale, margin)


@claim(
    "key-query/spectral-prediction",
    "From K = a I, Q = 0 the matrix of least spectral potential predicts the flow at finite margins better than either limit.",
    "observed",
    kind="observed",
    slow=True,
)
def spectral_prediction(lab: Lab, planted: bool) -> Verdict:
    """Between margins of scale^2 and 100 scale^2 the minimiser is twice as near as both limits. Planted: K'K - Q'Q is scale^2/2."""
    checks = []
    for seed in (0, 1, 2):
        run = scaled_run(lab, _SCALE, seed)
        limits = max_margin(run.setting.data).weight, nuclear(lab, seed).weight
        for record in range(1, len(run)):
            margin, weight = float(run.smallest_margin()[record]), run.weight(record)
            least = _least(lab, seed, _SCALE / (2.0 if planted else np.sqrt(2.0)), margin).weight
            apart = lambda target, weight=weight: float(np.linalg.norm(weight - target) / np.linalg.norm(target))
            what = f"distance to the least spectral potential, data {seed}, margin {margin:.0e}"
            checks.append(at_most(apart(least), 0.5 * min(apart(margin * limit) for limit in limits), what))
    return all_of(*checks)


@claim(
    "key-query/spectral-potential",
    "The flow on (K, Q) minimises the spectral potential at every margin, up to the slack of its multipliers.",
    "conjecture, not in the paper",
    kind="observed",
    expected=Outcome.refuted,
    slow=True,
)
def least_potential(lab: Lab, planted: bool) -> Verdict:
    """A mirror flow keeps its potential within the slack of its multipliers of the minimum. Planted: that of half the start."""
    checks, scale = [], _SCALE / (2.0 if planted else np.sqrt(2.0))
    for seed in (2, 0, 1):
        run = scaled_run(lab, _SCALE, seed)
        margin = float(run.smallest_margin()[-1])
        above = spectral_potential(run.weight(), scale) - _least(lab, seed, scale, margin).potential
        slack = float(2 * run.dual[-1] @ (run.margins[-1] - margin))
        checks.append(at_most(above, slack, f"spectral potential above its minimum, data {seed}, margin {margin:.0e}"))
    return all_of(*checks)
