"""Sparse recovery by squared parameters."""

import numpy as np

from ....diagnostics.restricted_isometry import restricted_isometry
from ....exhibits import DEFINITIONS, Figure, Finding, Line, Result, Shown, Table
from ....flow.mirror import follow_dual
from ....lab import Lab, Study
from ....optimisers.base import gradient_descent
from ....references.interpolation import minimum_potential
from ....settings.potentials import Entropy
from ....training.recorders import LogSpaced
from ....training.train import train
from ..evidence import DERIVED
from ..margin_theorems import NOTES
from ..sparse_recovery import noise_growth
from ..time_window import beyond_window, error_at, recovery, square_setting, time_window, window_bound

_ALPHA = {**DEFINITIONS, "alpha": "size of the start of every parameter"}


def sparse_recovery(lab: Lab) -> Result:
    seed, full, progress = lab.seed, lab.full, lab.progress
    data, weight = recovery(lab, seed)
    alphas, step = (1e-2, 1e-4, 1e-6), 0.05
    descents, flows, rows = [], [], []
    for alpha in alphas:
        progress(f"alpha = {alpha:g}")
        begin = round(np.log(200 / alpha) / step)
        run = train(square_setting(data, alpha), gradient_descent(step), steps=10 * begin, recorder=LogSpaced(80))
        errors = np.array([error_at(run, k, weight) for k in range(len(run))])
        descents.append(Line(f"descent, alpha = {alpha:g}", run.steps[1:] * step, errors[1:], "points"))
        program = minimum_potential(data, Entropy(np.full(200, 2 * np.log(alpha)))).weight
        limit = float(((program - weight) ** 2).sum())
        if alpha >= (1e-6 if full else 1e-4):
            path = follow_dual(square_setting(data, alpha), until=float(np.log(1e13 if full else 1e11)))
            weights = np.exp(2 * np.log(alpha) + path.dual[1:] @ np.asarray(data.inputs))
            flows.append(
                Line(f"flow, alpha = {alpha:g}", np.exp(path.log_time[1:]), ((weights - weight) ** 2).sum(axis=1))
            )
            flows.append(
                Line(
                    f"limit program, alpha = {alpha:g}",
                    np.exp(path.log_time[1:]),
                    np.full(len(weights), limit),
                    "prediction",
                )
            )
        window = time_window(200, alpha, step)
        rows.append(
            (
                Shown(alpha, "g"),
                Shown(errors[-1], ".4g"),
                Shown(alpha * np.sqrt(200), ".4g"),
                Shown(limit, ".4g"),
                f"[{window[0]:.0f}, {window[1]:.0f}]" if window[0] < window[1] else "empty",
            )
        )
    isometry = tuple(
        (str(s), Shown(found.lower, ".4g"), Shown(found.upper, ".4g"), "yes" if found.exact else "no")
        for s, found in ((s, restricted_isometry(np.asarray(data.inputs), s)) for s in (1, 2, 4, 6))
    )
    n, d = data.inputs.shape
    findings = (
        Finding(
            "Inside the time window the squared error is at most alpha sqrt(d).",
            window_bound(lab, False, seed),
            f"{NOTES}, Theorem 9.4",
        ),
        Finding(
            "Where the window is empty the same bound holds.", beyond_window(lab, False, seed), "measured, no theorem"
        ),
        Finding(
            "When the signal is learned the noise is alpha^(1 - A_j1/A_11).", noise_growth(lab, False, seed), DERIVED
        ),
    )
    figures = (
        Figure(
            "error",
            "Recovery of a sparse weight: a fast phase, a shelf, a limit",
            "time (step size * iterations)",
            "squared error",
            (*flows, *descents),
            "The flow is integrated in log t; dashed, the interpolant of least KL divergence.",
            "log",
            "log",
        ),
    )
    tables = (
        Table(
            "alpha",
            "Error against alpha",
            (
                "alpha",
                "squared error of descent at the end",
                "bound alpha sqrt(d)",
                "limit program",
                "time window in iterations",
            ),
            tuple(rows),
            f"c_n = n/(r^2 log^2 d) = {n / (9 * np.log(d) ** 2):.3g}; the theorem asks for an unspecified large constant.",
        ),
        Table(
            "isometry",
            "Restricted isometry of these inputs",
            ("s", "lower bound on delta_s", "upper bound", "exact"),
            isometry,
            "Values near or above 1: the sufficient condition of the theory fails, and recovery works all the same. Bounds prove nothing about recovery.",
        ),
    )
    terms = {
        "limit program": "the nonnegative interpolant of least KL divergence from the start alpha^2: where the flow ends",
        "time window": "iterations from log(d/alpha)/step to 1/(step sqrt(d alpha)), between which the theorem speaks; empty if they are in the wrong order",
        "n, d, r": "samples, coefficients, and how many of these are not 0",
        "c_n": "n/(r^2 log^2 d): the theorem needs more samples than some constant times r^2 log^2 d",
        "delta_s": "largest |A_TT - 1| over the sets T of s columns, A = X'X/n: how far any s columns are from orthonormal",
        "A_ij": "entries of X'X/n; the signal is column 1",
    }
    terms["squared error"] = "squared l2 distance to the sparse weight that made the targets"
    return Result(findings, figures, tables, {}, {**_ALPHA, **terms})


STUDIES = (Study("sparse-recovery", "Sparse recovery by squared parameters", sparse_recovery),)
