r"""Powers of positive parameters: weights made of squares, or of differences of squares or higher powers, from a start of size alpha.

Gradient flow selects the interpolant of least potential (`potentials`): of both signs, the l2 norm for $\alpha\to\infty$, the l1 norm for $\alpha\to0$.
"""

from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from ..errors import ArgumentError
from .base import Data
from .check import is_whole, one_or_more
from .parametrisations import PlainMetric
from .potentials import Entropy, HyperbolicEntropy, PowerEntropy

_UNDERFLOW = 1e-290  # parameters below it take steps that underflow


def _size(alpha: object, owner: str) -> Array:
    required = "positive and finite (zero is a critical point)"
    return jnp.asarray(one_or_more(alpha, "alpha", owner, required, lambda size: (size > 0) & np.isfinite(size)))


def _positive(params: object, owner: str) -> np.ndarray:
    start = np.asarray(params, float)
    if not (np.isfinite(start).all() and (start > 0).all()):
        raise ArgumentError("start", owner, "positive and finite in every entry", f"smallest entry {start.min():g}")
    return start


class _Powers(eqx.Module):
    """What these parametrisations share: a power of the parameters, or the difference of those of two rows where they are `signed`."""

    alpha: Float[Array, "*b"]
    signed: ClassVar[bool] = True
    depth = 2

    @property
    def form(self) -> str:
        """What tells two of them apart, wherever they start."""
        return type(self).__name__ + f" of depth {self.depth}" * (self.depth > 2)

    def _both(self, one: Array, sign: int = 1) -> Array:
        return jnp.stack([one, sign * one]) if self.signed else one

    def zeros(self, data: Data) -> Array:
        """The start alpha: from zero itself no gradient ever leads away."""
        if self.alpha.ndim == 1 and self.alpha.shape != data.weight_shape:
            wanted = f"one number, or one per coordinate of the weight ({data.weight_shape[0]})"
            raise ArgumentError("alpha", type(self).__name__, wanted, f"{len(self.alpha)} numbers")
        return self._both(jnp.broadcast_to(self.alpha, data.weight_shape))

    def random(self, data: Data, rng: np.random.Generator, scale: float) -> Array:
        shape = (2, *data.weight_shape) if self.signed else data.weight_shape
        return jnp.asarray(scale * np.abs(rng.standard_normal(shape)))

    def weight(self, params: Array, data: Data) -> Array:
        return params[0] ** self.depth - params[1] ** self.depth if self.signed else params**self.depth

    def named(self, params: Array, data: Data) -> dict[str, Array]:
        return {"w_plus": params[0], "w_minus": params[1]} if self.signed else {"beta": params}

    def linearise(self, params: Array, data: Data) -> tuple[Array, Callable[[Array], Array]]:
        slopes = self.depth * params ** (self.depth - 1)
        return data.margins(self.weight(params, data)), lambda pull: slopes * self._both(data.adjoint(pull), -1)

    def lost(self, before: Array, after: Array) -> Bool[Array, ""]:
        """Whether a parameter falls so low that its steps underflow: it never comes back."""
        return jnp.any((jnp.abs(before) >= _UNDERFLOW) & (jnp.abs(after) < _UNDERFLOW))

    def gram(self, params: Array, data: Data) -> Float[Array, "N N"]:
        """Z diag(squared slopes of the weight) Z' with the margin features Z as rows."""
        squares = params ** (2 * self.depth - 2)
        rows = jax.vmap(data.adjoint)(jnp.eye(len(data.constrained())))
        return (rows * (self.depth**2 * (squares.sum(axis=0) if self.signed else squares))[None]) @ rows.T


class Squares(_Powers, PlainMetric):
    r"""$\theta = \beta\odot\beta \ge 0$ from the start $\beta = \alpha$ (one number, or one per coordinate).

    Gradient flow minimises KL($\theta\,|\,\alpha^2$) among nonnegative interpolants; for $\alpha\to0$ that is the l1 norm.
    """

    signed: ClassVar[bool] = False

    def __init__(self, alpha: object):
        self.alpha = _size(alpha, "Squares")

    def potential(self, start: object) -> Entropy:
        """What gradient flow from `start` minimises."""
        return Entropy(2 * np.log(_positive(start, "Squares")))

    def moved(self, start: ArrayLike, dual: ArrayLike) -> np.ndarray:
        """The parameters at the dual point s = X' nu of the flow from `start`."""
        return np.exp(np.log(np.asarray(start)) + np.asarray(dual) / 2)


class SignedSquares(_Powers, PlainMetric):
    r"""$\theta = w_+\odot w_+ - w_-\odot w_-$ from the start $w_+ = w_- = \alpha$ (one number, or one per coordinate).

    The parameters are the two rows $w_+$, $w_-$. Gradient flow minimises $Q_\alpha$ among interpolants.
    """

    def __init__(self, alpha: object):
        self.alpha = _size(alpha, "SignedSquares")

    def potential(self, start: object) -> HyperbolicEntropy:
        """What gradient flow from `start` minimises."""
        plus, minus = np.log(_positive(start, "SignedSquares"))
        return HyperbolicEntropy(plus + minus, plus - minus)

    def moved(self, start: ArrayLike, dual: ArrayLike) -> np.ndarray:
        """The parameters at the dual point s = X' nu of the flow from `start`."""
        return np.exp(np.log(np.asarray(start)) + np.stack([np.asarray(dual), -np.asarray(dual)]) / 2)


class SignedPowers(_Powers, PlainMetric):
    r"""$\theta = w_+^D - w_-^D$ from the start $w_+ = w_- = \alpha$, $D \ge 3$: a diagonal network of that depth (depth 2 is `SignedSquares`).

    Gradient flow minimises the potential `PowerEntropy` among interpolants. For $\alpha\to0$ coefficients off the support vanish like $\alpha^D$.
    """

    depth: int = eqx.field(static=True)

    def __init__(self, alpha: object, depth: object = 3):
        if not is_whole(depth) or depth < 3:
            fix = "SignedSquares(alpha)"
            raise ArgumentError("depth", "SignedPowers", "an integer of at least 3", repr(depth), fix)
        self.alpha, self.depth = _size(alpha, "SignedPowers"), int(depth)
        if self.alpha.ndim:
            raise ArgumentError("alpha", "SignedPowers", "one number", f"shape {self.alpha.shape}")

    def potential(self, start: object) -> PowerEntropy:
        """What gradient flow from `start` minimises; for starts with all entries equal, the only ones whose potential is known here."""
        found = _positive(start, "SignedPowers")
        if np.ptp(found) > 0:
            wanted = "the same in every entry"
            raise ArgumentError("start", "SignedPowers", wanted, f"entries from {found.min():g} to {found.max():g}")
        return PowerEntropy(np.full(found.shape[-1], self.depth * np.log(found.flat[0])), self.depth)

    def moved(self, start: ArrayLike, dual: ArrayLike) -> np.ndarray:
        """The parameters at the dual point s of the flow from `start`: alpha (1 -+ s/p)^(-1/(D - 2))."""
        share = np.stack([np.asarray(dual), -np.asarray(dual)]) * (1 - 2 / self.depth)
        return np.asarray(start) * np.exp(-np.log1p(-share) / (self.depth - 2))
