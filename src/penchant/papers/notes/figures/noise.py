"""What noise selects: covariances of SGD, and label noise as a regulariser."""

import numpy as np

from ....diagnostics.noise import diffusion_covariance, noisy_covariance
from ....exhibits import DEFINITIONS, Figure, Line, Shown, Table
from ....lab import Lab, Study
from ....references.interpolation import basis_pursuit
from ....training.noise import quadratic_noise
from .. import label_noise, noise
from ..label_noise import DEVIATION, STEP, chains, mean_and_error, measured_norms, noisy, predicted_norms

_HESSIAN, _ETA = np.array([[1.5, 0.6], [0.6, 0.5]]), 0.3
_COVARIANCES = {"Sigma = I": np.eye(2), "Sigma = A": _HESSIAN, "Sigma = A^2": _HESSIAN @ _HESSIAN}
_ENTRIES = "; ".join(", ".join(f"{value:g}" for value in row) for row in _HESSIAN)
_SIZES = " and ".join(f"{value:.4g}" for value in np.linalg.eigvalsh(_HESSIAN))


def _ellipse(covariance: np.ndarray, count: int = 121) -> tuple[np.ndarray, np.ndarray]:
    angle = np.linspace(0, 2 * np.pi, count)
    sizes, basis = np.linalg.eigh(covariance)
    points = (basis * np.sqrt(np.maximum(sizes, 0))) @ np.stack([np.cos(angle), np.sin(angle)])
    return points[0], points[1]


def _settled(lab: Lab) -> tuple[Figure, Table]:
    """Stationary covariances of SGD on a quadratic: exact, simulated and of the diffusion limit."""
    count, lines, rows = (100_000 if lab.full else 20_000), [], []
    for name, covariance in _COVARIANCES.items():
        lab.progress(f"{count} chains with {name}")
        ends = quadratic_noise(_HESSIAN, covariance, _ETA, 300, count, lab.seed)
        exact, limit = (solve(_HESSIAN, covariance, _ETA) for solve in (noisy_covariance, diffusion_covariance))
        measured = ends.T @ ends / count
        lines += [
            Line(f"{name}, exact", *_ellipse(exact)),
            Line(f"{name}, simulated", *_ellipse(measured, 25), "points"),
            Line(f"{name}, diffusion limit", *_ellipse(limit), "prediction"),
        ]
        simulated = f"{np.trace(measured):.6g} ± {np.trace(exact) * np.sqrt(2 / count):.2g}"
        rows.append((name, Shown(np.trace(exact), ".6g"), simulated, Shown(np.trace(limit), ".6g")))
    title, axes = "Where SGD settles, one standard deviation", ("first coordinate", "second coordinate")
    caption = f"Quadratic loss, step size eta = {_ETA}; the diffusion limit is too small by 1 - eta lambda/2 in each eigendirection."
    columns, spread = ("noise", "exact", "simulated", "diffusion limit"), f"{count} chains; ± one standard error."
    return (
        Figure("ellipses", title, *axes, tuple(lines), caption),
        Table("traces", "Trace of the stationary covariance", columns, tuple(rows), spread),
    )


def _interval(steps: np.ndarray, values: np.ndarray) -> tuple[Line, ...]:
    """Measured points with a 95 % interval drawn as two thin lines."""
    mean, error = mean_and_error(values)
    return (
        Line("measured", steps, mean, "points"),
        Line("95 % interval", steps, mean + 1.96 * error),
        Line("95 % interval, lower end", steps, mean - 1.96 * error),
    )


def _laws(steps: np.ndarray, second: np.ndarray, leading: np.ndarray) -> tuple[Line, Line]:
    return Line("law of second moments", steps, second, "prediction"), Line(
        "leading order", steps, leading, "prediction"
    )


def _falls(lab: Lab) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Change of log(w+ w-), a mean over coordinates: measured (records x chains), by the law of second moments, to leading order."""
    run, law = noisy(lab), label_noise.drift(lab)
    second = (law.log_product - law.log_product[0]).mean(axis=1)
    return run.log_product.mean(axis=2), second, -4 * STEP**2 * DEVIATION**2 * run.steps


def _selected(lab: Lab) -> tuple[Figure, Figure]:
    """l1 norms of the noise-off limits, and how far the laws are from them."""
    lab.progress(f"descent without noise, continued from {chains(lab)[1]} of {chains(lab)[0]} noisy chains")
    steps, norms, still = noisy(lab).steps, measured_norms(lab), measured_norms(lab, noise=False)
    second, leading = predicted_norms(lab).T
    lines = (
        *_interval(steps, norms),
        *_laws(steps, second, leading),
        Line("without noise", steps, still.mean(axis=1), "points"),
        Line("optimum", steps, np.full(len(steps), basis_pursuit(noisy(lab).data).value), "prediction"),
    )
    caption = "Where descent ends if the noise stops at a given step and it continues without. Both laws are derived; no number in them is fitted."
    mean, error = mean_and_error(norms)
    covered = int((np.abs(mean - second)[1:] <= 1.96 * error[1:]).sum())
    apart = (*_interval(steps, norms - second[:, None]), *_laws(steps, np.zeros(len(steps)), leading - second))
    subtracted = f"The same points with the law subtracted: the 95 % interval covers it at {covered} of the {len(steps) - 1} steps with noise."
    titles = "Label noise walks to the least l1 norm", "How far the laws are from the measured l1 norm"
    axis = "step at which the noise is switched off"
    return (
        Figure("norm", titles[0], axis, "l1 norm of the limit", lines, caption),
        Figure("deviation", titles[1], axis, "l1 norm minus the law of second moments", apart, subtracted),
    )


def _decay(lab: Lab) -> Figure:
    fall, second, leading = _falls(lab)
    steps, quiet = noisy(lab).steps, noisy(lab, noise=False).log_product.mean(axis=(1, 2))
    lines = (*_interval(steps, fall), *_laws(steps, second, leading), Line("without noise", steps, quiet, "points"))
    caption = f"Mean over {chains(lab)[0]} chains and 30 coordinates. Leading order: -4 eta^2 sigma^2 c_j per step."
    title = "The effective start shrinks exponentially"
    return Figure("product", title, "step", "mean change of log(w+ w-)", lines, caption)


STUDIES = (
    Study(
        "sgd-noise",
        "Where SGD settles on a quadratic",
        claims=(noise.one_dimension, noise.many_dimensions, noise.separate_processes, noise.single_sample),
        exhibits=(_settled,),
        definitions={
            "eta": "the step size, which multiplies the gradient",
            "Sigma, sigma^2": "covariance of the gradient noise; in one dimension its variance",
            "A, lambda": f"Hessian of the loss, in table and figure [{_ENTRIES}], and its eigenvalues, here {_SIZES}",
            "exact, diffusion limit": "solution S of S = (1 - eta A) S (1 - eta A) + eta^2 Sigma, and of A S + S A = eta Sigma",
            "standard error": "standard deviation of a measured mean over the chains; a claim is refuted beyond 4 of them",
        },
    ),
    Study(
        "label-noise",
        "Label noise as a regulariser",
        claims=(label_noise.time_scale, label_noise.selection, label_noise.control, label_noise.weighted_norm_falls),
        exhibits=(_selected, _decay),
        definitions={
            **DEFINITIONS,
            "w+, w-": "the two squared parameters of each coefficient",
            "noise-off limit": "the interpolant that noise-free training reaches from the present point; measured by continuing descent on all samples until its relative residual is below 1e-4",
            "eta, sigma": "the step size, which multiplies the gradient, and the standard deviation of the noise on the targets",
            "alpha": "size of the start of every parameter",
            "B, c_j": "samples per step (here 1), and mean squares of the columns of the inputs (1 unless the columns are taken as they come)",
            "interpolant": "a weight that fits all targets exactly",
            "standard errors": "confirmed inside the joint 95 % interval of all steps, refuted outside the joint 99.9 % interval, undecided between",
            "leading order": "gradient flow of (eta sigma^2 / 4B) tr Hess: log(w+ w-) falls by 4 eta^2 sigma^2 c_j per step",
            "law of second moments": "the same with the residuals that the noise keeps alive, by their second moments",
        },
    ),
)
