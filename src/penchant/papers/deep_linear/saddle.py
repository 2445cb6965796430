"""The saddle at zero: appendix A, and balanced starts."""

from collections.abc import Iterator

import numpy as np
from scipy.special import exp1

from ...lab import Lab, claim
from ...settings.deep_linear import balanced
from ...training.events import LogExcessBelow
from ...training.train import train
from ...verdict import Verdict, at_least, at_most
from .evidence import TIGHT, mirrored_flow, problem
from .theorems import JI


@claim("deep-linear/saddle", f"{JI}, appendix A", "proved", slow=True)
def appendix(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """From w1 = -w2 the risk e^-<w1, w2> falls to 1 and never below.
    w1(0) = -w2(0): q = |w1|^2 obeys E1(q) = E1(q0) + 2t, and the risk e^q stays above 1."""
    for time, rounding in ((0.1, 4e-14), (1.0, 1e-13)):  # dE1/dq = -13 at the second
        run = mirrored_flow(lab, float(np.log(time)))
        square = float(np.sum(run.at()[0] ** 2))
        error = abs(float(exp1(square)) - float(exp1(1.3)) - (1 if planted else 2) * time)
        yield at_most(error, rounding, f"|E1(q) - E1(q0) - 2t| at t = {time}")
        yield at_least(float(run.log_excess[-1]), 0.0, "log R")


@claim("deep-linear/balanced", f"{JI}, consequence of equation (2)", "ours", slow=True)
def balanced_rank_one(lab: Lab, planted: bool) -> Verdict:
    """Balanced starts keep every layer of rank one.
    From a balanced start every layer keeps rank one."""
    setting, start = problem(lab, 3)
    start = start if planted else balanced(setting, 0, np.array([-0.1, 0.3]))
    run = train(setting, TIGHT, start, until=LogExcessBelow(-1e3), steps=20_000)
    sizes = [np.linalg.svd(layer, compute_uv=False) for layer in run.at()[:-1]]
    worst = max(float(size[1] / size[0]) for size in sizes)
    return at_most(worst, 1e-15, "largest second singular value over the first at risk e^-1000")
