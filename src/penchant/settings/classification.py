"""Linear classification: margins m_i = y_i <x_i, w>."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..errors import ArgumentError
from ..logspace import Signed, signed_matmul
from ..rounding import deciding_sums
from .base import Infimum, MarginData, Weighing
from .check import real_array, sign_labels
from .losses import AbstractLoss, Correlation, CrossEntropy, Squared


class Classification(MarginData):
    r"""Inputs $x_i \in \mathbb R^d$ with labels $y_i = \pm1$; the weight $w$ has the margins $m_i = y_i\langle x_i, w\rangle$.

    >>> data = Classification([[2.0, 0.0], [0.0, 1.0]], [1, 1])
    >>> data.margins(jnp.array([1.0, 2.0])).tolist()
    [2.0, 2.0]

    `divisor` records by what the inputs were divided before, `single` whether they came in float32: their margins are then right to seven digits.
    """

    signed: Float[Array, "n d"]
    divisor: float = eqx.field(static=True)
    single: bool = eqx.field(static=True)

    def __init__(self, inputs: object, labels: object, divisor: float = 1.0, single: bool | None = None):
        self.divisor, self.single = divisor, is_single(inputs) if single is None else single
        inputs = real_array(inputs, "inputs", "Classification", "(n, d)", 2)
        labels = sign_labels(labels, "Classification", len(inputs))
        if not inputs.any():
            raise ArgumentError("inputs", "Classification", "non-zero somewhere", "only zeros")
        self.signed = jax.device_put(labels[:, None] * inputs)

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return (self.signed.shape[-1],)

    @property
    def names(self) -> dict[str, str]:
        return {"norm": "l2", "margin": "y <x, w>"}

    def margins(self, weight: Float[Array, "d"]) -> Float[Array, "n"]:
        return self.signed @ weight

    def adjoint(self, coefficients: Float[Array, "n"]) -> Float[Array, "d"]:
        return coefficients @ self.signed

    def log_adjoint(self, log_coefficients: Float[Array, "n"]) -> Signed:
        """The adjoint of positive coefficients, by logarithm and sign of each coordinate."""
        found = signed_matmul(log_coefficients[:, None], jnp.ones((len(self.signed), 1)), self.signed)
        return Signed(found.log[0], found.sign[0])

    def deciding_sizes(
        self, weight: np.ndarray, coefficients: np.ndarray, reached: np.ndarray, rounding: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Margins and adjoint with all terms taken absolutely, which rounding is relative to; bounds where it keeps margins off the smallest `reached`."""
        return deciding_sums(self.signed, weight, coefficients, reached, rounding)

    def gram(self) -> Float[Array, "n n"]:
        return self.signed @ self.signed.T

    def rows(self, index: Int[Array, "k"]) -> "Classification":
        """Some of the margins; with this data also say that their loss is a sum over the samples."""
        return eqx.tree_at(lambda data: data.signed, self, self.signed[index])

    def constrained(self) -> np.ndarray:
        """Which margins the maximum-margin program constrains: all."""
        return np.ones(self.signed.shape[0], bool)

    def ceiling(self, highest: Float[Array, ""]) -> Float[Array, ""]:
        """Above both the margins have grown on the wrong side, which is a divergence once they are beyond resolution."""
        return highest

    def weigh(self, margins: Float[Array, "n"], loss: AbstractLoss) -> Weighing:
        log_losses = loss.log_value(margins)
        top = jnp.max(log_losses)  # subtracted first: the weights must not inherit the rounding of a huge log excess
        total = jnp.sum(jnp.exp(log_losses - top))
        log_excess = top + jnp.log(total)
        log_slopes = loss.log_slope(margins) - top
        return Weighing(log_excess, log_excess, jnp.exp(log_slopes) / total, log_slopes - jnp.log(total))

    def check_loss(self, loss: AbstractLoss) -> None:
        if isinstance(loss, Correlation | CrossEntropy | Squared):
            wanted, fix = (
                "a decreasing function of one margin on `Classification` data",
                "use Exponential() or Logistic()",
            )
            raise ArgumentError("loss", "Setting", wanted, f"{type(loss).__name__}()", fix)

    def infimum(self, loss: AbstractLoss) -> Infimum:
        return Infimum(0.0, attained=False, why="the loss tends to 0 as all margins grow, which needs separable data")


def is_single(inputs: object) -> bool:
    """Whether an array came in float32."""
    return getattr(inputs, "dtype", None) == np.float32


def add_bias(inputs: object, value: float = 1.0) -> np.ndarray:
    """Inputs with a constant column, so that the direction can have an intercept."""
    inputs = real_array(inputs, "inputs", "add_bias", "(n, d)", 2)
    return np.column_stack([inputs, np.full(len(inputs), value)])
