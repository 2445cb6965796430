"""Deep linear networks: what training them could select, the assumptions of its theory as predicates, and the constants of its laws."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ...errors import ArgumentError, warn
from ...optimisers.layerwise import BallStep, risk_bounds
from ...problem import Problem, read
from ...references.base import Solution
from ...references.euclidean_margin import max_margin
from ...references.support_geometry import SupportGeometry, support_geometry
from ...settings.base import Setting
from ...settings.classification import Classification
from ...settings.deep_linear import UNIT_BALL, DeepLinear, Layers, imbalance_constant, risk_of_zero
from ...settings.losses import AbstractLoss, Exponential, Logistic
from ...training.trajectory import Trajectory
from ...verdict import Verdict
from ..base import Family, Hypothesis, Prediction, at_least_zero, made_of
from ..judge import explained, judge_run
from .linear import SLOW, divided, is_exponential, is_flow, linear_rivals, loss_shape, separable

_BOUND = 1e-9  # relative: a constant that equals the bound to rounding is the bound
_FAR = 700.0  # the margin at which the tail of a loss is read


def is_deep(problem: Problem) -> bool:
    return made_of(problem, Classification, DeepLinear)


def data_norm(data: Classification) -> Hypothesis:
    """Inputs lie in the unit ball."""
    lengths = np.linalg.norm(np.asarray(data.signed), axis=1)
    worst = int(lengths.argmax())
    inside, slack = bool(lengths[worst] <= UNIT_BALL), float(1 - lengths[worst])
    detail = "norm of the inputs, at most 1 to rounding (1e-12). Only the step rules depend on it: see `deep_linear(normalise=True)`"
    return Hypothesis("data_norm", inside, slack, f"sample {worst}", detail, "exact")


def span(geometry: SupportGeometry) -> tuple[Hypothesis, Hypothesis]:
    """Assumption 3, strict and relaxed: the support vectors that pull span all directions, or at least those of the data."""
    d, rank, outside = len(geometry.direction), geometry.pulling_rank, geometry.outside()
    idle, count = int((~geometry.pulling).sum()), f"{len(geometry.support)} support vectors"
    count += f", {idle} of them without dual weight" * bool(idle)
    missing, lost, slack = "", "", geometry.smallest_singular
    if not geometry.spans:
        missing = f"{d - rank} directions no support vector pulls along, the first {vector(outside[0] + 0.0)}"
        lost = "; the direction then turns like (-log R)^(-1/L), not (-log R)^-1. Data beyond a few dimensions often fail this (study deep-linear-laws)"
        slack = float(rank - d)
    strict = f"smallest singular value of the {count}; those with weight have rank {rank} of {d}{lost}"
    relaxed = f"relaxed: rank {rank} of the support vectors with weight against {geometry.data_rank} of the data; "
    relaxed += "if it holds, the rates hold in the span of the data"
    left = float(rank - geometry.data_rank)
    first = Hypothesis("support_spans", geometry.spans, slack, missing, strict, "numerical", outside)
    return first, Hypothesis("support_spans_data", geometry.spans_data, left, "", relaxed, "numerical")


def vector(entries: Sequence[float] | np.ndarray) -> str:
    """The first entries of a vector, short enough for one line."""
    return f"({', '.join(f'{entry:.6g}' for entry in entries[:6])}{', ...' if len(entries) > 6 else ''})"


def generic(geometry: SupportGeometry) -> Hypothesis:
    """'Almost all data': every support vector pulls, there are at most d of them, and their hull surrounds the direction."""
    least = int(geometry.shares.argmin())
    share, count, d = float(geometry.shares[least]), len(geometry.support), len(geometry.direction)
    failures = {
        f"sample {int(geometry.support[least])} has no dual weight": not geometry.pulling.all(),
        f"{count} support vectors in {d} dimensions: the dual weights are not unique": count > d,
        "hull radius 0": not geometry.radius > 0,
    }
    found = [text for text, failed in failures.items() if failed]
    slack, offender = min(share, geometry.radius), f"sample {int(geometry.support[least])}"
    detail = f"smallest dual weight {share:.4g} of a support vector, hull radius {geometry.radius:.6g}: both positive"
    if found:
        slack, offender = -1.0, "; ".join(found)
    return Hypothesis("generic_support", not found, slack, offender, detail, "numerical")


def start_below_zero(setting: Setting, params: Layers) -> Hypothesis:
    """Assumption 2: the start has at most the risk of weight 0, and a gradient."""
    reading = read(setting, params)
    size = float(jnp.exp(reading.log_slope_norm))
    slack = risk_of_zero(setting) - float(reading.log_excess) if size > 0 else -1.0
    detail = f"log risk of weight 0 minus log risk of the start; |grad log R| = {size:.3g}"
    return at_least_zero("start", slack, "the gradient is 0" * (not size > 0), detail, "exact")


_BELOW_START = "unbounded; on risks at most R_0 it has |l'|, l'' <= n R_0 (`BallStep(beta=n R_0, slope=n R_0)`)"
_SMOOTH = {
    Logistic: (True, 1.0, "", "|l'| <= 1, l'' <= 1/4", "exact"),
    Exponential: (False, -1.0, "Exponential", _BELOW_START, "exact"),
}


def smooth_loss(setting: Setting) -> Hypothesis:
    """Assumption 4, for descent: the loss has bounded slope and curvature."""
    unknown = "bounds on slope and curvature are not known for this loss"
    kind = type(setting.loss)
    return Hypothesis("smooth_loss", *_SMOOTH.get(kind, (False, -1.0, kind.__name__, unknown, "not checkable")))


def smooth_below_start(setting: Setting, optimiser: eqx.Module, params: Layers) -> Hypothesis:
    """Assumption 4 on the sublevel set of the start, for the exponential loss: e^-m_i <= n R <= n R_0 bounds slope and curvature.

    A rule that uses no constants can neither respect nor break the bound: whether its steps are short enough is seen on the run (`replay`).
    """
    bound = (risk_bounds(setting, params) or (np.inf,))[0]
    detail = f"below the risk of the start beta = G = n R_0 = {bound:.6g}"
    rule: Any = getattr(optimiser, "rule", None)
    if not hasattr(rule, "slope"):
        text = f"{detail}; {type(rule).__name__} uses no constants, its steps are checked by `replay` on a run"
        return Hypothesis("smooth_below_start", None, float("nan"), "", text, "not checkable")
    used = (float(rule.beta), float(rule.slope))
    slack = min(used) / bound - 1
    holds = slack >= -_BOUND
    offender = "" if holds else f"the rule uses beta = {used[0]:g}, G = {used[1]:g}"
    return Hypothesis("smooth_below_start", bool(holds), slack, offender, detail, "exact")


def proved_steps(setting: Setting, optimiser: Any) -> Hypothesis:
    """Assumption 5: the steps of the proofs, with constants that bound the loss as it is reduced."""
    rule = optimiser.rule
    holds, name = type(rule) is BallStep, type(rule).__name__
    if holds and setting.loss.kind == "logistic":
        needed = 1.0 if setting.reduction == "mean" else float(setting.samples)
        holds = bool(float(rule.beta) >= 0.25 * needed and float(rule.slope) >= needed)
        name = f"{name} with beta = {float(rule.beta):g}, G = {float(rule.slope):g}"
    detail = "the steps of Assumption 5" if holds else "steps longer than Assumption 5 allows are not covered"
    return Hypothesis("steps", holds, 1.0 if holds else -1.0, "" if holds else name, detail, "exact")


class NetworkConstants(eqx.Module):
    """The constants of the proofs and of the laws, for one setting and (where D is known) one start.

    `tail` is a = -l'/l at large margins, nan without an exponential tail; `log_count` is log n where the risk is a mean, 0 where it is a sum;
    `imbalance` is D, nan without a start; `thresholds` are K of Lemma 4 for this loss, by name.
    """

    geometry: SupportGeometry
    depth: int
    tail: float
    log_count: float
    imbalance: float
    thresholds: dict[str, float]

    @property
    def offset(self) -> np.ndarray:
        """The part of the weight orthogonal to the maximum margin, in the limit: margins count a times, so it is a times shorter."""
        return self.geometry.offset / self.tail

    def gradient(self, level: float) -> float:
        """|grad log R|^2 where -log R is `level`: L (a margin)^(2/L) (-log R)^(2 - 2/L)."""
        power = 2 / self.depth
        return float(self.depth * (self.tail * self.geometry.margin) ** power * level ** (2 - power))

    @property
    def first_layer(self) -> float:
        """Exponent in -log R of the sine of the angle of v_1 to the maximum margin."""
        return -min(1.0, 3 / self.depth)

    @property
    def critical_drop(self) -> float:
        """The drop of log R that a step of descent may promise, of step size drop R / |grad R|^2, if the offset is to settle; for any tail a."""
        return critical_step(self.geometry, self.depth)

    def size(self, run: Trajectory, record: int = -1) -> float:
        """log R + log n - log l(margin <w, u>), which tends to the entropy of the dual weights whatever factor the loss has."""
        along = self.geometry.margin * float(run.weight(record) @ self.geometry.direction)
        return float(run.log_excess[record] + self.log_count - run.setting.loss.log_value(jnp.asarray(along)))


def network_constants(
    setting: Setting, start: Layers | None = None, reference: Solution | None = None
) -> NetworkConstants:
    """The constants of a deep linear network on separable data.

    >>> import penchant as pt
    >>> data = pt.Classification([[1.0, 0.0], [0.0, 0.5]], [1, 1])
    >>> found = network_constants(pt.Setting(data, pt.DeepLinear((3,)), pt.Exponential()))
    >>> found.tail, round(found.geometry.margin, 6), found.offset.round(6).tolist()
    (1.0, 0.447214, [1.109035, -0.554518])
    """
    if not is_deep(setting):
        raise ArgumentError("setting", "network_constants", "Classification data with DeepLinear layers", setting.kind)
    geometry = support_geometry(setting.data, max_margin(setting.data) if reference is None else reference)
    return NetworkConstants(
        geometry,
        setting.parametrisation.depth,
        tail_rate(setting.loss),
        float(np.log(setting.samples)) if setting.reduction == "mean" else 0.0,
        float("nan") if start is None else imbalance_constant(start),
        _thresholds(setting, geometry),
    )


def tail_rate(loss: AbstractLoss, margin: float = _FAR) -> float:
    """a = -l'/l at a large margin; nan for a loss without an exponential tail."""
    if is_exponential(loss):
        return 1.0
    if not loss_shape(loss).holds:
        return float("nan")
    at = jnp.asarray(margin)
    return float(jnp.exp(loss.log_slope(at) - loss.log_value(at)))


def critical_step(found: SupportGeometry, depth: int) -> float:
    """The largest stable drop of log R that a step may promise: 2 L margin^2 over the largest variance of the support vectors across the margin.

    Near the limit a step of promised drop s moves the offset by s g / (L margin^2), where g is the gradient of log R across the maximum margin,
    whose derivative is the covariance of the projected support vectors under their dual weights.
    """
    across = found.points - np.outer(found.points @ found.direction, found.direction)
    variance = np.linalg.eigvalsh((found.shares[:, None] * across).T @ across).max()
    return float(2 * depth * found.margin**2 / variance) if variance > 0 else np.inf  # one direction: nothing to cross


def _thresholds(setting: Setting, geometry: SupportGeometry) -> dict[str, float]:
    """K of Lemma 4, which is stated for two losses."""
    found = geometry.thresholds(setting.samples)
    names = {Exponential: ("exponential", "sharp"), Logistic: ("logistic",)}.get(type(setting.loss), ())
    return {name: found[name] for name in names}


def _at_start(prediction: Prediction[Solution], start: Layers) -> tuple[Hypothesis, ...]:
    setting, found = prediction.setting, (start_below_zero(prediction.setting, start),)
    if setting.loss.kind == "exponential" and not is_flow(prediction.optimiser):
        return (*found, smooth_below_start(setting, prediction.optimiser, start))
    return found


def _judge(prediction: Prediction[Solution], run: Trajectory) -> Verdict:
    """The direction. A start above the risk of zero is named, because nothing is promised from there."""
    found, start = judge_run(prediction, run), start_below_zero(run.setting, run.at(0))
    if start.holds or prediction.hypothesis(start.name) is not None:
        return found
    return explained(found, "the start violates Assumption 2: nothing is promised")


def _reference(setting: Setting, start: None) -> Solution:
    reference = max_margin(setting.data)
    geometry = support_geometry(setting.data, reference)
    if not geometry.spans:
        rank = f"{geometry.pulling_rank} of {len(geometry.direction)}"
        warn(
            f"Support vectors with dual weight have rank {rank} (Assumption 3): convergence to the maximum margin is not proved, and slower."
        )
    return reference


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


DEEP_LINEAR = Family(
    "deep-linear",
    "deep_linear",
    is_deep,
    _reference,
    lambda asked: linear_rivals(asked.setting, asked.reference),
    _judge,
    lambda asked: (separable(asked.reference),),
    "Conjecture: this optimiser turns the deep linear network to the l2 maximum margin.",
    rate=lambda asked: _rate(asked.setting, asked.reference),
    notes=lambda asked: divided(asked.setting.data, asked.reference),
    at_start=_at_start,
)
