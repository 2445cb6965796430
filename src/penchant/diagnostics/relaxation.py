r"""How noisy descent on a quadratic relaxes and remembers: transients of the diffusion, correlations in time, the excess loss.

$\theta_{k+1} = \theta_k - \eta(A\theta_k + \xi_k)$ forgets by $I - \eta A$ per step, its diffusion limit $d\theta = -A\theta\,dt + \sqrt\eta\,dB$ (noise of covariance $\Sigma$,
time $t = \eta k$) by $e^{-At}$. Everything is a product in the eigenbasis of A, whether A and $\Sigma$ commute or not.
"""

from typing import Any

import numpy as np

from ..errors import ArgumentError, StepSizeError
from ..settings.check import symmetric_matrix
from .covariance import diffusion_covariance, modes, noisy_covariance


def diffusion_transient(hessian: Any, noise: Any, step: float, time: float) -> np.ndarray:
    r"""Covariance of the diffusion at time t = step * k from a fixed point: $\eta\hat\Sigma_{ij}\frac{1 - e^{-(\lambda_i + \lambda_j)t}}{\lambda_i + \lambda_j}$; flat directions walk.

    >>> diffusion_transient([[2.0]], [[0.49]], 0.1, 0.25).round(7).tolist()           # eta sigma^2 / (2 lambda) (1 - e^(-2 lambda t))
    [[0.0077435]]
    """
    sizes, basis, turned = modes(hessian, noise, step, "diffusion_transient")
    if not 0 <= time < np.inf:
        raise ArgumentError(
            "time", "diffusion_transient", "nonnegative and finite", time, "use `diffusion_covariance` for the limit"
        )
    total = sizes[:, None] + sizes
    safe = np.where(total > 0, total, 1.0)
    return basis @ (step * turned * np.where(total > 0, -np.expm1(-safe * time) / safe, time)) @ basis.T


def lag_covariance(hessian: Any, noise: Any, step: float, lag: int) -> np.ndarray:
    """Stationary covariance of theta after `lag` more steps (rows) with theta now (columns): (I - step A)^lag S."""
    sizes, basis, _ = modes(hessian, noise, step, "lag_covariance")
    if isinstance(lag, bool) or not isinstance(lag, int | np.integer) or lag < 0:
        raise ArgumentError("lag", "lag_covariance", "a nonnegative integer: steps", lag)
    forgotten = (basis * (1 - step * sizes) ** lag) @ basis.T
    return forgotten @ _settled(noisy_covariance(hessian, noise, step), "lag_covariance")


def diffusion_lag_covariance(hessian: Any, noise: Any, step: float, time: float) -> np.ndarray:
    """The same for the diffusion, a time t = step * lag later: exp(-A t) S."""
    sizes, basis, _ = modes(hessian, noise, step, "diffusion_lag_covariance")
    if not 0 <= time < np.inf:
        raise ArgumentError("time", "diffusion_lag_covariance", "nonnegative and finite", time)
    return (basis * np.exp(-sizes * time)) @ basis.T @ diffusion_covariance(hessian, noise, step)


def _settled(covariance: np.ndarray, owner: str) -> np.ndarray:
    if not np.isfinite(covariance).all():
        found = "noise along a flat direction, which walks for ever"
        raise ArgumentError("hessian", owner, "curved wherever there is noise", found)
    return covariance


def lag_correlation(hessian: Any, noise: Any, step: float, lag: int) -> np.ndarray:
    """`lag_covariance` over the stationary standard deviations; (1 - step lambda)^lag in one dimension.

    >>> lag_correlation([[2.0]], [[0.49]], 0.1, 3).round(6).tolist()
    [[0.512]]
    """
    size = np.sqrt(np.diag(_settled(noisy_covariance(hessian, noise, step), "lag_correlation")))
    if not (size > 0).all():
        raise ArgumentError("noise", "lag_correlation", "at work in every coordinate", "a coordinate without noise")
    return lag_covariance(hessian, noise, step, lag) / np.outer(size, size)


def excess_loss(hessian: Any, noise: Any, step: float) -> float:
    r"""Mean of the quadratic above its minimum in the stationary state, $\frac12\mathrm{tr}(AS) = \sum_i\frac{\eta\hat\Sigma_{ii}}{2(2 - \eta\lambda_i)}$ over curved directions.

    Flat directions cost nothing, however far noise walks along them.

    >>> round(excess_loss([[2.0]], [[0.49]], 0.1), 7)
    0.0136111
    """
    sizes, _, turned = modes(hessian, noise, step, "excess_loss")
    if step * sizes[-1] >= 2:
        raise StepSizeError(step, 2 / float(sizes[-1]), "step * largest eigenvalue must be below 2")
    return float((step * np.diag(turned) / (2 * (2 - step * sizes)))[sizes > 0].sum())


def commutator(hessian: Any, noise: Any) -> float:
    """|A Sigma - Sigma A| / (|A| |Sigma|): 0 if and only if the eigendirections of A are separate one-dimensional processes."""
    hessian, noise = (
        symmetric_matrix(hessian, "hessian", "commutator"),
        symmetric_matrix(noise, "noise", "commutator"),
    )
    if noise.shape != hessian.shape:
        raise ArgumentError(
            "noise", "commutator", f"of the shape of the Hessian, {hessian.shape}", f"shape {noise.shape}"
        )
    sizes = np.linalg.norm(hessian, 2) * np.linalg.norm(noise, 2)
    return float(np.linalg.norm(hessian @ noise - noise @ hessian, 2) / sizes) if sizes > 0 else 0.0
