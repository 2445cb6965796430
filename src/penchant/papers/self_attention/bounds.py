"""Claims on the conditions on steps, at their boundary: data that attain the bounds, one part in a thousand on either side.

Claims on token selection that go beyond the paper: sharp constants and momentum.
"""

from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ...diagnostics.direction import misalignments
from ...diagnostics.rates import linear_slope, settling
from ...lab import Lab, derived, recipe
from ...optimisers.base import polyak
from ...problem import read
from ...references.base import Solution
from ...references.euclidean_margin import max_margin
from ...settings.base import Setting
from ...settings.joint import JointTokens
from ...settings.losses import Correlation, Exponential
from ...settings.parametrisations import Direct
from ...settings.tokens import TokenSelection
from ...theory import selections as conditions
from ...training.events import Every
from ...training.train import train
from ...training.trajectory import Trajectory
from ...verdict import Verdict, all_of, at_least, at_most, close, covers
from . import evidence
from .theorems import short_joint_steps, stated

_DRAWS, _SETTLING, _NUDGE = 24, 30, 1e-5
_SIDES = (0.999, 1.001)
_SCORES = [[1.0, 0.0], [0.7, 0.0]]


def _attaining(seed: int, samples: int) -> tuple[TokenSelection, float, float]:
    """A sample of opposite tokens as long as its query, whose pair feature has the largest length there is, 2 B^2, and others like it, each half as long; with B^2 and the gap of the scores."""
    rng = np.random.default_rng(seed)
    size, gap, axes = rng.uniform(0.5, 2), rng.uniform(0.5, 2), rng.standard_normal((2, 3))
    token, query = size * axes / np.linalg.norm(axes, axis=1, keepdims=True)
    shorter = 0.5 ** np.arange(samples)[:, None]
    tokens = shorter[:, None] * np.stack([token, -token])
    return TokenSelection(tokens, scores=[[gap, 0.0]] * samples, queries=shorter * query), size**2, gap


@stated(
    "self-attention/step-bounds",
    "Lemma 5, the steps of Theorems 1 and 6, and Condition C4; attained by us",
    "sharpened",
    slow=True,
)
def step_bounds(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Steps of normalised and of gradient descent are called short exactly where none can move a logit margin by more than 1 (those of joint training: by more than 1/2), and a step against a pair leaves its token the floor of attention.
    On 24 data sets that attain both bounds, the second with the loss -z, whose slope is the same everywhere. Planted: margins that may move by 1.01."""
    wrong, floors, most = 0, [], 1.01 if planted else 1.0
    for seed in range(_DRAWS):
        (data, square, gap), (alone, _, _) = _attaining(seed, 3), _attaining(seed, 1)
        setting, lone = (Setting(one, Direct(), Correlation()) for one in (data, alone))
        feature, reading = alone.adjoint(jnp.ones(1)), read(lone, lone.start())
        joint = JointTokens(data.tokens, np.ones(3), np.zeros(3, int), queries=data.queries)
        unit, moved = feature / jnp.linalg.norm(feature), lambda move, data=data: float(data.margins(move).max())
        for side in _SIDES:
            length, step = side / (2 * square), side / (gap * square**2)
            walked = -step * jnp.exp(reading.log_scale) * reading.slope
            wrong += conditions.short_steps(length, data).holds is not (moved(length * unit) <= most)
            wrong += short_joint_steps(length / 2, joint).holds is not (moved(length * unit) <= most)
            wrong += conditions.small_step_size(step, alone, lone.loss).holds is not (moved(walked) <= most)
            share = conditions.smallest_share(setting, -length * unit)
            floors.append(abs(conditions.attention_floor(setting, setting.start(), length) / share - 1))
    yield at_most(
        float(wrong), 0.0, f"wrong answers, one part in a thousand on either side of the bounds, {_DRAWS} samples"
    )
    yield at_most(max(floors), 1e-12, "relative difference of the floor from attention after such a step")


@recipe
def _settled(lab: Lab) -> tuple[list[tuple[TokenSelection, Solution]], np.ndarray, np.ndarray, float]:
    """Data of two samples of two tokens, both on the support, so that across the limit direction is one direction; their chi, where Polyak runs with c = chi end, and the largest last move of these across."""
    drawn = (np.random.default_rng(seed).standard_normal((2, 2, 4)) for seed in range(2 * _DRAWS))
    solved = [(data, max_margin(data)) for data in (TokenSelection(one, scores=_SCORES) for one in drawn)]
    pairs = [(data, found) for data, found in solved if found.support.all() and found.certified]
    chi = np.array([conditions.stability_number(*pair) for pair in pairs])
    far = jnp.stack([jnp.asarray(100 * found.weight) for _, found in pairs])
    runs = _followed(pairs, chi, far, _SETTLING)
    left = max(abs(_moves(run, *pair)[-1]) for run, pair in zip(runs, pairs, strict=True))
    return pairs, chi, np.stack([run.weight() for run in runs]), float(left)


def _followed(
    pairs: list[tuple[TokenSelection, Solution]], c: np.ndarray, start: Array, steps: int
) -> list[Trajectory]:
    settings = [Setting(data, Direct(), Exponential()) for data, _ in pairs]
    return train(settings, polyak(c), start, steps=steps, recorder=Every())


def _moves(run: Trajectory, data: TokenSelection, found: Solution) -> np.ndarray:
    return np.diff(np.einsum("rij,ij->r", run.params, _across(data, found.weight)))


@recipe
def _multipliers(lab: Lab, share: float) -> list[tuple[float, float, bool, float]]:
    """By how much a Polyak step with chi/c = 2 share multiplies a nudge across the limit direction, chi/c, whether it is called stable, and what the bend of the loss may add.

    That is chi/c times the nudge times the difference of the two margins along it, at most their third cumulant over their second."""
    pairs, chi, settled, _ = _settled(lab)
    ways, c = np.stack([_across(data, found.weight) for data, found in pairs]), chi / (2 * share)
    runs, found = _followed(pairs, c, jnp.asarray(settled + _NUDGE * ways), 2), []
    for run, way, number, one, pair in zip(runs, ways, chi, c, pairs, strict=True):
        first, second = _moves(run, *pair)
        bend = number / one * _NUDGE * float(np.ptp(np.asarray(pair[0].margins(jnp.asarray(way)))))
        stable = bool(conditions.stable_polyak(*pair, float(one)).holds)
        found.append((float(second / first), float(number / one), stable, bend))
    return found


def _across(data: TokenSelection, weight: np.ndarray) -> np.ndarray:
    """The unit direction of the span of both features that is orthogonal to W_mm."""
    first = np.asarray(data.adjoint(jnp.array([1.0, 0.0])))
    rest = first - np.sum(first * weight) / np.sum(weight**2) * weight
    return rest / np.linalg.norm(rest)


@stated("self-attention/polyak-multiplier", "the steps of Theorem 7; number by us", "sharpened", slow=True)
def polyak_multiplier(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Far out a Polyak step multiplies what is across the limit direction by 1 - chi/c, so that it is called stable exactly where that is above -1.
    At chi/c five per cent on either side of 2, after a nudge of 1e-5, up to the bend of the loss. Planted: a chi one per cent larger."""
    found = [one for share in (0.95, 1.05) for one in _multipliers(lab, share)]
    yield at_least(float(len(found) // 2), 20.0, f"of {2 * _DRAWS} data sets, those with two support pairs")
    yield at_most(_settled(lab)[3] / _NUDGE, 1e-6, "largest last move across of the settled runs, over the nudge")
    worst = max(abs(ratio - (1 - load * (1.01 if planted else 1.0))) / bend for ratio, load, _, bend in found)
    yield at_most(worst, 1.0, "largest difference of the multiplier from 1 - chi/c, over what the bend may add")
    wrong = sum(stable is not (abs(ratio) < 1) for ratio, _, stable, _ in found)
    yield at_most(float(wrong), 0.0, "wrong answers on stability")


@derived("self-attention/sharp-constant", slow=True)
def constants_agree(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """|W|^2 (1 - corr) tends to one constant for descent, momentum, Polyak and the flow.
    At |W| above 499. Planted: a constant one per cent larger."""
    setting, reference = evidence.preset(lab, "E")
    predicted = evidence.sharp_constant(setting, reference) * (1.01 if planted else 1.0)
    runs = {rule: evidence.fleet(lab, rule)[0][0] for rule in ("NGD", "NGD, momentum 0.9", "Polyak")}
    for name, run in (runs | {"flow": evidence.flow_run(lab)}).items():
        measured = float(run.norm[-1] ** 2 * misalignments(run, reference)[-1])
        yield close(measured, predicted, 1e-4, f"|W|^2 (1 - corr), {name}")


@derived("self-attention/heavy-ball", slow=True)
def heavy_ball(lab: Lab, planted: bool) -> Verdict:
    """Heavy ball keeps the exponent of 1 - corr and lowers its constant by (1 - beta)^2.
    t times the ratio to no momentum: the lag of the velocity, beta/(1-beta) steps, shows as a correction of that size over t. Planted: by 1 - beta."""
    checks, plain = [], [distance for _, distance in evidence.alignments(evidence.fleet(lab, "NGD"))]
    for beta in (0.5, 0.9, 0.99):
        pairs = zip(evidence.alignments(evidence.fleet(lab, f"NGD, momentum {beta:g}")), plain, strict=True)
        found = settling([(t[1:], t[1:] * d[1:] / p[1:]) for (t, d), p in pairs], (1e3, 1e4), linear_slope)
        wanted = (1 - beta) ** (1 if planted else 2)
        text = f"d (t times ratio to no momentum) / dt, beta = {beta:g}, steps 1e3 to 1e4, seeds 0-9"
        checks.append(covers(found, wanted, text, rival=(1 - beta) ** (2 if planted else 1)))
    return all_of(*checks)
