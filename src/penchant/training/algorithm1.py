"""Training of attention layers: structure-aware preconditioned descent from a spectral start (Algorithm 1), and its baselines.

A run is one compiled scan. It never raises because of what the numbers do: a step that would leave every bounded region is not
taken, the status says so, and the last finite layer stays. `throw=True` turns that ending into a `DivergenceError`.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ArgumentError, DivergenceError
from ..optimisers.layer_rules import AbstractLayerRule
from ..optimisers.preconditioned import PreconditionedDescent, ResolvedStep, safe_step
from ..settings.attention_balance import AbstractBalance, Unregularised, limit_logits
from ..settings.attention_geometry import AbstractGeometry, TwoSided
from ..settings.attention_regression import AttentionLayer, AttentionRegression
from ..settings.attention_sample import AttentionSample, spectral_layer
from .attention_sources import AbstractSource, FullSample, Minibatch
from .status import Status

LARGEST = 1e6  # a whitened norm beyond which a run is lost: gradients grow with its cube
RECORDS = 2000  # at most about this many records unless `every` says otherwise


class AttentionRun(eqx.Module):
    """Records of one run: step counts, layers, and at each of them the source's loss and gradient as the next step sees them.

    `excess` is the population's and needs the truth, as does `deviation` = |used gradient - population gradient| (whitened, no
    regulariser); both are not a number without it. `gradient_norm` is that of the loss alone, whitened by `problem`.
    """

    problem: AttentionRegression
    steps: np.ndarray
    value: np.ndarray
    key_query: np.ndarray
    loss: np.ndarray
    gradient_norm: np.ndarray
    excess: np.ndarray
    deviation: np.ndarray
    status: Status = eqx.field(static=True)
    safe_step: float = eqx.field(static=True)

    def __len__(self) -> int:
        return len(self.steps)

    def at(self, record: int = -1) -> AttentionLayer:
        """The layer of a record (the last one by default)."""
        return AttentionLayer(self.value[record], self.key_query[record])

    def excess_at(self, step: int) -> float:
        """Population excess at a recorded step."""
        return float(self.excess[self._record(step)])

    def _record(self, step: int) -> int:
        found = np.flatnonzero(self.steps == step)
        if not len(found):
            raise ArgumentError("step", "AttentionRun", "a recorded step", step, "train with `every=` a divisor of it")
        return int(found[0])

    def first_below(self, level: float) -> int | None:
        """First recorded step whose excess is at most `level`; None if there is none."""
        found = np.flatnonzero(self.excess <= level)
        return int(self.steps[found[0]]) if len(found) else None


class _Structured(AbstractLayerRule):
    """A `PreconditionedDescent` bound to a problem: its covariance preconditions, and its balance is added to the gradient."""

    problem: AttentionRegression
    resolved: ResolvedStep
    geometry: AbstractGeometry
    balance: AbstractBalance
    logit_limit: Float[Array, ""] | None

    def init(self, layer):
        return ()

    def update(self, gradient, memory, layer):
        problem, m = self.problem, self.problem.outputs
        whitened = problem.whiten(layer)
        upper, lower = self.balance.gradient(whitened[:m], whitened[m:])
        total = AttentionLayer(
            gradient.value + upper @ problem.root, gradient.key_query + problem.root @ lower.T @ problem.root
        )
        direction = self.geometry.precondition(total, problem.covariance)
        size = self.resolved.size(whitened)
        change = jax.tree.map(lambda leaf: -size * leaf, direction)
        if self.logit_limit is None:
            return change, memory
        moved = problem.whiten(jax.tree.map(jnp.add, layer, change))
        limited = problem.unwhiten(jnp.concatenate(limit_logits(moved[:m], moved[m:], self.logit_limit)))
        return jax.tree.map(jnp.subtract, limited, layer), memory


def _bind(rule: PreconditionedDescent | AbstractLayerRule, problem: AttentionRegression) -> AbstractLayerRule:
    if isinstance(rule, AbstractLayerRule):
        return rule
    limit = None if rule.logit_limit is None else jnp.asarray(rule.logit_limit)
    return _Structured(problem, rule.step.resolve(problem, rule.geometry), rule.geometry, rule.balance, limit)


def train_attention(
    source: AbstractSource,
    rule: PreconditionedDescent | AbstractLayerRule,
    start: AttentionLayer,
    *,
    steps: int,
    every: int | None = None,
    truth: AttentionRegression | None = None,
    throw: bool = False,
) -> AttentionRun:
    """Take `steps` steps from `start`, recording every `every`-th layer (and the last).

    >>> from penchant.settings.attention_regression_generators import attention_experiment
    >>> from penchant.training.attention_sources import Population
    >>> found = attention_experiment(n=10)
    >>> run = train_attention(Population(found.problem), PreconditionedDescent(step=0.1), found.start, steps=100, truth=found.problem)
    >>> f"{run.excess_at(10):.7f} {run.excess_at(100):.8f}"
    '0.0571674 0.00294268'
    """
    if isinstance(steps, bool) or steps < 0:
        raise ArgumentError("steps", "train_attention", "a nonnegative integer", steps)
    every = max(1, steps // RECORDS) if every is None else every
    if every < 1:
        raise ArgumentError("every", "train_attention", "a positive integer", every)
    source.problem.check_layer(start, "train_attention")
    chunks = -(-steps // every)
    chunked = lambda leaf: leaf.reshape(chunks, every, *leaf.shape[1:])
    draws = jax.tree.map(chunked, source.draws(chunks * every))
    last_draw = jax.tree.map(lambda leaf: leaf[-1], source.draws(1))
    bound = _bind(rule, source.problem)
    records, state = _scan(source, bound, truth, start, draws, last_draw, jnp.asarray(steps), chunks, every)
    run = _collect(source.problem, rule, start, records, state)
    if throw and run.status in (Status.diverging_step, Status.not_finite):
        size = float(bound.resolved.size(source.problem.whiten(start))) if isinstance(bound, _Structured) else np.nan
        raise DivergenceError(int(run.steps[-1]), size, run.safe_step, run.at())
    return run


class _State(eqx.Module):
    layer: AttentionLayer
    memory: Any
    taken: Array
    status: Array


class _Record(eqx.Module):
    layer: AttentionLayer
    taken: Array
    loss: Array
    gradient_norm: Array
    excess: Array
    deviation: Array


def _whitened_gradient(problem: AttentionRegression, gradient: AttentionLayer) -> Array:
    """A gradient by U and V as one by W."""
    root = problem.inverse_root
    return jnp.concatenate([gradient.value @ root, (root @ gradient.key_query @ root).T])


@eqx.filter_jit
def _scan(
    source: AbstractSource,
    rule: AbstractLayerRule,
    truth: AttentionRegression | None,
    start: AttentionLayer,
    draws: Any,
    last_draw: Any,
    steps: Array,
    chunks: int,
    every: int,
) -> tuple[_Record, _State]:
    def observe(state: _State, draw: Any) -> _Record:
        loss, gradient = source.evaluate(state.layer, draw)
        norm = jnp.linalg.norm(_whitened_gradient(source.problem, gradient))
        excess = deviation = jnp.full((), jnp.nan)
        if truth is not None:
            excess = truth.excess(state.layer)
            from_source = _whitened_gradient(truth, gradient)
            exact = truth.whitened_gradient(truth.whiten(state.layer), Unregularised())
            deviation = jnp.linalg.norm(from_source - exact)
        return _Record(state.layer, state.taken, loss, norm, excess, deviation)

    def step(state: _State, draw: Any) -> tuple[_State, None]:
        def take() -> _State:
            _, gradient = source.evaluate(state.layer, draw)
            change, memory = rule.update(gradient, state.memory, state.layer)
            layer = jax.tree.map(jnp.add, state.layer, change)
            size = jnp.linalg.norm(source.problem.whiten(layer))
            verdict = jnp.where(jnp.isfinite(size), Status.diverging_step, Status.not_finite).astype(jnp.int32)
            kept = _State(state.layer, state.memory, state.taken, verdict)
            moved = _State(layer, memory, state.taken + 1, state.status)
            return jax.tree.map(lambda new, old: jnp.where(size <= LARGEST, new, old), moved, kept)

        active = (state.status == Status.running) & (state.taken < steps)
        return jax.lax.cond(active, take, lambda: state), None

    def chunk(state: _State, some: Any) -> tuple[_State, _Record]:
        record = observe(state, last_draw if some is None else jax.tree.map(lambda leaf: leaf[0], some))
        state, _ = jax.lax.scan(step, state, some, length=every)
        return state, record

    zero = jnp.zeros((), jnp.int32)
    begin = _State(start, rule.init(start), zero, jnp.asarray(int(Status.running), jnp.int32))
    state, records = jax.lax.scan(chunk, begin, draws, length=chunks)
    final = observe(state, last_draw)
    return jax.tree.map(lambda many, one: jnp.concatenate([many, one[None]]), records, final), state


def _collect(
    problem: AttentionRegression, rule: Any, start: AttentionLayer, records: _Record, state: _State
) -> AttentionRun:
    taken = np.asarray(records.taken)
    keep = np.append(np.diff(taken) > 0, True)  # records after a run has ended repeat its last layer
    geometry = rule.geometry if isinstance(rule, PreconditionedDescent) else TwoSided()
    status = Status(int(state.status))
    status = Status.out_of_steps if status is Status.running else status
    series = lambda leaf: np.asarray(leaf)[keep]
    return AttentionRun(
        problem,
        taken[keep],
        series(records.layer.value),
        series(records.layer.key_query),
        series(records.loss),
        series(records.gradient_norm),
        series(records.excess),
        series(records.deviation),
        status,
        safe_step(problem, geometry, problem.whiten(start)),
    )


def algorithm1(
    sample: AttentionSample,
    *,
    steps: int,
    paper: bool = False,
    gauge: str = "identity",
    batch: int | None = None,
    rule: PreconditionedDescent | None = None,
    every: int | None = None,
    truth: AttentionRegression | None = None,
) -> AttentionRun:
    """Spectral start, then preconditioned descent on all samples, or on minibatches of `batch` with keys from the batch.

    The default rule is two-sided with the step 1/(4 s_1) of the estimated map; `paper=True` takes the one-sided
    preconditioner that the paper's text describes.
    """
    rule = PreconditionedDescent("left" if paper else "two_sided") if rule is None else rule
    source = FullSample(sample) if batch is None else Minibatch(sample, batch)
    start = spectral_layer(sample.estimated, gauge)
    return train_attention(source, rule, start, steps=steps, every=every, truth=truth)
