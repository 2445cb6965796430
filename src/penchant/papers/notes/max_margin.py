"""Claims on maximum margin, with evidence on a small separable data set (30 samples, 4 dimensions, 4 support vectors)."""

import numpy as np

from ...diagnostics.direction import misalignments
from ...diagnostics.margin import normalised_margins, smooth_margins
from ...diagnostics.rates import log_log_slope, rate
from ...flow.flow import GradientFlow
from ...lab import Lab, claim, recipe
from ...optimisers.base import gradient_descent, normalised_descent
from ...references.base import Solution
from ...references.euclidean_margin import max_margin
from ...settings.base import Setting
from ...settings.classification import Classification
from ...settings.generators import separable
from ...settings.losses import Exponential, Logistic
from ...settings.parametrisations import Direct
from ...theory.base import judge_direction
from ...training.events import LogExcessBelow, NormAbove
from ...training.recorders import Every, LogSpaced
from ...training.train import train
from ...training.trajectory import Trajectory
from ...verdict import Verdict, all_of, at_least, at_most, close
from .margin_theorems import JI, NOTES, SOUDRY, LinearMaxMargin

PAPER = "linear_models"
_DEPTH = -1e5  # the flow is followed until the loss is e^-100000


@recipe
def problem(lab: Lab, logistic: bool = False) -> tuple[Setting, Solution]:
    data = separable()
    return Setting(data, Direct(), Logistic() if logistic else Exponential(), "sum"), max_margin(data)


@recipe
def flow_run(lab: Lab, logistic: bool = False) -> Trajectory:
    setting, _ = problem(lab, logistic)
    return train(setting, GradientFlow(), until=LogExcessBelow(_DEPTH))


def entropy(reference: Solution) -> tuple[float, float]:
    """Entropy of the normalised dual weights, and the largest of them."""
    shares = reference.dual[reference.support] / reference.dual[reference.support].sum()
    return float(-(shares * np.log(shares)).sum()), float(shares.max())


@claim(
    "max-margin/direction",
    "On separable data gradient flow and descent on the logistic or exponential loss converge in direction to the l2 maximum margin.",
    f"{NOTES}, Theorem 9.25; {SOUDRY}",
    kind="proved",
    slow=True,
)
def direction(lab: Lab, planted: bool) -> Verdict:
    setting, _ = problem(lab)
    prediction = LinearMaxMargin().predict(setting, GradientFlow())
    weight = prediction.rivals[0].weight if planted else flow_run(lab).weight()
    return judge_direction(prediction, weight)


@claim(
    "max-margin/smooth-margin",
    "The smooth margin never decreases along the flow once the loss is below 1.",
    f"{NOTES}, proof of Theorem 9.25",
    kind="proved",
)
def smooth_margin_monotone(lab: Lab, planted: bool) -> Verdict:
    setting, _ = problem(lab)
    run = train(setting, normalised_descent(5.0), steps=200, recorder=Every()) if planted else flow_run(lab)
    small = run.log_excess < 0
    steps = np.diff(smooth_margins(run)[small])
    worst = float(steps.min()) if len(steps) else float("nan")
    return at_least(
        worst,
        -1e-12,
        "smallest increase of the smooth margin once L < 1",
        "normalised steps of length 5, far too long" if planted else "",
    )


@claim(
    "max-margin/deficit-bound",
    "From w = 0: (best margin - smooth margin) |w| <= log n at all times.",
    f"{NOTES}, Theorem 9.25",
    kind="proved",
)
def deficit_bound(lab: Lab, planted: bool) -> Verdict:
    _, reference = problem(lab)
    run = flow_run(lab)
    deficit = (reference.margin - smooth_margins(run)[1:]) * run.norm[1:]
    bound = 0.9 if planted else np.log(len(run.setting.data.signed))
    return at_most(
        float(deficit.max()),
        float(bound),
        "largest (best margin - smooth margin) * |w|",
        "bound planted below H(p)" if planted else "log n",
    )


@claim(
    "max-margin/deficit-constant",
    "(best margin - smooth margin) |w| tends to the entropy H(p) of the dual weights, for both losses.",
    "sharp constant, derived for penchant",
    kind="ours",
    slow=True,
)
def deficit_constant(lab: Lab, planted: bool) -> Verdict:
    _, reference = problem(lab)
    predicted = np.log(30) if planted else entropy(reference)[0]
    checks = []
    for logistic in (False, True):
        run = flow_run(lab, logistic)
        measured = float((reference.margin - smooth_margins(run)[-1]) * run.norm[-1])
        checks.append(
            close(
                measured,
                predicted,
                1e-4,
                f"(best margin - smooth margin) * |w|, {'logistic' if logistic else 'exponential'}",
            )
        )
    return all_of(*checks)


@claim(
    "max-margin/margin-constant",
    "(best margin - margin) |w| tends to H(p) + log max p.",
    "sharp constant, derived for penchant",
    kind="ours",
)
def margin_constant(lab: Lab, planted: bool) -> Verdict:
    _, reference = problem(lab)
    mean, top = entropy(reference)
    predicted = mean if planted else mean + np.log(top)
    run = flow_run(lab)
    return close(
        float((reference.margin - normalised_margins(run)[-1]) * run.norm[-1]),
        predicted,
        1e-3,
        "(best margin - margin) * |w|",
    )


@claim(
    "max-margin/log-time",
    "best margin * |w| = log t + log margin^2 + H(p) + o(1): the 1/log t rate with its constant.",
    f"{SOUDRY}; constant derived for penchant",
    kind="ours",
)
def logarithmic_time(lab: Lab, planted: bool) -> Verdict:
    _, reference = problem(lab)
    run = flow_run(lab)
    offset = 2 * np.log(reference.margin) + (0.0 if planted else entropy(reference)[0])
    measured = float(reference.margin * run.norm[-1] - run.log_time[-1])
    return at_most(abs(measured - offset), 1e-3, "|best margin * |w| - log t - (log margin^2 + H)| at t = e^100000")


@claim(
    "max-margin/normalised-rate",
    "Normalised descent has margin deficit O(1/t).",
    JI,
    kind="proved",
)
def normalised_rate(lab: Lab, planted: bool) -> Verdict:
    """Margin deficit of normalised descent over ten data sets: exponent -1, interval over seeds; planted: -1.25."""
    slopes = []
    for seed in range(10):
        data = separable(seed=seed)
        reference = max_margin(data)
        run = train(
            Setting(data, Direct(), Exponential(), "sum"), normalised_descent(0.1), steps=10_000, recorder=LogSpaced(80)
        )
        slopes.append(log_log_slope(run.steps, reference.margin - normalised_margins(run), (1e3, 1e4)))
    found, proved = rate(slopes), -1.25 if planted else -1.0
    text = f"upper end of the exponent {found} of the margin deficit, steps 1e3 to 1e4, seeds 0-9,"
    return at_most(found.high, proved + 0.05, text, f"O(t^{proved:g}), to 0.05")


@claim(
    "max-margin/same-path",
    "Gradient descent with small steps turns like the flow at equal norm.",
    SOUDRY,
    kind="proved",
)
def same_path(lab: Lab, planted: bool) -> Verdict:
    """Gradient descent with small steps follows the flow: equal directions at equal norm."""
    setting, reference = problem(lab)
    run = train(setting, gradient_descent(1.0 if planted else 0.005), steps=2_000)
    flow = train(setting, GradientFlow(), until=NormAbove(float(run.norm[-1])))
    measured, predicted = misalignments(run, reference)[-1], misalignments(flow, reference)[-1]
    return close(float(measured), float(predicted), 2e-2, "1 - corr of descent and of the flow at equal norm")


@claim(
    "max-margin/orthogonal",
    "On orthogonal data the flow from 0 has the margins log(1 + |z|^2 t).",
    "closed form",
    kind="ours",
    slow=True,
)
def orthogonal_closed_form(lab: Lab, planted: bool) -> Verdict:
    """On orthogonal data each margin is log(1 + |z|^2 t)."""
    lengths = np.array([2.0, 1.0, 0.5])
    setting = Setting(Classification(np.diag(lengths), np.ones(3)), Direct(), Exponential(), "sum")
    run = train(setting, GradientFlow(tolerance=1e-10, margin_tolerance=1e-9), until=LogExcessBelow(-50.0))
    log_time = run.log_time[1:, None]
    predicted = np.logaddexp(0.0, np.log(lengths if planted else lengths**2) + log_time)
    return at_most(
        float(np.abs(run.margins[1:] - predicted).max()), 1e-7, "largest |margin - log(1 + |z|^2 t)| along the flow"
    )
