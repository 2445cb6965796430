"""What training on linear data could select: the maximum margin, its rivals, and the hypotheses its theorems share."""

from typing import Any

import numpy as np

from ...errors import PenchantError, warn
from ...norms import L1, L2, Linf
from ...optimisers.base import Descent
from ...references.base import Solution
from ...references.logistic import polynomial_direction, tail_power
from ...references.polyhedral_margin import polyhedral_margin
from ...settings.base import Setting
from ...settings.classification import Classification
from ..base import Hypothesis, rivals

SLOW = "unknown: the rates need a loss with an exponential tail"


def plain(optimiser: Any, rule: type) -> bool:
    """Steepest descent in the l2 norm with this rule and no memory."""
    return (
        isinstance(optimiser, Descent)
        and isinstance(optimiser.rule, rule)
        and isinstance(optimiser.geometry, L2)
        and optimiser.memoryless
    )


def separable(reference: Solution) -> Hypothesis:
    """Some direction classifies every sample correctly."""
    return Hypothesis(
        "separable",
        True,
        reference.margin,
        f"sample {int(reference.dual.argmax())}",
        "maximum margin per unit of norm",
        "numerical",
    )


def covered(name: str) -> Hypothesis:
    """The theorem speaks of another optimiser: its conclusion is a conjecture here."""
    return Hypothesis(
        "optimiser_covered",
        False,
        -1.0,
        name,
        "no theorem of the catalogue covers this optimiser; the reference is a conjecture",
    )


def linear_rivals(setting: Setting, reference: Solution) -> tuple:
    """The directions of other biases: maximum l1 and linf margin, the limit under a polynomial tail if the loss has one, and the first gradient."""
    data, power = setting.data, tail_power(setting.loss)
    others = _polyhedral(data)
    if power is not None:
        others["polynomial tail"] = polynomial_direction(np.asarray(data.signed), power, reference.weight)
    others["first gradient"] = np.asarray(data.signed).mean(axis=0)
    return rivals(reference, others)


def _polyhedral(data: Classification) -> dict[str, np.ndarray]:
    """Maximum l1 and linf margin where their programs are solved: a rival that is not known is no reason to predict nothing."""
    found, unsolved = {}, []
    for norm in (L1(), Linf()):
        try:
            found[norm.name] = polyhedral_margin(data, norm).weight
        except PenchantError as error:
            unsolved.append(str(error))
    if unsolved:
        warn(f"Not among the rivals: {' '.join(unsolved)}")
    return found


def divided(data: Classification, reference: Solution) -> tuple[str, ...]:
    """What the margin is in the units of inputs that were divided by their largest norm."""
    if data.divisor == 1:
        return ()
    margin = reference.margin * data.divisor
    return (f"inputs were divided by {data.divisor:.10g}; as given their maximum margin is {margin:.10g}",)
