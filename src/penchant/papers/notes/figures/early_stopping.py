"""Noisy targets: when to stop the flow on signed squares, against the best lasso."""

import numpy as np

from ....exhibits import DEFINITIONS, Figure, Finding, Line, Result, Shown, Table
from ....flow.mirror import follow_dual
from ....lab import Lab, Study
from ....references.interpolation import minimum_potential
from ....references.lasso import lasso_path
from ....settings.base import Setting
from ....settings.losses import Squared
from ....settings.potentials import q_alpha
from ....settings.regression import Regression
from ....settings.square_models import SignedSquares
from ....verdict import at_most
from ..evidence import DERIVED
from ..lasso import BERTHIER, noisy_targets, penalty_of, time_average

_D, _SIGNALS = 100, 5
_STARTS, _SAMPLES, _DEVIATIONS = (1e-1, 1e-3, 1e-6), (40, 80), (0.1, 0.5)
_SHARES = np.geomspace(0.95, 0.01, 40)  # penalties, over the least one with solution 0
_SHOWN = (40, 0.5)  # samples and noise of the figure


def _largest(data: Regression) -> float:
    return float(np.abs(np.asarray(data.inputs).T @ np.asarray(data.targets)).max())


def _error(weights: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Squared distance to the signals over their squared norm: the excess error on fresh samples."""
    return ((weights - truth) ** 2).sum(axis=-1) / (truth**2).sum()


def lasso_errors(data: Regression, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Penalties and errors of the lasso."""
    penalties = _largest(data) * _SHARES
    return penalties, _error(np.array([one.weight for one in lasso_path(data, penalties)]), truth)


def flow_errors(data: Regression, truth: np.ndarray, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """Times that stand for a wide range of penalties, and errors of the flow on |r|^2 / 2 from alpha there."""
    penalties = _largest(data) * np.geomspace(1.5, 1e-3, 60)
    times = penalty_of(alpha, penalties)  # the relation of time and penalty is its own inverse
    setting, inputs = Setting(data, SignedSquares(alpha), Squared(), "sum"), np.asarray(data.inputs)
    path = follow_dual(setting, log_times=np.log(times), tolerance=1e-6)
    return times, _error(q_alpha(alpha, _D).link(path.dual[1:] @ inputs), truth)


def _row(n: int, deviation: float, alpha: float, seed: int, draws: int) -> tuple[tuple, np.ndarray]:
    """A row of the map, and the errors behind it: best of the flow, its limit, best of the lasso; one column per draw."""
    found, stops = [], []
    for draw in range(draws):
        data, truth = noisy_targets(n, _D, _SIGNALS, deviation, 10 * seed + draw)
        times, errors = flow_errors(data, truth, alpha)
        end = minimum_potential(data, q_alpha(alpha, _D)).weight
        stops.append(times[int(errors.argmin())])
        found.append((errors.min(), float(_error(end, truth)), lasso_errors(data, truth)[1].min()))
    values, stop = np.array(found).T, float(np.exp(np.mean(np.log(stops))))
    means = values.mean(axis=1)
    shown = (Shown(stop, ".3g"), Shown(penalty_of(alpha, np.array(stop)), ".3g"), *(Shown(one, ".3g") for one in means))
    return (str(n), Shown(deviation, "g"), Shown(alpha, "g"), *shown), values


def _figure(seed: int) -> Figure:
    n, deviation = _SHOWN
    data, truth = noisy_targets(n, _D, _SIGNALS, deviation, 10 * seed)
    lines = []
    for alpha in _STARTS:
        times, errors = flow_errors(data, truth, alpha)
        lines.append(Line(f"flow, alpha = {alpha:g}", 1 / penalty_of(alpha, times), errors))
    penalties, errors = lasso_errors(data, truth)
    lines.append(Line("lasso", 1 / penalties, errors, "prediction"))
    return Figure(
        "error",
        "Stopping the flow, and penalising the l1 norm",
        "1 / penalty, or 4 t / log(1/alpha^2)",
        "relative squared error",
        tuple(lines),
        f"{n} samples in {_D} dimensions, {_SIGNALS} signals, noise {deviation:g}; for long times the flow fits the noise.",
        "log",
        "log",
    )


def early_stopping(lab: Lab) -> Result:
    seed, full, progress = lab.seed, lab.full, lab.progress
    draws, rows, small, gains = (10 if full else 2), [], [], []
    for n in _SAMPLES:
        for deviation in _DEVIATIONS:
            for alpha in _STARTS:
                progress(f"n = {n}, noise {deviation:g}, alpha = {alpha:g}")
                row, (best, end, lasso) = _row(n, deviation, alpha, seed, draws)
                rows.append(row)
                if alpha < _STARTS[0]:
                    gains.append(best.mean() / end.mean())
                if alpha == _STARTS[-1]:
                    small.append(best.mean() / lasso.mean())
    findings = (
        Finding(
            "From small starts the mean residual until t is that of the lasso with penalty log(1/alpha^2) / 4t.",
            time_average(lab, False),
            f"{BERTHIER}; constant {DERIVED}",
        ),
        Finding(
            "Stopped at its best time, the flow from alpha = 1e-6 predicts at least as well as the best lasso.",
            at_most(max(small), 1.0, f"largest ratio of mean errors over n and noise, {draws} draws"),
            "measured, no theorem",
        ),
        Finding(
            "On noisy targets the best time is finite: stopped there, the flow from alpha <= 1e-3 has at most half the error of its limit.",
            at_most(max(gains), 0.5, f"largest ratio of mean errors over n, noise and alpha, {draws} draws"),
            "measured, no theorem",
        ),
    )
    columns = ("n", "noise", "alpha", "best time", "its penalty", "error there", "error of the limit", "best lasso")
    caption = f"Means over {draws} draws of {_SIGNALS} signals in {_D} dimensions (of the time: geometric); best against the signals, which only a simulation knows."
    table = Table("best-time", "When to stop", columns, tuple(rows), caption)
    words = {
        **DEFINITIONS,
        "alpha": "size of the start of w+ and w-; the weight is w+^2 - w-^2",
        "relative squared error": "squared l2 distance to the signals over their squared norm: the error on fresh samples",
        "lasso": "the minimiser of |X theta - y|^2 / 2 + penalty * |theta|_1",
        "penalty (of a time)": "log(1/alpha^2) / 4t, that of the lasso which the flow follows on average, on the loss |X theta - y|^2 / 2",
        "noise": "standard deviation of what is added to every target; the signals are +-1",
        "limit": "the interpolant of least Q_alpha, where the flow ends",
    }
    return Result(findings, (_figure(seed),), (table,), {}, words)


STUDIES = (Study("early-stopping", "Noisy targets: stopping the flow against the lasso", early_stopping),)
