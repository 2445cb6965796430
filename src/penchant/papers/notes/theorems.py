"""What the notes predict for the user's own regression and classification, and the hypotheses of sparse recovery."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ...diagnostics.sparsity import restricted_isometry
from ...door import INTEGER
from ...errors import ArgumentError, PenchantError
from ...flow.mirror import loss_scale
from ...optimisers.step_rules import Constant, HeavyBall, Normalised
from ...references.base import Interpolant, Solution
from ...references.interpolation import basis_pursuit
from ...references.l1_uniqueness import L1Uniqueness, l1_uniqueness, sparse_face
from ...settings.base import Setting
from ...settings.potentials import AbstractPotential
from ...settings.regression import Regression
from ...theory.base import Hypothesis, Prediction, Theorem, at_least_zero
from ...theory.families import interpolation
from ...theory.families.interpolation import own_potential
from ...theory.families.linear import (
    MAX_MARGIN,
    descends,
    first_order,
    is_exponential,
    is_flow,
    loss_shape,
    separable,
    step_size,
    uncapped,
)

_SUPPORTS = 20_000  # tried for delta_2r; with more of them there is a bracket


def time_window(d: int, alpha: float, step: float) -> tuple[float, float]:
    """Iterations between which Theorem 9.4 speaks, log(d/alpha)/step to 1/(step sqrt(d alpha)); empty if the first is larger."""
    return float(np.log(d / alpha) / step), float(1 / (step * np.sqrt(d * alpha)))


def recovery_hypotheses(data: Regression, alpha: float, step: float, sparsity: int) -> tuple[Hypothesis, ...]:
    """Theorem 9.4 on squares from alpha with the loss |r|^2 / 4n, for `sparsity` signals: its conditions with constants read as 1.

    `holds` is None where the theorem leaves its constant open: the value is then all there is to say.
    """
    n, d = data.inputs.shape
    if not 0 < alpha < np.inf:
        raise ArgumentError("alpha", "recovery_hypotheses", "positive and finite", alpha)
    if not 0 < step < np.inf:
        raise ArgumentError("step", "recovery_hypotheses", "positive and finite", step)
    if not (INTEGER.holds(sparsity) and 1 <= sparsity <= d):
        raise ArgumentError("sparsity", "recovery_hypotheses", f"an integer between 1 and {d}", repr(sparsity))
    inputs = np.asarray(data.inputs)
    samples = float(n / (sparsity**2 * max(np.log(d), 1.0) ** 2))
    smallness = float(np.log(1 / alpha) / max(np.log(d), 1.0))
    first, last = time_window(d, alpha, step)
    first = first if first > 0 else 1.0  # starts above d
    bounds = restricted_isometry(inputs, min(2 * int(sparsity), d), most=_SUPPORTS)
    isometric = True if bounds.upper < 1 else False if bounds.lower >= 1 else None
    delta = f"delta_{min(2 * sparsity, d)} in [{bounds.lower:.4g}, {bounds.upper:.4g}]"
    columns = (inputs**2).mean(axis=0)
    scaled = inputs / np.sqrt(np.where(columns > 0, columns, 1.0))
    spread = f"columns of mean square {columns.min():.3g} to {columns.max():.3g}"
    open_constant = "the theorem leaves open how large it must be"
    window = (
        "log of end over begin of the steps (log(d/alpha)/step to 1/(step sqrt(d alpha))) at which training may stop"
    )
    enough = "1 minus the upper bound on delta_2r; sufficient for recovery, not necessary"
    moment = "fourth moment of the scaled inputs minus 3, which is 0 for normal ones"
    rows = (
        ("sample_size", None, samples, "", f"c_n = n/(r^2 log^2 d) with r = {sparsity}; {open_constant}"),
        ("small_start", None, smallness, "", f"c_alpha = log(1/alpha)/log d; {open_constant}"),
        ("time_window", first < last, float(np.log(last / first)), f"[{first:.4g}, {last:.4g}]", window),
        ("restricted_isometry", isometric, float(1 - bounds.upper), delta, enough),
        ("gaussian_inputs", None, float((scaled**4).mean() - 3), spread, moment),
    )
    return tuple(Hypothesis(*row) for row in rows)


def slowest_rate(setting: Setting, potential: AbstractPotential, weight: np.ndarray) -> float:
    """c kappa lambda_min(X C X') at the limit, on the range of the inputs: the rate at which the residual ends."""
    inputs = np.asarray(setting.data.inputs)
    scaled = inputs * np.sqrt(potential.curvature(potential.gradient(weight)))
    sizes = np.linalg.svd(scaled, compute_uv=False)
    return float(potential.rate * loss_scale(setting) * sizes[setting.data.rank - 1] ** 2)


def _single_scale(alpha: PyTree) -> float | None:
    """The start of squares as one number, if it is one."""
    values = np.unique(np.asarray(alpha))
    return float(values[0]) if len(values) == 1 else None


def _sparsest(prediction: Prediction[Interpolant], nonnegative: bool) -> L1Uniqueness | None:
    data = prediction.setting.data
    if not data.consistent or not np.asarray(data.fitted).any():
        return None
    try:
        return l1_uniqueness(data, basis_pursuit(data, nonnegative=nonnegative).weight, nonnegative=nonnegative)
    except PenchantError:  # the rival that is left out says why
        return None


def with_numbers(prediction: Prediction[Interpolant]) -> Prediction[Interpolant]:
    """The prediction with its rate as a number, what small starts tend to, and for squares the conditions of sparse recovery."""
    setting, notes, rate = prediction.setting, list(prediction.notes), prediction.rate
    potential = own_potential(setting, prediction.start)
    if rate == prediction.theorem.rate and prediction.reference.resolved:
        rate = f"{rate}; the slowest is exp(-{slowest_rate(setting, potential, prediction.reference.weight):.4g} t)"
    if potential.name != "l2":
        found = _sparsest(prediction, potential.nonnegative)
        notes += [] if found is None else [_towards_l1(setting.data, found, potential)]
        alpha = _single_scale(prediction.start)
        if found is not None and potential.nonnegative and alpha is not None:
            step = getattr(getattr(prediction.optimiser, "rule", None), "step", 1.0)
            pace = float(np.max(step)) * 2 * setting.samples * loss_scale(setting)  # in steps of the loss |r|^2 / 4n
            conditions = recovery_hypotheses(setting.data, alpha, pace, len(found.support))
            notes += [f"sparse recovery (Theorem 9.4), {describe(one)}" for one in conditions]
    return replace(prediction, rate=rate, notes=tuple(notes))


def _towards_l1(data: Regression, found: L1Uniqueness, potential: AbstractPotential) -> str:
    """What small starts tend to, and how: coefficients off the support are alpha^2 exp(s), or at depth D alpha^D times a bounded function of s."""
    text = f"the {'nonnegative l1' if potential.nonnegative else 'l1'} solution is {found}"
    depth = potential.depth
    if found.unique and np.isneginf(found.rho):
        return f"{text}; off-support coefficients are 0 in every nonnegative interpolant, whatever the start"
    if found.unique:
        exponent = depth if depth > 2 else 2 * (1 - found.rho)
        return f"{text}; off-support coefficients vanish like alpha^{exponent:.4g}"
    if found.unique is None:
        return f"{text}; small starts select one of possibly several solutions"
    chosen = f"sum of |theta|^(2/{depth})" if depth > 2 else "entropy"
    count = np.count_nonzero(sparse_face(data, nonnegative=potential.nonnegative))
    return f"{text}; small starts select the one of largest {chosen}, with {count} coefficients"


def describe(one: Hypothesis) -> str:
    word = {True: "holds", False: "fails", None: "open"}[one.holds]
    return f"{one.name} {word}: {one.slack:.4g}{f', {one.offender}' if one.offender else ''} ({one.detail})"


NOTES = "Ma et al., Lecture notes on machine learning theory, chapter 9: implicit regularization effect"
SOUDRY = "Soudry, Hoffer, Nacson, Gunasekar, Srebro, The implicit bias of gradient descent on separable data, JMLR 2018"
JI = "Ji, Telgarsky, Characterizing the implicit bias via a primal-dual analysis, ALT 2021"


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
    "linear at rate c kappa lambda_min(X C X'), C the curvature of the dual potential at the limit, c = 4, and D^2 alpha^(D-2) at depth D",
    refine=with_numbers,
)
THEOREMS = (LINEAR_MAX_MARGIN, LINEAR_NORMALISED, MINIMUM_NORM, MINIMUM_POTENTIAL)
