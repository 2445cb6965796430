"""Starts of deep linear networks, each a function of its seed, and the repair that puts a start below the risk of zero."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..errors import ArgumentError, CriticalPointError
from .base import Setting
from .deep_linear import Layers

_HALVINGS = 200  # the risk falls below that of zero long before W_1 has lost 60 digits, unless the start is critical


def _shapes(setting: Setting) -> tuple[tuple[int, int], ...]:
    return setting.parametrisation.shapes(setting.data)


def _unit(rng: np.random.Generator, size: int) -> np.ndarray:
    vector = rng.standard_normal(size)
    return vector / np.linalg.norm(vector)


def balanced(setting: Setting, seed: int, weight: Any) -> Layers:
    """Rank-one layers of equal size whose product is `weight`: every conserved matrix is 0, and the flow stays of rank one."""
    weight = np.asarray(weight, float)
    shapes, rng = _shapes(setting), np.random.default_rng(seed)
    size = float(np.linalg.norm(weight))
    if weight.shape != setting.data.weight_shape or not size > 0:
        raise ArgumentError(
            "weight", "balanced", f"a non-zero vector of shape {setting.data.weight_shape}", f"shape {weight.shape}"
        )
    units = [weight / size, *(_unit(rng, rows) for rows, _ in shapes[:-1]), np.ones(1)]
    root = size ** (1 / len(shapes))
    return tuple(jnp.asarray(root * np.outer(b, a)) for a, b in pairwise(units))


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
    return tuple(jnp.asarray(rng.uniform(-1, 1, shape) / np.sqrt(shape[1])) for shape in _shapes(setting))


def balanced_below_zero(setting: Setting, seed: int, scale: float) -> Layers:
    """Balanced layers of a normal weight of standard deviation `scale`, which is turned downhill and halved until its risk is at most that of zero."""
    weight = scale * np.random.default_rng(seed).standard_normal(setting.data.weight_shape)
    if (
        float(jnp.vdot(setting.weigh(jnp.zeros(setting.samples)).weights, setting.data.margins(jnp.asarray(weight))))
        < 0
    ):
        weight = -weight
    for _ in range(_HALVINGS):
        if float(setting.weigh(setting.data.margins(jnp.asarray(weight))).log_excess) <= risk_of_zero(setting):
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


def ensure_assumption2(setting: Setting, params: Layers) -> Layers:
    """Flip the sign of W_L if the product points uphill, then halve W_1 until the risk is at most that of zero.

    Raises `CriticalPointError` for a start without a gradient.
    """
    weights = setting.weigh(jnp.zeros(setting.samples)).weights
    margins, pull = setting.linearise(params)
    if not any(bool(jnp.any(slope)) for slope in pull(setting.weigh(margins).weights)):
        raise CriticalPointError("ensure_assumption2")
    if float(jnp.vdot(weights, setting.margins(params))) < 0:
        params = (*params[:-1], -params[-1])
    bound = risk_of_zero(setting)
    for _ in range(_HALVINGS):
        if float(setting.weigh(setting.margins(params)).log_excess) <= bound:
            return params
        params = (params[0] / 2, *params[1:])
    raise CriticalPointError("ensure_assumption2")
