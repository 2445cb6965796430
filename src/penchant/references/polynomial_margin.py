r"""Where training goes under a loss with a polynomial tail, $\ell(z) \sim z^{-a}$: the direction of least $\sum_i\langle w, z_i\rangle^{-a}$ on the sphere."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

_FAR = (1e8, 1e10)  # margins at which a power is read off
_SETTLED = 1e-3  # by how much it may change between them: a power of the margin has settled, the logarithm of any other tail has not


_elasticity = eqx.filter_jit(lambda loss, margins: jnp.exp(loss.log_slope(margins) - loss.log_value(margins)) * margins)


def tail_power(loss: Any) -> float | None:
    """a if the loss decays like z^-a; None for every other tail.

    >>> import penchant as pt
    >>> round(tail_power(pt.settings.PolynomialTail(2.0)), 6), tail_power(pt.Logistic())
    (2.0, None)
    """
    near, far = np.asarray(_elasticity(loss, np.asarray(_FAR)))
    settled = np.isfinite(near) and np.isfinite(far) and far > 0 and abs(far - near) <= _SETTLED * near
    return float(far) if settled else None


def polynomial_direction(signed: np.ndarray, power: float, inside: np.ndarray) -> np.ndarray:
    r"""The unit vector that minimises $\sum_i\langle w, z_i\rangle^{-a}$; `inside` is any vector with positive margins.

    It is the minimiser of the strictly convex $\frac1a\log\sum_i\langle w, z_i\rangle^{-a} + \frac12|w|^2$, whose length is 1 by homogeneity.

    >>> polynomial_direction(np.array([[1.0, 0.0], [0.0, 1.0]]), 2.0, np.array([3.0, 1.0])).round(12).tolist()
    [0.707106781187, 0.707106781187]
    """
    weight = inside / np.linalg.norm(inside)
    least, pulls, shares = _cost(signed, power, weight)
    for _ in range(200):
        mean = shares @ pulls
        gradient = weight - mean
        curved = np.eye(len(weight)) + (power + 1) * (shares[:, None] * pulls).T @ pulls - power * np.outer(mean, mean)
        step = np.linalg.solve(curved, gradient)
        promised, length = float(gradient @ step), 1.0
        if not promised > 1e-30:
            break
        while length > 1e-10 and _cost(signed, power, weight - length * step)[0] > least - 0.25 * length * promised:
            length /= 2
        if length <= 1e-10:  # rounding decides
            break
        weight = weight - length * step
        least, pulls, shares = _cost(signed, power, weight)
    return weight / np.linalg.norm(weight)


def _cost(signed: np.ndarray, power: float, weight: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """The convex cost, infinite outside the cone of positive margins, with z_i / margin_i and the shares of the samples in the sum."""
    margins = signed @ weight
    if not margins.min() > 0:
        return np.inf, signed, margins
    terms = -power * np.log(margins)
    sizes = np.exp(terms - terms.max())
    total = float(terms.max() + np.log(sizes.sum())) / power + float(weight @ weight) / 2
    return total, signed / margins[:, None], sizes / sizes.sum()
