"""The problem of the claims on label noise, its noisy runs, their continuations and the laws for them, each computed once per lab."""

from typing import Any

import numpy as np
from scipy.special import stdtrit

from ...lab import Lab, recipe
from ...references.interpolation import minimum_potential
from ...settings.potentials import Entropy, HyperbolicEntropy
from ...settings.regression import Regression
from ...training.noise import NoisyRun, label_noise, row_signs
from ...training.noise_law import Drift, moment_descent
from ...verdict import Outcome, Verdict, at_most

STEP, DEVIATION, ALPHA = 0.005, 1.0, 0.5
CHECKPOINTS = (2_500, 5_000, 10_000, 20_000, 40_000)
# the step of the noisy run while residuals are large, a longer one after that
CONTINUED = ((STEP, 2_000), (0.05, 6_000))


def chains(lab: Lab) -> tuple[int, int]:
    """Noisy chains, and how many of them are continued without noise."""
    return (1024, 64) if lab.full else (64, 16)


def signals(n: int, unit_columns: bool, seed: int = 0) -> Regression:
    """Normal inputs in thirty dimensions and the weight (1, -1, 0, ...)."""
    inputs = np.random.default_rng(seed).standard_normal((n, 30))
    if unit_columns:
        inputs = inputs / np.sqrt((inputs**2).mean(axis=0))
    return Regression(inputs, inputs[:, 0] - inputs[:, 1])


@recipe
def noisy(lab: Lab, noise: bool = True) -> NoisyRun:
    """Label-noise SGD on signed squares: two signals in thirty dimensions, fifteen samples, columns of mean square 1; or sixteen chains without noise."""
    data, start = signals(15, True, lab.seed), np.full((2, 30), ALPHA)
    deviation, count = (DEVIATION, chains(lab)[0]) if noise else (0.0, 16)
    return label_noise(data, start, step=STEP, deviation=deviation, steps=CHECKPOINTS, chains=count, seed=lab.seed)


@recipe
def drift(lab: Lab) -> Drift:
    """The law of the same runs, to the order of the residuals' second moments."""
    start = np.full((2, 30), ALPHA)
    return moment_descent(signals(15, True, lab.seed), start, step=STEP, deviation=DEVIATION, steps=CHECKPOINTS)


def leading_levels(data: Regression, count: float) -> np.ndarray:
    """log w+ w- after `count` steps, to leading order: it falls by 4 step^2 sigma^2 c_j per step."""
    columns = np.asarray((data.inputs**2).mean(axis=0))
    return 2 * np.log(ALPHA) - 4 * STEP**2 * DEVIATION**2 * columns * count


def limit_of(data: Regression, log_params: np.ndarray) -> np.ndarray:
    """Where noise-free training should end from w+, w- (rows, in logarithms), or from beta (one row): the program."""
    if len(log_params) == 1:
        return minimum_potential(data, Entropy(2 * log_params[0])).weight
    plus, minus = log_params
    return minimum_potential(data, HyperbolicEntropy(plus + minus, plus - minus)).weight


def continued(data: Regression, log_params: np.ndarray) -> np.ndarray:
    """Weights at the end of descent without noise on all samples, from each of many starts (in logarithms, starts x rows x d)."""
    logs = log_params
    for step, count in CONTINUED:
        start = np.exp(logs)
        run = label_noise(data, start, step=step, deviation=0.0, steps=[count], chains=len(start), batch=None)
        logs = run.log_params[-1]
    return np.tensordot(np.exp(2 * logs), row_signs(logs.shape[1]), (1, 0))


@recipe
def continuation(lab: Lab, noise: bool = True) -> tuple[np.ndarray, float]:
    """Weights (records x used x d) at which the first chains end when their noise stops, and the largest relative residual there."""
    run = noisy(lab, noise)
    starts = run.log_params[:, : chains(lab)[1] if noise else 4]
    weights = continued(run.data, starts.reshape(-1, 2, 30)).reshape(*starts.shape[:2], 30)
    targets = np.asarray(run.data.targets)
    residual = np.linalg.norm(weights @ np.asarray(run.data.inputs).T - targets, axis=-1) / np.linalg.norm(targets)
    return weights, float(residual.max())


def measured_norms(lab: Lab, noise: bool = True) -> np.ndarray:
    """l1 norms at which the first chains end when their noise stops (records x used)."""
    return np.abs(continuation(lab, noise)[0]).sum(axis=-1)


@recipe
def predicted_norms(lab: Lab) -> np.ndarray:
    """l1 norm of the noise-off limit at every record: second moments, and leading order (two columns)."""
    law, rows = drift(lab), []
    for count, params in zip(law.steps, law.log_params, strict=True):
        leading = HyperbolicEntropy(leading_levels(law.data, float(count)), np.zeros(30))
        limits = limit_of(law.data, params), minimum_potential(law.data, leading).weight
        rows.append([np.abs(limit).sum() for limit in limits])
    return np.array(rows)


def mean_and_error(values: np.ndarray) -> tuple[Any, Any]:
    """Mean over the last axis and its standard error: arrays, or numbers where there is no other axis."""
    return values.mean(axis=-1), values.std(axis=-1, ddof=1) / np.sqrt(values.shape[-1])


def agree(measured: np.ndarray, predicted: np.ndarray, what: str, detail: str = "") -> Verdict:
    """Whether the means over the last axis cover a prediction at all records at once.

    Confirmed inside the joint 95 % interval (Student's, the level divided among the records), refuted outside the joint
    99.9 % interval, undecided in between, where chance and a law that is slightly off look alike.
    """
    mean, error = mean_and_error(measured)
    widths = [float(stdtrit(measured.shape[-1] - 1, 1 - level / (2 * len(mean)))) for level in (0.05, 0.001)]
    worst = float((np.abs(mean - predicted) / error).max())
    verdict = at_most(worst, widths[0], f"{what}, largest distance in standard errors", detail)
    if verdict.outcome is Outcome.refuted and worst <= widths[1]:
        text = f"{verdict.inequality}, the joint 95 % interval, but within {widths[1]:.3g}, the joint 99.9 % interval"
        return Verdict(Outcome.undecided, text, widths[0], worst, detail)
    return verdict
