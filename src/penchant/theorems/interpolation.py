"""Regression: which interpolant training selects. Theorems for the user's own data."""

from typing import Any

import numpy as np

from ..errors import warn
from ..flow.flow import GradientFlow
from ..flow.mirror import loss_scale
from ..optimisers.base import Descent
from ..optimisers.geometry import L2
from ..optimisers.memory import HeavyBall
from ..optimisers.step_rules import Constant
from ..references.base import Interpolant
from ..references.interpolation import basis_pursuit, minimum_norm, minimum_potential
from ..settings.base import Setting
from ..settings.potentials import Quadratic
from ..settings.regression import Regression
from ..settings.square_models import SignedSquares, Squares
from ..training.trajectory import Trajectory
from ..verdict import Outcome, Verdict
from .base import Hypothesis, Prediction, Rival, Theorem
from .linear_models import NOTES, covered, plain
from .recovery_hypotheses import with_numbers

_FITTED = 1e-6  # relative residual above which a run has not interpolated yet


def distance(weight: np.ndarray, reference: np.ndarray) -> float:
    """|weight - reference| / |reference|: interpolants have a size, not only a direction."""
    return float(np.linalg.norm(weight - reference) / max(np.linalg.norm(reference), np.finfo(float).tiny))


def interpolation_hypotheses(data: Regression) -> tuple[Hypothesis, ...]:
    """Conditions shared by all statements on interpolation."""
    n, d = data.inputs.shape
    share = data.unexplained / max(float(np.linalg.norm(np.asarray(data.targets))), np.finfo(float).tiny)
    return (
        Hypothesis(
            "interpolable",
            data.consistent,
            1e-10 - share,
            "",
            "1e-10 minus the share of the targets no weight explains",
        ),
        Hypothesis(
            "over_parametrised",
            d > data.rank,
            float(d - data.rank),
            "",
            "columns minus rank; 0: the solution is unique",
        ),
        Hypothesis(
            "full_row_rank",
            data.rank == n,
            float(data.rank - n),
            "",
            "rank minus samples; the statement also holds without",
        ),
    )


def warn_of(data: Regression, reference: Interpolant) -> None:
    """Warn where the prediction is right but says little, or is known to fewer digits than it shows."""
    n, d = data.inputs.shape
    if data.rank == d:
        warn(
            f"{n} samples determine all {d} coefficients: the solution is unique, every training that converges ends there, "
            "and there is no bias to predict."
        )
    elif data.rank < n:
        warn(f"The {n} samples have rank {data.rank}: the prediction holds on their range, with the pseudo-inverse.")
    if not reference.resolved:
        warn(
            "The start is below what float64 resolves on these data: the predicted weight is right to 1e-14 of the targets, "
            "but its small coefficients are not known."
        )


def _step_size(setting: Setting, optimiser: Any, reference: Interpolant, start: Any) -> tuple[Hypothesis, ...]:
    """step * curvature at the limit below 2; for square models the limit moves by O(step)."""
    if isinstance(optimiser, GradientFlow):
        return ()
    potential = setting.parametrisation.potential(start)
    inputs = np.asarray(setting.data.inputs)
    curvature = potential.curvature(potential.gradient(reference.weight)) * potential.rate
    load = (
        float(np.max(optimiser.rule.step)) * loss_scale(setting) * np.linalg.norm(inputs * np.sqrt(curvature), 2) ** 2
    )
    bound = 2 * (1 + float(np.max(optimiser.memory.beta))) if isinstance(optimiser.memory, HeavyBall) else 2.0
    detail = f"{bound:g} minus step * largest curvature at the limit"
    if potential.name != "l2":
        detail += "; finite steps shift the limit by O(step)"
    return (Hypothesis("step_size", bool(load < bound), float(bound - load), "", detail),)


class _Interpolation(Theorem):
    paper = "linear_models"
    rate = ""

    def hypotheses(self, setting: Setting, optimiser: Any, reference: Any) -> tuple[Hypothesis, ...]:
        found = list(interpolation_hypotheses(setting.data))
        if reference.norm != "l2":
            detail = "whether the coefficients that decide the answer are above rounding"
            found.append(Hypothesis("resolved", reference.resolved, 0.0 if reference.resolved else -1.0, "", detail))
        return (*found, *_step_size(setting, optimiser, reference, setting.start()))

    def predict(self, setting: Setting, optimiser: Any, start: Any = None) -> Prediction:
        start = setting.start() if start is None else start
        reference = minimum_potential(setting.data, setting.parametrisation.potential(np.asarray(start)))
        return self._prediction(setting, optimiser, reference)

    def _prediction(self, setting: Setting, optimiser: Any, reference: Interpolant) -> Prediction:
        warn_of(setting.data, reference)
        hypotheses = self.hypotheses(setting, optimiser, reference)
        return Prediction(self, setting, hypotheses, reference, _rivals(setting, reference), self.rate)

    def judge(self, prediction: Prediction, run: Trajectory) -> Verdict:
        """Compare the final weight with the reference for the run's own start, and with its rivals."""
        setting = prediction.setting
        begin = run.at(0)
        if not np.array_equal(np.asarray(begin), np.asarray(setting.start())):
            prediction = self.predict(setting, GradientFlow(), begin)
        fitted = np.asarray(setting.data.fitted)
        error = float(np.linalg.norm(run.margins[-1] - fitted) / np.linalg.norm(fitted))
        if not error <= _FITTED:
            return Verdict(
                Outcome.undecided, f"relative residual {error:.2g} > {_FITTED:g}: the run does not interpolate yet"
            )
        if _is_square(setting) and run.params.min() <= 0:
            return Verdict(
                Outcome.undecided,
                f"a step took a parameter through 0 (smallest recorded {run.params.min():.3g})",
                detail="the potential of the start describes positive parameters only; take a smaller step",
            )
        verdict = judge_interpolant(prediction, run.weight())
        if verdict.outcome is Outcome.undecided and not _is_square(setting) and prediction.separation >= 1e-9:
            return _at_rest(prediction, run.weight(), error * float(np.linalg.norm(fitted)))
        return verdict


def _at_rest(prediction: Prediction, weight: np.ndarray, residual: float) -> Verdict:
    """A weight trained directly has at most |r| / s_min left to go: if that is short of the reference, it ends elsewhere."""
    sizes = np.linalg.svd(np.asarray(prediction.setting.data.inputs), compute_uv=False)
    size = float(np.linalg.norm(prediction.reference.weight))
    left = residual / (sizes[prediction.setting.data.rank - 1] * size)
    far, bound = distance(weight, prediction.reference.weight), min(1e-2, prediction.separation / 10)
    text = f"relative distance to the {prediction.reference.norm} interpolant = {far:.3g}"
    if far - left > bound:
        return Verdict(
            Outcome.refuted,
            f"{text} > {bound:.3g}",
            bound,
            far,
            f"the run interpolates: it has at most {left:.1g} left to go",
        )
    return Verdict(Outcome.undecided, f"{text} > {bound:.3g}", bound, far)


def judge_interpolant(prediction: Prediction, weight: np.ndarray) -> Verdict:
    """Confirmed within a tenth of the distance to the nearest rival (at most 1e-2); refuted if a rival is that near instead."""
    bound = min(1e-2, prediction.separation / 10)
    found = distance(weight, prediction.reference.weight)
    text = f"relative distance to the {prediction.reference.norm} interpolant = {found:.3g}"
    if prediction.separation < 1e-9:
        return Verdict(
            Outcome.undecided, f"rivals are {prediction.separation:.1e} apart: these data cannot tell them apart"
        )
    if found <= bound:
        return Verdict(
            Outcome.confirmed,
            f"{text} <= {bound:.3g}",
            bound,
            found,
            "a tenth of the distance to the nearest rival, at most 1e-2",
        )
    near = min(prediction.rivals, key=lambda rival: distance(weight, rival.weight))
    if distance(weight, near.weight) < found / 10:
        return Verdict(Outcome.refuted, f"{text} > {bound:.3g}", bound, found, f"the rival '{near.name}' is nearer")
    return Verdict(Outcome.undecided, f"{text} > {bound:.3g}, and no rival is nearer than that", bound, found)


def _rivals(setting: Setting, reference: Interpolant) -> tuple[Rival, ...]:
    data = setting.data
    others = {"l2": minimum_norm(data).weight}
    if data.consistent:
        others["l1"] = basis_pursuit(data).weight
    if reference.norm == "l2":
        del others["l2"]
    far = {name: weight for name, weight in others.items() if distance(weight, reference.weight) > 0}
    return tuple(Rival(name, weight, distance(weight, reference.weight)) for name, weight in far.items())


def _is_regression(setting: Setting) -> bool:
    return isinstance(setting.data, Regression)


def _first_order(optimiser: Any) -> bool:
    return isinstance(optimiser, GradientFlow) or plain(optimiser, Constant)


def _heavy_ball(optimiser: Any) -> bool:
    """A constant multiple of past gradients: steps never leave their span."""
    return (
        isinstance(optimiser, Descent)
        and isinstance(optimiser.rule, Constant)
        and isinstance(optimiser.geometry, L2)
        and isinstance(optimiser.memory, HeavyBall)
    )


class MinimumNorm(_Interpolation):
    """Theorem 9.3: descent on the weights themselves ends at the solution nearest to its start."""

    name = "minimum-norm"
    statement = "Gradient flow, descent and heavy ball on least squares converge to the projection of the start on the solutions: from 0, the least l2 norm."
    citation = f"{NOTES}, Theorem 9.3"
    rate = "linear: exp(-kappa s^2 t) in each singular direction"

    def applies(self, setting: Setting, optimiser: Any) -> bool:
        spanned = _first_order(optimiser) or _heavy_ball(optimiser)
        return _is_regression(setting) and not _is_square(setting) and spanned

    def predict(self, setting: Setting, optimiser: Any, start: Any = None) -> Prediction:
        found = self._prediction(setting, optimiser, minimum_norm(setting.data, start))
        return with_numbers(found, optimiser, Quadratic(np.zeros(setting.data.inputs.shape[1])), start)


def _is_square(setting: Setting) -> bool:
    return isinstance(setting.parametrisation, Squares | SignedSquares)


class MinimumPotential(_Interpolation):
    """Theorem 9.18 and its nonnegative version: squares select the interpolant of least hyperbolic or relative entropy."""

    name = "minimum-potential"
    statement = "Gradient flow on square parametrisations converges to the interpolant of least potential: Q_alpha for signed squares, KL for squares."
    citation = f"{NOTES}, Theorem 9.18"
    rate = "linear at rate 4 kappa lambda_min(X C X'), C the curvature of the dual potential at the limit"

    def applies(self, setting: Setting, optimiser: Any) -> bool:
        return _is_regression(setting) and _is_square(setting) and _first_order(optimiser)

    def predict(self, setting: Setting, optimiser: Any, start: Any = None) -> Prediction:
        begin = np.asarray(setting.start() if start is None else start)
        potential = setting.parametrisation.potential(begin)
        return with_numbers(super().predict(setting, optimiser, start), optimiser, potential, begin)


class InterpolationConjecture(_Interpolation):
    """No theorem of the catalogue covers the optimiser; the reference of gradient flow is offered as a conjecture."""

    name = "interpolation-conjecture"
    statement = "Conjecture: this optimiser selects the interpolant that gradient flow selects."
    citation = "none"
    rate = "unknown"

    def applies(self, setting: Setting, optimiser: Any) -> bool:
        return _is_regression(setting)

    def hypotheses(self, setting: Setting, optimiser: Any, reference: Any) -> tuple[Hypothesis, ...]:
        return (*interpolation_hypotheses(setting.data), covered(type(optimiser).__name__))


THEOREMS = (MinimumNorm(), MinimumPotential(), InterpolationConjecture())
