"""Verdicts on directions and norms: how near a weight is to the reference, whether a rival is nearer, and what a run says of a prediction of the same problem by the same optimiser. A run certifies itself: bounds from its own weights and multipliers."""

import dataclasses
from dataclasses import replace
from typing import Protocol, cast, runtime_checkable

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from ..diagnostics.direction import misalignment
from ..errors import ArgumentError
from ..flow.flow import GradientFlow
from ..logspace import check_float64
from ..norms import Norm
from ..references.base import Bracket, Solution
from ..references.bracket import bracket, margins
from ..settings.base import Data
from ..training.trajectory import Trajectory, settings_of
from ..verdict import Outcome, Verdict
from .base import Prediction

KINDS = ("accumulated", "window", "instant")
_WINDOW = 0.8  # the window of multipliers begins where the margin was margin^0.8


class Certificates(eqx.Module):
    """Bounds per record. `upper` = norm / margin (infinite before the margin is positive); lower bounds from the multipliers
    `accumulated` since the start, in the `window` since the margin was margin^0.8, and at this `instant`."""

    margin: np.ndarray
    upper: np.ndarray
    accumulated: np.ndarray
    window: np.ndarray
    instant: np.ndarray

    @property
    def lower(self) -> np.ndarray:
        """The best lower bound of each record."""
        return np.maximum(np.maximum(self.accumulated, self.window), self.instant)

    def gap(self, kind: str) -> np.ndarray:
        """upper/lower - 1 with the lower bounds of one kind; infinite while one side is missing (not separating yet)."""
        lower = getattr(self, kind)
        return np.where(lower > 0, self.upper / np.where(lower > 0, lower, 1.0) - 1, np.inf)


def certificates(run: Trajectory, norm: Norm) -> Certificates:
    """Bounds on min ||W|| subject to margins >= 1 from the run alone; no solver is involved."""
    rows = []
    for record in range(len(run)):
        found = brackets(run, norm, record)
        rows.append((found["instant"].upper, *(found[kind].lower for kind in KINDS)))
    return Certificates(run.smallest_margin(), *np.array(rows).T)


def brackets(run: Trajectory, norm: Norm, record: int = -1) -> dict[str, Bracket]:
    """The brackets of one record, by the multipliers that prove their lower bounds: `accumulated`, `window`, `instant`."""
    record = range(len(run))[record]
    data, weight = run.setting.data, run.weight(record)
    return {kind: bracket(data, weight, dual, norm) for kind, dual in zip(KINDS, dual_points(run, record), strict=True)}


def dual_points(run: Trajectory, record: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Multipliers gathered since the start, in the window and at the moment of a record."""
    margin, begin = run.smallest_margin(), 0
    if margin[record] > 1:
        begin = int(np.flatnonzero(margin[: record + 1] <= margin[record] ** _WINDOW)[-1:].sum())
    return run.dual[record], run.dual[record] - run.dual[begin], run.weights[record]


def certified(run: Trajectory, norm: Norm, reference: Solution | None = None) -> Trajectory:
    """The run with its bounds in `account`, one entry per record, so that they are saved with it.

    `upper`, `accumulated`, `window`, `instant`, and with a reference also `excess`, the distance of `upper` from the optimum
    the solver found, relative to it.
    """
    found = certificates(run, norm)
    bounds = {name: getattr(found, name) for name in ("upper", *KINDS)}
    if reference is not None:
        bounds["excess"] = found.upper / reference.value - 1
    return dataclasses.replace(run, account={**(run.account or {}), **bounds})


MARGIN = 1e-2  # of the best margin per norm may be missing where a direction is confirmed, as of its correlation
CLOSE = 1e-2  # a run this near the optimum counts as there, if the rivals are ten times farther
_TAIL = 10.0  # margin from which on the multipliers are those of a limit; before, all directions stand still
_SEPARABLE = 1e-6  # rivals whose norm exceeds the optimum by less than this cannot be told from it


def judge_run(prediction: Prediction[Solution], run: Trajectory) -> Verdict:
    """Compare the final direction of a run with the reference and its rivals.

    Confirmed: 1 - corr to the reference is below a tenth of the distance to the nearest rival (and below 1e-2), with 0.99 of the best
    margin, and training has moved the weight farther than its start.
    Refuted: the run is that close to a rival instead, and stays there. Undecided: neither yet, or the rivals are too close together.
    """
    return with_margin(once_trained(judge_direction(prediction, run.weight()), run), prediction, run.weight())


def judge_direction(prediction: Prediction[Solution], weight: np.ndarray) -> Verdict:
    """The verdict on a direction, whoever produced it."""
    bound = min(1e-2, prediction.separation / 10)
    if not np.any(weight):
        return Verdict(Outcome.undecided, "the weight is still 0, which has no direction")
    distance = misalignment(weight, prediction.reference.weight)
    text, remarks = f"1 - corr to the {prediction.reference.norm} reference = {distance:.3g}", prediction.remarks
    if distance <= bound:
        doubt = _doubt(prediction, weight)
        if doubt:
            return Verdict(Outcome.undecided, f"{text} <= {bound:.3g}, but {doubt}", bound, distance, remarks)
        return Verdict(Outcome.confirmed, f"{text} <= {bound:.3g}", bound, distance, remarks)
    for rival in prediction.rivals:
        near = misalignment(weight, rival.weight)
        if near <= bound and near < distance / 10:
            detail = "; ".join([f"1 - corr to the rival '{rival.name}' is {near:.3g}", *([remarks] if remarks else [])])
            return Verdict(Outcome.refuted, f"{text} > {bound:.3g}", bound, distance, detail)
    text = f"{text} > {bound:.3g}, and no rival is that near either"
    return Verdict(Outcome.undecided, text, bound, distance, remarks)


def once_trained(verdict: Verdict, run: Trajectory) -> Verdict:
    """Every run begins along its first gradient and passes near other directions: a rival counts where the run has come to rest."""
    if run.steps[-1] == 0:
        return doubted(verdict, "no step was taken")
    turning = _still_turning(run, cast(float, verdict.predicted)) if verdict.outcome is Outcome.refuted else ""
    return doubted(moved_away(verdict, run), turning)


def doubted(verdict: Verdict, why: str) -> Verdict:
    """The verdict, undecided if there is a reason why its inequality decides nothing."""
    if not why:
        return verdict
    return replace(verdict, outcome=Outcome.undecided, inequality=f"{verdict.inequality}, but {why}")


def moved_away(verdict: Verdict, run: Trajectory) -> Verdict:
    """What a run confirms must be its own work: near its start the direction is that of the start."""
    if verdict.outcome is not Outcome.confirmed:
        return verdict
    first, last = (float(np.linalg.norm(run.weight(record))) for record in (0, -1))
    text = f"the weight has grown from {first:.3g} to {last:.3g} only: it is still that of the start"
    return doubted(verdict, text * (last < 2 * first))


def with_margin(verdict: Verdict, prediction: Prediction[Solution], weight: np.ndarray) -> Verdict:
    """1 - corr is quadratic in the angle and the margin linear: a run may be near in direction with a third of its margin to gain."""
    data, reference = prediction.setting.data, prediction.reference
    if verdict.outcome is not Outcome.confirmed:
        return verdict
    margin = np.asarray(data.margins(jax.device_put(weight)))[data.constrained()].min()
    share = float(margin / np.linalg.norm(weight) / reference.margin)
    short = f"margin/norm is {share:.4g} of its maximum < {1 - MARGIN:g}"
    return doubted(verdict, short * (share < 1 - MARGIN))


def _still_turning(run: Trajectory, bound: float) -> str:
    """Why a direction is not final, or nothing: margins that are not yet large and positive, or a turn while the norm doubled."""
    smallest, largest = float(run.smallest_margin()[-1]), float(np.abs(run.margins[-1]).max())
    if smallest <= 0 or largest < _TAIL:
        return f"margins between {smallest:.3g} and {largest:.3g} (wanted: all positive, one of {_TAIL:g}) are those of a beginning"
    earlier = np.flatnonzero((run.norm > 0) & (run.norm <= run.norm[-1] / 2))
    if not len(earlier):
        return "the norm has not doubled since the first record"
    turned = misalignment(run.weight(int(earlier[-1])), run.weight())
    return f"1 - corr over the last doubling of the norm is {turned:.3g}: it still turns" if turned > bound else ""


def _doubt(prediction: Prediction[Solution], weight: np.ndarray) -> str:
    """Why a direction near the reference confirms nothing: 1 - corr is quadratic in the angle, the smallest margin is not."""
    data, reference = prediction.setting.data, prediction.reference
    if not reference.certified:
        return f"the reference is known only to a relative {reference.bracket.gap:.1e}"
    if not isinstance(data, Data):  # joint training: its margins are judged with the tokens it settles on
        return ""
    margins = np.asarray(data.margins(jax.device_put(weight)))[data.constrained()]
    if margins.min() > 0:
        return ""
    return f"the smallest margin is {margins.min():.3g}: {(margins <= 0).sum()} of {len(margins)} are not positive"


def judge_norm(prediction: Prediction[Solution], run: Trajectory) -> Verdict:
    """Compare the norm at margin 1 with its minimum: the minimiser need not be unique, its norm is."""
    return explained(moved_away(judge_value(prediction, run.weight()), run), prediction.remarks)


def explained(verdict: Verdict, *remarks: str) -> Verdict:
    """The verdict with more to read about it."""
    return replace(verdict, detail="; ".join(part for part in (verdict.detail, *remarks) if part))


def excess(data: Data, weight: np.ndarray, reference: Solution) -> float:
    """norm(W) / margin(W) over its minimum, minus 1; infinite while the margin is not positive."""
    margin = np.asarray(margins(data, weight))[data.constrained()].min()
    return reference.measure.value(weight) / margin / reference.value - 1 if margin > 0 else float("inf")


def judge_value(prediction: Prediction[Solution], weight: np.ndarray) -> Verdict:
    """Confirmed: the excess is below a tenth of that of the nearest rival (and 1e-2). Refuted: the weight is a rival.

    A rival in the direction of the reference is none: `remarks` names it. One in another direction that has the same norm leaves
    undecided whether training minimises this norm or finds that direction for a reason of its own.
    Against a reference that is not certified nothing is decided: its norm may not be the minimum.
    """
    data, reference = prediction.setting.data, prediction.reference
    others = {rival.name: excess(data, rival.weight, reference) for rival in prediction.others}
    nearest = min(others.values(), default=float("inf"))
    measured = excess(data, np.asarray(weight), reference)
    text = f"{reference.measure.name} norm at margin 1 over its minimum - 1 = {measured:.3g}"
    if not np.isfinite(measured):
        return Verdict(Outcome.undecided, "the smallest margin is not positive: not separating", None, measured)
    if not reference.certified:
        known = f"the minimum is known only to a relative {reference.bracket.gap:.1e}"
        return Verdict(Outcome.undecided, f"{text}, but {known}", None, measured)
    if nearest < _SEPARABLE:
        text += f", but a rival is within {nearest:.1e} of the optimum: these data cannot tell them apart"
        return Verdict(Outcome.undecided, text, None, measured)
    bound = min(CLOSE, nearest / 10)
    if measured <= bound:
        detail = f"nearest rival at {nearest:.3g}" if np.isfinite(nearest) else "no other rival separates"
        return Verdict(Outcome.confirmed, f"{text} <= {bound:.3g}", bound, measured, detail)
    for name, value, rival in zip(others, others.values(), prediction.others, strict=True):
        scaled = [np.asarray(w) / np.linalg.norm(w) for w in (weight, rival.weight)]
        if np.linalg.norm(scaled[0] - scaled[1]) <= CLOSE and abs(measured - value) <= 0.1 * value:
            return Verdict(Outcome.refuted, f"{text} > {bound:.3g}", bound, measured, f"it is the rival '{name}'")
    return Verdict(Outcome.undecided, f"{text} > {bound:.3g}, and no rival is near", bound, measured)


JSON = dict | list | str | float | int | bool | None
_FACTS = {True: "hold", False: "fail", None: "open"}


def judge(prediction: Prediction, run: "Run") -> Verdict:
    """The verdict of the predicting theorem on a run of the same setting: whether its conclusion holds there, and whether its hypotheses do.

    A run by another optimiser is judged, said to be one, and not what the theorem is about.
    """
    check_float64()
    _check_same(prediction, run)
    verdict, remark = prediction.theorem.family.judge(prediction, run), other_optimiser(prediction, run)
    verdict = explained(replace(verdict, detail=remark), verdict.detail)
    return replace(verdict, hypotheses="fail" if remark else _FACTS[prediction.holds])


@runtime_checkable
class Run(Protocol):
    """What a verdict asks of a run before it looks at its records: the parts of its problem, none where it saw a sample of it only."""

    @property
    def parts(self) -> dict[str, PyTree]: ...
    @property
    def header(self) -> dict: ...


def _check_same(prediction: Prediction, run: Run) -> None:
    """Raise unless the run is of the setting that was predicted: a verdict on another one would be about nothing."""
    wanted = prediction.setting.parts
    for part, found in run.parts.items():
        difference = _difference(wanted.get(part, prediction.setting), found)
        if difference:
            required, text = f"a run with the {part} of the prediction", f"one with different {part} ({difference})"
            fix = "predict the setting that the run is of"
            fix += ": `predict(run.setting, optimiser)`" * hasattr(run, "setting")
            raise ArgumentError("run", "judge", required, text, fix)


def _difference(wanted: PyTree, found: PyTree) -> str:
    """What tells two values or modules apart, in words; empty if nothing does."""
    if type(wanted) is not type(found):
        return f"{type(found).__name__} instead of {type(wanted).__name__}"
    if isinstance(wanted, str):
        return "" if wanted == found else f"{found} instead of {wanted}"
    first, second = (jax.tree_util.tree_flatten_with_path(one) for one in (wanted, found))
    for (path, one), (_, other) in zip(first[0], second[0], strict=False):
        name = jax.tree_util.keystr(path).strip(".") or type(wanted).__name__
        if np.shape(one) != np.shape(other):
            return f"'{name}' has shape {np.shape(other)} instead of {np.shape(one)}"
        if not (one is other or np.array_equal(one, other)):
            return f"'{name}' has other values"
    if first[1] != second[1]:
        return f"{optimiser_name(settings_of(found))} instead of {optimiser_name(settings_of(wanted))}"
    return ""


def other_optimiser(prediction: Prediction, run: Run) -> str:
    """A remark where the run is by another optimiser than the prediction; empty where it is by the same one."""
    by = run.header.get("optimiser", run.header.get("rule"))
    if prediction.optimiser is None or by is None:
        return ""
    predicted = settings_of(prediction.optimiser)
    if _agree(predicted, by, run.header.get("member")):
        return ""
    return f"the prediction is for {optimiser_name(predicted)}, the run is by {optimiser_name(by)}"


def _agree(predicted: JSON, by: JSON, member: int | None) -> bool:
    """Equal, or one is a member of the other's batch; flows are one optimiser, however finely they are integrated."""
    match predicted, by:
        case {"kind": GradientFlow.__name__}, {"kind": GradientFlow.__name__}:
            return True
        case dict(), dict():
            return predicted.keys() == by.keys() and all(_agree(predicted[one], by[one], member) for one in predicted)
        case list(), list():
            return predicted == by
        case _, list():
            return predicted == (by[member] if member is not None and member < len(by) else None)
        case list(), _:
            return by in predicted
    return bool(predicted == by)


def optimiser_name(settings: JSON) -> str:
    """Constructor arguments as text, those that are switched off left out."""
    match settings:
        case float():
            return f"{settings:g}"
        case {"kind": GradientFlow.__name__}:
            return GradientFlow.__name__
        case list():
            return f"[{', '.join(map(optimiser_name, settings))}]"
        case dict():
            silent = lambda name, value: type(value) is bool or value is None or (value == float("inf") and name != "p")
            shown = {name: value for name, value in settings.items() if name != "kind" and not silent(name, value)}
            parts = [f"{name}=" * (type(value) is not dict) + optimiser_name(value) for name, value in shown.items()]
            return str(settings.get("kind")) + f"({', '.join(parts)})" * bool(parts)
    return str(settings)
