"""Linear classification: margins m_i = y_i <x_i, w>.

Multiclass classification: margins m_ic = (e_y - e_c)^T W x of the label's logit over every other one.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..errors import ArgumentError, NotSeparableError, inseparable_classes, warn
from ..logspace import Signed, log_sum, signed_matmul
from .base import MarginData, Rows, Weighing, weigh_sum
from .check import real_array, sign_labels
from .losses import AbstractLoss, Correlation, CrossEntropy, Squared


class Classification(Rows, MarginData):
    r"""Inputs $x_i \in \mathbb R^d$ with labels $y_i = \pm1$; the weight $w$ has the margins $m_i = y_i\langle x_i, w\rangle$.

    >>> data = Classification([[2.0, 0.0], [0.0, 1.0]], [1, 1])
    >>> data.margins(jnp.array([1.0, 2.0])).tolist()
    [2.0, 2.0]

    `divisor` records by what the inputs were divided before, `single` whether they came in float32: their margins are then right to seven digits.
    """

    names: ClassVar[dict[str, str]] = {"norm": "l2", "margin": "y <x, w>"}
    refused: ClassVar[tuple[type, ...]] = (Correlation, CrossEntropy, Squared)
    asked = "a decreasing function of one margin on `Classification` data", "use Exponential() or Logistic()"
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
    def table(self) -> Float[Array, "n d"]:
        return self.signed

    def log_adjoint(self, log_coefficients: Float[Array, "n"]) -> Signed:
        """The adjoint of positive coefficients, by logarithm and sign of each coordinate."""
        found = signed_matmul(log_coefficients[:, None], jnp.ones((len(self.signed), 1)), self.signed)
        return Signed(found.log[0], found.sign[0])

    def rows(self, index: Int[Array, "k"]) -> "Classification":
        """Some of the margins; with this data also say that their loss is a sum over the samples."""
        return eqx.tree_at(lambda data: data.signed, self, self.signed[index])

    def ceiling(self, highest: Float[Array, ""]) -> Float[Array, ""]:
        """Above both the margins have grown on the wrong side, which is a divergence once they are beyond resolution."""
        return highest

    def weigh(self, margins: Float[Array, "n"], loss: AbstractLoss) -> Weighing:
        return weigh_sum(margins, loss)


def is_single(inputs: object) -> bool:
    """Whether an array came in float32."""
    return getattr(inputs, "dtype", None) == np.float32


def add_bias(inputs: object, value: float = 1.0) -> np.ndarray:
    """Inputs with a constant column, so that the direction can have an intercept."""
    inputs = real_array(inputs, "inputs", "add_bias", "(n, d)", 2)
    return np.column_stack([inputs, np.full(len(inputs), value)])


class Multiclass(MarginData):
    r"""Inputs $x_i \in \mathbb R^d$ with labels $y_i \in \{0, \dots, k-1\}$; a weight $W \in \mathbb R^{k\times d}$ has the
    N = n(k-1) margins $m_{ic} = (e_{y_i} - e_c)^\top W x_i$, in the order of the samples and, inside one, of the classes c.

    A loss of one margin is summed over all of them (`Exponential`: the multiclass exponential loss, `Logistic`: the pairwise
    logistic loss); `CrossEntropy` is one loss per sample. `classes` is k, by default one more than the largest label.

    >>> data = Multiclass([[1.0, 0.0], [0.0, 2.0], [0.0, 1.0]], [0, 2, 1])
    >>> data.margins(jnp.arange(6.0).reshape(3, 2)).tolist()          # W x = (0, 2, 4), (2, 6, 10), (1, 3, 5)
    [-2.0, -4.0, 8.0, 4.0, 2.0, -2.0]
    """

    names: ClassVar[dict[str, str]] = {"norm": "frobenius", "margin": "(e_y - e_c)^T W x"}
    refused: ClassVar[tuple[type, ...]] = (Correlation, Squared)
    asked = "decreasing and bounded below on `Multiclass` data", "use CrossEntropy() or Exponential()"
    inputs: Float[Array, "n d"]
    labels: Int[Array, "n"]
    others: Int[Array, "n others"]
    classes: int = eqx.field(static=True)
    single: bool = eqx.field(static=True)

    def __init__(self, inputs: object, labels: object, classes: int | None = None):
        self.single = is_single(inputs)
        inputs = real_array(inputs, "inputs", "Multiclass", "(n, d)", 2)
        labels = _labels(labels, len(inputs), classes)
        self.classes = int(labels.max()) + 1 if classes is None else int(classes)
        others = np.arange(self.classes - 1) + (np.arange(self.classes - 1) >= labels[:, None])
        self.inputs, self.labels, self.others = jax.device_put((inputs, labels, others))

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return (self.classes, self.inputs.shape[1])

    def margins(self, weight: Float[Array, "k d"]) -> Float[Array, "N"]:
        return self._apart(self.inputs @ weight.T, -1).ravel()

    def _apart(self, logits: Array, sign: int) -> Array:
        """The label's logit minus (or, where all are sizes, plus) every other one."""
        own = jnp.take_along_axis(logits, self.labels[:, None], axis=1)
        return own + sign * jnp.take_along_axis(logits, self.others, axis=1)

    def adjoint(self, coefficients: Float[Array, "N"]) -> Float[Array, "k d"]:
        return self._shares(coefficients, -1).T @ self.inputs

    def _shares(self, coefficients: Array, sign: int) -> Float[Array, "n k"]:
        """Coefficients by sample and class: minus each of them at its own class, and their sum at the label's."""
        blocks, rows = coefficients.reshape(self.others.shape), jnp.arange(len(self.labels))
        shares = jnp.zeros((len(self.labels), self.classes)).at[rows[:, None], self.others].set(sign * blocks)
        return shares.at[rows, self.labels].set(jnp.sum(blocks, axis=1))

    def log_adjoint(self, log_coefficients: Float[Array, "N"]) -> Signed:
        """The adjoint of positive coefficients, by logarithm and sign of each coordinate."""
        blocks, rows = log_coefficients.reshape(self.others.shape), jnp.arange(len(self.labels))
        logs = jnp.zeros((len(self.labels), self.classes)).at[rows[:, None], self.others].set(blocks)
        signs = -jnp.ones_like(logs).at[rows, self.labels].set(-1.0)
        return signed_matmul(logs.at[rows, self.labels].set(log_sum(blocks)), signs, self.inputs)

    def sizes(self, weight: np.ndarray, coefficients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Margins and adjoint with all terms taken absolutely, which rounding is relative to."""
        inputs, shares = jnp.abs(self.inputs), self._shares(jnp.abs(coefficients), 1)
        return np.asarray(self._apart(inputs @ jnp.abs(weight).T, 1).ravel()), np.asarray(shares.T @ inputs)

    def pairs(self) -> tuple[Float[Array, "N k"], Float[Array, "N d"]]:
        """Left e_y - e_c and right x_i of the features, which are of rank one."""
        unit = jnp.eye(self.classes)
        left = (unit[self.labels][:, None] - unit[self.others]).reshape(-1, self.classes)
        return left, jnp.repeat(self.inputs, self.classes - 1, axis=0)

    def gram(self) -> Float[Array, "N N"]:
        left, right = self.pairs()
        return (left @ left.T) * (right @ right.T)

    def constrained(self) -> np.ndarray:
        """Which margins the maximum-margin program constrains: all."""
        return np.ones(self.others.size, bool)

    def weigh(self, margins: Float[Array, "N"], loss: AbstractLoss) -> Weighing:
        return weigh_sum(margins.reshape(self.others.shape), loss)

    def inseparable(self, weights: np.ndarray, norm: float) -> NotSeparableError:
        """The error for multipliers that combine the features to 0."""
        return inseparable_classes(weights, norm, np.asarray(self.labels), np.asarray(self.others))


def _labels(value: object, count: int, classes: int | None) -> np.ndarray:
    """Labels in 0..k-1, one per sample, at least two of them different."""
    found = real_array(value, "labels", "Multiclass", "(n,)", 1)
    if len(found) != count:
        raise ArgumentError("labels", "Multiclass", f"one per sample ({count})", f"{len(found)}")
    if classes is not None and classes < 2:
        raise ArgumentError("classes", "Multiclass", "at least 2", classes)
    most = np.inf if classes is None else classes
    bad = np.flatnonzero((found != np.floor(found)) | (found < 0) | (found >= most))
    if len(bad):
        wanted = "integers from 0 on" if classes is None else f"integers in 0..{classes - 1}"
        fix = "`np.unique(labels, return_inverse=True)[1]` numbers the classes"
        raise ArgumentError("labels", "Multiclass", wanted, f"{found[bad[0]]:g} at index {bad[0]}", fix)
    present = np.unique(found).astype(int)
    if len(present) < 2:
        raise ArgumentError("labels", "Multiclass", "of at least two classes", f"only class {present[0]}")
    empty = sorted({*range(int(found.max()) + 1 if classes is None else classes)} - {*present.tolist()})
    if empty:
        named = ", ".join(map(str, empty[:5])) + ", ..." * (len(empty) > 5)
        warn(
            f"`Multiclass` has {len(empty)} class(es) without a sample ({named}): each still has a margin in every sample.\n"
            "  Fix: `np.unique(labels, return_inverse=True)[1]` numbers the classes that occur."
        )
    return found.astype(int)
