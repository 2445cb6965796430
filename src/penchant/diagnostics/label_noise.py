r"""What label noise adds to the loss: a function of the Hessian, for any model that interpolates.

At zero loss label noise of variance $\sigma^2$ pushes with covariance $\frac{\sigma^2}BH$, so SGD with step $\eta$ settles at the covariance
$\frac{\eta\sigma^2}B(2 - \eta H)^{-1}$ across the zero-loss set, and the third derivative of the loss turns that spread into a drift along it: minus the
gradient of $-\frac{\sigma^2}{2B}\mathrm{tr}\log(1 - \frac\eta2H)$, which is $\frac{\eta\sigma^2}{4B}\mathrm{tr}H$ for small steps.
"""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float


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
