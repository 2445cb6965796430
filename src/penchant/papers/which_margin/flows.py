r"""Flows $\dot W = U(G)$ of rules that see the direction of the gradient only, and what they come to rest at.

For the exponential loss the shares $p = \mathrm{softmax}(-m)$ of the margins obey a law of their own, whatever the scale of W: with
$F(p) = \mathcal A\,U(\mathcal A^* p)$ it is the replicator equation $\dot p_i = p_i(\langle p, F\rangle - F_i)$. At rest F is the same on the support of p and
nowhere smaller, and the margin per unit of a norm N tends to $\langle p, F\rangle / N(U)$. The same integrator follows rules with an epsilon, whose step
also depends on the loss, in the clock of the largest entry (or singular value) that moved.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.integrate import solve_ivp
from scipy.optimize import least_squares
from scipy.special import logsumexp

from ...norms import Spectral
from ...optimisers.newton_schulz import orthogonalise, spread

Rule = Callable[[np.ndarray, float], np.ndarray]  # of the slope G and log L: the velocity of the weight
_SUPPORT = 1e-7  # of the largest share: smaller ones are on their way to 0


class Path(NamedTuple):
    """Times of a flow, its weights, their smallest margins and the shares p."""

    times: np.ndarray
    weights: np.ndarray
    margins: np.ndarray
    shares: np.ndarray


class Rest(NamedTuple):
    """A rest point: shares, their pull U, the pace c of all margins on the support, the spread of F there, and by how much F falls below c elsewhere."""

    shares: np.ndarray
    velocity: np.ndarray
    pace: float
    residual: float
    missing: float


def polar(slope: np.ndarray, log_loss: float = 0.0) -> np.ndarray:
    return Spectral().touching(slope)


def frobenius(slope: np.ndarray, log_loss: float = 0.0) -> np.ndarray:
    return slope / np.linalg.norm(slope)


def newton_schulz(slope: np.ndarray, log_loss: float = 0.0) -> np.ndarray:
    left, sizes, right = np.linalg.svd(slope, full_matrices=False)
    return (left * spread(sizes / np.linalg.norm(sizes))) @ right


def newton_schulz_with(log_eps: float) -> Rule:
    """The same with an epsilon, per unit of spectral norm: what turns into gradient descent."""

    def velocity(slope: np.ndarray, log_loss: float) -> np.ndarray:
        size = np.linalg.norm(slope)
        x = slope * np.exp(-np.logaddexp(np.log(size), log_eps - log_loss))
        unit = np.linalg.norm(x)  # the rounds are linear below 1e-100, and a unit is all that is asked for
        if unit < 1e-100:
            return slope / np.linalg.norm(slope, 2)
        x = orthogonalise(x)
        return x / np.linalg.norm(x, 2)

    return velocity


def soft_sign(log_eps: float) -> Rule:
    """Adam without memory: g/(|g| + eps) in every coordinate, per unit of the largest."""

    def velocity(slope: np.ndarray, log_loss: float) -> np.ndarray:
        with np.errstate(divide="ignore"):
            logs = np.log(np.abs(slope))
        moves = logs - np.logaddexp(logs, log_eps - log_loss)
        return np.sign(slope) * np.exp(moves - moves.max())

    return velocity


def follow(
    features: np.ndarray, rule: Rule, times: np.ndarray, start: np.ndarray | None = None, tolerance: float = 1e-8
) -> Path:
    """The flow of the mean exponential loss of `features` (samples x others, k, d) through `times`, by a stiff integrator."""
    rows, shape = features.reshape(len(features), -1), features.shape[1:]
    samples = len(features) / (shape[0] - 1)

    def velocity(time: float, weight: np.ndarray) -> np.ndarray:
        exponents = -rows @ weight
        top = exponents.max()
        parts = np.exp(exponents - top)  # by hand: `logsumexp` takes six times as long as all the rest
        total = parts.sum()
        return rule((parts @ rows / total).reshape(shape), float(top + np.log(total / samples))).ravel()

    begin = np.zeros(rows.shape[1]) if start is None else start.ravel()
    found = solve_ivp(velocity, (times[0], times[-1]), begin, "LSODA", times, rtol=tolerance, atol=tolerance)
    margins = found.y.T @ rows.T
    shares = np.exp(-margins - logsumexp(-margins, axis=1, keepdims=True))
    return Path(found.t, found.y.T.reshape(-1, *shape), margins.min(axis=1), shares)


def fitness(features: np.ndarray, rule: Rule, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """F(p), the pace of every margin, and U(A* p)."""
    velocity = rule(np.tensordot(shares, features, 1), 0.0)
    return np.tensordot(features, velocity, 2), velocity


def rest_point(features: np.ndarray, rule: Rule, near: np.ndarray) -> Rest:
    """The rest point next to shares: F equal on their support."""
    support = near > _SUPPORT * near.max()
    used = features[support]

    def unequal(logs: np.ndarray) -> np.ndarray:
        shares = np.exp(logs - logsumexp(logs))
        found = fitness(used, rule, shares)[0]
        return np.append(found - shares @ found, np.log(np.exp(logs).sum()))

    logs = least_squares(unequal, np.log(near[support] / near[support].sum()), xtol=1e-15, ftol=1e-15, gtol=1e-15).x
    shares = np.zeros(len(support))
    shares[support] = np.exp(logs - logsumexp(logs))
    found, velocity = fitness(features, rule, shares)
    pace = float(shares @ found)
    residual, missing = np.abs(found[support] - pace).max(), max(0.0, pace - found.min())
    return Rest(shares, velocity, pace, float(residual), float(missing))
