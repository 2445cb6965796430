"""Deep linear networks: the weight is a product of matrices, trained layer by layer. Their starts, each a function of its seed, and the repair
that puts a start below the risk of zero."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from ..door import INTEGER, LISTED
from ..errors import ArgumentError, CriticalPointError, warn
from .base import Data, Setting
from .check import real_array
from .classification import Classification, is_single
from .losses import AbstractLoss
from .parametrisations import PlainMetric

Layers = tuple[Array, ...]
_HALVINGS = 200  # the risk falls below that of zero long before W_1 has lost 60 digits, unless the start is critical
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

    def __init__(self, widths: object = ()):
        given = cast(Sequence[int], widths)
        listed = LISTED.holds(widths) and np.ndim(given) == 1
        if not (listed and all(INTEGER.holds(width) and width >= 1 for width in given)):
            wanted = "a sequence of positive integers, one per hidden layer"
            fix = f"DeepLinear(({widths!r},))" if INTEGER.holds(widths) else ""
            raise ArgumentError("widths", "DeepLinear", wanted, repr(widths), fix)
        self.widths = tuple(int(width) for width in given)

    @property
    def depth(self) -> int:
        """The number of layers L."""
        return len(self.widths) + 1

    def shapes(self, data: Data) -> tuple[tuple[int, int], ...]:
        """(d_k, d_{k-1}) of every layer."""
        sizes = (*data.weight_shape, *self.widths, 1)
        return tuple(zip(sizes[1:], sizes[:-1], strict=True))

    def check_data(self, data: Data) -> None:
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

    def zeros(self, data: Data) -> Layers:
        return jax.device_put(tuple(np.zeros(shape) for shape in self.shapes(data)))

    def random(self, data: Data, rng: np.random.Generator, scale: float) -> Layers:
        return jax.device_put(tuple(scale * rng.standard_normal(shape) for shape in self.shapes(data)))

    def check(self, params: Sequence[object], data: Data) -> Layers:
        """The layers as float64 matrices that fit each other and the data, or an error that names the one that does not."""
        wanted = self.shapes(data)
        if len(params) != len(wanted):
            raise ArgumentError("start", "DeepLinear", f"{len(wanted)} matrices", f"{len(params)}")
        layers = []
        for k, (layer, shape) in enumerate(zip(params, wanted, strict=True), 1):
            matrix = real_array(layer, f"W{k}", "DeepLinear", str(shape), 2)
            if matrix.shape != shape:
                raise ArgumentError(f"W{k}", "DeepLinear", f"of shape {shape}", f"shape {matrix.shape}")
            layers.append(matrix)
        return jax.device_put(tuple(layers))

    def weight(self, params: Layers, data: Data) -> Float[Array, "d"]:
        return _after(params)[0]

    def named(self, params: Layers, data: Data) -> dict[str, Array]:
        return {f"W{k}": layer for k, layer in enumerate(params, 1)}

    def linearise(self, params: Layers, data: Data) -> tuple[Array, Callable[[Array], Layers]]:
        after = _after(params)

        def pull(cotangent: Array) -> Layers:
            before, found = data.adjoint(cotangent), []
            for layer, row in zip(params, after[1:], strict=True):
                found.append(jnp.outer(row, before))
                before = layer @ before
            return tuple(found)

        return data.margins(after[0]), pull

    def gram(self, params: Layers, data: Classification) -> Float[Array, "N N"]:
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


def imbalances(layers: Sequence[object]) -> list[np.ndarray]:
    """W_k W_k' - W_{k+1}' W_{k+1} for k < L: constant along the flow."""
    matrices = [np.asarray(layer, float) for layer in layers]
    return [low @ low.T - high.T @ high for low, high in pairwise(matrices)]


def imbalance_constant(layers: Sequence[object]) -> float:
    """D of the proofs: how far a start is from balanced; it bounds every excess along the flow.

    >>> imbalance_constant([np.array([[2.0, 0.0]]), np.array([[2.0]])])
    0.0
    """
    squares = [float(np.sum(np.asarray(layer) ** 2)) for layer in layers]
    return max(squares) - squares[-1] + sum(float(np.linalg.norm(matrix, 2)) for matrix in imbalances(layers))


def unit_ball(inputs: object) -> tuple[np.ndarray, float]:
    """Inputs divided by the largest of their norms, and that factor: the maximum margin is divided by it too."""
    inputs = real_array(inputs, "inputs", "unit_ball", "(n, d)", 2)
    factor = float(np.linalg.norm(inputs, axis=1).max())
    if not factor > 0:
        raise ArgumentError("inputs", "unit_ball", "non-zero somewhere", "only zeros")
    return inputs / factor, factor


def deep_linear(
    inputs: object, labels: object, widths: Sequence[int], loss: AbstractLoss, *, normalise: bool = False
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
        found, fix = (
            f"norm {lengths[worst]:.6g} at index {worst}",
            "pass `normalise=True`; the maximum margin is then divided by that norm",
        )
        raise ArgumentError("inputs", "deep_linear", "of norm at most 1", found, fix)
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


def _unit(rng: np.random.Generator, size: int) -> np.ndarray:
    vector = rng.standard_normal(size)
    return vector / np.linalg.norm(vector)


def balanced(setting: Setting, seed: int, weight: object) -> Layers:
    """Rank-one layers of equal size whose product is `weight`: every conserved matrix is 0, and the flow stays of rank one."""
    weight = np.asarray(weight, float)
    shapes, rng = setting.parametrisation.shapes(setting.data), np.random.default_rng(seed)
    size = float(np.linalg.norm(weight))
    if weight.shape != setting.data.weight_shape or not size > 0:
        required = f"a non-zero vector of shape {setting.data.weight_shape}"
        raise ArgumentError("weight", "balanced", required, f"shape {weight.shape}")
    units = [weight / size, *(_unit(rng, rows) for rows, _ in shapes[:-1]), np.ones(1)]
    root = size ** (1 / len(shapes))
    return jax.device_put(tuple(root * np.outer(b, a) for a, b in pairwise(units)))


def zero_first(setting: Setting, seed: int, scale: float) -> Layers:
    """W_1 = 0 and normal entries elsewhere: the risk is exactly that of zero and the gradient is not 0."""
    layers = setting.start(seed, scale)
    return (jnp.zeros_like(layers[0]), *layers[1:])


def equal_frobenius(setting: Setting, seed: int, size: float) -> Layers:
    """Normal entries rescaled so that every layer has the Frobenius norm `size`."""
    return tuple(size * layer / jnp.linalg.norm(layer.ravel()) for layer in setting.start(seed, 1.0))


def torch_default(setting: Setting, seed: int) -> Layers:
    """Uniform entries in +-1/sqrt(inputs of the layer), as PyTorch initialises its dense layers."""
    rng = np.random.default_rng(seed)
    shapes = setting.parametrisation.shapes(setting.data)
    return jax.device_put(tuple(rng.uniform(-1, 1, shape) / np.sqrt(shape[1]) for shape in shapes))


def balanced_below_zero(setting: Setting, seed: int, scale: float) -> Layers:
    """Balanced layers of a normal weight of standard deviation `scale`, which is turned downhill and halved until its risk is at most that of zero."""
    weight = scale * np.random.default_rng(seed).standard_normal(setting.data.weight_shape)
    if _uphill(setting, setting.data.margins(jax.device_put(weight))):
        weight = -weight
    for _ in range(_HALVINGS):
        if float(setting.weigh(setting.data.margins(jax.device_put(weight))).log_excess) <= risk_of_zero(setting):
            return balanced(setting, seed, weight)
        weight = weight / 2
    raise CriticalPointError("balanced_below_zero")


# By name: the start, and what its scale is unless told: standard deviation of the entries, or for equal-frobenius the norm of a layer.
NAMED: dict[str, tuple[Callable[[Setting, int, float], Layers], float]] = {
    "normal": (lambda setting, seed, scale: setting.start(seed, scale), 0.3),
    "balanced": (balanced_below_zero, 0.3),
    "zero-first": (zero_first, 0.3),
    "equal-frobenius": (equal_frobenius, 1.0),
    "torch-default": (lambda setting, seed, scale: torch_default(setting, seed), 1.0),
}


def named_start(setting: Setting, name: str, seed: int = 0, scale: float | None = None) -> Layers:
    """A start by name, repaired by `ensure_assumption2` where it lies above the risk of zero.

    >>> import penchant as pt
    >>> setting = pt.Setting(pt.Classification([[0.5, 0.1], [0.1, 0.5]], [1, 1]), pt.DeepLinear((3,)), pt.Exponential())
    >>> [round(float(jnp.linalg.norm(layer)), 12) for layer in named_start(setting, "equal-frobenius", 0, 2.0)]
    [2.0, 2.0]
    """
    if name not in NAMED:
        raise ArgumentError("name", "named_start", f"one of {', '.join(NAMED)}", repr(name))
    if scale is not None and not 0 < scale < np.inf:
        raise ArgumentError("scale", "named_start", "positive and finite", scale)
    if seed < 0:
        raise ArgumentError("seed", "named_start", "a nonnegative integer", seed)
    make, standard = NAMED[name]
    return ensure_assumption2(setting, make(setting, seed, standard if scale is None else scale))


def risk_of_zero(setting: Setting) -> float:
    """log of the risk at weight 0, below which a start must lie (Assumption 2)."""
    return float(setting.weigh(jnp.zeros(setting.samples)).log_excess)


def _uphill(setting: Setting, margins: Array) -> bool:
    """Whether these margins, of a small weight, raise the risk of zero."""
    return float(jnp.vdot(setting.weigh(jnp.zeros(setting.samples)).weights, margins)) < 0


def ensure_assumption2(setting: Setting, params: Layers) -> Layers:
    """Flip the sign of W_L if the product points uphill, then halve W_1 until the risk is at most that of zero.

    Raises `CriticalPointError` for a start without a gradient.
    """
    margins, pull = setting.linearise(params)
    if not any(bool(jnp.any(slope)) for slope in pull(setting.weigh(margins).weights)):
        raise CriticalPointError("ensure_assumption2")
    if _uphill(setting, margins):
        params = (*params[:-1], -params[-1])
    bound = risk_of_zero(setting)
    for _ in range(_HALVINGS):
        if float(setting.weigh(setting.margins(params)).log_excess) <= bound:
            return params
        params = (params[0] / 2, *params[1:])
    raise CriticalPointError("ensure_assumption2")


def layered(setting: Setting) -> bool:
    """Whether layers are trained."""
    return isinstance(setting.parametrisation, DeepLinear)
