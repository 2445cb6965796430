r"""What is selected where the maximum margin is not: by the logistic loss on data that no direction separates, by polynomial tails.

In general the samples fall into two parts: those that some direction classifies without hurting any other one, and the rest. The
rest has a finite minimiser v in its span. Orthogonally to that span training grows along the maximum margin u of the others, for
ever: $w(t) \approx v + u\log t$ (Ji, Telgarsky, *The implicit bias of gradient descent on nonseparable data*, 2019). Without others, v is all.
Under a loss with a polynomial tail, $\ell(z) \sim z^{-a}$, training goes to the direction of least $\sum_i\langle w, z_i\rangle^{-a}$ on the sphere.
"""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from scipy.optimize import linprog
from scipy.special import expit

from ..errors import PenchantError
from ..settings.classification import Classification
from ..settings.losses import AbstractLoss
from .euclidean_margin import max_margin

_NEWTON = 100
_VISIBLE = 1e-10  # decrease over cost below which the rounding of the cost would decide a line search
_BALANCED = 1e-9  # relative slope above which Newton's method has failed
_RANK = 1e-12  # singular values below this fraction of the largest count as zero
_FAR = (1e8, 1e10)  # margins at which a power is read off
_SETTLED = 1e-3  # by how much it may change between them: a power of the margin has settled, the logarithm of any other tail has not


class LogisticLimit(eqx.Module):
    """`finite` part v, `direction` u of unit smallest margin (0 if there is none), and which samples u separates."""

    finite: np.ndarray
    direction: np.ndarray
    separated: np.ndarray

    def reached(self, signed: np.ndarray) -> np.ndarray:
        """The first point of v + c u at which every separated sample has margin 1."""
        if not self.separated.any():
            return self.finite
        rows = signed[self.separated]
        needed = float(((1 - rows @ self.finite) / (rows @ self.direction)).max())
        return self.finite + max(0.0, needed) * self.direction


def logistic_limit(signed: np.ndarray) -> LogisticLimit:
    """Where training on sum log(1 + exp(-<z, w>)) goes, for signed samples z that no direction classifies all."""
    separated = separable_part(signed)
    finite = logistic_minimiser(signed[~separated])
    if not separated.any():
        return LogisticLimit(finite, np.zeros_like(finite), separated)
    _, sizes, right = np.linalg.svd(signed[~separated], full_matrices=False)
    span = right[sizes > _RANK * sizes.max(initial=0.0)]
    rows = signed[separated]
    across = rows - (rows @ span.T) @ span
    direction = max_margin(Classification(across, np.ones(len(across)))).weight
    return LogisticLimit(finite, direction, separated)


def separable_part(signed: np.ndarray) -> np.ndarray:
    """The samples that have a positive margin in some direction in which none has a negative one."""
    lengths = np.linalg.norm(signed, axis=1, keepdims=True)
    rows, (n, d) = signed / np.where(lengths > 0, lengths, 1.0), signed.shape
    costs = np.concatenate([-np.ones(n), np.zeros(d)])  # maximise the sum of min(1, margin)
    bounds = [(0.0, 1.0)] * n + [(None, None)] * d
    result = linprog(costs, A_ub=np.hstack([np.eye(n), -rows]), b_ub=np.zeros(n), bounds=bounds, method="highs")
    if not result.success:
        raise PenchantError(f"The program for the separable part was not solved: {result.message}")
    return result.x[:n] > 0.5


def logistic_minimiser(signed: np.ndarray) -> np.ndarray:
    """The least minimiser of sum log(1 + exp(-<z, w>)) by damped Newton steps; for data that have one."""

    def newton(_: np.ndarray, share: np.ndarray) -> tuple[np.ndarray, float]:
        root = np.sqrt(share * (1 - share))  # the Hessian is the square of root * signed: half its condition, in digits
        step = np.linalg.lstsq(root[:, None] * signed, np.sqrt(share / (1 - share)), rcond=_RANK)[0]
        return step, float(share @ signed @ step)

    loss = lambda weight: (float(np.logaddexp(0, -signed @ weight).sum()), expit(-signed @ weight))
    weight = descend(loss, newton, np.zeros(signed.shape[1]), _NEWTON)[0]
    forces = expit(-signed @ weight)[:, None] * signed
    size = float(np.linalg.norm(forces, axis=1).sum())  # of what the samples contribute to the slope
    left = float(np.linalg.norm(forces.sum(axis=0))) / size if size > 0 else 0.0
    if not left <= _BALANCED:
        raise PenchantError(
            f"Newton's method did not find the logistic minimiser: after {_NEWTON} steps a relative slope of {left:.1g} is left.\n"
            "  Usual cause: samples that are almost separable, whose minimiser is far away."
        )
    return weight


_elasticity = eqx.filter_jit(lambda loss, margins: jnp.exp(loss.log_slope(margins) - loss.log_value(margins)) * margins)


def tail_power(loss: AbstractLoss) -> float | None:
    """a if the loss decays like z^-a; None for every other tail."""
    near, far = np.asarray(_elasticity(loss, np.asarray(_FAR)))
    settled = np.isfinite(near) and np.isfinite(far) and far > 0 and abs(far - near) <= _SETTLED * near
    return float(far) if settled else None


def polynomial_direction(signed: np.ndarray, power: float, inside: np.ndarray) -> np.ndarray:
    r"""The unit vector that minimises $\sum_i\langle w, z_i\rangle^{-a}$; `inside` is any vector with positive margins.

    It is the minimiser of the strictly convex $\frac1a\log\sum_i\langle w, z_i\rangle^{-a} + \frac12|w|^2$, whose length is 1 by homogeneity.
    """

    def newton(weight: np.ndarray, pulls: np.ndarray, shares: np.ndarray) -> tuple[np.ndarray, float]:
        mean = shares @ pulls
        gradient = weight - mean
        curved = np.eye(len(weight)) + (power + 1) * (shares[:, None] * pulls).T @ pulls - power * np.outer(mean, mean)
        step = np.linalg.solve(curved, gradient)
        return -step, float(gradient @ step)

    weight = descend(lambda w: _cost(signed, power, w), newton, inside / np.linalg.norm(inside), 200)[0]
    return weight / np.linalg.norm(weight)


def descend(
    cost: Callable[[np.ndarray], tuple], newton: Callable[..., tuple[np.ndarray, float]], point: np.ndarray, rounds: int
) -> tuple[np.ndarray, float]:
    """Damped Newton steps to the least cost, which comes with what the next step and its promise, twice what the cost can still fall, are made of.

    Where rounding of the cost hides such a fall, steps are whole.
    """
    least, *parts = cost(point)
    for _ in range(rounds):
        step, promised = newton(point, *parts)
        if not promised > 1e-30:
            break
        length, shown = 1.0, promised > _VISIBLE * abs(least)
        while shown and length > 1e-10 and cost(point + length * step)[0] > least - 0.25 * length * promised:
            length /= 2
        if length <= 1e-10:  # rounding decides
            break
        point = point + length * step
        least, *parts = cost(point)
    return point, least


def _cost(signed: np.ndarray, power: float, weight: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """The convex cost, infinite outside the cone of positive margins, with z_i / margin_i and the shares of the samples in the sum."""
    margins = signed @ weight
    if not margins.min() > 0:
        return np.inf, signed, margins
    terms = -power * np.log(margins)
    sizes = np.exp(terms - terms.max())
    total = float(terms.max() + np.log(sizes.sum())) / power + float(weight @ weight) / 2
    return total, signed / margins[:, None], sizes / sizes.sum()
