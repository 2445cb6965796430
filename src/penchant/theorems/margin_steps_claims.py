"""Claims on the steps behind maximum margin: loss and norm, smooth against true margin, the logistic loss, the orthogonal part."""

from functools import cache

import numpy as np

from ..diagnostics.margin import normalised_margins, smooth_margins
from ..flow.flow import GradientFlow
from ..settings.base import Setting
from ..settings.generators import separable
from ..settings.losses import Exponential
from ..settings.parametrisations import Direct
from ..training.events import LogExcessBelow
from ..training.train import train
from ..training.trajectory import Trajectory
from ..verdict import Outcome, Verdict, all_of, at_least, at_most, close
from .base import Claim
from .linear_models import NOTES
from .linear_models_claims import PAPER, entropy, flow_run, problem


def loss_rate(planted: bool) -> Verdict:
    """L = 1/(margin^2 t) up to a factor that tends to 1; planted: 1/(margin t)."""
    _, reference = problem()
    run = flow_run()
    measured = float(run.log_excess[-1] + run.log_time[-1])
    predicted = -(1 if planted else 2) * np.log(reference.margin)
    return at_most(abs(measured - predicted), 1e-3, "|log(L t) - log(1/margin^2)| at the end of the flow")


def gradient_bound(planted: bool) -> Verdict:
    """|grad L| >= margin L along the exponential flow; planted: with twice the margin."""
    _, reference = problem()
    run = flow_run()
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


def smooth_below(planted: bool) -> Verdict:
    """Exponential loss: the smooth margin is below the margin by at most log n / |w|; planted: by at most log 2."""
    return _sandwich(flow_run(), float(np.log(2.0 if planted else 30.0)))


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


def logistic_printed(planted: bool) -> Verdict:
    return _logistic_bound(False, planted)


def logistic_repaired(planted: bool) -> Verdict:
    return _logistic_bound(True, planted)


def logistic_monotone(planted: bool) -> Verdict:
    """The smooth margin of the logistic flow once L < 1; planted: read backwards."""
    run = flow_run(True)
    series = smooth_margins(run)[run.log_excess < 0]
    return at_least(
        float(np.diff(series[::-1] if planted else series).min()),
        -1e-12,
        "smallest increase of the smooth margin, logistic loss",
    )


def orthogonal_part(planted: bool) -> Verdict:
    """The margins of the support vectors differ by the logarithms of their multipliers; planted: by none."""
    _, reference = problem()
    run = flow_run()
    shares = reference.dual[reference.support] / reference.dual.sum()
    margins = run.margins[-1][reference.support]
    predicted = 0.0 if planted else -np.log(shares) - entropy(reference)[0]
    centred = margins - shares @ margins
    return at_most(
        float(np.abs(centred - predicted).max()), 1e-3, "largest |m_i - mean - (-log p_i - H)| over the support vectors"
    )


def initial_smoothing(planted: bool) -> Verdict:
    """At w = 0 the loss is n, so log L = log n; planted: L = 1."""
    setting = Setting(separable(), Direct(), Exponential(), "sum")
    value = float(setting.weigh(setting.margins(setting.start())).log_excess)
    return close(value, 1.0 if planted else float(np.log(30)), 1e-12, "log L at w = 0")


@cache
def _deficit_from_afar() -> tuple[float, float, float]:
    """Largest (best margin - smooth margin) |w| of the flow from 40 times the best direction; log L at its start, best margin times |w(0)|."""
    setting, reference = problem()
    direction = reference.weight / np.linalg.norm(reference.weight)
    run = train(setting, GradientFlow(), 40 * direction, until=LogExcessBelow(-1e3))
    deficit = ((reference.margin - smooth_margins(run)) * run.norm)[
        1:
    ]  # at the start itself the repaired bound is an equality
    return float(deficit.max()), float(run.log_excess[0]), float(reference.margin * run.norm[0])


def _deficit_from(start_counts: bool, planted: bool) -> Verdict:
    deficit, log_loss, reach = _deficit_from_afar()
    bound = log_loss + (reach if start_counts else 0.0) - (3.0 if planted else 0.0)
    what = "log L(0) + best margin * |w(0)|" if start_counts else "log L(0)"
    return at_most(deficit, bound, f"largest (best margin - smooth margin) * |w| from |w(0)| = 40, against {what}")


def deficit_printed(planted: bool) -> Verdict:
    """From a start that is not 0; planted: a bound lower by 3."""
    return _deficit_from(False, planted)


def deficit_repaired(planted: bool) -> Verdict:
    """With the start counted; planted: a bound lower by 3."""
    return _deficit_from(True, planted)


CLAIMS = (
    Claim(
        "max-margin/any-start-as-printed",
        PAPER,
        "(best margin - smooth margin) |w| <= log L(0) from every start, as printed.",
        f"{NOTES}, (9.173), where the length of the path is at least |w(T)|",
        deficit_printed,
        Outcome.refuted,
    ),
    Claim(
        "max-margin/any-start",
        PAPER,
        "(best margin - smooth margin) |w| <= log L(0) + best margin |w(0)|: the path is at least |w(T)| - |w(0)| long.",
        f"repair of {NOTES}, (9.173)",
        deficit_repaired,
    ),
    Claim(
        "max-margin/loss-at-zero",
        PAPER,
        "From w = 0 the potential starts at log n, which is the log n of the bound.",
        f"{NOTES}, (9.173)",
        initial_smoothing,
    ),
    Claim(
        "max-margin/gradient-bound",
        PAPER,
        "|grad L| is at least the best margin times L.",
        f"{NOTES}, section 9.4",
        gradient_bound,
    ),
    Claim(
        "max-margin/loss-rate",
        PAPER,
        "L t tends to 1 / margin^2.",
        f"{NOTES}, section 9.4; constant derived for penchant",
        loss_rate,
    ),
    Claim(
        "max-margin/smooth-below",
        PAPER,
        "For the exponential loss the smooth margin is below the margin, by at most log n / |w|.",
        f"{NOTES}, section 9.4",
        smooth_below,
    ),
    Claim(
        "max-margin/logistic-bound-as-printed",
        PAPER,
        "-log L lower-bounds the margin for the logistic loss as well.",
        f"{NOTES}, (9.144)",
        logistic_printed,
        Outcome.refuted,
    ),
    Claim(
        "max-margin/logistic-bound",
        PAPER,
        "-log(e^L - 1) lower-bounds the margin for the logistic loss.",
        f"repair of {NOTES}, (9.144)",
        logistic_repaired,
    ),
    Claim(
        "max-margin/logistic-smooth-margin",
        PAPER,
        "For the logistic loss the smooth margin does not decrease along the flow either, once L < 1.",
        f"{NOTES}, Theorem 9.25",
        logistic_monotone,
    ),
    Claim(
        "max-margin/orthogonal-part",
        PAPER,
        "The margins of the support vectors tend to differ by the logarithms of their dual weights.",
        "sharp constant, derived for penchant",
        orthogonal_part,
    ),
)
