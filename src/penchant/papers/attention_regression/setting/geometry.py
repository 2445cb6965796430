r"""The three inner products in which a layer can be trained, as maps of its gradient.

With $\Lambda = \mathrm{diag}(I_m, \Sigma)$ and the stacked layer $\Theta = [U; V^\top]$: `left` divides by $\Lambda$, what one matrix can do; `two_sided`
divides by $\Lambda$ and $\Sigma$ on both sides, which removes the covariance altogether; `euclidean` does nothing.
"""

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jaxtyping import Array, Float

from ....errors import ArgumentError
from .problem import AttentionLayer


def solve_right(matrix: Float[Array, "r d"], covariance: Float[Array, "d d"]) -> Float[Array, "r d"]:
    """matrix Sigma^-1 by a Cholesky solve."""
    return jsl.cho_solve(jsl.cho_factor(covariance, lower=True), matrix.T).T


class AbstractGeometry(eqx.Module):
    """A norm of layers. `covariance` may be the population's or an estimate; whitened quantities refer to the same one."""

    name = ""

    @abstractmethod
    def precondition(self, gradient: AttentionLayer, covariance: Float[Array, "d d"]) -> AttentionLayer:
        """The direction of steepest ascent for a gradient by U and V."""

    @abstractmethod
    def whitened_direction(
        self, gradient: Float[Array, "rows d"], covariance: Float[Array, "d d"]
    ) -> Float[Array, "rows d"]:
        """The same direction as seen in W, for a gradient by W."""

    @abstractmethod
    def square(self, difference: AttentionLayer, covariance: Float[Array, "d d"]) -> Float[Array, ""]:
        """The squared norm of a difference of layers."""

    @abstractmethod
    def stretch(self, largest: Float[Array, ""]) -> Float[Array, ""]:
        """By how much the geometry can stretch the whitened gradient, from the largest eigenvalue of the covariance."""


class TwoSided(AbstractGeometry):
    """Precondition both blocks from both sides: training does not see the covariance."""

    name = "two_sided"

    def precondition(self, gradient, covariance):
        factor = jsl.cho_factor(covariance, lower=True)
        return AttentionLayer(
            jsl.cho_solve(factor, gradient.value.T).T,
            jsl.cho_solve(factor, jsl.cho_solve(factor, gradient.key_query).T).T,
        )

    def whitened_direction(self, gradient, covariance):
        return gradient

    def square(self, difference, covariance):
        upper = jnp.sum((difference.value @ covariance) * difference.value)
        return upper + jnp.sum((covariance @ difference.key_query @ covariance) * difference.key_query)

    def stretch(self, largest):
        return jnp.ones_like(largest)


class Left(AbstractGeometry):
    """Precondition by the extended covariance on one side only: the paper's reading."""

    name = "left"

    def precondition(self, gradient, covariance):
        return AttentionLayer(gradient.value, solve_right(gradient.key_query, covariance))

    def whitened_direction(self, gradient, covariance):
        return gradient @ covariance

    def square(self, difference, covariance):
        lower = jnp.sum((difference.key_query @ covariance) * difference.key_query)
        return jnp.sum(difference.value**2) + lower

    def stretch(self, largest):
        return largest


class Euclidean(AbstractGeometry):
    """Plain gradient descent."""

    name = "euclidean"

    def precondition(self, gradient, covariance):
        return gradient

    def whitened_direction(self, gradient, covariance):
        rows = gradient.shape[0] - covariance.shape[0]
        return jnp.concatenate([gradient[:rows], covariance @ gradient[rows:]]) @ covariance

    def square(self, difference, covariance):
        return jnp.sum(difference.value**2) + jnp.sum(difference.key_query**2)

    def stretch(self, largest):
        return largest * jnp.maximum(1.0, largest)


GEOMETRIES = {geometry.name: geometry for geometry in (TwoSided(), Left(), Euclidean())}


def geometry_of(name: str) -> AbstractGeometry:
    """A geometry by name."""
    if name not in GEOMETRIES:
        raise ArgumentError("geometry", "geometry_of", f"one of {', '.join(GEOMETRIES)}", repr(name))
    return GEOMETRIES[name]
