"""Deep linear networks in discrete time: the relative step beyond which descent leaves the flow, also with momentum."""

from collections.abc import Iterator

import numpy as np

from ...lab import Lab, claim, recipe
from ...optimisers.base import Descent
from ...optimisers.memory import HeavyBall
from ...optimisers.step_rules import Polyak
from ...references.support_geometry import SupportGeometry
from ...theory.families.layers import critical_step
from ...training.events import LogExcessBelow
from ...training.recorders import LogSpaced
from ...training.train import train
from ...training.trajectory import Trajectory
from ...verdict import Verdict, at_least, at_most
from .evidence import DERIVED, across, geometry, problem

LEVEL = 2000.0  # of -log R, where corrections to the critical step have fallen below its two per cent
_STEPS = 200_000


@recipe
def relative_descent(lab: Lab, share: float, depth: int, momentum: float = 0.0, level: float = LEVEL) -> Trajectory:
    """Descent on the strips with steps that promise `share` of the critical drop of log R, with momentum 1 + beta times that, to risk e^-level."""
    setting, start = problem(lab, depth)
    drop = share * (1 + momentum) * critical_step(geometry(lab), depth)
    optimiser = Descent(Polyak(1 / drop), after=HeavyBall(momentum)) if momentum else Descent(Polyak(1 / drop))
    return train(setting, optimiser, start, steps=_STEPS, until=LogExcessBelow(-level), recorder=LogSpaced(40))


def offset_error(weight: np.ndarray, found: SupportGeometry) -> float:
    """Distance of the offset of a weight from the one the flow tends to, relative to that."""
    return float(np.linalg.norm(across(weight, found) - found.offset) / np.linalg.norm(found.offset))


def _around(lab: Lab, depth: int, scale: float, beta: float = 0.0) -> Iterator[Verdict]:
    """The offset settles two per cent below `scale` times the critical step, and not two per cent above."""
    error = lambda share: offset_error(relative_descent(lab, scale * share, depth, beta).weight(), geometry(lab))
    what = f"depth {depth}: relative error of the offset, step"
    yield at_most(error(0.98), 1e-3, f"{what} 0.98")
    yield at_least(error(1.02), 0.1, f"{what} 1.02")


@claim("deep-linear/critical-step", f"{DERIVED}; discretisation is open there", "ours", slow=True)
def critical(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Descent follows the flow to its offset if a step promises log R to drop by less than 2 L margin^2 / (largest variance of the support vectors across the margin), and only then.
    Two per cent below the critical step the offset is that of the flow, two per cent above it never settles; the twin has lost the factor L."""
    for depth in (1, 2, 3, 4):
        yield from _around(lab, depth, 1 / depth if planted else 1.0)


@claim("deep-linear/critical-step-momentum", f"{DERIVED}; discretisation is open there", "ours", slow=True)
def momentum(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """With momentum beta that step may be 1 + beta times as long.
    With momentum beta the critical step is 1 + beta times as long; the twin has 1 / (1 - beta), by which momentum speeds up."""
    beta = 0.5
    for depth in (2, 3):
        yield from _around(lab, depth, 1 / (1 - beta) / (1 + beta) if planted else 1.0, beta)
