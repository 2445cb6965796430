"""Flow of a deep linear network: time to risk e^-100000 at equal accuracy, against generic stiff solvers on the same problem."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy.integrate import solve_ivp

import penchant as pt
from penchant.diagnostics.alignment import clock_error, conservation_drift
from penchant.problem import read
from penchant.settings.deep_linear import ensure_assumption2
from penchant.settings.generators import strips, teacher

from .machine import Limits
from .section import Section, ahead, ratio
from .timing import Timing, alternate, evaluation, once, say

LEVEL = 1e5
LADDER = tuple(10.0**-k for k in range(4, 13))
ACCURACIES = (1e-5, 1e-7, 1e-9)
MOST_STEPS = 50_000
WIDE = 32
PEERS = ("Kvaerno5", "LSODA")

ABOUT = f"""Time until the risk is e^-{LEVEL:.0f}, networks of four layers on two strips in the plane, exponential loss. Everyone integrates the same path to the same point;
the generic solvers get what penchant offers them, the slope of log R in the clock x = log(1 + drop of log R), with compiled field and exact Jacobian (forward
differentiation). Of the tolerances {LADDER[0]:.0e}, {LADDER[1]:.0e}, ... each contestant uses the loosest with which its layers are right to the stated relative accuracy
(Frobenius norm of all layers, against LSODA with tolerance 1e-13, or 1e-8 for the wide network); absolute tolerances are a hundredth of the relative ones. "slope alone" is one evaluation of that slope, compiled, for each of our steps: the bound below which no solver with as many steps gets. The rows below
are our own times for longer runs, with the drift of what the exact flow conserves."""


def problem(depth: int, width: int, data: Any = None, scale: float = 0.4) -> tuple[pt.Setting, Any]:
    setting = pt.Setting(strips(0) if data is None else data, pt.DeepLinear((width,) * (depth - 1)), pt.Exponential())
    return setting, ensure_assumption2(setting, setting.start(1, scale))


@dataclass(frozen=True)
class Problem:
    """The flow in the clock x, as functions of flat parameters."""

    setting: pt.Setting
    start: Any
    flat: np.ndarray
    end: float
    field: Callable[[Any, jax.Array], jax.Array]
    restore: Callable[[jax.Array], Any]


def prepare(width: int) -> Problem:
    setting, start = problem(4, width, scale=0.4 if width == 8 else 1 / width**0.5)
    flat, restore = ravel_pytree(start)
    first = -float(read(setting, start).log_excess)

    def field(x: Any, point: jax.Array) -> jax.Array:
        reading = read(setting, restore(point))
        return -jnp.exp(x - 2 * reading.log_slope_norm) * ravel_pytree(reading.slope)[0]

    return Problem(setting, start, np.asarray(flat), float(np.log1p(LEVEL - first)), field, restore)


def _follow(at: Problem, tolerance: float) -> Any:
    flow = pt.GradientFlow(tolerance=tolerance, margin_tolerance=min(1e-4, 100 * tolerance), order=8)
    return pt.train(at.setting, flow, at.start, until=pt.LogExcessBelow(-LEVEL), steps=MOST_STEPS)


def _ours(at: Problem) -> Callable[[float], np.ndarray]:
    return lambda tolerance: np.asarray(ravel_pytree(_follow(at, tolerance).at())[0])


def _floor(at: Problem, tolerance: float) -> Timing:
    """One evaluation of the slope for each step of ours."""
    slope = evaluation(lambda point: at.field(0.0, point), jnp.asarray(at.flat))
    return slope.scaled(int(_follow(at, tolerance).steps[-1]))


def _kvaerno(at: Problem) -> Callable[[float], np.ndarray]:
    @eqx.filter_jit
    def solve(tolerance: jax.Array) -> diffrax.Solution:
        return diffrax.diffeqsolve(
            diffrax.ODETerm(lambda x, point, _: at.field(x, point)),
            diffrax.Kvaerno5(),
            t0=0.0,
            t1=at.end,
            dt0=None,
            y0=jnp.asarray(at.flat),
            stepsize_controller=diffrax.PIDController(rtol=tolerance, atol=tolerance / 100),
            max_steps=MOST_STEPS,
            throw=False,
        )

    return lambda tolerance: np.asarray(solve(jnp.asarray(tolerance)).ys[-1])


def _lsoda(at: Problem) -> Callable[[float], np.ndarray]:
    field = jax.jit(at.field)
    jacobian = jax.jit(jax.jacfwd(at.field, argnums=1))

    def solve(tolerance: float) -> np.ndarray:
        found = solve_ivp(
            lambda x, point: np.asarray(field(x, point)),
            (0.0, at.end),
            at.flat,
            method="LSODA",
            jac=lambda x, point: np.asarray(jacobian(x, point)),
            rtol=tolerance,
            atol=tolerance / 100,
        )
        return found.y[:, -1]

    return solve


def compare(limits: Limits, quick: bool) -> Section:
    rows = _race(8, ACCURACIES[:1] if quick else ACCURACIES, 1e-13, ("ours", *PEERS))
    if not quick:  # one run of Kvaerno5 with this many parameters takes minutes
        rows += _race(WIDE, ACCURACIES[:1], 1e-8, ("ours", "LSODA"))
    rows += _long(quick)
    notes = [
        ahead(rows, "task"),
        "The generic solvers factorise systems as large as the number of parameters, ours are n x n.",
        "Only ours lands on the risk level exactly, and carries physical time and multipliers along.",
    ]
    return Section("deep_linear", "Deep linear networks: flow to risk e^-100000", ABOUT, rows, notes)


def _race(width: int, accuracies: tuple[float, ...], finest: float, names: tuple[str, ...]) -> list[dict[str, Any]]:
    at = prepare(width)
    makers = {"ours": _ours, "Kvaerno5": _kvaerno, "LSODA": _lsoda}
    contestants = {name: makers[name](at) for name in names}
    say(f"deep_linear: reference, width {width}")
    truth = contestants["LSODA"](finest)
    errors = {name: _errors(name, solve, truth, min(accuracies)) for name, solve in contestants.items()}
    rows = []
    for accuracy in accuracies:
        chosen = {name: _loosest(found, accuracy) for name, found in errors.items()}
        tasks = {
            name: (lambda name=name, tolerance=tolerance: contestants[name](tolerance))
            for name, tolerance in chosen.items()
            if tolerance is not None
        }
        say(f"deep_linear: accuracy {accuracy:g}")
        times = alternate(tasks, 5)
        tolerances = ("none" if tolerance is None else f"{tolerance:.0e}" for tolerance in chosen.values())
        rows.append(
            {
                "task": f"2-{width}-{width}-{width}-1 to e^-1e5, accuracy {accuracy:.0e}",
                "parameters": len(at.flat),
                **{name: times.get(name) for name in contestants},
                **{f"faster than {name}": ratio(times[name], times["ours"]) for name in PEERS if _both(times, name)},
                "slope alone": _floor(at, chosen["ours"]) if chosen["ours"] is not None else None,
                "tolerances": ", ".join(tolerances),
            }
        )
    return rows


def _both(times: dict[str, Timing], name: str) -> bool:
    return name in times and "ours" in times


def _errors(name: str, solve: Callable[[float], np.ndarray], truth: np.ndarray, best: float) -> dict[float, float]:
    """Relative error by tolerance, from loose to tight until the best accuracy asked for is reached."""
    found: dict[float, float] = {}
    for tolerance in LADDER:
        error = float(np.linalg.norm(solve(tolerance) - truth) / np.linalg.norm(truth))
        found[tolerance] = error if np.isfinite(error) else np.inf
        say(f"deep_linear: {name}, tolerance {tolerance:.0e}: error {error:.1e}")
        if error <= best:
            break
    return found


def _loosest(errors: dict[float, float], accuracy: float) -> float | None:
    return next((tolerance for tolerance, error in errors.items() if error <= accuracy), None)


def _long(quick: bool) -> list[dict[str, Any]]:
    """Our own longer runs: the network of the race ten times further, and a wide one."""
    runs = {"2-8-8-8-1 to e^-1e6": (problem(4, 8), 1e6)}
    if not quick:
        wide = problem(4, 64, teacher(200, 32, 0, push=0.2), 0.1)
        runs["n = 200, 32-64-64-64-1 to e^-1e4"] = (wide, 1e4)
    return [_far(name, *where, level) for name, (where, level) in runs.items()]


def _far(name: str, setting: pt.Setting, start: Any, level: float) -> dict[str, Any]:
    say(f"deep_linear: {name}")
    flow = pt.GradientFlow(pt.flow.RelativeDrop(), tolerance=1e-8, margin_tolerance=1e-6, order=6)
    first = once(lambda: pt.train(setting, flow, start, steps=1))[1]
    run, time = once(lambda: pt.train(setting, flow, start, until=pt.LogExcessBelow(-level), steps=MOST_STEPS))
    return {
        "task": name,
        "ours": time,
        "first call": first,
        "steps": int(run.steps[-1]),
        "ended": run.status.name,
        "conservation drift": float(conservation_drift(run).max()),
        "clock error": clock_error(run),
    }
