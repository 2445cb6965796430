r"""Norms: of a weight, of the pull on it (the dual norm), and the step that is steepest in them.

A reference minimises a norm, a bracket measures both sides of one, and an optimiser descends most steeply in one: they mean the
same object. `value` and `dual` are of numpy arrays; `dual_norm` and `direction` are what an optimiser asks inside compiled code.
"""

from abc import abstractmethod
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree
from scipy.optimize import linprog

from .door import BLOCKS, NUMBER, REAL
from .errors import ArgumentError, PenchantError
from .rounding import gamma, rounding_of

Numbers = np.ndarray | np.float64 | Array  # of numpy where a weight is measured, of jax inside compiled code
_ROUNDS, _CUTS = 500, 32
_ENOUGH = 1e-9
_NULL = 1e-14  # of the largest singular value, below which others are rounding


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


def conjugate(p: float) -> float:
    """The exponent of the dual norm."""
    return np.inf if p == 1 else 1.0 if p == np.inf else p / (p - 1)


def _p_norm(values: Numbers, p: float, xp: ModuleType) -> Numbers:
    """The p-norm of numbers, of numpy or of jax (`xp`)."""
    sizes = xp.abs(values)
    if p == np.inf:
        return xp.max(sizes)
    top = xp.max(sizes)
    unit = xp.where(top > 0, top, 1.0)
    return xp.sum(sizes) if p == 1 else unit * xp.sum((sizes / unit) ** p) ** (1 / p)


def _touching(sizes: Numbers, p: float, xp: ModuleType) -> Numbers:
    """The nonnegative numbers of p-norm 1 that make the most of nonnegative `sizes`; for p = inf, 0 where those are rounding."""
    q = conjugate(p)
    if p == 1:
        return 1.0 * (xp.arange(sizes.size).reshape(sizes.shape) == xp.argmax(sizes))
    return 1.0 * (sizes > _NULL * xp.max(sizes)) if p == np.inf else (sizes / _p_norm(sizes, q, xp)) ** (q - 1)


class _OfPowers(eqx.Module):
    """What norms of exponent p share. Of several arrays it is the largest norm: steps are steepest in each, and dual norms add up."""

    combines = False
    p: float = eqx.field(static=True)

    def __init__(self, p: float):
        if not (NUMBER.holds(p) and p >= 1):
            raise ArgumentError("p", type(self).__name__, "a number of at least 1, or inf", repr(p))
        self.p = float(p)

    @abstractmethod
    def numbers(self, weight: Numbers, xp: ModuleType) -> Numbers:
        """The numbers whose p-norm it is."""

    @abstractmethod
    def unit(self, pull: Numbers, xp: ModuleType) -> Numbers:
        """The weight of norm 1 that makes the most of a pull."""

    @property
    def coordinatewise(self) -> bool:
        return False

    def value(self, weight: np.ndarray) -> float:
        return float(_p_norm(self.numbers(weight, np), self.p, np))

    def dual(self, weight: np.ndarray) -> float:
        return float(_p_norm(self.numbers(weight, np), conjugate(self.p), np))

    def touching(self, pull: np.ndarray) -> np.ndarray:
        return np.asarray(self.unit(pull, np))

    def dual_norm(self, slope: PyTree, log_norm: Array) -> Float[Array, ""]:
        sizes = [_p_norm(self.numbers(leaf, jnp), conjugate(self.p), jnp) for leaf in jax.tree.leaves(slope)]
        return jnp.sum(jnp.stack(sizes))

    def direction(self, slope: PyTree, size: Float[Array, ""]) -> PyTree:
        return jax.tree.map(lambda leaf: size * self.unit(leaf, jnp), slope)


class Entrywise(_OfPowers):
    """The p-norm of all entries; its dual has the exponent p/(p-1). `L1()` and `Linf()` are two of them.

    >>> round(Entrywise(4).dual(np.ones((2, 4))), 9), round(Entrywise(4).touching(np.ones((2, 8))).item(0), 9)     # 8^(3/4), 16^(-1/4)
    (4.75682846, 0.5)
    """

    @property
    def name(self) -> str:
        return f"l{self.p:g}"

    @property
    def coordinatewise(self) -> bool:
        return self.p == np.inf

    def numbers(self, weight: Numbers, xp: ModuleType) -> Numbers:
        return xp.ravel(weight)

    def unit(self, pull: Numbers, xp: ModuleType) -> Numbers:
        return xp.sign(pull) * (1.0 if self.p == np.inf else _touching(xp.abs(pull), self.p, xp))

    def rounding(self, shape: tuple[int, ...]) -> float:
        return gamma(float(np.prod(shape)) + 16 * (self.p not in (1, np.inf)))


class Schatten(_OfPowers):
    """The p-norm of the singular values. `Nuclear()` and `Spectral()` are two of them. An array that is no matrix counts by its length."""

    @property
    def name(self) -> str:
        return {1.0: "nuclear", np.inf: "spectral"}.get(self.p, f"schatten-{self.p:g}")

    def numbers(self, weight: Numbers, xp: ModuleType) -> Numbers:
        if weight.ndim != 2:
            return xp.linalg.norm(xp.ravel(weight)).reshape(1)
        return xp.linalg.svd(weight, compute_uv=False)

    def unit(self, pull: Numbers, xp: ModuleType) -> Numbers:
        if pull.ndim != 2:
            return pull / xp.linalg.norm(xp.ravel(pull))
        left, sizes, right = xp.linalg.svd(pull, full_matrices=False)
        return (left * xp.reshape(_touching(sizes, self.p, xp), (1, -1))) @ right

    def rounding(self, shape: tuple[int, ...]) -> float:
        """Computed singular values are exact for a matrix that differs by a modest multiple of rounding (LAPACK; here 8 max(shape) in the
        Frobenius norm), and norms of them then differ by at most sqrt(min(shape)) times that."""
        return gamma((8 * max(shape) + min(shape) + 9) * float(np.sqrt(min(shape))))

    def spread(self, sizes: np.ndarray) -> float:
        """A bound of the dual norm that needs no singular values."""
        q = conjugate(self.p)
        return float(np.linalg.norm(sizes)) * min(sizes.shape) ** max(0.0, 1 / q - 0.5)


class L2(eqx.Module):
    """The l2 norm of a vector, the Frobenius norm of a matrix; its own dual. Steepest is the slope, in the metric of the parametrisation."""

    name, p = "l2", 2.0
    coordinatewise = False
    combines = True

    def value(self, weight: np.ndarray) -> float:
        return float(np.linalg.norm(np.ravel(weight)))

    def dual(self, weight: np.ndarray) -> float:
        return self.value(weight)

    def touching(self, pull: np.ndarray) -> np.ndarray:
        return pull / np.linalg.norm(pull)

    def rounding(self, shape: tuple[int, ...]) -> float:
        return gamma(float(np.prod(shape)) / 2 + 1)

    def dual_norm(self, slope: PyTree, log_norm: Array) -> Float[Array, ""]:
        """From its logarithm in the metric of the parametrisation, which is not always that of the arrays."""
        return jnp.exp(log_norm)

    def direction(self, slope: PyTree, size: Float[Array, ""]) -> PyTree:
        return slope


class WeightedL2(eqx.Module):
    """sqrt(sum_j s_j w_j^2) with positive `scales` s of the shape of the weight; its dual norm is sqrt(sum_j g_j^2 / s_j)."""

    name = "weighted l2"
    scales: np.ndarray

    def __init__(self, scales: object):
        self.scales = np.asarray(scales, float) if REAL.holds(scales) else np.empty(0)
        if not (self.scales.size and np.isfinite(self.scales).all() and (self.scales > 0).all()):
            raise ArgumentError("scales", "WeightedL2", "positive and finite in every coordinate", repr(scales))

    def value(self, weight: np.ndarray) -> float:
        return float(np.linalg.norm(np.ravel(np.sqrt(self.scales) * weight)))

    def dual(self, weight: np.ndarray) -> float:
        return float(np.linalg.norm(np.ravel(weight / np.sqrt(self.scales))))

    def touching(self, pull: np.ndarray) -> np.ndarray:
        return pull / self.scales / self.dual(pull)


def L1() -> Entrywise:
    """The sum of absolute entries; its dual norm is the largest entry. Steepest is one signed entry."""
    return Entrywise(1.0)


def Linf() -> Entrywise:
    """The largest absolute entry; its dual norm is the sum of absolute entries. Steepest is the same step in every coordinate (sign descent)."""
    return Entrywise(np.inf)


def Nuclear() -> Schatten:
    """The sum of singular values; its dual norm is the largest one. Steepest is one pair of singular vectors."""
    return Schatten(1.0)


def Spectral() -> Schatten:
    """The largest singular value; its dual norm is the sum of all. Steepest is the same step in every singular direction (Muon).

    Singular values below 1e-14 of the largest are rounding, and no direction: pulls on classes always have one, as they sum to 0.
    """
    return Schatten(np.inf)


class Hybrid(eqx.Module):
    """The largest of the norms of blocks of columns: (norm, number of columns) for each. Steepest is each block's own step.

    >>> norm = Hybrid(((Spectral(), 2), (Linf(), 1)))            # a matrix and a bias column
    >>> norm.value(np.array([[3.0, 0.0, 1.0], [0.0, 4.0, 5.0]])), norm.dual(np.array([[3.0, 0.0, 1.0], [0.0, 4.0, 5.0]]))
    (5.0, 13.0)
    """

    coordinatewise = False
    combines = False
    blocks: tuple[tuple[Any, int], ...]

    def __init__(self, blocks: Sequence[tuple[Norm, int]]):
        if not BLOCKS.holds(blocks):
            raise ArgumentError("blocks", "Hybrid", BLOCKS.words, repr(blocks))
        self.blocks = tuple((norm, int(count)) for norm, count in blocks)

    @property
    def name(self) -> str:
        return "max(" + ", ".join(norm.name for norm, _ in self.blocks) + ")"

    @property
    def columns(self) -> int:
        return sum(count for _, count in self.blocks)

    def split(self, weight: Any) -> list[tuple[Any, Any]]:
        """Every norm with its columns of a weight."""
        ends = np.cumsum([count for _, count in self.blocks])
        return [(norm, weight[:, end - count : end]) for (norm, count), end in zip(self.blocks, ends, strict=True)]

    def value(self, weight: np.ndarray) -> float:
        return max(norm.value(part) for norm, part in self.split(weight))

    def dual(self, weight: np.ndarray) -> float:
        return sum(norm.dual(part) for norm, part in self.split(weight))

    def touching(self, pull: np.ndarray) -> np.ndarray:
        return np.hstack([norm.touching(part) for norm, part in self.split(pull)])

    def dual_norm(self, slope: Array, log_norm: Array) -> Float[Array, ""]:
        log_length = lambda part: jnp.log(jnp.linalg.norm(part))  # the l2 norm of a block is that of its columns
        return jnp.sum(jnp.stack([norm.dual_norm(part, log_length(part)) for norm, part in self.split(slope)]))

    def direction(self, slope: Array, size: Float[Array, ""]) -> Array:
        of = lambda norm, part: part / jnp.linalg.norm(part) if norm.combines else norm.direction(part, 1.0)
        return size * jnp.hstack([of(*block) for block in self.split(slope)])

    def rounding(self, shape: tuple[int, ...]) -> float:
        return gamma(len(self.blocks)) + max(rounding_of(norm, (shape[0], count)) for norm, count in self.blocks)


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


STEEPEST = L2, Entrywise, Schatten, Hybrid  # norms of steps whose maximum margin `norm_margin` finds
_NAMED = {"frobenius": L2, "l2": L2, "l1": L1, "max": Linf, "linf": Linf, "spectral": Spectral, "nuclear": Nuclear}


def norm_named(name: str) -> Any:
    """The norm of a name: frobenius, l1, max, spectral, nuclear, lP with a number P (of the entries) or schatten-P (of the singular values)."""
    if name in _NAMED:
        return _NAMED[name]()
    for start, kind in (("schatten-", Schatten), ("l", Entrywise)):
        power = name.removeprefix(start)
        if power != name and power.replace(".", "", 1).isdecimal():
            return kind(float(power))
    known = f"one of {', '.join(_NAMED)}, lP or schatten-P with a number P >= 1"
    raise ArgumentError("norm", "norm_named", known, repr(name))
