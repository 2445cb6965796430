"""Verdicts on interpolants: how near a weight is to the reference, and whether a rival is nearer."""

import numpy as np

from ..references.base import INTERPOLATES, Interpolant
from ..settings.regression import Regression
from ..training.trajectory import Trajectory
from ..verdict import Outcome, Verdict
from .base import Prediction

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
    return Verdict(
        Outcome.undecided,
        f"a step took a parameter through 0 (smallest recorded {run.params.min():.3g})",
        detail="the potential of the start describes positive parameters only; take a smaller step",
    )


def at_rest(prediction: Prediction, run: Trajectory) -> Verdict:
    """A weight trained directly has at most |r| / s_min left to go: if that is short of the reference, it ends elsewhere."""
    data, weight = prediction.setting.data, run.weight()
    residual = float(np.linalg.norm(run.margins[-1] - np.asarray(data.fitted)))
    sizes = np.linalg.svd(np.asarray(data.inputs), compute_uv=False)
    left = residual / (sizes[data.rank - 1] * _size(prediction.reference.weight))
    far, bound = distance(weight, prediction.reference.weight), min(1e-2, separation(prediction) / 10)
    text = f"{_what(prediction)} = {far:.3g}"
    if far - left > bound:
        return Verdict(
            Outcome.refuted,
            f"{text} > {bound:.3g}",
            bound,
            far,
            f"the run interpolates: it has at most {left:.1g} left to go",
        )
    return Verdict(Outcome.undecided, f"{text} > {bound:.3g}", bound, far)


def _what(prediction: Prediction) -> str:
    return f"relative distance to the {prediction.reference.norm} {what_is_selected(prediction.setting.data)}"


def separation(prediction: Prediction) -> float:
    """Relative distance of the nearest rival that is not the reference itself to within rounding."""
    return min((rival.separation for rival in prediction.rivals if rival.separation > _SAME), default=2.0)


def remarks(prediction: Prediction) -> str:
    """Failed hypotheses, and rivals that these data cannot tell from the reference."""
    same = [rival.name for rival in prediction.rivals if rival.separation <= _SAME]
    failed = [hypothesis.name for hypothesis in prediction.hypotheses if not hypothesis.holds]
    parts = [f"outside the theorem's hypotheses: {', '.join(failed)}"] * bool(failed)
    parts += [f"on these data the reference is also that of: {', '.join(same)}"] * bool(same)
    parts += ["these data have one solution only, whatever training prefers"] * is_unique(prediction.setting.data)
    return "; ".join(parts)


def judge_interpolant(prediction: Prediction, weight: np.ndarray) -> Verdict:
    """Confirmed within a tenth of the distance to the nearest rival (at most 1e-2); refuted if a rival is that near instead.

    Rivals that coincide with the reference are no rivals: they are named, and the others decide.
    """
    bound = min(1e-2, separation(prediction) / 10)
    found, notes = distance(weight, prediction.reference.weight), remarks(prediction)
    text = f"{_what(prediction)} = {found:.3g}"
    if found <= bound:
        rule = "a tenth of the distance to the nearest rival, at most 1e-2" if prediction.rivals else ""
        detail = "; ".join(part for part in (rule, notes) if part)
        return Verdict(Outcome.confirmed, f"{text} <= {bound:.3g}", bound, found, detail)
    size = _size(prediction.reference.weight)  # one unit for all distances that are compared
    others = [rival for rival in prediction.rivals if rival.separation > _SAME]
    apart = [float(np.linalg.norm(weight - rival.weight)) / size for rival in others]
    if others and min(apart) < found / 10:
        near = others[int(np.argmin(apart))]
        detail = "; ".join([f"the rival '{near.name}' is nearer", *([notes] if notes else [])])
        return Verdict(Outcome.refuted, f"{text} > {bound:.3g}", bound, found, detail)
    return Verdict(Outcome.undecided, f"{text} > {bound:.3g}, and no rival is nearer than that", bound, found, notes)


def is_unique(data: Regression) -> bool:
    """Whether the inputs determine all coefficients: there is nothing to select, and no rival."""
    return bool(data.rank == data.inputs.shape[1])
