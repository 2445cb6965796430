"""Claims on the steps behind maximum margin: loss and norm, smooth against true margin, the logistic loss, the orthogonal part."""

import numpy as np

from ...diagnostics.margin import normalised_margins, smooth_margins
from ...flow.flow import GradientFlow
from ...lab import Lab, claim, recipe
from ...settings.base import Setting
from ...settings.generators import separable
from ...settings.losses import Exponential
from ...settings.parametrisations import Direct
from ...training.events import LogExcessBelow
from ...training.train import train
from ...training.trajectory import Trajectory
from ...verdict import Outcome, Verdict, all_of, at_least, at_most, close
from .margin_theorems import NOTES
from .max_margin import entropy, flow_run, problem


@claim(
    "max-margin/loss-rate",
    "L t tends to 1 / margin^2.",
    f"{NOTES}, section 9.4; constant derived for penchant",
    kind="sharpened",
)
def loss_rate(lab: Lab, planted: bool) -> Verdict:
    """L = 1/(margin^2 t) up to a factor that tends to 1; planted: 1/(margin t)."""
    _, reference = problem(lab)
    run = flow_run(lab)
    measured = float(run.log_excess[-1] + run.log_time[-1])
    predicted = -(1 if planted else 2) * np.log(reference.margin)
    return at_most(abs(measured - predicted), 1e-3, "|log(L t) - log(1/margin^2)| at the end of the flow")


@claim(
    "max-margin/gradient-bound",
    "|grad L| is at least the best margin times L.",
    f"{NOTES}, section 9.4",
    kind="proved",
)
def gradient_bound(lab: Lab, planted: bool) -> Verdict:
    """|grad L| >= margin L along the exponential flow; planted: with twice the margin."""
    _, reference = problem(lab)
    run = flow_run(lab)
    factor = 2.0 if planted else 1.0
    return at_least(
        float(np.exp(run.log_slope).min() / (factor * reference.margin)),
        1 - 1e-10,
        "smallest |grad L| / (margin * L)",
        "margins of 1e5 round at 1.5e-11",
    )


def _sandwich(run: Trajectory, bound: float) -> Verdict:
    """0 <= (margin - smooth margin) |w| <= bound."""
    gap = ((normalised_margins(run) - smooth_margins(run)) * run.norm)[1:]
    return all_of(
        at_least(float(gap.min()), -1e-10, "smallest (margin - smooth margin) |w|"),
        at_most(float(gap.max()), bound, "largest (margin - smooth margin) |w|"),
    )


@claim(
    "max-margin/smooth-below",
    "For the exponential loss the smooth margin is below the margin, by at most log n / |w|.",
    f"{NOTES}, section 9.4",
    kind="proved",
)
def smooth_below(lab: Lab, planted: bool) -> Verdict:
    """Exponential loss: the smooth margin is below the margin by at most log n / |w|; planted: by at most log 2."""
    return _sandwich(flow_run(lab), float(np.log(2.0 if planted else 30.0)))


def _logistic_bound(repaired: bool, planted: bool) -> Verdict:
    """On one sample with margin m: -log L, or -log(e^L - 1), against m (or half of it)."""
    margins = np.linspace(-3, 3, 25)
    loss = np.logaddexp(0, -margins)
    lower = -np.log(np.expm1(loss)) if repaired else -np.log(loss)
    return at_most(
        float((lower - margins * (0.5 if planted else 1.0)).max()),
        1e-12,
        "largest excess of the smooth margin over the margin, logistic loss",
    )


@claim(
    "max-margin/logistic-bound-as-printed",
    "-log L lower-bounds the margin for the logistic loss as well.",
    f"{NOTES}, (9.144)",
    kind="proved",
    expected=Outcome.refuted,
)
def logistic_printed(lab: Lab, planted: bool) -> Verdict:
    return _logistic_bound(False, planted)


@claim(
    "max-margin/logistic-bound",
    "-log(e^L - 1) lower-bounds the margin for the logistic loss.",
    f"repair of {NOTES}, (9.144)",
    kind="repaired",
)
def logistic_repaired(lab: Lab, planted: bool) -> Verdict:
    return _logistic_bound(True, planted)


@claim(
    "max-margin/logistic-smooth-margin",
    "For the logistic loss the smooth margin does not decrease along the flow either, once L < 1.",
    f"{NOTES}, Theorem 9.25",
    kind="proved",
)
def logistic_monotone(lab: Lab, planted: bool) -> Verdict:
    """The smooth margin of the logistic flow once L < 1; planted: read backwards."""
    run = flow_run(lab, True)
    series = smooth_margins(run)[run.log_excess < 0]
    return at_least(
        float(np.diff(series[::-1] if planted else series).min()),
        -1e-12,
        "smallest increase of the smooth margin, logistic loss",
    )


@claim(
    "max-margin/orthogonal-part",
    "The margins of the support vectors tend to differ by the logarithms of their dual weights.",
    "sharp constant, derived for penchant",
    kind="ours",
)
def orthogonal_part(lab: Lab, planted: bool) -> Verdict:
    """The margins of the support vectors differ by the logarithms of their multipliers; planted: by none."""
    _, reference = problem(lab)
    run = flow_run(lab)
    shares = reference.dual[reference.support] / reference.dual.sum()
    margins = run.margins[-1][reference.support]
    predicted = 0.0 if planted else -np.log(shares) - entropy(reference)[0]
    centred = margins - shares @ margins
    return at_most(
        float(np.abs(centred - predicted).max()), 1e-3, "largest |m_i - mean - (-log p_i - H)| over the support vectors"
    )


@claim(
    "max-margin/loss-at-zero",
    "From w = 0 the potential starts at log n, which is the log n of the bound.",
    f"{NOTES}, (9.173)",
    kind="proved",
)
def initial_smoothing(lab: Lab, planted: bool) -> Verdict:
    """At w = 0 the loss is n, so log L = log n; planted: L = 1."""
    setting = Setting(separable(), Direct(), Exponential(), "sum")
    value = float(setting.weigh(setting.margins(setting.start())).log_excess)
    return close(value, 1.0 if planted else float(np.log(30)), 1e-12, "log L at w = 0")


@recipe
def _deficit_from_afar(lab: Lab) -> tuple[float, float, float]:
    """Largest (best margin - smooth margin) |w| of the flow from 40 times the best direction; log L at its start, best margin times |w(0)|."""
    setting, reference = problem(lab)
    direction = reference.weight / np.linalg.norm(reference.weight)
    run = train(setting, GradientFlow(), 40 * direction, until=LogExcessBelow(-1e3))
    deficit = ((reference.margin - smooth_margins(run)) * run.norm)[
        1:
    ]  # at the start itself the repaired bound is an equality
    return float(deficit.max()), float(run.log_excess[0]), float(reference.margin * run.norm[0])


def _deficit_from(lab: Lab, start_counts: bool, planted: bool) -> Verdict:
    deficit, log_loss, reach = _deficit_from_afar(lab)
    bound = log_loss + (reach if start_counts else 0.0) - (3.0 if planted else 0.0)
    what = "log L(0) + best margin * |w(0)|" if start_counts else "log L(0)"
    return at_most(deficit, bound, f"largest (best margin - smooth margin) * |w| from |w(0)| = 40, against {what}")


@claim(
    "max-margin/any-start-as-printed",
    "(best margin - smooth margin) |w| <= log L(0) from every start, as printed.",
    f"{NOTES}, (9.173), where the length of the path is at least |w(T)|",
    kind="proved",
    expected=Outcome.refuted,
)
def deficit_printed(lab: Lab, planted: bool) -> Verdict:
    """From a start that is not 0; planted: a bound lower by 3."""
    return _deficit_from(lab, False, planted)


@claim(
    "max-margin/any-start",
    "(best margin - smooth margin) |w| <= log L(0) + best margin |w(0)|: the path is at least |w(T)| - |w(0)| long.",
    f"repair of {NOTES}, (9.173)",
    kind="repaired",
)
def deficit_repaired(lab: Lab, planted: bool) -> Verdict:
    """With the start counted; planted: a bound lower by 3."""
    return _deficit_from(lab, True, planted)
