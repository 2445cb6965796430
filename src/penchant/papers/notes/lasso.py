"""Claims on early stopping: the time average of the flow from a small start follows the lasso path."""

import numpy as np

from ...diagnostics.rates import log_log_slope
from ...flow.mirror import follow_dual
from ...lab import Lab, claim, recipe
from ...references.lasso import Lasso, lasso_path
from ...settings.generators import sparse_regression
from ...settings.regression import Regression
from ...settings.square_models import SignedSquares, Squares
from ...verdict import Verdict, all_of, at_least, at_most, close
from .evidence import DERIVED, arrays, summed

BERTHIER = "Berthier, Incremental learning in diagonal linear networks, JMLR 2023"
_PENALTIES = np.geomspace(0.9, 0.1, 25)  # over the least one with solution 0
_STARTS = (1e-20, 1e-40, 1e-80)
_CASES = ((0, False), (2, False), (0, True))  # seeds, and whether by squares on nonnegative signals


def noisy_targets(
    n: int, d: int, sparsity: int, deviation: float, seed: int, *, signed: bool = True
) -> tuple[Regression, np.ndarray]:
    """Sparse signals with noise on the targets, and the signals."""
    data, weight = sparse_regression(n, d, sparsity, seed, signed=signed)
    noise = np.random.default_rng(100 + seed).standard_normal(n)
    return Regression(data.inputs, np.asarray(data.targets) + deviation * noise), weight


def penalty_of(alpha: float, time: np.ndarray, scale: float = 1.0) -> np.ndarray:
    """The penalty that a time of the flow from alpha stands for: log(1/alpha^2) / (4 kappa t)."""
    return -2 * np.log(alpha) / (4 * scale * time)


@recipe
def _path(lab: Lab, seed: int, squares: bool) -> tuple[Regression, list[Lasso]]:
    data, _ = noisy_targets(30, 60, 3, 0.3, seed, signed=not squares)
    inputs, targets = arrays(data)
    pull = inputs.T @ targets
    largest = float((pull if squares else np.abs(pull)).max())
    return data, lasso_path(data, largest * _PENALTIES, nonnegative=squares)


@recipe
def _distances(lab: Lab, alpha: float, seed: int, squares: bool, exponent: float) -> np.ndarray:
    """|mean residual until t - residual of the lasso| / |y| at the penalties exponent * log(1/alpha) / (4 t)."""
    data, path = _path(lab, seed, squares)
    times = -exponent * np.log(alpha) / (4 * np.array([one.penalty for one in path]))
    setting = summed(data, Squares(alpha) if squares else SignedSquares(alpha))
    mean = follow_dual(setting, log_times=np.log(times), tolerance=1e-7).dual[1:] / (4 * times[:, None])
    apart = np.linalg.norm(mean - np.array([one.residual for one in path]), axis=1)
    return apart / np.linalg.norm(np.asarray(data.targets))


@claim("early-stopping/lasso", f"{BERTHIER}; constant {DERIVED}", "ours", slow=True)
def time_average(lab: Lab, planted: bool) -> Verdict:
    """Where the lasso path is monotone, the residual of signed squares (squares) averaged until t is that of the lasso (among nonnegative weights) with penalty log(1/alpha^2) / (4 kappa t), up to O(1/log(1/alpha)).
    Mean residuals until t against the lasso at log(1/alpha^2)/(4t), as alpha falls; planted: at log(1/alpha)/(4t)."""
    exponent, checks = 1.0 if planted else 2.0, []
    for seed, squares in _CASES:
        path, name = _path(lab, seed, squares)[1], f"{'squares' if squares else 'signed squares'}, seed {seed}"
        sizes = np.abs([one.weight for one in path])
        worst = np.array([_distances(lab, alpha, seed, squares, exponent).max() for alpha in _STARTS])
        slope = log_log_slope(-np.log(_STARTS), worst, (1.0, 1e3))
        text = f"{name}: largest distance of the mean residual to that of the lasso, over |y|,"
        checks += [
            at_least(float(np.diff(sizes, axis=0).min()), -1e-9, f"{name}: growth of lasso coefficients"),
            at_most(float(worst[-1]), 2e-3, f"{text} at alpha = {_STARTS[-1]:g}"),
            close(slope, -1.0, 0.1, f"{name}: exponent of that distance in log(1/alpha)"),
            at_most(max(one.gap for one in path), 1e-10, f"{name}: largest duality gap of the lasso"),
        ]
    return all_of(*checks)
