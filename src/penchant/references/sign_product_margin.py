r"""min ||W|| subject to margins >= 1 in the norm of sign products: $\|W\| = \min \sum_j c_j$ with $W = \sum_j c_j a_j b_j^\top$, $c \ge 0$ and signs a, b.

If all entries of K and Q have size at most s, then $W = KQ^\top$ has norm at most width times $s^2$: so this is to steps of equal
size in every entry (sign descent) what the nuclear norm is to gradient descent. The dual norm, the largest $a^\top V b$, is found by going through
the signs of the shorter side. Both the program and the norm are solved from their duals, by linear programs with ever more sign products.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import ArgumentError
from ..norms import SignProduct, least_products
from .arguments import require_tokens
from .base import Solution
from .bracket import bracket
from .euclidean_margin import max_margin, provable
from .watched import watched

LARGEST = 8  # of the shorter side: its signs are all tried, and beyond it the programs take minutes


@watched
def sign_product_margin(data: Any) -> Solution:
    """The maximum-margin matrix of token data in the norm of sign products.

    >>> import penchant as pt
    >>> data = pt.TokenSelection([[[2.0, 1.0], [0.0, 0.0]]], scores=[[1.0, 0.0]], queries=[[1.0, 3.0]])
    >>> round(sign_product_margin(data).value, 9)                       # one pair: 1 / ((2 + 1) (1 + 3))
    0.083333333
    """
    require_tokens(data, "sign_product_margin")
    if min(data.weight_shape) > LARGEST:
        wanted = f"tokens or queries of dimension at most {LARGEST}, so that all signs can be tried"
        raise ArgumentError("data", "sign_product_margin", wanted, f"weights of shape {data.weight_shape}")
    active = data.constrained()
    pairs = np.asarray(jax.vmap(data.adjoint)(jnp.eye(len(active))[active]))
    unit = np.abs(pairs).sum(axis=(1, 2)).max()  # the tolerances of the solver are absolute
    limit = (
        np.abs(max_margin(data).weight).sum() * unit
    )  # an entry of W is a sign product on average: no dual is larger
    found, products, shares = least_products(pairs / unit, np.ones(len(pairs)), (0.0, None), limit)
    dual = np.zeros(len(active))
    dual[active] = np.maximum(found, 0.0)
    weight = np.tensordot(shares, products, 1)
    weight = weight / np.tensordot(pairs, weight, 2).min()
    norm = SignProduct()
    dual[active] = dual[active] / norm.dual(np.tensordot(dual[active], pairs, 1))
    return provable(data, active, Solution(norm.name, weight, dual, bracket(data, weight, dual, norm), norm))
