r"""The largest margin of pairs in a norm, by an interior point whose system is of the size of the pairs that may be active.

With the weight inside the unit ball (`primal`): max t, margins = t + s, s >= 0, |W| <= 1. With the pull of the multipliers inside it: max sum lam,
|sum_k lam_k Z_k| <= 1, lam >= 0, W the multiplier of the ball. Either way $W = W_0 + K \sum_k \lambda_k Z_k$ with K from the ball, and
Newton's step on slack * multiplier = mu is a system in the multipliers alone, with Mehrotra's choice of mu and second-order terms.
Pairs enter it when their margin comes near the smallest one, and stay: the few that leave too early jolt the others when they come back.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from ..norms import Norm
from .balls import Ball, distance

_ROUNDS = 200
_SHARE = 0.97  # of the way to the boundary
_PATIENCE = 12  # rounds without a better bound
_FIRST, _WANTED = 6, 600  # pairs to begin with, per sample and altogether
_USED = 0.05  # share of the largest multiplier, and slack, from which a way that starts near its end begins
_REFINED = 3  # solutions of one system, each for what the ones before have missed
_DRIFT = 1e-13  # relative, of pulls that differ by rounding alone
_NEAR, _GROWTH = 0.1, 100  # quantile of slacks below which a pair enters, and how many at once
_JOLT = 10.0  # typical slacks that a pair may lack before all make room for it
_SETTLED = 0.5  # gap of a working set without a ball around it, above which it stays as it is
_POSITIVE = 0.1  # a smallest margin from which a weight can be scaled up to what it lacks


class Pairs(NamedTuple):
    """Features left_k inputs_{sample k}'."""

    left: np.ndarray
    inputs: np.ndarray
    sample: np.ndarray

    def margins(self, weight: np.ndarray) -> np.ndarray:
        return np.einsum("ka,ka->k", self.left, (self.inputs @ weight.T)[self.sample])

    def gather(self, multipliers: np.ndarray) -> np.ndarray:
        used = np.flatnonzero(multipliers)
        shares = np.zeros((len(self.inputs), self.left.shape[1]))
        np.add.at(shares, self.sample[used], multipliers[used, None] * self.left[used])
        return shares.T @ self.inputs

    def lengths(self) -> np.ndarray:
        return np.linalg.norm(self.left, axis=1) * np.linalg.norm(self.inputs, axis=1)[self.sample]

    def some(self, kept: np.ndarray) -> "Pairs":
        """Some of the pairs, with the inputs that these use."""
        used, sample = np.unique(self.sample[kept], return_inverse=True)
        return Pairs(self.left[kept], self.inputs[used], sample)


class Found(NamedTuple):
    weight: np.ndarray
    multipliers: np.ndarray
    gap: float


class _State(NamedTuple):
    ball: Ball
    weight: np.ndarray
    level: float
    slack: np.ndarray
    multipliers: np.ndarray


class Certificate:
    """The best weight and the best multipliers so far: each bounds the optimum on its side, whoever found the other."""

    def __init__(self, pairs: Pairs, norm: Norm):
        self.pairs, self.norm, self.lower, self.upper = pairs, norm, 0.0, np.inf
        self.weight = self.multipliers = np.zeros(0)

    def offer(self, weight: np.ndarray, reached: np.ndarray, multipliers: np.ndarray) -> float:
        size, shares = self.norm.value(weight), multipliers / multipliers.max()  # of which sums do not overflow
        if size > 0 and reached.min() / size > self.lower:
            self.lower, self.weight = float(reached.min() / size), weight
        mass, pull = shares.sum(), self.norm.dual(self.pairs.gather(shares))
        if pull / mass < self.upper:
            self.upper, self.multipliers = float(pull / mass), shares / (pull or 1.0)
        return self.upper / self.lower - 1 if self.lower > 0 else np.inf

    def alone(self, weight: np.ndarray, reached: float, multipliers: np.ndarray) -> float:
        """The gap of a working set, whose smallest margin is `reached`, as if there were no other pairs."""
        if not reached > 0:
            return np.inf
        pull = self.norm.dual(self.pairs.gather(multipliers)) / multipliers.sum()
        return float(pull * self.norm.value(weight) / reached - 1)


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def solve(
    pairs: Pairs,
    norm: Norm,
    make: Callable[..., Ball],
    primal: bool,
    gap: float,
    known: Found | None = None,
    each: int | None = None,
) -> Found:
    """Weight and multipliers with a relative gap of at most `gap`, or the best that float64 gives.

    `make(u, v, room)` is the ball around u with a multiplier near v; with `primal` u is the weight, else the pull of the multipliers. The way
    begins near what is `known` of another norm, and with the lowest `each` pairs of every sample."""
    unit = max(float(np.linalg.norm(pairs.left, axis=1).max() * np.linalg.norm(pairs.inputs, axis=1).max()), 1e-300)
    scaled = Pairs(pairs.left, pairs.inputs / unit, pairs.sample)
    kept = _lowest(scaled, known, _FIRST, _WANTED) if each is None else _lowest(scaled, known, each, len(pairs.left))
    best, width, stale = Certificate(scaled, norm), np.inf, 0
    try:
        state = _start(scaled, kept, make, primal, known)
    except (LinAlgError, ZeroDivisionError):  # the pull of these multipliers is 0
        return Found(best.weight, best.multipliers, width)
    for _ in range(_ROUNDS):
        reached = scaled.margins(state.weight)
        everyone = np.zeros(len(kept))
        everyone[kept] = state.multipliers
        if not np.isfinite([*reached, *state.multipliers]).all():
            break
        now = best.offer(state.weight, reached, everyone)
        stale = 0 if now < 0.9 * width or now == np.inf else stale + 1
        width = min(now, width)
        if width <= gap or stale > _PATIENCE:
            break
        if state.ball.bounded or best.alone(state.weight, float(reached[kept].min()), everyone) < _SETTLED:
            kept, state = _entered(scaled, kept, state, reached, primal)
        try:
            state = _advance(scaled.some(kept), state, primal)
        except (LinAlgError, ValueError):  # at the boundary to rounding, or beyond the range of floats
            break
    return Found(best.weight, best.multipliers / unit, width)


def _lowest(pairs: Pairs, known: Found | None, each: int, most: int) -> np.ndarray:
    """The pairs of smallest margins in every sample, `most` of them, under the pull of all; or near what is known, with those that it uses."""
    weight = pairs.gather(np.ones(len(pairs.left))) if known is None else known.weight
    reached = pairs.margins(weight)
    order = np.lexsort((reached, pairs.sample))
    place = np.arange(len(order)) - np.searchsorted(pairs.sample[order], pairs.sample[order])
    kept = np.zeros(len(order), bool)
    kept[order[np.lexsort((reached[order], place))][: min(most, int((place < each).sum()))]] = True
    return kept if known is None else kept | (known.multipliers > _USED * known.multipliers.max())


def _start(pairs: Pairs, kept: np.ndarray, make: Callable[..., Ball], primal: bool, known: Found | None) -> _State:
    """Multipliers alike; or near what is known, with its multipliers."""
    weight = pairs.gather(1.0 * kept) if known is None else known.weight
    shares = np.ones(len(kept)) if known is None else known.multipliers / known.multipliers.max()
    shares = np.maximum(shares[kept], _USED) / kept.sum()
    some, m = pairs.some(kept), int(kept.sum())
    pull = some.gather(shares)
    if not make(pull, pull, 1.0).bounded:
        return _smooth_start(some, make, primal, weight, shares, 1.0 if known is None else _USED)
    if primal:
        ball = make(np.zeros_like(pull), pull, 1.0 / m)
        return _State(ball, np.zeros_like(pull), -1.0, np.ones(m), shares)
    if known is not None:
        return _feasible(some, make, known)
    size, weight = _doubled(pull), pull / np.vdot(pull, pull)
    return _State(make(pull / size, weight, 1.0 / size), weight, 1.0, np.ones(m), shares / size)


def _feasible(pairs: Pairs, make: Callable[..., Ball], known: Found) -> _State:
    """A known weight at twice the margins asked for, with multipliers that pairs of length 1 would share: whatever their lengths, all are alike."""
    reached = pairs.margins(known.weight)
    weight, shares = 2 * known.weight / reached.min(), 1 / pairs.lengths()
    pull, room = pairs.gather(shares), float(np.linalg.norm(weight, "nuc")) / sum(weight.shape)
    size = _doubled(pull)
    return _State(make(pull / size, weight, room), weight, 1.0, 2 * reached / reached.min() - 1, shares / size)


def _doubled(pull: np.ndarray) -> float:
    return 2 * max(float(np.linalg.norm(pull, 2)), float(np.abs(pull).max()))


def _smooth_start(
    pairs: Pairs, make: Callable[..., Ball], primal: bool, weight: np.ndarray, shares: np.ndarray, least: float
) -> _State:
    """A weight of mean margin 1 under the shares, and multipliers of the size that it asks for."""
    pull = pairs.gather(shares)
    largest = float(np.abs(make(pull, pull, 1.0).sizes).max())  # pyright: ignore[reportAttributeAccessIssue]
    shares, pull = shares / largest, pull / largest  # of which powers neither vanish nor overflow
    ball = make(weight if primal else pull, pull, 1.0)
    weight = weight if primal else ball.pull()
    mean = float(np.vdot(pull, weight) / shares.sum())
    size = 1 / mean if primal else (1 / mean) ** (1 / (ball.power - 1))  # pyright: ignore[reportAttributeAccessIssue]
    ball = make(size * ball.inner, pull, 1.0)
    weight = ball.inner if primal else ball.pull()
    shares = shares * (float(np.vdot(ball.pull(), weight)) / shares.sum() if primal else size)
    return _State(ball, weight, 1.0, np.maximum(pairs.margins(weight) - 1, least), shares)


def _mu(state: _State) -> float:
    return (state.ball.centre() + float(state.slack @ state.multipliers)) / (state.ball.degree + len(state.slack))


def _entered(
    pairs: Pairs, kept: np.ndarray, state: _State, reached: np.ndarray, primal: bool
) -> tuple[np.ndarray, _State]:
    """The working set with those pairs whose margin is near the level."""
    near = np.flatnonzero(~kept & (reached < state.level + np.quantile(state.slack, _NEAR)))
    room = near[np.argsort(reached[near])[: max(_GROWTH, len(state.slack) // 4)]]
    if not len(room):
        return kept, state
    mu = _mu(state)
    typical = mu / state.multipliers.mean()
    state = _lifted(state, float(reached[room].min()), typical, primal)
    slack, multipliers = np.zeros(len(kept)), np.zeros(len(kept))
    slack[kept], multipliers[kept] = state.slack, state.multipliers
    slack[room] = np.maximum(pairs.some(room).margins(state.weight) - state.level, typical)
    multipliers[room] = mu / slack[room]
    kept = kept.copy()
    kept[room] = True
    return kept, state._replace(slack=slack[kept], multipliers=multipliers[kept])


def _lifted(state: _State, lowest: float, typical: float, primal: bool) -> _State:
    """With slacks that leave room for a `lowest` margin: the level falls to it, or the weight grows by what it lacks."""
    lack = state.level + typical - lowest
    if lack <= _JOLT * typical or not state.ball.bounded or (not primal and lowest < _POSITIVE):
        return state
    if primal:
        return state._replace(level=state.level - lack, slack=state.slack + lack)
    factor = (1 + typical) / lowest
    ball = type(state.ball)(state.ball.inner, factor * state.ball.outer)  # pyright: ignore[reportAttributeAccessIssue, reportCallIssue]
    return state._replace(ball=ball, weight=factor * state.weight, slack=factor * (state.slack + 1) - 1)


def _advance(pairs: Pairs, now: _State, primal: bool) -> _State:
    """One predictor and one corrector step with the same factorisation."""
    ball, slack, shares = now.ball, now.slack, now.multipliers
    ball.prepare()
    scaling = ball.scaling(inverse=primal)
    matrix = scaling.gram(pairs.left, pairs.inputs, pairs.sample)
    matrix[np.diag_indices_from(matrix)] += slack / shares
    factor = least_ridge(matrix)
    ones, pull, held = np.ones(len(shares)), pairs.gather(shares), ball.pull() if primal else ball.inner
    drifted = np.abs(pull - held).max() > _DRIFT * np.abs(pull).max()  # by pairs that entered, not by rounding
    lost = np.where(drifted, pull - held, 0.0)

    solve = lambda side: cho_solve(factor, side, check_finite=False)
    bordered = primal and ball.bounded
    border = solve(ones) if bordered else ones

    def newton(mu: float, bend: Any, curl: np.ndarray) -> tuple:
        """Towards mu, with the second-order terms `bend` of the ball and `curl` of the slacks. Solved again for what the weight itself misses:
        where the ball leaves it free, W is a large multiple of a small change of pulls, and multipliers alone would not tell."""
        drive = ball.drive(mu, bend)
        weight = now.weight + scaling.apply(lost - drive) if primal else ball.pull() + drive + scaling.apply(lost)
        change, level = np.zeros_like(shares), now.level
        for _ in range(_REFINED):
            part = solve((mu - curl) / shares - slack / shares * change - pairs.margins(weight) + level)
            rise = (1 - shares.sum() - change.sum() - part.sum()) / border.sum() if bordered else 0.0
            part = part + rise * border
            change, level, weight = change + part, level + rise, weight + scaling.apply(pairs.gather(part))
        move = ball.move(weight - now.weight if primal else pairs.gather(change) + lost)
        grow = (mu - curl) / shares - slack / shares * change - slack
        return move, weight - now.weight, level - now.level, grow, change

    def reach(step: tuple, share: float) -> tuple[float, float]:
        """Lengths of the step of the weight and of that of the multipliers."""
        move, _, _, grow, change = step
        inner, outer = move.reach if primal else move.reach[::-1]
        most = (inner, distance(slack, grow)), (outer, distance(shares, change))
        return min(1.0, share * min(most[0])), min(1.0, share * min(most[1]))

    mu = _mu(now)
    first = newton(0.0, ball.still(), np.zeros_like(slack))
    near, far = reach(first, 1.0)
    move = first[0]
    tried = ball.after(move, *((near, far) if primal else (far, near)))
    left = tried.centre() + float((slack + near * first[3]) @ (shares + far * first[4]))
    aim = max(1e-4, min(1.0, left / (ball.degree + len(slack)) / mu) ** 3) * mu
    step = newton(aim, move.bend, first[3] * first[4])
    near, far = reach(step, _SHARE)
    after = ball.after(step[0], *((near, far) if primal else (far, near)))
    weight, shares = now.weight + near * step[1], shares + far * step[4]
    weight = weight if primal or not ball.bounded else after.pull()
    return _State(after, weight, now.level + near * step[2], slack + near * step[3], shares)


def least_ridge(matrix: np.ndarray) -> tuple:
    """A Cholesky factor, with the least ridge that gives one: dependent active pairs leave the system singular in the limit."""
    for ridge in (0.0, 1e-15, 1e-13):
        lifted = matrix.copy()
        lifted[np.diag_indices_from(lifted)] *= 1 + ridge
        try:
            return cho_factor(lifted, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            continue
    raise LinAlgError("singular to rounding")
