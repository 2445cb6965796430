"""Parametrisations: how parameters make a weight, and the metric in which they are trained."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..errors import ArgumentError
from .base import Data, Setting
from .potentials import Quadratic


def tree_inner(a: PyTree, b: PyTree) -> Float[Array, ""]:
    """Euclidean inner product of two trees of arrays."""
    return sum(jax.tree.leaves(jax.tree.map(jnp.vdot, a, b)), start=jnp.zeros(()))


class PlainMetric(eqx.Module):
    """The metric of parametrisations that are trained in the plain inner product of their own arrays."""

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
        return jnp.asarray(np.zeros(data.weight_shape))

    def random(self, data: Data, rng: np.random.Generator, scale: float) -> Array:
        return jnp.asarray(scale * rng.standard_normal(data.weight_shape))

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
        self.origin = jnp.zeros(data.weight_shape) if origin is None else jnp.asarray(origin, float)
        if self.origin.shape != data.weight_shape:
            raise ArgumentError("origin", "Gram", f"of shape {data.weight_shape}", f"shape {self.origin.shape}")
        bad = np.asarray(self.origin)[~np.isfinite(np.asarray(self.origin))]
        if len(bad):
            raise ArgumentError("origin", "Gram", "finite", f"{bad[0]} ({len(bad)} such entries)")
        self.offset = data.margins(self.origin)
        # Least squares in the features themselves: the Gram matrix would square their condition number.
        inside, self.shift = _project(self.origin, self.offset, data)
        self.frozen = jnp.sum((self.origin - inside) ** 2)

    def zeros(self, data: Data) -> GramPoint:
        return GramPoint(jnp.zeros_like(self.offset), self.offset)

    def random(self, data: Data, rng: np.random.Generator, scale: float) -> GramPoint:
        raise ArgumentError(
            "seed", "Setting.start with Gram", "None", "a seed", "pass the start as `Gram(data, origin=W0)`"
        )

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


def _project(origin: Array, offset: Array, data: Data) -> tuple[Array, Array]:
    """The part of the origin inside span{Z} and its coefficients; nothing to do for a zero origin."""
    if not bool(jnp.any(offset)):
        return jnp.zeros_like(origin), jnp.zeros_like(offset)
    features = jax.vmap(data.adjoint)(jnp.eye(len(offset))).reshape(len(offset), -1)
    shift = jnp.asarray(np.linalg.lstsq(np.asarray(features).T, np.asarray(origin).ravel(), rcond=None)[0])
    return (shift @ features).reshape(origin.shape), shift


def trains_weight(setting: Setting) -> bool:
    """Whether the weight itself is trained, and no parameters that make one."""
    return isinstance(setting.parametrisation, Direct | Gram)
