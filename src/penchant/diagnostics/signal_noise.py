"""Signal and noise of squared parameters when the truth is the first coordinate."""

from typing import Any

import equinox as eqx
import numpy as np


class Decomposition(eqx.Module):
    r"""$\beta^t = r_te_1 + \zeta_t$ along a run (records first): `signal` r, `noise` $\zeta$ (its first entry is 0), and the parts of the gradient
    $[(r^2-1)e_1 - u + v]\odot\beta$ with $u = (r^2-1)(I-A)e_1$, $v = A(\zeta\odot\zeta)$; `drive` is what moves the noise, v - u off the signal."""

    signal: np.ndarray
    noise: np.ndarray
    u: np.ndarray
    v: np.ndarray
    drive: np.ndarray


def decompose(data: Any, params: Any) -> Decomposition:
    """Split the parameters (records x d) of a run on squares with truth e_1."""
    params = np.asarray(params)
    inputs = np.asarray(data.inputs)
    gram = inputs.T @ inputs / len(inputs)
    signal = params[:, 0]
    noise = params.copy()
    noise[:, 0] = 0.0
    u = (signal**2 - 1)[:, None] * (np.eye(len(gram))[0] - gram[0])
    v = noise**2 @ gram
    drive = v - u
    drive[:, 0] = 0.0
    return Decomposition(signal, noise, u, v, drive)
