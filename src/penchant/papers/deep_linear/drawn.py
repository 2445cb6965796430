"""Theorems 1 and 4 and the lemmas of the deep linear paper on drawn data, depths and starts, followed in vectorised runs: the flow by Runge-Kutta steps, descent by its own engine."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from ...diagnostics.alignment import alignment, alignment_floor
from ...diagnostics.rates import log_log_slope
from ...lab import Lab, claim, recipe
from ...optimisers.layerwise import BallStep, ConstantStep, LayerDescent, smoothness
from ...references.euclidean_margin import max_margin
from ...references.support_geometry import SupportGeometry, support_geometry
from ...settings.base import Setting
from ...settings.classification import Classification
from ...settings.deep_linear import DeepLinear, Layers, ensure_assumption2, imbalance_constant, zero_first
from ...settings.generators import teacher
from ...settings.losses import AbstractLoss, Exponential, Logistic
from ...training.events import Every, LogSpaced
from ...training.loop import runge_kutta
from ...training.train import train
from ...training.trajectory import Trajectory
from ...verdict import ROUNDING, Verdict, at_least, at_most
from .evidence import account, descent, levels, problem, slow_tail
from .theorems import JI

_COUNT, _WIDTH, _SAMPLES, _DIMENSION = 12, 4, 12, 3  # draws per depth, and their shapes
LOSSES = {2: Logistic(), 3: Logistic(), 4: Exponential()}  # by depth
DESCENTS = (2, 3)  # depths of descent, whose losses are smooth (Assumption 4); their data satisfy Assumption 3
_STEP, _EACH, _RECORDS = 0.05, 10, 2000  # of the Runge-Kutta method, in its clock; steps between records; records
STEPS = 20_000  # of Assumption 5


class Draws(NamedTuple):
    """Settings of one depth with their starts, stacked, and the geometry of their data."""

    settings: list[Setting]
    starts: Layers
    found: list[SupportGeometry]


class Flows(NamedTuple):
    """Layers (draws, records, rows, columns), log t and log R of the flow."""

    layers: list[np.ndarray]
    log_time: np.ndarray
    log_risk: np.ndarray


def _start(setting: Setting, seed: int) -> Layers:
    """Normal, with a zero first layer (appendix A) or with a zero last layer, of drawn scale: at most the risk of zero, and no critical point."""
    scale = float(np.random.default_rng(seed).uniform(0.25, 0.5))
    start = zero_first(setting, seed, scale) if seed % 3 == 1 else setting.start(seed, scale)
    return ensure_assumption2(setting, (*start[:-1], 0 * start[-1]) if seed % 3 == 2 else start)


@recipe
def drawn(lab: Lab, depth: int) -> Draws:
    sets = (
        (data, support_geometry(data, max_margin(data))) for data in map(_teacher, range(100 * depth, 100 * depth + 99))
    )
    kept = [
        pair for pair, _ in zip((p for p in sets if p[1].spans or depth not in DESCENTS), range(_COUNT), strict=False)
    ]
    settings = [Setting(data, DeepLinear((_WIDTH,) * (depth - 1)), LOSSES[depth]) for data, _ in kept]
    starts = [_start(setting, seed) for seed, setting in enumerate(settings)]
    return Draws(settings, jax.tree.map(lambda *leaves: jnp.stack(leaves), *starts), [found for _, found in kept])


_teacher = partial(teacher, _SAMPLES, _DIMENSION, push=0.3)


def _log_risk(layers: Layers, signed: jax.Array, loss: AbstractLoss) -> jax.Array:
    weight = layers[0]
    for layer in layers[1:]:
        weight = layer @ weight
    return logsumexp(loss.log_value(signed @ weight[0])) - jnp.log(len(signed))


@partial(jax.jit, static_argnames="loss")
@partial(jax.vmap, in_axes=(0, 0, None))
def _follow(signed: jax.Array, start: Layers, loss: AbstractLoss) -> tuple:
    """The flow in a clock in which log R falls by |g|/(1 + |g|), g its gradient: neither the saddle nor the far end is stiff."""

    def velocity(layers: Layers) -> tuple[Layers, jax.Array]:
        log_risk, slope = jax.value_and_grad(_log_risk)(layers, signed, loss)
        square = sum(jnp.sum(leaf**2) for leaf in slope)
        pace = jnp.sqrt(square) + square
        return jax.tree.map(lambda leaf: -leaf / pace, slope), -log_risk - jnp.log(pace)

    def step(state: tuple, _: None) -> tuple:
        (layers, log_time), pace = state, velocity(state[0])[1]

        def field(now: tuple) -> tuple:
            move, faster = velocity(now[0])
            return move, jnp.exp(faster - pace)

        layers, passed = runge_kutta(field, (layers, jnp.zeros(())), _STEP)
        return (layers, jnp.logaddexp(log_time, jnp.log(passed) + pace)), None

    def record(state: tuple, _: None) -> tuple:
        return jax.lax.scan(step, state, None, length=_EACH)[0], (*state, _log_risk(state[0], signed, loss))

    return jax.lax.scan(record, (start, -jnp.inf), None, length=_RECORDS)[1]


@recipe
def flows(lab: Lab, depth: int) -> Flows:
    draws = drawn(lab, depth)
    signed = jnp.stack([setting.data.signed for setting in draws.settings])
    layers, *series = _follow(signed, draws.starts, LOSSES[depth])
    return Flows([np.asarray(layer) for layer in layers], *map(np.asarray, series))


def drawn_paths(lab: Lab) -> list[list[Layers]]:
    """All drawn flows, the layers of every 200th record."""
    found = [flows(lab, depth).layers for depth in LOSSES]
    return [
        [tuple(layer[k, r] for layer in one) for r in range(0, _RECORDS, 200)] for one in found for k in range(_COUNT)
    ]


def _outer(layers: list[np.ndarray]) -> np.ndarray:
    """W_L ... W_2 as vectors."""
    rows = layers[-1]
    for layer in layers[-2:0:-1]:
        rows = rows @ layer
    return rows[..., 0, :]


def weights_of(layers: list[np.ndarray]) -> np.ndarray:
    return np.einsum("...h,...hd->...d", _outer(layers), layers[0])


def _norms(layers: list[np.ndarray]) -> np.ndarray:
    """Frobenius norms, layers last."""
    return np.stack([np.linalg.norm(layer, axis=(-2, -1)) for layer in layers], axis=-1)


def _paths(lab: Lab) -> Iterator[tuple[int, list[np.ndarray], np.ndarray]]:
    """Depth, layers by record and -log R of every drawn flow, and last of the flow with a polynomial tail."""
    for depth in LOSSES:
        run = flows(lab, depth)
        yield from ((depth, [layer[k] for layer in run.layers], -run.log_risk[k]) for k in range(_COUNT))
    yield 3, _stacked(slow_tail(lab, 3)), levels(slow_tail(lab, 3))


@claim("deep-linear/theorem-1", f"{JI}, Theorem 1; exponents by us", "sharpened", slow=True)
def theorem1(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Along the flow the risk vanishes, every layer grows without bound, tends to rank one and aligns with the next, on any data, depth and start of Assumption 2.
    36 draws at depths 2, 3 and 4, both losses, and one with a polynomial tail to risk e^-30, over the last decade of -log R: norms grow at least like half of the power 1/L to which they tend, and
    1 - |w| / (product of the norms) falls at least like half of the power -2/L. Planted: like -3/L."""
    ends, rises, growth, aligned = [], [], [], []
    for depth, layers, level in _paths(lab):
        sizes, window = _norms(layers), (level[-1] / 10, level[-1])
        growth.append(depth * log_log_slope(level, sizes.min(axis=-1), window))
        late = level > 0.09 * level[-1]
        missing = 1 - np.linalg.norm(weights_of(layers)[late], axis=-1) / sizes[late].prod(axis=-1)
        if missing[-1] > ROUNDING:  # a zero first layer before one other has rank one, and nothing is missing
            aligned.append(depth * log_log_slope(level[late], missing, window))
        ends.append(level[-1])
        rises.append(-np.diff(level).min())
    text = f"{len(ends)} draws, {len(aligned)} of them not of rank one from the start"
    yield at_least(float(min(ends[:-1])), 500.0, "smallest -log R at the end but for the polynomial tail", text)
    yield at_most(float(max(rises)), 0.0, "largest rise of log R between records")
    yield at_least(min(growth), 0.5, "slowest growth of a layer, L times its exponent in -log R")
    yield at_most(
        max(aligned), -3.0 if planted else -1.0, "slowest alignment, L times the exponent of 1 - |w| / product"
    )


def _log_gradient(draws: Draws, run: Flows, loss: AbstractLoss) -> np.ndarray:
    """log |grad R(w)| at every record."""
    signed = np.stack([np.asarray(setting.data.signed) for setting in draws.settings])
    slopes = np.asarray(loss.log_slope(jnp.asarray(np.einsum("knd,krd->krn", signed, weights_of(run.layers)))))
    top = slopes.max(axis=-1, keepdims=True)
    pulled = np.einsum("krn,knd->krd", np.exp(slopes - top), signed) / _SAMPLES
    return np.log(np.linalg.norm(pulled, axis=-1)) + top[..., 0]


def _lemma1(lab: Lab, depth: int, early: bool) -> Iterator[tuple[np.ndarray, np.ndarray, float, bool]]:
    """|dR/dW_1| over epsilon(R) and over its sharper form, at most 1 of each, for t >= 1 or from the start on; time in a ball over its bound; whether it was left."""
    draws, run, loss = drawn(lab, depth), flows(lab, depth), LOSSES[depth]
    sizes, gradient = _norms(run.layers), _log_gradient(draws, run, loss)
    with np.errstate(divide="ignore"):  # of layers that are 0 at the start
        first = np.log(np.linalg.norm(_outer(run.layers), axis=-1)) + gradient
        inner = np.log(sizes[..., 0])
    radius = sizes.max(axis=-1)
    for k, (setting, found) in enumerate(zip(draws.settings, draws.found, strict=True)):
        zero, slope = float(loss.value(jnp.zeros(()))), float(jnp.exp(loss.log_slope(jnp.zeros(()))))
        since = max(int(np.sum(run.log_time[k] <= 0)) - 1, 1)  # the last record before t = 1, or the first of all
        lost = zero - np.exp(run.log_risk[k, since])
        reach = np.log(lost) - np.log(slope * np.linalg.norm(np.asarray(setting.data.signed).mean(axis=0)))  # of |w|
        least = (
            np.asarray(loss.log_slope(jnp.asarray(radius[k] ** depth)))
            + np.log(found.margin)
            + reach
            - np.log(radius[k])
        )
        sharper = gradient[k] + reach - inner[k]
        shown = slice(0 if early else since, None)
        ratio = lambda bound, k=k, shown=shown: np.exp(np.minimum(first[k] - bound, 0.0))[shown]
        ball = 0.9 * radius[k, -1]
        inside = int(np.flatnonzero(radius[k] <= ball)[-1])
        bound = run.log_risk[k, 0] - 2 * least[inside]
        yield (
            ratio(least),
            ratio(sharper),
            run.log_time[k, inside] - np.logaddexp(0.0, bound),
            bool(inside < _RECORDS - 1),
        )


@claim("deep-linear/lemma-1", f"{JI}, Lemma 1", "proved", slow=True)
def lemma1(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """From t = 1 on |dR/dW_1| >= epsilon(R) > 0 in B(R), so that the flow spends a finite time there and leaves.
    epsilon(R) is the proof's, margin |l'(R^L)| (R(0) - R(W(1))) / (R |grad R(0)|), and sharper with the gradient itself for margin |l'|. 36 draws. Planted: from t = 0 on, where a zero last layer has no gradient in the first."""
    least, sharper, times, left = zip(*(one for depth in LOSSES for one in _lemma1(lab, depth, planted)), strict=True)
    yield at_least(float(min(part.min() for part in least)), 1.0, "smallest of 1 and |dR/dW_1| / epsilon(R)")
    yield at_least(
        float(min(part.min() for part in sharper)), 1.0, "smallest of 1 and |dR/dW_1| over its sharper bound"
    )
    yield at_most(
        max(times), 0.0, "largest log of (time in B(R)) / (1 + R(W(0)) / epsilon(R)^2), R nine tenths of the end"
    )
    yield at_least(float(np.mean(left)), 1.0, f"share of {len(left)} draws that have left B(R)")


@claim("deep-linear/lemma-3", f"{JI}, Lemma 3", "proved", slow=True)
def lemma3(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Where the support vectors span and the data come from a density, alpha > 0.
    All draws in 2 to 5 dimensions whose support vectors span, and nothing else is asked of them. Planted: data without a density, (1, 0) and (1, 1), which span and have alpha = 0."""
    sets = [teacher(20, d, seed, push=0.2) for d in (2, 3, 4, 5) for seed in range(25)]
    sets = [Classification([[1.0, 0.0], [1.0, 1.0]], [1, 1])] if planted else sets
    found = [support_geometry(data, max_margin(data)) for data in sets]
    spanned = [one.radius / np.linalg.norm(one.points, axis=1).max() for one in found if one.rank == len(one.direction)]
    yield at_least(float(len(spanned)), 1.0 if planted else 20.0, f"draws of {len(sets)} whose support vectors span")
    yield at_least(float(min(spanned)), 1e-10, "smallest alpha over the longest support vector, above rounding")


@claim("deep-linear/appendix-a-zero-first", f"{JI}, appendix A; bound attained by us", "sharpened")
def appendix_zero_first(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """A zero first layer satisfies Assumption 2: the risk is that of zero, and |dR/dW_1| >= margin |l'(0)| |W_L ... W_2| > 0, with equality for one sample.
    20 data sets at depths 2 to 5, the last of a single sample. Planted: a bound one per cent larger."""
    ratios, gaps = [], []
    for seed in range(20):
        data = teacher(1 if seed == 19 else 10, 3, seed, push=0.3)
        setting = Setting(data, DeepLinear((_WIDTH,) * (1 + seed % 4)), Logistic())
        start = zero_first(setting, seed, 0.5)
        margins, pull = setting.linearise(start)
        weighing = setting.weigh(margins)
        first = float(jnp.exp(weighing.log_scale) * jnp.linalg.norm(pull(weighing.weights)[0]))
        outer = np.linalg.norm(_outer([np.asarray(layer) for layer in start]))
        ratios.append(first / (0.5 * max_margin(data).margin * outer))
        gaps.append(abs(float(weighing.log_excess) - np.log(np.log(2.0))))
    yield at_most(max(gaps), 1e-15, "largest |log R(W(0)) - log R(0)|")
    yield at_least(min(ratios), 1.01 if planted else 1 - ROUNDING, "smallest |dR/dW_1| over its bound")


@recipe
def descents(lab: Lab, depth: int) -> list[Trajectory]:
    """Assumption 5's own steps on the draws of a depth."""
    settings, starts, _ = drawn(lab, depth)
    return train(settings, LayerDescent(BallStep()), starts, steps=STEPS, recorder=LogSpaced(40))


def _stacked(run: Trajectory) -> list[np.ndarray]:
    return [np.stack([np.asarray(run.at(r)[k]) for r in range(len(run))]) for k in range(len(run.at(0)))]


@recipe
def _leaving(lab: Lab) -> list[float]:
    """By draw the time after which descent leaves B(R) over that of the flow, infinite where it does not leave."""
    late = []
    for depth in DESCENTS:
        (settings, starts, _), run = drawn(lab, depth), flows(lab, depth)
        radius = _norms(run.layers).max(axis=-1)
        balls = np.maximum(1.0, radius[:, 0]) * np.random.default_rng(depth).uniform(1.05, 1.2, _COUNT)
        steps = 1 / smoothness(balls, depth)
        found = train(settings, LayerDescent(ConstantStep(steps)), starts, steps=STEPS, recorder=LogSpaced(500))
        for k, one in enumerate(found):
            sizes = np.maximum.accumulate(_norms(_stacked(one)).max(axis=-1))
            times = np.exp(np.minimum(run.log_time[k], 700.0))  # the ball is left long before
            left = np.interp(balls[k], np.maximum.accumulate(radius[k]), times)
            out = sizes[-1] > balls[k]
            late.append(np.interp(balls[k], sizes, one.steps) * steps[k] / left if out else np.inf)
    return late


@claim("deep-linear/lemma-6", f"{JI}, Lemma 6; the time by us", "sharpened", slow=True)
def lemma6(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Descent with the constant step 1/beta(R) leaves B(R), after the time that the flow takes.
    24 draws at depths 2 and 3 with drawn R. Steps may change the pace by 0.075, as in theorem-3, and records are two per cent apart. Planted: after nine eighths of that time."""
    late = _leaving(lab)
    share, factor = float(np.mean(np.isfinite(late))), 1.125 if planted else 1.0
    yield at_least(share, 1.0, f"share of {len(late)} draws that leave B(R) within {STEPS} steps")
    worst = max(abs(one / factor - 1) for one in late)
    yield at_most(worst, PACE + 0.02, "largest |time of descent / time of the flow - 1| in B(R)")


@claim("deep-linear/lemma-7", f"{JI}, Lemma 7, (27) and (37); factor 1 for 2 by us", "sharpened", slow=True)
def lemma7(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Under Assumption 5 the layers are unbounded and the steps sum to infinity, because |W(t) - W(0)|^2 <= 2 (R(W(0)) - R(W(t))) sum of eta, where 1 for 2 is attained.
    24 draws at depths 2 and 3: the steps are those printed, a layer moves by at most 1 in each (27), squares of norms drift by at most 2 R(W(0)) (37). Planted: nine tenths for 2."""
    errors, longest, grown, paths, drifts = [], [], [], [], []
    for depth in DESCENTS:
        for run in descents(lab, depth):
            kept, layers, risk = account(run), _stacked(run), np.exp(run.log_excess)
            printed = 2 * depth**2 * kept["radius"][1:] ** (2 * depth - 2) * (0.25 + 1.0)
            errors.append(np.abs(kept["log_step"][1:] + np.log(printed)).max())
            longest.append(np.exp(kept["log_step"] + run.log_slope + run.log_excess)[1:].max())
            squares = _norms(layers) ** 2
            largest = np.sqrt(squares.max(axis=1))
            grown.append(largest[-1] - largest[run.steps <= STEPS / 2].max())
            moved = np.sum([np.sum((layer - layer[0]) ** 2, axis=(1, 2)) for layer in layers], axis=0)
            paths.append((moved[1:] / ((risk[0] - risk[1:]) * np.exp(kept["log_step_sum"][1:]))).max())
            drift = (squares - squares[0])[:, :, None] - (squares - squares[0])[:, None]
            drifts.append(np.abs(drift).max() / (2 * risk[0]))
    yield at_most(float(max(errors)), ROUNDING, "largest |log(eta beta(R))|, beta(R) = 2 L^2 R^(2L-2) (1/4 + 1)")
    yield at_most(float(max(paths)), 0.9 if planted else 2.0, "largest |W - W(0)|^2 / (sum of eta (R_0 - R))")
    yield at_least(float(max(paths)), 0.99, "the same")
    yield at_least(
        float(min(grown)), 0.0, f"least growth of the largest layer after half of {STEPS} steps, {len(grown)} draws"
    )
    yield at_most(float(max(longest)), 1.0, "largest step of a layer (27)")
    yield at_most(float(max(drifts)), 1.0, "largest drift of a difference of squares over 2 R(W(0)) (37)")


@recipe
def _crossed(lab: Lab) -> Trajectory:
    """Two layers that have nothing in common and one long step, after which each has the other's direction: the traces are all that explains it."""
    setting, _ = problem(lab, 2, logistic=True)
    gradient = -np.asarray(setting.data.signed).mean(axis=0) / 2
    length = float(np.linalg.norm(gradient))
    first, last = np.zeros((8, 2)), np.zeros((1, 8))
    first[1], last[0, 0] = 0.1 * gradient / length, 0.05
    step = LayerDescent(ConstantStep(10.0 / length))
    return train(setting, step, (jnp.asarray(first), jnp.asarray(last)), steps=5, recorder=Every())


@claim("deep-linear/lemma-8", f"{JI}, Lemma 8, with the traces themselves for 2 R_0 and 3 R_0", "sharpened", slow=True)
def lemma8(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Along descent excesses are at most D plus the traces of layers k to L - 1, and <v_{k+1}, u_k>^2 is at least 1 - (D + traces of layers k and later + |W_{k+1}(0)|^2 + |W_k(0)|^2) / |W_{k+1}|^2; where steps descend and are at most 1 long, all traces add up to at most 2 R_0.
    24 draws with Assumption 5's own steps, a line search with steps at most 1, and one long step between layers that have nothing in common, after which the traces are all that the bound has.
    The three together are the bounds in print; with the sign of the traces as printed in (29) the first would be of layers k + 1 to L, which the long step exceeds. Planted: half of the traces, and a line search without the cap."""
    kept = [*(run for depth in DESCENTS for run in descents(lab, depth)), descent(lab, not planted, seed=1 + lab.seed)]
    share, sums, excess, aligned = 0.5 if planted else 1.0, [], [], []
    for run in (*kept, _crossed(lab)):
        traces, start, constant = share * account(run)["traces"], run.at(0), imbalance_constant(run.at(0))
        sums.append(float(account(run)["traces"][-1].sum() / (2 * np.exp(run.log_excess[0]))))
        for r in range(1, len(run)):  # a layer of the start may be 0
            found, gained = alignment(run.at(r)), np.append(np.cumsum(traces[r][-2::-1])[::-1], 0.0)
            excess.append(float((found.excess - gained).max()) - constant)
            floor = alignment_floor(run.at(r), start, traces[r])
            aligned.append(float(((1 - found.misfit) ** 2 - floor).min()))
    yield at_most(max(sums[:-1]), 1.0, f"largest sum of the traces over 2 R_0, {len(kept)} runs")
    yield at_most(max(excess), ROUNDING, "largest excess minus (D + traces of its layer and later ones but the last)")
    yield at_least(min(aligned), 0.0, "smallest <v, u>^2 minus its lower bound")


PACE = 0.075  # eta/2 times the curvature, of which the printed bound is at least 1/0.15 times


@recipe
def beside_flow(lab: Lab) -> tuple[list[float], list[float]]:
    """By draw, at the risk that descent reaches: the time of the flow over the sum of the steps, and the distance of all layers from those of the flow over the way from the start."""
    late, apart = [], []
    for depth in DESCENTS:
        run = flows(lab, depth)
        for k, one in enumerate(descents(lab, depth)):
            at = partial(np.interp, -one.log_excess[-1], -run.log_risk[k])
            there = [np.array([at(part) for part in layer[k].reshape(_RECORDS, -1).T]) for layer in run.layers]
            far, way = (_flat(one.at()) - other for other in (np.concatenate(there), _flat(one.at(0))))
            apart.append(float(np.linalg.norm(far) / np.linalg.norm(way)))
            late.append(float(np.exp(at(run.log_time[k]) - account(one)["log_step_sum"][-1])))
    return late, apart


def _flat(layers: Layers) -> np.ndarray:
    return np.concatenate([np.ravel(layer) for layer in layers])


@claim("deep-linear/theorem-3", f"{JI}, Theorem 3; by way of the flow", "sharpened", slow=True)
def theorem3(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Descent with the steps of Assumption 5 lowers the risk at every step, and goes the way of the flow in the sum of its steps: the risk vanishes and the layers align.
    24 draws at depths 2 and 3. A step eta changes the gradient by at most eta times the curvature, of which the printed bound is at least 1/0.15 times: half of that, 0.075, is what the pace
    and the way may differ by. Where the flow goes says `deep-linear/theorem-1`. Planted: a pace one tenth faster."""
    late, apart = beside_flow(lab)
    rises = [float(np.diff(run.log_excess).max()) for depth in DESCENTS for run in descents(lab, depth)]
    yield at_most(max(rises), 0.0, "largest rise of log R between records", f"{len(rises)} draws")
    worst = max(abs(one * (1.1 if planted else 1.0) - 1) for one in late)
    yield at_most(worst, PACE, f"largest |time of the flow / sum of the steps - 1| at the risk after {STEPS} steps")
    yield at_most(max(apart), PACE, "largest distance of the layers from those of the flow there, over their way")
