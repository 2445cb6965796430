r"""Parametrisations: how parameters make a weight, and the metric in which they are trained.

Powers of positive parameters are weights made of squares, or of differences of squares or higher powers, from a start of size alpha.
Gradient flow selects the interpolant of least potential (`potentials`): of both signs, the l2 norm for $\alpha\to\infty$, the l1 norm for $\alpha\to0$.
"""

from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, PyTree

from ..errors import ArgumentError
from .base import Data, Setting
from .check import is_whole, one_or_more
from .potentials import Entropy, HyperbolicEntropy, PowerEntropy, Quadratic


def tree_inner(a: PyTree, b: PyTree) -> Float[Array, ""]:
    """Euclidean inner product of two trees of arrays."""
    return sum(jax.tree.leaves(jax.tree.map(jnp.vdot, a, b)), start=jnp.zeros(()))


class PlainMetric(eqx.Module):
    """The metric of parametrisations that are trained in the plain inner product of their own arrays."""

    by_rows: ClassVar[bool] = True  # `gram` with some of the margins of the data is that part of the whole

    def inner(self, a: PyTree, b: PyTree) -> Float[Array, ""]:
        return tree_inner(a, b)

    def norm(self, params: PyTree) -> Float[Array, ""]:
        return jnp.sqrt(tree_inner(params, params))

    def refresh(self, params: PyTree) -> PyTree:
        """Nothing travels with the parameters that would have to be recomputed from them."""
        return params

    def lost(self, before: PyTree, after: PyTree) -> Array | bool:
        """Whether a step would take parameters to a place from which no gradient leads back."""
        return False

    def check_optimiser(self, optimiser: object) -> None:
        """Any optimiser will do."""


class Direct(PlainMetric):
    """The weight itself is trained; gradient flow then minimises its l2 (Frobenius) norm."""

    form = "plain weights"

    def zeros(self, data: Data) -> Array:
        return jax.device_put(np.zeros(data.weight_shape))

    def random(self, data: Data, rng: np.random.Generator, scale: float) -> Array:
        return jax.device_put(scale * rng.standard_normal(data.weight_shape))

    def from_weight(self, weight: Array, data: Data) -> Array:
        """Parameters that stand for `weight`."""
        return jnp.asarray(weight, float)

    def weight(self, params: Array, data: Data) -> Array:
        return params

    def named(self, params: Array, data: Data) -> dict[str, Array]:
        return {"W": params}

    def linearise(self, params: Array, data: Data) -> tuple[Array, Callable[[Array], Array]]:
        return data.margins(params), data.adjoint

    def gram(self, params: Array, data: Data) -> Float[Array, "N N"]:
        return data.gram()

    def potential(self, start: object) -> Quadratic:
        """What gradient flow on a regression from `start` minimises."""
        return Quadratic(np.asarray(start, float))

    def moved(self, start: object, dual: object) -> np.ndarray:
        """The parameters at the dual point s = X' nu of the flow from `start`."""
        return np.asarray(start) + np.asarray(dual)


class GramPoint(eqx.Module):
    """Coefficients c of W - W_0 = sum_k c_k Z_k together with the margins they produce."""

    coefficients: Float[Array, "*b N"]
    margins: Float[Array, "*b N"]


class Gram(eqx.Module):
    r"""`Direct` in exact disguise: every step of `Direct` stays in $W_0 + \mathrm{span}\{Z_k\}$, so only the N coefficients are kept.

    With $K_{kl} = \langle Z_k, Z_l\rangle$ the margins are $m = m^0 + Kc$ and $\|W\|^2 = \|W_0^\perp\|^2 + \tilde c^\top m$ with
    $K c^0 = m^0$, $\tilde c = c + c^0$; the cost no longer depends on the dimension of W. The margins travel with the
    coefficients (one product with K per step) and are recomputed from them at every record.

    **Hypotheses:** the optimiser is a combination of gradients (descent, momentum, acceleration), not coordinatewise.
    """

    form = "plain weights"

    matrix: Float[Array, "N N"]
    offset: Float[Array, "N"]
    shift: Float[Array, "N"]
    frozen: Float[Array, ""]
    origin: Array

    def __init__(self, data: Data, origin: object = None):
        self.matrix = data.gram()
        first = np.zeros(data.weight_shape) if origin is None else np.array(origin, float)
        if first.shape != data.weight_shape:
            raise ArgumentError("origin", "Gram", f"of shape {data.weight_shape}", f"shape {first.shape}")
        bad = first[~np.isfinite(first)]
        if len(bad):
            raise ArgumentError("origin", "Gram", "finite", f"{bad[0]} ({len(bad)} such entries)")
        self.origin = jax.device_put(first)
        self.offset = data.margins(self.origin)
        # Least squares in the features themselves: the Gram matrix would square their condition number.
        inside, shift = _project(first, np.asarray(self.offset), data)
        self.shift, self.frozen = jax.device_put((shift, np.sum((first - inside) ** 2)))

    def zeros(self, data: Data) -> GramPoint:
        return GramPoint(jnp.zeros_like(self.offset), self.offset)

    def random(self, data: Data, rng: np.random.Generator, scale: float) -> GramPoint:
        fix = "pass the start as `Gram(data, origin=W0)`"
        raise ArgumentError("seed", "Setting.start with Gram", "None", "a seed", fix)

    def weight(self, params: GramPoint, data: Data) -> Array:
        return self.origin + data.adjoint(params.coefficients)

    def named(self, params: GramPoint, data: Data) -> dict[str, Array]:
        return {"W": self.weight(params, data)}

    def linearise(self, params: GramPoint, data: Data) -> tuple[Array, Callable[[Array], GramPoint]]:
        return params.margins, lambda cotangent: GramPoint(cotangent, self.matrix @ cotangent)

    def gram(self, params: GramPoint, data: Data) -> Float[Array, "N N"]:
        return self.matrix

    def inner(self, a: GramPoint, b: GramPoint) -> Float[Array, ""]:
        return jnp.vdot(a.coefficients, b.margins)

    def norm(self, params: GramPoint) -> Float[Array, ""]:
        return jnp.sqrt(self.frozen + jnp.vdot(params.coefficients + self.shift, params.margins))

    def lost(self, before: GramPoint, after: GramPoint) -> bool:
        return False

    def check_optimiser(self, optimiser: object) -> None:
        """Coordinates and singular values of a slope are not known here."""
        if not getattr(optimiser, "combines", not getattr(optimiser, "coordinatewise", False)):
            found = type(optimiser).__name__
            raise ArgumentError("optimiser", "train with Gram", "a combination of gradients", found, "use `Direct()`")

    def refresh(self, params: GramPoint) -> GramPoint:
        return GramPoint(params.coefficients, self.offset + self.matrix @ params.coefficients)


def _project(origin: np.ndarray, offset: np.ndarray, data: Data) -> tuple[np.ndarray, np.ndarray]:
    """The part of the origin inside span{Z} and its coefficients; nothing to do for a zero origin."""
    if not offset.any():
        return np.zeros_like(origin), np.zeros_like(offset)
    features = np.asarray(jax.vmap(data.adjoint)(jnp.eye(len(offset)))).reshape(len(offset), -1)
    shift = np.linalg.lstsq(features.T, origin.ravel(), rcond=None)[0]
    return (shift @ features).reshape(origin.shape), shift


def trains_weight(setting: Setting) -> bool:
    """Whether the weight itself is trained, and no parameters that make one."""
    return isinstance(setting.parametrisation, Direct | Gram)


_UNDERFLOW = 1e-290  # parameters below it take steps that underflow


def _size(alpha: object, owner: str) -> Array:
    required = "positive and finite (zero is a critical point)"
    return jax.device_put(one_or_more(alpha, "alpha", owner, required, lambda size: (size > 0) & np.isfinite(size)))


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
        return jax.device_put(scale * np.abs(rng.standard_normal(shape)))

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
