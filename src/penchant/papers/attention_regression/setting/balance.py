r"""What keeps the two factors of a layer in balance, in whitened coordinates $\tilde U$ (`upper`) and $\tilde V^\top$ (`lower`)."""

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

Blocks = tuple[Float[Array, "m d"], Float[Array, "d d"]]


class AbstractBalance(eqx.Module):
    """A regulariser of the factors: its value, and its gradient by both blocks."""

    @abstractmethod
    def value(self, upper: Float[Array, "m d"], lower: Float[Array, "d d"]) -> Float[Array, ""]: ...

    @abstractmethod
    def gradient(self, upper: Float[Array, "m d"], lower: Float[Array, "d d"]) -> Blocks: ...

    def scale(self, upper: Float[Array, "m d"], lower: Float[Array, "d d"]) -> Float[Array, ""]:
        """The c of (c U, V/c) that steps undo before they measure lengths: 1 where the regulariser fixes the scale itself."""
        return jnp.ones(())


class Unregularised(AbstractBalance):
    """Nothing: descent on the loss alone."""

    def value(self, upper, lower):
        return jnp.zeros(())

    def gradient(self, upper, lower):
        return jnp.zeros_like(upper), jnp.zeros_like(lower)


class Balance(AbstractBalance):
    r"""$\frac14\|\tilde U^\top\tilde U - \tilde V\tilde V^\top\|_F^2$: with this weight the gradient of the sum is $WW^\top W - 2JW$."""

    def value(self, upper, lower):
        return 0.25 * jnp.sum((upper.T @ upper - lower.T @ lower) ** 2)

    def gradient(self, upper, lower):
        imbalance = upper.T @ upper - lower.T @ lower
        return upper @ imbalance, -lower @ imbalance


class ScaleFreeBalance(AbstractBalance):
    r"""$\frac14\|\rho\,\tilde U^\top\tilde U - \rho^{-1}\tilde V\tilde V^\top\|_F^2$ with $\rho = \|\tilde V\|_F/\|\tilde U\|_F$: blind to the scale $(cU, V/c)$.

    It is `Balance` after the scale that makes both norms equal, so both have the same units and the same minima up to that scale.
    """

    def _imbalance(self, upper: Array, lower: Array) -> tuple[Array, Array, Array]:
        ratio = jnp.sqrt(jnp.sum(lower**2) / jnp.sum(upper**2))
        above, below = ratio * upper.T @ upper, lower.T @ lower / ratio
        return ratio, above - below, above + below

    def value(self, upper, lower):
        return 0.25 * jnp.sum(self._imbalance(upper, lower)[1] ** 2)

    def gradient(self, upper, lower):
        ratio, imbalance, total = self._imbalance(upper, lower)
        # by log(ratio), whose gradients are -upper/|upper|^2 and lower/|lower|^2
        pull = 0.5 * jnp.sum(imbalance * total)
        by_upper = ratio * upper @ imbalance - pull * upper / jnp.sum(upper**2)
        by_lower = -lower @ imbalance / ratio + pull * lower / jnp.sum(lower**2)
        return by_upper, by_lower

    def scale(self, upper, lower):
        """At (c U, V/c) the curvature by V is c^2 times, that by U 1/c^2 times the balanced one: steps must be blind to c as well."""
        return (jnp.sum(upper**2) / jnp.sum(lower**2)) ** 0.25


def limit_logits(upper: Float[Array, "m d"], lower: Float[Array, "d d"], most: Float[Array, ""]) -> tuple[Array, Array]:
    """Move scale from V to U until the operator norm of the whitened V is at most `most`; the product stays."""
    size = jnp.linalg.norm(lower, 2)
    factor = jnp.minimum(1.0, most / jnp.where(size > 0, size, 1.0))
    return upper / factor, lower * factor
