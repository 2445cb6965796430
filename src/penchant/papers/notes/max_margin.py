"""Claims on maximum margin, with evidence on a small separable data set (30 samples, 4 dimensions, 4 support vectors)."""

import numpy as np

from ...diagnostics.direction import normalised_margins, smooth_margins
from ...diagnostics.rates import log_log_slope, rate
from ...flow.flow import GradientFlow
from ...lab import Lab, claim, recipe
from ...optimisers.base import normalised_descent
from ...references.base import Solution
from ...references.euclidean_margin import max_margin
from ...settings.base import Setting
from ...settings.generators import separable
from ...settings.losses import Exponential, Logistic
from ...settings.parametrisations import Direct
from ...theory.verdicts import judge_direction
from ...training.events import LogExcessBelow
from ...training.recorders import Every, LogSpaced
from ...training.train import train
from ...training.trajectory import Trajectory
from ...verdict import Verdict, all_of, at_least, at_most, close
from .evidence import DERIVED
from .theorems import JI, LINEAR_MAX_MARGIN, NOTES, SOUDRY

_SHARP = f"{NOTES}, Theorem 9.25; constant {DERIVED}"
LOSSES = {"exponential": False, "logistic": True}


@recipe
def problem(lab: Lab, logistic: bool = False) -> tuple[Setting, Solution]:
    data = separable(*((200, 20) if lab.full else (30, 4)), seed=5 + lab.seed)
    return Setting(data, Direct(), Logistic() if logistic else Exponential(), "sum"), max_margin(data)


@recipe
def flow_run(lab: Lab, logistic: bool = False) -> Trajectory:
    """The flow until the loss is e^-100000."""
    return train(problem(lab, logistic)[0], GradientFlow(), until=LogExcessBelow(-1e5))


def entropy(reference: Solution) -> tuple[float, float]:
    """Entropy of the normalised dual weights, and the largest of them."""
    shares = reference.dual[reference.support] / reference.dual[reference.support].sum()
    return float(-(shares * np.log(shares)).sum()), float(shares.max())


def deficits(margins: np.ndarray, run: Trajectory, reference: Solution) -> np.ndarray:
    """(best margin - margin) |w| along a run, without its start."""
    return (reference.margin - margins[1:]) * run.norm[1:]


@claim("max-margin/direction", f"{NOTES}, Theorem 9.25; {SOUDRY}", "proved", slow=True)
def direction(lab: Lab, planted: bool) -> Verdict:
    """On separable data gradient flow and descent on the logistic or exponential loss converge in direction to the l2 maximum margin."""
    prediction = LINEAR_MAX_MARGIN.predict(problem(lab)[0], GradientFlow())
    weight = prediction.rivals[0].weight if planted else flow_run(lab).weight()
    return judge_direction(prediction, weight)


@claim("max-margin/smooth-margin", f"{NOTES}, proof of Theorem 9.25; {DERIVED}", "sharpened")
def smooth_margin_monotone(lab: Lab, planted: bool) -> Verdict:
    """The smooth margin never decreases along the flow once the loss is below 1, for the exponential and the logistic loss.
    Planted: normalised steps of length 5, far too long."""
    checks = []
    for loss, logistic in LOSSES.items():
        long = normalised_descent(5.0)
        setting = problem(lab, logistic)[0]
        run = train(setting, long, steps=200, recorder=Every()) if planted else flow_run(lab, logistic)
        steps = np.diff(smooth_margins(run)[run.log_excess < 0])
        worst = float(steps.min()) if len(steps) else float("nan")
        checks.append(at_least(worst, -1e-12, f"smallest increase of the smooth margin once L < 1, {loss} loss"))
    return all_of(*checks)


@claim("max-margin/deficit-bound", f"{NOTES}, (9.174)", "proved")
def deficit_bound(lab: Lab, planted: bool) -> Verdict:
    """From w = 0: (best margin - smooth margin) |w| <= log n at all times.
    Planted: a bound below H(p)."""
    (setting, reference), run = problem(lab), flow_run(lab)
    bound = 0.9 if planted else float(np.log(len(setting.data.signed)))
    largest = float(deficits(smooth_margins(run), run, reference).max())
    return at_most(largest, bound, "largest (best margin - smooth margin) * |w|", "" if planted else "log n")


@claim("max-margin/deficit-constant", _SHARP, "sharpened", slow=True)
def deficit_constant(lab: Lab, planted: bool) -> Verdict:
    """(best margin - smooth margin) |w| tends to the entropy H(p) of the dual weights, for both losses.
    Planted: log n."""
    setting, reference = problem(lab)
    predicted = np.log(len(setting.data.signed)) if planted else entropy(reference)[0]
    checks = []
    for loss, logistic in LOSSES.items():
        run = flow_run(lab, logistic)
        measured = float(deficits(smooth_margins(run), run, reference)[-1])
        checks.append(close(measured, predicted, 1e-4, f"(best margin - smooth margin) * |w|, {loss}"))
    return all_of(*checks)


@claim("max-margin/margin-constant", _SHARP, "sharpened")
def margin_constant(lab: Lab, planted: bool) -> Verdict:
    """(best margin - margin) |w| tends to H(p) + log max p.
    Planted: H(p)."""
    reference, run = problem(lab)[1], flow_run(lab)
    mean, top = entropy(reference)
    measured = float(deficits(normalised_margins(run), run, reference)[-1])
    return close(measured, mean if planted else mean + np.log(top), 1e-3, "(best margin - margin) * |w|")


@claim("max-margin/log-time", f"{SOUDRY}; constant {DERIVED}", "ours")
def logarithmic_time(lab: Lab, planted: bool) -> Verdict:
    """best margin * |w| = log t + log margin^2 + H(p) + o(1): the 1/log t rate with its constant; with the limit of the smooth margin, L t tends to 1 / margin^2.
    Planted: without H(p)."""
    reference, run = problem(lab)[1], flow_run(lab)
    offset = 2 * np.log(reference.margin) + (0.0 if planted else entropy(reference)[0])
    measured = float(reference.margin * run.norm[-1] - run.log_time[-1])
    return at_most(abs(measured - offset), 1e-3, "|best margin * |w| - log t - (log margin^2 + H)| at t = e^100000")


@claim("max-margin/normalised-rate", JI, "ours")
def normalised_rate(lab: Lab, planted: bool) -> Verdict:
    """Normalised descent has margin deficit O(1/t).
    Margin deficit of normalised descent over ten data sets: exponent -1, interval over seeds; planted: -1.25."""
    slopes = []
    for seed in range(10):
        data = separable(seed=seed)
        setting = Setting(data, Direct(), Exponential(), "sum")
        run = train(setting, normalised_descent(0.1), steps=10_000, recorder=LogSpaced(80))
        slopes.append(log_log_slope(run.steps, max_margin(data).margin - normalised_margins(run), (1e3, 1e4)))
    found, proved = rate(slopes), -1.25 if planted else -1.0
    text = f"upper end of the exponent {found} of the margin deficit, steps 1e3 to 1e4, seeds 0-9,"
    return at_most(found.high, proved + 0.05, text, f"O(t^{proved:g}), to 0.05")


@claim("max-margin/gradient-bound", f"{NOTES}, (9.165)", "proved")
def gradient_bound(lab: Lab, planted: bool) -> Verdict:
    """|grad L| is at least the best margin times L.
    |grad L| >= margin L along the exponential flow; planted: with twice the margin."""
    least = np.exp(flow_run(lab).log_slope).min() / ((2.0 if planted else 1.0) * problem(lab)[1].margin)
    return at_least(float(least), 1 - 1e-10, "smallest |grad L| / (margin * L)", "margins of 1e5 round at 1.5e-11")


@claim("max-margin/smooth-below", f"{NOTES}, section 9.4", "proved")
def smooth_below(lab: Lab, planted: bool) -> Verdict:
    """For the exponential loss the smooth margin is below the margin, by at most log n / |w|.
    0 <= (margin - smooth margin) |w| <= log n; planted: by at most log 2."""
    run = flow_run(lab)
    bound = float(np.log(2.0 if planted else len(run.setting.data.signed)))
    gap = ((normalised_margins(run) - smooth_margins(run)) * run.norm)[1:]
    return all_of(
        at_least(float(gap.min()), -1e-10, "smallest (margin - smooth margin) |w|"),
        at_most(float(gap.max()), bound, "largest (margin - smooth margin) |w|"),
    )


@claim("max-margin/logistic-bound", f"repair of {NOTES}, (9.144)", "repaired")
def logistic_bound(lab: Lab, planted: bool) -> Verdict:
    """For the logistic loss -log(e^L - 1) lower-bounds the margin, not -log L as printed.
    On one sample; planted: as printed."""
    margins = np.linspace(-3, 3, 25)
    loss = np.logaddexp(0, -margins)
    excess = float((-np.log(loss if planted else np.expm1(loss)) - margins).max())
    return at_most(excess, 1e-12, "largest excess of the smooth margin over the margin, logistic loss")


@recipe
def _from_afar(lab: Lab) -> tuple[float, float, float]:
    """Largest (best margin - smooth margin) |w| of the flow from 40 times the best direction; log L at its start, best margin times |w(0)|."""
    setting, reference = problem(lab)
    direction = reference.weight / np.linalg.norm(reference.weight)
    run = train(setting, GradientFlow(), 40 * direction, until=LogExcessBelow(-1e3))
    largest = deficits(smooth_margins(run), run, reference).max()  # at the start itself the bound is an equality
    return float(largest), float(run.log_excess[0]), float(reference.margin * run.norm[0])


@claim(
    "max-margin/any-start", f"repair of {NOTES}, (9.173), where the length of the path is at least |w(T)|", "repaired"
)
def deficit_from_afar(lab: Lab, planted: bool) -> Verdict:
    """From every start (best margin - smooth margin) |w| <= log L(0) + best margin |w(0)|, not log L(0) alone as printed: the path is at least |w(T)| - |w(0)| long.
    Planted: as printed."""
    deficit, log_loss, reach = _from_afar(lab)
    bound, what = (log_loss, "log L(0)") if planted else (log_loss + reach, "log L(0) + best margin * |w(0)|")
    return at_most(deficit, bound, f"largest (best margin - smooth margin) * |w| from |w(0)| = 40, against {what}")
