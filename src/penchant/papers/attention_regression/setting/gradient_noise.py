r"""The covariance of the gradient of the sample loss, exactly to first order in 1/n, at any layer.

The gradient of $\hat L_n$ is a function of the empirical law of the rows. Its Hájek projection is a sum over rows of $\psi(x, \varepsilon) = q(x, \varepsilon) + k(x)$: what
a row does as a query with the context of the population, and, on average over queries, as a key. With whitened coordinates,
$r = (\tilde U\tilde V - M)x - \varepsilon$, and a key $x'$ that moves the mean and covariance under the weights of a query $x$ by
$w\,(x' - \tilde Vx)$ and $w\,[(x' - \tilde Vx)(x' - \tilde Vx)^\top - I]$, $w = e^{x'^\top\tilde Vx - |\tilde Vx|^2/2}$.
The expectation over queries is one over $N(\Sigma_3\tilde V^\top x', \Sigma_3)$, $\Sigma_3 = (I + \tilde V^\top\tilde V)^{-1}$, of a polynomial of degree 4 times
$c_3e^{x'^\top Tx'/2}$, and second moments of $\psi$ are Gaussian expectations of polynomials of degree 8 at most: a Gauss-Hermite rule of 5 nodes per
dimension has no error. They are finite if and only if $|\tilde V| < 1$.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ....errors import ArgumentError, ThresholdError
from .problem import AttentionLayer, AttentionRegression

_NODES = 5  # exact up to degree 9
_WIDEST = 6  # 5^6 nodes, each with a sum over as many: beyond, sampling is cheaper


def _rule(d: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of the product rule for the standard normal law."""
    points, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    grid = np.stack(np.meshgrid(*[points] * d, indexing="ij"), -1).reshape(-1, d)
    mass = np.stack(np.meshgrid(*[weights] * d, indexing="ij"), -1).reshape(-1, d).prod(axis=1)
    return grid, mass / mass.sum()


def _stack(value: Array, key_query: Array) -> Array:
    """A gradient by U and V as one by W = [U; V']."""
    return jnp.concatenate([value, key_query.T])


def _as_query(whitened: Array, target: Array, x: Array) -> Array:
    """q without the noise of the target."""
    m = target.shape[0]
    upper, below = whitened[:m], whitened[m:].T
    residual = (upper @ below - target) @ x
    return 2 * _stack(jnp.outer(residual, below @ x), jnp.outer(upper.T @ residual, x))


def _as_key(whitened: Array, target: Array, rule: tuple[Array, Array], key: Array) -> Array:
    """k without its factor c_3 exp(key' T key / 2)."""
    m = target.shape[0]
    upper, below = whitened[:m], whitened[m:].T
    slip, identity = upper @ below - target, jnp.eye(below.shape[0])
    spread = jnp.linalg.inv(identity + below.T @ below)

    def one(node: Array) -> Array:
        x = spread @ below.T @ key + jnp.linalg.cholesky(spread) @ node
        gap, mean, residual = key - below @ x, below @ x, slip @ x
        moved = upper.T @ upper @ gap + (jnp.outer(gap, gap) - identity) @ upper.T @ residual
        return 2 * _stack(jnp.outer(upper @ gap, mean) + jnp.outer(residual, gap), jnp.outer(moved, x))

    return jnp.tensordot(rule[1], jax.vmap(one)(rule[0]), 1)


@partial(jax.jit, static_argnames="keys")
def _covariance(whitened: Array, target: Array, noise: Array, rule: tuple[Array, Array], keys: bool) -> Array:
    m, d = target.shape
    upper, below = whitened[:m], whitened[m:].T
    identity = jnp.eye(d)
    tilt = below @ jnp.linalg.inv(identity + below.T @ below) @ below.T
    factor = jnp.linalg.det(identity + below.T @ below) ** -0.5

    def moment(left: Any, right: Any, tilts: int) -> Array:
        """E of left(x) right(x)' exp(tilts x'Tx/2), by the rule of the tilted law."""
        law = jnp.linalg.inv(identity - tilts * tilt)
        points = rule[0] @ jnp.linalg.cholesky(law).T
        first, second = (jax.vmap(lambda x, one=one: one(x).ravel())(points) for one in (left, right))
        return jnp.sqrt(jnp.linalg.det(law)) * jnp.einsum("ki,k,kj->ij", first, rule[1], second)

    query = lambda x: _as_query(whitened, target, x)
    key = lambda x: factor * _as_key(whitened, target, rule, x)
    mean = jnp.tensordot(rule[1], jax.vmap(query)(rule[0]), 1).ravel()
    total = moment(query, query, 0) - jnp.outer(mean, mean)
    if keys:
        crossed = moment(query, key, 1)
        total = total + crossed + crossed.T + moment(key, key, 2)
    # the noise eps of a query with covariate x: -2 [eps (Vx)'; x (U'eps)'], both linear in eps x', whose covariance is noise times the identity
    linear = lambda pair: -2 * _stack(pair @ below.T, upper.T @ pair).ravel()
    columns = jax.vmap(linear)(jnp.eye(m * d).reshape(m * d, m, d))
    return total + noise * columns.T @ columns


def gradient_covariance(
    problem: AttentionRegression, layer: AttentionLayer, *, keys: bool = True
) -> Float[Array, "size size"]:
    """n times the covariance of the gradient of the sample loss by W (whitened, flattened), as n grows.

    `keys=False` leaves out what rows do as keys: the covariance that independent losses would have.

    >>> from penchant.papers.attention_regression.setting.sample import prescribed_spectrum
    >>> from penchant.papers.attention_regression.setting.sample import spectral_layer
    >>> problem = prescribed_spectrum(4, (0.05, 0.04, 0.03), 5.0, 11, 1e-3)
    >>> layer = spectral_layer(problem)
    >>> [round(float(gradient_covariance(problem, layer, keys=keys).trace()), 6) for keys in (True, False)]
    [0.009933, 0.00336]
    """
    problem.check_layer(layer, "gradient_covariance")
    if problem.inputs > _WIDEST:
        raise ArgumentError("problem", "gradient_covariance", f"one with at most {_WIDEST} inputs", problem.inputs)
    whitened = problem.whiten(layer)
    size = float(np.linalg.norm(np.asarray(whitened[problem.outputs :]), 2))
    if not size < 1:
        raise ThresholdError("The covariance of the gradient", "|V| (whitened V)", size, 1.0)
    rule = tuple(jnp.asarray(one) for one in _rule(problem.inputs))
    return _covariance(whitened, problem.target, problem.noise, rule, keys)
