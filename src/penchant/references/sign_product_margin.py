r"""min ||W|| subject to margins >= 1 in the norm of sign products: $\|W\| = \min \sum_j c_j$ with $W = \sum_j c_j a_j b_j^\top$, $c \ge 0$ and signs a, b.

If all entries of K and Q have size at most s, then $W = KQ^\top$ has norm at most width times $s^2$: so this is to steps of equal
size in every entry (sign descent) what the nuclear norm is to gradient descent. The dual norm, the largest $a^\top V b$, is found by going through
the signs of the shorter side. Both the program and the norm are solved from their duals, by linear programs with ever more sign products.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import linprog

from ..errors import ArgumentError, PenchantError
from .arguments import require_tokens
from .base import Solution
from .bracket import bracket
from .euclidean_margin import max_margin, provable
from .rounding import gamma
from .watched import watched

LARGEST = 8  # of the shorter side: its signs are all tried, and beyond it the programs take minutes
_ROUNDS, _CUTS = 500, 32
_ENOUGH = 1e-9


class SignProduct(eqx.Module):
    """The least sum of coefficients of sign products that make up a matrix; its dual norm is the largest a' V b over signs.

    `value` is that of the sign products found, and of what they leave, entry by entry: never below the norm.

    >>> import numpy as np
    >>> round(SignProduct().value(np.array([[1.0, -1.0], [0.5, -0.5]])), 9), SignProduct().dual(np.eye(2))
    (1.0, 2.0)
    """

    name: str = eqx.field(static=True, default="sign product")

    def value(self, weight: np.ndarray) -> float:
        weight = np.asarray(weight, float)
        unit = float(np.abs(weight).max())
        if unit == 0:
            return 0.0
        entries = np.eye(weight.size).reshape(weight.size, *weight.shape)
        _, products, shares = _least(
            entries, weight.ravel() / unit, (-1.0, 1.0), np.inf
        )  # entries of V are at most 1 there
        return unit * float(shares.sum() + np.abs(weight / unit - np.tensordot(shares, products, 1)).sum())

    def dual(self, weight: np.ndarray) -> float:
        return float(_totals(np.asarray(weight, float)).max())

    def rounding(self, shape: tuple[int, ...]) -> float:
        """Of what a sum of absolute entries is relative to, which is at most sqrt(2 min(shape)) times the dual norm (Khinchine)."""
        return gamma(float(np.sqrt(2 * min(shape))) * (sum(shape) + 2))


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
    found, products, shares = _least(pairs / unit, np.ones(len(pairs)), (0.0, None), limit)
    dual = np.zeros(len(active))
    dual[active] = np.maximum(found, 0.0)
    weight = np.tensordot(shares, products, 1)
    weight = weight / np.tensordot(pairs, weight, 2).min()
    norm = SignProduct()
    dual[active] = dual[active] / norm.dual(np.tensordot(dual[active], pairs, 1))
    return provable(data, active, Solution(norm.name, weight, dual, bracket(data, weight, dual, norm)))


def _signs(size: int) -> np.ndarray:
    """Half of all sign vectors: the others are minus these."""
    bits = np.arange(2 ** (size - 1))[:, None] >> np.arange(size) & 1
    return 1.0 - 2.0 * bits


def _totals(weight: np.ndarray) -> np.ndarray:
    """max over b of a' V b, for all signs a of the shorter side."""
    short = weight if weight.shape[0] <= weight.shape[1] else weight.T
    return np.abs(_signs(short.shape[0]) @ short).sum(axis=1)


def largest_products(weight: np.ndarray) -> np.ndarray:
    """Sign products with a large a' V b, the largest first."""
    turned = weight.shape[0] > weight.shape[1]
    short = weight.T if turned else weight
    left = _signs(short.shape[0])[np.argsort(-_totals(weight))[:_CUTS]]
    right = np.where(left @ short >= 0, 1.0, -1.0)
    return np.einsum("ka,kb->kba" if turned else "ka,kb->kab", left, right)


def _least(
    directions: np.ndarray, gains: np.ndarray, box: tuple[float, float | None], limit: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Maximise gains @ x over x in the box with every a' V b <= 1, V = sum_k x_k directions_k; the products and their shares.

    `limit` bounds gains @ x from the outset, while the sign products found do not yet.
    """
    flat, products = directions.reshape(len(directions), -1), largest_products(np.tensordot(gains, directions, 1))
    for _ in range(_ROUNDS):
        rows, bounds = products.reshape(len(products), -1) @ flat.T, np.ones(len(products))
        if np.isfinite(limit):
            rows, bounds = np.vstack([rows, gains]), np.append(bounds, limit)
        result = linprog(-gains, rows, bounds, bounds=box, method="highs")
        if not result.success:
            raise PenchantError(f"The sign-product program was not solved: {result.message}")
        pull = np.tensordot(result.x, directions, 1)
        if _totals(pull).max() <= 1 + _ENOUGH:
            return result.x, products, np.maximum(-result.ineqlin.marginals[: len(products)], 0.0)
        new = largest_products(pull)
        products = np.concatenate([products, new[np.tensordot(new, pull, 2) > 1 + _ENOUGH / 2]])
    raise PenchantError("The sign-product program was not solved: too many sign products.")
