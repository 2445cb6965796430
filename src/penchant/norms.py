r"""Norms: of a weight, of the pull on it (the dual norm), and the step that is steepest in them.

A reference minimises a norm, a bracket measures both sides of one, and an optimiser descends most steeply in one: they mean the
same object. `value` and `dual` are of numpy arrays; `dual_norm` and `direction` are what an optimiser asks inside compiled code.
"""

from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree
from scipy.optimize import linprog

from .errors import PenchantError
from .rounding import gamma

_ROUNDS, _CUTS = 500, 32
_ENOUGH = 1e-9


@runtime_checkable
class Norm(Protocol):
    """A norm of weights together with its dual norm.

    `rounding(shape)` may say to which relative accuracy both are computed; without it eight roundings per entry are allowed for. The dual norm
    must not shrink where entries are replaced by larger positive ones, as none here does: so a bracket bounds what rounding did to a pull,
    by `spread` where a cheaper bound of the dual norm of positive entries exists.
    Those here also know `touching(pull)`, the weight of norm 1 that makes the most of a pull: its inner product with it is the dual norm.
    """

    @property
    def name(self) -> str: ...
    def value(self, weight: np.ndarray) -> float: ...
    def dual(self, weight: np.ndarray) -> float: ...


@runtime_checkable
class Geometry(Protocol):
    """A norm in which a step is steepest. Where it is `coordinatewise`, each coordinate of a step depends on its own slope.

    Where it `combines`, a step is a multiple of the slope, so that steps stay in the span of the gradients.
    """

    @property
    def coordinatewise(self) -> bool: ...
    @property
    def combines(self) -> bool: ...
    def dual_norm(self, slope: PyTree, log_norm: Array) -> Float[Array, ""]: ...
    def direction(self, slope: PyTree, size: Float[Array, ""]) -> PyTree: ...


# Each of these is a norm, and the dual of another one.
_total = lambda weight: float(np.abs(weight).sum())
_largest = lambda weight: float(np.abs(weight).max())
_length = lambda weight: float(np.linalg.norm(np.ravel(weight)))
_trace = lambda weight: float(np.linalg.norm(weight, "nuc"))
_top = lambda weight: float(np.linalg.norm(weight, 2))


def _of_sums(shape: tuple[int, ...]) -> float:
    return gamma(float(np.prod(shape)))


def _of_singular_values(shape: tuple[int, ...]) -> float:
    """Computed singular values are exact for a matrix that differs by a modest multiple of rounding (LAPACK; here 8 max(shape) in the
    Frobenius norm), and their largest and their sum then differ by at most sqrt(min(shape)) times that."""
    return gamma((8 * max(shape) + 1) * float(np.sqrt(min(shape))))


class L2(eqx.Module):
    """The l2 norm of a vector, the Frobenius norm of a matrix; its own dual. Steepest is the slope, in the metric of the parametrisation."""

    name = "l2"
    coordinatewise = False
    combines = True
    value = dual = staticmethod(_length)

    def touching(self, pull: np.ndarray) -> np.ndarray:
        return pull / np.linalg.norm(pull)

    def rounding(self, shape: tuple[int, ...]) -> float:
        return gamma(float(np.prod(shape)) / 2 + 1)

    def dual_norm(self, slope: PyTree, log_norm: Array) -> Float[Array, ""]:
        """From its logarithm in the metric of the parametrisation, which is not always that of the arrays."""
        return jnp.exp(log_norm)

    def direction(self, slope: PyTree, size: Float[Array, ""]) -> PyTree:
        return slope


class L1(eqx.Module):
    """The sum of absolute entries; its dual norm is the largest entry."""

    name = "l1"
    value, dual, rounding = staticmethod(_total), staticmethod(_largest), staticmethod(_of_sums)

    def touching(self, pull: np.ndarray) -> np.ndarray:
        weight = np.zeros_like(pull)
        largest = np.unravel_index(np.abs(pull).argmax(), pull.shape)
        weight[largest] = np.sign(pull[largest])
        return weight


class Linf(eqx.Module):
    """The largest absolute entry; its dual norm is the sum of absolute entries. Steepest is the same step in every coordinate (sign descent)."""

    name = "linf"
    coordinatewise = True
    combines = False
    value, dual, rounding = staticmethod(_largest), staticmethod(_total), staticmethod(_of_sums)

    def touching(self, pull: np.ndarray) -> np.ndarray:
        return np.sign(pull)

    def dual_norm(self, slope: PyTree, log_norm: Array) -> Float[Array, ""]:
        return jnp.sum(jnp.stack([jnp.sum(jnp.abs(leaf)) for leaf in jax.tree.leaves(slope)]))

    def direction(self, slope: PyTree, size: Float[Array, ""]) -> PyTree:
        return jax.tree.map(lambda leaf: size * jnp.sign(leaf), slope)


class Nuclear(eqx.Module):
    """The sum of singular values; its dual norm is the largest one."""

    name = "nuclear"
    value, dual, rounding = staticmethod(_trace), staticmethod(_top), staticmethod(_of_singular_values)

    def touching(self, pull: np.ndarray) -> np.ndarray:
        left, _, right = np.linalg.svd(pull)
        return np.outer(left[:, 0], right[0])

    def spread(self, sizes: np.ndarray) -> float:
        return float(np.linalg.norm(sizes))


class Spectral(eqx.Module):
    """The largest singular value; its dual norm is the sum of all. Steepest is the same step in every singular direction (Muon).

    An array that is no matrix counts by its length.

    >>> Spectral().value(np.diag([3.0, 4.0])), Spectral().dual(np.diag([3.0, 4.0]))
    (4.0, 7.0)
    """

    name = "spectral"
    coordinatewise = False
    combines = False
    value, dual, rounding = staticmethod(_top), staticmethod(_trace), staticmethod(_of_singular_values)

    def touching(self, pull: np.ndarray) -> np.ndarray:
        left, _, right = np.linalg.svd(pull, full_matrices=False)
        return left @ right

    def dual_norm(self, slope: PyTree, log_norm: Array) -> Float[Array, ""]:
        trace = lambda leaf: jnp.sum(jnp.linalg.svd(leaf, compute_uv=False))
        sizes = [trace(leaf) if leaf.ndim == 2 else jnp.linalg.norm(leaf) for leaf in jax.tree.leaves(slope)]
        return jnp.sum(jnp.stack(sizes))

    def direction(self, slope: PyTree, size: Float[Array, ""]) -> PyTree:
        def steepest(leaf: Array) -> Array:
            if leaf.ndim != 2:
                return size * leaf / jnp.linalg.norm(leaf)
            left, _, right = jnp.linalg.svd(leaf, full_matrices=False)
            return size * (left @ right)

        return jax.tree.map(steepest, slope)


class SignProduct(eqx.Module):
    r"""The least sum of coefficients of sign products that make up a matrix: $\min \sum_j c_j$ with $W = \sum_j c_j a_j b_j^\top$, $c \ge 0$ and signs a, b.

    Its dual norm, the largest $a^\top V b$ over signs, is found by going through the signs of the shorter side. `value` is that of the
    sign products found, and of what they leave, entry by entry: never below the norm.

    >>> round(SignProduct().value(np.array([[1.0, -1.0], [0.5, -0.5]])), 9), SignProduct().dual(np.eye(2))
    (1.0, 2.0)
    """

    name = "sign product"

    def value(self, weight: np.ndarray) -> float:
        weight = np.asarray(weight, float)
        unit = float(np.abs(weight).max())
        if unit == 0:
            return 0.0
        entries = np.eye(weight.size).reshape(weight.size, *weight.shape)  # entries of V are at most 1 there
        _, products, shares = least_products(entries, weight.ravel() / unit, (-1.0, 1.0), np.inf)
        return unit * float(shares.sum() + np.abs(weight / unit - np.tensordot(shares, products, 1)).sum())

    def dual(self, weight: np.ndarray) -> float:
        return float(_totals(np.asarray(weight, float)).max())

    def touching(self, pull: np.ndarray) -> np.ndarray:
        return largest_products(pull)[0]

    def rounding(self, shape: tuple[int, ...]) -> float:
        """Of what a sum of absolute entries is relative to, which is at most sqrt(2 min(shape)) times the dual norm (Khinchine)."""
        return gamma(float(np.sqrt(2 * min(shape))) * (sum(shape) + 2))


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


def least_products(
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
