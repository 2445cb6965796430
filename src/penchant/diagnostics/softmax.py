"""Attention along a run."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..logspace import log_sum


def log_attention_loss(run: Any) -> np.ndarray:
    """log(1 - attention on the optimal token), records x samples, exact long after 1 - s has rounded to 0."""
    data = run.setting.data
    margins = jnp.asarray(run.margins).reshape(len(run), *data.others.shape)
    log_odds = log_sum(jnp.where(data.padded, -jnp.inf, -margins))  # odds of not choosing the optimal token
    return np.asarray(jax.nn.log_sigmoid(log_odds))


def optimal_attention(run: Any) -> np.ndarray:
    """Attention on the optimal token, records x samples."""
    return -np.expm1(log_attention_loss(run))


def selection(setting: Any, margins: Any) -> np.ndarray:
    """The token with most attention in each sample."""
    return np.asarray(jnp.argmax(setting.data.log_attention(jnp.asarray(margins)), axis=1))
