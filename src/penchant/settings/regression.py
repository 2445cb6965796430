"""Linear regression: predictions <x_i, theta> against targets, with an infimum that is attained."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..errors import ArgumentError
from .base import Infimum, MarginData, Rows, Weighing
from .check import real_array
from .losses import AbstractLoss, Squared

_RANK = 1e-12  # singular values below this fraction of the largest count as zero
_UNIT = 16  # binary orders of magnitude within which samples share a unit
_BLOWN = 1e12  # growth of the residual beyond which a run diverges
_FLOOR = 8.0  # roundings below which a residual is noise


def row_units(inputs: np.ndarray) -> np.ndarray:
    """A power of two per sample, near its size where that is far below the largest: rank does not depend on the units of a sample."""
    sizes = np.abs(inputs).max(axis=1)
    orders = np.log2(np.where(sizes > 0, sizes, sizes.max()) / sizes.max())
    return 2.0 ** (_UNIT * np.round(orders / _UNIT))


class Regression(Rows, MarginData):
    r"""Inputs $x_i \in \mathbb R^d$ with targets $y_i$; the weight $\theta$ predicts $\langle x_i, \theta\rangle$.

    `fitted` is the projection of the targets on the range of the inputs: what least squares can reach, and all that a gradient
    ever sees of the targets. `unexplained` is $\|y - \text{fitted}\|$, 0 up to rounding if some weight interpolates.

    >>> data = Regression([[2.0, 0.0, 1.0], [0.0, 1.0, 1.0]], [2.0, -1.0])
    >>> data.margins(jnp.array([1.0, 0.0, 0.5])).tolist(), data.rank, round(data.unexplained, 12)
    ([2.5, 0.5], 2, 0.0)
    """

    names: ClassVar[dict[str, str]] = {"norm": "l2", "margin": "<x, theta>"}
    attained: ClassVar[bool] = True
    inputs: Float[Array, "n d"]
    targets: Float[Array, "n"]
    fitted: Float[Array, "n"]
    rank: int = eqx.field(static=True)
    unexplained: float = eqx.field(static=True)

    def __init__(self, inputs: object, targets: object):
        inputs = real_array(inputs, "inputs", "Regression", "(n, d)", 2)
        targets = real_array(targets, "targets", "Regression", "(n,)", 1)
        if len(targets) != len(inputs):
            raise ArgumentError("targets", "Regression", f"one per sample ({len(inputs)})", f"{len(targets)}")
        if not inputs.any():
            raise ArgumentError("inputs", "Regression", "non-zero somewhere", "only zeros")
        left, sizes, _ = np.linalg.svd(inputs, full_matrices=False)
        units = row_units(inputs)
        if units.min() < 1:
            sizes = np.linalg.svd(inputs / units[:, None], compute_uv=False)
        self.rank = int((sizes > _RANK * sizes[0]).sum())
        basis = left[:, : self.rank]
        rest = targets - basis @ (basis.T @ targets)
        rest = rest - basis @ (basis.T @ rest)  # once more: the first leaves rounding of the size of the targets
        self.unexplained = float(np.linalg.norm(rest)) if self.rank < len(targets) else 0.0
        fitted = targets - rest if self.rank < len(targets) else targets
        self.inputs, self.targets, self.fitted = jax.device_put((inputs, targets, fitted))

    @property
    def consistent(self) -> bool:
        """Whether some weight interpolates all targets, to 1e-10 of their size."""
        return self.unexplained <= 1e-10 * float(jnp.linalg.norm(self.targets))

    @property
    def table(self) -> Float[Array, "n d"]:
        return self.inputs

    def reached(self, margins: np.ndarray) -> str:
        return f"largest residual {np.abs(margins - np.asarray(self.fitted)).max():.3g}"

    def at_rounding(self, margins: Float[Array, "n"]) -> Bool[Array, ""]:
        """Whether the residual is no larger than the rounding of the predictions and targets it is made of."""
        scale = jnp.linalg.norm(jnp.abs(margins) + jnp.abs(self.fitted))
        return jnp.linalg.norm(margins - self.fitted) <= _FLOOR * jnp.finfo(float).eps * scale

    def ceiling(self, highest: Float[Array, ""]) -> Float[Array, ""]:
        """A residual far above those of the start and of weight 0."""
        return highest + 2 * jnp.log(_BLOWN)

    def weigh(self, margins: Float[Array, "n"], loss: AbstractLoss) -> Weighing:
        """The excess is scale/2 |X theta - fitted|^2: the part of the residual that no weight removes has dropped out."""
        gap = margins - self.fitted
        size = jnp.linalg.norm(gap)
        safe = jnp.where(size > 0, size, 1.0)
        log_size = jnp.where(size > 0, jnp.log(safe), -jnp.inf)
        log_scale = jnp.log(loss.scale)  # pyright: ignore[reportAttributeAccessIssue]
        return Weighing(2 * log_size + log_scale - jnp.log(2.0), log_size + log_scale, -gap / safe)

    def check_loss(self, loss: AbstractLoss) -> None:
        if not isinstance(loss, Squared):
            raise ArgumentError("loss", "Setting", "Squared() on `Regression` data", f"{type(loss).__name__}()")

    def infimum(self, loss: AbstractLoss) -> Infimum:
        value = 0.5 * float(loss.scale) * self.unexplained**2 / len(self.targets)  # pyright: ignore[reportAttributeAccessIssue]
        return Infimum(value, attained=True, why="every least-squares solution attains it")
