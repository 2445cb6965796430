"""Training of attention layers: structure-aware preconditioned descent from a spectral start (Algorithm 1), its baselines, and the same on the population.

A run is one compiled loop. It never raises because of what the numbers do: a step that would leave every bounded region is not
taken, the status says so, and the last finite layer stays. `throw=True` turns that ending into a `DivergedRun`. On samples
the steps "default" and "adaptive" are halved until the objective of the sample falls; a number is taken as it is.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ....errors import ArgumentError, AssumptionError, DivergedRun, warn
from ....logspace import check_float64
from ....training.events import At, Every, LogSpaced
from ....training.loop import check_steps, collect, drive_many, drive_one
from ....training.status import Status
from ....training.trajectory import settings_of
from ..setting.problem import AttentionLayer, AttentionRegression
from ..setting.sample import KEYS, AttentionSample, spectral_layer, unreliable
from ..theorems import centred_inputs, check_assumptions, failures
from .rules import PreconditionedDescent, Rule, step_warning
from .run import AttentionRun, Descent, TriedDescent
from .sources import AbstractSource, FullSample, Minibatch, Population
from .steps import safe_step

Recorder = LogSpaced | Every | At

_LOST = (Status.diverging_step, Status.not_finite)


def train_attention(
    source: AbstractSource,
    rule: Rule,
    start: AttentionLayer,
    *,
    steps: int,
    recorder: Recorder | None = None,
    truth: AttentionRegression | None = None,
    throw: bool = False,
) -> AttentionRun:
    """Take `steps` steps from `start`; `truth` is what the excess is measured against.

    With `throw`, a run that diverges raises `DivergedRun` (with the run and a safe step)
    instead of ending with the status `diverging_step`.
    """
    schedule = _schedule(source, rule, [start], steps, recorder, "train_attention")
    source.problem.check_shape(truth, "train_attention")
    bound, draws = rule.bind(source.problem), source.draws(int(schedule[-1]) + 1)
    make = TriedDescent if rule.tried_on(source.rows) else Descent
    state, records = drive_one(make(source, bound, truth, bound.limited(start), draws), schedule)
    run = _described(source, rule, start, schedule, (state.status, records))
    if throw and run.status in _LOST:
        fix = f"The step size {float(run.step_size[-1]):.3g} is too large.\n  Fix: a step below {run.safe_step:.3g}."
        raise DivergedRun(run, run.status.name, int(run.steps[-1]), fix)
    return run


def train_population(
    problem: AttentionRegression, rule: Rule, start: AttentionLayer, *, steps: int, recorder: Recorder | None = None
) -> AttentionRun:
    """Descend on the population for `steps` steps."""
    return train_populations(problem, rule, [start], steps=steps, recorder=recorder)[0]


def train_populations(
    problem: AttentionRegression,
    rule: Rule,
    starts: Sequence[AttentionLayer],
    *,
    steps: int,
    recorder: Recorder | None = None,
) -> list[AttentionRun]:
    """The same from several starts at once, in one vectorised run."""
    source, owner = Population(problem), "train_population"
    if not starts:
        raise ArgumentError("start", owner, "at least one layer", "an empty list")
    schedule, bound = _schedule(source, rule, starts, steps, recorder, owner), rule.bind(problem)
    begin = jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(bound.limited, starts))
    parts = (source, bound, problem, begin, None)
    states, records = jax.tree.map(np.asarray, drive_many(Descent, (None, None, None, 0, None), parts, schedule))
    one = lambda k: (states.status[k], {name: values[k] for name, values in records.items()})
    return [_described(source, rule, start, schedule, one(k)) for k, start in enumerate(starts)]


def _schedule(
    source: AbstractSource,
    rule: Rule,
    starts: Sequence[AttentionLayer],
    steps: int,
    recorder: Recorder | None,
    owner: str,
) -> Array:
    """When to look, once the arguments are known to make sense."""
    check_float64()
    if not isinstance(rule, Rule):
        raise ArgumentError("rule", owner, "a PreconditionedDescent or a layer rule", repr(rule))
    for start in starts:
        source.problem.check_layer(start, owner)
    return jnp.asarray((recorder or LogSpaced()).schedule(check_steps(steps, owner)))


def _described(
    source: AbstractSource, rule: Rule, start: AttentionLayer, schedule: Array, found: tuple[PyTree, dict[str, PyTree]]
) -> AttentionRun:
    problem, (series, ending) = source.problem, collect(*found)
    safe = safe_step(problem, rule.geometry, problem.whiten(start))
    header = {"rule": settings_of(rule), "source": type(source).__name__, "steps": int(schedule[-1])}
    return AttentionRun(problem, series, estimated=bool(source.rows), status=ending, safe_step=safe, header=header)


def algorithm1(
    sample: AttentionSample,
    *,
    steps: int,
    paper: bool = False,
    gauge: str = "identity",
    batch: int | None = None,
    keys: str = "batch",
    rule: PreconditionedDescent | None = None,
    recorder: Recorder | None = None,
    truth: AttentionRegression | None = None,
    strict: bool = False,
) -> AttentionRun:
    """Spectral start, then preconditioned descent on all samples, or on minibatches of `batch` with keys from the batch (`keys="full"`: from all samples).

    The default rule is two-sided with the step 1/(4 s_1) of the estimated map; `paper=True` takes the one-sided
    preconditioner that the paper's text describes. Hypotheses that the sample shows to fail are a warning, with `strict` an
    `AssumptionError`; `advise` has them all.
    """
    check_float64()
    if keys not in KEYS:
        raise ArgumentError("keys", "algorithm1", f"one of {', '.join(KEYS)}", repr(keys))
    known = check_assumptions(sample.estimated, samples=sample.size, strict=False)
    failed = failures((*known, centred_inputs(sample.inputs)))
    if failed and strict:
        raise AssumptionError("algorithm1", failed, "`strict=False` trains all the same, with a warning")
    rule = PreconditionedDescent("left" if paper else "two_sided") if rule is None else rule
    doubts = (*unreliable(sample), *(filter(None, [step_warning(sample.estimated, rule)])))
    if failed:
        warn("Outside the theorems of `algorithm1`: " + "; ".join(failed) + ".")
    if doubts:
        warn("Predictions for `algorithm1` are unreliable here: " + "; ".join(doubts) + ".")
    source = FullSample(sample) if batch is None else Minibatch(sample, batch, keys=keys)
    start = spectral_layer(sample.estimated, gauge)
    return train_attention(source, rule, start, steps=steps, recorder=recorder, truth=truth)
