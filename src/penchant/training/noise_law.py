r"""The drift of label-noise SGD on signed squares, simulated without any noise.

To leading order the noise adds $\lambda\,\mathrm{tr}\nabla^2L$ to the loss, $\lambda = \eta\sigma^2/4B$: `regularised_descent` is plain descent on that sum. The next order
comes from the residuals that the noise itself keeps alive. Near interpolation they obey a linear recursion with the tangent kernel
$K = 4X\,\mathrm{diag}(w_+^2 + w_-^2)X^\top$, so their second moments $R$ do as well,

$$R \leftarrow R - \tfrac\eta n(KR + RK) + \eta^2K\,\mathrm{Cov}(G)K,\qquad \log w_\pm \leftarrow \log w_\pm \mp 2\eta\,\mathbb E g - 2\eta^2\,\mathbb E g^2,\qquad g = X^\top G,$$

with G the batch mean of $(r_i - \varepsilon)e_i$: `moment_descent`. One deterministic run stands for infinitely many noisy ones.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import StepSizeError
from ..settings.regression import Regression
from .noise import check_noise


class Drift(eqx.Module):
    """Records of a drift: `log_params` (records x 2 x d, w+ and w- in rows), `moments` of the residuals (records x n x n)."""

    data: Regression
    steps: np.ndarray
    log_params: np.ndarray
    moments: np.ndarray

    @property
    def log_product(self) -> np.ndarray:
        """log w+ w- (records x d): what sets the potential of the noise-off limit."""
        return self.log_params.sum(axis=1)


class _State(eqx.Module):
    logs: Float[Array, "2 d"]
    moments: Float[Array, "n n"]
    largest: Float[Array, ""]


def moment_descent(
    data: Regression, start: Any, *, step: float, deviation: float, steps: Any, batch: int | None = 1
) -> Drift:
    """The mean of log w+ and log w- under label-noise SGD, to the order of the residuals' second moments.

    >>> import penchant as pt
    >>> data = pt.Regression([[1.0, 0.5]], [1.0])
    >>> drift = moment_descent(data, np.full((2, 2), 0.5), step=0.02, deviation=0.5, steps=[5000])
    >>> (drift.log_product[1] - drift.log_product[0]).round(3).tolist()                # leading order: -2 c_j
    [-2.093, -0.523]
    """
    return _follow(_moment_step, data, start, step, deviation, steps, batch, "moment_descent")


def regularised_descent(
    data: Regression, start: Any, *, step: float, deviation: float, steps: Any, batch: int | None = 1
) -> Drift:
    """Descent on the mean loss plus (step deviation^2 / 4B) times the trace of its Hessian: the leading order of label noise."""
    return _follow(_regularised_step, data, start, step, deviation, steps, batch, "regularised_descent")


def _follow(
    rule: Callable, data: Regression, start: Any, step: Any, deviation: Any, steps: Any, batch: Any, owner: str
) -> Drift:
    first, schedule = check_noise(data, start, step, deviation, steps, batch, owner)
    n = data.inputs.shape[0]
    state = _State(jnp.log(first), jnp.zeros((n, n)), jnp.zeros(()))
    run = _run(rule, batch, data, state, jnp.asarray(np.diff(schedule)), jnp.asarray(step), jnp.asarray(deviation**2))
    logs, moments = (
        np.concatenate([np.asarray(a)[None], np.asarray(b)])
        for a, b in ((state.logs, run.logs), (state.moments, run.moments))
    )
    most = float(run.largest[-1]) if len(run.largest) else 0.0
    if not (most < 1 and np.isfinite(moments).all()):
        why = f"in `{owner}` the root mean square of 2 * step * |gradient of the prediction error| reached {most:.3g}"
        raise StepSizeError(step, step / most if 1 <= most < np.inf else step / 2, why)
    return Drift(data, schedule, logs, moments)


@eqx.filter_jit
def _run(
    rule: Callable, batch: Any, data: Regression, state: _State, stretches: Array, step: Any, variance: Any
) -> Any:
    advance = lambda _, state: rule(batch, data, state, step, variance)

    def stretch(state: _State, count: Array) -> tuple[_State, _State]:
        state = jax.lax.fori_loop(0, count, advance, state)
        return state, state

    return jax.lax.scan(stretch, state, stretches)[1]


def push_moments(batch: Any, residual: Array, moments: Array, variance: Any) -> Array:
    """E[G G'] for residuals of this mean and covariance: G averages (r_i - noise) e_i over a batch."""
    n = len(residual)
    second = moments + jnp.outer(residual, residual)
    if batch is None:  # every sample once, with a fresh label noise each
        return (second + variance * jnp.eye(n)) / n**2
    return jnp.diag(jnp.diag(second) + variance) / (batch * n) + (1 - 1 / batch) * second / n**2


def _moment_step(batch: Any, data: Regression, state: _State, step: Any, variance: Any) -> _State:
    inputs, n = data.inputs, data.inputs.shape[0]
    squares = jnp.exp(2 * state.logs)
    residual = inputs @ (squares[0] - squares[1]) - data.targets
    kernel = 4 * (inputs * (squares[0] + squares[1])[None]) @ inputs.T
    pushed = push_moments(batch, residual, state.moments, variance)
    spread = pushed - jnp.outer(residual, residual) / n**2
    mean, square = residual @ inputs / n, (inputs * (pushed @ inputs)).sum(axis=0)
    decay = kernel @ state.moments
    moments = state.moments - step / n * (decay + decay.T) + step**2 * kernel @ spread @ kernel
    logs = state.logs + 2 * step * jnp.stack([-mean, mean]) - 2 * (step**2 * square)[None]
    return _State(logs, moments, jnp.maximum(state.largest, 2 * step * jnp.sqrt(square.max())))


def _regularised_step(batch: Any, data: Regression, state: _State, step: Any, variance: Any) -> _State:
    """tr Hess = 4 sum c_j (w+^2 + w-^2), so its gradient is 8 c_j w."""
    inputs, n = data.inputs, data.inputs.shape[0]
    squares = jnp.exp(2 * state.logs)
    mean = (inputs @ (squares[0] - squares[1]) - data.targets) @ inputs / n
    strength = step * variance / (4 * (n if batch is None else batch))
    shrink = 8 * strength * (inputs**2).mean(axis=0)
    push = step * jnp.stack([shrink + 2 * mean, shrink - 2 * mean])
    return _State(state.logs + jnp.log1p(-push), state.moments, jnp.maximum(state.largest, jnp.abs(push).max()))
