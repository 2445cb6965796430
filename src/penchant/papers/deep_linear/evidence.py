"""The problems on which the claims on deep linear networks are checked, and their runs, each computed once."""

import jax.numpy as jnp
import numpy as np

from ...diagnostics.alignment import Alignment, alignments
from ...errors import quietly
from ...flow.clocks import RelativeDrop
from ...flow.flow import GradientFlow
from ...lab import Lab, recipe
from ...optimisers.layerwise import LayerDescent, LineSearch
from ...references.euclidean_margin import max_margin
from ...references.support_geometry import SupportGeometry, support_geometry
from ...settings.base import Setting
from ...settings.classification import Classification
from ...settings.deep_linear import DeepLinear, Layers, ensure_assumption2
from ...settings.generators import blobs, strips
from ...settings.losses import AbstractLoss, Exponential, Logistic, PolynomialTail
from ...training.events import Every, Inaccurate, LogExcessBelow, LogTimeAbove
from ...training.train import train
from ...training.trajectory import Trajectory

DERIVED = "derived for penchant; the paper lists rates as open"  # the citation of our own laws
# For the laws: in this clock a risk of e^-1000000 is some five hundred steps away.
FAR = GradientFlow(RelativeDrop(), tolerance=1e-8, margin_tolerance=1e-6, order=6)
# For what the flow conserves, and for two layers, which grow like sqrt(-log R) and drift most.
TIGHT = GradientFlow(RelativeDrop(), tolerance=1e-13, margin_tolerance=1e-6, order=6)
# For identities: what is left is rounding, which a shorter step or a higher order would multiply. Its clock does not stop at a saddle.
FINEST = GradientFlow(tolerance=1e-13, margin_tolerance=1e-9, order=4)
_STEPS = 20_000  # no flow here needs a fifth of this


@recipe
def geometry(lab: Lab) -> SupportGeometry:
    """Two strips in the plane: two support vectors, margin 0.1305."""
    data = strips(0)
    return support_geometry(data, max_margin(data))


def network(
    data: Classification, depth: int, width: int, loss: AbstractLoss, seed: int, scale: float
) -> tuple[Setting, Layers]:
    """A network of this depth and width on these data, and a normal start that satisfies Assumption 2."""
    setting = Setting(data, DeepLinear((width,) * (depth - 1)), loss)
    return setting, ensure_assumption2(setting, setting.start(seed, scale))


@recipe
def problem(
    lab: Lab, depth: int = 4, logistic: bool = False, seed: int = 1, width: int = 8, scale: float = 0.4
) -> tuple[Setting, Layers]:
    """The strips with a network of this depth."""
    return network(strips(0), depth, width, Logistic() if logistic else Exponential(), seed, scale)


def kept(level: float) -> tuple[LogExcessBelow, Inaccurate]:
    """Until -log R is `level`, or until the integration has lost what the exact flow keeps."""
    return LogExcessBelow(-level), Inaccurate()


@recipe
def flow(lab: Lab, depth: int = 4, logistic: bool = False, seed: int = 1) -> Trajectory:
    """The flow until the risk is e^-1000000."""
    setting, start = problem(lab, depth, logistic, seed)
    return train(setting, TIGHT if depth == 2 else FAR, start, until=kept(1e6), steps=_STEPS)


@recipe
def tight_flow(lab: Lab) -> Trajectory:
    """The same at depth 4, integrated as finely as what the flow conserves deserves."""
    setting, start = problem(lab, 4)
    return train(setting, TIGHT, start, until=kept(1e6), steps=_STEPS)


@recipe
def layers(lab: Lab, depth: int = 4, logistic: bool = False, seed: int = 1) -> Alignment:
    return alignments(flow(lab, depth, logistic, seed))


@recipe
def descent(lab: Lab, capped: bool = False, steps: int = 250, scale: float = 0.4, seed: int = 1) -> Trajectory:
    """Logistic risk by line search, every step recorded."""
    setting, start = problem(lab, 4, logistic=True, seed=seed, scale=scale)
    return train(setting, LayerDescent(LineSearch(setting, capped)), start, steps=steps, recorder=Every())


@recipe
def few_supports(lab: Lab, depth: int = 3, seed: int = 3) -> tuple[SupportGeometry, Trajectory]:
    """Blobs in ten dimensions, where the support vectors span less than the data, followed to risk e^-1000000."""
    data = blobs(50, 10, seed)
    setting, start = network(data, depth, 6, Exponential(), 0, 0.3)
    run = train(setting, FAR, start, until=kept(1e6), steps=_STEPS)
    return support_geometry(data, max_margin(data)), run


def eight_points() -> Classification:
    """Eight points in the plane whose polynomial-tail direction is far from the maximum margin."""
    return strips(2, n=8)


@recipe
def slow_tail(lab: Lab, depth: int = 3) -> Trajectory:
    """The loss (1 + z)^-2, followed until the risk is e^-30 and the weight about 1e6."""
    setting, start = network(eight_points(), depth, 6, PolynomialTail(2.0), 1, 0.5)
    return train(setting, FAR, start, until=LogExcessBelow(-30.0), steps=_STEPS)


def levels(run: Trajectory) -> np.ndarray:
    """-log R at every record: the natural clock of the problem."""
    return -run.log_excess


def account(run: Trajectory) -> dict[str, np.ndarray]:
    """What layerwise descent kept of its own steps."""
    assert run.account is not None
    return run.account


def across(weight: np.ndarray, found: SupportGeometry) -> np.ndarray:
    """The part of a weight orthogonal to the maximum margin."""
    return weight - (weight @ found.direction) * found.direction


@recipe
def mirrored(lab: Lab, perturbation: float = 0.0) -> tuple[Setting, Layers]:
    """One sample, risk e^-<w1, w2>, and the start w1 = -w2 with |w1|^2 = 1.3, moved by `perturbation` along (w1, w1)/|w1|."""
    setting = Setting(Classification([[1.0]], [1]), DeepLinear((3,)), Exponential())
    unit = np.array([2.0, -1.0, 0.5]) / np.linalg.norm([2.0, -1.0, 0.5])
    first, second = np.sqrt(1.3) * unit + perturbation * unit, -np.sqrt(1.3) * unit + perturbation * unit
    return setting, (jnp.asarray(first[:, None]), jnp.asarray(second[None]))


@recipe
def mirrored_flow(lab: Lab, log_time: float) -> Trajectory:
    setting, start = mirrored(lab)
    with quietly():
        return train(setting, FINEST, start, until=LogTimeAbove(log_time), steps=20_000)
