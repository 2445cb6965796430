"""What noise selects: covariances of SGD, and label noise as a regulariser."""

from collections.abc import Callable

import numpy as np

from ..diagnostics.covariance import diffusion_covariance, noisy_covariance
from ..references.interpolation import basis_pursuit
from ..theorems.label_noise_claims import control, noisy, norms_along, selection, time_scale
from ..theorems.noise_claims import many_dimensions, one_dimension, separate_printed, single_sample
from ..training.noise import quadratic_noise
from .base import DEFINITIONS, Figure, Finding, Line, Result, Study, Table


def _ellipse(covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    angle = np.linspace(0, 2 * np.pi, 121)
    sizes, basis = np.linalg.eigh(covariance)
    points = (basis * np.sqrt(np.maximum(sizes, 0))) @ np.stack([np.cos(angle), np.sin(angle)])
    return points[0], points[1]


def sgd_noise(seed: int, full: bool, progress: Callable[[str], None]) -> Result:
    hessian, step = np.array([[1.5, 0.6], [0.6, 0.5]]), 0.3
    covariances = {"Sigma = I": np.eye(2), "Sigma = A": hessian, "Sigma = A^2": hessian @ hessian}
    chains = 100_000 if full else 20_000
    lines, rows = [], []
    for name, noise in covariances.items():
        progress(f"{chains} chains with {name}")
        ends = quadratic_noise(hessian, noise, step, 300, chains, seed)
        exact, limit = noisy_covariance(hessian, noise, step), diffusion_covariance(hessian, noise, step)
        measured = ends.T @ ends / chains
        lines += [
            Line(f"{name}, exact", *_ellipse(exact)),
            Line(f"{name}, simulated", *_ellipse(measured), "points"),
            Line(f"{name}, diffusion limit", *_ellipse(limit), "prediction"),
        ]
        error = np.trace(exact) * np.sqrt(2 / chains)
        rows.append(
            (name, f"{np.trace(exact):.6g}", f"{np.trace(measured):.6g} ± {error:.2g}", f"{np.trace(limit):.6g}")
        )
    figure = Figure(
        "ellipses",
        "Where SGD settles, one standard deviation",
        "first coordinate",
        "second coordinate",
        tuple(lines),
        f"Quadratic loss, step {step}; the diffusion limit is too small by 1 - step lambda/2 in each eigendirection.",
    )
    table = Table(
        "traces",
        "Trace of the stationary covariance",
        ("noise", "exact", "simulated", "diffusion limit"),
        tuple(rows),
        f"{chains} chains; ± one standard error.",
    )
    findings = (
        Finding("One dimension: step sigma^2 / (lambda (2 - step lambda)).", one_dimension(False)),
        Finding("Hessian and noise that do not commute: the discrete Lyapunov equation.", many_dimensions(False)),
        Finding(
            "Separate one-dimensional processes, for any noise (as printed).",
            separate_printed(False),
            "section 9.5 of the notes",
        ),
        Finding("Single-sample SGD on least squares: noise that depends on the iterate.", single_sample(False)),
    )
    return Result(
        findings,
        (figure,),
        (table,),
        {},
        {**DEFINITIONS, "Sigma": "covariance of the gradient noise", "A": "Hessian of the loss"},
    )


def label_noise(seed: int, full: bool, progress: Callable[[str], None]) -> Result:
    chains = 1024 if full else 64
    progress(f"{chains} chains of label-noise SGD")
    run, quiet = noisy(chains=chains), noisy(chains=16, deviation=0.0)
    rows = norms_along(run, np.ones(30), 64 if full else 16)
    still = norms_along(quiet, np.ones(30), 4)
    optimum = basis_pursuit(run.data).value
    steps = run.steps
    norms = Figure(
        "norm",
        "Label noise walks to the least l1 norm",
        "step at which the noise is switched off",
        "l1 norm of the limit",
        (
            Line("measured", steps, rows[:, 0], "points"),
            Line("measured + 2 standard errors", steps, rows[:, 0] + 2 * rows[:, 1]),
            Line("measured - 2 standard errors", steps, rows[:, 0] - 2 * rows[:, 1]),
            Line("derived law", steps, rows[:, 2], "prediction"),
            Line("without noise", steps, still[:, 0], "points"),
            Line("optimum", steps, np.full(len(steps), optimum), "prediction"),
        ),
        "Where training ends if the noise stops at a given step. The law: w+ w- shrinks by exp(-4 step^2 sigma^2 c_j k).",
    )
    decay = Figure(
        "product",
        "The effective start shrinks exponentially",
        "step",
        "mean log(w+ w-) change",
        (
            Line("measured", steps, run.log_product.mean(axis=(1, 2)), "points"),
            Line("leading order", steps, -4 * 0.005**2 * steps, "prediction"),
            Line("without noise", steps, quiet.log_product.mean(axis=(1, 2)), "points"),
        ),
        f"Mean over {chains} chains and 30 coordinates.",
    )
    table = Table(
        "norms",
        "l1 norm of the noise-off limit",
        ("step", "measured", "standard error", "derived law", "without noise"),
        tuple(
            (int(k), f"{a:.4f}", f"{e:.4f}", f"{p:.4f}", f"{q:.4f}")
            for k, (a, e, p), (q, _, _) in zip(steps, rows, still, strict=True)
        ),
        f"l1 optimum {optimum:.4f}.",
    )
    findings = (
        Finding("Measured time scale of the drift against the derived one.", time_scale(False)),
        Finding("Selected solution against the derived law.", selection(False)),
        Finding("Control without label noise: no drift.", control(False)),
    )
    return Result(
        findings,
        (norms, decay),
        (table,),
        {},
        {
            **DEFINITIONS,
            "w+, w-": "the two squared parameters of each coefficient",
            "noise-off limit": "the interpolant that noise-free training reaches from the present point",
        },
    )


STUDIES = (
    Study("sgd-noise", "Where SGD settles on a quadratic", "linear_models", sgd_noise),
    Study("label-noise", "Label noise as a regulariser", "linear_models", label_noise),
)
