"""Assumption 3 of the deep linear paper: how rare it is, what projecting the data restores, and what the start has outside the span of the support vectors."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.stats import binomtest

from ...diagnostics.alignment import sine
from ...errors import quietly
from ...flow.flow import Levels
from ...lab import Lab, claim, recipe
from ...references.euclidean_margin import max_margin
from ...references.support_geometry import SupportGeometry, project_on_support, support_geometry
from ...settings.base import Setting
from ...settings.classification import Classification
from ...settings.deep_linear import DeepLinear
from ...settings.generators import blobs, teacher
from ...settings.losses import Exponential
from ...settings.network_starts import ensure_assumption2
from ...training.train import train
from ...training.trajectory import Trajectory
from ...verdict import Verdict, all_of, at_most, close
from .evidence import FAR, kept, levels
from .laws import DERIVED

DRAWS = 40
SIZES = ((2, 40), (5, 50), (10, 50), (20, 60))  # dimension, samples
KINDS = {"blobs": blobs, "teacher": teacher}
DECADE = (1e5, 1e6)  # of -log R, at whose ends the projected runs are recorded


@recipe
def spanning(lab: Lab, kind: str, d: int, n: int, first: int = 0) -> int:
    """Of `DRAWS` data sets, how many satisfy Assumption 3."""
    drawn = (KINDS[kind](n, d, seed) for seed in range(first, first + DRAWS))
    return sum(support_geometry(data, max_margin(data)).spans for data in drawn)


@claim(
    "deep-linear/span-rare",
    "In five dimensions and more the support vectors of two blobs seldom span, as Assumption 3 asks.",
    "measured",
    kind="observed",
    slow=True,
)
def rare(lab: Lab, planted: bool) -> Verdict:
    """Blobs in five dimensions and more, with the upper end of the 99.9 % interval of the share; the twin has the teacher's labels, where the share falls later."""
    checks = []
    for d, n in SIZES[1:]:
        found = spanning(lab, "teacher" if planted else "blobs", d, n)
        share = binomtest(found, DRAWS).proportion_ci(0.999).high
        checks.append(
            at_most(float(share), 0.25, f"{d} dimensions, {n} samples: {found} of {DRAWS} draws span, a share")
        )
    return all_of(*checks)


def _data(where: str) -> tuple[Classification, SupportGeometry]:
    """Blobs in ten dimensions with six support vectors: as they are, projected on the span of these, or in coordinates of that span."""
    data = blobs(50, 10, 3)
    found = max_margin(data)
    if where != "as they are":
        data = project_on_support(data, found, reduce=where == "reduced")
    return data, support_geometry(data, max_margin(data))


@recipe
def span_run(lab: Lab, where: str, depth: int, outside: float = 1.0) -> tuple[SupportGeometry, Trajectory]:
    """The flow to risk e^-1000000 from a start whose first layer is `outside` times as large outside the span of the support vectors."""
    data, found = _data(where)
    setting = Setting(data, DeepLinear((6,) * (depth - 1)), Exponential())
    start: Any = ensure_assumption2(setting, setting.start(0, 0.3))
    if outside != 1:
        missing = found.outside()
        start = (start[0] + jnp.asarray((outside - 1) * np.asarray(start[0]) @ missing.T @ missing), *start[1:])
    recorder = Levels("log_excess", [-DECADE[0]])
    with quietly():  # a large outside part may lie above the risk of weight 0
        return found, train(setting, FAR, start, until=kept(DECADE[1]), steps=20_000, recorder=recorder)


@claim(
    "deep-linear/span-projected",
    "In coordinates of the span of the support vectors the margin is the same and the direction turns like 1/(-log R) again.",
    DERIVED,
    kind="ours",
    slow=True,
)
def projected(lab: Lab, planted: bool) -> Verdict:
    """In coordinates of the span of the support vectors the sine is margin |offset| / (-log R) again; the twin leaves the data as they are."""
    checks, original = [], _data("as they are")[1]
    for depth in (2, 3):
        found, run = span_run(lab, "as they are" if planted else "reduced", depth)
        lead = found.margin * float(np.linalg.norm(found.offset)) / levels(run)[-1]
        checks += [
            close(found.margin, original.margin, 1e-12, "maximum margin"),
            close(found.entropy, original.entropy, 1e-8, "entropy of the dual weights"),
            close(sine(run.weight(), found.direction), lead, 1e-3, f"depth {depth}: sine at risk e^-1e6"),
        ]
    return all_of(*checks)


@claim(
    "deep-linear/outside-frozen",
    "On data within the span of the support vectors W_1 never moves outside it, and the outside part of the weight is proportional to it.",
    DERIVED,
    kind="ours",
    slow=True,
)
def frozen(lab: Lab, planted: bool) -> Verdict:
    """Projected data: four times as much of W_1 outside the span changes nothing inside it, and the outside part of the weight by the same factor."""
    checks = []
    for depth in (2, 3):
        (found, one), (_, other) = span_run(lab, "projected", depth), span_run(lab, "projected", depth, 4.0)
        missing, factor = found.outside(), 2.0 if planted else 4.0
        parts = [(run.weight(), missing @ run.weight()) for run in (one, other)]
        inside = [weight - missing.T @ part for weight, part in parts]
        sizes = [float(np.linalg.norm(part)) for _, part in parts]
        kept_layer = np.abs(np.asarray(one.at()[0] - one.at(0)[0]) @ missing.T).max()
        checks += [
            at_most(float(kept_layer), 1e-9, f"depth {depth}: change of W_1 outside the span"),
            close(
                float(np.linalg.norm(inside[1])), float(np.linalg.norm(inside[0])), 1e-9, f"depth {depth}: |w| inside"
            ),
            close(sizes[1] / sizes[0], factor, 1e-9, f"depth {depth}: outside part, against that of the first start"),
        ]
    return all_of(*checks)


def outside_constant(found: SupportGeometry, run: Trajectory, depth: int) -> tuple[float, float]:
    """sin(angle) (-log R / margin)^(1/L) at the end of a run, and |u_1' W_1| outside the span, which it tends to."""
    first = np.asarray(run.at()[0])
    top = np.linalg.svd(first)[0][:, 0]
    measured = sine(run.weight(), found.direction) * (levels(run)[-1] / found.margin) ** (1 / depth)
    return float(measured), float(np.linalg.norm(found.outside() @ (top @ first)))


@claim(
    "deep-linear/outside-constant",
    "If the support vectors do not span, sin(angle) ~ |u_1' W_1 outside their span| (margin / (-log R))^(1/L).",
    DERIVED,
    kind="ours",
    slow=True,
)
def constant(lab: Lab, planted: bool) -> Verdict:
    """The constant of the slow turn, on data with parts outside the span; the twin forgets the margin."""
    checks = []
    for depth in (2, 3):
        for outside in (0.25, 1.0):
            found, run = span_run(lab, "as they are", depth, outside)
            measured, predicted = outside_constant(found, run, depth)
            predicted /= found.margin ** (1 / depth) if planted else 1.0
            name = f"depth {depth}, outside part times {outside:g}: sin(angle) (-log R / margin)^(1/L)"
            checks.append(close(measured, predicted, 1e-3, name))
    return all_of(*checks)
