"""Claims on token selection that go beyond the paper: sharp constants, critical steps, acceleration and momentum."""

import numpy as np

from ...diagnostics.direction import misalignments
from ...diagnostics.rates import linear_slope, settling
from ...lab import Lab, claim, derived, recipe
from ...optimisers.base import momentum, normalised_descent
from ...references.base import Solution
from ...theory import token_hypotheses as conditions
from ...training.recorders import At, LogSpaced
from ...training.train import train
from ...training.trajectory import Trajectory
from ...verdict import Verdict, all_of, at_most, close, covers
from . import evidence

_LATE = At(tuple(range(2500, 10_000, 125)))


def _constant(lab: Lab, run: Trajectory, planted: bool, name: str) -> Verdict:
    """|W|^2 (1 - corr) against its limit, at |W| above 499."""
    setting, reference = evidence.preset(lab, "E")
    predicted = evidence.sharp_constant(setting, reference) * (1.01 if planted else 1.0)
    measured = float(run.norm[-1] ** 2 * misalignments(run, reference)[-1])
    return close(measured, predicted, 1e-4, f"|W|^2 (1 - corr), {name}")


@derived("self-attention/sharp-constant", slow=True)
def constants_agree(lab: Lab, planted: bool) -> Verdict:
    """|W|^2 (1 - corr) tends to one constant for descent, momentum, Polyak and the flow."""
    names = {"NGD": "normalised descent", "NGD, momentum 0.9": "momentum", "Polyak": "Polyak"}
    found = [(evidence.run_of(lab, rule), name) for rule, name in names.items()] + [(evidence.flow_run(lab), "flow")]
    return all_of(*(_constant(lab, run, planted, name) for run, name in found))


@derived("self-attention/critical-length", slow=True)
def critical_steps(lab: Lab, planted: bool) -> Verdict:
    """Normalised descent does not oscillate across W_mm if and only if its length is below 2 |W_mm| / chi.
    |W| grows by the whole length of a normalised step up to 2 |W_mm| / chi, and by less beyond: preset H, one per cent either side.

    Planted: up to twice that length."""
    settings, references = zip(*(evidence.preset(lab, "H", seed) for seed in evidence.SEEDS), strict=True)
    pairs = zip(settings, references, strict=True)
    critical = np.array([conditions.critical_length(one.data, found) for one, found in pairs]) * (2 if planted else 1)
    growth = []
    for lengths in (0.99 * critical, 1.01 * critical):
        runs = train(list(settings), normalised_descent(lengths), steps=10_000, recorder=_LATE)
        series = [(run.steps, run.norm / length) for run, length in zip(runs, lengths, strict=True)]
        growth.append(settling(series, (2.5e3, 1e4), linear_slope))
    text = "growth of |W| per step over its length, at {} times 2 |W_mm| / chi, steps 2.5e3 to 1e4, seeds 0-9"
    return all_of(
        covers(growth[0], 1.0, text.format("0.99"), rival=0.999),
        at_most(growth[1].high, 0.999, f"upper end of the {text.format('1.01')},"),
    )


@claim("self-attention/acceleration", "observed; rule of Ji, Srebro, Telgarsky 2021", "observed", slow=True)
def acceleration(lab: Lab, planted: bool) -> Verdict:
    """Dual acceleration gives 1 - corr ~ t^-4 in this non-convex setting.
    The dual-accelerated rule: 1 - corr like t^-4."""
    found = evidence.measured_rate(lab, "dual acceleration")
    text = "exponent of 1 - corr, steps 1e3 to 1e4, seeds 0-9"
    return covers(found, -2.0 if planted else -4.0, text, rival=-3.0)


@recipe
def heavy_balls(lab: Lab, beta: float) -> tuple[tuple[Trajectory, Solution], ...]:
    """Normalised descent with momentum, 10 000 steps on ten data sets of preset E."""
    if beta == 0:
        return evidence.fleet(lab, "NGD")
    settings, references = zip(*(evidence.preset(lab, "E", seed) for seed in evidence.SEEDS), strict=True)
    runs = train(list(settings), momentum(evidence.LENGTH["E"], beta), steps=10_000, recorder=LogSpaced(120))
    return tuple(zip(runs, references, strict=True))


@derived("self-attention/heavy-ball", slow=True)
def heavy_ball(lab: Lab, planted: bool) -> Verdict:
    """Heavy ball keeps the exponent of 1 - corr and lowers its constant by (1 - beta)^2.
    t times the ratio to no momentum: the lag of the velocity, beta/(1-beta) steps, shows as a correction of that size over t.

    Planted: by 1 - beta."""
    checks, plain = [], [distance for _, distance in evidence.alignments(heavy_balls(lab, 0.0))]
    for beta in (0.5, 0.9, 0.99):
        pairs = zip(evidence.alignments(heavy_balls(lab, beta)), plain, strict=True)
        found = settling([(t[1:], t[1:] * d[1:] / p[1:]) for (t, d), p in pairs], (1e3, 1e4), linear_slope)
        wanted = (1 - beta) ** (1 if planted else 2)
        text = f"d (t times ratio to no momentum) / dt, beta = {beta:g}, steps 1e3 to 1e4, seeds 0-9"
        checks.append(covers(found, wanted, text, rival=(1 - beta) ** (2 if planted else 1)))
    return all_of(*checks)
