r"""Smaller systems for flows with many margins: those of the margins that count, or of the entries of the weight.

The step is that of the integrator, $(1 + hc\,P J^\top H J)x = b$ with the linearisation of its beginning; only rounding changes. A margin is left out where it cannot be
heard: leaving out a set changes $P J^\top H J$ by at most the sum of its `loads`, as long as the rest holds half of the square sum of the weights w, namely
$2|J_i|\sum_j|H_{ij}||J_j|$ for the missing entries of H and $|w_i||J_i|\,2\sum_j|J_j|(|H||w|)_j/|w|^2$ because only with all margins $P J^\top w = 0$.
Times hc that has to stay below the rounding of the identity. The slope always knows all margins, so that none has to come back before the next step.

Where more margins are heard than a matrix should have, no matrix is made: $(1 + R JPJ^\top R)u = R Jb$ is solved by conjugate gradients, with the systems of the samples as
preconditioner. $R^2$ is the positive part of $hcH$: where H is negative the flow leaves a saddle, which is not stiff, and extrapolation has its order with any matrix.
"""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.sparse.linalg import cg
from jaxtyping import Array, Float, Int, PyTree

from ..problem import Reading
from ..problem import read_once as read
from ..settings.base import Setting

FEW = 200  # margins, up to which a step solves for all
_SIZES = (64, 256, 1024)  # of systems, each a program of its own; beyond, no matrix
_RESIDUAL, _ITERATIONS = 1e-7, 100  # of conjugate gradients, after the multiple of the weights that P takes away

Solve = Callable[[PyTree], tuple[PyTree, Array]]
Solver = Callable[[Array], Solve]


class Space(eqx.Module):
    """The margins that enter the systems of a step, and |J_i| of all; or none, and the features of the data, where these are solved for the weight; or nothing, where no matrix is made."""

    rows: Int[Array, "k"]
    features: Float[Array, "N D"] | None
    lengths: Float[Array, "N"]


def weights_near(setting: Setting, reading: Reading) -> Callable[[Array], Array]:
    """The weights as a function of the margins, in the scale of a reading."""
    return lambda margins: (found := setting.weigh(margins)).weights * jnp.exp(found.log_scale - reading.log_scale)


def _blocks(setting: Setting, reading: Reading) -> Float[Array, "n b b"]:
    """H by sample."""
    weights = weights_near(setting, reading)
    size = len(reading.margins) // setting.samples
    tangents = jnp.tile(jnp.eye(size), (1, setting.samples))
    columns = jax.vmap(lambda one: jax.jvp(weights, (reading.margins,), (one,))[1])(tangents)
    return -jnp.moveaxis(columns.reshape(size, setting.samples, size), 0, 2)


def _known(setting: Setting, count: int) -> bool:
    """Whether a flow with so many margins has smaller spaces: data with `rows` have a loss that is a sum over the samples."""
    return count > FEW and hasattr(setting.data, "rows") and getattr(setting.parametrisation, "by_rows", False)


def _lengths(setting: Setting, params: PyTree) -> Float[Array, "N"]:
    """|J_i| of every margin, of data with rows."""
    gram, data, rows = setting.parametrisation.gram, setting.data, jnp.arange(len(setting.margins(params)))
    return jnp.sqrt(jax.vmap(lambda row: gram(params, data.rows(row[None]))[0, 0])(rows))


@eqx.filter_jit
def loads(setting: Setting, params: PyTree) -> tuple[Array, Array, Array]:
    """What leaving out a margin changes in P J' H J over the length of the slope, at most; the weights, and |J_i|."""
    reading = read(setting, params)
    curvature, shares = jnp.abs(_blocks(setting, reading)), jnp.abs(reading.weights)
    by_sample = lambda vector: jnp.einsum("nij,nj->ni", curvature, vector.reshape(curvature.shape[:2])).ravel()
    sizes = _lengths(setting, params)
    removed = 2 * jnp.vdot(sizes, by_sample(shares)) / jnp.sum(shares**2)
    return sizes * (2 * by_sample(sizes) + removed * shares) * jnp.exp(-reading.log_slope_norm), shares, sizes


def active(loads: np.ndarray, weights: np.ndarray, length: float) -> np.ndarray:
    """The margins that are heard in a step over which the weights move by `length`, filled up to one of the sizes."""
    order = np.argsort(loads)
    needed = len(loads) - int(np.searchsorted(length * np.cumsum(loads[order]), np.finfo(float).eps))
    size = min((size for size in _SIZES if needed <= size < len(loads)), default=len(loads))
    rows = np.sort(order[len(loads) - size :])
    return rows if np.sum(weights[rows] ** 2) >= np.sum(weights**2) / 2 else np.arange(len(loads))


class Spaces:
    """The smaller spaces of a flow, if it has any."""

    def __init__(self, setting: Setting, count: int):
        self.setting, self.steps = setting, -1
        self.known, self.features = _known(setting, count), None
        shape = setting.data.weight_shape if self.known else ()
        self.entries = math.prod(shape)
        if self.known and self.entries < count:
            self.features = jax.vmap(lambda one: setting.data.margins(one.reshape(shape)))(jnp.eye(self.entries)).T

    def at(self, params: PyTree, steps: int, length: float) -> Space | None:
        """Where a step of this length is least work: k^3 for k margins, or N D^2 for the weight."""
        if not self.known:
            return None
        if self.steps != steps:
            self.steps, self.loads = steps, loads(self.setting, params)
        bounds, weights = map(np.asarray, self.loads[:2])
        rows = active(bounds, weights, length)
        lighter = self.entries < len(rows) and len(bounds) * self.entries**2 < 2 * len(rows) ** 3
        dense = rows[: 0 if lighter or len(rows) > _SIZES[-1] else None]
        return Space(jnp.asarray(dense), self.features if lighter else None, self.loads[2])


def _maps(setting: Setting, params: PyTree, space: Space | None) -> tuple[Callable, Callable]:
    if space is not None and space.features is not None:
        _, push = jax.linearize(lambda point: jnp.ravel(setting.weight(point)), params)
        pull = jax.linear_transpose(push, params)
        return push, lambda cotangent: pull(cotangent)[0]
    margins, push = jax.linearize(setting.margins, params)
    _, pull = setting.linearise(params)
    if space is None:
        return push, pull
    return lambda tangent: push(tangent)[space.rows], lambda c: pull(jnp.zeros_like(margins).at[space.rows].set(c))


def without(weights: Array, columns: Array) -> Array:
    """P pull(weights) = 0, so multiples of the weights may be removed from the columns; left in, they cancel only after the solve, at the price of every digit once margins pass 1e8."""
    return columns - jnp.outer(weights, (weights / jnp.sum(weights**2)) @ columns)


def _curvature(setting: Setting, reading: Reading, space: Space | None) -> tuple[Array, Array | None]:
    """H in the coordinates of the space, and what takes a weight to multipliers."""
    if space is None:
        return without(reading.weights, -jax.jacfwd(weights_near(setting, reading))(reading.margins)), None
    blocks = _blocks(setting, reading)
    if space.features is None:
        sample, place = space.rows // blocks.shape[1], space.rows % blocks.shape[1]
        chosen = blocks[sample[:, None], place[:, None], place[None, :]]
        return without(reading.weights[space.rows], jnp.where(sample[:, None] == sample[None], chosen, 0.0)), None
    spread = jnp.einsum("nij,njd->nid", blocks, space.features.reshape(*blocks.shape[:2], -1))
    spread = without(reading.weights, spread.reshape(space.features.shape))
    return space.features.T @ spread, spread


def _gram(setting: Setting, params: PyTree, space: Space | None, push: Callable, pull: Callable) -> Array:
    """J J' in the coordinates of the space."""
    if space is None:
        return setting.parametrisation.gram(params, setting.data)
    if space.features is None:
        return setting.parametrisation.gram(params, setting.data.rows(space.rows))
    return jax.vmap(lambda one: push(pull(one)))(jnp.eye(space.features.shape[1]))


def _by_products(setting: Setting, params: PyTree, reading: Reading, speed: Array) -> Solver:
    """The solvers of a step from products with J and J' alone."""
    _, push = jax.linearize(setting.margins, params)
    transpose = jax.linear_transpose(push, params)
    size, weights = jnp.exp(-reading.log_slope_norm), reading.weights * jnp.exp(-reading.log_slope_norm)
    unit = jax.tree.map(lambda leaf: leaf * size, reading.slope)
    heading, index = push(unit), jnp.arange(len(weights)).reshape(setting.samples, -1)
    sizes, ways = jnp.linalg.eigh(_blocks(setting, reading))
    steep = (ways * jnp.sqrt(jnp.maximum(sizes, 0.0))[:, None]) @ jnp.swapaxes(ways, 1, 2)
    own = jax.vmap(lambda rows: setting.parametrisation.gram(params, setting.data.rows(rows)))(index)
    own = own - heading[index][:, :, None] * heading[index][:, None, :]

    def pull(y: Array) -> tuple[PyTree, Array]:
        """P J'y, and what P takes away."""
        along = jnp.vdot(heading, y)
        return jax.tree.map(lambda c, u: c - along * u, transpose(y)[0], unit), along

    def solver(h: Array) -> Solve:
        roots = jnp.sqrt(h * speed * size) * steep
        root = lambda u: jnp.einsum("nij,nj->ni", roots, u[index]).ravel()
        inverse = jnp.linalg.inv(jnp.eye(index.shape[1])[None] + roots @ own @ roots)
        system = lambda u: u + root(push(pull(root(u))[0]))
        nearly = lambda u: jnp.einsum("nij,nj->ni", inverse, u[index]).ravel()
        even = root(jnp.ones_like(weights))

        def solve(b: PyTree) -> tuple[PyTree, Array]:
            wanted = root(push(b))
            begin = even * (jnp.vdot(even, wanted) / jnp.maximum(jnp.vdot(even, even), jnp.finfo(float).tiny))
            more, _ = cg(system, wanted - system(begin), tol=_RESIDUAL, maxiter=_ITERATIONS, M=nearly)
            y = root(begin + more)
            back, along = pull(y)
            return jax.tree.map(jnp.subtract, b, back), -y - along * weights

        return solve

    return solver


def linearised(
    setting: Setting, params: PyTree, reading: Reading, speed: Array, space: Space | None
) -> tuple[Solver, Array]:
    """The solvers of a step from a point, by the length of substeps: b -> (I + h c P J' H J)^-1 b, and the multipliers of the correction to b. With them |J_i|."""
    if space is not None and space.features is None and not space.rows.size:
        return _by_products(setting, params, reading, speed), space.lengths
    push, pull = _maps(setting, params, space)
    curvature, spread = _curvature(setting, reading, space)
    gram, size = _gram(setting, params, space, push, pull), jnp.exp(-reading.log_slope_norm)
    unit, unit_weights = jax.tree.map(lambda leaf: leaf * size, reading.slope), reading.weights * size
    heading = push(unit)
    stiffness = curvature @ (gram - jnp.outer(heading, heading))

    def solver(h: Array) -> Solve:
        length = h * speed * size
        factors = jax.scipy.linalg.lu_factor(jnp.eye(len(heading)) + length * stiffness)

        def solve(b: PyTree) -> tuple[PyTree, Array]:
            y = jax.scipy.linalg.lu_solve(factors, length * (curvature @ push(b)))
            along = jnp.vdot(heading, y)
            x = jax.tree.map(lambda x, c, u: x - c + along * u, b, pull(y), unit)
            if spread is not None:
                y = spread @ (length * push(x))
            elif space is not None:
                y = jnp.zeros_like(unit_weights).at[space.rows].set(y)
            return x, -y - along * unit_weights

        return solve

    if space is not None:
        return solver, space.lengths
    return solver, jnp.sqrt(jnp.maximum(jnp.diag(gram), 0.0))
