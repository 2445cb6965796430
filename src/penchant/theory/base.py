"""Theorems as data, and the families of references they share: the only place where settings, optimisers and references meet.

A *family* says what training could select on one kind of problem: the reference, its rivals, and how a run is judged. A *theorem* of
it says which optimisers it covers and what it assumes. Where none covers the optimiser, the family still answers, and says so.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from html import escape
from typing import Any, Generic, TypeGuard

import equinox as eqx
import numpy as np
from jaxtyping import PyTree
from typing_extensions import TypeVar

from ..diagnostics.direction import misalignment
from ..errors import ArgumentError, UnknownLimit, kind
from ..norms import L2, STEEPEST, Linf, Norm, Spectral
from ..optimisers.base import Adam, Decayed, Descent, Minibatches, turns_at
from ..optimisers.newton_schulz import NewtonSchulz
from ..problem import Problem
from ..references.base import Reference, Solution
from ..settings.base import Parametrisation, Setting
from ..training.batch import single_start
from ..verdict import Verdict

COINCIDENT = 1e-12  # of directions
R = TypeVar("R", bound=Reference, default=Any, covariant=True)
P = TypeVar("P", bound=Problem, default=Any, covariant=True)


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
    evidence: np.ndarray | None = None

    @property
    def meaning(self) -> str:
        """What the condition says, and how exactly it is known."""
        return "; ".join(part for part in (self.detail, self.exactness) if part)


def at_least_zero(name: str, slack: float, offender: str = "", detail: str = "", exactness: str = "") -> Hypothesis:
    """A condition that holds where its slack is not negative."""
    return Hypothesis(name, bool(slack >= 0), float(slack), offender, detail, exactness)


def all_hold(hypotheses: Iterable[Hypothesis]) -> bool | None:
    """False if one fails, None if none does but one is open, True if all hold."""
    found = {hypothesis.holds for hypothesis in hypotheses}
    return False if False in found else None if None in found else True


def covered(name: str) -> Hypothesis:
    """The theorem speaks of another optimiser: its conclusion is a conjecture here."""
    detail = "no theorem of the catalogue covers this optimiser; the reference is a conjecture"
    return Hypothesis("optimiser_covered", False, -1.0, name, detail)


def made_of(problem: Problem, data: type, *parametrisations: type) -> TypeGuard[Setting]:
    """Whether a problem is a setting of this kind of data, in one of these parametrisations (in any, where none is named)."""
    if not (isinstance(problem, Setting) and isinstance(problem.data, data)):
        return False
    return not parametrisations or isinstance(problem.parametrisation, parametrisations)


def norm_of(optimiser: Any) -> Norm:
    """The norm in which the steps of an optimiser are steepest in the end; of five Newton-Schulz steps the one that they were made for."""
    if np.isfinite(turns_at(optimiser)):
        return L2()
    match optimiser:
        case Decayed() | Minibatches():
            return norm_of(optimiser.optimiser)
        case Adam():
            return Linf()
        case Descent(geometry=NewtonSchulz()):
            return Spectral()
        case Descent():
            return optimiser.geometry  # pyright: ignore[reportReturnType]
    return L2()


class Rival(eqx.Module):
    """Another direction training might take, and its 1 - corr from the reference direction (regression: another interpolant, and its relative distance)."""

    name: str
    weight: np.ndarray
    separation: float


def rivals(reference: Solution, others: dict[str, np.ndarray]) -> tuple[Rival, ...]:
    """Other directions with their distance from the reference."""
    found = {name: np.asarray(weight) for name, weight in others.items() if np.any(weight)}
    return tuple(Rival(name, weight, misalignment(weight, reference.weight)) for name, weight in found.items())


class Prediction(eqx.Module, Generic[R, P]):
    """What a theorem says of a setting: where training goes, at what rate, and which rivals must be told apart."""

    theorem: "Theorem"
    setting: P
    hypotheses: tuple[Hypothesis, ...]
    reference: R
    rivals: tuple[Rival, ...]
    rate: str
    notes: tuple[str, ...] = ()  # what the reader should know of the reference: whether it is unique, closed forms
    start: PyTree = None  # of training, where the reference depends on it
    optimiser: Any = None  # that the prediction is for, so that a verdict can say where a run is by another one

    @property
    def holds(self) -> bool | None:
        """Whether all hypotheses hold. A failed one does not stop the prediction: it is reported."""
        return all_hold(self.hypotheses)

    @property
    def separation(self) -> float:
        """Of the nearest rival that is not the reference itself: what a run must resolve to decide anything."""
        return min((rival.separation for rival in self.others), default=2.0)

    @property
    def others(self) -> tuple[Rival, ...]:
        """The rivals that these data tell from the reference."""
        return tuple(rival for rival in self.rivals if rival.separation > self.theorem.family.same)

    @property
    def remarks(self) -> str:
        """What a reader of the verdict should know: failed hypotheses, and rivals that these data cannot tell apart."""
        failed = [hypothesis.name for hypothesis in self.hypotheses if hypothesis.holds is False]
        same = [rival.name for rival in self.rivals if rival.separation <= self.theorem.family.same]
        parts = [f"outside the theorem's hypotheses: {', '.join(failed)}"] * bool(failed)
        parts += [f"on these data the reference coincides with: {', '.join(same)}"] * bool(same)
        return "; ".join(parts)

    def hypothesis(self, name: str) -> Hypothesis | None:
        """The hypothesis of this name, where the theorem has it."""
        return next((one for one in self.hypotheses if one.name == name), None)

    def __str__(self) -> str:
        """What `penchant predict` prints."""
        from .describe import describe, lines

        return "\n".join(lines(describe(self)))

    def __repr__(self) -> str:
        state = {True: "hold", False: "fail", None: "are open"}[self.holds]
        return f"<Prediction {self.theorem.name}: {self.reference.norm} reference, hypotheses {state}>"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


@dataclass(frozen=True, eq=False)
class Family:
    """What training could select on one kind of problem, whoever proves it.

    `reference(problem, start)` comes first. What follows takes the prediction as far as it is known, with its setting, optimiser and reference:
    `rivals`, the `conditions` that all theorems share, `notes`, `rate`, and `at_start(prediction, start)`, what is asked of a start.
    `judge(prediction, run)` is the verdict. `begin(problem, start)` is the start where the reference depends on it. `conjecture` is the sentence of its answer
    where no theorem covers the optimiser but the family `offers` it an answer; without one it is silent there.
    """

    name: str
    paper: str
    speaks_of: Callable[..., bool]
    reference: Callable[..., Reference]
    rivals: Callable[..., tuple[Rival, ...]]
    judge: Callable[..., Verdict]
    conditions: Callable[..., tuple[Hypothesis, ...]]
    conjecture: str = ""
    citation: str = "none"
    pace: str = "unknown"
    rate: Callable[..., str] = lambda prediction: prediction.theorem.rate
    notes: Callable[..., tuple[str, ...]] = lambda prediction: ()
    at_start: Callable[..., tuple[Hypothesis, ...]] = lambda prediction, start: ()
    begin: Callable[..., PyTree] = lambda problem, start: None
    called: Callable[..., str] = lambda optimiser: type(optimiser).__name__
    of: "Callable[[object], Family] | None" = None  # the family of an optimiser, where the reference depends on it
    offers: Callable[..., bool] = lambda optimiser: norm_of(optimiser).name == "l2"  # whom the conjecture is about
    same: float = COINCIDENT  # a rival nearer than this is the reference itself, on these data

    def answer(self, known: bool) -> "Theorem":
        """The bare answer; `known` where a theorem covers the optimiser, but not this problem."""
        missing = lambda asked: () if known else (covered(self.called(asked.optimiser)),)
        hypotheses = lambda asked: (*self.conditions(asked), *missing(asked))
        return Theorem(
            f"{self.name}-conjecture", self.conjecture, self.citation, self, lambda one: True, hypotheses, self.pace
        )


@dataclass(frozen=True, eq=False)
class Theorem:
    """A theorem about the user's own setting, as data.

    It speaks of the problems of its `family` (of those that it is `about`) trained by the optimisers that it `covers`; `hypotheses(prediction)` has
    the prediction with its setting, optimiser and reference (None: the conditions of the family). `refine` may add to the whole prediction.
    """

    name: str
    statement: str
    citation: str
    family: Family
    covers: Callable[..., bool]
    hypotheses: Callable[..., tuple[Hypothesis, ...]] | None = None
    rate: str = ""
    about: Callable[..., bool] = lambda problem: True
    refine: Callable[[Prediction], Prediction] = lambda prediction: prediction

    @property
    def paper(self) -> str:
        return self.family.paper

    def applies(self, problem: Problem, optimiser: object) -> bool:
        return self.family.speaks_of(problem) and self.about(problem) and self.covers(optimiser)

    def predict(self, problem: Problem, optimiser: object, start: PyTree = None) -> Prediction:
        """What the theorem says of training `problem`, whether or not it covers the optimiser; with a start, of training from there."""
        family = self.family if self.family.of is None else self.family.of(optimiser)
        begin = family.begin(problem, start)
        theorem = self if family is self.family else replace(self, family=family)
        found = Prediction(theorem, problem, (), family.reference(problem, begin), (), "", (), begin, optimiser)
        found = replace(found, hypotheses=(self.hypotheses or family.conditions)(found))
        found = replace(found, rivals=family.rivals(found), rate=family.rate(found), notes=family.notes(found))
        found = self.refine(found)
        if start is None:
            return found
        asked = family.at_start(found, start)
        names = {one.name for one in asked}
        kept = tuple(one for one in found.hypotheses if one.name not in names)  # those were about the default start
        return replace(found, hypotheses=kept + asked)


def predict(theorems: Iterable[Theorem], problem: object, optimiser: object, start: PyTree = None) -> Prediction:
    """What `theorems` say of training `problem` with `optimiser`; see `penchant.predict`."""
    if not isinstance(problem, Problem) or isinstance(problem, type):
        wanted, fix = "a Setting or an AttentionRegression", "Setting(data, Direct(), Exponential())"
        raise ArgumentError("setting", "predict", wanted, kind(problem), fix)
    theorem = choose(theorems, problem, optimiser)
    if start is not None and made_of(problem, object, Parametrisation):
        start = single_start(problem, start, "predict")  # those of joint training and of papers are kinds of their own
    return theorem.predict(problem, optimiser, start)


def choose(theorems: Iterable[Theorem], problem: Problem, optimiser: object) -> Theorem:
    """The theorem that covers the optimiser, in whatever order theorems stand; else the answer of the family that speaks of the problem."""
    speaking = []
    for theorem in theorems:  # one by one: a paper is opened when it is reached
        if theorem.family.speaks_of(problem):
            if theorem.about(problem) and theorem.covers(optimiser):
                return theorem
            speaking.append(theorem)
    families = [theorem.family for theorem in speaking if theorem.family.conjecture]
    if not families:
        raise ArgumentError("setting", "predict", "one that a theorem of the catalogue speaks about", problem.kind)
    norm = norm_of(optimiser)  # a geometry of the user's own need not be one, nor have a name
    offered = (one for one in families if isinstance(norm, STEEPEST) and one.offers(optimiser))
    if (family := next(offered, None)) is None:
        raise UnknownLimit(type(optimiser).__name__, getattr(norm, "name", type(norm).__name__), problem.kind)
    known = any(one.family is family and one.covers(optimiser) for one in speaking)
    return (replace(family.of(optimiser), name=family.name) if family.of else family).answer(known)
