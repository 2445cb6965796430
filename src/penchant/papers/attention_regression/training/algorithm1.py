"""Training of attention layers: structure-aware preconditioned descent from a spectral start (Algorithm 1), and its baselines.

A run is one compiled loop. It never raises because of what the numbers do: a step that would leave every bounded region is not
taken, the status says so, and the last finite layer stays. `throw=True` turns that ending into a `DivergenceError`. On samples
the steps "default" and "adaptive" are halved until the objective of the sample falls; a number is taken as it is.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ....errors import ArgumentError, AssumptionError, DivergenceError, warn
from ....files import mark
from ....logspace import check_float64
from ....training.recorders import LogSpaced
from ....training.status import Status
from ....training.trajectory import settings_of
from ..setting.geometry import Euclidean
from ..setting.problem import AbstractBalance, AttentionLayer, AttentionRegression, Balance
from ..setting.sample import KEYS, AttentionSample, spectral_layer, unreliable, visible_failures
from .loop import State, StructuredRule, bind, safeguarded, scan, whitened_gradient
from .population import AbstractAttentionRun
from .rules import AbstractAttentionRule, LayerAdam, PlainDescent, PreconditionedDescent, safe_step, step_warning
from .sources import AbstractSource, FullSample, Minibatch

_LOST = (Status.diverging_step, Status.not_finite)
_HALVINGS = 40  # tried after a divergence


class AttentionRun(AbstractAttentionRun):
    """A run on a sample: layers, and at each of them the source's loss and gradient as the next step sees them.

    `excess` is the population's and needs the truth, as does `deviation` = |used gradient - population gradient| (whitened, no
    regulariser); both are not a number without it. `gradient_norm` is that of the loss alone, whitened by `problem`.
    `step_factor` is what the safeguard has made of the step of the rule: 1 unless it was too long for the sample.
    """

    FORMAT = mark("attention run")
    SERIES = ("steps", "value", "key_query", "loss", "gradient_norm", "excess", "deviation", "step_factor")

    @property
    def parts(self) -> dict[str, AttentionRegression]:
        """None: on a sample it has an estimate of the problem, and `judge_layer` compares the shapes."""
        return {}

    value: np.ndarray
    key_query: np.ndarray
    loss: np.ndarray
    gradient_norm: np.ndarray
    deviation: np.ndarray
    step_factor: np.ndarray

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


def train_attention(
    source: AbstractSource,
    rule: PreconditionedDescent | AbstractAttentionRule,
    start: AttentionLayer,
    *,
    steps: int,
    recorder: Any = None,
    truth: AttentionRegression | None = None,
    throw: bool = False,
) -> AttentionRun:
    """Take `steps` steps from `start`; `truth` is what the excess is measured against.

    >>> from penchant.papers.attention_regression.setting.sample import attention_experiment
    >>> from penchant.papers.attention_regression.training.sources import Population
    >>> from penchant.training.recorders import At
    >>> found = attention_experiment()
    >>> rule = PreconditionedDescent("two_sided", 0.1)
    >>> run = train_attention(Population(found.problem), rule, found.start, steps=100, recorder=At((10,)), truth=found.problem)
    >>> f"{run.excess_at(10):.7f} {run.excess_at(100):.8f}"
    '0.0571674 0.00294268'
    """
    check_float64()
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 0:
        raise ArgumentError("steps", "train_attention", "a nonnegative integer", repr(steps))
    problem = source.problem
    problem.check_layer(start, "train_attention")
    problem.check_shape(truth, "train_attention")
    source.require(start)
    if not isinstance(rule, PreconditionedDescent | AbstractAttentionRule):
        raise ArgumentError("rule", "train_attention", "a PreconditionedDescent or a layer rule", repr(rule))
    schedule = jnp.asarray((recorder or LogSpaced()).schedule(int(steps)))
    run = _run(source, rule, start, int(steps), schedule, truth)
    if run.status not in _LOST:
        return run
    run = _with_tried_step(source, rule, start, int(steps), schedule, run)
    if throw:
        source.require(run.at())
        raise DivergenceError(_last_size(rule, run), run.safe_step, int(run.steps[-1]), run.at())
    return run


def _run(
    source: AbstractSource,
    rule: PreconditionedDescent | AbstractAttentionRule,
    start: AttentionLayer,
    steps: int,
    schedule: Array,
    truth: AttentionRegression | None,
) -> AttentionRun:
    problem, bound = source.problem, bind(rule, source.problem)
    first = bound.limited(start) if isinstance(bound, StructuredRule) else start
    state, records = scan(source, bound, truth, first, source.draws(steps + 1), schedule, safeguarded(rule, source))
    geometry = rule.geometry if isinstance(rule, PreconditionedDescent) else Euclidean()
    safe = safe_step(problem, geometry, problem.whiten(start))
    header = {"rule": settings_of(rule), "source": type(source).__name__, "steps": steps}
    return _collect(problem, records, state, safe, header)


def _last_size(rule: PreconditionedDescent | AbstractAttentionRule, run: AttentionRun) -> float:
    """The step size at the last layer of a run."""
    bound = bind(rule, run.problem)
    if isinstance(bound, StructuredRule):
        return float(run.step_factor[-1] * bound.size(run.problem.whiten(run.at())))
    return float(rule.step) if isinstance(rule, PlainDescent | LayerAdam) else np.nan


def _with_tried_step(
    source: AbstractSource,
    rule: PreconditionedDescent | AbstractAttentionRule,
    start: AttentionLayer,
    steps: int,
    schedule: Array,
    lost: AttentionRun,
) -> AttentionRun:
    """On a sample no formula says which step is safe: halve the step that failed until a run of the same length stays."""
    known = isinstance(rule, PreconditionedDescent | PlainDescent | LayerAdam)  # rules with a step size
    if not isinstance(source, FullSample | Minibatch) or not known:
        return lost
    size, found = _last_size(rule, lost), np.nan
    for halvings in range(1, _HALVINGS):
        shorter = float(f"{size / 2**halvings:.3g}")  # as it will be printed: what is advised is what was tried
        run = _run(source, _with_step(rule, shorter), start, steps, schedule, None)
        rise = 2.0 if isinstance(source, Minibatch) else 1.0  # losses of two batches differ
        if run.status is Status.out_of_steps and run.loss[-1] <= rise * run.loss[0]:
            found = shorter
            break
    return dataclasses.replace(lost, safe_step=found)


def _with_step(
    rule: PreconditionedDescent | AbstractAttentionRule, size: float
) -> PreconditionedDescent | AbstractAttentionRule:
    if isinstance(rule, PreconditionedDescent):
        return PreconditionedDescent(rule.geometry, size, rule.balance, rule.logit_limit)
    return eqx.tree_at(lambda one: one.step, rule, jnp.asarray(size))


def _collect(
    problem: AttentionRegression, records: dict[str, Array], state: State, safe: float, header: dict
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
    return whitened_gradient(source.problem, source.evaluate(layer, draw)[1]) + extra


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
    check_float64()
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
