r"""Stochastic descent on regressions: many noisy trajectories in one compiled run.

Square models step in logarithms, $\log w_\pm \leftarrow \log w_\pm + \mathrm{log1p}(\mp2\eta g)$, which is exact and never underflows. Alongside runs
$\sum\mathrm{log1p}(-4\eta^2g^2)$: the product $w_+w_-$ changes by nothing else, and it is what sets the potential that the noise-free flow would
minimise from the present point.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ArgumentError, StepSizeError
from ..settings.regression import Regression


class NoisyRun(eqx.Module):
    """Records x chains: `log_params` (w+ and w- in rows), `log_product` accumulated on its own, `largest` = max 2 step |g| seen."""

    data: Regression
    steps: np.ndarray
    log_params: np.ndarray
    log_product: np.ndarray
    largest: float

    def weight(self, record: int = -1) -> np.ndarray:
        """The weights of all chains at a record."""
        plus, minus = np.exp(2 * self.log_params[record, :, 0]), np.exp(2 * self.log_params[record, :, 1])
        return plus - minus

    def product_drift(self) -> float:
        """Largest difference between log w+ + log w- and its own accumulated change: 0 up to rounding."""
        product = self.log_params.sum(axis=2)
        return float(np.abs(product - product[0] - self.log_product).max())


def label_noise(
    data: Regression,
    start: Any,
    *,
    step: float,
    deviation: float,
    steps: Any,
    chains: int = 1,
    batch: int | None = 1,
    seed: int = 0,
) -> NoisyRun:
    r"""SGD on the signed squares with fresh label noise: mean loss, `batch` samples with replacement (all of them if None).

    `start` holds w+ and w- (2 x d, or chains x 2 x d); `steps` the step counts to record. Raises `StepSizeError` if some factor
    1 - 2 step |g| was not positive: logarithms of the parameters would not exist.
    """
    for name, value, good in (
        ("step", step, step > 0),
        ("deviation", deviation, deviation >= 0),
        ("chains", chains, chains >= 1),
    ):
        if not (good and np.isfinite(value)):
            raise ArgumentError(name, "label_noise", "nonnegative" if name == "deviation" else "positive", value)
    first = np.asarray(start, float)
    if not (first > 0).all():
        raise ArgumentError("start", "label_noise", "positive in every entry", f"smallest entry {first.min():g}")
    schedule = np.unique(np.append(0, np.asarray(steps, int)))
    state = jnp.broadcast_to(jnp.log(first), (chains, 2, data.inputs.shape[1]))
    keys = jax.random.split(jax.random.key(seed), chains)
    logs, products, largest = _chains(
        batch,
        data.inputs,
        data.targets,
        jnp.asarray(np.diff(schedule)),
        state,
        keys,
        jnp.asarray(step),
        jnp.asarray(deviation),
    )
    most = float(jnp.max(largest))
    if not most < 1:
        raise StepSizeError(
            step,
            step / most if np.isfinite(most) else 0.0,
            f"2 * step * |gradient of the prediction error| reached {most:.3g}",
        )
    at_start = np.asarray(state)[:, None]
    logs = np.concatenate([at_start, np.asarray(logs)], axis=1).swapaxes(0, 1)
    products = np.concatenate([np.zeros_like(at_start[:, :, 0]), np.asarray(products)], axis=1).swapaxes(0, 1)
    return NoisyRun(data, schedule, logs, products, most)


@eqx.filter_jit
def _chains(
    batch: int | None,
    inputs: Array,
    targets: Array,
    stretches: Array,
    states: Array,
    keys: Array,
    step: Array,
    deviation: Array,
) -> Any:
    one = lambda state, key: _chain(batch, inputs, targets, stretches, state, key, step, deviation)
    return jax.vmap(one)(states, keys)


class _Carry(eqx.Module):
    logs: Float[Array, "2 d"]
    product: Float[Array, "d"]
    largest: Float[Array, ""]
    key: Array


def _chain(
    batch: Any, inputs: Array, targets: Array, stretches: Array, state: Array, key: Array, step: Any, deviation: Any
) -> Any:
    def advance(_: Any, carry: _Carry) -> _Carry:
        key, choose, draw = jax.random.split(carry.key, 3)
        theta = jnp.exp(2 * carry.logs[0]) - jnp.exp(2 * carry.logs[1])
        if batch is None:
            rows, wanted = inputs, targets
        else:
            index = jax.random.randint(choose, (batch,), 0, len(targets))
            rows, wanted = inputs[index], targets[index]
        noise = deviation * jax.random.normal(draw, wanted.shape)
        push = 2 * step * ((rows @ theta - wanted - noise) @ rows) / len(wanted)
        logs = carry.logs + jnp.log1p(jnp.stack([-push, push]))
        return _Carry(logs, carry.product + jnp.log1p(-(push**2)), jnp.maximum(carry.largest, jnp.abs(push).max()), key)

    def stretch(carry: _Carry, count: Array) -> tuple[_Carry, tuple]:
        carry = jax.lax.fori_loop(0, count, advance, carry)
        return carry, (carry.logs, carry.product)

    begin = _Carry(state, jnp.zeros(state.shape[1]), jnp.zeros(()), key)
    carry, (logs, products) = jax.lax.scan(stretch, begin, stretches)
    return logs, products, carry.largest


def quadratic_noise(hessian: Any, noise: Any, step: float, steps: int, chains: int, seed: int = 0) -> np.ndarray:
    """End points (chains x d) of theta - step (A theta + xi) from 0 with Gaussian xi of covariance `noise`."""
    hessian, noise = np.asarray(hessian, float), np.asarray(noise, float)
    sizes, basis = np.linalg.eigh(noise)
    root = basis * np.sqrt(np.maximum(sizes, 0.0))
    return np.asarray(
        _quadratic(
            jnp.asarray(hessian),
            jnp.asarray(root),
            jnp.asarray(step),
            jnp.asarray(steps),
            jnp.zeros((chains, len(hessian))),
            jax.random.key(seed),
        )
    )


@eqx.filter_jit
def _quadratic(hessian: Array, root: Array, step: Any, steps: Any, start: Array, key: Array) -> Array:
    def advance(_: Any, carry: tuple) -> tuple:
        theta, key = carry
        key, draw = jax.random.split(key)
        xi = jax.random.normal(draw, theta.shape) @ root.T
        return theta - step * (theta @ hessian + xi), key

    return jax.lax.fori_loop(0, steps, advance, (start, key))[0]


def sample_noise(
    inputs: Any, targets: Any, step: float, steps: int, chains: int, seed: int = 0, start: Any = None
) -> np.ndarray:
    """End points (chains x d) of single-sample SGD on least squares, from 0 or from `start`."""
    inputs, targets = jnp.asarray(inputs, float), jnp.asarray(targets, float)
    first = jnp.zeros(inputs.shape[1]) if start is None else jnp.asarray(start, float)
    return np.asarray(
        _sampled(
            inputs,
            targets,
            jnp.asarray(step),
            jnp.asarray(steps),
            jnp.broadcast_to(first, (chains, inputs.shape[1])),
            jax.random.key(seed),
        )
    )


@eqx.filter_jit
def _sampled(inputs: Array, targets: Array, step: Any, steps: Any, start: Array, key: Array) -> Array:
    def advance(_: Any, carry: tuple) -> tuple:
        theta, key = carry
        key, choose = jax.random.split(key)
        index = jax.random.randint(choose, (theta.shape[0],), 0, len(targets))
        rows = inputs[index]
        error = (rows * theta).sum(axis=1) - targets[index]
        return theta - step * error[:, None] * rows, key

    return jax.lax.fori_loop(0, steps, advance, (start, key))[0]
