"""Maximum margin on separable linear data: theorems for the user's own data."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ...errors import warn
from ...flow.flow import GradientFlow
from ...optimisers.step_rules import Constant, Normalised
from ...references.base import Solution
from ...references.euclidean_margin import max_margin
from ...settings.base import Setting
from ...settings.classification import Classification
from ...settings.losses import Exponential, Logistic
from ...settings.parametrisations import Direct, Gram
from ...theory.base import Hypothesis, Prediction, Theorem
from ...theory.families.linear import SLOW, covered, divided, linear_rivals, plain, separable
from ...theory.layer_hypotheses import loss_shape
from ...verdict import ROUNDING

NOTES = "Ma et al., Lecture notes on machine learning theory, chapter 9: implicit regularization effect"
SOUDRY = "Soudry, Hoffer, Nacson, Gunasekar, Srebro, The implicit bias of gradient descent on separable data, JMLR 2018"
JI = "Ji, Telgarsky, Characterizing the implicit bias via a primal-dual analysis, ALT 2021"


def _warn_of_repeats(signed: np.ndarray, reference: Solution) -> None:
    """Equal inputs at the smallest margin share one dual weight in any proportion."""
    active = signed[signed @ reference.weight <= 1 + 1e-9]
    repeated = len(active) - len(np.unique(active, axis=0))
    if repeated:
        warn(
            f"{repeated} support vectors repeat others: the direction is unique, but the dual weights, and with them the "
            "entropy in the rate, are not."
        )


class _LinearTheorem(Theorem):
    paper = "linear_models"
    rate = ""

    def predict(self, setting: Setting, optimiser: Any) -> Prediction:
        reference = max_margin(setting.data)
        _warn_of_repeats(np.asarray(setting.data.signed), reference)
        hypotheses = self.hypotheses(setting, optimiser, reference)
        others, notes = linear_rivals(setting, reference), divided(setting.data, reference)
        rate = self.rate if loss_shape(setting.loss).holds else SLOW
        return Prediction(self, setting, hypotheses, reference, others, rate, notes)


def _is_linear(setting: Setting) -> bool:
    return isinstance(setting.data, Classification) and isinstance(setting.parametrisation, Direct | Gram)


class LinearMaxMargin(_LinearTheorem):
    """Theorem 9.25: gradient flow and small-step gradient descent turn towards the l2 maximum margin, like 1/log t."""

    name = "max-margin"
    statement = "On separable data gradient flow and descent on the logistic or exponential loss converge in direction to the l2 maximum margin."
    citation = f"{NOTES}, Theorem 9.25; {SOUDRY}"
    rate = "margin deficit H(p)/(norm), norm ~ log(t)/margin, with H(p) the entropy of the dual weights"

    def applies(self, setting: Setting, optimiser: Any) -> bool:
        return _is_linear(setting) and (isinstance(optimiser, GradientFlow) or plain(optimiser, Constant))

    def hypotheses(self, setting: Setting, optimiser: Any, reference: Solution) -> tuple[Hypothesis, ...]:
        found = [separable(reference)]
        if not isinstance(setting.loss, Exponential | Logistic):
            found.append(loss_shape(setting.loss))
        if not isinstance(optimiser, GradientFlow):
            zero = jnp.zeros(len(setting.data.signed))
            found.append(_step_size(setting, float(np.max(optimiser.rule.step)), zero, "0"))
        return tuple(found)

    def at_start(self, setting: Setting, optimiser: Any, start: Any) -> tuple[Hypothesis, ...]:
        if isinstance(optimiser, GradientFlow):
            return ()
        margins = setting.margins(jax.tree.map(jnp.asarray, start))
        return (_step_size(setting, float(np.max(optimiser.rule.step)), margins, "the start"),)


def _step_size(setting: Setting, step: float, margins: Array, where: str) -> Hypothesis:
    """A step size that provably never increases the loss. The curvature of the exponential one is bounded by the loss itself, at the start."""
    signed = np.asarray(setting.data.signed)
    if isinstance(setting.loss, Exponential):
        lengths = (signed**2).sum(axis=1)
        load = float(np.exp(np.log(step * lengths.max()) + float(setting.weigh(margins).log_excess)))
        slack = 0.0 if abs(load - 1) <= ROUNDING else 1 - load  # the longest step that is allowed is allowed
        detail = f"step * loss at {where} * longest input^2, at most 1"
        return Hypothesis("step_size", slack >= 0, slack, f"sample {int(lengths.argmax())}", detail)
    scale = 1 / len(signed) if setting.reduction == "mean" else 1.0
    load = step * scale * np.linalg.norm(signed, 2) ** 2 / 8
    return Hypothesis("step_size", bool(load < 1), float(1 - load), "", "step * largest singular value^2 / 8, below 1")


class LinearNormalisedDescent(_LinearTheorem):
    """Normalised descent reaches the l2 maximum margin at rate 1/t."""

    name = "max-margin-normalised"
    statement = "On separable data normalised gradient descent converges in direction to the l2 maximum margin, with margin deficit O(1/t)."
    citation = JI
    rate = "margin deficit O(1/t)"

    def applies(self, setting: Setting, optimiser: Any) -> bool:
        # Once a cap binds, the rule is gradient descent, without this rate.
        return _is_linear(setting) and plain(optimiser, Normalised) and bool(np.isinf(optimiser.rule.cap).all())

    def hypotheses(self, setting: Setting, optimiser: Any, reference: Solution) -> tuple[Hypothesis, ...]:
        length = float(np.max(optimiser.rule.length))
        bound = 1 / float(np.linalg.norm(np.asarray(setting.data.signed), axis=1).max())
        short = Hypothesis(
            "short_steps", bool(length <= bound), bound - length, "", "step length, at most 1 / longest input"
        )
        return separable(reference), short


class LinearConjecture(_LinearTheorem):
    """No theorem of the catalogue covers the optimiser; the l2 maximum margin is offered as a conjecture."""

    name = "max-margin-conjecture"
    statement = "Conjecture: this optimiser converges in direction to the l2 maximum margin."
    citation = "none"
    rate = "unknown"

    def applies(self, setting: Setting, optimiser: Any) -> bool:
        return _is_linear(setting)

    def hypotheses(self, setting: Setting, optimiser: Any, reference: Solution) -> tuple[Hypothesis, ...]:
        return separable(reference), covered(type(optimiser).__name__)


THEOREMS = (LinearMaxMargin(), LinearNormalisedDescent(), LinearConjecture())
