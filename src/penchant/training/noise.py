r"""Stochastic descent on regressions: many noisy trajectories in one compiled run.

Square models are kept in logarithms, $\log w_\pm \leftarrow \log w_\pm + \mathrm{log}(1\mp2\eta g)$, which is exact and never underflows. Alongside runs
$\sum\log(1-4\eta^2g^2)$: the product $w_+w_-$ changes by nothing else, and it is what sets the potential that the noise-free flow would
minimise from the present point. For plain squares $\beta\odot\beta$ it is what the square of the start has shrunk by, as far as that potential is
concerned: $\log\beta^2$ also moves by $-2\,\mathrm{artanh}(2\eta g)$, which lies in the span of the inputs up to third order.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..errors import ArgumentError, StepSizeError
from ..logspace import check_float64
from ..settings.check import real_array, symmetric_matrix
from ..settings.regression import Regression

_BLOCK = 64  # steps between logarithms: no product of so few factors below 1 leaves the range of float64 while the step is legal


class NoisyRun(eqx.Module):
    """Records x chains: `log_params` (w+ and w- in rows, or beta alone), `log_product` = sum of log(1 - 4 step^2 g^2) on its own account,
    `largest` = max 2 step |g| seen."""

    data: Regression
    steps: np.ndarray
    log_params: np.ndarray
    log_product: np.ndarray
    largest: float

    def weight(self, record: int = -1) -> np.ndarray:
        """The weights of all chains at a record."""
        squares = np.exp(2 * self.log_params[record])
        return np.tensordot(squares, row_signs(squares.shape[1]), (1, 0))

    def product_drift(self) -> float:
        """Largest difference between log w+ + log w- and its own accumulated change: 0 up to rounding (signed squares only)."""
        if self.log_params.shape[2] != 2:
            raise ArgumentError("run", "product_drift", "on signed squares, w+ and w-", "plain squares have no product")
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
    r"""SGD on square models with fresh label noise: mean loss |r|^2 / 2n, `batch` samples with replacement (all of them if None).

    `start` holds w+ and w- of the signed squares (2 x d, or chains x 2 x d), or beta of the squares (d, or chains x 1 x d); `steps` the
    step counts to record. Raises `StepSizeError` if some factor 1 - 2 step |g| was not positive: logarithms of the parameters
    would not exist. With the loss |r|^2 / 4n that the notes use for squares, double the step.
    """
    if isinstance(chains, bool) or not isinstance(chains, int | np.integer) or chains < 1:
        raise ArgumentError("chains", "label_noise", "a positive integer", chains)
    first, schedule = check_noise(data, start, step, deviation, steps, batch, "label_noise")
    if first.ndim == 3 and len(first) != chains:
        raise ArgumentError("start", "label_noise", f"one start, or one for each of {chains} chains", f"{len(first)}")
    state = jnp.broadcast_to(jnp.log(first), (chains, *first.shape[-2:]))
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
    if not most < 1 or not np.isfinite(np.asarray(logs)).all():
        raise _too_long(step, most)
    at_start = np.asarray(state)[:, None]
    logs = np.concatenate([at_start, np.asarray(logs)], axis=1).swapaxes(0, 1)
    products = np.concatenate([np.zeros_like(at_start[:, :, 0]), np.asarray(products)], axis=1).swapaxes(0, 1)
    return NoisyRun(data, schedule, logs, products, most)


def check_noise(
    data: Regression, start: Any, step: Any, deviation: Any, steps: Any, batch: Any, owner: str
) -> tuple[np.ndarray, np.ndarray]:
    """The start and the steps to record, 0 first; raises on arguments that describe no noisy descent."""
    check_float64()
    if not 0 < step < np.inf:
        raise ArgumentError("step", owner, "positive and finite", step)
    if not 0 <= deviation < np.inf:
        raise ArgumentError("deviation", owner, "nonnegative and finite", deviation)
    if batch is not None and not (isinstance(batch, int | np.integer) and batch >= 1):
        raise ArgumentError("batch", owner, "a positive integer, or None for all samples", batch)
    first, wanted = np.asarray(start, float), np.atleast_1d(np.asarray(steps))
    first = first[None] if first.ndim == 1 else first
    d = data.inputs.shape[1]
    if first.ndim not in (2, 3) or first.shape[-2] not in (1, 2) or first.shape[-1] != d:
        needed = f"of shape (2, {d}), w+ and w- of signed squares, or ({d},), beta of squares"
        raise ArgumentError("start", owner, needed, f"shape {np.shape(start)}")
    if not ((first > 0) & np.isfinite(first)).all():
        raise ArgumentError("start", owner, "positive and finite in every entry", f"smallest entry {first.min():g}")
    if wanted.dtype.kind not in "iu" or wanted.min() < 0:
        raise ArgumentError("steps", owner, "nonnegative integers: the steps to record", steps)
    return first, np.unique(np.append(0, wanted))


def row_signs(rows: int) -> np.ndarray:
    """The signs with which the squares of the rows enter the weight: w+^2 - w-^2, or beta^2."""
    return np.array([1.0, -1.0])[:rows]


def _too_long(step: float, most: float) -> StepSizeError:
    """Halving is the advice where the run blew up: the largest push seen then says nothing about a good step."""
    bound = step / most if 1 <= most < np.inf else step / 2
    return StepSizeError(step, bound, f"2 * step * |gradient of the prediction error| reached {most:.3g}")


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
    logs: Float[Array, "rows d"]
    product: Float[Array, "d"]
    largest: Float[Array, ""]
    blocks: Int[Array, ""]


class _Block(eqx.Module):
    """What a few steps multiply the parameters and their product by, relative to the block's start."""

    ratio: Float[Array, "rows d"]
    product: Float[Array, "d"]
    largest: Float[Array, ""]


def _chain(
    batch: Any, inputs: Array, targets: Array, stretches: Array, state: Array, key: Array, step: Any, deviation: Any
) -> Any:
    """Logarithms are taken once per block: in between, factors near 1 are multiplied, which is as exact and far cheaper."""
    drawn = len(targets) if batch is None else batch
    signs = row_signs(len(state))

    def block(carry: _Carry, count: Array) -> _Carry:
        choose, draw = jax.random.split(jax.random.fold_in(key, carry.blocks))
        index = (len(targets) * jax.random.uniform(choose, (_BLOCK, drawn))).astype(int)  # compiles faster than randint
        noise = deviation * jax.random.normal(draw, (_BLOCK, drawn))
        squares = jnp.exp(2 * carry.logs)

        def advance(k: Array, now: _Block) -> _Block:
            rows, wanted = (inputs, targets) if batch is None else (inputs[index[k]], targets[index[k]])
            moved = squares * now.ratio**2
            push = 2 * step * ((rows @ (signs @ moved) - wanted - noise[k]) @ rows) / drawn
            ratio = now.ratio * (1 - jnp.outer(signs, push))
            return _Block(ratio, now.product * (1 - push**2), jnp.maximum(now.largest, jnp.abs(push).max()))

        begin = _Block(jnp.ones_like(carry.logs), jnp.ones_like(carry.product), carry.largest)
        end = jax.lax.fori_loop(0, count, advance, begin)
        product = carry.product + jnp.log(end.product)
        return _Carry(carry.logs + jnp.log(end.ratio), product, end.largest, carry.blocks + 1)

    def stretch(carry: _Carry, count: Array) -> tuple[_Carry, tuple]:
        whole = lambda k, carry: block(carry, jnp.minimum(_BLOCK, count - _BLOCK * k))
        carry = jax.lax.fori_loop(0, -(-count // _BLOCK), whole, carry)
        return carry, (carry.logs, carry.product)

    begin = _Carry(state, jnp.zeros(state.shape[1]), jnp.zeros(()), jnp.zeros((), int))
    carry, (logs, products) = jax.lax.scan(stretch, begin, stretches)
    return logs, products, carry.largest


def _check_counts(owner: str, step: float, steps: int, chains: int) -> None:
    check_float64()
    if not 0 < step < np.inf:
        raise ArgumentError("step", owner, "positive and finite", step)
    if steps < 0:
        raise ArgumentError("steps", owner, "a nonnegative integer", steps)
    if chains < 1:
        raise ArgumentError("chains", owner, "a positive integer", chains)


def quadratic_noise(hessian: Any, noise: Any, step: float, steps: int, chains: int, seed: int = 0) -> np.ndarray:
    """End points (chains x d) of theta - step (A theta + xi) from 0 with Gaussian xi of covariance `noise`."""
    hessian, noise = (
        symmetric_matrix(hessian, "hessian", "quadratic_noise"),
        symmetric_matrix(noise, "noise", "quadratic_noise"),
    )
    _check_counts("quadratic_noise", step, steps, chains)
    if noise.shape != hessian.shape:
        raise ArgumentError("noise", "quadratic_noise", f"of shape {hessian.shape}", f"shape {noise.shape}")
    top = float(np.linalg.eigvalsh(hessian)[-1])
    if step * top >= 2:
        raise StepSizeError(step, 2 / top, "step * largest eigenvalue must be below 2")
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
    inputs = jnp.asarray(real_array(inputs, "inputs", "sample_noise", "(n, d)", 2))
    targets = jnp.asarray(real_array(targets, "targets", "sample_noise", "(n,)", 1))
    if len(targets) != len(inputs):
        raise ArgumentError("targets", "sample_noise", f"one per sample ({len(inputs)})", f"{len(targets)}")
    _check_counts("sample_noise", step, steps, chains)
    first = jnp.zeros(inputs.shape[1]) if start is None else jnp.asarray(start, float)
    if first.shape != (inputs.shape[1],):
        raise ArgumentError("start", "sample_noise", f"of shape ({inputs.shape[1]},)", f"shape {first.shape}")
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
