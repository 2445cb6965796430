"""Claims on deep linear networks with closed forms: the appendix of the paper, balanced starts, one sample, one layer."""

import numpy as np
from scipy.special import exp1, expi

from ..settings.base import Setting
from ..settings.classification import Classification
from ..settings.deep_linear import DeepLinear
from ..settings.losses import Exponential
from ..settings.network_starts import balanced
from ..settings.parametrisations import Direct
from ..training.events import LogExcessBelow
from ..training.train import train
from ..verdict import Verdict, all_of, at_least, at_most, close
from .deep_linear import sourced
from .deep_linear_problems import EXACT, PRECISE, mirrored_flow, problem


def appendix(planted: bool) -> Verdict:
    """w1(0) = -w2(0): q = |w1|^2 obeys E1(q) = E1(q0) + 2t, and the risk e^q stays above 1."""
    checks = []
    for time in (0.1, 1.0):
        run = mirrored_flow(float(np.log(time)))
        square = float(np.sum(run.at()[0] ** 2))
        checks.append(
            at_most(
                abs(float(exp1(square)) - float(exp1(1.3)) - (1 if planted else 2) * time),
                1e-6,
                f"|E1(q) - E1(q0) - 2t| at t = {time}",
            )
        )
        checks.append(at_least(float(run.log_excess[-1]), 0.0, "log R"))
    return all_of(*checks)


def balanced_rank_one(planted: bool) -> Verdict:
    """From a balanced start every layer keeps rank one."""
    setting, start = problem(3)
    start = start if planted else balanced(setting, 0, np.array([-0.1, 0.3]))
    run = train(setting, PRECISE, start, until=LogExcessBelow(-1e3), steps=20_000)
    seconds = max(float(np.linalg.svd(layer, compute_uv=False)[1]) for layer in run.at()[:-1])
    return at_most(seconds, 1e-9, "largest second singular value at risk e^-1000")


def single_sample(planted: bool) -> Verdict:
    """One sample, depth 2, balanced: t = (Ei(m) - Ei(m0)) / (2 gamma)."""
    setting = Setting(Classification([[0.6, 0.0]], [1]), DeepLinear((2,)), Exponential())
    start = balanced(setting, 0, np.array([0.5, 0.0]))
    run = train(setting, EXACT, start, until=LogExcessBelow(-20.0), steps=20_000)
    predicted = (expi(run.margins[-1, 0]) - expi(run.margins[0, 0])) / ((1 if planted else 2) * 0.6)
    return close(float(np.exp(run.log_time[-1])), float(predicted), 1e-6, "time to margin 20")


def one_layer(planted: bool) -> Verdict:
    """Depth 1 is the plain linear model, to the last digits."""
    setting, start = problem(2 if planted else 1)
    plain = Setting(setting.data, Direct(), setting.loss)
    deep, linear = (
        train(s, PRECISE, w, until=LogExcessBelow(-5.0), steps=20_000)
        for s, w in ((setting, start), (plain, setting.weight(start)))
    )
    return at_most(
        float(np.abs(deep.weight() / linear.weight() - 1).max()),
        1e-9,
        "largest relative difference of the weights at risk e^-5",
    )


CLAIMS = (
    sourced("saddle", "From w1 = -w2 the risk e^-<w1, w2> falls to 1 and never below.", "appendix A", appendix),
    sourced("balanced", "Balanced starts keep every layer of rank one.", "consequence of Lemma 1", balanced_rank_one),
    sourced("single-sample", "One sample, depth 2: t = (Ei(m) - Ei(m_0)) / (2 gamma).", "closed form", single_sample),
    sourced("one-layer", "Depth 1 is the plain linear model.", "definition", one_layer),
)
