r"""Where the linear systems of a step are solved: in the smallest space that holds the stiffness.

The loss depends on the parameters only through the weight W and its N margins, so the stiff part of the Jacobian of the flow,
$-c\,P J^\top H J$, has the rank of either. H is $-\partial\,\text{weights}/\partial\,\text{margins}$, a block per sample; c the ratio of speed to slope and P the
projection off the direction of motion. `WeightSpace` solves for the D entries of W, `MarginSpace` for the margins that matter: all, or the `rows`
that the caller names. What is left out changes $c\,h\,J^\top H J$ by at most $2ch\sum_{i \notin \text{rows}} |J_i| \sum_j |H_{ij}||J_j|$, and by at most
$2ch\,|J|^2\max_{i \notin \text{rows}} \sum_j |H_{ij}|$. Extrapolation has its order with any approximate Jacobian, and is stable where the part treated explicitly is small.
"""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from ..problem import Reading
from ..settings.base import Setting
from ..settings.parametrisations import PlainMetric

_WIDEST = 1024  # entries of a weight, or margins, beyond which their systems are no longer small
_FEWEST = 128  # margins that are always kept; beyond, powers of 2 of them, as each size is a program
_TURNS = 10  # of the iteration for the norm of J
_NEGLECTED = 0.05  # of the identity: what may be left out of a system

Solve = Callable[[Array, PyTree], tuple[PyTree, Array, Array]]


class Frozen(eqx.Module):
    """The linearisation at the start of a step, in a space of k coordinates."""

    stiffness: Float[Array, "k k"]
    curvature: Float[Array, "k k"]
    heading: Float[Array, "k"]
    unit: PyTree
    rate: Float[Array, ""]
    spread: Float[Array, "N k"] | None = None


def blocks(setting: Setting, reading: Reading) -> Float[Array, "n b b"]:
    """H by sample; of data that do not say that their loss is a sum over the samples, as one block."""

    def weights(margins: Array) -> Array:
        weighing = setting.weigh(margins)
        return weighing.weights * jnp.exp(weighing.log_scale - reading.log_scale)

    count = setting.samples if hasattr(setting.data, "rows") else 1
    size = len(reading.margins) // count
    tangents = jnp.tile(jnp.eye(size), (1, count))
    columns = jax.vmap(lambda one: jax.jvp(weights, (reading.margins,), (one,))[1])(tangents)
    return -jnp.moveaxis(columns.reshape(size, count, size), 0, 2)


def lengths(setting: Setting, params: PyTree) -> Float[Array, "N"]:
    """|J_i| of every margin."""
    gram, data = setting.parametrisation.gram, setting.data
    if not hasattr(data, "rows"):
        return jnp.sqrt(jnp.maximum(jnp.diag(gram(params, data)), 0.0))
    count = len(jax.eval_shape(setting.margins, params))
    return jnp.sqrt(jax.vmap(lambda row: gram(params, data.rows(row[None]))[0, 0])(jnp.arange(count)))


@eqx.filter_jit
def loads(setting: Setting, params: PyTree, curvature: Float[Array, "n b b"]) -> tuple[Array, Array]:
    """What leaving out a margin changes in J' H J, at most: one by one, where changes add up, and all together, where the largest decides.

    The norm of J is found by iteration, which approaches it from below: twice its square is a bound.
    """
    sizes, sums = lengths(setting, params), jnp.sum(jnp.abs(curvature), axis=2).ravel()
    each = sizes * jnp.einsum("nij,nj->ni", jnp.abs(curvature), sizes.reshape(curvature.shape[:2])).ravel()
    (_, push), (_, pull) = jax.linearize(setting.margins, params), setting.linearise(params)
    turn = lambda _, v: push(pull(v / jnp.linalg.norm(v)))
    return 2 * each, 4 * jnp.linalg.norm(jax.lax.fori_loop(0, _TURNS, turn, sizes)) * sums


class WeightSpace(eqx.Module):
    """The D entries of the weight, with the features of the data as an N x D matrix."""

    features: Float[Array, "N D"]

    def freeze(self, setting: Setting, reading: Reading, curvature: Array, rate: Array) -> Frozen:
        push, pull = self.maps(setting, reading.params)
        spread = self.features.reshape(*curvature.shape[:2], -1)
        spread = _without(reading.weights, jnp.einsum("nij,njd->nid", curvature, spread).reshape(self.features.shape))
        gram = jax.vmap(lambda one: push(pull(one)))(jnp.eye(self.features.shape[1]))
        return _frozen(reading, rate, push, gram, self.features.T @ spread, spread)

    def multipliers(self, frozen: Frozen, v: Array, count: int) -> Array:
        """What is solved for, v, in multipliers of the margins."""
        return frozen.spread @ v

    def maps(self, setting: Setting, params: PyTree) -> tuple[Callable, Callable]:
        _, push = jax.linearize(lambda point: jnp.ravel(setting.weight(point)), params)
        pull = jax.linear_transpose(push, params)
        return push, lambda cotangent: pull(cotangent)[0]


class MarginSpace(eqx.Module):
    """The margins in `rows`, or all."""

    rows: Int[Array, "k"] | None

    def freeze(self, setting: Setting, reading: Reading, curvature: Array, rate: Array) -> Frozen:
        push, _ = self.maps(setting, reading.params)
        rows = jnp.arange(len(reading.margins)) if self.rows is None else self.rows
        sample, place = rows // curvature.shape[1], rows % curvature.shape[1]
        same = sample[:, None] == sample[None, :]
        chosen = jnp.where(same, curvature[sample[:, None], place[:, None], place[None, :]], 0.0)
        data = setting.data if self.rows is None else setting.data.rows(rows)
        chosen = _without(reading.weights[rows], chosen)
        return _frozen(reading, rate, push, setting.parametrisation.gram(reading.params, data), chosen)

    def multipliers(self, frozen: Frozen, v: Array, count: int) -> Array:
        return v if self.rows is None else jnp.zeros(count).at[self.rows].set(v)

    def maps(self, setting: Setting, params: PyTree) -> tuple[Callable, Callable]:
        margins, push = jax.linearize(setting.margins, params)
        _, pull = setting.linearise(params)
        if self.rows is None:
            return push, pull
        return lambda tangent: push(tangent)[self.rows], lambda c: pull(jnp.zeros_like(margins).at[self.rows].set(c))


Space = WeightSpace | MarginSpace


def _without(weights: Array, columns: Array) -> Array:
    """P pull(weights) = 0, so multiples of the weights may be removed from the columns; left in, they cancel only after
    the solve, at the price of every digit once margins pass 1e8."""
    return columns - jnp.outer(weights, (weights / jnp.sum(weights**2)) @ columns)


def _frozen(
    reading: Reading, rate: Array, push: Callable, gram: Array, curvature: Array, spread: Array | None = None
) -> Frozen:
    unit = jax.tree.map(lambda leaf: leaf * jnp.exp(-reading.log_slope_norm), reading.slope)
    heading = push(unit)
    return Frozen(curvature @ (gram - jnp.outer(heading, heading)), curvature, heading, unit, rate, spread)


def solver(space: Space, setting: Setting, params: PyTree, frozen: Frozen, h: Array) -> Solve:
    """b -> (I + h c P J' H J)^-1 b, with what it takes to know the multipliers of the correction to b.

    In the coordinates of the space y solves (1 + hc A push P pull) y = hc A push(b), and the correction is P pull(y). A comes first: it removes
    the large part of b, along the motion, before anything is amplified.
    """
    push, pull = space.maps(setting, params)
    length = h * frozen.rate
    factors = jax.scipy.linalg.lu_factor(jnp.eye(len(frozen.heading)) + length * frozen.stiffness)

    def solve(b: PyTree) -> tuple[PyTree, Array, Array]:
        y = jax.scipy.linalg.lu_solve(factors, length * (frozen.curvature @ push(b)))
        along = jnp.vdot(frozen.heading, y)
        x = jax.tree.map(lambda x, c, u: x - c + along * u, b, pull(y), frozen.unit)
        return x, y if isinstance(space, MarginSpace) else length * push(x), along

    return solve


@eqx.filter_jit
def _features(setting: Setting) -> Float[Array, "N D"]:
    shape = setting.data.weight_shape
    return jax.vmap(lambda one: setting.data.margins(one.reshape(shape)))(jnp.eye(math.prod(shape))).T


def space_for(setting: Setting, count: int) -> Space:
    """The smaller space of a flow with so many margins."""
    size = math.prod(setting.data.weight_shape)
    if isinstance(setting.parametrisation, PlainMetric) and size < min(count, _WIDEST):
        return WeightSpace(_features(setting))
    few = count > _FEWEST and hasattr(setting.data, "rows")
    return MarginSpace(jnp.arange(_FEWEST) if few else None)


def active(each: np.ndarray, together: np.ndarray, stretch: float) -> np.ndarray:
    """The margins that matter within a step over which the flow moves by `stretch` slopes; the heaviest, where these are too many."""
    order = np.argsort(together)
    left_out = stretch * np.minimum(np.cumsum(each[order]), np.maximum.accumulate(together[order]))
    needed = len(each) - int(np.searchsorted(left_out, _NEGLECTED))
    size = min(2 ** math.ceil(math.log2(max(needed, _FEWEST))), len(each), _WIDEST)
    return np.sort(order[len(each) - size :])
