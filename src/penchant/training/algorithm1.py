"""Training of attention layers: structure-aware preconditioned descent from a spectral start (Algorithm 1), and its baselines.

A run is one compiled loop. It never raises because of what the numbers do: a step that would leave every bounded region is not
taken, the status says so, and the last finite layer stays. `throw=True` turns that ending into a `DivergenceError`.
"""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ArgumentError, AssumptionError, DivergenceError, warn
from ..optimisers.layer_rules import AbstractLayerRule
from ..optimisers.preconditioned import PreconditionedDescent, ResolvedStep, safe_step, step_warning
from ..settings.attention_balance import AbstractBalance, Balance, Unregularised, limit_logits
from ..settings.attention_geometry import AbstractGeometry, Euclidean
from ..settings.attention_regression import AttentionLayer, AttentionRegression
from ..settings.attention_sample import KEYS, AttentionSample, spectral_layer, unreliable, visible_failures
from ..settings.context_bias import scaled
from .attention_run import AbstractAttentionRun
from .attention_sources import AbstractSource, FullSample, Minibatch
from .recorders import LogSpaced
from .status import Status
from .trajectory import settings_of

LARGEST = 1e6  # a whitened norm beyond which a run is lost: gradients grow with its cube


class AttentionRun(AbstractAttentionRun):
    """A run on a sample: layers, and at each of them the source's loss and gradient as the next step sees them.

    `excess` is the population's and needs the truth, as does `deviation` = |used gradient - population gradient| (whitened, no
    regulariser); both are not a number without it. `gradient_norm` is that of the loss alone, whitened by `problem`.
    """

    FORMAT = "penchant attention run 1"
    SERIES = ("steps", "value", "key_query", "loss", "gradient_norm", "excess", "deviation")

    value: np.ndarray
    key_query: np.ndarray
    loss: np.ndarray
    gradient_norm: np.ndarray
    deviation: np.ndarray

    def at(self, record: int = -1) -> AttentionLayer:
        """U and V at a record (the last one by default)."""
        return AttentionLayer(self.value[record], self.key_query[record])

    def excess_at(self, step: int) -> float:
        """Population excess at a recorded step."""
        return float(self.excess[self._record(step)])

    def _record(self, step: int) -> int:
        found = np.flatnonzero(self.steps == step)
        if not len(found):
            raise ArgumentError(
                "step",
                "AttentionRun",
                "a recorded step",
                step,
                "train with a recorder that keeps it, `recorder=At((...))`",
            )
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

    def size(self, whitened: Float[Array, "rows d"]) -> Array:
        """The step size, at the scale at which steps are measured."""
        m = self.problem.outputs
        scale = self.balance.scale(whitened[:m], whitened[m:])
        return self.resolved.size(scaled(whitened, m, 1 / scale))

    def update(self, gradient, memory, layer):
        problem, m = self.problem, self.problem.outputs
        whitened = problem.whiten(layer)
        upper, lower = self.balance.gradient(whitened[:m], whitened[m:])
        total = AttentionLayer(
            gradient.value + upper @ problem.root, gradient.key_query + problem.root @ lower.T @ problem.root
        )
        direction = self.geometry.precondition(total, problem.covariance)
        scale, size = self.balance.scale(whitened[:m], whitened[m:]), self.size(whitened)
        change = AttentionLayer(-size * scale**2 * direction.value, -size / scale**2 * direction.key_query)
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
    recorder: Any = None,
    truth: AttentionRegression | None = None,
    throw: bool = False,
) -> AttentionRun:
    """Take `steps` steps from `start`; `truth` is what the excess is measured against.

    >>> from penchant.settings.attention_regression_generators import attention_experiment
    >>> from penchant.training.attention_sources import Population
    >>> from penchant.training.recorders import At
    >>> found = attention_experiment()
    >>> rule = PreconditionedDescent("two_sided", 0.1)
    >>> run = train_attention(Population(found.problem), rule, found.start, steps=100, recorder=At((10,)), truth=found.problem)
    >>> f"{run.excess_at(10):.7f} {run.excess_at(100):.8f}"
    '0.0571674 0.00294268'
    """
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 0:
        raise ArgumentError("steps", "train_attention", "a nonnegative integer", repr(steps))
    problem = source.problem
    problem.check_layer(start, "train_attention")
    source.require(start)
    if not isinstance(rule, PreconditionedDescent | AbstractLayerRule):
        raise ArgumentError("rule", "train_attention", "a PreconditionedDescent or a layer rule", repr(rule))
    schedule = jnp.asarray((recorder or LogSpaced()).schedule(int(steps)))
    bound = _bind(rule, problem)
    state, records = _scan(source, bound, truth, start, source.draws(int(steps) + 1), schedule)
    geometry = rule.geometry if isinstance(rule, PreconditionedDescent) else Euclidean()
    safe = safe_step(problem, geometry, problem.whiten(start))
    header = {"rule": settings_of(rule), "source": type(source).__name__, "steps": int(steps)}
    run = _collect(problem, records, state, safe, header)
    if throw and run.status in (Status.diverging_step, Status.not_finite):
        source.require(run.at())
        size = float(bound.size(problem.whiten(run.at()))) if isinstance(bound, _Structured) else np.nan
        raise DivergenceError(size, safe, int(run.steps[-1]), run.at())
    return run


class _State(eqx.Module):
    """A run between two steps; `observed` says that `loss` and `gradient` are those of `layer`."""

    layer: AttentionLayer
    memory: Any
    taken: Array
    status: Array
    loss: Array
    gradient: AttentionLayer
    observed: Array


def _whitened_gradient(problem: AttentionRegression, gradient: AttentionLayer) -> Array:
    """A gradient by U and V as one by W."""
    back = problem.inverse_root
    return jnp.concatenate([gradient.value @ back, (back @ gradient.key_query @ back).T])


@eqx.filter_jit
def _scan(
    source: AbstractSource,
    rule: AbstractLayerRule,
    truth: AttentionRegression | None,
    start: AttentionLayer,
    draws: Any,
    schedule: Array,
) -> tuple[_State, dict[str, Array]]:
    """One while loop between records, whose last turn only looks: the evaluation, which is most of the program, is compiled once."""

    def move(state: _State) -> _State:
        change, memory = rule.update(state.gradient, state.memory, state.layer)
        layer = jax.tree.map(jnp.add, state.layer, change)
        size = jnp.linalg.norm(source.problem.whiten(layer))
        ending = jnp.where(jnp.isfinite(size), int(Status.diverging_step), int(Status.not_finite))
        rest = (state.loss, state.gradient, state.observed)
        moved = _State(layer, memory, state.taken + 1, state.status, *rest)
        refused = _State(state.layer, state.memory, state.taken, ending.astype(state.status.dtype), *rest)
        return jax.tree.map(lambda new, old: jnp.where(size <= LARGEST, new, old), moved, refused)

    def turn(until: Array, state: _State) -> _State:
        loss, gradient = source.evaluate(state.layer, jax.tree.map(lambda leaf: leaf[state.taken], draws))
        last = (state.taken >= until) | (state.status != Status.running)
        seen = _State(state.layer, state.memory, state.taken, state.status, loss, gradient, last)
        return jax.lax.cond(last, lambda: seen, lambda: move(seen))

    def stretch(state: _State, until: Array) -> tuple[_State, dict[str, Array]]:
        state = eqx.tree_at(lambda one: one.observed, state, jnp.zeros((), bool))
        state = jax.lax.while_loop(lambda one: ~one.observed, partial(turn, until), state)
        return state, _record(source.problem, truth, state)

    zero, count = jnp.zeros(()), jnp.zeros((), schedule.dtype)
    nothing = jax.tree.map(jnp.zeros_like, start)
    status = jnp.asarray(int(Status.running), jnp.int32)
    begin = _State(start, rule.init(start), count, status, zero, nothing, jnp.zeros((), bool))
    return jax.lax.scan(stretch, begin, schedule)


def _record(problem: AttentionRegression, truth: AttentionRegression | None, state: _State) -> dict[str, Array]:
    excess = deviation = jnp.full((), jnp.nan)
    if truth is not None:
        excess = truth.excess(state.layer)
        exact = truth.whitened_gradient(truth.whiten(state.layer), Unregularised())
        deviation = jnp.linalg.norm(_whitened_gradient(truth, state.gradient) - exact)
    return {
        "steps": state.taken,
        "value": state.layer.value,
        "key_query": state.layer.key_query,
        "loss": state.loss,
        "gradient_norm": jnp.linalg.norm(_whitened_gradient(problem, state.gradient)),
        "excess": excess,
        "deviation": deviation,
    }


def _collect(
    problem: AttentionRegression, records: dict[str, Array], state: _State, safe: float, header: dict
) -> AttentionRun:
    taken = np.asarray(records["steps"])
    kept = np.append(True, np.diff(taken) > 0)  # a run that has ended repeats its last record
    series = {name: np.asarray(values)[kept] for name, values in records.items()}
    status = Status(int(state.status))
    ending = Status.out_of_steps if status is Status.running else status
    return AttentionRun(problem, **series, status=ending, safe_step=safe, header=header)


def total_gradient(
    source: AbstractSource, layer: AttentionLayer, balance: AbstractBalance | None = None
) -> Float[Array, "rows d"]:
    """Gradient of the source's loss plus a regulariser (`Balance()` by default), by W of the source's problem."""
    rule = Balance() if balance is None else balance
    draw = jax.tree.map(lambda leaf: leaf[0], source.draws(1))
    whitened, m = source.problem.whiten(layer), source.problem.outputs
    extra = jnp.concatenate(rule.gradient(whitened[:m], whitened[m:]))
    return _whitened_gradient(source.problem, source.evaluate(layer, draw)[1]) + extra


def algorithm1(
    sample: AttentionSample,
    *,
    steps: int,
    paper: bool = False,
    gauge: str = "identity",
    batch: int | None = None,
    keys: str = "batch",
    rule: PreconditionedDescent | None = None,
    recorder: Any = None,
    truth: AttentionRegression | None = None,
    strict: bool = False,
    throw: bool = False,
) -> AttentionRun:
    """Spectral start, then preconditioned descent on all samples, or on minibatches of `batch` with keys from the batch (`keys="full"`: from all samples).

    The default rule is two-sided with the step 1/(4 s_1) of the estimated map; `paper=True` takes the one-sided
    preconditioner that the paper's text describes. Hypotheses that the sample shows to fail are a warning, with `strict` an
    `AssumptionError`; `advise` has them all. `throw` is that of `train_attention`.
    """
    if keys not in KEYS:
        raise ArgumentError("keys", "algorithm1", f"one of {', '.join(KEYS)}", repr(keys))
    failures = visible_failures(sample)
    if failures and strict:
        raise AssumptionError("algorithm1", failures, "`strict=False` trains all the same, with a warning")
    rule = PreconditionedDescent("left" if paper else "two_sided") if rule is None else rule
    doubts = (*unreliable(sample), *(filter(None, [step_warning(sample.estimated, rule)])))
    if failures:
        warn("Outside the theorems of `algorithm1`: " + "; ".join(failures) + ".")
    if doubts:
        warn("Predictions for `algorithm1` are unreliable here: " + "; ".join(doubts) + ".")
    source = FullSample(sample) if batch is None else Minibatch(sample, batch, keys=keys)
    start = spectral_layer(sample.estimated, gauge)
    return train_attention(source, rule, start, steps=steps, recorder=recorder, truth=truth, throw=throw)
