"""Norms in which a step is steepest: a direction and the dual norm of the slope."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..problem import Reading


class L2(eqx.Module):
    """The norm of the parametrisation itself: the direction is the slope."""

    coordinatewise: bool = eqx.field(static=True, default=False)

    def dual_norm(self, reading: Reading) -> Float[Array, ""]:
        return jnp.exp(reading.log_slope_norm)

    def direction(self, slope: PyTree, reading: Reading) -> PyTree:
        return slope


class Linf(eqx.Module):
    """The largest coordinate: every coordinate moves by the same amount (sign descent)."""

    coordinatewise: bool = eqx.field(static=True, default=True)

    def dual_norm(self, reading: Reading) -> Float[Array, ""]:
        return jnp.sum(jnp.stack([jnp.sum(jnp.abs(leaf)) for leaf in jax.tree.leaves(reading.slope)]))

    def direction(self, slope: PyTree, reading: Reading) -> PyTree:
        size: Any = self.dual_norm(reading)
        return jax.tree.map(lambda leaf: size * jnp.sign(leaf), slope)
