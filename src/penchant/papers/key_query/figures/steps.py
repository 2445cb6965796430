"""Keys and queries trained in steps: which norm each optimiser minimises, and what its own multipliers certify in that norm."""

from typing import Any, NamedTuple

import numpy as np

from ....exhibits import Figure, Finding, Line, Result, Shown, Table
from ....lab import Lab, Study
from ....norms import L2, Norm, Nuclear, SignProduct
from ....optimisers.adam import Adam
from ....optimisers.base import gradient_descent, normalised_descent, sign_descent
from ....references.base import Solution
from ....references.bracket import adjoint
from ....references.euclidean_margin import max_margin
from ....references.nuclear_margin import nuclear_margin
from ....references.sign_product_margin import sign_product_margin
from ....settings.base import Setting
from ....settings.factored import KeyQuery
from ....settings.losses import Exponential
from ....settings.token_generators import equal_score_tokens
from ....training.train import train
from ....training.trajectory import Trajectory
from ....verdict import Verdict, all_of, at_least, at_most
from .curves import DEFINED

_RULES: dict[str, tuple[Any, int, bool]] = {  # optimiser, steps, whether its steps have equal size in every entry
    "gradient descent": (gradient_descent(1.0), 20_000, False),
    "normalised descent": (normalised_descent(0.02), 20_000, False),
    "sign descent": (sign_descent(0.002), 40_000, True),
    "Adam, b2 = 0.9": (Adam(0.002, 0.0, 0.0, 0.9), 40_000, True),
    "Adam, b2 = 0.99": (Adam(0.002, 0.0, 0.0, 0.99), 40_000, True),
    "Adam, b2 = 0.999": (Adam(0.002, 0.0, 0.9, 0.999), 40_000, True),
}
_SHORT = ("sign descent", "Adam, b2 = 0.9")


class Ended(NamedTuple):
    """A run at its end: the excess of each norm, and the certified gap of the norm that its steps should minimise."""

    data: int
    rule: str
    margin: float
    nuclear: float
    frobenius: float
    signs: float
    gap: float


def _excess(run: Trajectory, record: int, reference: Solution, norm: Norm) -> float:
    return norm.value(run.weight(record)) / float(run.smallest_margin()[record]) / reference.value - 1


def _gap(run: Trajectory, norm: Norm) -> float:
    """upper/lower - 1 at the end, with the best lower bound of all multipliers gathered or met on the way."""
    points = np.maximum([*run.dual[1:], *run.weights], 0.0)
    lower = max(float(point.sum()) / norm.dual(np.asarray(adjoint(run.setting.data, point))) for point in points)
    return norm.value(run.weight()) / float(run.smallest_margin()[-1]) / lower - 1


def run_steps(lab: Lab) -> Result:
    seed, full, progress = lab.seed, lab.full, lab.progress
    ended, lines = [], []
    for number in range(seed, seed + (8 if full else 3)):
        data = equal_score_tokens(3, 4, 5, number)
        programs = (
            (nuclear_margin(data), Nuclear()),
            (max_margin(data), L2()),
            (sign_product_margin(data), SignProduct()),
        )
        setting = Setting(data, KeyQuery(), Exponential())
        start = setting.start(100 + number, 0.1 / np.sqrt(5))
        for rule, (optimiser, steps, signed) in _RULES.items():
            progress(f"data {number}, {rule}")
            run = train(setting, optimiser, start, steps=steps)
            nuclear, frobenius, signs = (_excess(run, -1, *program) for program in programs)
            gap = _gap(run, SignProduct() if signed else Nuclear())
            ended.append(Ended(number, rule, float(run.smallest_margin()[-1]), nuclear, frobenius, signs, gap))
            if number == seed:
                lines += _lines(rule, run, programs)
    findings = (
        Finding(
            "Normalised descent on K and Q minimises the nuclear norm, as the flow does.",
            _nearest(ended, ("normalised descent",), 1e-2, "nuclear"),
            "conjecture",
        ),
        Finding(
            "Sign descent and Adam with a short memory minimise the norm of sign products instead.",
            all_of(
                _nearest(ended, _SHORT, 0.1, "signs"),
                at_least(min(one.nuclear for one in ended if one.rule in _SHORT), 0.1, "their least nuclear excess"),
            ),
            "conjecture",
        ),
    )
    caption = "Excess of the nuclear norm and of the norm of sign products over their minima, first data set."
    figure = Figure("steps", "Two norms", "margin", "excess", tuple(lines), caption, "log", "log")
    words = {
        **DEFINED,
        "norm of sign products": "least sum of coefficients of products of sign vectors that make up W; width times the largest |entry| of K and of Q bounds it",
    }
    return Result(findings, (figure,), (_table(ended),), {}, words)


def _nearest(ended: list[Ended], rules: tuple[str, ...], bound: float, norm: str) -> Verdict:
    worst = max(getattr(one, norm) for one in ended if one.rule in rules)
    return at_most(worst, bound, f"largest excess of {', '.join(rules)}")


def _lines(rule: str, run: Trajectory, programs: tuple[tuple[Solution, Norm], ...]) -> list[Line]:
    margin = run.smallest_margin()
    rising = [k for k in range(len(run)) if margin[k] > max(0.5, margin[:k].max(initial=0.0))][::4]
    return [
        Line(f"{norm.name}, {rule}", margin[rising], np.array([_excess(run, k, found, norm) for k in rising]))
        for found, norm in (programs[0], programs[2])
        if len(rising) > 1
    ]


def _table(ended: list[Ended]) -> Table:
    rows = tuple(
        (
            one.data,
            one.rule,
            Shown(one.margin, ".3g"),
            *(Shown(value, ".2e") for value in (one.nuclear, one.frobenius, one.signs)),
            Shown(one.gap, ".2e"),
        )
        for one in ended
    )
    columns = (
        "data",
        "optimiser",
        "margin",
        "nuclear excess",
        "Frobenius excess",
        "sign-product excess",
        "certified gap",
    )
    caption = (
        "The gap is in the nuclear norm for gradient steps and in the norm of sign products for steps of equal size in every entry. Adam with a memory of 100 or 1000 "
        "steps stands between the norms: its steps shrink with the gradients that it remembers."
    )
    return Table("steps", "Where each optimiser ends", columns, rows, caption)


STUDIES = (Study("key-query-steps", "Keys and queries trained in steps: which norm?", run_steps),)
