"""Gradient flow: time to a given accuracy of the direction, against generic solvers and against normalised descent."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import penchant as pt
from penchant.diagnostics.direction import misalignment
from penchant.flow.clocks import RelativeArc, origin
from penchant.reading import read
from penchant.settings.generators import random_tokens

from .machine import Limits
from .section import Section, ratio
from .timing import Timing, alternate, once, say

SIZE = (6, 5, 10)
LEVELS = (1e-2, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12)
DESCENT_STEPS = 600_000
EXPLICIT_STEPS, IMPLICIT_STEPS = 200_000, 2_000  # a few seconds of either solver

ABOUT = f"""Time until 1 - corr with the maximum-margin weight falls to a level, on attention with n, L, d = {", ".join(map(str, SIZE))}, equal scores,
logistic loss, from W = 0. diffrax is used as its documentation suggests (PIDController, rtol 1e-6, atol 1e-9, an event at the level, at most
{EXPLICIT_STEPS:,} steps of Tsit5 and {IMPLICIT_STEPS:,} of Kvaerno5), once on the gradient of the loss and once on what penchant offers it: the slope
of log(L - L*) in the relative clock. Normalised descent (length 0.1, compiled, ours) follows the same path with discretisation error.
A failure says what the solver reported and how far it got; later levels of a failed contestant are left out."""


@dataclass(frozen=True)
class Attempt:
    """A way to reach a level: `run` does it once, `outcome` is empty if it got there and says what happened if not."""

    run: Callable[[], Any]
    outcome: str


Contestant = Callable[[float], Attempt]


def compare(limits: Limits, quick: bool) -> Section:
    data = random_tokens(*SIZE, 0, equal_scores=True)
    setting, reference = pt.Setting(data, pt.Direct(), pt.Logistic()), pt.max_margin(data).weight
    contestants: dict[str, Contestant] = {"ours": _ours(setting, reference)}
    for name, field, end in (("loss", _loss_field(data), 1e300), ("log excess", _relative_field(setting), 60.0)):
        contestants[f"Tsit5, {name}"] = _diffrax(field, diffrax.Tsit5(), end, EXPLICIT_STEPS, setting, reference)
        if not quick:
            contestants[f"Kvaerno5, {name}"] = _diffrax(
                field, diffrax.Kvaerno5(), end, IMPLICIT_STEPS, setting, reference
            )
    if not quick:
        contestants["normalised descent"] = _descent(setting, reference, DESCENT_STEPS)
    rows, failed, first = [], set(), {}
    for level in LEVELS[:3] if quick else LEVELS:
        say(f"flow: 1 - corr = {level:g}")
        rows.append(_row(level, contestants, failed, first))
    compiled = ", ".join(f"{name} {timing.median:.1f} s" for name, timing in first.items())
    notes = [
        "On the gradient of the loss a generic solver works until the excess nears the rounding of the loss; past it Tsit5 may even report success with a wrong "
        "direction, because a gradient of rounding noise integrates without error.",
        "Given the slope of log(L - L*) in the relative clock, Tsit5 is faster than ours at low accuracy: its steps are cheap, and their number grows like the margin, that "
        "is like (1 - corr)^(-1/2), where ours grows like its logarithm. Kvaerno5 also takes few steps, but factorises d² x d² systems where ours factorises N x N ones.",
        "Our steps are dispatched from Python one at a time, at about the cost of their arithmetic on this size; the gain shrinks to nothing where a few hundred explicit steps suffice.",
        f"First calls, with compilation: {compiled}.",
    ]
    return Section("flow", "Gradient flow against generic solvers", ABOUT, rows, notes)


def _row(
    level: float, contestants: dict[str, Contestant], failed: set[str], first: dict[str, Timing]
) -> dict[str, Any]:
    cells: dict[str, Any] = {}
    tasks: dict[str, Callable[[], Any]] = {}
    for name, contestant in contestants.items():
        if name in failed:
            continue
        attempt, timing = once(lambda contestant=contestant: contestant(level))
        first.setdefault(name, timing)
        if attempt.outcome:
            failed.add(name)
            cells[name] = attempt.outcome
        else:
            tasks[name] = attempt.run
    times = alternate(tasks, 3)
    ratios = {f"faster than {name}": ratio(times[name], times["ours"]) for name in times if name != "ours"}
    return {"1 - corr": f"{level:.0e}", **{name: (cells | times).get(name) for name in contestants}, **ratios}


def _ours(setting: pt.Setting, reference: np.ndarray) -> Contestant:
    whole: list[Any] = []  # followed once to the end, to learn how many steps each level takes

    def contestant(level: float) -> Attempt:
        if not whole:
            whole.append(pt.train(setting, pt.GradientFlow(), until=pt.MarginAbove(3e6)))
        return _prefix(whole[0], level, reference, lambda steps: pt.train(setting, pt.GradientFlow(), steps=steps))

    return contestant


def _descent(setting: pt.Setting, reference: np.ndarray, longest: int) -> Contestant:
    whole: list[Any] = []

    def train(steps: int, recorder: Any) -> Any:
        return pt.train(setting, pt.normalised_descent(0.1), steps=steps, recorder=recorder)

    def contestant(level: float) -> Attempt:
        if not whole:
            whole.append(train(longest, pt.LogSpaced(400)))
            train(1, pt.At(()))  # compiles for the short schedule
        return _prefix(whole[0], level, reference, lambda steps: train(steps, pt.At(())))

    return contestant


def _prefix(whole: Any, level: float, reference: np.ndarray, run: Callable[[int], Any]) -> Attempt:
    """The run up to its first record at the level."""
    for record in np.flatnonzero(whole.norm > 0):
        if misalignment(whole.weight(int(record)), reference) <= level:
            return Attempt(partial(run, int(whole.steps[record])), "")
    last = misalignment(whole.weight(), reference)
    return Attempt(lambda: None, f"{last:.1e} after {int(whole.steps[-1]):,} steps")


def _diffrax(field: Any, solver: Any, end: float, steps: int, setting: pt.Setting, reference: np.ndarray) -> Contestant:
    unit = jnp.asarray(reference / np.linalg.norm(reference))

    @eqx.filter_jit
    def solve(level: jax.Array) -> diffrax.Solution:
        reached = lambda t, y, args, **_: 0.5 * jnp.sum((y / jnp.linalg.norm(y) - unit) ** 2) <= level
        return diffrax.diffeqsolve(
            diffrax.ODETerm(field),
            solver,
            t0=0.0,
            t1=end,
            dt0=None,
            y0=setting.start(),
            stepsize_controller=diffrax.PIDController(rtol=1e-6, atol=1e-9),
            event=diffrax.Event(reached),
            max_steps=steps,
            throw=False,
        )

    def contestant(level: float) -> Attempt:
        run = lambda: jax.block_until_ready(solve(jnp.asarray(level)))
        solution = run()
        if solution.result == diffrax.RESULTS.event_occurred:
            return Attempt(run, "")
        got, taken = misalignment(solution.ys[-1], reference), int(solution.stats["num_steps"])
        reported = "success" if solution.result == diffrax.RESULTS.successful else "out of steps"
        return Attempt(
            run, f"failed: 1 - corr {got:.1e}, t = {float(solution.ts[-1]):.0e}, {taken:,} steps, reports {reported}"
        )

    return contestant


def _loss_field(data: Any) -> Any:
    def loss(weight: jax.Array) -> jax.Array:
        attention = jax.nn.softmax(data.logits(weight), axis=1)
        return jnp.mean(jax.nn.softplus(-jnp.sum(attention * data.scores, axis=1)))

    return lambda t, y, args: -jax.grad(loss)(y)


def _relative_field(setting: pt.Setting) -> Any:
    """The field our own flow follows, built from the public reading and clock."""
    clock, scales = RelativeArc(), origin(read(setting, setting.start()))

    def field(t: Any, weight: jax.Array, args: Any) -> jax.Array:
        reading, square = read(setting, weight), jnp.sum(weight**2)
        norm = jnp.where(
            square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0
        )  # differentiable at 0, for Kvaerno5
        speed = clock.speed(reading, norm, jnp.zeros(()), scales)
        return -speed * jnp.exp(-reading.log_slope_norm) * reading.slope

    return field
