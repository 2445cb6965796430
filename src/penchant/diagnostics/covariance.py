r"""Where noisy descent on a quadratic settles: exact covariances of $\theta_{k+1} = \theta_k - \eta(A\theta_k + \xi_k)$, $\mathrm{Cov}\,\xi = \Sigma$.

In the eigenbasis of A, with $\rho_i = 1 - \eta\lambda_i$, $\hat S_{ij}(k) = \eta^2\hat\Sigma_{ij}\frac{1 - (\rho_i\rho_j)^k}{1 - \rho_i\rho_j}$, whether A and $\Sigma$ commute or not. The
Ornstein-Uhlenbeck limit $AS + SA = \eta\Sigma$ forgets the term $\eta ASA$ and is too small by a factor $1 - \eta\lambda/2$ in each eigendirection.
"""

from typing import Any

import numpy as np

from ..errors import ArgumentError, StepSizeError
from ..settings.check import real_array


def _symmetric(matrix: Any, name: str, owner: str) -> np.ndarray:
    found = real_array(matrix, name, owner, "(d, d)", 2)
    size = np.abs(found).max()
    if found.shape[0] != found.shape[1] or np.abs(found - found.T).max() > 1e-12 * size:
        raise ArgumentError(name, owner, "a symmetric matrix", f"shape {found.shape}")
    if np.linalg.eigvalsh(found)[0] < -1e-12 * size:
        raise ArgumentError(
            name, owner, "positive semidefinite", f"smallest eigenvalue {np.linalg.eigvalsh(found)[0]:.3g}"
        )
    return found


def noisy_covariance(hessian: Any, noise: Any, step: float, steps: float | int = np.inf) -> np.ndarray:
    """Covariance after `steps` steps from a fixed point (for ever by default; infinite along noisy flat directions).

    >>> noisy_covariance([[2.0]], [[0.49]], 0.1).round(7).tolist()                    # eta sigma^2 / (lambda (2 - eta lambda))
    [[0.0136111]]
    """
    hessian, noise = _symmetric(hessian, "hessian", "noisy_covariance"), _symmetric(noise, "noise", "noisy_covariance")
    if not step > 0:
        raise ArgumentError("step", "noisy_covariance", "positive", step)
    sizes, basis = np.linalg.eigh(hessian)
    if step * sizes[-1] >= 2:
        raise StepSizeError(step, 2 / sizes[-1], "step * largest eigenvalue must be below 2")
    turned = basis.T @ noise @ basis
    decay = step * (sizes[:, None] + sizes) - step**2 * np.outer(sizes, sizes)  # 1 - rho_i rho_j
    flat = decay <= 1e-14
    if np.isinf(steps):
        safe = np.where(flat, 1.0, decay)
        walk = np.where(np.abs(turned) > 1e-14 * np.abs(noise).max(), np.where(turned > 0, np.inf, -np.inf), 0.0)
        found = np.where(flat, walk, step**2 * turned / safe)
        return basis @ found @ basis.T if np.isfinite(found).all() else np.full_like(found, np.inf)
    with np.errstate(divide="ignore"):
        log_power = steps * np.log(np.abs(1 - decay))
    positive = (1 - decay > 0) | (steps % 2 == 0)
    power = np.where(positive, -np.expm1(log_power), 1 + np.exp(log_power))
    return basis @ (step**2 * turned * np.where(flat, steps, power / np.where(flat, 1.0, decay))) @ basis.T


def diffusion_covariance(hessian: Any, noise: Any, step: float) -> np.ndarray:
    """The Ornstein-Uhlenbeck limit: S with A S + S A = step * noise. A must be positive definite."""
    hessian, noise = (
        _symmetric(hessian, "hessian", "diffusion_covariance"),
        _symmetric(noise, "noise", "diffusion_covariance"),
    )
    sizes, basis = np.linalg.eigh(hessian)
    if sizes[0] <= 0:
        raise ArgumentError(
            "hessian", "diffusion_covariance", "positive definite", f"smallest eigenvalue {sizes[0]:.3g}"
        )
    return basis @ (step * (basis.T @ noise @ basis) / (sizes[:, None] + sizes)) @ basis.T


def sample_covariance(inputs: Any, targets: Any, step: float) -> np.ndarray:
    r"""Stationary covariance of single-sample SGD on least squares, exactly: the noise depends on the iterate.

    $S = \frac1n\sum_i(I - \eta x_ix_i^\top)S(I - \eta x_ix_i^\top) + \frac{\eta^2}n\sum_i e_i^2x_ix_i^\top$ with the residuals e of least squares: a linear system of size d^2.
    """
    inputs = real_array(inputs, "inputs", "sample_covariance", "(n, d)", 2)
    targets = real_array(targets, "targets", "sample_covariance", "(n,)", 1)
    n, d = inputs.shape
    if d > 40:
        raise ArgumentError("inputs", "sample_covariance", "of at most 40 columns: the system has d^2 unknowns", f"{d}")
    residual = targets - inputs @ np.linalg.lstsq(inputs, targets, rcond=None)[0]
    moves = np.eye(d) - step * inputs[:, :, None] * inputs[:, None, :]
    transfer = np.einsum("nij,nkl->ikjl", moves, moves).reshape(d * d, d * d) / n
    radius = float(np.abs(np.linalg.eigvals(transfer)).max())
    if radius >= 1:
        bound = 2 / float((inputs**2).sum(axis=1).max())
        raise StepSizeError(
            step, bound, f"the second moment grows by {radius:.4g} per step, there is no stationary covariance"
        )
    source = step**2 / n * np.einsum("n,ni,nj->ij", residual**2, inputs, inputs)
    return np.linalg.solve(np.eye(d * d) - transfer, source.ravel()).reshape(d, d)
