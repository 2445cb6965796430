"""Where a run stands at every record: its direction against a reference, without cancellation, its margins and its attention.

Attention and decoder trained together, along a run.
"""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import ArgumentError
from ..logspace import log_sum
from ..settings.parametrisations import Gram, trains_weight
from ..training.trajectory import Trajectory


@runtime_checkable
class Target(Protocol):
    """A reference solution: its weight, and the multipliers that make it up."""

    @property
    def weight(self) -> np.ndarray: ...
    @property
    def dual(self) -> np.ndarray: ...


def misalignment(weight: object, reference: object) -> float:
    """1 - corr = |W/|W| - V/|V||^2 / 2, from the difference: exact down to about 1e-28, where `1 - dot` ends at 1e-16.

    >>> misalignment([1.0, 0.0], [1.0, 1e-9])          # the angle is 1e-9
    5e-19
    >>> misalignment([1.0, 0.0], [0.0, 2.0])
    1.0

    NaN if either is 0, which has no direction.
    """
    first, second = np.asarray(weight, float), np.asarray(reference, float)
    if first.shape != second.shape:
        raise ArgumentError("reference", "misalignment", f"of shape {first.shape}", f"shape {second.shape}")
    first, second = first.ravel(), second.ravel()
    sizes = np.linalg.norm(first), np.linalg.norm(second)
    if 0.0 in sizes:
        return float("nan")
    difference = first / sizes[0] - second / sizes[1]
    return float(0.5 * difference @ difference)


def misalignments(run: Trajectory, reference: Target) -> np.ndarray:
    """1 - corr of a run's weight with a reference solution at every record; NaN where the weight is zero."""
    if isinstance(run.setting.parametrisation, Gram):
        return _in_gram_form(run, run.setting.parametrisation, np.asarray(reference.dual))
    found = np.full(len(run), np.nan)
    for record in np.flatnonzero(run.norm > 0):
        found[record] = misalignment(run.weight(int(record)), reference.weight)
    return found


def _in_gram_form(run: Trajectory, gram: Gram, dual: np.ndarray) -> np.ndarray:
    """The same in coefficients: W = frozen part + sum of c_k Z_k and V = sum of dual_k Z_k, with <Z_k, Z_l> = K_kl."""
    matrix, frozen = np.asarray(gram.matrix), float(gram.frozen)
    norm = np.where(run.norm > 0, run.norm, np.nan)[:, None]
    inside = (run.params.coefficients + np.asarray(gram.shift)) / norm
    difference = inside - dual / np.sqrt(dual @ matrix @ dual)
    return 0.5 * (np.einsum("rk,kl,rl->r", difference, matrix, difference, optimize=True) + frozen / norm[:, 0] ** 2)


def sizes(run: Trajectory, norm: Callable[[np.ndarray], float] | None = None) -> np.ndarray:
    """A norm of the weight at every record, by default the l2 norm; `run.norm` is that of the parameters, which may be others."""
    if norm is None and trains_weight(run.setting):
        return run.norm
    measure = norm or (lambda weight: float(np.linalg.norm(weight)))
    return np.array([measure(run.weight(record)) for record in range(len(run))])


def normalised_margins(run: Trajectory, norm: Callable[[np.ndarray], float] | None = None) -> np.ndarray:
    """Smallest margin divided by a norm of the weight, by default the l2 norm; NaN at the origin."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return run.smallest_margin() / sizes(run, norm)


def smooth_margins(run: Trajectory) -> np.ndarray:
    """-log(L - L*) divided by the l2 norm: for the exponential loss, summed, a lower bound on the normalised margin."""
    with np.errstate(divide="ignore"):
        return -run.log_excess / sizes(run)


def log_attention_loss(run: Trajectory) -> np.ndarray:
    """log(1 - attention on the optimal token), records x samples, exact long after 1 - s has rounded to 0."""
    data = run.setting.data
    margins = jnp.asarray(run.margins).reshape(len(run), *data.others.shape)
    log_odds = log_sum(jnp.where(data.padded, -jnp.inf, -margins))  # odds of not choosing the optimal token
    return np.asarray(jax.nn.log_sigmoid(log_odds))


def optimal_attention(run: Trajectory) -> np.ndarray:
    """Attention on the optimal token, records x samples."""
    return -np.expm1(log_attention_loss(run))


def log_joint_attention(run: Trajectory) -> np.ndarray:
    """log softmax of the logits, R x n x T."""
    return np.asarray(jax.nn.log_softmax(jnp.asarray(run.logits), axis=-1))


def joint_misalignments(run: Trajectory, reference: np.ndarray, block: str = "W") -> np.ndarray:
    """1 - corr of the `block` ("W" or "u") with a reference weight at every record; NaN while the block is zero."""
    norm = getattr(run, f"norm_{block}")
    found = np.full(len(run), np.nan)
    for record in np.flatnonzero(norm > 0):
        found[record] = misalignment(run.named(int(record))[block], reference)
    return found


def optimal_entries(run: Trajectory, values: np.ndarray) -> np.ndarray:
    """The entries of an R x n x T series at the optimal tokens, R x n."""
    return np.take_along_axis(values, np.asarray(run.data.optimal)[None, :, None], axis=2)[..., 0]


def score_gaps(run: Trajectory) -> np.ndarray:
    """Score of the optimal token minus the best other score, R x n."""
    others = run.scores.copy()
    np.put_along_axis(others, np.asarray(run.data.optimal)[None, :, None], -np.inf, axis=2)
    return optimal_entries(run, run.scores) - others.max(axis=2)


def log_joint_attention_loss(run: Trajectory) -> np.ndarray:
    """log(1 - attention on the optimal token), R x n, from the other tokens: exact however small."""
    log_share = log_joint_attention(run).copy()
    np.put_along_axis(log_share, np.asarray(run.data.optimal)[None, :, None], -np.inf, axis=2)
    return np.logaddexp.reduce(log_share, axis=2)


def decoder_margins(run: Trajectory) -> np.ndarray:
    """Smallest score of an optimal token per unit of |u|, at every record; NaN while u is zero."""
    norm = np.where(run.norm_u > 0, run.norm_u, np.nan)
    return optimal_entries(run, run.scores).min(axis=1) / norm
