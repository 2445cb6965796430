"""What noise selects: label noise as a regulariser."""

import numpy as np

from ....exhibits import DEFINITIONS, Figure, Line
from ....lab import Lab, Study
from ....references.interpolation import basis_pursuit
from .. import label_noise, noise
from ..label_noise import DEVIATION, STEP, chains, mean_and_error, measured_norms, noisy, predicted_norms


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


def _selected(lab: Lab) -> Figure:
    """l1 norms of the noise-off limits with their laws."""
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
    axis = "step at which the noise is switched off"
    return Figure("norm", "Label noise walks to the least l1 norm", axis, "l1 norm of the limit", lines, caption)


def _decay(lab: Lab) -> Figure:
    fall, second, leading = _falls(lab)
    steps, quiet = noisy(lab).steps, noisy(lab, noise=False).log_product.mean(axis=(1, 2))
    lines = (*_interval(steps, fall), *_laws(steps, second, leading), Line("without noise", steps, quiet, "points"))
    caption = f"Mean over {chains(lab)[0]} chains and 30 coordinates. Leading order: -4 eta^2 sigma^2 c_j per step."
    title = "The effective start shrinks exponentially"
    return Figure("product", title, "step", "mean change of log(w+ w-)", lines, caption)


STUDIES = (
    Study(
        "label-noise",
        "Label noise as a regulariser",
        claims=(
            *(label_noise.time_scale, label_noise.selection, label_noise.stationary),
            *(noise.one_dimension, noise.separate_processes),
        ),
        exhibits=(_selected, _decay),
        aliases=("sgd-noise",),
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
