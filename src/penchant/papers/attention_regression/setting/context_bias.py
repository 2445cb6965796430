r"""What a context of n samples does to attention regression, exactly to first order in 1/n.

In whitened coordinates, with $E = \tilde U\tilde V - M$ and $D = \tilde U^\top\tilde U - \tilde V\tilde V^\top$:

- $\mathbb E\hat L_n = L + B_1/n + O(n^{-2})$, and for the regulariser with the sample's covariance $\mathbb E\hat R = R + R_1/n + O(n^{-2})$;
- on one data set training settles at an excess of about $v/n$, $v = \sigma^2md + v_{ctx}$; the spectral start is already at $v_{spec}/n$;
- with the exact expectation of the gradient over samples of size n it settles at $b_2/n^2$.

Each has a threshold beyond which the expectation is infinite; it is named, never returned as the root of a negative determinant. The samples
that measure these numbers have no label noise: that adds exactly $m\sigma^2$ to the expected loss and nothing to the expected gradient.
"""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.optimize import minimize_scalar

from ....errors import ThresholdError
from .context_sums import context_sums
from .geometry import balanced_point, hessian
from .problem import AttentionLayer, AttentionRegression
from .sample import gauge_rotation

CUTOFF = 1e-10  # relative eigenvalue below which a direction is one of the manifold of minima, not curvature


def whitened_loss_bias(
    whitened: Float[Array, "rows d"], target: Float[Array, "m d"], include_self: bool = True
) -> Float[Array, ""]:
    """B_1 at W: infinite (here: not a number) unless 2 |V|^2 < 1. Differentiable."""
    upper, below = whitened[: target.shape[0]], whitened[target.shape[0] :].T
    identity, error = jnp.eye(below.shape[0]), upper @ below - target
    tilt = identity - 2 * below.T @ below
    root = jnp.linalg.cholesky(
        tilt
    )  # not a number unless all eigenvalues are positive; a determinant may be so with two negative ones
    spread = jnp.linalg.solve(tilt, below.T @ upper.T)  # Sigma_1 V'U', with Sigma_1 = (I - 2 V'V)^-1
    context = jnp.sum(upper**2) + jnp.trace(upper @ below @ spread) - 2 * jnp.trace(error @ spread)
    bias = context / jnp.prod(jnp.diagonal(root))
    if not include_self:
        return bias
    own = identity - below
    return bias + 2 * jnp.trace(error @ jnp.linalg.solve(own, upper.T)) / jnp.abs(jnp.linalg.det(own))


def whitened_balance_bias(whitened: Float[Array, "rows d"], outputs: int) -> Float[Array, ""]:
    """R_1 at W: the bias of the balance regulariser when the covariance is the sample's. Differentiable."""
    upper, below = whitened[:outputs], whitened[outputs:].T
    square, imbalance = below.T @ below, upper.T @ upper - below @ below.T
    trace = jnp.trace
    pure = trace(square @ square) + trace(square) ** 2 + trace(imbalance @ imbalance) + trace(imbalance) ** 2
    crossed = trace(imbalance @ below @ below) + trace(below) * trace(imbalance @ below)
    return 0.25 * (pure - 4 * crossed)


_compiled_bias = jax.jit(whitened_loss_bias, static_argnames="include_self")


def require_below(value: float, threshold: float, what: str, quantity: str) -> None:
    if not value < threshold:
        raise ThresholdError(quantity, what, value, threshold)


def key_norm(problem: AttentionRegression, layer: AttentionLayer) -> float:
    return float(np.linalg.norm(np.asarray(problem.root @ layer.key_query @ problem.root), 2))


def loss_bias(problem: AttentionRegression, layer: AttentionLayer, *, include_self: bool = True) -> float:
    """B_1: n (E of the empirical loss - L) as n grows; `include_self=False` for leave-one-out or fresh queries."""
    problem.check_layer(layer, "loss_bias")
    require_below(2 * key_norm(problem, layer) ** 2, 1.0, "2 |V|^2 (whitened V)", "B_1")
    return float(_compiled_bias(problem.whiten(layer), problem.target, include_self))


def context_variance(problem: AttentionRegression, factor: float = 1.0) -> float:
    r"""$v_{ctx}$: n times the variance of the error that a context of n noise-free samples makes on the minima of scale c (any gauge)."""
    what = "s_1 = |A Sigma^(1/2)|" if factor == 1 else "s_1/c^2, s_1 = |A Sigma^(1/2)|"
    require_below(float(problem.sizes[0]) / factor**2, 1.0, what, "v_ctx")
    whitened = np.asarray(scaled(balanced_point(problem), problem.outputs, factor))
    upper, below = whitened[: problem.outputs], whitened[problem.outputs :].T
    identity = np.eye(below.shape[0])
    third = np.linalg.inv(identity + below.T @ below)
    turn = below @ third @ below.T
    fourth = np.linalg.inv(identity - 2 * turn)
    scale = 1 / np.linalg.det(identity + below.T @ below) / np.sqrt(np.linalg.det(identity - 2 * turn))
    keys = third @ below.T
    direct, crossed = upper @ (identity - below @ keys), -upper @ below @ third
    first, second = direct.T @ direct @ fourth, keys.T @ keys @ fourth
    total = np.trace(first) * np.trace(second) + 2 * np.trace(first @ second)
    total += 2 * np.trace(crossed @ keys @ fourth @ direct.T) + np.sum(crossed**2)
    return float(scale * total)


def noise_variance(problem: AttentionRegression) -> float:
    """sigma^2 m d: n times the excess of least squares."""
    return float(problem.noise) * problem.outputs * problem.inputs


def sample_floor(problem: AttentionRegression, factor: float = 1.0) -> float:
    """v: training on one data set of size n settles at an excess of about v/n (+ b_2/n^2), at the minima of scale c = `factor`."""
    return noise_variance(problem) + context_variance(problem, factor)


def spectral_floor(problem: AttentionRegression) -> float:
    """v_spec: the spectral start of a data set of size n has excess about v_spec/n."""
    sizes = np.asarray(problem.sizes)
    return noise_variance(problem) + float(sizes.sum() ** 2 + (sizes**2).sum())


class OracleShift(eqx.Module):
    """Where the expected gradient over samples of size n vanishes: W + shift/n, at an excess of excess/n^2 = b_2/n^2."""

    shift: np.ndarray
    excess: float


def oracle_shift(
    problem: AttentionRegression, gauge: str | np.ndarray = "identity", *, sample_balance: bool = True
) -> OracleShift:
    """The first-order displacement from the minimum with a gauge (a name or a rotation), across the manifold of minima.

    `sample_balance=False` where the regulariser does not come from the small sample: b_2/B^2 for minibatches of size B.

    A size that is exactly 0 has no part in it: its directions, flat in the loss, are held at 0 by the bias, whose curvature there is
    positive. A small size counts once n s_d is large, so that b_2 jumps as s_d tends to 0: the limits do not commute.

    >>> from penchant.papers.attention_regression.setting.sample import prescribed_spectrum
    >>> problems = (prescribed_spectrum(4, (0.05, 0.04, least), 5.0, 11) for least in (1e-7, 0.0))
    >>> [round(oracle_shift(problem, "minus").excess, 3) for problem in problems]
    [0.938, 0.549]
    """
    whitened = jnp.asarray(balanced_point(problem, gauge_rotation(problem, gauge)))
    require_below(2 * float(problem.sizes[0]), 1.0, "2 s_1 = 2 |A Sigma^(1/2)|", "b_2")
    slope = bias_gradient(whitened, problem.target, sample_balance)
    curvature = hessian(problem, whitened)
    inverse = np.linalg.pinv(curvature, rcond=CUTOFF, hermitian=True)
    shift = -(inverse @ np.asarray(slope).ravel()).reshape(whitened.shape)
    upper, lower = np.asarray(whitened[: problem.outputs]), np.asarray(whitened[problem.outputs :])
    moved = shift[: problem.outputs] @ lower.T + upper @ shift[problem.outputs :].T
    return OracleShift(shift, float(np.sum(moved**2)))


@partial(jax.jit, static_argnames="sample_balance")
def bias_gradient(whitened: Array, target: Array, sample_balance: bool) -> Array:
    """The gradient of B_1, or of B_1 + R_1, by W."""

    def bias(whitened: Array) -> Array:
        balance = whitened_balance_bias(whitened, target.shape[0]) if sample_balance else 0.0
        return whitened_loss_bias(whitened, target) + balance

    return jax.grad(bias)(whitened)


class Scale(eqx.Module):
    """The layer (c U, V/c) has the same population loss for every c; `factor` is the c of the smallest B_1 = `bias`."""

    factor: float
    bias: float
    key_norm: float


def minimum_bias(problem: AttentionRegression, factor: float = 1.0) -> float:
    r"""B_1 of the minima at scale c: $\prod_i(1 - 2s_i/c^2)^{-1/2}\,\big[c^2\sum s_i + \sum s_i^2/(1 - 2s_i/c^2)\big]$, the same in every gauge."""
    sizes = np.asarray(problem.sizes)
    require_below(2 * float(sizes[0]) / factor**2, 1.0, "2 s_1 / c^2", "B_1")
    room = 1 - 2 * sizes / factor**2
    return float((factor**2 * sizes.sum() + (sizes**2 / room).sum()) / np.sqrt(room.prod()))


def optimal_scale(problem: AttentionRegression) -> Scale:
    """The scale that makes the first-order bias of a minimum smallest: logits small enough, values not too large.

    At every c > sqrt(2 s_1) the bias is finite, so assumption A3 is a matter of scale.
    """
    least = float(np.sqrt(2 * float(problem.sizes[0])))
    at = lambda log_room: least * (1 + np.exp(log_room))
    bias = lambda log_room: minimum_bias(problem, at(log_room))
    found = minimize_scalar(bias, bounds=(-8.0, 6.0), method="bounded", options={"xatol": 1e-10})
    factor = float(at(found.x))
    return Scale(factor, float(found.fun), float(np.sqrt(float(problem.sizes[0]))) / factor)


def scaled(whitened: Array | np.ndarray, outputs: int, factor: Array | float) -> Float[Array, "rows d"]:
    """W of the layer (c U, V/c)."""
    whitened = jnp.asarray(whitened)
    return jnp.concatenate([factor * whitened[:outputs], whitened[outputs:] / factor])


class Estimate(eqx.Module):
    """A mean with its standard error."""

    mean: float
    error: float

    @staticmethod
    def of(values: Array | np.ndarray) -> "Estimate":
        """From independent measurements."""
        values = np.asarray(values)
        return Estimate(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))))

    def away(self, predicted: float) -> float:
        """Distance to a prediction in standard errors."""
        return abs(self.mean - predicted) / self.error


def extrapolated(small: Estimate, large: Estimate) -> Estimate:
    """From estimates at n and 2n, the value without its term in 1/n."""
    return Estimate(2 * large.mean - small.mean, float(np.hypot(2 * large.error, small.error)))


@partial(jax.jit, static_argnames=("count", "draws"))
def gradient_bias_samples(
    problem: AttentionRegression, layer: AttentionLayer, count: int, draws: int, seed: int
) -> Float[Array, "draws rows d"]:
    """n (empirical - population gradient) by W (whitened) of `draws` fresh samples of size n = `count`."""
    slip = layer.value @ problem.covariance @ layer.key_query - problem.planted

    def one(key: Array) -> Array:
        inputs = jax.random.normal(key, (count, problem.inputs)) @ problem.root
        sums = context_sums(inputs, inputs @ problem.planted.T, layer.value, layer.key_query)
        # The gradient of the control variate tr(E Sigma_n E') has the population's as its mean.
        seen = inputs.T @ inputs / count
        value = sums.value - 2 * slip @ seen @ layer.key_query.T @ problem.covariance
        key_query = sums.key_query - 2 * problem.covariance @ layer.value.T @ slip @ seen
        return count * problem.by_whitened(AttentionLayer(value, key_query))

    return jax.lax.map(one, jax.random.split(jax.random.key(seed), draws))
