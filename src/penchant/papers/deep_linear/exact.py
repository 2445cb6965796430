"""Claims on deep linear networks with closed forms: the appendix of the paper, balanced starts, one sample, one layer."""

import numpy as np
from scipy.integrate import quad
from scipy.special import exp1, expi

from ...lab import Lab, claim
from ...settings.base import Setting
from ...settings.classification import Classification
from ...settings.deep_linear import DeepLinear
from ...settings.losses import Exponential
from ...settings.network_starts import balanced
from ...settings.parametrisations import Direct
from ...training.events import LogExcessBelow
from ...training.train import train
from ...verdict import Verdict, all_of, at_least, at_most, close
from .evidence import FINEST, TIGHT, mirrored_flow, problem


@claim(
    "deep-linear/saddle",
    "From w1 = -w2 the risk e^-<w1, w2> falls to 1 and never below.",
    "Ji, Telgarsky, Gradient descent aligns the layers of deep linear networks, ICLR 2019, appendix A",
    kind="proved",
    slow=True,
)
def appendix(lab: Lab, planted: bool) -> Verdict:
    """w1(0) = -w2(0): q = |w1|^2 obeys E1(q) = E1(q0) + 2t, and the risk e^q stays above 1."""
    checks = []
    for time, rounding in ((0.1, 4e-14), (1.0, 1e-13)):  # dE1/dq = -13 at the second
        run = mirrored_flow(lab, float(np.log(time)))
        square = float(np.sum(run.at()[0] ** 2))
        checks.append(
            at_most(
                abs(float(exp1(square)) - float(exp1(1.3)) - (1 if planted else 2) * time),
                rounding,
                f"|E1(q) - E1(q0) - 2t| at t = {time}",
            )
        )
        checks.append(at_least(float(run.log_excess[-1]), 0.0, "log R"))
    return all_of(*checks)


@claim(
    "deep-linear/balanced",
    "Balanced starts keep every layer of rank one.",
    "Ji, Telgarsky, Gradient descent aligns the layers of deep linear networks, ICLR 2019, consequence of Lemma 1",
    kind="proved",
    slow=True,
)
def balanced_rank_one(lab: Lab, planted: bool) -> Verdict:
    """From a balanced start every layer keeps rank one."""
    setting, start = problem(lab, 3)
    start = start if planted else balanced(setting, 0, np.array([-0.1, 0.3]))
    run = train(setting, TIGHT, start, until=LogExcessBelow(-1e3), steps=20_000)
    sizes = [np.linalg.svd(layer, compute_uv=False) for layer in run.at()[:-1]]
    worst = max(float(size[1] / size[0]) for size in sizes)
    return at_most(worst, 1e-15, "largest second singular value over the first at risk e^-1000")


@claim(
    "deep-linear/single-sample",
    "One sample, balanced: L gamma^(2/L) t is the integral of e^s s^(2/L - 2) from m_0 to m.",
    "Ji, Telgarsky, Gradient descent aligns the layers of deep linear networks, ICLR 2019, closed form",
    kind="sharpened",
    slow=True,
)
def single_sample(lab: Lab, planted: bool) -> Verdict:
    """One sample, balanced: L gamma^(2/L) t is the integral of e^s s^(2/L - 2) from the first margin to the last; the twin has lost the factor L."""
    checks = []
    for depth in (1, 2, 3):
        setting = Setting(Classification([[0.6, 0.0]], [1]), DeepLinear((2,) * (depth - 1)), Exponential())
        start = balanced(setting, 0, np.array([0.5, 0.0]))
        run = train(setting, FINEST, start, until=LogExcessBelow(-10.0), steps=20_000)
        factor = (1 if planted else depth) * 0.6 ** (2 / depth)
        predicted = _elapsed(depth, float(run.margins[0, 0]), float(run.margins[-1, 0])) / factor
        checks.append(close(float(np.exp(run.log_time[-1])), predicted, 1e-12, f"depth {depth}: time to margin 10"))
    return all_of(*checks)


def _elapsed(depth: int, first: float, last: float) -> float:
    """The integral of e^s s^(2/L - 2)."""
    if depth == 1:
        return float(np.exp(last) - np.exp(first))
    if depth == 2:
        return float(expi(last) - expi(first))
    scaled = quad(lambda s: np.exp(s - last) * s ** (2 / depth - 2), first, last, epsabs=0, epsrel=1e-13, limit=500)[0]
    return float(np.exp(last) * scaled)


@claim(
    "deep-linear/one-layer",
    "Depth 1 is the plain linear model.",
    "Ji, Telgarsky, Gradient descent aligns the layers of deep linear networks, ICLR 2019, definition",
    kind="proved",
    slow=True,
)
def one_layer(lab: Lab, planted: bool) -> Verdict:
    """Depth 1 is the plain linear model, to the last digits."""
    setting, start = problem(lab, 2 if planted else 1)
    plain = Setting(setting.data, Direct(), setting.loss)
    deep, linear = (
        train(s, FINEST, w, until=LogExcessBelow(-5.0), steps=20_000)
        for s, w in ((setting, start), (plain, setting.weight(start)))
    )
    return at_most(
        float(np.abs(deep.weight() / linear.weight() - 1).max()),
        7e-16,
        "largest relative difference of the weights at risk e^-5",
    )
