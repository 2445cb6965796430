"""What a start and the layers of a run say, where the population is only known from a sample.

The spectral start of a sample is a minimum of the estimate, so its distance to the estimated minima says nothing: what counts
is how far the minima of an estimate are from the true ones. That error is drawn from the law of the estimate. A3 is checked where training really is.
"""

import jax
import numpy as np
from jaxtyping import Array, Float

from ...theory.base import Hypothesis
from .setting.balanced_minima import nearest_minimum, polar
from .setting.geometry import TwoSided, balanced_point
from .setting.problem import AttentionLayer, AttentionRegression
from .setting.sample import AttentionSample, key_strength, moment_room, noise_level
from .theorems import kind
from .training.run import AttentionRun

_DRAWS = 400
_LEVEL = 0.95  # quantile of the drawn errors


def estimates(problem: AttentionRegression, samples: int, draws: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Covariances and least-squares maps of data sets of `samples` normal rows.

    The covariance of a sample has a Wishart law and least squares a normal one, so no sample is drawn, however large it is.
    """
    rng, (m, d) = np.random.default_rng(seed), problem.planted.shape
    lower = np.tril(rng.standard_normal((draws, d, d)), -1)
    lower[:, np.arange(d), np.arange(d)] = np.sqrt(rng.chisquare(samples - np.arange(d), (draws, d)))
    noise = np.sqrt(float(problem.noise)) * rng.standard_normal((draws, m, d))
    planted = np.asarray(problem.planted) + noise @ np.linalg.inv(lower) @ np.asarray(problem.inverse_root)
    factor = np.asarray(problem.root) @ lower
    return factor @ factor.swapaxes(1, 2) / samples, planted


def drawn_starts(problem: AttentionRegression, samples: int, draws: int, seed: int = 0) -> np.ndarray:
    """W of the spectral starts of as many estimates: draws x (m + d) x d, whitened by the truth."""
    covariances, planted = estimates(problem, samples, draws, seed)
    values, vectors = np.linalg.eigh(covariances)
    power = lambda exponent: (vectors * values[:, None] ** exponent) @ vectors.swapaxes(1, 2)
    left, sizes, right = np.linalg.svd(planted @ power(0.5), full_matrices=False)
    top = np.abs(right).argmax(axis=2)[..., None]
    weights = np.sign(np.take_along_axis(right, top, 2))[..., 0] * np.sqrt(
        sizes
    )  # the convention of the gauge identity
    back, root = power(-0.5), np.asarray(problem.root)
    lower = root @ back @ (right.swapaxes(1, 2) * weights[:, None])
    return np.concatenate([left * weights[:, None], lower], axis=1) @ back @ root


def start_errors(problem: AttentionRegression, samples: int, draws: int = _DRAWS, seed: int = 0) -> np.ndarray:
    """Two-sided distances of spectral starts of `samples` normal rows to the minima of the problem they were drawn from."""
    stacked, starts = balanced_point(problem), drawn_starts(problem, samples, draws, seed)
    return np.linalg.norm(starts - stacked @ polar(stacked.T @ starts), axis=(1, 2))


def near_estimated_minima(sample: AttentionSample, layer: AttentionLayer) -> Hypothesis:
    """The start is within r_0 of the minima, by the distance to the estimated ones plus what the estimate may be wrong by.

    Undecided where that error, or that of r_0 = sqrt(4 s_d / 5), could change the answer. Both are first-order estimates.
    """
    problem, count = sample.estimated, sample.size
    found = nearest_minimum(problem, np.asarray(problem.whiten(layer)), TwoSided())
    error = float(np.quantile(start_errors(problem, count), _LEVEL))
    smallest, level = float(problem.sizes[-1]), noise_level(problem, count)
    least, most = (float(np.sqrt(0.8 * max(size, 0.0))) for size in (smallest - level, smallest + level))
    slack = least - found.distance - error
    holds = True if slack >= 0 else False if found.distance - error > most else None
    detail = (
        f"from {count} samples: r_0 = sqrt(4 s_d/5), at least {least:.3g} within the noise of s_d, minus the two_sided distance "
        f"{found.distance:.3g} to the estimated minima, minus their own error {error:.3g} (95 % of draws from the estimate)"
    )
    return Hypothesis("initialisation", holds, slack, f"component det R = {found.component:+d}", detail, "estimated")


def _noise(problem: AttentionRegression, samples: int, norm: float) -> float:
    """What the whitened V is wrong by, as its covariance is: both roots count half."""
    return float(norm * noise_level(problem, samples) / problem.sizes[0])


def trajectory_moments(
    run: AttentionRun, power: float = 2.0, *, truth: AttentionRegression | None = None, samples: int | None = None
) -> Hypothesis:
    """A3(p) at every record of a run: largest eigenvalue of sym V below 1/(2p) and |V| below 1/p; the offender is the first that fails.

    Whitened by the `truth`, or by the run's own problem; where that is an estimate of `samples` rows, slack within its noise leaves the answer open.
    """
    problem, samples = (run.problem, samples) if truth is None else (truth, None)
    whitened = np.asarray(jax.vmap(problem.whiten)(run.layers))
    room = np.array([moment_room(one, problem.outputs, power) for one in whitened])
    worst, failed = int(room.argmin()), np.flatnonzero(room <= 0)
    strength, norm = key_strength(whitened[worst], problem.outputs)
    where = f"first at step {run.steps[failed[0]]}, worst" if len(failed) else "nearest"
    holds: bool | None = not len(failed)
    if samples is not None and abs(room[worst]) <= _noise(problem, samples, norm):
        holds = None
    detail = (
        f"the lesser of 1/(2p) - {strength:.3g} (largest eigenvalue of sym V) and 1/p - {norm:.3g} (|V|), p = {power:g}, "
        f"at the layers of {len(run)} recorded steps"
    )
    return Hypothesis(
        "A3_trajectory", holds, float(room[worst]), f"{where} at step {run.steps[worst]}", detail, kind(samples)
    )


def covariance_error(truth: AttentionRegression, covariance: Float[Array, "d d"] | np.ndarray) -> float:
    """|Sigma^(1/2) S^-1 Sigma^(1/2) - 1| in operator norm, for an estimate S of the covariance."""
    root = np.asarray(truth.root)
    turned = root @ np.linalg.solve(np.asarray(covariance), root)
    return float(np.abs(np.linalg.eigvalsh((turned + turned.T) / 2) - 1).max().round(15))
