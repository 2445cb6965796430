r"""What label noise adds to the loss: a function of the Hessian, for any model that interpolates.

At zero loss label noise of variance $\sigma^2$ pushes with covariance $\frac{\sigma^2}BH$, so SGD with step $\eta$ settles at the covariance
$\frac{\eta\sigma^2}B(2 - \eta H)^{-1}$ across the zero-loss set, and the third derivative of the loss turns that spread into a drift along it: minus the
gradient of $-\frac{\sigma^2}{2B}\mathrm{tr}\log(1 - \frac\eta2H)$, which is $\frac{\eta\sigma^2}{4B}\mathrm{tr}H$ for small steps.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ArgumentError
from ..settings.check import real_array


def trace_regulariser(hessian: Any, step: Any, deviation: Any, batch: int = 1) -> Float[Array, ""]:
    """(step deviation^2 / 4 batch) tr H: the leading order."""
    return step * deviation**2 / (4 * batch) * jnp.trace(jnp.asarray(hessian))


def determinant_regulariser(hessian: Any, step: Any, deviation: Any, batch: int = 1) -> Float[Array, ""]:
    """-(deviation^2 / 2 batch) log det(1 - step H / 2): all orders in the step, for noise that does not depend on the iterate.

    Infinite from step * largest eigenvalue = 2 on, where descent itself is unstable. Drawing samples at random adds noise that
    does depend on the iterate; see `moment_descent`.

    >>> round(float(determinant_regulariser([[1.0]], 0.5, 0.2)), 6), round(float(trace_regulariser([[1.0]], 0.5, 0.2)), 6)
    (0.005754, 0.005)
    """
    sizes = jnp.linalg.eigvalsh(jnp.asarray(hessian))
    left = 1 - step * sizes / 2
    stable = jnp.min(left) > 0
    return jnp.where(stable, -(deviation**2) / (2 * batch) * jnp.log(jnp.where(stable, left, 1.0)).sum(), jnp.inf)


def tangent_part(gradient: Any, jacobian: Any) -> np.ndarray:
    """The part of a gradient along the zero-loss set, on which the predictions (with this Jacobian, n x parameters) do not change."""
    slope = real_array(gradient, "gradient", "tangent_part", "(parameters,)", 1)
    rows = real_array(jacobian, "jacobian", "tangent_part", "(n, parameters)", 2)
    if rows.shape[1] != len(slope):
        raise ArgumentError("jacobian", "tangent_part", f"of {len(slope)} columns", f"shape {rows.shape}")
    return slope - np.linalg.pinv(rows) @ (rows @ slope)


def moving_time(gradient: Any, jacobian: Any, step: float, deviation: float, batch: int = 1) -> float:
    """Steps in which label noise moves the parameters by a distance of 1 along the zero-loss set: 4 batch / (step^2 deviation^2 |P_T grad tr H|).

    `gradient` is that of the trace of the Hessian of the mean loss, `jacobian` that of the predictions.

    >>> round(moving_time([3.0, 4.0], [[1.0, 0.0]], step=0.01, deviation=0.5))
    40000
    """
    for name, value in (("step", step), ("deviation", deviation), ("batch", batch)):
        if not 0 < value < np.inf:
            raise ArgumentError(name, "moving_time", "positive and finite", value)
    pace = step**2 * deviation**2 / (4 * batch) * float(np.linalg.norm(tangent_part(gradient, jacobian)))
    return 1 / pace if pace > 0 else float("inf")
