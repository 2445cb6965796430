"""Quantities of joint runs at every record."""

import numpy as np

from ..training.joint import JointTrajectory
from .direction import misalignment


def joint_misalignments(run: JointTrajectory, reference: np.ndarray, block: str = "W") -> np.ndarray:
    """1 - corr of the `block` ("W" or "u") with a reference weight at every record; NaN while the block is zero."""
    norm, dense = (run.norm_W, run.weight) if block == "W" else (run.norm_u, run.decoder)
    found = np.full(len(run), np.nan)
    for record in np.flatnonzero(norm > 0):
        found[record] = misalignment(dense(int(record)), reference)
    return found


def optimal_entries(run: JointTrajectory, values: np.ndarray) -> np.ndarray:
    """The entries of an R x n x T series at the optimal tokens, R x n."""
    return np.take_along_axis(values, np.asarray(run.data.optimal)[None, :, None], axis=2)[..., 0]


def score_gaps(run: JointTrajectory) -> np.ndarray:
    """Score of the optimal token minus the best other score, R x n."""
    others = run.scores.copy()
    np.put_along_axis(others, np.asarray(run.data.optimal)[None, :, None], -np.inf, axis=2)
    return optimal_entries(run, run.scores) - others.max(axis=2)


def log_joint_attention_loss(run: JointTrajectory) -> np.ndarray:
    """log(1 - attention on the optimal token), R x n, from the other tokens: exact however small."""
    log_share = run.log_attention().copy()
    np.put_along_axis(log_share, np.asarray(run.data.optimal)[None, :, None], -np.inf, axis=2)
    return np.logaddexp.reduce(log_share, axis=2)


def decoder_margins(run: JointTrajectory) -> np.ndarray:
    """Smallest score of an optimal token per unit of |u|, at every record; NaN while u is zero."""
    norm = np.where(run.norm_u > 0, run.norm_u, np.nan)
    return optimal_entries(run, run.scores).min(axis=1) / norm
