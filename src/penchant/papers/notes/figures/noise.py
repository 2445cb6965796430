"""What noise selects: covariances of SGD, and label noise as a regulariser."""

import numpy as np

from ....diagnostics.covariance import diffusion_covariance, noisy_covariance
from ....exhibits import DEFINITIONS, Figure, Finding, Line, Result, Shown, Table
from ....lab import Lab, Study
from ....references.interpolation import basis_pursuit
from ....training.noise import quadratic_noise
from ..evidence import DERIVED
from ..label_noise import (
    BLANC,
    HAOCHEN,
    control,
    plain_norm_falls,
    raw_columns,
    selection,
    selection_leading,
    time_scale,
    weighted_norm_falls,
)
from ..label_noise_evidence import (
    ALPHA,
    CHAINS,
    CONTINUED,
    DEVIATION,
    LIMITS,
    STEP,
    drift,
    mean_and_error,
    measured_norms,
    noisy,
    predicted_norms,
)
from ..label_noise_law import determinant, determinant_single
from ..margin_theorems import NOTES
from ..noise import many_dimensions, one_dimension, separate_printed, single_sample


def _ellipse(covariance: np.ndarray, count: int = 121) -> tuple[np.ndarray, np.ndarray]:
    angle = np.linspace(0, 2 * np.pi, count)
    sizes, basis = np.linalg.eigh(covariance)
    points = (basis * np.sqrt(np.maximum(sizes, 0))) @ np.stack([np.cos(angle), np.sin(angle)])
    return points[0], points[1]


def sgd_noise(lab: Lab) -> Result:
    seed, full, progress = lab.seed, lab.full, lab.progress
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
            Line(f"{name}, simulated", *_ellipse(measured, 25), "points"),
            Line(f"{name}, diffusion limit", *_ellipse(limit), "prediction"),
        ]
        error = np.trace(exact) * np.sqrt(2 / chains)
        rows.append(
            (
                name,
                Shown(np.trace(exact), ".6g"),
                f"{np.trace(measured):.6g} ± {error:.2g}",
                Shown(np.trace(limit), ".6g"),
            )
        )
    figure = Figure(
        "ellipses",
        "Where SGD settles, one standard deviation",
        "first coordinate",
        "second coordinate",
        tuple(lines),
        f"Quadratic loss, step size eta = {step}; the diffusion limit is too small by 1 - eta lambda/2 in each eigendirection.",
    )
    table = Table(
        "traces",
        "Trace of the stationary covariance",
        ("noise", "exact", "simulated", "diffusion limit"),
        tuple(rows),
        f"{chains} chains; ± one standard error.",
    )
    findings = (
        Finding(
            "One dimension: SGD settles at the variance eta sigma^2 / (lambda (2 - eta lambda)); eta = 0.1, lambda = 2, sigma^2 = 0.49.",
            one_dimension(lab, False, seed),
            f"{NOTES}, section 9.5; exact constant {DERIVED}",
        ),
        Finding(
            "Hessian and noise that do not commute, three dimensions, eta = 0.3: the covariance solves the discrete Lyapunov equation.",
            many_dimensions(lab, False, seed),
            DERIVED,
        ),
        Finding(
            "On the same Hessian and noise SGD is a set of separate one-dimensional processes, as for any noise (as printed).",
            separate_printed(lab, False),
            f"{NOTES}, section 9.5",
        ),
        Finding(
            "Single-sample SGD on least squares (12 samples, 3 coefficients, eta = 0.15): noise that depends on the iterate.",
            single_sample(lab, False, seed),
            DERIVED,
        ),
    )
    entries = "; ".join(", ".join(f"{value:g}" for value in row) for row in hessian)
    sizes = " and ".join(f"{value:.4g}" for value in np.linalg.eigvalsh(hessian))
    words = {
        "eta": "the step size, which multiplies the gradient",
        "Sigma, sigma^2": "covariance of the gradient noise; in one dimension its variance",
        "A, lambda": f"Hessian of the loss, in table and figure [{entries}], and its eigenvalues, here {sizes}",
        "exact, diffusion limit": "solution S of S = (1 - eta A) S (1 - eta A) + eta^2 Sigma, and of A S + S A = eta Sigma",
        "standard error": "standard deviation of a measured mean over the chains; a claim is refuted beyond 4 of them",
    }
    return Result(findings, (figure,), (table,), {}, words)


def _interval(steps: np.ndarray, values: np.ndarray, label: str) -> tuple[Line, ...]:
    """Points with a 95 % interval drawn as two thin lines."""
    mean, error = mean_and_error(values)
    return (
        Line(label, steps, mean, "points"),
        Line("95 % interval", steps, mean + 1.96 * error),
        Line("95 % interval, lower end", steps, mean - 1.96 * error),
    )


def label_noise(lab: Lab) -> Result:
    seed, full, progress = lab.seed, lab.full, lab.progress
    chains, used = (1024, 64) if full else (CHAINS, LIMITS)
    progress(f"{chains} chains of label-noise SGD, and 16 without noise")
    run, quiet, law = noisy(lab, chains, seed=seed), noisy(lab, 16, 0.0, seed), drift(lab, seed)
    progress(f"descent without noise, continued from {used} chains at {len(run.steps)} steps")
    norms = measured_norms(lab, chains, used, seed=seed)
    still, predicted = measured_norms(lab, 16, 4, 0.0, seed), predicted_norms(lab, seed)
    optimum, steps = basis_pursuit(run.data).value, run.steps
    fall = run.log_product.mean(axis=2)
    predicted_fall = (law.log_product - law.log_product[0]).mean(axis=1)
    leading = -4 * STEP**2 * DEVIATION**2 * steps
    limits = Figure(
        "norm",
        "Label noise walks to the least l1 norm",
        "step at which the noise is switched off",
        "l1 norm of the limit",
        (
            *_interval(steps, norms, "measured"),
            Line("law of second moments", steps, predicted[:, 0], "prediction"),
            Line("leading order", steps, predicted[:, 1], "prediction"),
            Line("without noise", steps, still.mean(axis=1), "points"),
            Line("optimum", steps, np.full(len(steps), optimum), "prediction"),
        ),
        "Where descent ends if the noise stops at a given step and it continues without. Both laws are derived; no number in them is fitted.",
    )
    decay = Figure(
        "product",
        "The effective start shrinks exponentially",
        "step",
        "mean change of log(w+ w-)",
        (
            *_interval(steps, fall, "measured"),
            Line("law of second moments", steps, predicted_fall, "prediction"),
            Line("leading order", steps, leading, "prediction"),
            Line("without noise", steps, quiet.log_product.mean(axis=(1, 2)), "points"),
        ),
        f"Mean over {chains} chains and 30 coordinates. Leading order: -4 eta^2 sigma^2 c_j per step.",
    )
    base = predicted[:, 0]
    mean, error = mean_and_error(norms)
    covered = int((np.abs(mean - base)[1:] <= 1.96 * error[1:]).sum())
    residue = Figure(
        "deviation",
        "How far the laws are from the measured l1 norm",
        "step at which the noise is switched off",
        "l1 norm minus the law of second moments",
        (
            *_interval(steps, norms - base[:, None], "measured"),
            Line("law of second moments", steps, np.zeros(len(steps)), "prediction"),
            Line("leading order", steps, predicted[:, 1] - base, "prediction"),
        ),
        f"The same points with the law subtracted: the 95 % interval covers it at {covered} of the {len(steps) - 1} steps with noise.",
    )
    fallen, fall_error = mean_and_error(fall)
    table = Table(
        "norms",
        "l1 norm of the noise-off limit, and the fall of log(w+ w-)",
        ("step", "l1 norm", "law", "leading order", "without noise", "change of log(w+ w-)", "law", "leading order"),
        tuple(
            (
                int(steps[k]),
                f"{mean[k]:.4f} ± {1.96 * error[k]:.4f}",
                Shown(predicted[k, 0], ".4f"),
                Shown(predicted[k, 1], ".4f"),
                Shown(still[k].mean(), ".4f"),
                f"{fallen[k]:.4f} ± {1.96 * fall_error[k]:.4f}",
                Shown(predicted_fall[k], ".4f"),
                Shown(leading[k], ".4f"),
            )
            for k in range(len(steps))
        ),
        f"l1 optimum {optimum:.4f}; ± is a 95 % interval over {used} (norms) and {chains} chains. Step size eta = {STEP:g}, sigma = {DEVIATION:g}, "
        f"start alpha = {ALPHA:g}. Step 0 is the same in every chain and has no interval, so it is left out of the verdicts: the measured norm differs from "
        f"the law's by {mean[0] - predicted[0, 0]:.4f}, the error of continuing by descent of step size {CONTINUED[0][0]:g} instead of by the flow (it is proportional to that step size).",
    )
    findings = (
        Finding(
            "Measured time scale of the drift against the law of second moments.",
            time_scale(lab, False, chains, seed),
            f"{BLANC}; law {DERIVED}",
        ),
        Finding(
            "Selected solution against the law of second moments.",
            selection(lab, False, chains, used, seed),
            f"{HAOCHEN}; law {DERIVED}",
        ),
        Finding(
            "Selected solution against the leading order alone.",
            selection_leading(lab, False, chains, used, seed),
            DERIVED,
        ),
        Finding(
            "At large step sizes: the log-determinant of the Hessian, all samples in every step.",
            determinant(lab, False, seed),
            DERIVED,
        ),
        Finding("The same with one sample drawn per step.", determinant_single(lab, False, seed), DERIVED),
        Finding("Control without label noise: no drift.", control(lab, False, seed), HAOCHEN),
        Finding(
            "Columns as they come: the l1 norm of the selected solution falls at all times.",
            plain_norm_falls(lab, False, seed),
            f"a tempting reading of {NOTES}, section 9.5",
        ),
        Finding(
            "Columns as they come: the l1 norm weighted by c_j falls at all times.",
            weighted_norm_falls(lab, False, seed),
            DERIVED,
        ),
    )
    terms = {
        "w+, w-": "the two squared parameters of each coefficient",
        "noise-off limit": "the interpolant that noise-free training reaches from the present point; measured by continuing descent on all samples until its relative residual is below 1e-4",
        "eta, sigma": "the step size, which multiplies the gradient, and the standard deviation of the noise on the targets",
        "alpha": "size of the start of every parameter",
        "B, c_j": "samples per step (here 1), and mean squares of the columns of the inputs (1 unless the columns are taken as they come)",
        "interpolant": "a weight that fits all targets exactly",
        "standard errors": "confirmed inside the joint 95 % interval of all steps, refuted outside the joint 99.9 % interval, undecided between",
        "leading order": "gradient flow of (eta sigma^2 / 4B) tr Hess: log(w+ w-) falls by 4 eta^2 sigma^2 c_j per step",
        "law of second moments": "the same with the residuals that the noise keeps alive, by their second moments",
    }
    return Result(findings, (limits, residue, decay, _unscaled(lab, seed)), (table,), {}, {**DEFINITIONS, **terms})


def _unscaled(lab: Lab, seed: int) -> Figure:
    """What noise lowers where the columns have different sizes: not the l1 norm."""
    counts, plain, weighted = raw_columns(lab, seed).T
    lines = (
        Line("l1 norm / its value without noise", counts, plain / plain[0]),
        Line("l1 norm weighted by c_j / its value without noise", counts, weighted / weighted[0]),
    )
    caption = "12 samples, normal inputs that are not rescaled; along the leading-order law. The weighted norm must fall; the plain one may rise in between."
    return Figure(
        "unscaled",
        "Columns as they come",
        "step at which the noise is switched off",
        "norm of the limit",
        lines,
        caption,
    )


STUDIES = (
    Study("sgd-noise", "Where SGD settles on a quadratic", sgd_noise),
    Study("label-noise", "Label noise as a regulariser", label_noise),
)
