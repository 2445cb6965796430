"""The oracle of Theorem 2 by sampling: training with the mean gradient of fresh samples, without any expansion in 1/n."""

from typing import Any

import numpy as np

from ...lab import Lab, recipe
from ...training.recorders import Every
from .context import scaling_problem
from .setting.problem import AttentionLayer, AttentionRegression
from .setting.sample import spectral_layer
from .training.algorithm1 import train_attention
from .training.preconditioned import PreconditionedDescent
from .training.sources import AbstractSource, FreshBatches


def mean_layer_excess(
    problem: AttentionRegression, source: AbstractSource, rule: Any, start: AttentionLayer, steps: int
) -> float:
    """Excess of the mean layer over the second half of a run: the noise of single batches averages out, the bias stays."""
    run = train_attention(source, rule, start, steps=steps, recorder=Every(5), truth=problem)
    late = run.steps >= steps // 2
    return float(problem.excess(AttentionLayer(run.value[late].mean(axis=0), run.key_query[late].mean(axis=0))))


@recipe
def sampled_oracle_floors(
    lab: Lab, count: int, batches: int, runs: int, gauge: str = "minus", seed: int = 0
) -> np.ndarray:
    """Floors with the mean gradient of `batches` fresh samples of size `count` per step, one per run; noise-free targets.

    The regulariser is the population's, so b_2 is that of `oracle_shift(..., sample_balance=False)`.
    """
    problem, rule = scaling_problem(lab), PreconditionedDescent("two_sided", 2.0)
    start = spectral_layer(problem, gauge)
    sources = (FreshBatches(problem, count, batches, 1000 * seed + k) for k in range(runs))
    return np.array([mean_layer_excess(problem, source, rule, start, 200) for source in sources])
