"""Deep linear networks in discrete time: the relative step beyond which descent leaves the flow, and what momentum, minibatches and Adam keep of its limit."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ...diagnostics.alignment import alignment
from ...diagnostics.direction import misalignment
from ...lab import Lab, claim, recipe
from ...optimisers.base import Adam, Descent
from ...optimisers.memory import HeavyBall
from ...optimisers.step_rules import Constant, Polyak
from ...references.euclidean_margin import max_margin
from ...references.support_geometry import SupportGeometry
from ...settings.base import Setting
from ...settings.deep_linear import DeepLinear, Layers, ensure_assumption2, imbalances
from ...settings.generators import blobs
from ...settings.losses import Exponential
from ...theory.families.layers import critical_step
from ...theory.families.linear import linear_rivals
from ...training.events import LogExcessBelow
from ...training.recorders import LogSpaced
from ...training.train import train
from ...training.trajectory import Trajectory
from ...verdict import Verdict, all_of, at_least, at_most
from .evidence import DERIVED, across, geometry, problem

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


def _around(lab: Lab, depth: int, scale: float, beta: float = 0.0) -> list[Verdict]:
    """The offset settles two per cent below `scale` times the critical step, and not two per cent above."""
    error = lambda share: offset_error(relative_descent(lab, scale * share, depth, beta).weight(), geometry(lab))
    what = f"depth {depth}: relative error of the offset, step"
    return [at_most(error(0.98), 1e-3, f"{what} 0.98"), at_least(error(1.02), 0.1, f"{what} 1.02")]


@claim("deep-linear/critical-step", f"{DERIVED}; discretisation is open there", "ours", slow=True)
def critical(lab: Lab, planted: bool) -> Verdict:
    """Descent follows the flow to its offset if a step promises log R to drop by less than 2 L margin^2 / (largest variance of the support vectors across the margin), and only then.
    Two per cent below the critical step the offset is that of the flow, two per cent above it never settles; the twin has lost the factor L."""
    checks = []
    for depth in (1, 2, 3, 4):
        scale = 1 / depth if planted else 1.0
        checks += _around(lab, depth, scale)
    return all_of(*checks)


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


def measures(setting: Setting, layers: Any, start: Any) -> dict[str, float]:
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
def apart(lab: Lab, depth: int = 3, seed: int = 1) -> tuple[Setting, Any]:
    """Blobs in ten dimensions, where the maximum margins in the l2, l1 and linf norms are far apart, and a start."""
    setting = Setting(blobs(50, 10, 3), DeepLinear((8,) * (depth - 1)), Exponential())
    return setting, ensure_assumption2(setting, setting.start(seed, 0.3))


@recipe
def adaptive(lab: Lab, depth: int = 3, seed: int = 1, step: float = 1e-4) -> Trajectory:
    setting, start = apart(lab, depth, seed)
    return train(setting, Adam(step, 0.0), start, steps=60_000, recorder=LogSpaced(40))


@claim("deep-linear/critical-step-momentum", f"{DERIVED}; discretisation is open there", "ours", slow=True)
def momentum(lab: Lab, planted: bool) -> Verdict:
    """With momentum beta that step may be 1 + beta times as long.
    With momentum beta the critical step is 1 + beta times as long; the twin has 1 / (1 - beta), by which momentum speeds up."""
    beta, checks = 0.5, []
    scale = 1 / (1 - beta) / (1 + beta) if planted else 1.0
    for depth in (2, 3):
        checks += _around(lab, depth, scale, beta)
    return all_of(*checks)


@claim("deep-linear/sgd", "measured; open in the paper", "observed", slow=True)
def sampled(lab: Lab, planted: bool) -> Verdict:
    """SGD on single samples aligns the layers and has the margin of descent, while its imbalances drift more than five times as far.
    SGD on single samples, three draws, against descent on the whole risk; the twin expects it to conserve the imbalances as well."""
    setting, start = problem(lab, 3, logistic=True)
    whole, checks = measures(setting, whole_descent(lab).at(), start), []
    for seed in range(3):
        one = measures(setting, sampled_descent(lab, 1, seed), start)
        gained, name = one["margin / best margin"] - whole["margin / best margin"], f"draw {seed}"
        moved = one["drift"] / whole["drift"]
        checks += [
            at_most(abs(gained), 1e-2, f"{name}: |difference of the margins per norm| over the best"),
            at_most(one["1 - |<v, u>|"], 1e-2, f"{name}: largest 1 - |<v, u>|"),
            (at_most if planted else at_least)(moved, 5.0, f"{name}: drift of the imbalances, times that of descent"),
        ]
    return all_of(*checks)


@claim("deep-linear/adam", "measured; open in the paper", "observed", slow=True)
def adaptive_direction(lab: Lab, planted: bool) -> Verdict:
    """Adam aligns the layers too, and turns the network to the maximum margin in the linf norm: it loses the l2 margin.
    Adam where the maximum margins are apart, to risk e^-26 and e^-34; the twin expects the l2 one."""
    checks = []
    for depth, seed in ((2, 1), (2, 2), (3, 1), (3, 2)):
        run, (setting, start) = adaptive(lab, depth, seed), apart(lab, depth, seed)
        reference = max_margin(setting.data)
        other = next(rival for rival in linear_rivals(setting, reference) if rival.name == "linf")
        wanted, name = reference.weight if planted else other.weight, f"depth {depth}, start {seed}"
        found = measures(setting, run.at(), start)
        checks += [
            at_most(misalignment(run.weight(), wanted), other.separation / 10, f"{name}: 1 - corr to the reference"),
            at_most(found["margin / best margin"], 0.9, f"{name}: l2 margin over the best"),
            at_most(found["1 - |<v, u>|"], 0.1, f"{name}: largest 1 - |<v, u>|"),
        ]
    return all_of(*checks)
