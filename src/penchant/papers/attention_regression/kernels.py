"""Fused softmax kernels for an accelerator, written in Pallas: what XLA alone would send through device memory stays in registers.

They compute the two quantities that `setting.context_sums` needs and nothing else, so that every caller runs unchanged on a
processor. On a machine without an accelerator they run interpreted, which is how the tests check them.

In float32: two passes over the keys, nothing of size queries x keys ever stored. Products on tensor cores take a number as a sum of bfloat16
slices of eight bits each. Two slices and the three largest products keep about 16 bits of each factor; three slices and six products keep all
24 and cost twice as much. Slices are products' only inputs, sums stay in float32.

In float64: weights of a band of queries are computed once and used twice. Matrix products with the weights are left to the vendor's library,
which is near its limit there; the kernels fuse the products that end in an exponential or a multiplication, which the library would send
through device memory.
"""

from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float

Slices = list[Array]
Pull = Callable[..., Array]
Pair = tuple[Float[Array, "q d"], Float[Array, "q d"]]

LOG2_E = 1.4426950408889634
LOG_2 = 0.6931471805599453
NARROWEST = 16  # smallest product a tensor core takes
DEGREE = 13  # of the exponential: |f log 2| <= 0.35, so the next Taylor term is below 5e-18
BAND_BYTES = 4 << 30

ROWS = (((1,), (1,)), ((), ()))  # contract the last axis of both factors: a b'
COLUMNS = (((1,), (0,)), ((), ()))  # the ordinary matrix product a b

QUERIES, KEYS = (
    64,
    64,
)  # rows of a block in float32; on Hopper the fastest of 32, 64 and 128 with two slices, and within 10 % of it with three
EXACT_KEYS, EXACT_BLOCKS = 32, 16  # in float64 a program takes a block of queries against so many blocks of keys
SPAN = EXACT_KEYS * EXACT_BLOCKS
LAUNCH, EXACT_LAUNCH = (triton.CompilerParams(num_warps=4, num_stages=stages) for stages in (3, 2))


def contexts(
    queries: Float[Array, "q d"],
    keys: Float[Array, "n d"],
    pull: Pull,
    *rows: Array,
    slices: int = 3,
    interpret: bool = False,
) -> Pair:
    """Softmax mean h_i of the keys under logits <query_i, key_j>, and C_i g_i with g_i = pull(h_i, rows_i).

    C_i is the covariance of the keys under the same weights. `slices` says how float32 products are made: 3 keeps all 24 bits of a factor,
    2 is twice as fast and keeps 16, enough where no softmax is saturated.
    """
    count, width = keys.shape
    columns = max(NARROWEST, 1 << (width - 1).bit_length())
    form, block = (_exact, SPAN) if keys.dtype == jnp.float64 else (partial(_sliced, slices=slices), KEYS)

    def padded_pull(mean: Array, *row: Array) -> Array:
        return _padded(pull(mean[:, :width], *row), 1, columns)

    means, slopes = form(
        _padded(queries * jnp.asarray(LOG2_E, keys.dtype), QUERIES, columns),
        _padded(keys, block, columns),
        padded_pull,
        *(_padded(row, QUERIES, row.shape[1]) for row in rows),
        count=count,
        interpret=interpret,
    )
    return means[: len(queries), :width], slopes[: len(queries), :width]


def _padded(array: Array, multiple: int, columns: int) -> Array:
    """Zero rows up to a multiple, zero columns up to a width."""
    return jnp.pad(array, ((0, -len(array) % multiple), (0, columns - array.shape[1])))


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
    total = jnp.zeros((), jnp.float32)
    for order in reversed(range(len(left))):
        for first in range(order + 1):
            total = total + jax.lax.dot_general(
                left[first], right[order - first], dimensions, preferred_element_type=jnp.float32
            )
    return total


def _sliced(logits: Array, keys: Array, pull: Pull, *rows: Array, slices: int, count: int, interpret: bool) -> Pair:
    """h_i and C_i pull(h_i, rows_i) in float32, for logits in base 2. Sizes are multiples of a block; keys past `count` are padding."""
    key_slices, query_slices, width = sliced(keys, slices), sliced(logits, slices), keys.shape[1]
    launch = partial(_launch, parameters=LAUNCH, count=count, interpret=interpret)
    means, log_sums = launch(_mean_kernel, query_slices, key_slices, (), outputs=(width, None))
    pulls = pull(means, *rows)
    offsets = jnp.sum(means * pulls, axis=1)
    queries = [*query_slices, *sliced(pulls, slices)]
    (slopes,) = launch(_slope_kernel, queries, key_slices, (log_sums, offsets), outputs=(width,))
    return means, slopes


def _launch(
    kernel: Callable[..., None],
    queries: Slices,
    keys: Slices,
    vectors: tuple[Array, ...],
    *,
    outputs: tuple[int | None, ...],
    parameters: triton.CompilerParams,
    count: int,
    interpret: bool,
) -> Sequence[Array]:
    """One program per block of queries, with all keys; an output is a matrix of so many columns, or (None) one number per query."""
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
        compiler_params=parameters,
        interpret=interpret,
    )(*queries, *keys, *vectors)


def _over_keys(step: Callable, keys: list, start: tuple, count: int, size: int = KEYS) -> tuple:
    """`step(values, mask, carry)` for every block of keys; only the last one may need a mask."""
    full, rest = divmod(count, size)
    values = lambda block: [reference[pl.ds(block * size, size), :] for reference in keys]
    carry = jax.lax.fori_loop(0, full, lambda block, carry: step(values(block), None, carry), start)
    return step(values(full), jnp.arange(size) < rest, carry) if rest else carry


def _masked(value: Array, mask: Array | None, other: float) -> Array:
    return value if mask is None else jnp.where(mask[None, :], value, other)


def _mean_kernel(*references, slices: int, count: int) -> None:
    """h_i and log2 of the sum of weights, with the running maximum of an online softmax."""
    queries = [reference[...] for reference in references[:slices]]
    means, log_sums = references[2 * slices :]

    def step(values, mask, carry):
        top, total, mean = carry
        logits = _masked(product(queries, values, ROWS), mask, -jnp.inf)
        higher = jnp.maximum(top, logits.max(axis=1))
        weights, shrink = jnp.exp2(logits - higher[:, None]), jnp.exp2(top - higher)
        added = product(sliced_in_kernel(weights, slices), values, COLUMNS)
        return higher, total * shrink + weights.sum(axis=1), mean * shrink[:, None] + added

    rows, width = queries[0].shape
    start = (jnp.full(rows, -jnp.inf, jnp.float32), jnp.zeros(rows, jnp.float32), jnp.zeros((rows, width), jnp.float32))
    top, total, mean = _over_keys(step, list(references[slices : 2 * slices]), start, count)
    means[...] = mean / total[:, None]
    log_sums[...] = top + jnp.log2(total)


def _slope_kernel(*references, slices: int, count: int) -> None:
    """Sum of w_ij (<x_j, g_i> - <h_i, g_i>) x_j: subtracting the mean first keeps the digits of a saturated softmax."""
    queries = [reference[...] for reference in references[:slices]]
    pulls = [reference[...] for reference in references[slices : 2 * slices]]
    log_sums, offsets, slopes = references[3 * slices :]
    log_sum, offset = log_sums[...], offsets[...]

    def step(values, mask, carry):
        weights = _masked(jnp.exp2(product(queries, values, ROWS) - log_sum[:, None]), mask, 0.0)
        pulled = weights * (product(pulls, values, ROWS) - offset[:, None])
        return (carry[0] + product(sliced_in_kernel(pulled, slices), values, COLUMNS),)

    start = (jnp.zeros(queries[0].shape, jnp.float32),)
    (slopes[...],) = _over_keys(step, list(references[2 * slices : 3 * slices]), start, count)


def _exact(logits: Array, keys: Array, pull: Pull, *rows: Array, count: int, interpret: bool) -> Pair:
    """The same in float64."""
    band = _band(logits.shape[0], keys.shape[0])
    # the largest logit of each query to 16 bits, on tensor cores: enough for a shift that the quotient cancels
    asked, values = (sliced(array.astype(jnp.float32), 2) for array in (logits, keys))
    (tops,) = _launch(
        _top_kernel, asked, values, (), outputs=(None,), parameters=EXACT_LAUNCH, count=count, interpret=interpret
    )

    def one(query, top, *row):
        weights, sums = _weights(query, keys, top, count, interpret)
        mean = (weights @ keys) / sums[:, None]
        pulls = pull(mean, *row)
        weights = _pulled(weights, pulls, jnp.sum(mean * pulls, axis=1), keys, interpret)
        return mean, (weights @ keys) / sums[:, None]

    bands = [array.reshape(-1, band, *array.shape[1:]) for array in (logits, tops.astype(jnp.float64), *rows)]
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


def _top_kernel(*references, slices: int, count: int) -> None:
    queries, tops = [reference[...] for reference in references[:slices]], references[-1]

    def step(values, mask, carry):
        logits = _masked(product(queries, values, ROWS), mask, -jnp.inf)
        return (jnp.maximum(carry[0], logits.max(axis=1)),)

    start = (jnp.full(QUERIES, -jnp.inf, jnp.float32),)
    (tops[...],) = _over_keys(step, list(references[slices : 2 * slices]), start, count, EXACT_KEYS)


def _tiled(
    kernel: Callable[..., None], queries: Array, keys: Array, vector: Array, *tiles: Array, sums: bool, interpret: bool
) -> Sequence[Array]:
    """Programs for tiles of queries x keys that fill such a tile, in place if one is given, and with `sums` a sum per query."""
    size, width, spans = len(queries), keys.shape[1], len(keys) // SPAN
    tile = pl.BlockSpec((QUERIES, SPAN), lambda i, j: (i, j))
    specs = [
        pl.BlockSpec((QUERIES, width), lambda i, j: (i, 0)),
        pl.BlockSpec((SPAN, width), lambda i, j: (j, 0)),
        pl.BlockSpec((QUERIES,), lambda i, j: (i,)),
    ]
    shapes = [(size, len(keys)), (spans, size)]
    return pl.pallas_call(
        kernel,
        grid=(size // QUERIES, spans),
        in_specs=[*specs, *([tile] * len(tiles))],
        out_specs=[tile, pl.BlockSpec((None, QUERIES), lambda i, j: (j, i))][: 1 + sums],
        out_shape=[jax.ShapeDtypeStruct(shape, jnp.float64) for shape in shapes[: 1 + sums]],
        input_output_aliases={3: 0} if tiles else {},
        compiler_params=EXACT_LAUNCH,
        interpret=interpret,
    )(queries, keys, vector, *tiles)


def _weights(logits: Array, keys: Array, tops: Array, count: int, interpret: bool) -> tuple[Array, Array]:
    """2^(logit - top) for a band of queries, and its row sums."""
    kernel = partial(_weight_kernel, count=count, padded=count < keys.shape[0])
    weights, sums = _tiled(kernel, logits, keys, tops, sums=True, interpret=interpret)
    return weights, sums.sum(axis=0)


def _weight_kernel(logits, keys, tops, weights, sums, *, count: int, padded: bool) -> None:
    query, top = logits[...], tops[...]
    first = pl.program_id(1) * SPAN

    def step(block, total):
        rows = pl.ds(block * EXACT_KEYS, EXACT_KEYS)
        logit = jax.lax.dot_general(query, keys[rows, :], ROWS, preferred_element_type=jnp.float64)
        inside = first + block * EXACT_KEYS + jnp.arange(EXACT_KEYS) < count if padded else None
        weight = _masked(exp2(logit - top[:, None]), inside, 0.0)
        weights[:, rows] = weight
        return total + weight.sum(axis=1)

    sums[...] = jax.lax.fori_loop(0, EXACT_BLOCKS, step, jnp.zeros(QUERIES, jnp.float64))


def _pulled(weights: Array, pulls: Array, offsets: Array, keys: Array, interpret: bool) -> Array:
    """Each weight times <x_j, g_i> - <h_i, g_i>, in place."""
    return _tiled(_pull_kernel, pulls, keys, offsets, weights, sums=False, interpret=interpret)[0]


def _pull_kernel(pulls, keys, offsets, weights, out) -> None:
    pull, offset = pulls[...], offsets[...]

    def step(block, nothing):
        rows = pl.ds(block * EXACT_KEYS, EXACT_KEYS)
        along = jax.lax.dot_general(pull, keys[rows, :], ROWS, preferred_element_type=jnp.float64)
        out[:, rows] = weights[:, rows] * (along - offset[:, None])
        return nothing

    jax.lax.fori_loop(0, EXACT_BLOCKS, step, 0)
