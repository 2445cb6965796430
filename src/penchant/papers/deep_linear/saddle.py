"""The saddle at zero: appendix A, balanced starts, and the one curve of balanced starts that ends in the saddle."""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from scipy.integrate import solve_ivp
from scipy.special import exp1

from ...lab import Lab, claim, recipe
from ...settings.deep_linear import balanced
from ...training.events import LogExcessBelow
from ...training.train import train
from ...verdict import Verdict, at_least, at_most, close
from .evidence import DERIVED, TIGHT, mirrored_flow, problem
from .theorems import JI


@claim("deep-linear/saddle", f"{JI}, appendix A", "proved", slow=True)
def appendix(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """From w1 = -w2 the risk e^-<w1, w2> falls to 1 and never below.
    w1(0) = -w2(0): q = |w1|^2 obeys E1(q) = E1(q0) + 2t, and the risk e^q stays above 1."""
    for time, rounding in ((0.1, 4e-14), (1.0, 1e-13)):  # dE1/dq = -13 at the second
        run = mirrored_flow(lab, float(np.log(time)))
        square = float(np.sum(run.at()[0] ** 2))
        error = abs(float(exp1(square)) - float(exp1(1.3)) - (1 if planted else 2) * time)
        yield at_most(error, rounding, f"|E1(q) - E1(q0) - 2t| at t = {time}")
        yield at_least(float(run.log_excess[-1]), 0.0, "log R")


@claim("deep-linear/balanced", f"{JI}, consequence of equation (2)", "ours", slow=True)
def balanced_rank_one(lab: Lab, planted: bool) -> Verdict:
    """Balanced starts keep every layer of rank one.
    From a balanced start every layer keeps rank one."""
    setting, start = problem(lab, 3)
    start = start if planted else balanced(setting, 0, np.array([-0.1, 0.3]))
    run = train(setting, TIGHT, start, until=LogExcessBelow(-1e3), steps=20_000)
    sizes = [np.linalg.svd(layer, compute_uv=False) for layer in run.at()[:-1]]
    worst = max(float(size[1] / size[0]) for size in sizes)
    return at_most(worst, 1e-15, "largest second singular value over the first at risk e^-1000")


RISK = 0.1  # that counts as escaped
_STEP, _NEAR = 0.05, 1e-9  # of the integration of the map, and from the saddle where its curve begins


@recipe
def _signed(lab: Lab) -> np.ndarray:
    return np.asarray(problem(lab, 2, logistic=True)[0].data.signed)


def log_risk(lab: Lab, weights: np.ndarray) -> np.ndarray:
    """log of the logistic risk of every row."""
    return np.log(np.logaddexp(0.0, -weights @ _signed(lab).T).mean(axis=-1))


def velocity(lab: Lab, weights: np.ndarray) -> np.ndarray:
    """The flow of the product of two balanced layers, for every row: |w| (-grad R) plus as much again along w."""
    gradient = -(1 / (1 + np.exp(weights @ _signed(lab).T))) @ _signed(lab) / len(_signed(lab))
    size = np.linalg.norm(weights, axis=-1, keepdims=True)
    along = np.sum(weights * gradient, axis=-1, keepdims=True)
    return -size * gradient - weights * along / size


def escape_times(lab: Lab, starts: np.ndarray, end: float) -> np.ndarray:
    """When each balanced start reaches risk 0.1, by Runge-Kutta steps for all at once; nan if not before `end`."""
    now = log_risk(lab, starts)
    times = np.where(now <= np.log(RISK), 0.0, np.nan)
    open_ = np.flatnonzero(np.isnan(times))
    weights, now = starts[open_], now[open_]
    for step in range(round(end / _STEP)):
        a = velocity(lab, weights)
        b = velocity(lab, weights + _STEP / 2 * a)
        c = velocity(lab, weights + _STEP / 2 * b)
        d = velocity(lab, weights + _STEP * c)
        weights = weights + _STEP / 6 * (a + 2 * b + 2 * c + d)
        before, now = now, log_risk(lab, weights)
        done = now <= np.log(RISK)
        part = (before[done] - np.log(RISK)) / (before[done] - now[done])
        times[open_[done]] = _STEP * (step + part)
        weights, now, open_ = weights[~done], now[~done], open_[~done]
        if not len(open_):
            break
    return times


def descent_at_zero(lab: Lab) -> np.ndarray:
    """-grad R at weight 0."""
    return _signed(lab).mean(axis=0) / 2


def until(event: Callable[[np.ndarray], float]) -> Callable[[float, np.ndarray], float]:
    """An event of SciPy's integration in time that ends it."""
    found = lambda t, w: event(w)
    found.terminal = True  # pyright: ignore[reportFunctionMemberAccess]
    return found


@recipe
def stable_curve(lab: Lab, size: float) -> np.ndarray:
    """The balanced starts that end in the saddle, out to norm `size`: followed backwards in time from its only stable direction, which then attracts."""
    unit = descent_at_zero(lab) / np.linalg.norm(descent_at_zero(lab))
    back = lambda t, w: -velocity(lab, w[None])[0]
    beyond = until(lambda w: float(np.linalg.norm(w)) - size)
    exact = partial(solve_ivp, method="DOP853", rtol=1e-12, atol=1e-22, max_step=1.0)
    return exact(back, (0, 1e4), -_NEAR * unit, events=beyond).y.T


def _escape_time(lab: Lab, start: np.ndarray) -> float:
    reached = until(lambda w: float(log_risk(lab, w[None])[0]) - np.log(RISK))
    ahead = lambda t, w: velocity(lab, w[None])[0]
    found = solve_ivp(ahead, (0, 1e4), start, method="DOP853", rtol=1e-11, atol=1e-20, events=reached)
    return float(found.t_events[0][0])


@claim("deep-linear/stable-curve", f"{DERIVED}; starts above the risk of zero are open there", "ours", slow=True)
def curve_times(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Of the balanced starts of two layers in the plane those on one curve never leave the saddle; near it the escape time grows like 2 log(1/distance) / |grad R(0)|.
    Escape times on both sides of the curve at two distances from it; the twin counts the way into the saddle and not the way out."""
    rate = float(np.linalg.norm(descent_at_zero(lab)))
    for size in (0.5, 6.0):
        point = stable_curve(lab, size)[-1]
        along = velocity(lab, point[None])[0]
        across = np.array([-along[1], along[0]]) / np.linalg.norm(along)
        for side in (1, -1):
            near, far = (_escape_time(lab, point + side * distance * across) for distance in (1e-5, 1e-4))
            name = f"|w| = {size:g}, {'left' if side > 0 else 'right'}: growth of the escape time per log(1/distance)"
            yield close((near - far) / np.log(10), (1 if planted else 2) / rate, 1e-4, name)
