"""Queries and keys in blocks, what both forms of the context sums fold over; and the attention weights themselves, in logarithms."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

BLOCKS = (512, 512)  # queries x keys: a block of logits stays in the second-level cache


class Queries(eqx.Module):
    """A block of queries: their inputs and targets, V x, their row among the keys, and 0 for padding."""

    inputs: Float[Array, "q d"]
    targets: Float[Array, "q m"]
    turned: Float[Array, "q d"]
    row: Int[Array, "q"]
    real: Float[Array, "q"]


class Keys(eqx.Module):
    """All keys in blocks (the last one padded), with the number of real ones."""

    inputs: Float[Array, "blocks k d"]
    count: int = eqx.field(static=True)
    include_self: bool = eqx.field(static=True)

    def logits(self, queries: Queries, block: Any) -> tuple[Array, Array, Array]:
        """Inputs of a block of keys, its logits, and which (query, key) pairs do not attend."""
        keys = self.inputs[block]
        column = block * keys.shape[0] + jnp.arange(keys.shape[0])
        absent = jnp.broadcast_to((column >= self.count)[None, :], (queries.row.shape[0], keys.shape[0]))
        if not self.include_self:
            absent = absent | (column[None, :] == queries.row[:, None])
        return keys, queries.turned @ keys.T, absent

    def over(self, body: Any, start: Any) -> Any:
        """Fold `body(carry, block)` over the blocks of keys."""
        return jax.lax.fori_loop(0, self.inputs.shape[0], lambda block, carry: body(carry, block), start)


def in_blocks(array: Array, size: int) -> Array:
    """Rows in blocks of `size`, padded with zeros."""
    missing = -array.shape[0] % size
    padded = jnp.pad(array, [(0, missing)] + [(0, 0)] * (array.ndim - 1))
    return padded.reshape(-1, size, *array.shape[1:])


class Peaks(eqx.Module):
    """Per query: its largest logit, and the key that has it."""

    logit: Float[Array, "q"]
    key: Int[Array, "q"]


def find_peaks(keys: Keys, queries: Queries) -> Peaks:
    def best(carry: Peaks, block: Any) -> Peaks:
        inputs, logits, absent = keys.logits(queries, block)
        logits = jnp.where(absent, -jnp.inf, logits)
        column = jnp.argmax(logits, axis=1)
        largest = jnp.max(logits, axis=1)
        better = largest > carry.logit
        where = (block * inputs.shape[0] + column).astype(carry.key.dtype)
        return Peaks(jnp.where(better, largest, carry.logit), jnp.where(better, where, carry.key))

    start = Peaks(jnp.full(queries.row.shape, -jnp.inf, queries.inputs.dtype), jnp.zeros_like(queries.row))
    return keys.over(best, start)


def others(keys: Keys, queries: Queries, peaks: Peaks, block: Any) -> tuple[Array, Array]:
    """Inputs of a block of keys, and e^(logit - largest) of all of them but the peak itself."""
    inputs, logits, absent = keys.logits(queries, block)
    column = block * inputs.shape[0] + jnp.arange(inputs.shape[0])
    absent = absent | (column[None, :] == peaks.key[:, None])
    return inputs, jnp.where(absent, 0.0, jnp.exp(jnp.minimum(logits - peaks.logit[:, None], 0.0)))


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
