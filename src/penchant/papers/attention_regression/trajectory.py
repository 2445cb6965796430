"""A3 where training really is: moments of the logits at given layers, and along a run."""

from collections.abc import Sequence

import numpy as np

from ...theory.base import Hypothesis
from .setting.moments import first_violation, key_strength, moment_threshold
from .setting.problem import AttentionLayer, AttentionRegression
from .setting.sample import noise_level
from .theorems import kind
from .training.run import AbstractAttentionRun


def layer_moments(
    problem: AttentionRegression,
    layers: Sequence[AttentionLayer],
    steps: Sequence[int],
    power: float = 2.0,
    samples: int | None = None,
) -> Hypothesis:
    """A3(p) at given layers: largest eigenvalue of sym V below 1/(2p) and |V| below 1/p, whitened; the offender is the first that fails.

    With the covariance of `samples` rows, slack within its noise leaves the answer open.
    """
    whitened = [np.asarray(problem.whiten(layer)) for layer in layers]
    strengths = np.array([key_strength(one, problem.outputs) for one in whitened])
    room = np.minimum(np.sqrt(moment_threshold(power)) - strengths[:, 0], 1 / power - strengths[:, 1])
    first = first_violation(whitened, problem.outputs, power)
    worst = int(room.argmin())
    where = f"first at step {steps[first]}, worst" if first is not None else "nearest"
    holds: bool | None = first is None
    if samples is not None and abs(room[worst]) <= _noise(problem, samples, strengths[worst, 1]):
        holds = None
    detail = (
        f"the lesser of 1/(2p) - {strengths[worst, 0]:.3g} (largest eigenvalue of sym V) and 1/p - {strengths[worst, 1]:.3g} (|V|), p = {power:g}, "
        f"at the layers of {len(layers)} recorded steps"
    )
    return Hypothesis(
        "A3_trajectory", holds, float(room[worst]), f"{where} at step {steps[worst]}", detail, kind(samples)
    )


def _noise(problem: AttentionRegression, samples: int, norm: float) -> float:
    """What the whitened V is wrong by, as its covariance is: both roots count half."""
    return float(norm * noise_level(problem, samples) / problem.sizes[0])


def trajectory_moments(
    run: AbstractAttentionRun,
    power: float = 2.0,
    *,
    truth: AttentionRegression | None = None,
    samples: int | None = None,
) -> Hypothesis:
    """A3(p) at every record of a run, whitened by the `truth`, or by the run's own problem (an estimate of `samples` rows).

    >>> from penchant.papers.attention_regression.training.preconditioned import PreconditionedDescent
    >>> from penchant.papers.attention_regression.setting.generators import attention_experiment
    >>> from penchant.papers.attention_regression.training.population import train_population
    >>> found = attention_experiment()
    >>> run = train_population(found.problem, PreconditionedDescent("two_sided", "adaptive"), found.start, steps=5)
    >>> moments = trajectory_moments(run)                         # its normal start is far from the minima
    >>> moments.holds, moments.offender[:15]
    (False, 'first at step 0')
    """
    layers = [run.at(record) for record in range(len(run))]
    problem = run.problem if truth is None else truth
    return layer_moments(problem, layers, run.steps.tolist(), power, None if truth is not None else samples)
