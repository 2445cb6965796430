"""Fused softmax kernels for an accelerator, written in Pallas: what XLA alone would send through device memory stays in registers.

They compute the two quantities that `setting.context_sums` needs and nothing else, so that every caller runs unchanged on a
processor. On a machine without an accelerator they run interpreted, which is how the tests check them.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

from . import float32, float64

LOG2_E = 1.4426950408889634
NARROWEST = 16  # smallest product a tensor core takes


def contexts(
    queries: Float[Array, "q d"],
    keys: Float[Array, "n d"],
    pull: Callable[..., Array],
    *rows: Array,
    slices: int = 3,
    interpret: bool = False,
) -> tuple[Float[Array, "q d"], Float[Array, "q d"]]:
    """Softmax mean h_i of the keys under logits <query_i, key_j>, and C_i g_i with g_i = pull(h_i, rows_i).

    C_i is the covariance of the keys under the same weights. `slices` says how float32 products are made: 3 keeps all 24 bits of a factor,
    2 is twice as fast and keeps 16, enough where no softmax is saturated.
    """
    count, width = keys.shape
    exact = keys.dtype == jnp.float64
    blocks = (float64.QUERIES, float64.KEYS * float64.BLOCKS) if exact else (float32.QUERIES, float32.KEYS)
    columns = max(NARROWEST, 1 << (width - 1).bit_length())
    padded_rows = [_padded(row, blocks[0], row.shape[1]) for row in rows]

    def padded_pull(mean: Array, *row: Array) -> Array:
        return _padded(pull(mean[:, :width], *row), 1, columns)

    call = float64.contexts if exact else float32.contexts
    options = {} if exact else {"slices": slices}
    means, slopes = call(
        _padded(queries * jnp.asarray(LOG2_E, keys.dtype), blocks[0], columns),
        _padded(keys, blocks[1], columns),
        padded_pull,
        *padded_rows,
        count=count,
        interpret=interpret,
        **options,
    )
    return means[: len(queries), :width], slopes[: len(queries), :width]


def _padded(array: Array, multiple: int, columns: int) -> Array:
    """Zero rows up to a multiple, zero columns up to a width."""
    return jnp.pad(array, ((0, -len(array) % multiple), (0, columns - array.shape[1])))
