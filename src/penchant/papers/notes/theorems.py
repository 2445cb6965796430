"""Maximum margins and interpolants: theorems of the notes for the user's own data."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ...optimisers.memory import HeavyBall
from ...optimisers.step_rules import Constant, Normalised
from ...references.base import Solution
from ...theory.base import Hypothesis, Prediction, Theorem, at_least_zero
from ...theory.families import interpolation
from ...theory.families.linear import (
    MAX_MARGIN,
    descends,
    is_exponential,
    is_flow,
    loss_shape,
    separable,
    step_size,
    uncapped,
)
from .hypotheses import with_numbers

NOTES = "Ma et al., Lecture notes on machine learning theory, chapter 9: implicit regularization effect"
SOUDRY = "Soudry, Hoffer, Nacson, Gunasekar, Srebro, The implicit bias of gradient descent on separable data, JMLR 2018"
JI = "Ji, Telgarsky, Characterizing the implicit bias via a primal-dual analysis, ALT 2021"


def first_order(optimiser: eqx.Module) -> bool:
    """Gradient flow, and descent with one step size."""
    return is_flow(optimiser) or descends(optimiser, Constant)


def _margin_conditions(asked: Prediction[Solution]) -> tuple[Hypothesis, ...]:
    setting, found = asked.setting, [separable(asked.reference)]
    if not is_exponential(setting.loss):
        found.append(loss_shape(setting.loss))
    if not is_flow(asked.optimiser):
        zero = jnp.zeros(len(setting.data.signed))
        found.append(step_size(setting, float(np.max(asked.optimiser.rule.step)), zero, "0"))
    return tuple(found)


def _normalised_conditions(asked: Prediction[Solution]) -> tuple[Hypothesis, ...]:
    length = float(np.max(asked.optimiser.rule.length))
    bound = 1 / float(np.linalg.norm(np.asarray(asked.setting.data.signed), axis=1).max())
    short = at_least_zero("short_steps", bound - length, "", "step length, at most 1 / longest input")
    return separable(asked.reference), short


LINEAR_MAX_MARGIN = Theorem(
    "max-margin",
    "On separable data gradient flow and descent on the logistic or exponential loss converge in direction to the l2 maximum margin.",
    f"{NOTES}, Theorem 9.25; {SOUDRY}",
    MAX_MARGIN,
    first_order,
    _margin_conditions,
    "margin deficit H(p)/(norm), norm ~ log(t)/margin, with H(p) the entropy of the dual weights",
)
LINEAR_NORMALISED = Theorem(
    "max-margin-normalised",
    "On separable data normalised gradient descent converges in direction to the l2 maximum margin, with margin deficit O(1/t).",
    JI,
    MAX_MARGIN,
    lambda optimiser: descends(optimiser, Normalised) and uncapped(optimiser),  # a cap that binds ends this rate
    _normalised_conditions,
    "margin deficit O(1/t)",
)
MINIMUM_NORM = Theorem(
    "minimum-norm",
    "Gradient flow, descent and heavy ball on least squares converge to the projection of the start on the solutions: from 0, the least l2 norm.",
    f"{NOTES}, Theorem 9.3",
    interpolation.PLAIN,
    lambda optimiser: first_order(optimiser) or descends(optimiser, Constant, after=HeavyBall),
    interpolation.proved,
    "linear: exp(-kappa s^2 t) in each singular direction",
    refine=with_numbers,
)
MINIMUM_POTENTIAL = Theorem(
    "minimum-potential",
    "Gradient flow on square parametrisations converges to the interpolant of least potential: Q_alpha for signed squares (and powers), KL for squares.",
    f"{NOTES}, Theorem 9.18",
    interpolation.SQUARES,
    first_order,
    interpolation.proved,
    "linear at rate c kappa lambda_min(X C X'), C the curvature of the dual potential at the limit, c = 4 (D^2 alpha^(D-2) at depth D)",
    refine=with_numbers,
)
THEOREMS = (LINEAR_MAX_MARGIN, LINEAR_NORMALISED, MINIMUM_NORM, MINIMUM_POTENTIAL)
