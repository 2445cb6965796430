"""Regression: which interpolant training selects. Theorems for the user's own data."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import ArgumentError, PenchantError, warn
from ...flow.flow import GradientFlow
from ...flow.mirror import loss_scale
from ...norms import L2
from ...optimisers.base import Descent
from ...optimisers.memory import HeavyBall
from ...optimisers.step_rules import Constant
from ...references.base import Interpolant
from ...references.interpolation import basis_pursuit, minimum_norm, minimum_potential
from ...references.linear_programs import positive_part
from ...settings.base import Setting
from ...settings.regression import Regression
from ...theory.base import Hypothesis, Prediction, Rival, Theorem
from ...theory.families.interpolation import _is_square, own_potential
from ...theory.families.linear import covered, plain
from ...theory.interpolants import (
    FITTED,
    at_rest,
    distance,
    is_unique,
    judge_interpolant,
    off_the_theorem,
    relative_residual,
    remarks,
    unresolved,
)
from ...training.status import Status
from ...training.trajectory import Trajectory
from ...verdict import Outcome, Verdict
from .hypotheses import with_numbers
from .margin_theorems import NOTES

_ALGEBRAIC = "residual ~ 1/t: coefficients that vanish in every nonnegative interpolant need an infinite push"


def interpolation_hypotheses(data: Regression) -> tuple[Hypothesis, ...]:
    """Conditions shared by all statements on interpolation."""
    share = data.unexplained / max(float(np.linalg.norm(np.asarray(data.targets))), np.finfo(float).tiny)
    detail = "1e-10 minus the share of the targets no weight explains"
    return (Hypothesis("interpolable", data.consistent, 1e-10 - share, "", detail),)


def _shape_notes(data: Regression) -> tuple[str, ...]:
    """What the shape of the inputs makes of the statement, which holds for all of them."""
    n, d = data.inputs.shape
    notes = [f"not over-parametrised: rank {data.rank} in {d} dimensions leaves one solution"] * is_unique(data)
    notes += [f"dependent samples: {n} of rank {data.rank}; the statement holds on their range"] * (data.rank < n)
    return tuple(notes)


def warn_of(data: Regression, reference: Interpolant) -> None:
    """Warn where the prediction is right but says little, or is known to fewer digits than it shows."""
    n, d = data.inputs.shape
    if is_unique(data):
        warn(
            f"{n} samples determine all {d} coefficients: the solution is unique, every training that converges ends there, "
            "and there is no bias to predict."
        )
    elif data.rank < n:
        warn(f"The {n} samples have rank {data.rank}: the prediction holds on their range, with the pseudo-inverse.")
    if not reference.certified:
        warn(f"The reference is not resolved: {unresolved(reference)}.")
    elif not reference.resolved:
        warn(
            "The start is below what float64 resolves on these data: the predicted weight interpolates, "
            "but its small coefficients are not known."
        )


def explained(data: Regression) -> Regression:
    """The data with the least-squares fit for targets, where nothing interpolates: all that a gradient sees of the targets."""
    return data if data.consistent else Regression(data.inputs, data.fitted)


def _unexplained(data: Regression) -> tuple[str, ...]:
    """A note where the reference fits the targets only as well as any weight can."""
    if data.consistent:
        return ()
    share = data.unexplained / float(np.linalg.norm(np.asarray(data.targets)))
    text = f"no weight interpolates: a share of {share:.4g} of the targets is left by every weight; the reference is "
    return (text + "the least-squares solution of least norm or potential, where gradients vanish",)


def checked_start(setting: Setting, start: Any) -> Any:
    """The start of a prediction: that of the setting where none is given, or one of the same shape."""
    usual = setting.start()
    if start is None or not isinstance(usual, jax.Array):  # a point of the Gram form is made by `Gram` itself
        return usual if start is None else start
    found = np.asarray(start, float)
    if found.shape != usual.shape:
        raise ArgumentError("start", "predict", f"of shape {usual.shape}", f"shape {found.shape}")
    if not np.isfinite(found).all():
        raise ArgumentError("start", "predict", "finite", f"{(~np.isfinite(found)).sum()} entries that are not")
    return jnp.asarray(found)


def _step_size(setting: Setting, optimiser: Any, reference: Interpolant, start: Any) -> tuple[Hypothesis, ...]:
    """step * curvature at the limit below 2; for square models the limit moves by O(step)."""
    if isinstance(optimiser, GradientFlow):
        return ()
    potential = own_potential(setting, start)
    inputs = np.asarray(setting.data.inputs)
    curvature = potential.speed(reference.weight)
    load = np.asarray(optimiser.rule.step) * loss_scale(setting) * np.linalg.norm(inputs * np.sqrt(curvature), 2) ** 2
    beta = np.asarray(optimiser.after.beta) if isinstance(optimiser.after, HeavyBall) else np.zeros(())
    load, bound = np.broadcast_arrays(load, 2 * (1 + beta))
    worst = np.unravel_index(np.argmin(bound - load), load.shape)  # of a batch of rules
    load, bound = float(load[worst]), float(bound[worst])
    detail = f"{bound:g} minus step * largest curvature at the limit"
    if potential.name != "l2":
        detail += "; finite steps shift the limit by O(step)"
    return (Hypothesis("step_size", bool(load < bound), float(bound - load), "", detail),)


class _Interpolation(Theorem):
    paper = "linear_models"
    rate = ""
    from_start = True

    def hypotheses(self, setting: Setting, optimiser: Any, reference: Any, start: Any = None) -> tuple[Hypothesis, ...]:
        found = list(interpolation_hypotheses(setting.data))
        if reference.norm != "l2":
            detail = "whether the coefficients that decide the answer are above rounding"
            found.append(Hypothesis("resolved", reference.resolved, 0.0 if reference.resolved else -1.0, "", detail))
        return (*found, *_step_size(setting, optimiser, reference, checked_start(setting, start)))

    def predict(self, setting: Setting, optimiser: Any, start: Any = None) -> Prediction:
        """The interpolant that training from `start` (that of the setting by default) selects."""
        start = checked_start(setting, start)
        potential = own_potential(setting, start)
        reference = minimum_potential(explained(setting.data), potential)
        warn_of(setting.data, reference)
        hypotheses = self.hypotheses(setting, optimiser, reference, start)
        rivals, missing = _rivals(setting, reference, potential)
        rate, notes = self._pace(setting, potential)
        notes = _unexplained(setting.data) + _shape_notes(setting.data) + notes + missing
        return Prediction(self, setting, hypotheses, reference, rivals, rate, notes, start)

    def _pace(self, setting: Setting, potential: Any) -> tuple[str, tuple[str, ...]]:
        """The rate, and a note where coefficients that must vanish spoil it: nonnegative weights reach 0 only in the limit."""
        if not potential.nonnegative:
            return self.rate, ()
        positive, _ = positive_part(np.asarray(setting.data.inputs), np.asarray(setting.data.fitted))
        gone = int((~positive).sum())
        note = f"{gone} of {len(positive)} coefficients are 0 in every nonnegative interpolant"
        return (_ALGEBRAIC, (note,)) if gone else (self.rate, ())

    def judge(self, prediction: Prediction, run: Trajectory) -> Verdict:
        """Compare the final weight with the reference and its rivals, once the run interpolates."""
        setting = prediction.setting
        # A parameter that underflows to 0 is on its way there: only a start at 0 and a change of sign leave the theorem.
        if _is_square(setting) and not (np.all(run.params[0] > 0) and np.all(run.params >= 0)):
            return off_the_theorem(run)
        _check_start(prediction, run)
        if not prediction.reference.certified:
            text = f"the reference is not resolved: {unresolved(prediction.reference)}"
            return Verdict(Outcome.undecided, text, detail=remarks(prediction))
        error = relative_residual(setting.data, run.margins[-1])
        if not error <= FITTED:
            text = f"relative residual {error:.2g} > {FITTED:g}: "
            diverges = run.status is Status.diverging_step
            text += "the run diverges" if diverges else "the run does not interpolate yet"
            return Verdict(Outcome.undecided, text, detail=remarks(prediction))
        verdict = judge_interpolant(prediction, run.weight())
        if verdict.outcome is Outcome.undecided and not _is_square(setting):
            return at_rest(prediction, run)
        return verdict


def _check_start(prediction: Prediction, run: Trajectory) -> None:
    """Raise if the run began elsewhere: the reference is that of one start. Equal is equal but for a logarithm and back."""
    setting, wanted, found = prediction.setting, checked_start(prediction.setting, prediction.start), run.at(0)
    if not _is_square(setting):  # the Gram form has parameters of its own
        wanted, found = setting.weight(wanted), run.setting.weight(found)
    wanted, found = np.asarray(wanted), np.asarray(found)
    if not np.allclose(wanted, found, rtol=1e-12, atol=0.0):
        sizes = f"from a start of norm {np.linalg.norm(found):.6g}, not {np.linalg.norm(wanted):.6g}"
        text = f"a run {sizes}, at a relative distance of {distance(found, wanted):.3g}"
        fix = "predict from the start of the run: `predict(setting, optimiser, run.at(0))`"
        raise ArgumentError("run", "judge", "a run from the start that was predicted", text, fix)


def _rivals(setting: Setting, reference: Interpolant, potential: Any) -> tuple[tuple[Rival, ...], tuple[str, ...]]:
    """The interpolants of other trainings: least l2 norm, and least l1 norm among the weights that the parametrisation has.

    A rival that cannot be had is left out, with a note that says why.
    """
    if is_unique(setting.data):
        return (), ()
    data, others, missing = explained(setting.data), {}, ()
    if potential.name != "l2" or potential.start.any():
        others["l2" if potential.name != "l2" else "l2 from 0"] = minimum_norm(data).weight
    try:
        sparse = basis_pursuit(data, nonnegative=potential.nonnegative)
        others[sparse.norm] = sparse.weight
    except PenchantError as error:
        missing = (f"the rival of least l1 norm is left out: {str(error).splitlines()[0]}",)
    far = {name: weight for name, weight in others.items() if distance(weight, reference.weight) > 0}
    return tuple(Rival(name, weight, distance(weight, reference.weight)) for name, weight in far.items()), missing


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
        and isinstance(optimiser.after, HeavyBall)
    )


class _Proved(_Interpolation):
    """What a theorem adds to the reference: its rate as a number, and what small starts tend to."""

    def predict(self, setting: Setting, optimiser: Any, start: Any = None) -> Prediction:
        begin = checked_start(setting, start)
        return with_numbers(super().predict(setting, optimiser, begin), optimiser, own_potential(setting, begin), begin)


class MinimumNorm(_Proved):
    """Theorem 9.3: descent on the weights themselves ends at the solution nearest to its start."""

    name = "minimum-norm"
    statement = "Gradient flow, descent and heavy ball on least squares converge to the projection of the start on the solutions: from 0, the least l2 norm."
    citation = f"{NOTES}, Theorem 9.3"
    rate = "linear: exp(-kappa s^2 t) in each singular direction"

    def applies(self, setting: Setting, optimiser: Any) -> bool:
        spanned = _first_order(optimiser) or _heavy_ball(optimiser)
        return _is_regression(setting) and not _is_square(setting) and spanned


class MinimumPotential(_Proved):
    """Theorem 9.18, its nonnegative version and its version in any depth: the potential is the one that the start gives the parametrisation."""

    name = "minimum-potential"
    statement = "Gradient flow on square parametrisations converges to the interpolant of least potential: Q_alpha for signed squares (and powers), KL for squares."
    citation = f"{NOTES}, Theorem 9.18"
    rate = "linear at rate c kappa lambda_min(X C X'), C the curvature of the dual potential at the limit, c = 4 (D^2 alpha^(D-2) at depth D)"

    def applies(self, setting: Setting, optimiser: Any) -> bool:
        return _is_regression(setting) and _is_square(setting) and _first_order(optimiser)


class InterpolationConjecture(_Interpolation):
    """No theorem of the catalogue covers the optimiser; the reference of gradient flow is offered as a conjecture."""

    name = "interpolation-conjecture"
    statement = "Conjecture: this optimiser selects the interpolant that gradient flow selects."
    citation = "none"
    rate = "unknown"

    def applies(self, setting: Setting, optimiser: Any) -> bool:
        return _is_regression(setting)

    def hypotheses(self, setting: Setting, optimiser: Any, reference: Any, start: Any = None) -> tuple[Hypothesis, ...]:
        return (*interpolation_hypotheses(setting.data), covered(type(optimiser).__name__))


THEOREMS = (MinimumNorm(), MinimumPotential(), InterpolationConjecture())
