r"""Stochastic descent on regressions: many noisy trajectories in one compiled run.

Square models are kept in logarithms, $\log w_\pm \leftarrow \log w_\pm + \mathrm{log}(1\mp2\eta g)$, which is exact and never underflows. Alongside runs
$\sum\log(1-4\eta^2g^2)$: the product $w_+w_-$ changes by nothing else, and it is what sets the potential that the noise-free flow would
minimise from the present point. For plain squares $\beta\odot\beta$ it is what the square of the start has shrunk by, as far as that potential is
concerned: $\log\beta^2$ also moves by $-2\,\mathrm{artanh}(2\eta g)$, which lies in the span of the inputs up to third order.

The drift of label-noise SGD on square models, simulated without any noise.

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
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..errors import ArgumentError, StepSizeError
from ..logspace import check_float64
from ..settings.check import real_array, symmetric_matrix
from ..settings.regression import Regression
from .loop import drive_many, drive_one

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
    """`own` is the number of blocks that a chain has drawn, or the second moments of the residuals that a law follows."""

    logs: Float[Array, "rows d"]
    product: Float[Array, "d"]
    largest: Float[Array, ""]
    own: Array
    count: Int[Array, ""]
    status: Int[Array, ""]

    def kept(self) -> dict[str, Array]:
        return {"steps": self.count, "logs": self.logs, "product": self.product, "moments": self.own}


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
        choose, draw = jax.random.split(jax.random.fold_in(self.key, state.own))
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
        return _State(logs, product, largest, state.own + 1, state.count + count, state.status)

    def record(self, state: _State) -> dict[str, Array]:
        return state.kept()


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
        return _State(logs, product, jnp.maximum(state.largest, largest), moments, state.count + 1, state.status)

    def record(self, state: _State) -> dict[str, Array]:
        return state.kept()


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
    return _follow(_moment_step, "moment_descent", data, start, (step, deviation, steps), batch)


def regularised_descent(
    data: Regression, start: object, *, step: float, deviation: float, steps: object, batch: int | None = 1
) -> NoisyRun:
    """Descent on the mean loss plus (step deviation^2 / 4B) times the trace of its Hessian: the leading order of label noise."""
    return _follow(_regularised_step, "regularised_descent", data, start, (step, deviation, steps), batch)


def _follow(rule: Callable, owner: str, data: Regression, start: object, given: tuple, batch: int | None) -> NoisyRun:
    """A law, given its step, the deviation of the labels and the steps to record."""
    step, deviation, steps = given
    first, schedule = check_noise(data, start, step, deviation, steps, batch, owner)
    n = data.inputs.shape[0]
    if first.ndim != 2:
        raise ArgumentError("start", owner, "one start: a law has no chains", f"shape {first.shape}")
    logs, none = np.log(first), jnp.zeros((), int)
    state = _State(jnp.asarray(logs), jnp.asarray(logs[0] + logs[-1]), jnp.zeros(()), jnp.zeros((n, n)), none, none)
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
    pushed = push_moments(batch, residual, state.own, variance)
    spread = pushed - jnp.outer(residual, residual) / n**2
    mean, square = residual @ inputs / n, (inputs * (pushed @ inputs)).sum(axis=0)
    decay = kernel @ state.own
    moments = state.own - step / n * (decay + decay.T) + step**2 * kernel @ spread @ kernel
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
    return state.logs + factors, product, state.own, jnp.abs(push).max()
