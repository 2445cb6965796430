"""What the laws of deep linear networks predict of the user's own setting, as numbers that are known before training."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ..errors import ArgumentError
from ..references.base import Solution
from ..references.euclidean_margin import max_margin
from ..references.support_geometry import SupportGeometry, support_geometry
from ..settings.base import Setting
from ..settings.classification import Classification
from ..settings.deep_linear import DeepLinear, imbalance_constant
from ..settings.losses import Exponential, Logistic
from ..training.trajectory import Trajectory
from .layer_hypotheses import loss_shape

_FAR = 700.0  # the margin at which the tail of a loss is read


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


def network_constants(setting: Setting, start: Any = None, reference: Solution | None = None) -> NetworkConstants:
    """The constants of a deep linear network on separable data.

    >>> import penchant as pt
    >>> data = pt.Classification([[1.0, 0.0], [0.0, 0.5]], [1, 1])
    >>> found = network_constants(pt.Setting(data, pt.DeepLinear((3,)), pt.Exponential()))
    >>> found.tail, round(found.geometry.margin, 6), found.offset.round(6).tolist()
    (1.0, 0.447214, [1.109035, -0.554518])
    """
    if not isinstance(setting.parametrisation, DeepLinear) or not isinstance(setting.data, Classification):
        found = f"{type(setting.data).__name__} with {type(setting.parametrisation).__name__}"
        raise ArgumentError("setting", "network_constants", "Classification data with DeepLinear layers", found)
    geometry = support_geometry(setting.data, max_margin(setting.data) if reference is None else reference)
    return NetworkConstants(
        geometry,
        setting.parametrisation.depth,
        tail_rate(setting.loss),
        float(np.log(setting.samples)) if setting.reduction == "mean" else 0.0,
        float("nan") if start is None else imbalance_constant(start),
        _thresholds(setting, geometry),
    )


def tail_rate(loss: Any, margin: float = _FAR) -> float:
    """a = -l'/l at a large margin; nan for a loss without an exponential tail."""
    if isinstance(loss, Exponential | Logistic):
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
    return (
        float(2 * depth * found.margin**2 / variance) if variance > 0 else float("inf")
    )  # one direction: nothing to cross


def _thresholds(setting: Setting, geometry: SupportGeometry) -> dict[str, float]:
    """K of Lemma 4, which is stated for two losses."""
    found = geometry.thresholds(setting.samples)
    names = {Exponential: ("exponential", "sharp"), Logistic: ("logistic",)}.get(type(setting.loss), ())
    return {name: found[name] for name in names}
