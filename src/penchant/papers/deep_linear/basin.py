"""Balanced starts of two layers above the risk of zero: the plane of their products, the one curve that ends in the saddle, and escape times around it."""

from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

from ...lab import Lab, claim, recipe
from ...verdict import Verdict, all_of, close
from .evidence import problem
from .laws import DERIVED

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


@recipe
def stable_curve(lab: Lab, size: float) -> np.ndarray:
    """The balanced starts that end in the saddle, out to norm `size`: followed backwards in time from its only stable direction, which then attracts."""
    unit = descent_at_zero(lab) / np.linalg.norm(descent_at_zero(lab))
    beyond: Any = lambda t, w: np.linalg.norm(w) - size
    beyond.terminal = True
    back = lambda t, w: -velocity(lab, w[None])[0]
    found = solve_ivp(
        back, (0, 1e4), -_NEAR * unit, method="DOP853", rtol=1e-12, atol=1e-22, max_step=1.0, events=beyond
    )
    return found.y.T


def _escape_time(lab: Lab, start: np.ndarray) -> float:
    reached: Any = lambda t, w: float(log_risk(lab, w[None])[0]) - np.log(RISK)
    reached.terminal = True
    ahead = lambda t, w: velocity(lab, w[None])[0]
    return float(
        solve_ivp(ahead, (0, 1e4), start, method="DOP853", rtol=1e-11, atol=1e-20, events=reached).t_events[0][0]
    )


@claim(
    "deep-linear/stable-curve",
    "Of the balanced starts of two layers in the plane those on one curve never leave the saddle; near it the escape time grows like 2 log(1/distance) / |grad R(0)|.",
    f"{DERIVED}; starts above the risk of zero are open there",
    kind="ours",
    slow=True,
)
def curve_times(lab: Lab, planted: bool) -> Verdict:
    """Escape times on both sides of the curve at two distances from it; the twin counts the way into the saddle and not the way out."""
    rate, checks = float(np.linalg.norm(descent_at_zero(lab))), []
    for size in (0.5, 6.0):
        point = stable_curve(lab, size)[-1]
        along = velocity(lab, point[None])[0]
        across = np.array([-along[1], along[0]]) / np.linalg.norm(along)
        for side in (1, -1):
            near, far = (_escape_time(lab, point + side * distance * across) for distance in (1e-5, 1e-4))
            name = f"|w| = {size:g}, {'left' if side > 0 else 'right'}: growth of the escape time per log(1/distance)"
            checks.append(close((near - far) / np.log(10), (1 if planted else 2) / rate, 1e-4, name))
    return all_of(*checks)
