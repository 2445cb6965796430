r"""Noise in closed form: where noisy descent on a quadratic settles, how it relaxes and remembers.

$\theta_{k+1} = \theta_k - \eta(A\theta_k + \xi_k)$ with $\mathrm{Cov}\,\xi = \Sigma$ forgets by $I - \eta A$ per step; in the eigenbasis of A, with $\rho_i = 1 - \eta\lambda_i$,
$\hat S_{ij}(k) = \eta^2\hat\Sigma_{ij}\frac{1 - (\rho_i\rho_j)^k}{1 - \rho_i\rho_j}$, whether A and $\Sigma$ commute or not. Its diffusion limit $d\theta = -A\theta\,dt + \sqrt\eta\,dB$ (time $t = \eta k$) forgets
by $e^{-At}$ and settles at $AS + SA = \eta\Sigma$, which forgets the term $\eta ASA$ and is too small by a factor $1 - \eta\lambda/2$ in each eigendirection.
"""

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg, eigsh

from ..errors import ArgumentError, StepSizeError, warn
from ..settings.check import is_whole, real_array, symmetric_matrix

_DENSE = 40  # columns up to which the system of d^2 unknowns is written out
_ITERATIONS = 2_000
_FLAT = 1e-14  # eigenvalues and walks below this fraction of the largest are rounding


def noisy_covariance(hessian: object, noise: object, step: float, steps: float | int = np.inf) -> np.ndarray:
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


def modes(hessian: object, noise: object, step: float, owner: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Eigenvalues (0 where flat), eigenvectors, and the noise in that basis; raises on arguments of no noisy descent.

    Flat is what lies below the rounding of the decomposition; the eigenvalues of a diagonal matrix are exact, and there only 0 is flat.
    """
    matrix, spread = symmetric_matrix(hessian, "hessian", owner), symmetric_matrix(noise, "noise", owner)
    if spread.shape != matrix.shape:
        raise ArgumentError("noise", owner, f"of the shape of the Hessian, {matrix.shape}", f"shape {spread.shape}")
    if not 0 < step < np.inf:
        raise ArgumentError("step", owner, "positive and finite", step)
    if not (matrix - np.diag(np.diag(matrix))).any():
        order = np.argsort(np.diag(matrix))
        sizes, basis, least = np.diag(matrix)[order], np.eye(len(matrix))[:, order], 0.0
    else:
        sizes, basis = np.linalg.eigh(matrix)
        least = _FLAT * sizes[-1]
    return np.where(sizes <= least, 0.0, sizes), basis, basis.T @ spread @ basis


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


def diffusion_covariance(hessian: object, noise: object, step: float) -> np.ndarray:
    """The Ornstein-Uhlenbeck limit: S with A S + S A = step * noise. A must be positive definite."""
    sizes, basis, turned = modes(hessian, noise, step, "diffusion_covariance")
    if not sizes.all():
        found = f"{(sizes == 0).sum()} flat directions, to rounding"
        raise ArgumentError("hessian", "diffusion_covariance", "positive definite", found)
    return basis @ (step * turned / (sizes[:, None] + sizes)) @ basis.T


def sample_covariance(inputs: object, targets: object, step: float) -> np.ndarray:
    r"""Stationary covariance of single-sample SGD on least squares, exactly: the noise depends on the iterate.

    $S = \frac1n\sum_i(I - \eta x_ix_i^\top)S(I - \eta x_ix_i^\top) + \frac{\eta^2}n\sum_i e_i^2x_ix_i^\top$ with the residuals e of least squares: $d^2$ unknowns, solved as a dense
    system up to d = 40 and by conjugate gradients without any matrix beyond. Directions that no input has do not move.

    >>> sample_covariance([[1.0], [2.0]], [1.0, 1.0], 0.1).round(6).tolist()
    [[0.003855]]
    """
    seen = real_array(inputs, "inputs", "sample_covariance", "(n, d)", 2)
    wanted = real_array(targets, "targets", "sample_covariance", "(n,)", 1)
    if len(wanted) != len(seen):
        raise ArgumentError("targets", "sample_covariance", f"one per sample ({len(seen)})", f"{len(wanted)}")
    if not step > 0:
        raise ArgumentError("step", "sample_covariance", "positive", step)
    left, sizes, right = np.linalg.svd(seen, full_matrices=False)
    live = sizes > 1e-12 * sizes[0]
    rows, basis = left[:, live] * sizes[live], right[live]  # the inputs in the directions that they have
    residual = wanted - left[:, live] @ (left[:, live].T @ wanted)
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
    given = lambda moment: step**2 / n * (((rows @ moment) * rows).sum(axis=1)[:, None] * rows).T @ rows
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


def diffusion_transient(hessian: object, noise: object, step: float, time: float) -> np.ndarray:
    r"""Covariance of the diffusion at time t = step * k from a fixed point: $\eta\hat\Sigma_{ij}\frac{1 - e^{-(\lambda_i + \lambda_j)t}}{\lambda_i + \lambda_j}$; flat directions walk.

    >>> diffusion_transient([[2.0]], [[0.49]], 0.1, 0.25).round(7).tolist()           # eta sigma^2 / (2 lambda) (1 - e^(-2 lambda t))
    [[0.0077435]]
    """
    sizes, basis, turned = modes(hessian, noise, step, "diffusion_transient")
    if not 0 <= time < np.inf:
        fix = "use `diffusion_covariance` for the limit"
        raise ArgumentError("time", "diffusion_transient", "nonnegative and finite", time, fix)
    total = sizes[:, None] + sizes
    safe = np.where(total > 0, total, 1.0)
    return basis @ (step * turned * np.where(total > 0, -np.expm1(-safe * time) / safe, time)) @ basis.T


def lag_covariance(hessian: object, noise: object, step: float, lag: int) -> np.ndarray:
    """Stationary covariance of theta after `lag` more steps (rows) with theta now (columns): (I - step A)^lag S."""
    sizes, basis, _ = modes(hessian, noise, step, "lag_covariance")
    if not is_whole(lag) or lag < 0:
        raise ArgumentError("lag", "lag_covariance", "a nonnegative integer: steps", lag)
    forgotten = (basis * (1 - step * sizes) ** lag) @ basis.T
    return forgotten @ _settled(noisy_covariance(hessian, noise, step), "lag_covariance")


def diffusion_lag_covariance(hessian: object, noise: object, step: float, time: float) -> np.ndarray:
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


def lag_correlation(hessian: object, noise: object, step: float, lag: int) -> np.ndarray:
    """`lag_covariance` over the stationary standard deviations; (1 - step lambda)^lag in one dimension.

    >>> lag_correlation([[2.0]], [[0.49]], 0.1, 3).round(6).tolist()
    [[0.512]]
    """
    size = np.sqrt(np.diag(_settled(noisy_covariance(hessian, noise, step), "lag_correlation")))
    if not (size > 0).all():
        raise ArgumentError("noise", "lag_correlation", "at work in every coordinate", "a coordinate without noise")
    return lag_covariance(hessian, noise, step, lag) / np.outer(size, size)
