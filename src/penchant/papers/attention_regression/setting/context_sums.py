r"""Softmax attention over a sample: the empirical loss and its gradient, without ever building the n x n weights.

With $z_{ij} = x_j^\top V x_i$, $w_i = \mathrm{softmax}(z_i)$, $h_i = \sum_j w_{ij}x_j$, $r_i = Uh_i - y_i$, $g_i = U^\top r_i$ and $C_i$ the covariance
of the keys under $w_i$, the loss is $\frac1n\sum_i|r_i|^2$ and its gradients are $\frac2n\sum_i r_ih_i^\top$ and $\frac2n\sum_i(C_ig_i)x_i^\top$.
Queries go in blocks of so many that their logits fit a cache: time is quadratic in n, memory does not depend on it. Everything is measured from the key of
the largest weight, so that nothing cancels where attention saturates and $C_i$ is small.

Nothing of that is special to a processor or to a floating-point type: arrays on an accelerator, in either precision, run the same code.
"""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ....errors import ArgumentError

_LOGITS = 2**18  # of a block of queries: 2 MB


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
) -> Sums:
    """Empirical loss and gradient of attention whose keys are all `inputs`.

    `queries` are the rows that ask (all by default); the loss is their mean. `include_self=False` leaves a query out of its own
    context. Works under `jit`; the type of the arrays decides the precision.

    >>> x, y = jnp.array([[1.0], [3.0]]), jnp.array([[0.0], [1.0]])
    >>> found = context_sums(x, y, jnp.ones((1, 1)), jnp.zeros((1, 1)))       # uniform weights: every prediction is 2
    >>> float(found.loss), found.value.tolist(), found.key_query.tolist()
    (2.5, [[6.0]], [[5.0]])
    """
    inputs, targets, value, key_query = (jnp.asarray(array) for array in (inputs, targets, value, key_query))
    _check(inputs, targets, value, key_query, include_self)
    rows = jnp.arange(inputs.shape[0]) if queries is None else _rows(queries, inputs.shape[0])
    with jax.default_matmul_precision("highest"):  # an accelerator would round float32 products to eleven bits
        return _sums(inputs, targets, value, key_query, rows, include_self)


def _check(x: Array, y: Array, u: Array, v: Array, include_self: bool) -> None:
    n, d = x.shape
    if y.shape[0] != n:
        raise ArgumentError("targets", "context_sums", f"one row per row of inputs ({n})", f"{y.shape[0]} rows")
    if v.shape != (d, d):
        raise ArgumentError("key_query", "context_sums", f"square of size {d}", f"shape {v.shape}")
    if u.shape != (y.shape[1], d):
        raise ArgumentError("value", "context_sums", f"of shape {(y.shape[1], d)}", f"shape {u.shape}")
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


@partial(jax.jit, static_argnames="include_self")
def _sums(x: Array, y: Array, u: Array, v: Array, rows: Array, include_self: bool) -> Sums:
    count, n = rows.shape[0], x.shape[0]
    size = max(1, min(count, _LOGITS // n))
    padded = -(-count // size) * size
    real = (jnp.arange(padded) < count).astype(x.dtype).reshape(-1, size)

    def block(total: Sums, which: tuple[Array, Array]) -> tuple[Sums, None]:
        row, real = which
        logits = x[row] @ v.T @ x.T
        if not include_self:
            logits = jnp.where(row[:, None] == jnp.arange(n)[None], -jnp.inf, logits)
        means, residual, pull = _attend(x, y[row], u, logits, real[:, None])
        gradients = residual.T @ means, pull.T @ x[row]
        return jax.tree.map(jnp.add, total, Sums(jnp.sum(residual**2), *gradients)), None

    start = Sums(jnp.zeros((), x.dtype), jnp.zeros_like(u), jnp.zeros_like(v))
    total, _ = jax.lax.scan(block, start, (jnp.pad(rows, (0, padded - count)).reshape(-1, size), real))
    return Sums(total.loss / count, 2 * total.value / count, 2 * total.key_query / count)


def _attend(x: Array, targets: Array, u: Array, logits: Array, real: Array) -> tuple[Array, Array, Array]:
    """Means h, residuals r and C g of a block of queries: only keys other than the peak contribute, each with its own small weight."""
    columns, top = jnp.arange(len(x))[None], logits.max(axis=1, keepdims=True)
    peak = jnp.where(logits == top, columns, len(x)).min(axis=1)
    weights = jnp.where(columns == peak[:, None], 0.0, jnp.exp(logits - top))
    origin, keys = x[peak], jnp.concatenate([jnp.ones_like(x[:, :1]), x], axis=1)  # masses come with the sums
    from_origin = lambda sums: sums[:, 1:] - sums[:, :1] * origin
    sums = weights @ keys
    total = 1 + sums[:, :1]
    shift = from_origin(sums) / total
    means = origin + shift
    residual = (means @ u.T - targets) * real
    pushes = residual @ u
    along = lambda part: jnp.sum(part * pushes, axis=1, keepdims=True)
    tilted = weights * (jnp.concatenate([-along(origin), pushes], axis=1) @ keys.T)
    return means, residual, from_origin(tilted @ keys) / total - shift * along(shift)
