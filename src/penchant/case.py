"""A case: a prediction, a run and the verdict on it, with everything that follows from them, each computed once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from types import MappingProxyType
from typing import Any

import equinox as eqx
import numpy as np

from .diagnostics.direction import misalignment
from .exhibits import Finding
from .norms import L2, Norm
from .optimisers.base import Optimiser
from .references.base import Bracket
from .references.interpolation_bracket import Equations, interpolation_bracket
from .settings.joint import JointTokens
from .settings.regression import Regression
from .theory.base import Prediction
from .theory.families.interpolation import own_potential
from .theory.judge import Certificates, brackets, certificates, judge
from .theory.selections import detect_limit
from .training.trajectory import Trajectory
from .verdict import Outcome, Verdict


@dataclass(frozen=True, eq=False)
class Case:
    """What the terminal, JSON and the page show. Without a prediction (data that nothing separates) the verdict says why.

    `optimiser` is what trained, `made` what a reader needs to make the run again, by name; `separable` is False where data are known not to be.
    """

    prediction: Prediction | None
    run: Trajectory
    verdict: Verdict
    optimiser: eqx.Module | Optimiser | None = None
    made: Mapping[str, str] = field(default_factory=dict)
    separable: bool = True

    @property
    def foreseen(self) -> Prediction:
        """The prediction, for those who speak only where there is one."""
        assert self.prediction is not None
        return self.prediction

    @property
    def finding(self) -> Finding:
        """The sentence that was judged, or that there was none."""
        if self.prediction is None:
            return Finding("No prediction.", self.verdict)
        return Finding(self.prediction.theorem.statement, self.verdict, self.prediction.theorem.citation)

    @property
    def joint(self) -> bool:
        return isinstance(self.run.data, JointTokens)

    @property
    def regression(self) -> bool:
        return isinstance(self.run.data, Regression)

    @cached_property
    def limit(self) -> Any:
        """The tokens that attention has settled on, a `Limit` or `JointLimit`; None for other data."""
        return detect_limit(self.run) if hasattr(self.run.data, "tokens") else None

    @property
    def norm(self) -> Norm:
        """The norm that theory says is minimised; l2 where it says nothing."""
        return L2() if self.prediction is None else self.prediction.reference.measure

    @cached_property
    def brackets(self) -> dict[str, Bracket]:
        """The certificates that the end of the run carries, by the multipliers that prove their lower bounds."""
        return {"accumulated": _interpolant(self.run)} if self.regression else brackets(self.run, self.norm)

    @cached_property
    def certificates(self) -> Certificates:
        """The same at every record, where margins are maximised."""
        return certificates(self.run, self.norm)

    @cached_property
    def places(self) -> dict[str, np.ndarray]:
        """The weights that a run is compared with: the reference first, then its rivals; none without a prediction."""
        if self.prediction is None:
            return {}
        named = {self.prediction.reference.norm: self.prediction.reference.weight}
        return named | {rival.name: rival.weight for rival in self.prediction.rivals}

    @cached_property
    def directions(self) -> dict[str, float]:
        """How far the final weight is from each place; nothing while it is 0."""
        return {name: series[-1] for name, series in self.distances((-1,)).items()} if self.run.weight().any() else {}

    def distances(self, records: Sequence[int] | None = None) -> dict[str, np.ndarray]:
        """1 - corr to each place at every record (the start left out), for a regression |difference| / |reference|; not a number at weight 0."""
        chosen = range(1, len(self.run)) if records is None else records
        weights = [self.run.weight(record) for record in chosen]
        return {name: np.array([self._far(weight, place) for weight in weights]) for name, place in self.places.items()}

    def _far(self, weight: np.ndarray, place: np.ndarray) -> float:
        if not self.regression:
            return misalignment(weight, place)
        return float(np.linalg.norm(weight - place)) / (float(np.linalg.norm(self.foreseen.reference.weight)) or 1.0)

    def __str__(self) -> str:
        return "\n".join(map(str, (self.prediction, self.run, self.verdict)[self.prediction is None :]))

    def __repr__(self) -> str:
        return f"<Case {self.prediction!r}, {self.run!r}, {self.verdict!r}>"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>{self.verdict._repr_html_()}"


def make_case(
    prediction: Prediction | None,
    run: Trajectory,
    why: str = "",
    optimiser: eqx.Module | Optimiser | None = None,
    made: Mapping[str, str] = MappingProxyType({}),
    separable: bool = True,
) -> Case:
    """Judge a run; without a prediction the verdict is `why` there is none."""
    verdict = Verdict(Outcome.undecided, why, hypotheses="open") if prediction is None else judge(prediction, run)
    return Case(prediction, run, verdict, optimiser, made, separable)


def _interpolant(run: Trajectory) -> Bracket:
    """Bounds on the least potential, or on the l2 distance to the start, from the run's own weight and accumulated residuals."""
    data, weight, begin = run.setting.data, run.weight(), run.weight(0)
    potential = own_potential(run.setting, run.at(0))
    if potential.name == "l2":
        inputs = np.asarray(data.inputs)
        left = Equations(inputs, np.asarray(data.fitted) - inputs @ begin)
        return interpolation_bracket(left, weight - begin, run.dual[-1], L2())
    return interpolation_bracket(data, weight, potential.rate * run.dual[-1], potential)
