"""Deep linear networks: the weight is a product of matrices, trained layer by layer."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from ..errors import ArgumentError, warn
from .base import Setting
from .check import real_array
from .classification import Classification, is_single
from .losses import AbstractLoss
from .parametrisations import PlainMetric

Layers = tuple[Array, ...]
UNIT_BALL = 1 + 1e-12  # the longest input of the paper, and what dividing by the longest may leave above 1 by rounding


class DeepLinear(PlainMetric):
    r"""A network $x \mapsto W_L\cdots W_1x$ of depth `len(widths) + 1`, with $W_k \in \mathbb R^{d_k\times d_{k-1}}$, $d_0 = d$, $d_L = 1$.

    The gradient in every layer has rank one, $\nabla_{W_k} = P_{>k}^\top\,(P_{<k}\,g)^\top$ with $P_{>k} = W_L\cdots W_{k+1}$, $P_{<k} = W_{k-1}\cdots W_1$
    and g the gradient in the product, so one sweep each way gives all of them. Flow keeps every
    $W_{k+1}^\top W_{k+1} - W_kW_k^\top$ constant, aligns adjacent layers and turns the product to the l2 maximum margin.

    >>> net = DeepLinear((2,))
    >>> data = Classification([[2.0, 0.0], [0.0, 1.0]], [1, 1])
    >>> net.weight((jnp.array([[1.0, 0.0], [3.0, 1.0]]), jnp.array([[2.0, -1.0]])), data).tolist()
    [-1.0, -1.0]

    **Reference:** Ji, Telgarsky, *Gradient descent aligns the layers of deep linear networks*, 2019.
    """

    widths: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, widths: Any = ()):
        if np.ndim(widths) != 1 or isinstance(widths, str):
            wanted = "a sequence of positive integers, one per hidden layer"
            fix = f"DeepLinear(({widths!r},))" if isinstance(widths, int | np.integer) else ""
            raise ArgumentError("widths", "DeepLinear", wanted, repr(widths), fix)
        for width in widths:
            if isinstance(width, bool) or not isinstance(width, int | np.integer) or width < 1:
                raise ArgumentError("widths", "DeepLinear", "positive integers, one per hidden layer", repr(width))
        self.widths = tuple(int(width) for width in widths)

    @property
    def depth(self) -> int:
        """The number of layers L."""
        return len(self.widths) + 1

    def shapes(self, data: Any) -> tuple[tuple[int, int], ...]:
        """(d_k, d_{k-1}) of every layer."""
        sizes = (*data.weight_shape, *self.widths, 1)
        return tuple(zip(sizes[1:], sizes[:-1], strict=True))

    def check_data(self, data: Any) -> None:
        """Warn of what the laws of these networks do not cover, or what makes their constants ambiguous; nothing is refused."""
        if not isinstance(data, Classification) or isinstance(data.signed, Tracer):
            return
        signed = np.asarray(data.signed)
        longest = float(np.linalg.norm(signed, axis=1).max())
        if data.single:
            warn("The inputs came in float32 and are computed in float64: their margins are right to seven digits.")
        if longest > UNIT_BALL:
            text = f"Inputs reach norm {longest:.10g}, and the step rules of the proofs assume at most 1: `deep_linear(..., normalise=True)` divides by it."
            warn(text)
        _warn_of_repeated(signed)

    def zeros(self, data: Any) -> Layers:
        return tuple(jnp.zeros(shape) for shape in self.shapes(data))

    def random(self, data: Any, rng: np.random.Generator, scale: float) -> Layers:
        return tuple(jnp.asarray(scale * rng.standard_normal(shape)) for shape in self.shapes(data))

    def check(self, params: Any, data: Any) -> Layers:
        """The layers as float64 matrices that fit each other and the data, or an error that names the one that does not."""
        wanted = self.shapes(data)
        if len(params) != len(wanted):
            raise ArgumentError("start", "DeepLinear", f"{len(wanted)} matrices", f"{len(params)}")
        layers = []
        for k, (layer, shape) in enumerate(zip(params, wanted, strict=True), 1):
            matrix = real_array(layer, f"W{k}", "DeepLinear", str(shape), 2)
            if matrix.shape != shape:
                raise ArgumentError(f"W{k}", "DeepLinear", f"of shape {shape}", f"shape {matrix.shape}")
            layers.append(jnp.asarray(matrix))
        return tuple(layers)

    def weight(self, params: Layers, data: Any) -> Float[Array, "d"]:
        return _after(params)[0]

    def named(self, params: Layers, data: Any) -> dict[str, Array]:
        return {f"W{k}": layer for k, layer in enumerate(params, 1)}

    def linearise(self, params: Layers, data: Any) -> tuple[Array, Callable[[Array], Layers]]:
        after = _after(params)

        def pull(cotangent: Array) -> Layers:
            before, found = data.adjoint(cotangent), []
            for layer, row in zip(params, after[1:], strict=True):
                found.append(jnp.outer(row, before))
                before = layer @ before
            return tuple(found)

        return data.margins(after[0]), pull

    def gram(self, params: Layers, data: Any) -> Float[Array, "N N"]:
        """Sum over the layers of |P_{>k}|^2 times the Gram matrix of the features that enter layer k."""
        features, total = data.signed, jnp.zeros((data.signed.shape[0],) * 2)
        for layer, row in zip(params, _after(params)[1:], strict=True):
            total = total + jnp.vdot(row, row) * (features @ features.T)
            features = features @ layer.T
        return total


def _after(params: Layers) -> list[Array]:
    """P_{>k} for k = 0..L: what follows layer k, as vectors; the first is the whole product, the last is 1."""
    rows = [jnp.ones(1)]
    for layer in reversed(params):
        rows.append(rows[-1] @ layer)
    return rows[::-1]


def layer_norms(params: Layers) -> Float[Array, "L"]:
    """Frobenius norm of every layer."""
    return jnp.stack([jnp.linalg.norm(jax.lax.stop_gradient(layer).ravel()) for layer in params])


def imbalances(layers: Sequence[Any]) -> list[np.ndarray]:
    """W_k W_k' - W_{k+1}' W_{k+1} for k < L: constant along the flow."""
    matrices = [np.asarray(layer, float) for layer in layers]
    return [low @ low.T - high.T @ high for low, high in pairwise(matrices)]


def imbalance_constant(layers: Sequence[Any]) -> float:
    """D of the proofs: how far a start is from balanced; it bounds every excess along the flow.

    >>> imbalance_constant([np.array([[2.0, 0.0]]), np.array([[2.0]])])
    0.0
    """
    squares = [float(np.sum(np.asarray(layer) ** 2)) for layer in layers]
    return max(squares) - squares[-1] + sum(float(np.linalg.norm(matrix, 2)) for matrix in imbalances(layers))


def unit_ball(inputs: Any) -> tuple[np.ndarray, float]:
    """Inputs divided by the largest of their norms, and that factor: the maximum margin is divided by it too."""
    inputs = real_array(inputs, "inputs", "unit_ball", "(n, d)", 2)
    factor = float(np.linalg.norm(inputs, axis=1).max())
    if not factor > 0:
        raise ArgumentError("inputs", "unit_ball", "non-zero somewhere", "only zeros")
    return inputs / factor, factor


def deep_linear(
    inputs: Any, labels: Any, widths: Sequence[int], loss: AbstractLoss, *, normalise: bool = False
) -> Setting:
    """The setting of the paper: inputs in the unit ball, mean risk. `normalise` divides by the largest norm and records it (`data.divisor`).

    >>> from penchant.settings.losses import Logistic
    >>> setting = deep_linear([[3.0, 0.0], [0.0, -4.0]], [1, -1], (5, 5), Logistic(), normalise=True)
    >>> setting.data.signed.tolist(), setting.data.divisor
    ([[0.75, 0.0], [-0.0, 1.0]], 4.0)
    """
    lengths = np.linalg.norm(real_array(inputs, "inputs", "deep_linear", "(n, d)", 2), axis=1)
    single, divisor = is_single(inputs), 1.0
    if normalise:
        inputs, divisor = unit_ball(inputs)
    elif lengths.max() > UNIT_BALL:
        worst = int(lengths.argmax())
        raise ArgumentError(
            "inputs",
            "deep_linear",
            "of norm at most 1",
            f"norm {lengths[worst]:.6g} at index {worst}",
            "pass `normalise=True`; the maximum margin is then divided by that norm",
        )
    return Setting(Classification(inputs, labels, divisor, single), DeepLinear(widths), loss)


def _warn_of_repeated(signed: np.ndarray) -> None:
    _, first, group = np.unique(signed, axis=0, return_index=True, return_inverse=True)
    repeated = np.flatnonzero(first[group.ravel()] != np.arange(len(signed)))
    if len(repeated):
        text = (
            f"Samples {int(first[group.ravel()[repeated[0]]])} and {int(repeated[0])} are the same signed point, so dual weights "
            "are not unique; predictions use those of largest entropy, which training selects."
        )
        warn(text)
