"""The assumptions of the deep linear paper as predicates: whether each holds, by how much, who offends, and how exactly that is known."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from ..optimisers.layerwise import BallStep, LayerDescent, SharpStep, risk_bounds
from ..problem import read
from ..references.support_geometry import SupportGeometry
from ..settings.base import Setting
from ..settings.classification import Classification
from ..settings.deep_linear import UNIT_BALL
from ..settings.losses import Exponential, Logistic
from ..settings.network_starts import risk_of_zero
from .base import Hypothesis

_BOUND = 1e-9  # relative: a constant that equals the bound to rounding is the bound
_GRID = np.linspace(-50, 700, 1501)
_HALFWAY = 800  # the index of margin 350
_TAIL = 0.1  # by how much -l'/l may change from margin 350 to 700: not at all for e^(-az), by half for any power of the margin


def data_norm(data: Classification) -> Hypothesis:
    """Inputs lie in the unit ball."""
    lengths = np.linalg.norm(np.asarray(data.signed), axis=1)
    worst = int(lengths.argmax())
    return Hypothesis(
        "data_norm",
        bool(lengths[worst] <= UNIT_BALL),
        float(1 - lengths[worst]),
        f"sample {worst}",
        "norm of the inputs, at most 1 to rounding (1e-12). Only the step rules depend on it: see `deep_linear(normalise=True)`",
        "exact",
    )


def loss_shape(loss: Any) -> Hypothesis:
    """Assumption 1 with an exponential tail: positive, decreasing to 0, and -l'/l tends to a constant."""
    if isinstance(loss, Exponential | Logistic):
        return Hypothesis("loss", True, 1.0, "", "decreasing to 0 with an exponential tail", "exact")
    value, slope = (np.asarray(f(jnp.asarray(_GRID))) for f in (loss.log_value, loss.log_slope))
    bad = np.flatnonzero(~np.isfinite(value) | ~np.isfinite(slope) | np.append(np.diff(value) >= 0, False))
    if len(bad):
        where = f"margin {_GRID[bad[0]]:g}"
        return Hypothesis("loss", False, -1.0, where, "positive and strictly decreasing on [-50, 700]", "sampled")
    change = float(np.expm1((slope - value)[-1] - (slope - value)[_HALFWAY]))
    slow = "slow tail: the direction need not be the maximum margin. " if change < -_TAIL else ""
    return Hypothesis(
        "loss",
        abs(change) <= _TAIL,
        _TAIL - abs(change),
        f"-l'/l changes by {change:.3g} from margin 350 to 700",
        f"{slow}Decreasing with an exponential tail: -l'/l settles (within {_TAIL:g}); the limits are not checkable",
        "sampled",
    )


def span(geometry: SupportGeometry) -> tuple[Hypothesis, Hypothesis]:
    """Assumption 3, strict and relaxed: the support vectors that pull span all directions, or at least those of the data."""
    d, rank = len(geometry.direction), geometry.pulling_rank
    idle = int((~geometry.pulling).sum())
    counted = f"{len(geometry.support)} support vectors" + (f", {idle} of them without dual weight" if idle else "")
    outside = geometry.outside()
    missing = "" if geometry.spans else f"{d - rank} directions no support vector pulls along, {_shown(outside)}"
    lost = (
        ""
        if geometry.spans
        else "; the direction then turns like (-log R)^(-1/L), not (-log R)^-1. Data beyond a few dimensions often fail this (study deep-linear-no-span)"
    )
    strict = Hypothesis(
        "support_spans",
        geometry.spans,
        geometry.smallest_singular if geometry.spans else float(rank - d),
        missing,
        f"smallest singular value of the {counted}; those with weight have rank {rank} of {d}{lost}",
        "numerical",
        outside,
    )
    relaxed = Hypothesis(
        "support_spans_data",
        geometry.spans_data,
        float(rank - geometry.data_rank),
        "",
        f"relaxed: rank {rank} of the support vectors with weight against {geometry.data_rank} of the data; "
        "if it holds, the rates hold in the span of the data",
        "numerical",
    )
    return strict, relaxed


def _shown(rows: np.ndarray) -> str:
    """The first of some directions, short enough for one line; all of them are the evidence of the hypothesis."""
    entries = ", ".join(f"{entry:.4g}" for entry in rows[0][:6] + 0.0)
    return f"the first ({entries}{', ...' if rows.shape[1] > 6 else ''})"


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
    return Hypothesis(
        "generic_support",
        not found,
        -1.0 if found else min(share, geometry.radius),
        "; ".join(found) or f"sample {int(geometry.support[least])}",
        f"smallest dual weight {share:.4g} of a support vector, hull radius {geometry.radius:.6g}: both positive",
        "numerical",
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
        f"log risk of weight 0 minus log risk of the start; |grad log R| = {size:.3g}",
        "exact",
    )


def smooth_loss(setting: Setting) -> Hypothesis:
    """Assumption 4, for descent: the loss has bounded slope and curvature."""
    loss = setting.loss
    if isinstance(loss, Logistic):
        return Hypothesis("smooth_loss", True, 1.0, "", "|l'| <= 1, l'' <= 1/4", "exact")
    detail = (
        "unbounded; on risks at most R_0 it has |l'|, l'' <= n R_0 (`BallStep(beta=n R_0, slope=n R_0)`)"
        if isinstance(loss, Exponential)
        else "bounds on slope and curvature are not known for this loss"
    )
    known = "exact" if isinstance(loss, Exponential) else "not checkable"
    return Hypothesis("smooth_loss", False, -1.0, type(loss).__name__, detail, known)


def smooth_below_start(setting: Setting, optimiser: Any, params: Any) -> Hypothesis:
    """Assumption 4 on the sublevel set of the start, for the exponential loss: e^-m_i <= n R <= n R_0 bounds slope and curvature.

    A rule that uses no constants can neither respect nor break the bound: whether its steps are short enough is seen on the run (`replay`).
    """
    bound = (risk_bounds(setting, params) or (np.inf,))[0]
    detail = f"below the risk of the start beta = G = n R_0 = {bound:.6g}"
    rule = getattr(optimiser, "rule", None)
    if not isinstance(rule, BallStep | SharpStep):
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
    holds, name = isinstance(optimiser, LayerDescent) and isinstance(rule, BallStep), type(rule).__name__
    if holds and isinstance(setting.loss, Logistic):
        needed = 1.0 if setting.reduction == "mean" else float(setting.samples)
        holds = bool(float(rule.beta) >= 0.25 * needed and float(rule.slope) >= needed)
        name = f"{name} with beta = {float(rule.beta):g}, G = {float(rule.slope):g}"
    detail = "the steps of Assumption 5" if holds else "steps longer than Assumption 5 allows are not covered"
    return Hypothesis("steps", holds, 1.0 if holds else -1.0, "" if holds else name, detail, "exact")
