"""Data of the claims on interpolation, drawn from the seed of the lab, and routes to their answers that several claims share."""

import equinox as eqx
import numpy as np
from scipy.integrate import solve_ivp

from ...lab import Lab, recipe
from ...settings.base import Setting
from ...settings.generators import sparse_regression
from ...settings.losses import Squared
from ...settings.parametrisations import Squares
from ...settings.regression import Regression
from ...training.trajectory import Trajectory

DERIVED = "derived for penchant"


@recipe
def sparse(lab: Lab) -> tuple[Regression, np.ndarray]:
    """Forty samples in a hundred dimensions, five signals."""
    return sparse_regression(seed=lab.seed)


@recipe
def small(lab: Lab) -> tuple[Regression, np.ndarray]:
    """Ten samples in twenty-five dimensions, two signals."""
    return sparse_regression(10, 25, 2, 3 + lab.seed)


@recipe
def recovery(lab: Lab) -> tuple[Regression, np.ndarray]:
    """Three signals in two hundred dimensions, eighty samples."""
    return sparse_regression(80, 200, 3, 1 + lab.seed, signed=False)


def arrays(data: Regression) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(data.inputs), np.asarray(data.targets)


def summed(data: Regression, model: eqx.Module) -> Setting:
    """A model with the loss |r|^2 / 2."""
    return Setting(data, model, Squared(), "sum")


def square_setting(data: Regression, alpha: float) -> Setting:
    """beta * beta from alpha with the loss |r|^2 / (4n) of the notes."""
    return Setting(data, Squares(alpha), Squared(0.5), "mean")


def error_at(run: Trajectory, record: int, weight: np.ndarray) -> float:
    return float(((run.weight(record) - weight) ** 2).sum())


def parameter_flow(
    data: Regression, start: np.ndarray, time: float, depth: int = 2
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """w+^D - w-^D by a general integrator on the parameters themselves, an independent route; its w+ and w-, and the integral of the residuals."""
    (inputs, targets), d = arrays(data), data.inputs.shape[1]

    def field(_: float, state: np.ndarray) -> np.ndarray:
        plus, minus = state[:d], state[d : 2 * d]
        residual = inputs @ (plus**depth - minus**depth) - targets
        slope = depth * residual @ inputs
        return np.concatenate([-slope * plus ** (depth - 1), slope * minus ** (depth - 1), residual])

    begin = np.concatenate([np.ravel(start), np.zeros(len(targets))])
    found = solve_ivp(field, (0, time), begin, method="LSODA", rtol=1e-11, atol=1e-13)
    ends = found.y[: 2 * d, -1].reshape(2, d)
    return ends[0] ** depth - ends[1] ** depth, ends, found.y[2 * d :, -1]
