"""Contexts and covariance products in float64: weights of a band of queries are computed once and used twice.

Matrix products with the weights are left to the vendor's library, which is near its limit there; the kernels fuse the products
that end in an exponential or a multiplication, which the library would send through device memory.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float

from .float32 import ROWS, product, sliced

QUERIES, KEYS, BLOCKS = 64, 32, 16  # a program takes a block of queries against BLOCKS blocks of keys
BAND_BYTES = 4 << 30
LAUNCH = triton.CompilerParams(num_warps=4, num_stages=2)
LOG_2 = 0.6931471805599453
DEGREE = 13  # |f log 2| <= 0.35: the next Taylor term is below 5e-18

Pull = Callable[..., Array]


def contexts(
    logits: Float[Array, "q d"],
    keys: Float[Array, "n d"],
    pull: Pull,
    *rows: Array,
    count: int,
    interpret: bool = False,
) -> tuple[Float[Array, "q d"], Float[Array, "q d"]]:
    """h_i and C_i pull(h_i, rows_i), for logits in base 2. Sizes are multiples of a block; keys past `count` are padding."""
    band = _band(logits.shape[0], keys.shape[0])
    tops = _tops(logits, keys, count, interpret)

    def one(query, top, *row):
        weights, sums = _weights(query, keys, top, count, interpret)
        mean = (weights @ keys) / sums[:, None]
        pulls = pull(mean, *row)
        weights = _pulled(weights, pulls, jnp.sum(mean * pulls, axis=1), keys, interpret)
        return mean, (weights @ keys) / sums[:, None]

    bands = [array.reshape(-1, band, *array.shape[1:]) for array in (logits, tops, *rows)]
    means, slopes = jax.lax.map(lambda arrays: one(*arrays), tuple(bands))
    return means.reshape(logits.shape), slopes.reshape(logits.shape)


def exp2(value: Float[Array, "..."]) -> Float[Array, "..."]:
    """2^value for value <= 0 to the last bit or two, in arithmetic that a kernel can inline."""
    whole = jnp.floor(value + 0.5)
    fraction = (value - whole) * LOG_2
    series = jnp.ones_like(value)
    for degree in range(DEGREE, 0, -1):
        series = 1.0 + series * fraction * (1.0 / degree)
    exponent = jnp.maximum(whole, -1022.0).astype(jnp.int32).astype(jnp.int64)
    return series * jax.lax.bitcast_convert_type((exponent + 1023) << 52, jnp.float64)


def _band(queries: int, keys: int) -> int:
    """Largest number of queries, a divisor made of whole blocks, whose weights fit into BAND_BYTES."""
    blocks = queries // QUERIES
    fitting = [size for size in range(1, blocks + 1) if blocks % size == 0 and size * QUERIES * keys * 8 <= BAND_BYTES]
    return QUERIES * max(fitting, default=1)


def _tops(logits: Array, keys: Array, count: int, interpret: bool) -> Array:
    """Largest logit of each query to 16 bits, on tensor cores: enough for a shift that the quotient cancels."""
    queries, values = sliced(logits.astype(jnp.float32), 2), sliced(keys.astype(jnp.float32), 2)
    block, vector = pl.BlockSpec((QUERIES, keys.shape[1]), lambda i: (i, 0)), pl.BlockSpec((QUERIES,), lambda i: (i,))
    everything = pl.BlockSpec(keys.shape, lambda i: (0, 0))
    tops = pl.pallas_call(
        partial(_top_kernel, count=count),
        grid=(logits.shape[0] // QUERIES,),
        in_specs=[block, block, everything, everything],
        out_specs=vector,
        out_shape=jax.ShapeDtypeStruct(logits.shape[:1], jnp.float32),
        compiler_params=LAUNCH,
        interpret=interpret,
    )(*queries, *values)
    return tops.astype(jnp.float64)


def _top_kernel(head, tail, key_head, key_tail, tops, *, count: int) -> None:
    queries = [head[...], tail[...]]

    def step(block, top):
        rows = pl.ds(block * KEYS, KEYS)
        logits = product(queries, [key_head[rows, :], key_tail[rows, :]], ROWS)
        inside = block * KEYS + jnp.arange(KEYS) < count
        return jnp.maximum(top, jnp.where(inside[None, :], logits, -jnp.inf).max(axis=1))

    blocks = pl.cdiv(count, KEYS)
    tops[...] = jax.lax.fori_loop(0, blocks, step, jnp.full(QUERIES, -jnp.inf, jnp.float32))


def _tiles(width: int) -> tuple[pl.BlockSpec, pl.BlockSpec, pl.BlockSpec, pl.BlockSpec]:
    """Blocks of queries, of keys, of one number per query, and the tile of weights between them."""
    span = KEYS * BLOCKS
    return (
        pl.BlockSpec((QUERIES, width), lambda i, j: (i, 0)),
        pl.BlockSpec((span, width), lambda i, j: (j, 0)),
        pl.BlockSpec((QUERIES,), lambda i, j: (i,)),
        pl.BlockSpec((QUERIES, span), lambda i, j: (i, j)),
    )


def _weights(logits: Array, keys: Array, tops: Array, count: int, interpret: bool) -> tuple[Array, Array]:
    """2^(logit - top) for a band of queries, and its row sums."""
    query, key, vector, tile = _tiles(keys.shape[1])
    size, spans = logits.shape[0], keys.shape[0] // (KEYS * BLOCKS)
    weights, sums = pl.pallas_call(
        partial(_weight_kernel, count=count, padded=count < keys.shape[0]),
        grid=(size // QUERIES, spans),
        in_specs=[query, key, vector],
        out_specs=[tile, pl.BlockSpec((None, QUERIES), lambda i, j: (j, i))],
        out_shape=[jax.ShapeDtypeStruct(shape, jnp.float64) for shape in ((size, keys.shape[0]), (spans, size))],
        compiler_params=LAUNCH,
        interpret=interpret,
    )(logits, keys, tops)
    return weights, sums.sum(axis=0)


def _weight_kernel(logits, keys, tops, weights, sums, *, count: int, padded: bool) -> None:
    query, top = logits[...], tops[...]
    first = pl.program_id(1) * KEYS * BLOCKS

    def step(block, total):
        rows = pl.ds(block * KEYS, KEYS)
        logit = jax.lax.dot_general(query, keys[rows, :], ROWS, preferred_element_type=jnp.float64)
        weight = exp2(logit - top[:, None])
        if padded:
            inside = first + block * KEYS + jnp.arange(KEYS) < count
            weight = jnp.where(inside[None, :], weight, 0.0)
        weights[:, rows] = weight
        return total + weight.sum(axis=1)

    sums[...] = jax.lax.fori_loop(0, BLOCKS, step, jnp.zeros(QUERIES, jnp.float64))


def _pulled(weights: Array, pulls: Array, offsets: Array, keys: Array, interpret: bool) -> Array:
    """Each weight times <x_j, g_i> - <h_i, g_i>, in place."""
    query, key, vector, tile = _tiles(keys.shape[1])
    return pl.pallas_call(
        _pull_kernel,
        grid=(weights.shape[0] // QUERIES, keys.shape[0] // (KEYS * BLOCKS)),
        in_specs=[query, key, vector, tile],
        out_specs=tile,
        out_shape=jax.ShapeDtypeStruct(weights.shape, jnp.float64),
        input_output_aliases={3: 0},
        compiler_params=LAUNCH,
        interpret=interpret,
    )(pulls, keys, offsets, weights)


def _pull_kernel(pulls, keys, offsets, weights, out) -> None:
    pull, offset = pulls[...], offsets[...]

    def step(block, nothing):
        rows = pl.ds(block * KEYS, KEYS)
        along = jax.lax.dot_general(pull, keys[rows, :], ROWS, preferred_element_type=jnp.float64)
        out[:, rows] = weights[:, rows] * (along - offset[:, None])
        return nothing

    jax.lax.fori_loop(0, BLOCKS, step, 0)
