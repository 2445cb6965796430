"""Steps of equal size in every entry of the weight (sign descent, Adam with eps = 0) on linear data, in layers and in attention: the linf margin.

On linear data this is a theorem. W of attention is trained as directly, and with entries of size at most s the product of layers of
h_1, h_2, ... columns is any weight with entries of at most s^L h_1 h_2 ...: the same norm is offered as a conjecture there.
"""

import math
from collections.abc import Callable
from typing import Any, TypeGuard

import equinox as eqx
import numpy as np

from ...errors import PenchantError
from ...norms import L1, Linf
from ...optimisers.base import Adam
from ...optimisers.step_rules import Normalised
from ...references.base import Solution
from ...references.euclidean_margin import max_margin
from ...references.linear_programs import polyhedral_margin
from ...settings.base import Setting
from ...settings.classification import Classification
from ...settings.parametrisations import Direct
from ...settings.tokens import TokenSelection
from ...theory import selections as conditions
from ...theory.base import Family, Hypothesis, Prediction, Rival, Theorem, covered, made_of, rivals
from ...theory.families.layers import is_deep
from ...theory.families.linear import (
    descends,
    divided,
    first_gradient,
    is_exponential,
    loss_shape,
    separable,
    uncapped,
)
from ...theory.judge import judge_norm

ZHANG = "Zhang, Zou, Cao, The implicit bias of Adam on separable data, NeurIPS 2024, arXiv 2406.10650"
GUNASEKAR = "Gunasekar, Lee, Soudry, Srebro, Characterizing implicit bias in terms of optimization geometry, ICML 2018, Theorem 5"
_LARGEST = 1000  # entries of a weight, beyond which the linear program is too large


def is_adam(optimiser: eqx.Module) -> TypeGuard[Adam]:
    return isinstance(optimiser, Adam)


def is_sign_descent(optimiser: eqx.Module) -> bool:
    """Sign descent without a cap, or Adam whose epsilon never takes over."""
    if is_adam(optimiser):
        return bool(np.all(np.asarray(optimiser.eps) == 0))
    return descends(optimiser, Normalised, Linf) and uncapped(optimiser)


def _length(optimiser: Any) -> float:
    return float(np.max(optimiser.step if is_adam(optimiser) else optimiser.rule.length))


def vanishing_steps(data: Classification, reference: Solution, optimiser: eqx.Module) -> Hypothesis:
    """Proved for step sizes that tend to 0. The logarithm of the loss is smooth in the linf norm, with the square of the longest input in l1
    as its constant, so that signs of a constant length lose at most half of that times the length."""
    decay = getattr(getattr(optimiser, "rule", optimiser), "decay", None)
    falls = np.asarray(0.0 if decay is None else decay)
    if np.all((falls > 0) & (falls <= 1)):
        return Hypothesis("vanishing_steps", True, float(falls.min()), "", "a of steps H/t^a, 0 < a <= 1", "exact")
    lengths = np.abs(np.asarray(data.signed)).sum(axis=1)
    what = "proved for step sizes that tend to 0"
    if not is_adam(optimiser):
        lost = _length(optimiser) * float(lengths.max()) ** 2 / 2 / reference.margin
        what += f"; signs of this constant size lose at most a share {lost:.3g} of the margin"
    return Hypothesis("vanishing_steps", False, -_length(optimiser), f"sample {int(lengths.argmax())}", what)


def short_memory(reference: Solution, optimiser: Adam) -> Hypothesis:
    """The loss falls by a factor e^-(step * margin) per step, and the memory of its squared gradients by b2: they must fall faster, or
    Adam divides by old gradients, and its steps are no longer signs."""
    forgets, falls = -np.log(optimiser.b2) / 2 if optimiser.b2 else np.inf, _length(optimiser) * reference.margin
    detail = f"1 - step * margin / (-log(b2)/2) = 1 - {falls:.3g} / {forgets:.3g}: above, Adam divides by old gradients"
    return Hypothesis("short_memory", bool(falls <= forgets), float(1 - falls / forgets), "", detail)


def memories(optimiser: Adam) -> Hypothesis:
    """The proofs ask for b1 <= b2: the mean forgets no later than the squares."""
    slack = optimiser.b2 - optimiser.b1
    return Hypothesis("memories", slack >= 0, slack, "", "b2 - b1")


def _linear_conditions(asked: Prediction[Solution]) -> tuple[Hypothesis, ...]:
    setting, reference, optimiser = asked.setting, asked.reference, asked.optimiser
    loss = () if is_exponential(setting.loss) else (loss_shape(setting.loss),)
    order = (memories(optimiser), short_memory(reference, optimiser)) if is_adam(optimiser) else ()
    return separable(reference), *loss, vanishing_steps(setting.data, reference, optimiser), *order


def _token_conditions(asked: Prediction[Solution]) -> tuple[Hypothesis, ...]:
    return conditions.feasible(asked.reference), conditions.unique_optimal(asked.setting.data)


def _reference(setting: Setting, start: None) -> Solution:
    try:
        return polyhedral_margin(setting.data, Linf())
    except PenchantError:
        max_margin(setting.data)  # it has the proof where no weight separates
        raise


def _rivals(asked: Prediction[Solution]) -> tuple[Rival, ...]:
    """Where descent in other norms would go, and the first gradient of the weight."""
    data, euclidean = asked.setting.data, max_margin(asked.setting.data)
    others = {euclidean.norm: euclidean.weight, "l1": polyhedral_margin(data, L1()).weight}
    return rivals(asked.reference, {**others, "first gradient": first_gradient(asked.setting)})


def _signs(name: str, paper: str, speaks_of: Callable[..., bool], shared: Callable[..., tuple]) -> Family:
    """The linf maximum margin of this kind of problem: the minimiser need not be unique, its norm is, and that is judged."""
    notes = lambda asked: divided(asked.setting.data, asked.reference)
    return Family(name, paper, speaks_of, _reference, _rivals, judge_norm, shared, notes=notes)


def _offered(statement: str, family: Family) -> Theorem:
    """A conjecture about signs."""
    hypotheses = lambda asked: (*family.conditions(asked), covered(type(asked.optimiser).__name__))
    return Theorem(family.name, f"Conjecture: {statement}", "none", family, is_sign_descent, hypotheses, "unknown")


LINEAR = Theorem(
    "max-margin-linf",
    "On separable data sign descent, and Adam with eps = 0, converge to the linf maximum margin.",
    f"{ZHANG} (sign descent is Adam with b1 = b2 = 0); {GUNASEKAR}",
    _signs("max-margin-linf", "linear_models", lambda one: made_of(one, Classification, Direct), _linear_conditions),
    is_sign_descent,
    rate="margin deficit a power of 1/t that depends on how the step sizes fall",
)
LAYERS = _offered(
    "steps of equal size in every entry of the layers turn the network to the linf maximum margin.",
    _signs("deep-linear-sign-conjecture", "deep_linear", is_deep, lambda asked: (separable(asked.reference),)),
)
TOKENS = _offered(
    "steps of equal size in every entry of W converge to the linf maximum-margin token selection.",
    _signs(
        "token-selection-sign-conjecture",
        "self_attention_rates",
        lambda one: made_of(one, TokenSelection, Direct) and math.prod(one.data.weight_shape) <= _LARGEST,
        _token_conditions,
    ),
)
THEOREMS = (LINEAR, LAYERS, TOKENS)
