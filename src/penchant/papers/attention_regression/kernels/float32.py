"""Contexts and covariance products in float32: two passes over the keys, nothing of size queries x keys ever stored.

float32 products on tensor cores take a number as a sum of bfloat16 slices of eight bits each. Two slices and the three largest products keep
about 16 bits of each factor; three slices and six products keep all 24 and cost twice as much. Slices are products' only inputs, sums stay in float32.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
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


QUERIES, KEYS = (
    64,
    64,
)  # rows of a block; on Hopper the fastest of 32, 64 and 128 with two slices, and within 10 % of it with three
LAUNCH = triton.CompilerParams(num_warps=4, num_stages=3)

Pull = Callable[..., Array]


def contexts(
    logits: Float[Array, "q d"],
    keys: Float[Array, "n d"],
    pull: Pull,
    *rows: Array,
    count: int,
    slices: int = 3,
    interpret: bool = False,
) -> tuple[Float[Array, "q d"], Float[Array, "q d"]]:
    """h_i and C_i pull(h_i, rows_i), for logits in base 2. Sizes are multiples of a block; keys past `count` are padding."""
    key_slices = sliced(keys, slices)
    query_slices = sliced(logits, slices)
    launch = partial(_launch, count=count, interpret=interpret)
    means, log_sums = launch(_mean_kernel, query_slices, key_slices, (), outputs=(keys.shape[1], None))
    pulls = pull(means, *rows)
    offsets = jnp.sum(means * pulls, axis=1)
    queries = [*query_slices, *sliced(pulls, slices)]
    (slopes,) = launch(_slope_kernel, queries, key_slices, (log_sums, offsets), outputs=(keys.shape[1],))
    return means, slopes


def _launch(
    kernel: Callable[..., None],
    queries: list[Array],
    keys: list[Array],
    vectors: tuple[Array, ...],
    outputs: tuple[int | None, ...],
    count: int,
    interpret: bool,
) -> tuple[Array, ...]:
    size, width = queries[0].shape
    block = pl.BlockSpec((QUERIES, width), lambda i: (i, 0))
    vector = pl.BlockSpec((QUERIES,), lambda i: (i,))
    everything = pl.BlockSpec(keys[0].shape, lambda i: (0, 0))
    shapes = [(size,) if columns is None else (size, columns) for columns in outputs]
    return pl.pallas_call(
        partial(kernel, slices=len(keys), count=count),
        grid=(size // QUERIES,),
        in_specs=[block] * len(queries) + [everything] * len(keys) + [vector] * len(vectors),
        out_specs=[vector if columns is None else block for columns in outputs],
        out_shape=[jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes],
        compiler_params=LAUNCH,
        interpret=interpret,
    )(*queries, *keys, *vectors)


def _over_keys(step: Callable, start: tuple, count: int) -> tuple:
    """`step(block, mask, carry)` for every block of keys; only the last one may need a mask."""
    full, rest = divmod(count, KEYS)
    carry = jax.lax.fori_loop(0, full, lambda block, carry: step(block, None, carry), start)
    return step(full, jnp.arange(KEYS) < rest, carry) if rest else carry


def _block(references: list, block: Array | int) -> list[Array]:
    return [reference[pl.ds(block * KEYS, KEYS), :] for reference in references]


def _mean_kernel(*references, slices: int, count: int) -> None:
    """h_i and log2 of the sum of weights, with the running maximum of an online softmax."""
    queries = [reference[...] for reference in references[:slices]]
    keys = list(references[slices : 2 * slices])
    means, log_sums = references[2 * slices :]

    def step(block, mask, carry):
        top, total, mean = carry
        values = _block(keys, block)
        logits = product(queries, values, ROWS)
        if mask is not None:
            logits = jnp.where(mask[None, :], logits, -jnp.inf)
        higher = jnp.maximum(top, logits.max(axis=1))
        weights, shrink = jnp.exp2(logits - higher[:, None]), jnp.exp2(top - higher)
        added = product(sliced_in_kernel(weights, slices), values, COLUMNS)
        return higher, total * shrink + weights.sum(axis=1), mean * shrink[:, None] + added

    rows, width = queries[0].shape
    start = (jnp.full(rows, -jnp.inf, jnp.float32), jnp.zeros(rows, jnp.float32), jnp.zeros((rows, width), jnp.float32))
    top, total, mean = _over_keys(step, start, count)
    means[...] = mean / total[:, None]
    log_sums[...] = top + jnp.log2(total)


def _slope_kernel(*references, slices: int, count: int) -> None:
    """Sum of w_ij (<x_j, g_i> - <h_i, g_i>) x_j: subtracting the mean first keeps the digits of a saturated softmax."""
    queries = [reference[...] for reference in references[:slices]]
    pulls = [reference[...] for reference in references[slices : 2 * slices]]
    keys = list(references[2 * slices : 3 * slices])
    log_sums, offsets, slopes = references[3 * slices :]
    log_sum, offset = log_sums[...], offsets[...]

    def step(block, mask, carry):
        values = _block(keys, block)
        weights = jnp.exp2(product(queries, values, ROWS) - log_sum[:, None])
        if mask is not None:
            weights = jnp.where(mask[None, :], weights, 0.0)
        pulled = weights * (product(pulls, values, ROWS) - offset[:, None])
        return (carry[0] + product(sliced_in_kernel(pulled, slices), values, COLUMNS),)

    (slopes[...],) = _over_keys(step, (jnp.zeros(queries[0].shape, jnp.float32),), count)
