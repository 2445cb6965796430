"""Maximum margin on separable linear data: theorems for the user's own data."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import PenchantError, warn
from ..flow.flow import GradientFlow
from ..optimisers.base import Descent
from ..optimisers.geometry import L2
from ..optimisers.memory import NoMemory
from ..optimisers.step_rules import Constant, Normalised
from ..references.base import Solution
from ..references.euclidean_margin import max_margin
from ..references.polyhedral_margin import L1, Linf, polyhedral_margin
from ..references.polynomial_margin import polynomial_direction, tail_power
from ..settings.base import Setting
from ..settings.classification import Classification
from ..settings.losses import Exponential, Logistic
from ..settings.parametrisations import Direct, Gram
from ..verdict import ROUNDING
from .base import Hypothesis, Prediction, Theorem, rivals
from .deep_linear_hypotheses import loss_shape

NOTES = "Ma et al., Lecture notes on machine learning theory, chapter 9: implicit regularization effect"
SOUDRY = "Soudry, Hoffer, Nacson, Gunasekar, Srebro, The implicit bias of gradient descent on separable data, JMLR 2018"
JI = "Ji, Telgarsky, Characterizing the implicit bias via a primal-dual analysis, ALT 2021"


SLOW = "unknown: the rates need a loss with an exponential tail"


def plain(optimiser: Any, rule: type) -> bool:
    """Steepest descent in the l2 norm with this rule and no memory."""
    return (
        isinstance(optimiser, Descent)
        and isinstance(optimiser.rule, rule)
        and isinstance(optimiser.geometry, L2)
        and isinstance(optimiser.memory, NoMemory)
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
