"""Deep linear networks in discrete time: the relative step beyond which descent leaves the flow, and what momentum, minibatches and Adam keep of its limit."""

from collections.abc import Iterator, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike

from ...diagnostics.alignment import alignment
from ...diagnostics.direction import misalignment
from ...lab import Lab, claim, recipe
from ...optimisers.base import Adam, Descent
from ...optimisers.memory import HeavyBall
from ...optimisers.step_rules import Constant, Polyak
from ...references.euclidean_margin import max_margin
from ...references.support_geometry import SupportGeometry
from ...settings.base import Setting
from ...settings.deep_linear import Layers, imbalances
from ...settings.generators import blobs
from ...settings.losses import Exponential
from ...theory.families.layers import critical_step
from ...training.events import LogExcessBelow
from ...training.recorders import LogSpaced
from ...training.train import train
from ...training.trajectory import Trajectory
from ...verdict import Verdict, at_least, at_most
from .evidence import DERIVED, across, geometry, network, problem

LEVEL = 2000.0  # of -log R, where corrections to the critical step have fallen below its two per cent
_STEPS = 200_000
_SHORT, _SAMPLED = 0.2, 100_000  # step and number of steps of SGD, which ends at risk 3e-6


@recipe
def relative_descent(lab: Lab, share: float, depth: int, momentum: float = 0.0, level: float = LEVEL) -> Trajectory:
    """Descent on the strips with steps that promise `share` of the critical drop of log R, with momentum 1 + beta times that, to risk e^-level."""
    setting, start = problem(lab, depth)
    drop = share * (1 + momentum) * critical_step(geometry(lab), depth)
    optimiser = Descent(Polyak(1 / drop), after=HeavyBall(momentum)) if momentum else Descent(Polyak(1 / drop))
    return train(setting, optimiser, start, steps=_STEPS, until=LogExcessBelow(-level), recorder=LogSpaced(40))


def offset_error(weight: np.ndarray, found: SupportGeometry) -> float:
    """Distance of the offset of a weight from the one the flow tends to, relative to that."""
    return float(np.linalg.norm(across(weight, found) - found.offset) / np.linalg.norm(found.offset))


def _around(lab: Lab, depth: int, scale: float, beta: float = 0.0) -> Iterator[Verdict]:
    """The offset settles two per cent below `scale` times the critical step, and not two per cent above."""
    error = lambda share: offset_error(relative_descent(lab, scale * share, depth, beta).weight(), geometry(lab))
    what = f"depth {depth}: relative error of the offset, step"
    yield at_most(error(0.98), 1e-3, f"{what} 0.98")
    yield at_least(error(1.02), 0.1, f"{what} 1.02")


@claim("deep-linear/critical-step", f"{DERIVED}; discretisation is open there", "ours", slow=True)
def critical(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Descent follows the flow to its offset if a step promises log R to drop by less than 2 L margin^2 / (largest variance of the support vectors across the margin), and only then.
    Two per cent below the critical step the offset is that of the flow, two per cent above it never settles; the twin has lost the factor L."""
    for depth in (1, 2, 3, 4):
        yield from _around(lab, depth, 1 / depth if planted else 1.0)


@eqx.filter_jit
def _sampled(setting: Setting, start: Layers, step: float, batch: int, keys: jax.Array) -> Layers:
    def move(layers: Layers, key: jax.Array) -> tuple[Layers, None]:
        margins, pull = setting.parametrisation.linearise(layers, setting.data)
        drawn = jax.random.randint(key, (batch,), 0, setting.samples)
        shares = jnp.zeros(setting.samples).at[drawn].add(1.0 / batch)
        change = pull(shares * jnp.exp(setting.loss.log_slope(margins)))
        return jax.tree.map(lambda layer, part: layer + step * part, layers, change), None

    return jax.lax.scan(move, start, keys)[0]


@recipe
def sampled_descent(lab: Lab, batch: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Three layers after SGD on the logistic risk of the strips, with constant steps and batches drawn with replacement."""
    setting, start = problem(lab, 3, logistic=True)
    keys = jax.random.split(jax.random.key(seed), _SAMPLED)
    return tuple(np.asarray(layer) for layer in _sampled(setting, start, _SHORT, batch, keys))


@recipe
def whole_descent(lab: Lab) -> Trajectory:
    """The same steps on the whole risk."""
    setting, start = problem(lab, 3, logistic=True)
    return train(setting, Descent(Constant(_SHORT)), start, steps=_SAMPLED, recorder=LogSpaced(10))


def measures(setting: Setting, layers: Sequence[ArrayLike], start: Sequence[ArrayLike]) -> dict[str, float]:
    """What is left to align, to turn and to gain, and how far the imbalances have moved."""
    found, best = alignment(layers), max_margin(setting.data)
    weight = np.asarray(setting.weight(tuple(jnp.asarray(layer) for layer in layers)))
    margin = float((np.asarray(setting.data.signed) @ weight).min() / np.linalg.norm(weight))
    drift = [np.linalg.norm(now - then, 2) for now, then in zip(imbalances(layers), imbalances(start), strict=True)]
    return {
        "1 - ratio": float(found.deficit.max()),
        "1 - |<v, u>|": float(found.misfit.max(initial=0.0)),
        "margin / best margin": margin / best.margin,
        "1 - corr": misalignment(weight, best.weight),
        "drift": float(max(drift, default=0.0)),
    }


@recipe
def apart(lab: Lab, depth: int = 3, seed: int = 1) -> tuple[Setting, Layers]:
    """Blobs in ten dimensions, where the maximum margins in the l2, l1 and linf norms are far apart, and a start."""
    return network(blobs(50, 10, 3), depth, 8, Exponential(), seed, 0.3)


@recipe
def adaptive(lab: Lab, depth: int = 3, seed: int = 1, step: float = 1e-4) -> Trajectory:
    setting, start = apart(lab, depth, seed)
    return train(setting, Adam(step, 0.0), start, steps=60_000, recorder=LogSpaced(40))


@claim("deep-linear/critical-step-momentum", f"{DERIVED}; discretisation is open there", "ours", slow=True)
def momentum(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """With momentum beta that step may be 1 + beta times as long.
    With momentum beta the critical step is 1 + beta times as long; the twin has 1 / (1 - beta), by which momentum speeds up."""
    beta = 0.5
    for depth in (2, 3):
        yield from _around(lab, depth, 1 / (1 - beta) / (1 + beta) if planted else 1.0, beta)
