"""Steps of equal size in every entry of the weight (sign descent, Adam with eps = 0): the maximum margin in the linf norm.

On linear data this is a theorem. W of attention is trained as directly, and with entries of size at most s the product of layers of
h_1, h_2, ... columns is any weight with entries of at most s^L h_1 h_2 ...: the same norm is offered as a conjecture there.
"""

import math
from typing import Any

import numpy as np

from ...norms import L1, Linf
from ...optimisers.base import Adam, Descent
from ...optimisers.step_rules import Normalised
from ...problem import read_once
from ...references.base import Solution
from ...references.euclidean_margin import max_margin
from ...references.polyhedral_margin import polyhedral_margin
from ...settings.base import Setting
from ...settings.classification import Classification
from ...settings.deep_linear import DeepLinear
from ...settings.losses import Exponential, Logistic
from ...settings.parametrisations import Direct
from ...settings.tokens import TokenSelection
from ...theory import token_hypotheses as conditions
from ...theory.base import Hypothesis, Prediction, Rival, Theorem, moved_away, rivals
from ...theory.families.linear import covered, divided, separable
from ...theory.layer_hypotheses import loss_shape
from ...theory.least_norm import judge_value
from ...training.trajectory import Trajectory
from ...verdict import Verdict

ZHANG = "Zhang, Zou, Cao, The implicit bias of Adam on separable data, NeurIPS 2024, arXiv 2406.10650"
GUNASEKAR = "Gunasekar, Lee, Soudry, Srebro, Characterizing implicit bias in terms of optimization geometry, ICML 2018, Theorem 5"
_LARGEST = 1000  # entries of a weight, beyond which the linear program is too large


def is_sign_descent(optimiser: Any) -> bool:
    """Sign descent without a cap, or Adam whose epsilon never takes over."""
    if isinstance(optimiser, Adam):
        return bool(np.all(np.asarray(optimiser.eps) == 0))
    if not (isinstance(optimiser, Descent) and optimiser.memoryless):
        return False
    if not (isinstance(optimiser.geometry, Linf) and isinstance(optimiser.rule, Normalised)):
        return False
    return bool(np.isinf(np.asarray(optimiser.rule.cap)).all())


def _length(optimiser: Any) -> float:
    return float(np.max(optimiser.step if isinstance(optimiser, Adam) else optimiser.rule.length))


def vanishing_steps(data: Classification, reference: Solution, optimiser: Any) -> Hypothesis:
    """Proved for step sizes that tend to 0. The logarithm of the loss is smooth in the linf norm, with the square of the longest input in l1
    as its constant, so that signs of a constant length lose at most half of that times the length."""
    lengths = np.abs(np.asarray(data.signed)).sum(axis=1)
    what = "proved for step sizes that tend to 0"
    if not isinstance(optimiser, Adam):
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


class LinearSignDescent(Theorem):
    """Sign descent and Adam reach the linf maximum margin. The minimiser need not be unique, its norm is: that is what is judged."""

    name = "max-margin-linf"
    paper = "linear_models"
    statement = "On separable data sign descent, and Adam with eps = 0, converge to the linf maximum margin."
    citation = f"{ZHANG} (sign descent is Adam with b1 = b2 = 0); {GUNASEKAR}"
    rate = "margin deficit a power of 1/t that depends on how the step sizes fall"

    def applies(self, setting: Setting, optimiser: Any) -> bool:
        direct = isinstance(setting.data, Classification) and isinstance(setting.parametrisation, Direct)
        return direct and is_sign_descent(optimiser)

    def hypotheses(self, setting: Setting, optimiser: Any, reference: Solution) -> tuple[Hypothesis, ...]:
        loss = () if isinstance(setting.loss, Exponential | Logistic) else (loss_shape(setting.loss),)
        order = (memories(optimiser), short_memory(reference, optimiser)) if isinstance(optimiser, Adam) else ()
        return separable(reference), *loss, vanishing_steps(setting.data, reference, optimiser), *order

    def predict(self, setting: Setting, optimiser: Any) -> Prediction:
        euclidean = max_margin(setting.data)  # first: it has the proof where no weight separates
        reference = polyhedral_margin(setting.data, Linf())
        hypotheses = self.hypotheses(setting, optimiser, reference)
        notes = divided(setting.data, reference) if isinstance(setting.data, Classification) else ()
        return Prediction(
            self, setting, hypotheses, reference, _rivals(setting, reference, euclidean), self.rate, notes
        )

    def judge(self, prediction: Prediction, run: Trajectory) -> Verdict:
        verdict = moved_away(judge_value(prediction, run.weight(), Linf()), run)
        detail = "; ".join(part for part in (verdict.detail, prediction.remarks) if part)
        return Verdict(verdict.outcome, verdict.inequality, verdict.predicted, verdict.measured, detail)


def _rivals(setting: Setting, reference: Solution, euclidean: Solution) -> tuple[Rival, ...]:
    """Where descent in other norms would go, and the first gradient of the weight."""
    direct = Setting(setting.data, Direct(), setting.loss)
    first = -np.asarray(read_once(direct, Direct().zeros(setting.data)).slope)
    others = {euclidean.norm: euclidean.weight, "l1": polyhedral_margin(setting.data, L1()).weight}
    return rivals(reference, {**others, "first gradient": first})


class DeepLinearSignConjecture(LinearSignDescent):
    """Signs in every layer; no theorem covers them."""

    name = "deep-linear-sign-conjecture"
    paper = "deep_linear"
    statement = (
        "Conjecture: steps of equal size in every entry of the layers turn the network to the linf maximum margin."
    )
    citation = "none"
    rate = "unknown"

    def applies(self, setting: Setting, optimiser: Any) -> bool:
        deep = isinstance(setting.data, Classification) and isinstance(setting.parametrisation, DeepLinear)
        return deep and is_sign_descent(optimiser)

    def hypotheses(self, setting: Setting, optimiser: Any, reference: Solution) -> tuple[Hypothesis, ...]:
        return separable(reference), covered(type(optimiser).__name__)


class AttentionSignConjecture(LinearSignDescent):
    """Signs in every entry of W; no theorem covers them."""

    name = "token-selection-sign-conjecture"
    paper = "self_attention_rates"
    statement = (
        "Conjecture: steps of equal size in every entry of W converge to the linf maximum-margin token selection."
    )
    citation = "none"
    rate = "unknown"

    def applies(self, setting: Setting, optimiser: Any) -> bool:
        direct = isinstance(setting.data, TokenSelection) and isinstance(setting.parametrisation, Direct)
        return direct and is_sign_descent(optimiser) and math.prod(setting.data.weight_shape) <= _LARGEST

    def hypotheses(self, setting: Setting, optimiser: Any, reference: Solution) -> tuple[Hypothesis, ...]:
        data = setting.data
        return conditions.feasible(reference), conditions.unique_optimal(data), covered(type(optimiser).__name__)


THEOREMS = (LinearSignDescent(), DeepLinearSignConjecture(), AttentionSignConjecture())
