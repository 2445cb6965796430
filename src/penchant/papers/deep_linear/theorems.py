"""Deep linear networks: the theorem for the user's own data, and the rates that follow from the geometry of its support vectors."""

from typing import Any

import numpy as np

from ...errors import warn
from ...flow.flow import GradientFlow
from ...optimisers.layerwise import LayerDescent
from ...optimisers.step_rules import Constant
from ...references.base import Solution
from ...references.euclidean_margin import max_margin
from ...references.support_geometry import SupportGeometry, support_geometry
from ...settings.base import Setting
from ...settings.classification import Classification
from ...settings.deep_linear import DeepLinear
from ...settings.losses import Exponential
from ...theory.base import Hypothesis, Prediction, Theorem
from ...theory.families.linear import SLOW, covered, divided, linear_rivals, plain, separable
from ...theory.layer_hypotheses import (
    data_norm,
    generic,
    loss_shape,
    proved_steps,
    smooth_below_start,
    smooth_loss,
    span,
    start_below_zero,
)
from ...training.trajectory import Trajectory
from ...verdict import Verdict

JI = "Ji, Telgarsky, Gradient descent aligns the layers of deep linear networks, ICLR 2019"


class DeepLinearMaxMargin(Theorem):
    """Theorems 1 to 4: flow and descent align the layers and turn the network to the l2 maximum margin."""

    name = "deep-linear-max-margin"
    paper = "deep_linear"
    statement = "On separable data flow and descent on a deep linear network align adjacent layers, and the network converges in direction to the l2 maximum margin."
    citation = f"{JI}, Theorems 1 to 4"

    def applies(self, setting: Setting, optimiser: Any) -> bool:
        known = isinstance(optimiser, GradientFlow | LayerDescent) or plain(optimiser, Constant)
        return _is_deep(setting) and known

    def hypotheses(self, setting: Setting, optimiser: Any, reference: Solution) -> tuple[Hypothesis, ...]:
        geometry = support_geometry(setting.data, reference)
        found = [
            separable(reference),
            data_norm(setting.data),
            loss_shape(setting.loss),
            *span(geometry),
            generic(geometry),
        ]
        if not isinstance(optimiser, GradientFlow):
            found += [smooth_loss(setting), proved_steps(setting, optimiser)]
        return tuple(found)

    def at_start(self, setting: Setting, optimiser: Any, start: Any) -> tuple[Hypothesis, ...]:
        found = [start_below_zero(setting, start)]
        if isinstance(setting.loss, Exponential) and not isinstance(optimiser, GradientFlow):
            found.append(smooth_below_start(setting, optimiser, start))
        return tuple(found)

    def predict(self, setting: Setting, optimiser: Any) -> Prediction:
        reference = max_margin(setting.data)
        _warn_of_span(support_geometry(setting.data, reference))
        return Prediction(
            self,
            setting,
            self.hypotheses(setting, optimiser, reference),
            reference,
            linear_rivals(setting, reference),
            _rate(setting, reference),
            divided(setting.data, reference),
        )

    def judge(self, prediction: Prediction, run: Trajectory) -> Verdict:
        """The direction, as for every theorem. A start above the risk of zero is named, because nothing is promised from there."""
        found = Theorem.judge(self, prediction, run)
        start = start_below_zero(run.setting, run.at(0))
        if start.holds or any(one.name == start.name for one in prediction.hypotheses):
            return found
        detail = "; ".join(
            part for part in (found.detail, "the start violates Assumption 2: nothing is promised") if part
        )
        return Verdict(found.outcome, found.inequality, found.predicted, found.measured, detail)


def _warn_of_span(geometry: SupportGeometry) -> None:
    if not geometry.spans:
        d = len(geometry.direction)
        text = f"Support vectors with dual weight have rank {geometry.pulling_rank} of {d} (Assumption 3): convergence to the maximum margin is not proved, and slower."
        warn(text)


def _rate(setting: Setting, reference: Solution) -> str:
    """How the direction turns and the layers align; powers of -log R, with their constants where these do not depend on the start."""
    depth, geometry = setting.parametrisation.depth, support_geometry(setting.data, reference)
    if not loss_shape(setting.loss).holds:
        return SLOW
    if not geometry.spans:
        return _rate_outside(depth, geometry)
    lead = geometry.margin * float(np.linalg.norm(geometry.offset))
    turn = f"~ {lead:.6g} / (-log R)" if lead > 1e-12 else "falls faster than 1 / (-log R)"
    if len(geometry.direction) == 1:
        turn = "= 0: there is one direction"
    return (
        f"sin(angle) {turn}; 1 - spectral/Frobenius ~ (-log R)^(-{2 / depth:.3g}); "
        f"1 - <v, u>^2 ~ (-log R)^(-{4 / depth:.3g}); R ~ 1/(t log^{2 - 2 / depth:.3g} t)"
    )


def _rate_outside(depth: int, geometry: SupportGeometry) -> str:
    """The rate where no support vector pulls along some direction. What W_1 has there freezes, or, seen by idle support vectors, grows until
    these no longer count, while the other layers multiply it; at depth 1 nothing multiplies, and only the idle ones move it, ever more slowly."""
    if depth > 1:
        why = "the support vectors with dual weight do not span, and W_1 freezes outside their span"
        return f"sin(angle) ~ (-log R)^(-{1 / depth:.3g}), with a factor that depends on the start: {why}"
    if geometry.pulling.all():
        return "sin(angle) ~ 1 / (-log R), with a factor that depends on the start: the support vectors do not span"
    lead = geometry.margin * float(np.linalg.norm(geometry.escape))
    return f"sin(angle) ~ {lead:.6g} log(-log R) / (-log R): some support vectors have no dual weight"


class DeepLinearConjecture(DeepLinearMaxMargin):
    """No theorem of the catalogue covers the optimiser; the l2 maximum margin is offered as a conjecture."""

    name = "deep-linear-conjecture"
    statement = "Conjecture: this optimiser turns the deep linear network to the l2 maximum margin."
    citation = "none"

    def applies(self, setting: Setting, optimiser: Any) -> bool:
        return _is_deep(setting)

    def hypotheses(self, setting: Setting, optimiser: Any, reference: Solution) -> tuple[Hypothesis, ...]:
        return separable(reference), covered(type(optimiser).__name__)


def _is_deep(setting: Setting) -> bool:
    return isinstance(setting.data, Classification) and isinstance(setting.parametrisation, DeepLinear)


THEOREMS = (DeepLinearMaxMargin(), DeepLinearConjecture())
