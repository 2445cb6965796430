"""Claims on the conditions on steps, at their boundary: data that attain the bounds, one part in a thousand on either side."""

from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np

from ...lab import Lab, recipe
from ...optimisers.base import polyak
from ...problem import read
from ...references.euclidean_margin import max_margin
from ...settings.base import Setting
from ...settings.joint import JointTokens
from ...settings.losses import Correlation, Exponential
from ...settings.parametrisations import Direct
from ...settings.tokens import TokenSelection
from ...theory import token_hypotheses as conditions
from ...training.recorders import Every
from ...training.train import train
from ...verdict import Verdict, at_least, at_most
from .joint_theorems import short_joint_steps
from .theorems import stated

_DRAWS, _STEPS, _NUDGE = 24, 12, 1e-4
_LEAST = 0.2  # chi below which next to nothing is across
_SIDES = (0.999, 1.001)


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
def _multipliers(lab: Lab, share: float) -> list[tuple[float, float, bool]]:
    """By how much a Polyak step with chi/c = 2 share multiplies what is across the limit direction, chi/c, and whether it is called stable.

    Two samples of two tokens, both on the support: across is one direction. The run settles with c = chi, is nudged, and then watched."""
    drawn = (np.random.default_rng(seed).standard_normal((2, 2, 4)) for seed in range(2 * _DRAWS))
    pairs = [
        (data, max_margin(data)) for data in (TokenSelection(one, scores=[[1.0, 0.0], [0.7, 0.0]]) for one in drawn)
    ]
    chi = np.array([conditions.stability_number(*pair) for pair in pairs])
    kept = np.array([len(found.support) == 2 and found.certified for _, found in pairs]) & (chi > _LEAST)
    pairs, chi = [pair for pair, inside in zip(pairs, kept, strict=True) if inside], chi[kept]
    settings = [Setting(data, Direct(), Exponential()) for data, _ in pairs]
    follow = lambda c, start: train(settings, polyak(c), start, steps=_STEPS, recorder=Every())
    far = jnp.stack([jnp.asarray(100 * found.weight) for _, found in pairs])
    settled = np.stack([run.weight() for run in follow(chi, far)])
    across = np.stack([_across(data, found.weight) for data, found in pairs])
    runs = follow(chi / (2 * share), jnp.asarray(settled + _NUDGE * across))
    found = []
    for run, way, number, pair in zip(runs, across, chi, pairs, strict=True):
        moves = np.diff(np.einsum("rij,ij->r", run.params, way))
        c = number / (2 * share)
        found.append((float(moves[1] / moves[0]), number / c, bool(conditions.stable_polyak(*pair, c).holds)))
    return found


def _across(data: TokenSelection, weight: np.ndarray) -> np.ndarray:
    """The unit direction of the span of both features that is orthogonal to W_mm."""
    first = np.asarray(data.adjoint(jnp.array([1.0, 0.0])))
    rest = first - np.sum(first * weight) / np.sum(weight**2) * weight
    return rest / np.linalg.norm(rest)


@stated("self-attention/polyak-multiplier", "the steps of Theorem 7; number by us", "sharpened", slow=True)
def polyak_multiplier(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Far out a Polyak step multiplies what is across the limit direction by 1 - chi/c, so that it is called stable exactly where that is above -1.
    At chi/c five per cent on either side of 2. Planted: a chi five per cent larger."""
    found = [one for share in (0.95, 1.05) for one in _multipliers(lab, share)]
    yield at_least(float(len(found) // 2), 20.0, "data sets of two support pairs")
    worst = max(abs(ratio - (1 - load * (1.05 if planted else 1.0))) for ratio, load, _ in found)
    yield at_most(worst, 5e-3, "largest difference of the multiplier from 1 - chi/c, after a nudge of 1e-4")
    wrong = sum(stable is not (abs(ratio) < 1) for ratio, _, stable in found)
    yield at_most(float(wrong), 0.0, "wrong answers on stability")
