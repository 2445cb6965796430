"""Queries and keys in blocks: what both forms of the context sums fold over."""

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
