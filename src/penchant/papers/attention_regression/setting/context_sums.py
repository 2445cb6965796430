r"""Softmax attention over a sample: the empirical loss and its gradient, without ever building the n x n weights.

With $z_{ij} = x_j^\top V x_i$, $w_i = \mathrm{softmax}(z_i)$, $h_i = \sum_j w_{ij}x_j$, $r_i = Uh_i - y_i$, $g_i = U^\top r_i$ and $C_i$ the covariance
of the keys under $w_i$, the loss is $\frac1n\sum_i|r_i|^2$ and its gradients are $\frac2n\sum_i r_ih_i^\top$ and $\frac2n\sum_i(C_ig_i)x_i^\top$.
Queries go in blocks, keys in blocks inside; time is quadratic in n, memory does not depend on it.

Two forms. *One pass* takes the sums of $[1, x, \mathrm{vech}(xx^\top)]$ with one exponential per pair; it needs bounded logits, and loses digits
where attention saturates, because $C_i$ is then a small difference. *Two passes* measure everything from the key of the largest weight, so that
nothing cancels. "auto" takes one pass where it is both cheaper and accurate, block by block.

Nothing of that is special to a processor or to a floating-point type: arrays on an accelerator, in either precision, run the same code.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from ....errors import ArgumentError, warn

T = TypeVar("T")

BLOCKS = (512, 512)  # queries x keys: a block of logits stays in the second-level cache
FORMS = ("auto", "two_pass", "dense")
WIDEST_ONE_PASS = 16  # features grow like d^2/2; from here on a second exponential per pair is cheaper
DENSE_LIMIT = 20_000  # rows beyond which a dense n x n matrix takes more than 3 GB
RESOLVED = 1e-3  # a covariance below this share of the second moment has lost three digits: take two passes


class Sums(eqx.Module):
    """The empirical loss and its gradients by the value matrix (m x d) and the key-query matrix (d x d)."""

    loss: Float[Array, ""]
    value: Float[Array, "m d"]
    key_query: Float[Array, "d d"]


def context_sums(
    inputs: ArrayLike,
    targets: ArrayLike,
    value: ArrayLike,
    key_query: ArrayLike,
    *,
    queries: object = None,
    include_self: bool = True,
    form: str = "auto",
    blocks: tuple[int, int] = BLOCKS,
) -> Sums:
    """Empirical loss and gradient of attention whose keys are all `inputs`.

    `queries` are the rows that ask (all by default); the loss is their mean. `include_self=False` leaves a query out of its own
    context. `blocks` is (queries, keys) per block. Works under `jit`; the type of the arrays decides the precision.

    >>> x, y = jnp.array([[1.0], [3.0]]), jnp.array([[0.0], [1.0]])
    >>> found = context_sums(x, y, jnp.ones((1, 1)), jnp.zeros((1, 1)))       # uniform weights: every prediction is 2
    >>> float(found.loss), found.value.tolist(), found.key_query.tolist()
    (2.5, [[6.0]], [[5.0]])
    """
    inputs, targets, value, key_query = (jnp.asarray(array) for array in (inputs, targets, value, key_query))
    _check(inputs, targets, value, key_query, form, blocks, include_self)
    rows = jnp.arange(inputs.shape[0]) if queries is None else _rows(queries, inputs.shape[0])
    arrays = (inputs, targets, value, key_query, rows)
    with jax.default_matmul_precision("highest"):  # an accelerator would round float32 products to eleven bits
        if form == "dense":
            return _dense(*arrays, include_self)
        return _blocked(*arrays, include_self, form, blocks)


def _check(x: Array, y: Array, u: Array, v: Array, form: str, blocks: tuple[int, int], include_self: bool) -> None:
    n, d = x.shape
    if y.shape[0] != n:
        raise ArgumentError("targets", "context_sums", f"one row per row of inputs ({n})", f"{y.shape[0]} rows")
    if v.shape != (d, d):
        raise ArgumentError("key_query", "context_sums", f"square of size {d}", f"shape {v.shape}")
    if u.shape != (y.shape[1], d):
        raise ArgumentError("value", "context_sums", f"of shape {(y.shape[1], d)}", f"shape {u.shape}")
    if form not in FORMS:
        raise ArgumentError("form", "context_sums", f"one of {', '.join(FORMS)}", repr(form))
    if form == "dense" and n > DENSE_LIMIT:
        warn(f"The dense form stores several {n} x {n} matrices of {8e-9 * n**2:.0f} GB; form='auto' stores none.")
    if min(blocks) < 1:
        raise ArgumentError("blocks", "context_sums", "two positive integers", blocks)
    if not include_self and n < 2:
        raise ArgumentError("include_self", "context_sums", "True for a single row", "False: there would be no key")


def _rows(queries: object, n: int) -> Array:
    """Rows that ask, as indices: an index beyond the last would silently read the last one."""
    required = f"a list of at least one row index from 0 to {n - 1}"
    try:
        rows = jnp.asarray(queries)
    except (TypeError, ValueError) as error:
        raise ArgumentError("queries", "context_sums", required, f"{type(queries).__name__} ({error})") from None
    if rows.ndim != 1 or rows.shape[0] == 0:
        raise ArgumentError("queries", "context_sums", required, f"shape {rows.shape}")
    if not jnp.issubdtype(rows.dtype, jnp.integer):
        fix = "`np.flatnonzero(mask)` for a mask" if rows.dtype == bool else ""
        raise ArgumentError("queries", "context_sums", required, f"entries of type {rows.dtype}", fix)
    if not isinstance(rows, Tracer) and not (int(rows.min()) >= 0 and int(rows.max()) < n):
        raise ArgumentError("queries", "context_sums", required, f"{int(rows.min())} to {int(rows.max())}")
    return rows


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

    def logits(self, queries: Queries, block: Array) -> tuple[Array, Array, Array]:
        """Inputs of a block of keys, its logits, and which (query, key) pairs do not attend."""
        keys = self.inputs[block]
        column = block * keys.shape[0] + jnp.arange(keys.shape[0])
        absent = jnp.broadcast_to((column >= self.count)[None, :], (queries.row.shape[0], keys.shape[0]))
        if not self.include_self:
            absent = absent | (column[None, :] == queries.row[:, None])
        return keys, queries.turned @ keys.T, absent

    def over(self, body: Callable[[T, Array], T], start: T) -> T:
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
    def best(carry: Peaks, block: Array) -> Peaks:
        inputs, logits, absent = keys.logits(queries, block)
        logits = jnp.where(absent, -jnp.inf, logits)
        column = jnp.argmax(logits, axis=1)
        largest = jnp.max(logits, axis=1)
        better = largest > carry.logit
        where = (block * inputs.shape[0] + column).astype(carry.key.dtype)
        return Peaks(jnp.where(better, largest, carry.logit), jnp.where(better, where, carry.key))

    start = Peaks(jnp.full(queries.row.shape, -jnp.inf, queries.inputs.dtype), jnp.zeros_like(queries.row))
    return keys.over(best, start)


def others(keys: Keys, queries: Queries, peaks: Peaks, block: Array) -> tuple[Array, Array]:
    """Inputs of a block of keys, and e^(logit - largest) of all of them but the peak itself."""
    inputs, logits, absent = keys.logits(queries, block)
    column = block * inputs.shape[0] + jnp.arange(inputs.shape[0])
    absent = absent | (column[None, :] == peaks.key[:, None])
    return inputs, jnp.where(absent, 0.0, jnp.exp(jnp.minimum(logits - peaks.logit[:, None], 0.0)))


def log_weights(inputs: ArrayLike, key_query: ArrayLike, *, include_self: bool = True) -> Float[Array, "n n"]:
    """Logarithms of all attention weights, row by row (dense: for small samples)."""
    inputs = jnp.asarray(inputs)
    logits = inputs @ jnp.asarray(key_query).T @ inputs.T
    if not include_self:
        logits = jnp.where(jnp.eye(len(inputs), dtype=bool), -jnp.inf, logits)
    return jax.nn.log_softmax(logits, axis=1)


@partial(jax.jit, static_argnames=("include_self",))
def _dense(x: Array, y: Array, u: Array, v: Array, rows: Array, include_self: bool) -> Sums:
    """The definition, differentiated: the reference for the blocked forms."""

    def loss(u: Array, v: Array) -> Array:
        weights = jnp.exp(log_weights(x, v, include_self=include_self)[rows])
        return jnp.sum((weights @ x @ u.T - y[rows]) ** 2) / rows.shape[0]

    value, (by_value, by_key_query) = jax.value_and_grad(loss, argnums=(0, 1))(u, v)
    return Sums(value, by_value, by_key_query)


@partial(jax.jit, static_argnames=("include_self", "form", "blocks"))
def _blocked(
    x: Array, y: Array, u: Array, v: Array, rows: Array, include_self: bool, form: str, blocks: tuple[int, int]
) -> Sums:
    count = rows.shape[0]
    per_block = min(blocks[0], count)
    keys = Keys(in_blocks(x, min(blocks[1], x.shape[0])), x.shape[0], include_self)
    rows = in_blocks(rows, per_block)
    real = in_blocks(jnp.ones(count, x.dtype), per_block)
    attend = partial(_FORMS[form if x.shape[1] <= WIDEST_ONE_PASS else "two_pass"], keys, u)
    longest = jnp.sqrt(jnp.max(jnp.sum(x**2, axis=1)))

    def block(carry: Sums, which: tuple[Array, Array]) -> tuple[Sums, None]:
        row, real = which
        queries = Queries(x[row], y[row], x[row] @ v.T, row, real)
        means, pull = attend(queries, longest)
        residual = (means @ u.T - queries.targets) * real[:, None]
        value = carry.value + residual.T @ means
        key_query = carry.key_query + (pull * real[:, None]).T @ queries.inputs
        return Sums(carry.loss + jnp.sum(residual**2), value, key_query), None

    start = Sums(jnp.zeros((), x.dtype), jnp.zeros_like(u), jnp.zeros_like(v))
    total, _ = jax.lax.scan(block, start, (rows, real))
    return Sums(total.loss / count, 2 * total.value / count, 2 * total.key_query / count)


def _auto(keys: Keys, u: Array, queries: Queries, longest: Array) -> tuple[Array, Array]:
    """One pass where the logits cannot overflow and no covariance cancels, two passes elsewhere."""
    careful = lambda: _two_pass(keys, u, queries, longest)

    def quick() -> tuple[Array, Array]:
        sums = _feature_sums(keys, queries, jnp.zeros_like(queries.real))
        return jax.lax.cond(_resolved(sums, queries), lambda: _from_features(u, queries, sums), careful)

    return jax.lax.cond(_bounded(queries, longest), quick, careful)


def _bounded(queries: Queries, longest: Array) -> Array:
    """Whether no exponential, and no sum of them, can over- or underflow: |x_j^T V x_i| <= |x_j| |V x_i|."""
    bound = longest * jnp.sqrt(jnp.max(jnp.sum(queries.turned**2, axis=1)))
    return bound < 0.4 * jnp.log(jnp.finfo(bound.dtype).max)


def _features(keys: Array) -> Array:
    """1, x and the products x_a x_b with a <= b, one row per key."""
    first, second = jnp.triu_indices(keys.shape[1])
    return jnp.concatenate([jnp.ones_like(keys[:, :1]), keys, keys[:, first] * keys[:, second]], axis=1)


def _feature_sums(keys: Keys, queries: Queries, shift: Array) -> Array:
    """Means of the features under the attention weights; absent keys have zero features, or weight 0 if they are the query itself."""

    def add(total: Array, block: Array) -> Array:
        inputs, logits, absent = keys.logits(queries, block)
        weights = jnp.exp(logits - shift[:, None])
        if not keys.include_self:
            weights = jnp.where(absent, 0.0, weights)
        column = block * inputs.shape[0] + jnp.arange(inputs.shape[0])
        return total + weights @ jnp.where((column < keys.count)[:, None], _features(inputs), 0.0)

    d = queries.inputs.shape[1]
    start = jnp.zeros((queries.row.shape[0], 1 + d + d * (d + 1) // 2), queries.inputs.dtype)
    total = keys.over(add, start)
    return total[:, 1:] / total[:, :1]


def _covariances(sums: Array, queries: Queries) -> tuple[Array, Array, Array]:
    """Means, second moments and covariances of the keys, one per query."""
    d = queries.inputs.shape[1]
    first, second = jnp.triu_indices(d)
    means, products = sums[:, :d], sums[:, d:]
    moments = jnp.zeros((sums.shape[0], d, d), sums.dtype)
    moments = moments.at[:, first, second].set(products).at[:, second, first].set(products)
    return means, moments, moments - means[:, :, None] * means[:, None, :]


def _resolved(sums: Array, queries: Queries) -> Array:
    """Whether no real query has a covariance that is a small difference of large numbers."""
    _, moments, covariances = _covariances(sums, queries)
    trace = lambda stack: jnp.trace(stack, axis1=1, axis2=2)
    return jnp.all((trace(covariances) > RESOLVED * trace(moments)) | (queries.real == 0))


def _from_features(u: Array, queries: Queries, sums: Array) -> tuple[Array, Array]:
    means, _, covariances = _covariances(sums, queries)
    pushes = (means @ u.T - queries.targets) @ u
    return means, jnp.einsum("qab,qb->qa", covariances, pushes)


def _two_pass(keys: Keys, u: Array, queries: Queries, longest: Array) -> tuple[Array, Array]:
    """Means h and C g, measured from the peak: only the other keys contribute, each with its own small weight."""
    peaks = find_peaks(keys, queries)
    flat = keys.inputs.reshape(-1, keys.inputs.shape[2])
    origin = flat[peaks.key]

    def first(carry: tuple, block: Array) -> tuple:
        inputs, weights = others(keys, queries, peaks, block)
        mass = weights.sum(axis=1)
        return carry[0] + mass, carry[1] + weights @ inputs - mass[:, None] * origin

    zero = jnp.zeros_like(queries.real)
    mass, shift = keys.over(first, (zero, jnp.zeros_like(queries.inputs)))
    total = (1 + mass)[:, None]
    shift = shift / total
    means = origin + shift
    pushes = (means @ u.T - queries.targets) @ u
    level = jnp.sum(origin * pushes, axis=1)

    def second(carry: Array, block: Array) -> Array:
        inputs, weights = others(keys, queries, peaks, block)
        tilted = weights * (pushes @ inputs.T - level[:, None])
        return carry + tilted @ inputs - tilted.sum(axis=1)[:, None] * origin

    moved = keys.over(second, jnp.zeros_like(queries.inputs)) / total
    return means, moved - shift * jnp.sum(shift * pushes, axis=1)[:, None]


_FORMS = {"auto": _auto, "two_pass": _two_pass}
