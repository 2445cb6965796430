"""Theorems and claims: the only place where settings, optimisers and references meet.

A *theorem* speaks about the user's own setting: it checks its hypotheses, predicts a reference direction with its rivals, and
judges a run. A *claim* is one sentence of a paper with evidence on embedded data: a check that can be run, and the same check
with a falsehood planted in it, which must be refuted.
"""

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from html import escape
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ..diagnostics.direction import misalignment
from ..references.base import Solution
from ..settings.base import Data, Setting
from ..training.trajectory import Trajectory
from ..verdict import Outcome, Verdict

_TAIL = 10.0  # margin from which on the multipliers are those of a limit; before, all directions stand still
MARGIN = 1e-2  # of the best margin per norm may be missing where a direction is confirmed, as of its correlation
COINCIDENT = 1e-12  # a rival nearer than this is the reference itself, on these data


class Hypothesis(eqx.Module):
    """A computable condition: `slack` >= 0 where it holds (in the units of the condition), the worst `offender`, and what it says.

    `exactness`, where it is stated, is exact, numerical (up to a tolerance), estimated (from a sample of data), sampled or not checkable;
    `evidence` an array that proves it.
    """

    name: str
    holds: bool | None
    slack: float
    offender: str = ""
    detail: str = ""
    exactness: str = ""
    evidence: Any = None

    @property
    def meaning(self) -> str:
        """What the condition says, and how exactly it is known."""
        return "; ".join(part for part in (self.detail, self.exactness) if part)


def all_hold(hypotheses: Iterable[Hypothesis]) -> bool | None:
    """False if one fails, None if none does but one is open, True if all hold."""
    found = {hypothesis.holds for hypothesis in hypotheses}
    return False if False in found else None if None in found else True


class Rival(eqx.Module):
    """Another direction training might take, and its 1 - corr from the reference direction (regression: another interpolant, and its relative distance)."""

    name: str
    weight: np.ndarray
    separation: float


class Prediction(eqx.Module):
    """What a theorem says of a setting: where training goes, at what rate, and which rivals must be told apart."""

    theorem: "Theorem"
    setting: Any  # a Setting, or an AttentionRegression
    hypotheses: tuple[Hypothesis, ...]
    reference: Any  # a Solution, an Interpolant for regression, or the BalancedMinima of attention regression
    rivals: tuple[Rival, ...]
    rate: str
    notes: tuple[str, ...] = ()  # what the reader should know of the reference: whether it is unique, closed forms
    start: Any = None  # of training, where the reference depends on it
    optimiser: Any = None  # that the prediction is for, so that a verdict can say where a run is by another one

    @property
    def holds(self) -> bool | None:
        """Whether all hypotheses hold. A failed one does not stop the prediction: it is reported."""
        return all_hold(self.hypotheses)

    @property
    def separation(self) -> float:
        """1 - corr of the nearest rival: what a run must resolve to decide anything."""
        return min((rival.separation for rival in self.rivals if rival.separation > COINCIDENT), default=2.0)

    @property
    def remarks(self) -> str:
        """What a reader of the verdict should know: failed hypotheses, and rivals that these data cannot tell apart."""
        failed = [hypothesis.name for hypothesis in self.hypotheses if hypothesis.holds is False]
        same = [rival.name for rival in self.rivals if rival.separation <= COINCIDENT]
        parts = [f"outside the theorem's hypotheses: {', '.join(failed)}"] * bool(failed)
        parts += [f"on these data the reference coincides with: {', '.join(same)}"] * bool(same)
        return "; ".join(parts)

    def __str__(self) -> str:
        """What `penchant predict` prints."""
        from .describe import describe, lines

        return "\n".join(lines(describe(self)))

    def __repr__(self) -> str:
        state = {True: "hold", False: "fail", None: "are open"}[self.holds]
        return f"<Prediction {self.theorem.name}: {self.reference.norm} reference, hypotheses {state}>"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


class Theorem(eqx.Module):
    """A theorem about the user's own setting.

    To write one: give `name`, `paper`, `statement`, `citation` as class attributes; say in `applies` for which settings and
    optimisers it speaks; list its `hypotheses` with slack; `predict` the reference and its rivals. `judge` is shared.
    With `from_start` the reference depends on the start of training, and `predict` takes it as a third argument.
    """

    name = ""
    paper = ""
    statement = ""
    citation = ""
    from_start = False
    problem: ClassVar[type] = Setting  # what it speaks of

    @abstractmethod
    def applies(self, setting: Setting, optimiser: Any) -> bool: ...

    @abstractmethod
    def hypotheses(self, setting: Setting, optimiser: Any, reference: Solution) -> tuple[Hypothesis, ...]: ...

    @abstractmethod
    def predict(self, setting: Setting, optimiser: Any) -> Prediction: ...

    def at_start(self, setting: Setting, optimiser: Any, start: Any) -> tuple[Hypothesis, ...]:
        """What the theorem asks of the start of a run, besides its hypotheses on the setting."""
        return ()

    def judge(self, prediction: Prediction, run: Trajectory) -> Verdict:
        """Compare the final direction of a run with the reference and its rivals.

        Confirmed: 1 - corr to the reference is below a tenth of the distance to the nearest rival (and below 1e-2), with 0.99 of the best
        margin, and training has moved the weight farther than its start.
        Refuted: the run is that close to a rival instead, and stays there. Undecided: neither yet, or the rivals are too close together.
        """
        return with_margin(once_trained(judge_direction(prediction, run.weight()), run), prediction, run.weight())


def judge_direction(prediction: Prediction, weight: np.ndarray) -> Verdict:
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
    return Verdict(
        Outcome.undecided, f"{text} > {bound:.3g}, and no rival is that near either", bound, distance, remarks
    )


def once_trained(verdict: Verdict, run: Trajectory) -> Verdict:
    """Every run begins along its first gradient and passes near other directions: a rival counts where the run has come to rest."""
    if run.steps[-1] == 0:
        return doubted(verdict, "no step was taken")
    turning = _still_turning(run, verdict.predicted) if verdict.outcome is Outcome.refuted else ""
    return doubted(moved_away(verdict, run), turning)


def doubted(verdict: Verdict, why: str) -> Verdict:
    """The verdict, undecided if there is a reason why its inequality decides nothing."""
    if not why:
        return verdict
    return replace(verdict, outcome=Outcome.undecided, inequality=f"{verdict.inequality}, but {why}")


def moved_away(verdict: Verdict, run: Trajectory) -> Verdict:
    """What a run confirms must be its own work: near its start the direction is that of the start."""
    return doubted(verdict, _still_there(run)) if verdict.outcome is Outcome.confirmed else verdict


def _still_there(run: Trajectory) -> str:
    first, last = (float(np.linalg.norm(run.weight(record))) for record in (0, -1))
    return f"the weight has grown from {first:.3g} to {last:.3g} only: it is still that of the start" * (
        last < 2 * first
    )


def with_margin(verdict: Verdict, prediction: Prediction, weight: np.ndarray) -> Verdict:
    """1 - corr is quadratic in the angle and the margin linear: a run may be near in direction with a third of its margin to gain."""
    data, reference = prediction.setting.data, prediction.reference
    if verdict.outcome is not Outcome.confirmed:
        return verdict
    margin = np.asarray(data.margins(jnp.asarray(weight)))[data.constrained()].min()
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


def _doubt(prediction: Prediction, weight: np.ndarray) -> str:
    """Why a direction near the reference confirms nothing: 1 - corr is quadratic in the angle, the smallest margin is not."""
    data, reference = prediction.setting.data, prediction.reference
    if not reference.certified:
        return f"the reference is known only to a relative {reference.bracket.gap:.1e}"
    if not isinstance(data, Data):  # joint training: its margins are judged with the tokens it settles on
        return ""
    margins = np.asarray(data.margins(jnp.asarray(weight)))[data.constrained()]
    if margins.min() > 0:
        return ""
    return f"the smallest margin is {margins.min():.3g}: {(margins <= 0).sum()} of {len(margins)} are not positive"


def rivals(reference: Solution, others: dict[str, np.ndarray]) -> tuple[Rival, ...]:
    """Other directions with their distance from the reference."""
    found = {name: np.asarray(weight) for name, weight in others.items() if np.any(weight)}
    return tuple(Rival(name, weight, misalignment(weight, reference.weight)) for name, weight in found.items())
