"""Keys and queries trained in steps: which norm each optimiser minimises, and what its own multipliers certify in that norm."""

import numpy as np

from ....exhibits import Figure, Line, Table, log_figure, table
from ....lab import Lab, Study
from ....norms import L2, Norm, Nuclear, SignProduct
from ....references.base import Solution
from ....references.euclidean_margin import max_margin
from ....training.trajectory import Trajectory
from .. import discrete
from ..evidence import nuclear
from .curves import DEFINED

_GRADIENTS = ("gradient descent", "normalised descent")  # all other rules have steps of equal size in every entry


def _programs(lab: Lab, number: int) -> tuple[tuple[Solution, Norm], ...]:
    data = discrete.stepped(lab, _GRADIENTS[0], number).setting.data
    least = nuclear(lab, number), max_margin(data), discrete.signs(lab, number)
    return tuple(zip(least, (Nuclear(), L2(), SignProduct()), strict=True))


def _excess(run: Trajectory, record: int, reference: Solution, norm: Norm) -> float:
    return norm.value(run.weight(record)) / float(run.smallest_margin()[record]) / reference.value - 1


def steps_table(lab: Lab) -> Table:
    rows = []
    for number in range(lab.seed, lab.seed + (8 if lab.full else 3)):
        for rule in discrete.RULES:
            lab.progress(f"data {number}, {rule}")
            run, norm = discrete.stepped(lab, rule, number), Nuclear() if rule in _GRADIENTS else SignProduct()
            margin = float(run.smallest_margin()[-1])
            gap = norm.value(run.weight()) / margin / discrete.best_bound(run, norm) - 1
            rows.append((number, rule, margin, *(_excess(run, -1, *one) for one in _programs(lab, number)), gap))
    norms = dict.fromkeys(("nuclear excess", "Frobenius excess", "sign-product excess", "certified gap"), ".2e")
    caption = (
        "The gap is in the nuclear norm for gradient steps and in the norm of sign products for steps of equal size in every entry. Adam with a memory of 100 or 1000 "
        "steps stands between the norms: its steps shrink with the gradients that it remembers."
    )
    columns = {"data": "", "optimiser": "", "margin": ".3g", **norms}
    return table("steps", "Where each optimiser ends", columns, rows, caption)


def steps_figure(lab: Lab) -> Figure:
    lines = []
    for rule in discrete.RULES:
        run = discrete.stepped(lab, rule, lab.seed)
        margin = run.smallest_margin()
        rising = [k for k in range(len(run)) if margin[k] > max(0.5, margin[:k].max(initial=0.0))][::4]
        for found, norm in _programs(lab, lab.seed)[::2] if len(rising) > 1 else ():
            excesses = np.array([_excess(run, k, found, norm) for k in rising])
            lines.append(Line(f"{norm.name}, {rule}", margin[rising], excesses))
    caption = "Excess of the nuclear norm and of the norm of sign products over their minima, first data set."
    return log_figure("steps", "Two norms", "margin", "excess", lines, caption)


_SIGNS = "least sum of coefficients of products of sign vectors that make up W; width times the largest |entry| of K and of Q bounds it"
STUDIES = (
    Study(
        "key-query-steps",
        "Keys and queries trained in steps: which norm?",
        claims=(
            discrete.descent_follows_flow,
            discrete.normalised_nuclear,
            discrete.sign_norm,
            discrete.adam_norm,
            discrete.sign_diagonal,
        ),
        exhibits=(steps_figure, steps_table),
        definitions={**DEFINED, "norm of sign products": _SIGNS},
    ),
)
