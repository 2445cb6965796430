r"""The matrix analogue of `finite_margin`: $\min \sum_j R(\sigma_j(W))$ subject to $\langle Z_k, W\rangle \ge \mu$.

From K = a I, Q = 0 the flow of W = K Q^T is $\dot W = \sqrt{WW^\top + c^2}\,G + G\sqrt{W^\top W + c^2}$ with $c = a^2/2$. Where G keeps
the singular frames of W that is the mirror flow of this potential (the spectral hypentropy), and then the minimiser is where the
flow should be at margin $\mu$; in general it is no mirror flow. Solved in the dual: $W = c\,\sinh(\sum_k \lambda_k Z_k)$, the hyperbolic sine of singular values.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import ArgumentError
from .arguments import require_tokens
from .finite_margin import FiniteMargin, Growth, least_by_barrier, potential


def spectral_finite_margin(data: Any, scale: float, margin: float) -> FiniteMargin:
    """The matrix of least spectral potential with all margins of token data at least `margin`.

    `scale` is that of the start, as in `finite_margin`: K = sqrt(2) `scale` I, Q = 0.

    >>> import penchant as pt
    >>> data = pt.TokenSelection([[[2.0, 0.0], [0.0, 0.0]]], scores=[[1.0, 0.0]], queries=[[0.0, 3.0]])
    >>> spectral_finite_margin(data, 1.0, 12.0).weight.round(9).tolist()       # one pair: W = 2 at its only entry
    [[0.0, 2.0], [0.0, 0.0]]
    """
    require_tokens(data, "spectral_finite_margin")
    for name, value in (("scale", scale), ("margin", margin)):
        if not 0 < value < np.inf:
            raise ArgumentError(name, "spectral_finite_margin", "positive and finite", value)
    active = data.constrained()
    pairs = np.asarray(jax.vmap(data.adjoint)(jnp.eye(len(active))[active]))
    ratio = scale**2 / margin
    found = least_by_barrier(_growth(pairs, ratio), len(pairs), min(1.0, 1 / ratio))
    left, sizes, right = np.linalg.svd(np.tensordot(found, pairs, 1), full_matrices=False)
    weight = scale**2 * (left * np.sinh(sizes)) @ right
    miss = float(np.maximum(0.0, 1 - np.tensordot(pairs, weight, 2) / margin).max())
    dual = np.zeros(len(active))
    dual[active] = found
    return FiniteMargin(weight, dual, spectral_potential(weight, scale), miss)


def spectral_potential(weight: Any, scale: float) -> float:
    """The potential of the singular values."""
    sizes = np.linalg.svd(np.asarray(weight, float), compute_uv=False)
    return potential(sizes, np.full(len(sizes), scale))


def _growth(pairs: np.ndarray, ratio: float) -> Growth:
    """ratio * sum of cosh(s_j) - 1 over the singular values of sum_k lam_k Z_k: half the trace over the symmetric dilation."""
    rows = pairs.shape[1]
    wide = np.zeros((len(pairs), sum(pairs.shape[1:]), sum(pairs.shape[1:])))
    wide[:, :rows, rows:], wide[:, rows:, :rows] = pairs, pairs.transpose(0, 2, 1)

    def value(dual: np.ndarray) -> float:
        sizes = np.linalg.svd(np.tensordot(dual, pairs, 1), compute_uv=False)
        return float(2 * ratio * (np.sinh(sizes / 2) ** 2).sum())

    def derivatives(dual: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        sizes, frame = np.linalg.eigh(np.tensordot(dual, wide, 1))
        turned = frame.T @ wide @ frame
        gradient = ratio / 2 * np.diagonal(turned, axis1=1, axis2=2) @ np.sinh(sizes)
        half, mean = np.subtract.outer(sizes, sizes) / 2, np.add.outer(sizes, sizes) / 2
        near = np.abs(half) < 1e-4
        ratios = np.where(near, 1 + half**2 / 6, np.sinh(half) / np.where(near, 1.0, half))
        weighted = turned * (ratio / 2 * np.cosh(mean) * ratios)  # divided differences of sinh
        flat = turned.reshape(len(pairs), -1)
        return gradient, weighted.reshape(len(pairs), -1) @ flat.T

    return Growth(value, derivatives)
