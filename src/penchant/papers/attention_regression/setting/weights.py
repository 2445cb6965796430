"""Attention weights themselves: in logarithms, and what the largest one leaves to the others."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .context_blocks import BLOCKS, Keys, Queries, find_peaks, in_blocks, others


def log_weights(inputs: Any, key_query: Any, *, include_self: bool = True) -> Float[Array, "n n"]:
    """Logarithms of all attention weights, row by row (dense: for small samples)."""
    logits = jnp.asarray(inputs) @ jnp.asarray(key_query).T @ jnp.asarray(inputs).T
    if not include_self:
        logits = jnp.where(jnp.eye(inputs.shape[0], dtype=bool), -jnp.inf, logits)
    return jax.nn.log_softmax(logits, axis=1)


@partial(jax.jit, static_argnames=("include_self", "blocks"))
def rest_of_largest(
    inputs: Any, key_query: Any, *, include_self: bool = True, blocks: tuple[int, int] = BLOCKS
) -> tuple[Float[Array, "n"], Int[Array, "n"]]:
    """1 - w_max for every query, as the sum of the other weights (never a difference), and the key that has w_max.

    >>> rest, key = rest_of_largest(jnp.array([[1.0], [3.0]]), jnp.array([[50.0]]))     # logit differences 100 and 300
    >>> [f"{value:.6e}" for value in rest.tolist()], key.tolist()
    (['3.720076e-44', '5.148200e-131'], [1, 1])
    """
    inputs, key_query = jnp.asarray(inputs), jnp.asarray(key_query)
    n = inputs.shape[0]
    keys = Keys(in_blocks(inputs, min(blocks[1], n)), n, include_self)
    real = jnp.ones(n, inputs.dtype)

    def block(which: tuple[Array, Array]) -> tuple[Array, Array]:
        row, mask = which
        queries = Queries(inputs[row], inputs[row], inputs[row] @ key_query.T, row, mask)
        peaks = find_peaks(keys, queries)
        add = lambda mass, k: mass + others(keys, queries, peaks, k)[1].sum(axis=1)
        mass = keys.over(add, jnp.zeros_like(mask))
        return mass / (1 + mass), peaks.key

    size = min(blocks[0], n)
    rest, key = jax.lax.map(block, (in_blocks(jnp.arange(n), size), in_blocks(real, size)))
    return rest.ravel()[:n], key.ravel()[:n]
