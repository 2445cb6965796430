r"""Where noisy descent on a quadratic settles: exact covariances of $\theta_{k+1} = \theta_k - \eta(A\theta_k + \xi_k)$, $\mathrm{Cov}\,\xi = \Sigma$.

In the eigenbasis of A, with $\rho_i = 1 - \eta\lambda_i$, $\hat S_{ij}(k) = \eta^2\hat\Sigma_{ij}\frac{1 - (\rho_i\rho_j)^k}{1 - \rho_i\rho_j}$, whether A and $\Sigma$ commute or not. The
Ornstein-Uhlenbeck limit $AS + SA = \eta\Sigma$ forgets the term $\eta ASA$ and is too small by a factor $1 - \eta\lambda/2$ in each eigendirection.
"""

from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg, eigsh

from ..errors import ArgumentError, StepSizeError, warn
from ..settings.check import real_array, symmetric_matrix

_DENSE = 40  # columns up to which the system of d^2 unknowns is written out
_ITERATIONS = 2_000
_FLAT = 1e-14  # eigenvalues and walks below this fraction of the largest are rounding


def noisy_covariance(hessian: Any, noise: Any, step: float, steps: float | int = np.inf) -> np.ndarray:
    """Covariance after `steps` steps from a fixed point; for ever by default, with infinite entries where noise walks along flat directions.

    >>> noisy_covariance([[2.0]], [[0.49]], 0.1).round(7).tolist()                    # eta sigma^2 / (lambda (2 - eta lambda))
    [[0.0136111]]
    """
    sizes, basis, turned = modes(hessian, noise, step, "noisy_covariance")
    if not (steps >= 0 and (np.isinf(steps) or steps == int(steps))):
        raise ArgumentError("steps", "noisy_covariance", "a nonnegative whole number, or infinite", steps)
    if step * sizes[-1] >= 2:
        raise StepSizeError(step, 2 / sizes[-1], "step * largest eigenvalue must be below 2")
    walking = np.outer(sizes == 0, sizes == 0)
    decay = np.where(walking, 1.0, _decay(step * sizes))
    if np.isfinite(steps):
        found = np.where(walking, float(steps), _lost(decay, steps) / decay)
        return basis @ (step**2 * turned * found) @ basis.T
    found = basis @ np.where(walking, 0.0, step**2 * turned / decay) @ basis.T
    walk = basis @ np.where(walking, turned, 0.0) @ basis.T  # what every step adds
    return np.where(np.abs(walk) > _FLAT * np.abs(np.asarray(noise, float)).max(), np.copysign(np.inf, walk), found)


def modes(hessian: Any, noise: Any, step: float, owner: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Eigenvalues (0 where flat), eigenvectors, and the noise in that basis; raises on arguments of no noisy descent.

    Flat is what lies below the rounding of the decomposition; the eigenvalues of a diagonal matrix are exact, and there only 0 is flat.
    """
    hessian, noise = symmetric_matrix(hessian, "hessian", owner), symmetric_matrix(noise, "noise", owner)
    if noise.shape != hessian.shape:
        raise ArgumentError("noise", owner, f"of the shape of the Hessian, {hessian.shape}", f"shape {noise.shape}")
    if not 0 < step < np.inf:
        raise ArgumentError("step", owner, "positive and finite", step)
    if not (hessian - np.diag(np.diag(hessian))).any():
        order = np.argsort(np.diag(hessian))
        sizes, basis, least = np.diag(hessian)[order], np.eye(len(hessian))[:, order], 0.0
    else:
        sizes, basis = np.linalg.eigh(hessian)
        least = _FLAT * sizes[-1]
    return np.where(sizes <= least, 0.0, sizes), basis, basis.T @ noise @ basis


def _decay(load: np.ndarray) -> np.ndarray:
    """1 - (1 - a)(1 - b) for all pairs of loads in [0, 2), free of cancellation: a + b - ab is the same function of 2 - a and 2 - b."""
    folded = np.where(load > 1, 2 - load, load)
    same = (load[:, None] > 1) == (load > 1)
    total, product = folded[:, None] + folded, np.outer(folded, folded)
    return np.where(same, total - product, 2 - total + product)


def _lost(decay: np.ndarray, steps: float | int) -> np.ndarray:
    """1 - (1 - decay)^steps, to the last digit also for a decay of 1e-20."""
    base = np.where(decay < 1, np.log1p(-np.minimum(decay, 0.5)), 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        power = np.where(decay <= 0.5, steps * base, steps * np.log(np.abs(1 - decay)))
    if steps == 0:
        return np.zeros_like(decay)
    return np.where((decay < 1) | (steps % 2 == 0), -np.expm1(power), 1 + np.exp(power))


def diffusion_covariance(hessian: Any, noise: Any, step: float) -> np.ndarray:
    """The Ornstein-Uhlenbeck limit: S with A S + S A = step * noise. A must be positive definite."""
    sizes, basis, turned = modes(hessian, noise, step, "diffusion_covariance")
    if not sizes.all():
        found = f"{(sizes == 0).sum()} flat directions, to rounding"
        raise ArgumentError("hessian", "diffusion_covariance", "positive definite", found)
    return basis @ (step * turned / (sizes[:, None] + sizes)) @ basis.T


def sample_covariance(inputs: Any, targets: Any, step: float) -> np.ndarray:
    r"""Stationary covariance of single-sample SGD on least squares, exactly: the noise depends on the iterate.

    $S = \frac1n\sum_i(I - \eta x_ix_i^\top)S(I - \eta x_ix_i^\top) + \frac{\eta^2}n\sum_i e_i^2x_ix_i^\top$ with the residuals e of least squares: $d^2$ unknowns, solved as a dense
    system up to d = 40 and by conjugate gradients without any matrix beyond. Directions that no input has do not move.

    >>> sample_covariance([[1.0], [2.0]], [1.0, 1.0], 0.1).round(6).tolist()
    [[0.003855]]
    """
    inputs = real_array(inputs, "inputs", "sample_covariance", "(n, d)", 2)
    targets = real_array(targets, "targets", "sample_covariance", "(n,)", 1)
    if len(targets) != len(inputs):
        raise ArgumentError("targets", "sample_covariance", f"one per sample ({len(inputs)})", f"{len(targets)}")
    if not step > 0:
        raise ArgumentError("step", "sample_covariance", "positive", step)
    left, sizes, right = np.linalg.svd(inputs, full_matrices=False)
    live = sizes > 1e-12 * sizes[0]
    rows, basis = left[:, live] * sizes[live], right[live]  # the inputs in the directions that they have
    residual = targets - left[:, live] @ (left[:, live].T @ targets)
    source = step**2 / len(rows) * (rows * residual[:, None] ** 2).T @ rows
    if len(basis) > _DENSE:
        warn(
            f"The covariance has {len(basis) ** 2} unknowns: too many for a dense system, so it is solved by conjugate gradients, "
            "to a relative residual of 1e-10 at worst."
        )
    solve = _dense_moments if len(basis) <= _DENSE else _free_moments
    return basis.T @ solve(rows, step, source) @ basis


def _growing(rows: np.ndarray, step: float, why: str) -> StepSizeError:
    bound = 2 / float((rows**2).sum(axis=1).max())
    return StepSizeError(step, bound, f"{why}, there is no stationary covariance")


def _dense_moments(rows: np.ndarray, step: float, source: np.ndarray) -> np.ndarray:
    n, d = rows.shape
    moves = np.eye(d) - step * rows[:, :, None] * rows[:, None, :]
    transfer = np.einsum("nij,nkl->ikjl", moves, moves).reshape(d * d, d * d) / n
    radius = float(np.abs(np.linalg.eigvals(transfer)).max())
    if radius >= 1:
        raise _growing(rows, step, f"the second moment grows by {radius:.4g} per step")
    return np.linalg.solve(np.eye(d * d) - transfer, source.ravel()).reshape(d, d)


def _free_moments(rows: np.ndarray, step: float, source: np.ndarray) -> np.ndarray:
    """The rows have orthogonal columns, so what a step removes from the second moment is diagonal: it preconditions the rest.

    Sampling gives back a self-adjoint map that keeps positive matrices positive. There is a stationary covariance if and only if
    its largest eigenvalue relative to what is removed is below 1, and Lanczos iteration from a positive matrix finds that one.
    """
    n, d = rows.shape
    curvature = (rows**2).sum(axis=0) / n
    removed = step * (curvature[:, None] + curvature)
    given = lambda moment: step**2 / n * (_forms(rows, moment)[:, None] * rows).T @ rows
    flat = lambda move: LinearOperator((d * d, d * d), lambda vector: move(vector.reshape(d, d)).ravel())
    root = np.sqrt(removed)
    relative = flat(lambda moment: given(moment / root) / root)
    share = float(eigsh(relative, 1, which="LA", v0=np.diag(np.diag(root)).ravel(), return_eigenvectors=False)[0])
    if share >= 1:
        raise _growing(rows, step, f"sampling adds {share:.4g} times the second moment that a step removes")
    left = flat(lambda moment: removed * moment - given(moment))
    spent = removed - step**2 * np.outer(curvature, curvature)  # without sampling
    found, code = cg(left, source.ravel(), rtol=1e-14, atol=0.0, maxiter=_ITERATIONS, M=flat(lambda m: m / spent))
    error = float(np.abs(left @ found - source.ravel()).max() / max(np.abs(source).max(), np.finfo(float).tiny))
    if code and not error <= 1e-10:
        raise StepSizeError(step, step / 2, f"conjugate gradients stopped at a relative residual of {error:.1g}")
    return found.reshape(d, d)


def _forms(rows: np.ndarray, moment: np.ndarray) -> np.ndarray:
    """x' S x for every row."""
    return ((rows @ moment) * rows).sum(axis=1)
