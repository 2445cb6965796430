r"""The drift of label-noise SGD on square models, simulated without any noise.

To leading order the noise adds $\lambda\,\mathrm{tr}\nabla^2L$ to the loss, $\lambda = \eta\sigma^2/4B$: `regularised_descent` is plain descent on that sum. The next order
comes from the residuals that the noise itself keeps alive. Near interpolation they obey a linear recursion with the tangent kernel
$K = 4X\,\mathrm{diag}(w_+^2 + w_-^2)X^\top$, so their second moments $R$ do as well,

$$R \leftarrow R - \tfrac\eta n(KR + RK) + \eta^2K\,\mathrm{Cov}(G)K,\qquad \log w_\pm \leftarrow \log w_\pm \mp 2\eta\,\mathbb E g - 2\eta^2\,\mathbb E g^2,\qquad g = X^\top G,$$

with G the batch mean of $(r_i - \varepsilon)e_i$ (for plain squares the same with $w_-$ left out): `moment_descent`. The law is an expansion, not the
exact mean: it takes the parameters in the kernel and in the mean residual as known, while those of the noisy runs spread by
$O(\sqrt\eta)$ around their mean. What that leaves out is of the next order in the step.
"""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..errors import ArgumentError
from ..settings.regression import Regression
from .loop import drive_one
from .noise import NoisyRun, check_noise, row_signs, stable


class _State(eqx.Module):
    logs: Float[Array, "rows d"]
    product: Float[Array, "d"]
    moments: Float[Array, "n n"]
    largest: Float[Array, ""]
    count: Int[Array, ""]
    status: Int[Array, ""]


class _Law(eqx.Module):
    """A law as a process."""

    rule: Callable
    batch: int | None
    data: Regression
    start: _State
    step: Float[Array, ""]
    variance: Float[Array, ""]

    def begin(self) -> _State:
        return self.start

    def burst(self, state: _State, until: Int[Array, ""]) -> _State:
        logs, product, moments, largest = self.rule(self.batch, self.data, state, self.step, self.variance)
        largest = jnp.maximum(state.largest, largest)
        return _State(logs, product, moments, largest, state.count + 1, state.status)

    def record(self, state: _State) -> dict[str, Array]:
        return {"steps": state.count, "logs": state.logs, "product": state.product, "moments": state.moments}


def moment_descent(
    data: Regression, start: object, *, step: float, deviation: float, steps: object, batch: int | None = 1
) -> NoisyRun:
    """The mean of log w+ and log w- (or of log beta) under label-noise SGD, to the order of the residuals' second moments.

    >>> import penchant as pt
    >>> data = pt.Regression([[1.0, 0.5]], [1.0])
    >>> drift = moment_descent(data, np.full((2, 2), 0.5), step=0.02, deviation=0.5, steps=[5000])
    >>> (drift.log_product[1] - drift.log_product[0]).round(3).tolist()                # leading order: -2 c_j
    [-2.093, -0.523]
    """
    return _follow(_moment_step, data, start, step, deviation, steps, batch, "moment_descent")


def regularised_descent(
    data: Regression, start: object, *, step: float, deviation: float, steps: object, batch: int | None = 1
) -> NoisyRun:
    """Descent on the mean loss plus (step deviation^2 / 4B) times the trace of its Hessian: the leading order of label noise."""
    return _follow(_regularised_step, data, start, step, deviation, steps, batch, "regularised_descent")


def _follow(
    rule: Callable,
    data: Regression,
    start: object,
    step: float,
    deviation: float,
    steps: object,
    batch: int | None,
    owner: str,
) -> NoisyRun:
    first, schedule = check_noise(data, start, step, deviation, steps, batch, owner)
    n = data.inputs.shape[0]
    if first.ndim != 2:
        raise ArgumentError("start", owner, "one start: a law has no chains", f"shape {first.shape}")
    logs, none = np.log(first), jnp.zeros((), int)
    state = _State(jnp.asarray(logs), jnp.asarray(logs[0] + logs[-1]), jnp.zeros((n, n)), jnp.zeros(()), none, none)
    law = _Law(rule, batch, data, state, jnp.asarray(step), jnp.asarray(deviation**2))
    state, records = drive_one(law, jnp.asarray(schedule))
    logs, product, moments = (np.asarray(records[name]) for name in ("logs", "product", "moments"))
    most = stable(step, float(state.largest), moments, f"in `{owner}` the root mean square of 2 * step")
    return NoisyRun(data, schedule, logs, product, most, moments)


def push_moments(batch: int | None, residual: Array, moments: Array, variance: Array) -> Array:
    """E[G G'] for residuals of this mean and covariance: G averages (r_i - noise) e_i over a batch."""
    n = len(residual)
    second = moments + jnp.outer(residual, residual)
    if batch is None:  # every sample once, with a fresh label noise each
        return (second + variance * jnp.eye(n)) / n**2
    return jnp.diag(jnp.diag(second) + variance) / (batch * n) + (1 - 1 / batch) * second / n**2


def _moment_step(batch: int | None, data: Regression, state: _State, step: Array, variance: Array) -> tuple:
    inputs, n = data.inputs, data.inputs.shape[0]
    squares, signs = jnp.exp(2 * state.logs), row_signs(len(state.logs))
    residual = inputs @ (signs @ squares) - data.targets
    kernel = 4 * (inputs * squares.sum(axis=0)[None]) @ inputs.T
    pushed = push_moments(batch, residual, state.moments, variance)
    spread = pushed - jnp.outer(residual, residual) / n**2
    mean, square = residual @ inputs / n, (inputs * (pushed @ inputs)).sum(axis=0)
    decay = kernel @ state.moments
    moments = state.moments - step / n * (decay + decay.T) + step**2 * kernel @ spread @ kernel
    logs = state.logs - 2 * step * jnp.outer(signs, mean) - 2 * (step**2 * square)[None]
    product = state.product - 4 * step**2 * square
    return logs, product, moments, 2 * step * jnp.sqrt(square.max())


def _regularised_step(batch: int | None, data: Regression, state: _State, step: Array, variance: Array) -> tuple:
    """tr Hess = 4 sum c_j w_j^2 over all rows, plus 2 sum (X'r/n)_j for squares (in w+^2 - w-^2 those parts cancel).

    The gradient of the second part is 4 (X'X 1 / n)_j w_j: in the span of the inputs, so it moves the residual and not what the
    noise selects.
    """
    inputs, n = data.inputs, data.inputs.shape[0]
    squares, signs = jnp.exp(2 * state.logs), row_signs(len(state.logs))
    mean = (inputs @ (signs @ squares) - data.targets) @ inputs / n
    strength = step * variance / (4 * (n if batch is None else batch))
    shrink = 8 * strength * (inputs**2).mean(axis=0)
    along = 2 * mean + 4 * strength * signs.sum() * (inputs.sum(axis=1) @ inputs / n)
    push = step * (shrink[None] + jnp.outer(signs, along))
    factors = jnp.log1p(-push)
    product = state.product + (factors.sum(axis=0) if len(signs) == 2 else 2 * jnp.log1p(-step * shrink))
    return state.logs + factors, product, state.moments, jnp.abs(push).max()
