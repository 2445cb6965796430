"""Square parametrisations: weights made of squared parameters, trained from a positive start of size alpha."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..errors import ArgumentError
from .parametrisations import PlainMetric
from .potentials import Entropy, HyperbolicEntropy

_UNDERFLOW = 1e-290  # parameters below it take steps that underflow


def check_alpha(alpha: Any, owner: str) -> Array:
    try:
        value = jnp.asarray(alpha, float)
    except (TypeError, ValueError):
        raise ArgumentError("alpha", owner, "a positive number, or one per coordinate", repr(alpha)) from None
    if value.ndim > 1 or not bool(jnp.all((value > 0) & jnp.isfinite(value))):
        raise ArgumentError("alpha", owner, "positive and finite (zero is a critical point)", alpha)
    return value


def positive_start(params: Any, owner: str) -> np.ndarray:
    start = np.asarray(params, float)
    if not (np.isfinite(start).all() and (start > 0).all()):
        raise ArgumentError("start", owner, "positive and finite in every entry", f"smallest entry {start.min():g}")
    return start


def spread(alpha: Array, data: Any, owner: str) -> Array:
    """One start per coordinate of the weight."""
    if alpha.ndim == 1 and alpha.shape != data.weight_shape:
        wanted = f"one number, or one per coordinate of the weight ({data.weight_shape[0]})"
        raise ArgumentError("alpha", owner, wanted, f"{len(alpha)} numbers")
    return jnp.broadcast_to(alpha, data.weight_shape)


def underflown(before: Array, after: Array) -> Bool[Array, ""]:
    """Whether a parameter falls so low that its steps underflow: it never comes back."""
    return jnp.any((jnp.abs(before) >= _UNDERFLOW) & (jnp.abs(after) < _UNDERFLOW))


def weighted_gram(scales: Array, data: Any) -> Float[Array, "N N"]:
    """Z diag(scales) Z' with the margin features Z as rows."""
    rows = jax.vmap(data.adjoint)(jnp.eye(len(data.constrained())))
    return (rows * scales[None]) @ rows.T


class Squares(PlainMetric):
    r"""$\theta = \beta\odot\beta \ge 0$ from the start $\beta = \alpha$ (one number, or one per coordinate).

    Gradient flow minimises KL($\theta\,|\,\alpha^2$) among nonnegative interpolants; for $\alpha\to0$ that is the l1 norm.
    """

    form = "Squares"
    alpha: Float[Array, "*b"]

    def __init__(self, alpha: object):
        self.alpha = check_alpha(alpha, "Squares")

    def zeros(self, data: Any) -> Array:
        """The start alpha: from zero itself no gradient ever leads away."""
        return spread(self.alpha, data, "Squares")

    def random(self, data: Any, rng: np.random.Generator, scale: float) -> Array:
        return jnp.asarray(scale * np.abs(rng.standard_normal(data.weight_shape)))

    def weight(self, params: Array, data: Any) -> Array:
        return params**2

    def named(self, params: Array, data: Any) -> dict[str, Array]:
        return {"beta": params}

    def linearise(self, params: Array, data: Any) -> tuple[Array, Callable[[Array], Array]]:
        return data.margins(params**2), lambda cotangent: 2 * params * data.adjoint(cotangent)

    def lost(self, before: Array, after: Array) -> Bool[Array, ""]:
        return underflown(before, after)

    def gram(self, params: Array, data: Any) -> Float[Array, "N N"]:
        return weighted_gram(4 * params**2, data)

    def potential(self, start: Any) -> Entropy:
        """What gradient flow from `start` minimises."""
        return Entropy(2 * np.log(positive_start(start, "Squares")))

    def moved(self, start: Any, dual: Any) -> np.ndarray:
        """The parameters at the dual point s = X' nu of the flow from `start`."""
        return np.exp(np.log(np.asarray(start)) + np.asarray(dual) / 2)


class SignedSquares(PlainMetric):
    r"""$\theta = w_+\odot w_+ - w_-\odot w_-$ from the start $w_+ = w_- = \alpha$ (one number, or one per coordinate).

    The parameters are the two rows $w_+$, $w_-$. Gradient flow minimises $Q_\alpha$ among interpolants: the l2 norm for
    $\alpha\to\infty$, the l1 norm for $\alpha\to0$.
    """

    form = "SignedSquares"
    alpha: Float[Array, "*b"]

    def __init__(self, alpha: object):
        self.alpha = check_alpha(alpha, "SignedSquares")

    def zeros(self, data: Any) -> Array:
        """The start alpha: from zero itself no gradient ever leads away."""
        return jnp.stack([spread(self.alpha, data, "SignedSquares")] * 2)

    def random(self, data: Any, rng: np.random.Generator, scale: float) -> Array:
        return jnp.asarray(scale * np.abs(rng.standard_normal((2, *data.weight_shape))))

    def weight(self, params: Array, data: Any) -> Array:
        return params[0] ** 2 - params[1] ** 2

    def named(self, params: Array, data: Any) -> dict[str, Array]:
        return {"w_plus": params[0], "w_minus": params[1]}

    def linearise(self, params: Array, data: Any) -> tuple[Array, Callable[[Array], Array]]:
        def pull(cotangent: Array) -> Array:
            slope = data.adjoint(cotangent)
            return 2 * params * jnp.stack([slope, -slope])

        return data.margins(self.weight(params, data)), pull

    def lost(self, before: Array, after: Array) -> Bool[Array, ""]:
        return underflown(before, after)

    def gram(self, params: Array, data: Any) -> Float[Array, "N N"]:
        return weighted_gram(4 * (params**2).sum(axis=0), data)

    def potential(self, start: Any) -> HyperbolicEntropy:
        """What gradient flow from `start` minimises."""
        plus, minus = np.log(positive_start(start, "SignedSquares"))
        return HyperbolicEntropy(plus + minus, plus - minus)

    def moved(self, start: Any, dual: Any) -> np.ndarray:
        """The parameters at the dual point s = X' nu of the flow from `start`."""
        return np.exp(np.log(np.asarray(start)) + np.stack([np.asarray(dual), -np.asarray(dual)]) / 2)
