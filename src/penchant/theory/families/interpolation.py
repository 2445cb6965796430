"""What training a regression could select: the interpolant of least potential, its rivals, and the verdict on a weight."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from ...errors import ArgumentError, PenchantError, warn
from ...flow.mirror import loss_scale
from ...optimisers.base import Decayed, turns_at
from ...references.base import INTERPOLATES, Interpolant
from ...references.interpolation import basis_pursuit, minimum_norm, minimum_potential
from ...references.linear_programs import positive_part
from ...settings.base import Setting
from ...settings.potentials import AbstractPotential, Quadratic
from ...settings.regression import Regression
from ...training.status import Status
from ...training.trajectory import Trajectory
from ...verdict import Outcome, Verdict
from ..base import Family, Hypothesis, Prediction, Rival, at_least_zero, made_of, norm_of
from .linear import is_flow

_ALGEBRAIC = "residual ~ 1/t: coefficients that vanish in every nonnegative interpolant need an infinite push"
_SAME = 1e-9  # interpolants that are nearer to each other than this are one, to what a run can show
FITTED = 1e-6  # relative residual above which a run has not interpolated yet


def _size(weight: np.ndarray) -> float:
    """The norm of a weight, 1 if it is 0."""
    return float(np.linalg.norm(weight)) or 1.0


def distance(weight: np.ndarray, reference: np.ndarray) -> float:
    """|weight - reference| / |reference| (absolute if the reference is 0): interpolants have a size, not only a direction."""
    return float(np.linalg.norm(weight - reference)) / _size(reference)


def relative_residual(data: Regression, margins: np.ndarray) -> float:
    """|X theta - fitted| / |fitted|; for targets that are all 0, relative to the largest prediction of a unit weight."""
    fitted = np.asarray(data.fitted)
    size = float(np.linalg.norm(fitted)) or float(np.linalg.norm(np.asarray(data.inputs), 2))
    return float(np.linalg.norm(np.asarray(margins) - fitted)) / size


def what_is_selected(data: Regression) -> str:
    """What a reference on these data is: targets that no weight explains leave only the minima of the squared error to choose from."""
    return "interpolant" if data.consistent else "least-squares solution"


def unresolved(reference: Interpolant) -> str:
    """Why a reference that is not certified is not: what float64 leaves open."""
    if not reference.bracket.infeasibility <= INTERPOLATES:
        return f"float64 leaves its weight a relative residual of {reference.bracket.infeasibility:.1g}"
    return "float64 does not bound its value to six digits; a start nearer to the size of the coefficients, or samples and columns of similar size, would"


def off_the_theorem(run: Trajectory) -> Verdict:
    """The potential of a start describes positive parameters only."""
    if not np.all(run.params[0] > 0):
        text = f"the start has parameters that are not positive (smallest {run.params[0].min():.3g})"
        return Verdict(Outcome.undecided, text, detail="the potential is that of a start with positive entries")
    text = f"a step took a parameter through 0 (smallest recorded {run.params.min():.3g})"
    detail = "the potential of the start describes positive parameters only; take a smaller step"
    return Verdict(Outcome.undecided, text, detail=detail)


def at_rest(prediction: Prediction[Interpolant], run: Trajectory) -> Verdict:
    """A weight trained directly has at most |r| / s_min left to go: if that is short of the reference, it ends elsewhere."""
    data, weight = prediction.setting.data, run.weight()
    residual = float(np.linalg.norm(run.margins[-1] - np.asarray(data.fitted)))
    sizes = np.linalg.svd(np.asarray(data.inputs), compute_uv=False)
    left = residual / (sizes[data.rank - 1] * _size(prediction.reference.weight))
    far, bound = distance(weight, prediction.reference.weight), min(1e-2, prediction.separation / 10)
    text = f"{_what(prediction)} = {far:.3g}"
    if far - left > bound:
        detail = f"the run interpolates: it has at most {left:.1g} left to go"
        return Verdict(Outcome.refuted, f"{text} > {bound:.3g}", bound, far, detail)
    return Verdict(Outcome.undecided, f"{text} > {bound:.3g}", bound, far)


def _what(prediction: Prediction[Interpolant]) -> str:
    return f"relative distance to the {prediction.reference.norm} {what_is_selected(prediction.setting.data)}"


def judge_interpolant(prediction: Prediction[Interpolant], weight: np.ndarray) -> Verdict:
    """Confirmed within a tenth of the distance to the nearest rival (at most 1e-2); refuted if a rival is that near instead.

    Rivals that coincide with the reference are no rivals: they are named, and the others decide.
    """
    bound = min(1e-2, prediction.separation / 10)
    found, notes = distance(weight, prediction.reference.weight), prediction.remarks
    text = f"{_what(prediction)} = {found:.3g}"
    if found <= bound:
        rule = "a tenth of the distance to the nearest rival, at most 1e-2" if prediction.rivals else ""
        alone = "these data have one solution only, whatever training prefers" * is_unique(prediction.setting.data)
        detail = "; ".join(part for part in (rule, notes, alone) if part)
        return Verdict(Outcome.confirmed, f"{text} <= {bound:.3g}", bound, found, detail)
    size = _size(prediction.reference.weight)  # one unit for all distances that are compared
    others = prediction.others
    apart = [float(np.linalg.norm(weight - rival.weight)) / size for rival in others]
    if others and min(apart) < found / 10:
        near = others[int(np.argmin(apart))]
        detail = "; ".join([f"the rival '{near.name}' is nearer", *([notes] if notes else [])])
        return Verdict(Outcome.refuted, f"{text} > {bound:.3g}", bound, found, detail)
    return Verdict(Outcome.undecided, f"{text} > {bound:.3g}, and no rival is nearer than that", bound, found, notes)


def is_unique(data: Regression) -> bool:
    """Whether the inputs determine all coefficients: there is nothing to select, and no rival."""
    return bool(data.rank == data.inputs.shape[1])


def is_square(setting: Setting) -> bool:
    """Whether training starts at an alpha, as that of squares and powers does, whose potential is that of the start."""
    return hasattr(setting.parametrisation, "alpha")


def own_potential(setting: Setting, start: PyTree) -> AbstractPotential:
    """What gradient flow from `start` minimises among interpolants; plain weights and their Gram form have the same."""
    if is_square(setting):
        return setting.parametrisation.potential(start)
    return Quadratic(np.asarray(setting.weight(start)))


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
        text = f"{n} samples determine all {d} coefficients: the solution is unique, every training that converges ends there"
        warn(f"{text}, and there is no bias to predict.")
    elif data.rank < n:
        warn(f"The {n} samples have rank {data.rank}: the prediction holds on their range, with the pseudo-inverse.")
    if not reference.certified:
        warn(f"The reference is not resolved: {unresolved(reference)}.")
    elif not reference.resolved:
        text = "The start is below what float64 resolves on these data: the predicted weight interpolates"
        warn(f"{text}, but its small coefficients are not known.")


def explained(data: Regression) -> Regression:
    """The data with the least-squares fit for targets, where nothing interpolates: all that a gradient sees of the targets."""
    return data if data.consistent else Regression(data.inputs, data.fitted)


def _unexplained(data: Regression) -> tuple[str, ...]:
    """A note where the reference fits the targets only as well as any weight can."""
    if data.consistent:
        return ()
    share = data.unexplained / float(np.linalg.norm(np.asarray(data.targets)))
    text = f"no weight interpolates, if singular values below 1e-12 of the largest are 0: a share of {share:.4g} of the targets is left; the reference is "
    return (text + "the least-squares solution of least norm or potential, where gradients vanish",)


def checked_start(setting: Setting, start: PyTree) -> PyTree:
    """The start of a prediction: that of the setting where none is given, or one of the same shape."""
    usual = setting.start()
    if start is None or not isinstance(usual, jax.Array):  # a point of the Gram form is made by `Gram` itself
        return usual if start is None else start
    found = np.array(start, float)  # a copy: what is put on a device may stay where it was
    if found.shape != usual.shape:
        raise ArgumentError("start", "predict", f"of shape {usual.shape}", f"shape {found.shape}")
    if not np.isfinite(found).all():
        raise ArgumentError("start", "predict", "finite", f"{(~np.isfinite(found)).sum()} entries that are not")
    return jax.device_put(found)


def _step_size(setting: Setting, optimiser: Any, reference: Interpolant, start: PyTree) -> tuple[Hypothesis, ...]:
    """step * curvature at the limit below 2; for square models the limit moves by O(step)."""
    if is_flow(optimiser):
        return ()
    potential = own_potential(setting, start)
    inputs = np.asarray(setting.data.inputs)
    curvature = potential.speed(reference.weight)
    load = np.asarray(optimiser.rule.step) * loss_scale(setting) * np.linalg.norm(inputs * np.sqrt(curvature), 2) ** 2
    beta = np.zeros(()) if optimiser.after is None else np.asarray(optimiser.after.beta)
    load, bound = np.broadcast_arrays(load, 2 * (1 + beta))
    worst = np.unravel_index(np.argmin(bound - load), load.shape)  # of a batch of rules
    load, bound = float(load[worst]), float(bound[worst])
    detail = f"{bound:g} minus step * largest curvature at the limit"
    if potential.name != "l2":
        detail += "; finite steps shift the limit by O(step)"
    return (Hypothesis("step_size", bool(load < bound), float(bound - load), "", detail),)


def proved(asked: Prediction[Interpolant]) -> tuple[Hypothesis, ...]:
    """What both theorems assume: targets that can be met, coefficients above rounding, and short steps."""
    found, reference = list(interpolation_hypotheses(asked.setting.data)), asked.reference
    if reference.norm != "l2":
        detail = "whether the coefficients that decide the answer are above rounding"
        found.append(at_least_zero("resolved", 0.0 if reference.resolved else -1.0, "", detail))
    return (*found, *_step_size(asked.setting, asked.optimiser, reference, asked.start))


def _reference(setting: Setting, start: PyTree) -> Interpolant:
    """The interpolant that training from `start` (that of the setting by default) selects."""
    found = minimum_potential(explained(setting.data), own_potential(setting, start))
    warn_of(setting.data, found)
    return found


def _vanishing(asked: Prediction[Interpolant]) -> tuple[int, int]:
    """How many coefficients are 0 in every interpolant that the parametrisation has, of how many: nonnegative weights reach 0 only in the limit."""
    data = asked.setting.data
    if not own_potential(asked.setting, asked.start).nonnegative:
        return 0, 0
    positive, _ = positive_part(np.asarray(data.inputs), np.asarray(data.fitted))
    return int((~positive).sum()), len(positive)


def _notes(asked: Prediction[Interpolant]) -> tuple[str, ...]:
    data, (gone, count) = asked.setting.data, _vanishing(asked)
    pace = (f"{gone} of {count} coefficients are 0 in every nonnegative interpolant",) * bool(gone)
    return _unexplained(data) + _shape_notes(data) + pace + _others(asked)[1]


def _judge(prediction: Prediction[Interpolant], run: Trajectory) -> Verdict:
    """Compare the final weight with the reference and its rivals, once the run interpolates."""
    setting = prediction.setting
    # A parameter that underflows to 0 is on its way there: only a start at 0 and a change of sign leave the theorem.
    if is_square(setting) and not (np.all(run.params[0] > 0) and np.all(run.params >= 0)):
        return off_the_theorem(run)
    _check_start(prediction, run)
    if not prediction.reference.certified:
        text = f"the reference is not resolved: {unresolved(prediction.reference)}"
        return Verdict(Outcome.undecided, text, detail=prediction.remarks)
    error = relative_residual(setting.data, run.margins[-1])
    if not error <= FITTED:
        text = f"relative residual {error:.2g} > {FITTED:g}: "
        text += "the run diverges" if run.status is Status.diverging_step else "the run does not interpolate yet"
        return Verdict(Outcome.undecided, text, detail=prediction.remarks)
    verdict = judge_interpolant(prediction, run.weight())
    if verdict.outcome is Outcome.undecided and not is_square(setting):
        return at_rest(prediction, run)
    return verdict


def _check_start(prediction: Prediction[Interpolant], run: Trajectory) -> None:
    """Raise if the run began elsewhere: the reference is that of one start. Equal is equal but for a logarithm and back."""
    setting, wanted, found = prediction.setting, checked_start(prediction.setting, prediction.start), run.at(0)
    if not is_square(setting):  # the Gram form has parameters of its own
        wanted, found = setting.weight(wanted), run.setting.weight(found)
    wanted, found = np.asarray(wanted), np.asarray(found)
    if not np.allclose(wanted, found, rtol=1e-12, atol=0.0):
        sizes = f"from a start of norm {np.linalg.norm(found):.6g}, not {np.linalg.norm(wanted):.6g}"
        text = f"a run {sizes}, at a relative distance of {distance(found, wanted):.3g}"
        fix = "predict from the start of the run: `predict(setting, optimiser, run.at(0))`"
        raise ArgumentError("run", "judge", "a run from the start that was predicted", text, fix)


def _others(asked: Prediction[Interpolant]) -> tuple[tuple[Rival, ...], tuple[str, ...]]:
    """The interpolants of other trainings: least l2 norm, and least l1 norm among the weights that the parametrisation has.

    A rival that cannot be had is left out, with a note that says why.
    """
    setting, reference = asked.setting, asked.reference
    if is_unique(setting.data):
        return (), ()
    potential = own_potential(setting, asked.start)
    data, others, missing = explained(setting.data), {}, ()
    if potential.least != "l2 norm":
        others["l2 from 0" if potential.name == "l2" else "l2"] = minimum_norm(data).weight
    try:
        sparse = basis_pursuit(data, nonnegative=potential.nonnegative)
        others[sparse.norm] = sparse.weight
    except PenchantError as error:
        missing = (f"the rival of least l1 norm is left out: {str(error).splitlines()[0]}",)
    far = {name: weight for name, weight in others.items() if distance(weight, reference.weight) > 0}
    return tuple(Rival(name, weight, distance(weight, reference.weight)) for name, weight in far.items()), missing


def _stays_in_span(optimiser: eqx.Module) -> bool:
    """Whether steps are combinations of gradients: others leave the span of the inputs, and their limit depends on every step."""
    parts = optimiser, getattr(optimiser, "optimiser", optimiser)
    turns = np.isfinite(turns_at(optimiser)) or any(isinstance(one, Decayed) for one in parts)
    return norm_of(optimiser).name == "l2" and not turns


PLAIN = Family(
    "interpolation",
    "linear_models",
    lambda problem: made_of(problem, Regression) and not is_square(problem),
    _reference,
    lambda asked: _others(asked)[0],
    _judge,
    lambda asked: interpolation_hypotheses(asked.setting.data),
    "Conjecture: this optimiser selects the interpolant that gradient flow selects.",
    rate=lambda asked: _ALGEBRAIC if _vanishing(asked)[0] else asked.theorem.rate,
    notes=_notes,
    begin=checked_start,
    offers=_stays_in_span,
    same=_SAME,
)
SQUARES = replace(PLAIN, speaks_of=lambda problem: made_of(problem, Regression) and is_square(problem))
