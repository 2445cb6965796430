"""Attention and decoder trained together, along a run."""

import jax
import jax.numpy as jnp
import numpy as np

from ..training.trajectory import Trajectory
from .direction import misalignment


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
