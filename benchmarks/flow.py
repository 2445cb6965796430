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
from scipy.integrate import solve_ivp

import penchant as pt
from penchant.diagnostics.direction import misalignment
from penchant.flow.clocks import RelativeArc, origin
from penchant.problem import read
from penchant.settings.generators import random_tokens

from .machine import Limits
from .section import Section, ahead, ratio, seconds
from .timing import Timing, alternate, evaluation, once, say

SMALL, LARGE = (6, 5, 10), (20, 8, 32)
LEVELS = (1e-2, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12)
DESCENT_STEPS, EXPLICIT_STEPS = 600_000, 50_000
IMPLICIT_STEPS = {SMALL: 2_000, LARGE: 40}  # a few seconds either way

ABOUT = f"""Time until 1 - corr with the maximum-margin weight falls to a level, on attention with equal scores, logistic loss, from W = 0. diffrax is
used as its documentation suggests (PIDController, rtol 1e-6, atol 1e-9, an event at the level), once on the gradient of the loss and once on what
penchant offers it: the slope of log(L - L*) in the relative clock; LSODA (SciPy) gets that and its Jacobian. Tsit5 may take {EXPLICIT_STEPS:,} steps; Kvaerno5 {IMPLICIT_STEPS[SMALL]:,}, or {IMPLICIT_STEPS[LARGE]}
at the larger size. Normalised descent (length 0.1, compiled, ours) follows the same path with discretisation error. A failure says how far
the solver got and what it reported; "slope alone" is one compiled evaluation of the slope for each of our steps, the bound below which no solver with as many steps gets; later levels of a contestant that failed are left out."""


@dataclass(frozen=True)
class Attempt:
    """A way to reach a level: `run` does it once, `outcome` is empty if it got there and says what happened if not."""

    run: Callable[[], Any] | None
    outcome: str


Contestant = Callable[[float], Attempt]
Size = tuple[int, int, int]


def compare(limits: Limits, quick: bool) -> Section:
    first: dict[str, Timing] = {}
    rows = _ladder(SMALL, LEVELS[:3] if quick else LEVELS, first, quick)
    if not quick:
        rows += _ladder(LARGE, LEVELS[:4], {}, quick)
    compiled = "; ".join(f"{name}: {timing.median:.1f} s" for name, timing in first.items())
    notes = [
        "On the gradient of the loss a generic solver follows the right path to about t = 1e18, where the excess is below the rounding of the loss. Past it Tsit5 drifts away, and "
        "reports success at any later time: it has no means of knowing that what it integrates is rounding noise.",
        ahead(rows, "n, L, d", "1 - corr"),
        "The steps of Tsit5 are cheap, but their number grows like the margin, that is like (1 - corr)^(-1/2), where ours grows like its logarithm.",
        "Kvaerno5 factorises d² x d² systems where we factorise N x N ones.",
        "Ours also carries the physical time and the multipliers of a certificate, which the others do not.",
        f"First calls at the smaller size, with compilation: {compiled}. For a single run compilation decides.",
    ]
    return Section("flow", "Gradient flow against generic solvers", ABOUT, rows, notes)


def _ladder(size: Size, levels: tuple[float, ...], first: dict[str, Timing], quick: bool) -> list[dict[str, Any]]:
    """One row per level; `first` collects the times of first calls."""
    data = random_tokens(*size, 0, equal_scores=True)
    setting, reference = pt.Setting(data, pt.Direct(), pt.Logistic()), pt.references.max_margin(data).weight
    contestants, failed, rows = _contestants(size, setting, reference, quick), set(), []
    field = _relative_field(setting)
    slope = evaluation(lambda weight: field(0.0, weight, None), jnp.asarray(reference))
    for level in levels:
        say(f"flow: n, L, d = {size}, 1 - corr = {level:g}")
        rows.append({"n, L, d": ", ".join(map(str, size)), **_row(level, contestants, failed, first, slope)})
    return rows


def _contestants(size: Size, setting: pt.Setting, reference: np.ndarray, quick: bool) -> dict[str, Contestant]:
    found: dict[str, Contestant] = {"ours": _ours(setting, reference)}
    fields = {"loss": (_loss_field(setting.data), 1e300), "log excess": (_relative_field(setting), 60.0)}
    for name, (field, end) in fields.items():
        if size == SMALL or name == "log excess":
            found[f"Tsit5, {name}"] = _diffrax(field, diffrax.Tsit5(), end, EXPLICIT_STEPS, setting, reference)
            if not quick:
                steps = IMPLICIT_STEPS[size]
                found[f"Kvaerno5, {name}"] = _diffrax(field, diffrax.Kvaerno5(), end, steps, setting, reference)
    if size == SMALL:
        found["LSODA, log excess"] = _lsoda(_relative_field(setting), 60.0, setting, reference)
    if size == SMALL and not quick:
        found["normalised descent"] = _descent(setting, reference, DESCENT_STEPS)
    return found


def _row(
    level: float, contestants: dict[str, Contestant], failed: set[str], first: dict[str, Timing], slope: Timing
) -> dict[str, Any]:
    cells: dict[str, Any] = {}
    tasks: dict[str, Any] = {}
    for name, contestant in contestants.items():
        if name in failed:
            continue
        attempt, timing = once(lambda contestant=contestant: contestant(level))
        first.setdefault(name, timing)
        if attempt.outcome:
            failed.add(name)
            spent = f" after {seconds(once(attempt.run)[1].median)}" if attempt.run else ""
            cells[name] = f"failed{spent}: {attempt.outcome}"
        else:
            tasks[name] = attempt.run
    times = alternate(tasks, 3)
    ratios = {f"faster than {name}": ratio(times[name], times["ours"]) for name in times if name != "ours"}
    floor = {"slope alone": slope.scaled(tasks["ours"].args[0])} if "ours" in tasks else {}
    return {"1 - corr": f"{level:.0e}", **{name: (cells | times).get(name) for name in contestants}, **floor, **ratios}


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
            whole.append(train(longest, pt.training.LogSpaced(400)))
            train(1, pt.training.At(()))  # compiles for the short schedule
        return _prefix(whole[0], level, reference, lambda steps: train(steps, pt.training.At(())))

    return contestant


def _prefix(whole: Any, level: float, reference: np.ndarray, run: Callable[[int], Any]) -> Attempt:
    """The run up to its first record at the level."""
    for record in np.flatnonzero(whole.norm > 0):
        if misalignment(whole.weight(int(record)), reference) <= level:
            return Attempt(partial(run, int(whole.steps[record])), "")
    last = misalignment(whole.weight(), reference)
    return Attempt(None, f"1 - corr {last:.1e}, {int(whole.steps[-1]):,} steps")


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
            run, f"1 - corr {got:.1e}, t = {float(solution.ts[-1]):.0e}, {taken:,} steps, reports {reported}"
        )

    return contestant


def _lsoda(field: Any, end: float, setting: pt.Setting, reference: np.ndarray) -> Contestant:
    """SciPy's, with compiled field and exact Jacobian, to the tolerances of the others."""
    shape, unit = np.shape(setting.start()), np.ravel(reference / np.linalg.norm(reference))
    slope = jax.jit(lambda t, y: jnp.ravel(field(t, y.reshape(shape), None)))
    jacobian = jax.jit(jax.jacfwd(slope, argnums=1))

    def contestant(level: float) -> Attempt:
        away = lambda t, y: 0.5 * np.sum((y / np.linalg.norm(y) - unit) ** 2) - level if y.any() else 1.0
        away.terminal = True
        run = lambda: solve_ivp(
            lambda t, y: np.asarray(slope(t, y)),
            (0.0, end),
            np.zeros(len(unit)),
            method="LSODA",
            jac=lambda t, y: np.asarray(jacobian(t, y)),
            events=away,
            rtol=1e-6,
            atol=1e-9,
        )
        found = run()
        got = misalignment(found.y[:, -1].reshape(shape), reference)
        return Attempt(run, "" if found.status == 1 else f"1 - corr {got:.1e}, {len(found.t):,} steps: {found.message}")

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
        speed = clock.speed(reading, norm, jnp.zeros(()), jnp.zeros(()), scales)
        return -speed * jnp.exp(-reading.log_slope_norm) * reading.slope

    return field
