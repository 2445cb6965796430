"""Many steps of a flow in one compiled loop: lengths and orders, endings, and landings on levels.

The first turn of the loop reads the start, so that a whole flow is one program. An order costs its substeps and factorisations; the one
that makes most way for its cost is taken next, from the errors of the last step at its order and at the one below.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..cache import PLAIN_FUSIONS
from ..problem import Reading, smallest_margin
from ..settings.base import RESOLUTION, Setting
from ..training.events import Limits, number
from ..training.status import Status
from .clocks import Curve, Motion, Origin, Pace, Sizes, origin
from .integrator import Place, Record, State, Step, Task, attempt
from .spaces import Space

_SHRINK, _GROW, _SAFETY = 0.2, 4.0, 0.9
_BETTER = 0.9  # of the work per unit length, by which another order has to be cheaper
_FEW = 4  # the order of the first step, and the lowest unless the highest is lower
_FIRST_STEP = 1e-3
_TAIL = 10.0  # while all margins are smaller the multipliers hardly change, and no direction turns
_STATIONARY = 1e-6  # of the gradient over the sum of its terms: where no step succeeds, the flow stands at a minimum
_DEAF, _BRINK = 4, 1e-2  # times in a row that a shorter step has the larger error, and is of this part of the norm
_GROSS = 1e4  # an error over the tolerance that is rounding where a step is the square of it shorter than the norm: where activations have kinks in their slope, a step of 1e-4 still misses by as much
_STILL = 1e-3  # of the excess, lost per relative length of the path: less looks like a minimum
_SMALLEST = 1e-14  # a step below this fraction of the clock's unit and of the weights cannot change a float64 state
_FIRST = 1e4  # lengths of the start: a straight path lets a longer first step pass, over a time that nothing resolves
_BEYOND = 2 * float(jnp.finfo(float).eps)  # of a level: where a landing aims, since it has to end there or farther
_EXACT = 1e-13  # of a step: where a landing ends that rounding keeps from its aim
_UNBEGUN = -1e3  # log t before the start, in units of its level: secants need a number
_ROOM, _BUFFER = 64, 2**18  # records of one call at most, and numbers in them


class Goal(eqx.Module):
    """What is asked of a flow: the endings, the next level to be recorded (as `Limits` too), and the numbers of steps in all."""

    limits: Limits
    watch: Limits
    steps: Int[Array, ""]

    def reach(self, point: Record) -> tuple[Array, Array]:
        """How far a point is beyond the first of its levels, those of the endings and the one to be recorded; negative before."""
        both = jax.tree.map(lambda *levels: jnp.stack(levels), self.limits, self.watch)
        return tuple(jax.vmap(_beyond, (0, None))(both, point))


class Walk(eqx.Module):
    """A flow on its way: where it stands, the step tried next, and how those before went.

    `older` and `latest` are lengths on both sides of a level to be met, each with its reach; `latest` is infinite as long as none is near.
    """

    place: Place
    speed: Float[Array, ""]
    h: Float[Array, ""]
    order: Int[Array, ""]
    older: Float[Array, "2"]
    latest: Float[Array, "2"]
    steps: Int[Array, ""]
    rejected: Int[Array, ""]
    deaf: Int[Array, ""]
    last: Float[Array, ""]
    status: Int[Array, ""]
    landed: Bool[Array, ""]


def _beyond(levels: Limits, point: Record) -> Array:
    names, signs = ("margin", "norm", "log_time", "log_excess"), np.array([1.0, 1.0, 1.0, -1.0])
    level, size = (jnp.stack([getattr(one, name) for name in names]) for one in (levels, point))
    excess = signs * (size - level) / jnp.maximum(1.0, jnp.abs(level))
    return jnp.max(jnp.where(jnp.isfinite(level), jnp.where(jnp.isfinite(excess), excess, _UNBEGUN), -jnp.inf))


def begin(setting: Setting, params: PyTree) -> Walk:
    """A flow that has not read its start yet."""
    params = jax.tree.map(lambda leaf: np.asarray(leaf, float), params)
    zeros = jax.tree.map(np.zeros_like, params), np.zeros(len(setting.data.constrained()))
    params, (rest, each) = jax.device_put((params, zeros))
    zero, none, far = map(number, (0.0, 0, (np.inf, 0.0)))
    still = Pace(zero, zero, Curve(zero, zero, zero), Curve(zero, zero, zero))
    here = Motion(Reading(zero, zero, params, each, each, zero), zero, Sizes(zero, zero, zero, zero))
    state = State(params, zero, each)
    place = Place(state, rest, here, zero, Origin(zero, zero), zero, still)
    counts = (none, none, none, number(np.inf), none, number(False))
    return Walk(place, zero, zero, none, far, far, *counts)


def _record(setting: Setting, state: State, there: Motion, steps: Array, clock: Array) -> Record:
    reading = there.reading
    begun = state.progress > 0  # at a critical point both logarithms are -inf
    log_time = jnp.where(begun, jnp.log(jnp.where(begun, state.progress, 1.0)) - reading.log_gradient_norm, -jnp.inf)
    sizes = log_time, reading.log_excess, reading.log_relative_slope, there.norm
    margin = smallest_margin(setting, reading.margins)
    return Record(steps, clock, *sizes, margin, reading.margins, reading.weights, state.dual, state.params)


def _finite(step: Step) -> Array:
    reading = step.motion.reading
    sizes = jnp.isfinite(jnp.stack([reading.log_excess, step.motion.norm, step.state.progress]))
    return jnp.all(sizes) & jnp.all(jnp.isfinite(reading.margins))


def _started(task: Task, goal: Goal, walk: Walk, step: Step, now: Record) -> Walk:
    """The units of the start, and a first step that is not longer than these resolve; or why a flow does not even begin."""
    reading, norm, zero = step.motion.reading, step.motion.norm, jnp.zeros(())
    start = origin(reading)
    floor = jnp.where(norm > 0, norm, start.length)
    speed = task.clock.speed(reading, norm, zero, zero, start)
    times = jnp.ceil(jnp.log(_FIRST_STEP * speed / (_FIRST * floor)) / -np.log(_SHRINK))
    h = _FIRST_STEP * _SHRINK ** jnp.where(times > 0, times, 0.0)
    reasons = (~jnp.isfinite(reading.log_slope_norm), goal.reach(now)[0] >= 0, goal.steps == 0)
    kinds = (Status.zero_gradient, Status.reached_target, Status.out_of_steps)
    place = Place(step.state, step.rest, step.motion, zero, start, floor, walk.place.earlier)
    after = (place, speed, h, jnp.minimum(task.order, _FEW), _select(reasons, kinds))
    return eqx.tree_at(lambda w: (w.place, w.speed, w.h, w.order, w.status), walk, after)


def _select(reasons: tuple[Array, ...], kinds: tuple[Status, ...]) -> Array:
    """The first status whose reason holds."""
    return jnp.select(list(reasons), [jnp.asarray(int(kind)) for kind in kinds], int(Status.running))


def _work(order: Array) -> Array:
    """Of a step, in substeps: q(q + 1)/2 of them, a factorisation for each of q columns, and a linearisation."""
    return order * (order + 1) / 2 + order + 3.0


def _ahead(error: Array, order: Array) -> Array:
    """By what a step may grow."""
    return jnp.clip(_SAFETY * jnp.maximum(error, 1e-8) ** (-1.0 / order), _SHRINK, _GROW)


def _plan(walk: Walk, step: Step, highest: Array) -> tuple[Array, Array]:
    """Length and order of the next step after one that succeeded."""
    order = walk.order
    here, below = _ahead(step.error, order), _ahead(step.rough, jnp.maximum(order - 1, 1))
    cost, cheaper = _work(order) / here, _work(order - 1) / below
    lower = (order > _FEW) & (cheaper < _BETTER * cost)
    higher = (order < highest) & (cost < _BETTER * cheaper)
    return walk.h * jnp.where(lower, below, here), order - lower + (higher & ~lower)


def _moved(task: Task, goal: Goal, walk: Walk, step: Step, now: Record, landed: Array, ended: Array) -> Walk:
    """The step taken, and whether it ends the flow."""
    h, order = _plan(walk, step, task.order)
    h, order = jnp.where(landed, walk.h, h), jnp.where(landed, walk.order, order)
    settled = (goal.limits.turn > 0) & (_turn(task.setting, walk.place, step) < goal.limits.turn)
    lost = jnp.finfo(float).eps * jnp.max(jnp.abs(now.margins)) > RESOLUTION
    flat = jnp.asarray(task.setting.data.at_rounding(now.margins))
    reasons = (ended | settled, flat, lost, now.margin <= -goal.limits.stall, now.steps >= goal.steps)
    kinds = (
        *(Status.reached_target, Status.settled, Status.resolution_exhausted),
        *(Status.stalled, Status.out_of_steps),
    )
    start = walk.place.origin
    speed = task.clock.speed(step.motion.reading, now.norm, step.state.progress, now.clock, start)
    place = Place(step.state, step.rest, step.motion, now.clock, start, walk.place.floor, step.begin)
    none, far = jnp.zeros((), int), jnp.array([jnp.inf, 0.0])
    counts = (now.steps, walk.rejected, none, far[0], _select(reasons, kinds), landed)
    return Walk(place, speed, h, order, far, far, *counts)


def _turn(setting: Setting, before: Place, step: Step) -> Array:
    """The angle by which the direction turns while the norm doubles, from what it turned in one step.

    From two points, not from the slope at one: the slope knows the multipliers only to the tolerance of the margins.
    """
    first, last = before.motion.norm, step.motion.norm
    chord = jax.tree.map(lambda a, b: a / last - b / first, step.state.params, before.state.params)
    angle = jnp.log(2.0) * jnp.sqrt(jnp.maximum(setting.inner(chord, chord), 0.0)) / jnp.log(last / first)
    seen = (first > 0) & (first < last) & (jnp.max(jnp.abs(step.motion.reading.margins)) >= _TAIL)
    return jnp.where(seen, angle, jnp.inf)


def _rejected(task: Task, walk: Walk, step: Step) -> Walk:
    """A shorter step after one that failed; where none can succeed, the flow has settled or fails.

    An error that grows as steps get shorter is rounding, and so is a gross one of a tiny step: where that keeps a flow from moving, it decides.
    """
    error, here = step.error, walk.place.motion
    reading = here.reading
    deaf = jnp.where(jnp.isfinite(error) & (error > walk.last), walk.deaf + 1, 0)
    tame, size = jnp.isfinite(error) & (error > 1), jnp.maximum(here.norm, walk.place.floor)
    h = walk.h * jnp.where(tame, jnp.maximum(_SHRINK, _SAFETY * error ** (-1.0 / walk.order)), _SHRINK)
    length, left, rounding = h * walk.speed, step.left, jnp.finfo(float).eps * len(reading.margins)
    margin = smallest_margin(task.setting, reading.margins)
    gone, still = left <= rounding, jnp.exp(reading.log_relative_slope) * size < _STILL
    # Short of a positive margin, a direction of motion that rounding knows less well than the tolerance asks leads nowhere;
    # to a minimum only where the excess hardly falls: on badly scaled data the gradient nearly cancels on the way.
    lost = (left * task.tolerance <= rounding) & (left < _STATIONARY) & (margin <= 0)
    deafened = (deaf >= _DEAF) & (length < _BRINK * size)
    gross = jnp.isfinite(error) & (error > _GROSS) & (_GROSS**2 * length < size)
    stuck = (deafened | gross) & (margin > _TAIL)
    tiny = (h < _SMALLEST) & (length < _SMALLEST * size)
    reasons = (gone | (lost & still), lost | stuck, tiny & (left < _STATIONARY), tiny)
    kinds = (Status.settled, Status.resolution_exhausted, Status.settled, Status.step_failed)
    return eqx.tree_at(
        lambda w: (w.h, w.rejected, w.deaf, w.last, w.status),
        walk,
        (h, walk.rejected + 1, deaf, error, _select(reasons, kinds)),
    )


def _length(walk: Walk) -> Array:
    """Of the step tried next: a secant where a level is to be met, and the far side of it once both are one length up to rounding."""
    (a, before), (b, after) = walk.older, walk.latest
    low, high = jnp.minimum(a, b), jnp.maximum(a, b)
    width = _EXACT * walk.h
    inside = jnp.clip(b - after * (b - a) / (after - before), low + width / 2, high - width / 2)
    return jnp.where(jnp.isfinite(b), jnp.where(high - low <= width, high, inside), walk.h)


def _bracketed(walk: Walk, used: Array, reach: Array, before: Array) -> Walk:
    """Both sides of a level after a step with this reach, where it is `before` the step; by the rule called Pegasus an end that stays counts less."""
    landing, after, here = jnp.isfinite(walk.latest[0]), walk.latest[1], jnp.stack([used, reach])
    stays = walk.older * jnp.stack([jnp.ones(()), after / (after + reach)])
    older = jnp.where(after * reach < 0, walk.latest, stays)
    older = jnp.where(landing, older, jnp.stack([jnp.zeros(()), before]))
    return eqx.tree_at(lambda w: (w.older, w.latest), walk, (older, here))


def _tried(task: Task, goal: Goal, space: Space | None, walk: Walk) -> tuple[Walk, Record, Array]:
    """The walk after one more step was tried; the point it led to, and whether that was taken."""
    used, here, first = _length(walk), walk.place, walk.order == 0
    step = attempt(task, here, space, used, walk.order)
    now = _record(task.setting, step.state, step.motion, walk.steps + ~first, here.clock + used)
    end, watched = goal.reach(now)
    reach = jnp.where(_finite(step), jnp.maximum(end, watched), _UNBEGUN)
    before = jnp.maximum(*goal.reach(_record(task.setting, here.state, here.motion, walk.steps, here.clock)))
    landing = jnp.isfinite(walk.latest[0])
    fine = landing | (_finite(step) & (step.error <= 1))
    closed = jnp.abs(walk.older[0] - walk.latest[0]) <= _EXACT * walk.h
    landed = (reach >= 0) & ((reach <= 2 * _BEYOND) | closed)
    taken = first | (fine & (landed | (~landing & (reach < 0))))
    cases = (
        (first, _started(task, goal, walk, step, now)),
        (~fine, _rejected(task, walk, step)),
        (taken, _moved(task, goal, walk, step, now, landed, landed & (end >= watched))),
    )
    found = _bracketed(walk, used, reach - _BEYOND, before)
    for holds, other in reversed(cases):
        found = jax.tree.map(lambda a, b, holds=holds: jnp.where(holds, a, b), other, found)
    return found, now, taken


@eqx.filter_jit(compiler_options=PLAIN_FUSIONS)  # pyright: ignore[reportCallIssue] -- what jit takes, it takes too
def march(task: Task, goal: Goal, space: Space | None, walk: Walk, room: Array) -> tuple[Walk, Record, Array]:
    """Up to `room` tries of a step, or as far as the flow ends or lands on a level: the walk, its records, and how many there are."""
    here = walk.place
    blank = jax.eval_shape(lambda: _record(task.setting, here.state, here.motion, walk.steps, here.clock))
    size = max(1, min(_ROOM, _BUFFER // sum(leaf.size for leaf in jax.tree.leaves(blank))))
    records = jax.tree.map(lambda leaf: jnp.zeros((size, *leaf.shape), leaf.dtype), blank)

    def more(carry: tuple[Walk, Record, Array, Array]) -> Array:
        walk, _, _, tried = carry
        return (walk.status == int(Status.running)) & ~walk.landed & (tried < jnp.minimum(room, size))

    def turn(carry: tuple[Walk, Record, Array, Array]) -> tuple[Walk, Record, Array, Array]:
        walk, records, count, tried = carry
        walk, now, taken = _tried(task, goal, space, walk)
        records = jax.tree.map(lambda kept, one: kept.at[count].set(one), records, now)
        return walk, records, count + taken, tried + 1

    none = jnp.zeros((), int)
    walk = eqx.tree_at(lambda w: w.landed, walk, jnp.zeros((), bool))
    walk, records, count, _ = jax.lax.while_loop(more, turn, (walk, records, none, none))
    return walk, records, count
