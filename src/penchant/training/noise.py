r"""Stochastic descent on regressions: many noisy trajectories in one compiled run.

Square models are kept in logarithms, $\log w_\pm \leftarrow \log w_\pm + \mathrm{log}(1\mp2\eta g)$, which is exact and never underflows. Alongside runs
$\sum\log(1-4\eta^2g^2)$: the product $w_+w_-$ changes by nothing else, and it is what sets the potential that the noise-free flow would
minimise from the present point. For plain squares $\beta\odot\beta$ it is what the square of the start has shrunk by, as far as that potential is
concerned: $\log\beta^2$ also moves by $-2\,\mathrm{artanh}(2\eta g)$, which lies in the span of the inputs up to third order.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..errors import ArgumentError, StepSizeError
from ..logspace import check_float64
from ..settings.check import real_array, symmetric_matrix
from ..settings.regression import Regression
from .loop import drive_many

_BLOCK = 64  # steps between logarithms: no product of so few factors below 1 leaves the range of float64 while the step is legal


class NoisyRun(eqx.Module):
    """Records x chains: `log_params` (w+ and w- in rows, or beta alone), `log_product` = sum of log(1 - 4 step^2 g^2) on its own account,
    `largest` = max 2 step |g| seen.

    Of a law, which has no chains, `log_product` begins with that of the start, and there are `moments` of the residuals (records x n x n).
    """

    data: Regression
    steps: np.ndarray
    log_params: np.ndarray
    log_product: np.ndarray
    largest: float
    moments: np.ndarray | None = None

    def weight(self, record: int = -1) -> np.ndarray:
        """The weights of all chains at a record."""
        squares = np.exp(2 * self.log_params[record])
        return np.tensordot(squares, row_signs(squares.shape[1]), (1, 0))


def label_noise(
    data: Regression,
    start: object,
    *,
    step: float,
    deviation: float,
    steps: object,
    chains: int = 1,
    batch: int | None = 1,
    seed: int = 0,
) -> NoisyRun:
    r"""SGD on square models with fresh label noise: mean loss |r|^2 / 2n, `batch` samples with replacement (all of them if None).

    `start` holds w+ and w- of the signed squares (2 x d, or chains x 2 x d), or beta of the squares (d, or chains x 1 x d); `steps` the
    step counts to record. Raises `StepSizeError` if some factor 1 - 2 step |g| was not positive: logarithms of the parameters
    would not exist. With the loss |r|^2 / 4n that the notes use for squares, double the step.
    """
    if chains < 1:
        raise ArgumentError("chains", "label_noise", "a positive integer", chains)
    first, schedule = check_noise(data, start, step, deviation, steps, batch, "label_noise")
    if first.ndim == 3 and len(first) != chains:
        raise ArgumentError("start", "label_noise", f"one start, or one for each of {chains} chains", f"{len(first)}")
    starts = jnp.broadcast_to(jnp.log(first), (chains, *first.shape[-2:]))
    keys = jax.random.split(jax.random.key(seed), chains)
    parts = batch, data.inputs, data.targets, jnp.asarray(step), jnp.asarray(deviation), starts, keys
    state, records = drive_many(_Chain, (None,) * 5 + (0, 0), parts, jnp.asarray(schedule))
    logs, products = (np.asarray(records[name]).swapaxes(0, 1) for name in ("logs", "product"))
    return NoisyRun(data, schedule, logs, products, stable(step, float(jnp.max(state.largest)), logs))


def check_noise(
    data: Regression, start: object, step: float, deviation: float, steps: object, batch: int | None, owner: str
) -> tuple[np.ndarray, np.ndarray]:
    """The start and the steps to record, 0 first; raises on arguments that describe no noisy descent."""
    check_float64()
    if not 0 < step < np.inf:
        raise ArgumentError("step", owner, "positive and finite", step)
    if not 0 <= deviation < np.inf:
        raise ArgumentError("deviation", owner, "nonnegative and finite", deviation)
    if batch is not None and batch < 1:
        raise ArgumentError("batch", owner, "a positive integer, or None for all samples", batch)
    first, wanted = np.asarray(start, float), np.atleast_1d(np.asarray(steps))
    first = first[None] if first.ndim == 1 else first
    d = data.inputs.shape[1]
    if first.ndim not in (2, 3) or first.shape[-2] not in (1, 2) or first.shape[-1] != d:
        needed = f"of shape (2, {d}), w+ and w- of signed squares, or ({d},), beta of squares"
        raise ArgumentError("start", owner, needed, f"shape {np.asarray(start).shape}")
    if not ((first > 0) & np.isfinite(first)).all():
        raise ArgumentError("start", owner, "positive and finite in every entry", f"smallest entry {first.min():g}")
    if wanted.dtype.kind not in "iu" or wanted.min() < 0:
        raise ArgumentError("steps", owner, "nonnegative integers: the steps to record", steps)
    return first, np.unique(np.append(0, wanted))


def row_signs(rows: int) -> np.ndarray:
    """The signs with which the squares of the rows enter the weight: w+^2 - w-^2, or beta^2."""
    return np.array([1.0, -1.0])[:rows]


def stable(step: float, most: float, records: np.ndarray, what: str = "2 * step") -> float:
    """The largest push of a run, `most`, if logarithms could follow it. Halving is the advice where it blew up: the push then says nothing about a good step."""
    if most < 1 and np.isfinite(records).all():
        return most
    bound = step / most if 1 <= most < np.inf else step / 2
    raise StepSizeError(step, bound, f"{what} * |gradient of the prediction error| reached {most:.3g}")


class _State(eqx.Module):
    logs: Float[Array, "rows d"]
    product: Float[Array, "d"]
    largest: Float[Array, ""]
    blocks: Int[Array, ""]
    count: Int[Array, ""]
    status: Int[Array, ""]


class _Chain(eqx.Module):
    """Label-noise SGD as a process. Logarithms are taken once per block: in between, factors near 1 are multiplied, which is as exact and far cheaper."""

    batch: int | None
    inputs: Float[Array, "n d"]
    targets: Float[Array, "n"]
    step: Float[Array, ""]
    deviation: Float[Array, ""]
    start: Float[Array, "rows d"]
    key: Array

    def begin(self) -> _State:
        none = jnp.zeros((), int)
        return _State(self.start, jnp.zeros(self.start.shape[1]), jnp.zeros(()), none, none, none)

    def burst(self, state: _State, until: Int[Array, ""]) -> _State:
        inputs, targets, signs = self.inputs, self.targets, row_signs(len(self.start))
        drawn, count = len(targets) if self.batch is None else self.batch, jnp.minimum(_BLOCK, until - state.count)
        choose, draw = jax.random.split(jax.random.fold_in(self.key, state.blocks))
        index = (len(targets) * jax.random.uniform(choose, (_BLOCK, drawn))).astype(int)  # compiles faster than randint
        noise = self.deviation * jax.random.normal(draw, (_BLOCK, drawn))
        squares = jnp.exp(2 * state.logs)

        def advance(k: Array, now: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            ratio, product, largest = now
            rows, wanted = (inputs, targets) if self.batch is None else (inputs[index[k]], targets[index[k]])
            push = 2 * self.step * ((rows @ (signs @ (squares * ratio**2)) - wanted - noise[k]) @ rows) / drawn
            ratio = ratio * (1 - jnp.outer(signs, push))
            return ratio, product * (1 - push**2), jnp.maximum(largest, jnp.abs(push).max())

        begin = jnp.ones_like(state.logs), jnp.ones_like(state.product), state.largest
        ratio, product, largest = jax.lax.fori_loop(0, count, advance, begin)
        logs, product = state.logs + jnp.log(ratio), state.product + jnp.log(product)
        return _State(logs, product, largest, state.blocks + 1, state.count + count, state.status)

    def record(self, state: _State) -> dict[str, Array]:
        return {"steps": state.count, "logs": state.logs, "product": state.product}


def quadratic_noise(hessian: object, noise: object, step: float, steps: int, chains: int, seed: int = 0) -> np.ndarray:
    """End points (chains x d) of theta - step (A theta + xi) from 0 with Gaussian xi of covariance `noise`."""
    curved, spread = (
        symmetric_matrix(matrix, name, "quadratic_noise") for matrix, name in ((hessian, "hessian"), (noise, "noise"))
    )
    if spread.shape != curved.shape:
        raise ArgumentError("noise", "quadratic_noise", f"of shape {curved.shape}", f"shape {spread.shape}")
    top = float(np.linalg.eigvalsh(curved)[-1])
    if step * top >= 2:
        raise StepSizeError(step, 2 / top, "step * largest eigenvalue must be below 2")
    sizes, basis = np.linalg.eigh(spread)
    root = basis * np.sqrt(np.maximum(sizes, 0.0))
    move = eqx.Partial(_settle, jnp.asarray(curved), jnp.asarray(root))
    return _ends("quadratic_noise", move, np.zeros(len(curved)), step, steps, chains, seed)


def _settle(hessian: Array, root: Array, step: Array, theta: Array, key: Array) -> Array:
    return step * (theta @ hessian + jax.random.normal(key, theta.shape) @ root.T)


def sample_noise(
    inputs: object, targets: object, step: float, steps: int, chains: int, seed: int = 0, start: object = None
) -> np.ndarray:
    """End points (chains x d) of single-sample SGD on least squares, from 0 or from `start`."""
    rows = real_array(inputs, "inputs", "sample_noise", "(n, d)", 2)
    wanted = real_array(targets, "targets", "sample_noise", "(n,)", 1)
    if len(wanted) != len(rows):
        raise ArgumentError("targets", "sample_noise", f"one per sample ({len(rows)})", f"{len(wanted)}")
    first = np.zeros(rows.shape[1]) if start is None else np.asarray(start, float)
    if first.shape != rows.shape[1:]:
        raise ArgumentError("start", "sample_noise", f"of shape ({rows.shape[1]},)", f"shape {first.shape}")
    move = eqx.Partial(_fit_one, jnp.asarray(rows), jnp.asarray(wanted))
    return _ends("sample_noise", move, first, step, steps, chains, seed)


def _fit_one(inputs: Array, targets: Array, step: Array, theta: Array, key: Array) -> Array:
    index = jax.random.randint(key, (theta.shape[0],), 0, len(targets))
    error = (inputs[index] * theta).sum(axis=1) - targets[index]
    return step * error[:, None] * inputs[index]


def _ends(
    owner: str, move: eqx.Partial, start: np.ndarray, step: float, steps: int, chains: int, seed: int
) -> np.ndarray:
    """Where `chains` of moves end, all from one start."""
    check_float64()
    for name, value, fits, wanted in (
        ("step", step, 0 < step < np.inf, "positive and finite"),
        ("steps", steps, steps >= 0, "a nonnegative integer"),
        ("chains", chains, chains >= 1, "a positive integer"),
    ):
        if not fits:
            raise ArgumentError(name, owner, wanted, value)
    first = jnp.broadcast_to(jnp.asarray(start), (chains, len(start)))
    return np.asarray(_walk(move, first, jax.random.key(seed), jnp.asarray(step), jnp.asarray(steps)))


@eqx.filter_jit
def _walk(move: eqx.Partial, theta: Array, key: Array, step: Array, steps: Array) -> Array:
    """Chains that only their end is asked of."""

    def advance(_: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        key, draw = jax.random.split(now[1])
        return now[0] - move(step, now[0], draw), key

    return jax.lax.fori_loop(0, steps, advance, (theta, key))[0]
