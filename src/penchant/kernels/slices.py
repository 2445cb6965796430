"""float32 products on tensor cores: a number as a sum of bfloat16 slices of eight bits each.

Two slices and the three largest products keep about 16 bits of each factor; three slices and six products keep all 24 and
cost twice as much. Slices are products' only inputs, sums stay in float32.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Slices = list[Array]

ROWS = (((1,), (1,)), ((), ()))
"""Contract the last axis of both factors: a bᵀ."""

COLUMNS = (((1,), (0,)), ((), ()))
"""The ordinary matrix product a b."""


def sliced(value: Float[Array, "..."], count: int) -> Slices:
    """Slices of an array outside a kernel. `reduce_precision` because XLA may drop a conversion there and back."""
    slices = []
    for _ in range(count):
        head = jax.lax.reduce_precision(value, exponent_bits=8, mantissa_bits=7)
        slices.append(head.astype(jnp.bfloat16))
        value = value - head
    return slices


def sliced_in_kernel(value: Float[Array, "..."], count: int) -> Slices:
    """The same inside a kernel, where a conversion means what it says and `reduce_precision` has no lowering."""
    slices = []
    for _ in range(count):
        slices.append(value.astype(jnp.bfloat16))
        value = value - slices[-1].astype(value.dtype)
    return slices


def product(left: Slices, right: Slices, dimensions: tuple) -> Array:
    """Sum of the products of slices that matter, the smallest first."""
    count = len(left)
    total = jnp.zeros((), jnp.float32)
    for order in reversed(range(count)):
        for first in range(order + 1):
            total = total + jax.lax.dot_general(
                left[first], right[order - first], dimensions, preferred_element_type=jnp.float32
            )
    return total
