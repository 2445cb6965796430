"""Deep linear networks: the theorem for the user's own data, with its assumptions as predicates."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..flow.flow import GradientFlow
from ..optimisers.layerwise import BallStep, LayerDescent
from ..optimisers.step_rules import Constant
from ..reading import read
from ..references.base import Solution
from ..references.euclidean_margin import max_margin
from ..references.support_geometry import SupportGeometry, support_geometry
from ..settings.base import Setting
from ..settings.classification import Classification
from ..settings.deep_linear import DeepLinear
from ..settings.losses import Exponential, Logistic
from ..settings.network_starts import risk_of_zero
from ..training.trajectory import Trajectory
from ..verdict import Verdict
from .base import Claim, Hypothesis, Prediction, Rival, Theorem
from .linear_models import covered, linear_rivals, plain, separable

JI = "Ji, Telgarsky, Gradient descent aligns the layers of deep linear networks, ICLR 2019"
_GRID = np.linspace(-50, 700, 1501)


def sourced(name: str, statement: str, where: str, check: Callable[[bool], Verdict]) -> Claim:
    """A claim of this paper, from `where` in it."""
    return Claim(f"deep-linear/{name}", "deep_linear", statement, f"{JI}, {where}", check)


def data_norm(data: Classification) -> Hypothesis:
    """Inputs lie in the unit ball."""
    lengths = np.linalg.norm(np.asarray(data.signed), axis=1)
    worst = int(lengths.argmax())
    return Hypothesis(
        "data_norm",
        bool(lengths[worst] <= 1 + 1e-12),
        float(1 - lengths[worst]),
        f"sample {worst}",
        "norm of the inputs, at most 1 to rounding (1e-12). Only the step rules depend on it: see `deep_linear(normalise=True)`",
    )


def loss_shape(loss: Any) -> Hypothesis:
    """Assumption 1 with an exponential tail: positive, decreasing to 0, and as fast as e^-z."""
    if isinstance(loss, Exponential | Logistic):
        return Hypothesis("loss", True, 1.0, "", "decreasing to 0 with an exponential tail; exact")
    value, slope = (np.asarray(f(jnp.asarray(_GRID))) for f in (loss.log_value, loss.log_slope))
    bad = np.flatnonzero(~np.isfinite(value) | ~np.isfinite(slope) | np.append(np.diff(value) >= 0, False))
    if len(bad):
        where = f"margin {_GRID[bad[0]]:g}"
        return Hypothesis("loss", False, -1.0, where, "positive and strictly decreasing; sampled on [-50, 700]")
    tail = float(
        np.exp(slope[-1] - value[-1])
    )  # -l'/l at margin 700: a constant for exponential tails, 0 for polynomial ones
    return Hypothesis(
        "loss",
        bool(tail > 0.1),
        tail - 0.1,
        "margin 700",
        "-l'/l above 0.1 far out: no slow tail; sampled, limits not checkable",
    )


def span(geometry: SupportGeometry) -> Hypothesis:
    """Assumption 3: the support vectors span all directions."""
    detail = f"smallest singular value of the {len(geometry.support)} support vectors; rank {geometry.rank} of {len(geometry.direction)}"
    lost = "" if geometry.spans else "; the direction then turns like (-log R)^(-1/L), not (-log R)^-1"
    missing = f"{len(geometry.direction) - geometry.rank} directions no support vector sees"
    slack = geometry.smallest_singular if geometry.spans else -1.0
    return Hypothesis("support_spans", geometry.spans, slack, "" if geometry.spans else missing, detail + lost)


def generic(geometry: SupportGeometry) -> Hypothesis:
    """'Almost all data': every support vector pulls, and there are at most d of them."""
    least = int(geometry.shares.argmin())
    holds = bool(geometry.shares[least] > 1e-9 and len(geometry.support) <= len(geometry.direction))
    return Hypothesis(
        "generic_support",
        holds,
        float(geometry.shares[least]) if holds else -1.0,
        f"sample {int(geometry.support[least])}",
        f"smallest dual weight of a support vector; hull radius {geometry.radius:.6g}",
    )


def start_below_zero(setting: Setting, params: Any) -> Hypothesis:
    """Assumption 2: the start has at most the risk of weight 0, and a gradient."""
    reading = read(setting, params)
    slack = risk_of_zero(setting) - float(reading.log_excess)
    size = float(jnp.exp(reading.log_slope_norm))
    return Hypothesis(
        "start",
        bool(slack >= 0 and size > 0),
        slack if size > 0 else -1.0,
        "" if size > 0 else "the gradient is 0",
        f"log risk of weight 0 minus log risk of the start; |grad log R| = {size:.3g}; exact",
    )


def smooth_loss(setting: Setting) -> Hypothesis:
    """Assumption 4, for descent: the loss has bounded slope and curvature."""
    holds = isinstance(setting.loss, Logistic)
    detail = "|l'| <= 1, l'' <= 1/4" if holds else "bounded only below the risk of the start"
    return Hypothesis(
        "smooth_loss", holds, 1.0 if holds else -1.0, "" if holds else type(setting.loss).__name__, detail
    )


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
            span(geometry),
            generic(geometry),
        ]
        if not isinstance(optimiser, GradientFlow):
            found += [smooth_loss(setting), _steps(optimiser)]
        return tuple(found)

    def predict(self, setting: Setting, optimiser: Any) -> Prediction:
        reference = max_margin(setting.data)
        return Prediction(
            self,
            setting,
            self.hypotheses(setting, optimiser, reference),
            reference,
            _distinct(linear_rivals(setting.data, reference)),
            _rate(setting, reference),
        )

    def judge(self, prediction: Prediction, run: Trajectory) -> Verdict:
        """The direction, as for every theorem; a start above the risk of zero is named, because nothing is promised from there."""
        found = Theorem.judge(self, prediction, run)
        start = start_below_zero(run.setting, run.at(0))
        if start.holds:
            return found
        detail = "; ".join(
            part for part in (found.detail, "the start violates Assumption 2: nothing is promised") if part
        )
        return Verdict(found.outcome, found.inequality, found.predicted, found.measured, detail)


def _distinct(found: tuple[Rival, ...]) -> tuple[Rival, ...]:
    """Rivals with a direction of their own: where the support vectors span, other norms often select the very same direction."""
    return tuple(rival for rival in found if rival.separation > 1e-12)


def _steps(optimiser: Any) -> Hypothesis:
    holds = isinstance(optimiser, LayerDescent) and isinstance(optimiser.rule, BallStep)
    name = type(optimiser.rule).__name__
    detail = "the steps of Assumption 5" if holds else "steps longer than Assumption 5 allows are not covered"
    return Hypothesis("steps", holds, 1.0 if holds else -1.0, "" if holds else name, detail)


def _rate(setting: Setting, reference: Solution) -> str:
    depth, geometry = setting.parametrisation.depth, support_geometry(setting.data, reference)
    if not geometry.spans:
        return f"sin(angle) ~ (-log R)^(-{1 / depth:.3g}): the support vectors do not span, and W_1 freezes outside their span"
    lead = geometry.margin * float(np.linalg.norm(geometry.offset))
    return (
        f"sin(angle) ~ {lead:.6g} / (-log R); 1 - spectral/Frobenius ~ (-log R)^(-{2 / depth:.3g}); "
        f"1 - <v, u>^2 ~ (-log R)^(-{4 / depth:.3g}); R ~ 1/(t log^{2 - 2 / depth:.3g} t)"
    )


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
