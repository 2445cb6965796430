"""The embedded problem of the claims on label noise, its noisy runs and the laws for them, each computed once."""

from functools import cache

import numpy as np

from ..references.interpolation import minimum_potential
from ..settings.potentials import HyperbolicEntropy
from ..settings.regression import Regression
from ..training.noise import NoisyRun, label_noise
from ..training.noise_law import Drift, moment_descent

STEP, DEVIATION, ALPHA = 0.005, 1.0, 0.5
CHECKPOINTS = (2_500, 5_000, 10_000, 20_000, 40_000)
CHAINS, LIMITS = 64, 16  # noisy chains, and how many of them are followed to their noise-off limit


def signals(n: int, unit_columns: bool) -> Regression:
    """Normal inputs in thirty dimensions and the weight (1, -1, 0, ...)."""
    inputs = np.random.default_rng(0).standard_normal((n, 30))
    if unit_columns:
        inputs = inputs / np.sqrt((inputs**2).mean(axis=0))
    return Regression(inputs, inputs[:, 0] - inputs[:, 1])


@cache
def noisy(chains: int = CHAINS, deviation: float = DEVIATION) -> NoisyRun:
    """Label-noise SGD on signed squares: two signals in thirty dimensions, fifteen samples, columns of mean square 1."""
    start = np.full((2, 30), ALPHA)
    return label_noise(signals(15, True), start, step=STEP, deviation=deviation, steps=CHECKPOINTS, chains=chains)


@cache
def drift() -> Drift:
    """The law of the same runs, to the order of the residuals' second moments."""
    return moment_descent(signals(15, True), np.full((2, 30), ALPHA), step=STEP, deviation=DEVIATION, steps=CHECKPOINTS)


def leading_levels(data: Regression, count: float) -> np.ndarray:
    """log w+ w- after `count` steps, to leading order: it falls by 4 step^2 sigma^2 c_j per step."""
    columns = np.asarray((data.inputs**2).mean(axis=0))
    return 2 * np.log(ALPHA) - 4 * STEP**2 * DEVIATION**2 * columns * count


def limit_of(data: Regression, log_params: np.ndarray) -> np.ndarray:
    """Where noise-free training ends from w+, w- (rows, in logarithms)."""
    plus, minus = log_params
    return minimum_potential(data, HyperbolicEntropy(plus + minus, plus - minus)).weight


def leading_limit(data: Regression, count: float) -> np.ndarray:
    """The noise-off limit after `count` steps, to leading order."""
    return minimum_potential(data, HyperbolicEntropy(leading_levels(data, count), np.zeros(30))).weight


@cache
def measured_norms(chains: int = CHAINS, used: int = LIMITS, deviation: float = DEVIATION) -> np.ndarray:
    """l1 norms of the noise-off limits of the first chains (records x used)."""
    run = noisy(chains, deviation)
    return np.array([[np.abs(limit_of(run.data, one)).sum() for one in record[:used]] for record in run.log_params])


@cache
def predicted_norms() -> np.ndarray:
    """l1 norm of the noise-off limit at every record: second moments, and leading order (two columns)."""
    law = drift()
    rows = [
        (np.abs(limit_of(law.data, params)).sum(), np.abs(leading_limit(law.data, count)).sum())
        for count, params in zip(law.steps, law.log_params, strict=True)
    ]
    return np.array(rows)


def mean_and_error(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean over the last axis and its standard error."""
    return values.mean(axis=-1), values.std(axis=-1, ddof=1) / np.sqrt(values.shape[-1])
