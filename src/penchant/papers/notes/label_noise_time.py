"""Claim on the time scale of label noise: how many steps it takes to move along the zero-loss set."""

import numpy as np

from ...diagnostics.label_noise import moving_time, tangent_part
from ...lab import Lab, claim, recipe
from ...references.interpolation import minimum_potential
from ...settings.potentials import q_alpha
from ...settings.square_models import SignedSquares
from ...training.noise import label_noise
from ...verdict import Verdict, all_of, at_most, close
from .evidence import DERIVED
from .label_noise import BLANC
from .label_noise_evidence import ALPHA, signals

_SIZES = (0.002, 0.001)  # step sizes
_CHAINS, _MOVED = 192, 0.05  # of a norm of 4: far beyond the spread of the mean, and straight to a percent


@recipe
def _displacement(lab: Lab, step: float, batch: int) -> tuple[float, float]:
    """Mean displacement along the drift after the steps that should take it to 0.05, over that, and its standard error."""
    data, start = signals(15, True), np.full((2, 30), ALPHA)
    inputs, potential = np.asarray(data.inputs), q_alpha(ALPHA, 30)
    dual = potential.gradient(minimum_potential(data, potential).weight)
    point = SignedSquares(ALPHA).moved(start, dual)  # on the zero-loss set
    jacobian = 2 * np.hstack([inputs * point[0], -inputs * point[1]])
    gradient = (8 * (inputs**2).mean(axis=0) * point).ravel()  # tr Hess L = 4 sum of c_j (w+^2 + w-^2)
    count = round(_MOVED * moving_time(gradient, jacobian, step, 1.0, batch))
    run = label_noise(data, point, step=step, deviation=1.0, steps=[count], chains=_CHAINS, batch=batch, seed=1)
    along = tangent_part(gradient, jacobian)
    moved = (point - np.exp(run.log_params[-1])).reshape(_CHAINS, -1) @ along / (np.linalg.norm(along) * _MOVED)
    return float(moved.mean()), float(moved.std(ddof=1) / np.sqrt(_CHAINS))


@claim(
    "label-noise/moving-time",
    "Label noise moves the parameters by 1 along the zero-loss set in 4B / (step^2 sigma^2 |P_T grad tr Hess L|) steps, as the step size goes to 0.",
    f"{BLANC}; constant {DERIVED}",
    kind="ours",
    slow=True,
)
def moving(lab: Lab, planted: bool) -> Verdict:
    """Displacement at two step sizes, extrapolated to step size 0, for batches of 1 and 3; planted: twice the drift, lambda = step sigma^2 / 2B."""
    checks = []
    for batch in (1, 3):
        (long, wide), (short, narrow) = (_displacement(lab, step, batch) for step in _SIZES)
        limit, error = 2 * short - long, float(np.hypot(2 * narrow, wide))
        text = f"batch {batch}: displacement at the predicted time over the predicted one, step size to 0"
        detail = f"{long:.4f} at {_SIZES[0]:g}, {short:.4f} at {_SIZES[1]:g}, standard error {error:.2g}"
        checks += [
            at_most(error, 0.01, f"batch {batch}: standard error of that ratio"),
            close(limit, 2.0 if planted else 1.0, 0.03, text, detail),
        ]
    return all_of(*checks)
