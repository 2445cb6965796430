"""Embedded data of the claims on interpolation, and routes to their answers that several claims share."""

import numpy as np
from scipy.integrate import solve_ivp

from ...lab import Lab, recipe
from ...references.base import Interpolant
from ...references.interpolation import potential_path
from ...settings.base import Setting
from ...settings.generators import sparse_regression
from ...settings.losses import Squared
from ...settings.potentials import q_alpha
from ...settings.regression import Regression
from ...settings.square_models import SignedSquares

PAPER = "linear_models"
DERIVED = "derived for penchant"
# As published, epsilon included: it is part of the rule that must miss the least norm.
ADAM = {"step": 1e-3, "eps": 1e-8}


@recipe
def dense(lab: Lab) -> tuple[Regression, np.ndarray]:
    """Twenty normal samples in fifty dimensions, and a start."""
    rng = np.random.default_rng(0)
    data = Regression(rng.standard_normal((20, 50)), rng.standard_normal(20))
    return data, rng.standard_normal(50)


@recipe
def sparse(lab: Lab, seed: int = 0) -> tuple[Regression, np.ndarray]:
    return sparse_regression(seed=seed)


def signed(lab: Lab, alpha: float) -> Setting:
    return Setting(sparse(lab)[0], SignedSquares(alpha), Squared(), "sum")


@recipe
def path_at(lab: Lab, alphas: tuple[float, ...], seed: int = 0) -> list[Interpolant]:
    """Minimisers of Q_alpha on the embedded sparse data."""
    return potential_path(sparse(lab, seed)[0], q_alpha(1.0, 100), tuple(np.log(alphas)))


def parameter_flow(
    inputs: np.ndarray, targets: np.ndarray, start: np.ndarray, time: float, depth: int = 2
) -> tuple[np.ndarray, np.ndarray]:
    """w+ and w- of w+^D - w-^D by a general integrator on the parameters themselves, an independent route, and the integral of the residuals."""
    d = inputs.shape[1]

    def field(_: float, state: np.ndarray) -> np.ndarray:
        plus, minus = state[:d], state[d : 2 * d]
        residual = inputs @ (plus**depth - minus**depth) - targets
        slope = depth * residual @ inputs
        return np.concatenate([-slope * plus ** (depth - 1), slope * minus ** (depth - 1), residual])

    begin = np.concatenate([np.ravel(start), np.zeros(len(targets))])
    found = solve_ivp(field, (0, time), begin, method="LSODA", rtol=1e-11, atol=1e-13)
    return found.y[: 2 * d, -1].reshape(2, d), found.y[2 * d :, -1]
