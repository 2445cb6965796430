"""Steps of equal size in every entry of the factors (sign descent, Adam): which norm of W they minimise is a conjecture of its own.

With entries of size at most s the products a_j b_j of `Hadamard` are at most s^2, so the l_inf norm is bounded, and K Q^T of any
width is a sum of sign products with coefficients of sum width s^2: the norm of sign products takes the place of the nuclear one.
"""

from typing import Any

import numpy as np

from ...norms import Linf
from ...problem import read_once
from ...references.base import Solution
from ...references.euclidean_margin import max_margin
from ...references.nuclear_margin import nuclear_margin
from ...references.polyhedral_margin import LARGEST, diagonal_margin, polyhedral_margin, sign_product_margin
from ...settings.base import Setting
from ...settings.parametrisations import Direct
from ...settings.tokens import TokenSelection
from ...theory import token_hypotheses as conditions
from ...theory.base import Hypothesis, Prediction, rivals
from ...theory.families.linear import covered
from . import hypotheses as assumptions
from .theorems import DiagonalConjecture, KeyQueryConjecture

_RATE = "none proved; Adam only with a memory 1/(1 - b2) short against the time in which the loss falls by a factor"


def _coordinatewise(optimiser: Any) -> bool:
    return bool(getattr(optimiser, "coordinatewise", False))


def _conditions(data: TokenSelection, setting: Setting, optimiser: Any, reference: Solution) -> tuple[Hypothesis, ...]:
    return (
        conditions.feasible(reference),
        assumptions.exponential_loss(setting.loss),
        conditions.unique_optimal(data),
        assumptions.limit_exists(),
        covered(type(optimiser).__name__),
    )


def _first_gradient(setting: Setting) -> np.ndarray:
    direct = Setting(setting.data, Direct(), setting.loss)
    return -np.asarray(read_once(direct, Direct().zeros(setting.data)).slope)


class SignKeyQueryConjecture(KeyQueryConjecture):
    """Coordinatewise steps on K and Q; the norm of sign products is offered where its program can be solved."""

    name = "sign-key-query-conjecture"
    statement = (
        "Conjecture: steps of equal size in every entry of K and Q minimise the norm of sign products of W = K Q' subject to "
        "margins >= 1."
    )
    rate = _RATE

    def applies(self, setting: Setting, optimiser: Any) -> bool:
        return (
            super().applies(setting, optimiser)
            and _coordinatewise(optimiser)
            and min(setting.data.weight_shape) <= LARGEST
        )

    def at_start(self, setting: Setting, optimiser: Any, start: Any) -> tuple[Hypothesis, ...]:
        return ()

    def hypotheses(self, setting: Setting, optimiser: Any, reference: Solution) -> tuple[Hypothesis, ...]:
        return _conditions(setting.data, setting, optimiser, reference)

    def predict(self, setting: Setting, optimiser: Any) -> Prediction:
        data, reference = setting.data, sign_product_margin(setting.data)
        others = {"nuclear": nuclear_margin(data).weight, "frobenius": max_margin(data).weight}
        found = rivals(reference, {**others, "first gradient": _first_gradient(setting)})
        return Prediction(self, setting, self.hypotheses(setting, optimiser, reference), reference, found, self.rate)


class SignDiagonalConjecture(DiagonalConjecture):
    """Coordinatewise steps on the diagonals of K and Q; the l_inf norm is offered."""

    name = "sign-diagonal-conjecture"
    statement = (
        "Conjecture: steps of equal size in every entry of diagonal K and Q minimise the linf norm of the diagonal of W "
        "subject to margins >= 1."
    )
    rate = _RATE

    def applies(self, setting: Setting, optimiser: Any) -> bool:
        return super().applies(setting, optimiser) and _coordinatewise(optimiser)

    def at_start(self, setting: Setting, optimiser: Any, start: Any) -> tuple[Hypothesis, ...]:
        return ()

    def hypotheses(self, setting: Setting, optimiser: Any, reference: Solution) -> tuple[Hypothesis, ...]:
        return _conditions(setting.data.tokens, setting, optimiser, reference)

    def predict(self, setting: Setting, optimiser: Any) -> Prediction:
        data = setting.data
        others = {
            "l1": diagonal_margin(data).weight,
            "l2": max_margin(data).weight,
        }  # with the proof where there is none
        reference = polyhedral_margin(data, Linf())
        found = rivals(reference, {**others, "first gradient": _first_gradient(setting)})
        return Prediction(self, setting, self.hypotheses(setting, optimiser, reference), reference, found, self.rate)


THEOREMS = (SignKeyQueryConjecture(), SignDiagonalConjecture())
