"""Next-token prediction: frequencies inside the supports are fitted, and what is orthogonal to them goes to a maximum margin of its own."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from ...diagnostics.direction import misalignment
from ...flow.flow import GradientFlow
from ...lab import Lab, claim, recipe
from ...references.euclidean_margin import max_margin
from ...settings.base import Setting
from ...settings.classification import Classification
from ...settings.losses import CrossEntropy
from ...settings.next_token import InsideOutside, NextToken
from ...training.events import LogTimeAbove
from ...training.train import train
from ...training.trajectory import Trajectory
from ...verdict import Verdict, close
from .evidence import mean_interval
from .theorems import THRAMPOULIDIS

_COUNT, _TIME = 20, 12.0


def draw(seed: int) -> NextToken:
    """Three contexts in five dimensions with two of four tokens each."""
    rng = np.random.default_rng(seed)
    targets = np.zeros((3, 4))
    for row in targets:
        first = rng.uniform(0.2, 0.8)
        row[rng.choice(4, 2, replace=False)] = first, 1 - first
    return NextToken(rng.standard_normal((3, 5)), np.array([0.5, 0.3, 0.2]), targets)


@recipe
def flow(lab: Lab, seed: int) -> Trajectory:
    setting = Setting(draw(seed), InsideOutside(), CrossEntropy())
    return train(setting, GradientFlow(), until=LogTimeAbove(_TIME))


@claim("which-margin/next-token", THRAMPOULIDIS, "proved", slow=True)
def selects(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Gradient flow fits the frequencies inside the supports at the rate 1/t, and the rest of the weight turns to the maximum margin orthogonal to them: the angle falls like 1/log t.
    Powers of t and log t, of 1 - corr that of the angle squared, from log t = 6 to 12: means over twenty drawn instances, within two standard errors.
    Planted: the maximum margin of the features as they are, not projected."""
    slopes, powers = [], []
    for seed in range(_COUNT):
        run, data = flow(lab, seed), draw(seed)
        late = run.log_time > _TIME / 2
        power = lambda clock, missing, late=late: np.polyfit(clock[late], np.log(missing), 1)[0]
        slopes.append(power(run.log_time, np.linalg.norm(run.params.inside[late], axis=(1, 2))))
        rows = jax.vmap(data.adjoint)(jnp.eye(data.targets.size)[data.constrained()]).reshape(-1, data.data_weight.size)
        features = Classification(np.asarray(rows), np.ones(len(rows))) if planted else data.outside()
        best = max_margin(features).weight
        apart = [misalignment(np.ravel(part), best) for part in run.params.outside[late]]
        powers.append(power(np.log(np.maximum(run.log_time, 1.0)), apart))
    mean, error = mean_interval(np.array(slopes))
    yield close(mean, -1.0, error, "mean exponent of what is missing inside")
    mean, error = mean_interval(np.array(powers))
    yield close(mean, -2.0, error / 2.0, "mean power of log t in 1 - corr of the rest to its maximum margin")
