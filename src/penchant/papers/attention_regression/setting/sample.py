r"""Problems with random or prescribed spectra, moments of their logits, and samples: what these say of covariance, planted map and noise.

With the whitened key-query matrix $\tilde V$ the self-logit has $E e^{p x^\top Vx} = \det(I - 2p\,\mathrm{sym}\tilde V)^{-1/2}$, the logit of an independent key
$E e^{p x'^\top Vx} = \det(I - p^2\tilde V^\top\tilde V)^{-1/2}$. Both are infinite where the matrix inside is not positive definite: finite-sample theory ends there.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ....errors import ArgumentError
from ....settings.check import is_whole, real_array
from .geometry import balanced_point
from .problem import AttentionLayer, AttentionRegression, symmetric_roots


class AttentionExperiment(eqx.Module):
    """A problem, a sample of it (`inputs` n x d, `targets` n x m) and a random start."""

    problem: AttentionRegression
    inputs: np.ndarray
    targets: np.ndarray
    start: AttentionLayer


def check_counts(owner: str, **values: object) -> None:
    """Raise where a value is not a positive integer."""
    for name, value in values.items():
        if not is_whole(value) or value < 1:
            raise ArgumentError(name, owner, "a positive integer", repr(value))


def attention_experiment(
    m: int = 10, d: int = 5, *, n: int = 10_000, seed: int = 0, largest: float = 0.05, noise: float = 1e-3
) -> AttentionExperiment:
    """The experiments' data: a Wishart covariance of norm 1, a normal map scaled to `largest` singular value of A Sigma^(1/2), a normal start."""
    check_counts("attention_experiment", m=m, d=d, n=n)
    for name, value in {"largest": largest, "noise": noise}.items():
        if not 0 < value < np.inf and not (name == "noise" and value == 0):
            raise ArgumentError(name, "attention_experiment", "positive and finite", value)
    rng = np.random.default_rng(seed)
    factor, planted = rng.standard_normal((d, d)), rng.standard_normal((m, d))
    covariance = factor @ factor.T
    covariance /= np.linalg.norm(covariance, 2)
    root, _, _ = symmetric_roots(covariance)
    planted *= largest / np.linalg.norm(planted @ root, 2)
    inputs = rng.standard_normal((n, d)) @ root
    targets = inputs @ planted.T + np.sqrt(noise) * rng.standard_normal((n, m))
    start = AttentionLayer(rng.standard_normal((m, d)), rng.standard_normal((d, d)))
    return AttentionExperiment(AttentionRegression(covariance, planted, noise), inputs, targets, start)


def prescribed_spectrum(
    m: int, sizes: object, condition: float = 1.0, seed: int = 0, noise: float = 0.0
) -> AttentionRegression:
    """A problem with the given singular values of A Sigma^(1/2) and a covariance of norm 1 with the given condition number.

    There are d = len(sizes) inputs; with m < d only the first m sizes have room.
    """
    owner = "prescribed_spectrum"
    sizes = real_array(sizes, "sizes", owner, "(d,)", 1)
    d = len(sizes)
    check_counts(owner, m=m)
    if (sizes < 0).any() or (np.diff(sizes) > 0).any():
        raise ArgumentError("sizes", owner, "nonnegative and in decreasing order", sizes.tolist())
    if not 1 <= condition < 1e12:
        raise ArgumentError("condition", owner, "between 1 and 1e12", condition)
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.standard_normal((d, d)))[0]
    left = np.linalg.qr(rng.standard_normal((m, d)))[0]
    right = np.linalg.qr(rng.standard_normal((d, d)))[0]
    covariance = (axes * np.geomspace(1, 1 / condition, d)) @ axes.T
    _, inverse_root, _ = symmetric_roots(covariance)
    width = left.shape[1]
    return AttentionRegression(covariance, (left * sizes[:width]) @ right[:, :width].T @ inverse_root, noise)


def _log_inverse_root(matrix: np.ndarray) -> float:
    """log det(matrix)^(-1/2), infinite where the matrix is not positive definite."""
    values = np.linalg.eigvalsh(matrix)
    return float(-0.5 * np.sum(np.log(values))) if values[0] > 0 else np.inf


def log_self_moment(whitened_key: np.ndarray | list, power: float) -> float:
    """log E exp(power x'Vx)."""
    key = np.asarray(whitened_key, float)
    return _log_inverse_root(np.eye(len(key)) - power * (key + key.T))


def log_cross_moment(whitened_key: np.ndarray | list, power: float) -> float:
    """log E exp(power x'Vy) for independent x and y."""
    key = np.asarray(whitened_key, float)
    return _log_inverse_root(np.eye(len(key)) - power**2 * key.T @ key)


def moment_threshold(power: float) -> float:
    """A3(p): the largest size s_1 for which the p-th moment of the self-logit is finite at every balanced minimum, 1/(4 p^2)."""
    if not 0 < power < np.inf:
        raise ArgumentError("power", "moment_threshold", "positive and finite", power)
    return 1 / (4 * power**2)


def key_strength(whitened: np.ndarray, outputs: int) -> tuple[float, float]:
    """Largest eigenvalue of sym V and operator norm of V, whitened: below 1/(2p) and 1/p the p-th moments are finite."""
    key = np.asarray(whitened, float)[outputs:].T
    return float(np.linalg.eigvalsh((key + key.T) / 2)[-1]), float(np.linalg.norm(key, 2))


def moment_room(whitened: np.ndarray, outputs: int, power: float = 2.0) -> float:
    """How far both are below; the p-th moments are finite where it is positive."""
    top, norm = key_strength(whitened, outputs)
    return min(float(np.sqrt(moment_threshold(power))) - top, 1 / power - norm)


GAUGES = ("identity", "plus", "minus")
GAUGE = (
    "the rotation R of the balanced minima; numbers in the gauge identity depend on the sign convention of the singular vectors "
    "(here: the largest entry of each right one is positive), those in the gauges plus and minus do not"
)
KEYS = ("batch", "full")
DEVIATIONS = 5.0  # z-scores beyond this are not chance
UNRELIABLE = 0.3  # of 1/(n s_d): the second order in 1/n is then no longer small
_CONSTANT = 1e-12  # relative standard deviation below which a column is constant up to rounding


class AttentionSample(eqx.Module):
    r"""Covariates and targets, one sample per row, and the problem they suggest.

    **Arguments:** `inputs` (n, d) and `targets` (n, m) with n >= d; `ridge` is added to the diagonal of the covariance.

    `estimated` has $\hat\Sigma = X^\top X/n$ (the model has no intercept, so nothing is centred), the least-squares map $\hat A$ and the
    residual variance $|Y - X\hat A^\top|^2/(m(n-d))$.

    >>> sample = AttentionSample([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]], [[0.1, 0.3], [0.2, 0.4], [0.2, 0.5]])
    >>> np.asarray(sample.estimated.planted).round(12).tolist()
    [[0.1, 0.1], [0.3, 0.2]]
    """

    inputs: Float[Array, "n d"]
    targets: Float[Array, "n m"]
    estimated: AttentionRegression

    def __init__(self, inputs: object, targets: object, ridge: float = 0.0):
        owner = "AttentionSample"
        inputs = real_array(inputs, "inputs", owner, "(n, d)", 2)
        targets = real_array(targets, "targets", owner, "(n, m)", 2)
        (n, d), m = inputs.shape, targets.shape[1]
        if len(targets) != n:
            raise ArgumentError("targets", owner, f"one row per row of inputs ({n})", f"{len(targets)} rows")
        if not targets.any():
            raise ArgumentError("targets", owner, "not all 0, as there is nothing to learn then", "only zeros")
        if not 0 <= ridge < np.inf:
            raise ArgumentError("ridge", owner, "nonnegative and finite", ridge)
        if n < d and ridge == 0:
            fix = "more samples, fewer columns, or a positive ridge (`ridge=`, on the command line `--ridge`)"
            required = f"at least d = {d} rows (A1): the covariance is singular otherwise"
            raise ArgumentError("inputs", owner, required, f"{n} rows", fix)
        covariance = inputs.T @ inputs / n + ridge * np.eye(d)
        if ridge == 0:
            planted = np.linalg.lstsq(inputs, targets, rcond=None)[0].T
        else:
            planted = np.linalg.solve(covariance, inputs.T @ targets / n).T
        left = targets - inputs @ planted.T
        noise = float(np.sum(left**2) / (m * (n - d))) if n > d else 0.0
        self.inputs, self.targets = jnp.asarray(inputs), jnp.asarray(targets)
        self.estimated = AttentionRegression(covariance, planted, noise)

    @property
    def size(self) -> int:
        """n."""
        return self.inputs.shape[0]


def noise_level(problem: AttentionRegression, samples: int) -> float:
    """How far the estimated sizes of A Sigma^(1/2) are from the true ones: noise of the targets and of the covariance."""
    m, d = problem.planted.shape
    return float(np.sqrt(float(problem.noise) * (m + d) / samples) + float(problem.sizes[0]) * np.sqrt(d / samples))


def map_errors(sample: AttentionSample) -> np.ndarray:
    """Standard errors of the columns of the least-squares map, the same in each of its rows; not a number where n <= d."""
    n, d = sample.inputs.shape
    noise = float(sample.estimated.noise) if n > d else np.nan
    return np.sqrt(noise / n * np.diag(np.linalg.inv(np.asarray(sample.estimated.covariance))))


def covariance_width(sample: AttentionSample) -> float:
    """Confidence half-width of the covariance in operator norm, |Sigma| sqrt(d/n)."""
    n, d = sample.inputs.shape
    return float(sample.estimated.spread[-1] * np.sqrt(d / n))


def mean_scores(inputs: Array | np.ndarray) -> np.ndarray:
    """|mean| of each column in standard errors; infinite for a column that is constant and not 0."""
    inputs = np.asarray(inputs, float)
    mean, deviation = np.abs(inputs.mean(axis=0)), inputs.std(axis=0)
    constant = deviation <= _CONSTANT * np.abs(inputs).max(axis=0)
    return np.where(
        constant, np.where(mean > 0, np.inf, 0.0), mean * np.sqrt(len(inputs)) / np.where(constant, 1.0, deviation)
    )


def unreliable(sample: AttentionSample, truth: AttentionRegression | None = None) -> tuple[str, ...]:
    """What makes first-order predictions from a sample doubtful: noise that cannot be estimated, a size below its noise, few samples.

    With the `truth` sizes and noise are known, and only the number of samples can be too small.
    """
    problem, found = sample.estimated if truth is None else truth, []
    smallest, level = float(problem.sizes[-1]), noise_level(problem, sample.size)
    n, d = sample.inputs.shape
    if n <= d and truth is None:
        found.append(f"n = {n} <= d = {d}: the noise of the targets cannot be estimated and is taken as 0")
    if truth is None and smallest <= level:
        found.append(f"the smallest size {smallest:.3g} is below its noise level {level:.3g}: it may be 0")
    if smallest > 0 and 1 / (n * smallest) > UNRELIABLE:
        found.append(f"1/(n s_d) = {1 / (n * smallest):.2g}: first-order theory in 1/n is unreliable")
    return tuple(found)


def gauge_rotation(problem: AttentionRegression, gauge: str | np.ndarray) -> np.ndarray:
    """The rotation R of a named gauge: the identity, or +-Q', which makes the whitened V symmetric and of one sign.

    The last two do not depend on the signs of singular vectors. A rotation is its own gauge.
    """
    if isinstance(gauge, np.ndarray):
        return gauge
    if gauge not in GAUGES:
        raise ArgumentError("gauge", "gauge_rotation", f"one of {', '.join(GAUGES)}", repr(gauge))
    right = np.asarray(problem.right)
    if gauge == "identity":
        return np.eye(right.shape[1], right.shape[0])
    return right.T if gauge == "plus" else -right.T


def spectral_layer(problem: AttentionRegression, gauge: str = "identity") -> AttentionLayer:
    """The balanced factorisation of the planted map: the spectral start when the problem is an estimate, a minimum when it is the truth."""
    return problem.unwhiten(jnp.asarray(balanced_point(problem, gauge_rotation(problem, gauge))))


def draw_sample(problem: AttentionRegression, count: int, rng: np.random.Generator) -> AttentionSample:
    """Fresh data: covariates first, then noise, which is drawn whatever its variance: the next sample does not depend on that."""
    inputs = rng.standard_normal((count, problem.inputs)) @ np.asarray(problem.root)
    noise = rng.standard_normal((count, problem.outputs))
    return AttentionSample(inputs, inputs @ np.asarray(problem.planted).T + np.sqrt(float(problem.noise)) * noise)
