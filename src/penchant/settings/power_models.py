r"""Signed powers: $\theta = w_+^D - w_-^D$ with $D \ge 3$, the depth of a diagonal network, and its mirror potential.

Gradient flow moves $w_\pm^{2-D}$ at equal and opposite rates, so that
$w_\pm = (\alpha^{2-D} \mp D(D-2)\,S)^{-1/(D-2)}$ with $S = -\kappa X^\top\int r$ (the trajectory form). In units of the start, $s = D^2\alpha^{D-2}S$ and $p = \frac D{D-2}$:
$\theta = \alpha^D\big[(1 - \frac sp)^{-p} - (1 + \frac sp)^{-p}\big]$, which is $2\alpha^2\sinh s$ in the limit $D = 2$. Dual points are bounded by p, and the potential
is the inverse of this function, integrated.
"""

from collections.abc import Callable
from numbers import Integral
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..errors import ArgumentError
from .parametrisations import PlainMetric
from .potentials import AbstractPotential, check_levels
from .square_models import check_alpha, positive_start, spread, underflown, weighted_gram

_FAR = 40.0  # logarithm of weight over start above which the power of the other sign is below rounding
_BOUND = np.log(
    1e-9
)  # of 1 - s/p, below which it is not computed from s: the weight is then the power of one parameter, to nine digits
_SMALL = 1e-100  # dual points whose squares underflow
_STEPS = 60  # of Newton's method for the inverse, which converges monotonically from below


class PowerEntropy(AbstractPotential):
    r"""$\sum_j b\,\psi_D(\theta_j/b)$ with $b = \alpha^D$ and $\psi_D'$ the inverse of $(1 - \frac sp)^{-p} - (1 + \frac sp)^{-p}$, $p = \frac D{D-2}$.

    >>> potential = PowerEntropy(np.log([0.1, 0.1]), 3)
    >>> weight = potential.link(np.array([2.0, -1.0]))
    >>> weight.round(6).tolist(), potential.gradient(weight).round(12).tolist()
    ([2.6784, -0.295312], [2.0, -1.0])
    """

    log_scale: np.ndarray  # log b, the same in every coordinate
    depth: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        check_levels(self.log_scale)

    @property
    def power(self) -> float:
        """p = D / (D - 2)."""
        return self.depth / (self.depth - 2)

    @property
    def radius(self) -> float:
        return self.power

    @property
    def name(self) -> str:
        return f"Q_alpha of depth {self.depth}"

    @property
    def rate(self) -> float:
        return float(self.depth**2 * np.exp((1 - 2 / self.depth) * self.log_scale[0]))

    def value(self, weight: np.ndarray) -> float:
        """<s, weight> - conjugate; from 1 - s/p itself where s is near its bound p, which it leaves no digits."""
        size, log_left, p = np.abs(weight), self._log_left(weight), self.power
        left = np.exp(log_left)
        far = left < 0.5
        dual = np.where(far, 0.0, self.gradient(weight))
        close = float(dual @ weight) - self.conjugate(dual)
        grown = np.exp(self.log_scale + (1 - p) * log_left) + np.exp(self.log_scale) * ((2 - left) ** (1 - p) - 2)
        return close + float(np.where(far, p * (1 - left) * size - p / (p - 1) * grown, 0.0).sum())

    def _log_ratio(self, weight: np.ndarray) -> np.ndarray:
        return np.log(np.maximum(np.abs(weight), np.finfo(float).tiny)) - self.log_scale

    def _log_left(self, weight: np.ndarray) -> np.ndarray:
        """log(1 - |s|/p) by Newton's method, where the function is convex; at large ratios the second power is below rounding."""
        log_ratio, p = self._log_ratio(weight), self.power
        far = log_ratio > _FAR
        ratio = np.exp(np.where(far, 0.0, log_ratio))
        left = (1 + ratio) ** (-1 / p)
        for _ in range(_STEPS):
            slope = p * (left ** (-p - 1) + (2 - left) ** (-p - 1))
            step = (left**-p - (2 - left) ** -p - ratio) / slope
            left = np.minimum(left + step, 1.0)
            if np.abs(step).max() <= 1e-15:
                break
        return np.where(far, -log_ratio / p, np.log(left))

    def gradient(self, weight: np.ndarray) -> np.ndarray:
        """First 1 - s/p, then Newton's method on s/p itself, where small weights keep their digits."""
        left, p = np.exp(self._log_left(weight)), self.power
        ratio, share = np.exp(np.minimum(self._log_ratio(weight), _FAR)), 1 - left
        for _ in range(2):
            near = share < 0.5
            at = np.where(near, share, 0.0)
            share = np.where(near, at - (_odd(at, p) - ratio) / (p * _even(at, p + 1)), share)
        return np.sign(weight) * p * share

    def link(self, dual: np.ndarray) -> np.ndarray:
        share = self._share(dual)
        return np.sign(dual) * np.exp(self.log_scale) * _odd(np.abs(share), self.power)

    def curvature(self, dual: np.ndarray) -> np.ndarray:
        return np.exp(self.log_scale) * _even(np.abs(self._share(dual)), self.power + 1)

    def conjugate(self, dual: np.ndarray) -> float:
        """b p/(p - 1) [(1 - u)^(1 - p) + (1 + u)^(1 - p) - 2], u = s/p, free of cancellation; infinite beyond the radius."""
        share, p = np.abs(self._share(dual)), self.power
        if np.isnan(share).any():
            return float("inf")
        angle = (p - 1) * np.arctanh(share)
        grown = np.expm1(-(p - 1) / 2 * np.log1p(-(share**2)))
        total = 2 * (grown * np.cosh(angle) + 2 * np.sinh(angle / 2) ** 2)
        scale = np.exp(self.log_scale)
        small = p**2 * (scale * share) * share  # all digits, and its square may underflow
        return float(np.where(share < _SMALL, small, scale * p / (p - 1) * total).sum())

    def speed(self, weight: np.ndarray) -> np.ndarray:
        """D^2 |weight|^(2 - 2/D) where the dual point leaves its bound no digits."""
        far = self._log_left(weight) < _BOUND
        near = super().speed(np.where(far, 0.0, weight))
        return np.where(far, self.depth**2 * np.abs(weight) ** (2 - 2 / self.depth), near)

    def _share(self, dual: np.ndarray) -> np.ndarray:
        """s/p; NaN where no weight has this dual point."""
        return np.where(np.abs(dual) < self.power, dual / self.power, np.nan)

    def scaled(self, log_factor: float) -> "PowerEntropy":
        return PowerEntropy(self.log_scale + self.depth * log_factor, self.depth)

    @property
    def levels(self) -> np.ndarray:
        return self.log_scale

    def at_levels(self, levels: np.ndarray) -> "PowerEntropy":
        return PowerEntropy(levels, self.depth)


def _odd(share: np.ndarray, p: float) -> np.ndarray:
    """(1 - u)^-p - (1 + u)^-p for u in [0, 1)."""
    return np.exp(-p * np.log1p(-share)) * -np.expm1(p * (np.log1p(-share) - np.log1p(share)))


def _even(share: np.ndarray, p: float) -> np.ndarray:
    """(1 - u)^-p + (1 + u)^-p for u in [0, 1)."""
    return np.exp(-p * np.log1p(-share)) + np.exp(-p * np.log1p(share))


class SignedPowers(PlainMetric):
    r"""$\theta = w_+^D - w_-^D$ from the start $w_+ = w_- = \alpha$, $D \ge 3$: a diagonal network of that depth (depth 2 is `SignedSquares`).

    Gradient flow minimises the potential `PowerEntropy` among interpolants: the l2 norm for $\alpha\to\infty$, the l1 norm for $\alpha\to0$, where
    other coefficients vanish like $\alpha^D$.
    """

    alpha: Float[Array, "*b"]
    depth: int = eqx.field(static=True)

    def __init__(self, alpha: Any, depth: Any = 3):
        if isinstance(depth, bool) or not isinstance(depth, Integral) or depth < 3:
            raise ArgumentError(
                "depth", "SignedPowers", "an integer of at least 3", repr(depth), "SignedSquares(alpha)"
            )
        self.alpha, self.depth = check_alpha(alpha, "SignedPowers"), int(depth)
        if self.alpha.ndim:
            raise ArgumentError("alpha", "SignedPowers", "one number", f"shape {self.alpha.shape}")

    form = property(lambda self: f"SignedPowers of depth {self.depth}")

    def zeros(self, data: Any) -> Array:
        """The start alpha: from zero itself no gradient ever leads away."""
        return jnp.stack([spread(self.alpha, data, "SignedPowers")] * 2)

    def random(self, data: Any, rng: np.random.Generator, scale: float) -> Array:
        return jnp.asarray(scale * np.abs(rng.standard_normal((2, *data.weight_shape))))

    def weight(self, params: Array, data: Any) -> Array:
        return params[0] ** self.depth - params[1] ** self.depth

    def named(self, params: Array, data: Any) -> dict[str, Array]:
        return {"w_plus": params[0], "w_minus": params[1]}

    def linearise(self, params: Array, data: Any) -> tuple[Array, Callable[[Array], Array]]:
        def pull(cotangent: Array) -> Array:
            slope = data.adjoint(cotangent)
            return self.depth * params ** (self.depth - 1) * jnp.stack([slope, -slope])

        return data.margins(self.weight(params, data)), pull

    def lost(self, before: Array, after: Array) -> Bool[Array, ""]:
        return underflown(before, after)

    def gram(self, params: Array, data: Any) -> Float[Array, "N N"]:
        return weighted_gram(self.depth**2 * (params ** (2 * self.depth - 2)).sum(axis=0), data)

    def potential(self, start: Any) -> PowerEntropy:
        """What gradient flow from `start` minimises; for starts with all entries equal, the only ones whose potential is known here."""
        found = positive_start(start, "SignedPowers")
        if np.ptp(found) > 0:
            wanted = "the same in every entry"
            raise ArgumentError("start", "SignedPowers", wanted, f"entries from {found.min():g} to {found.max():g}")
        return PowerEntropy(np.full(found.shape[-1], self.depth * np.log(found.flat[0])), self.depth)

    def moved(self, start: Any, dual: Any) -> np.ndarray:
        """The parameters at the dual point s of the flow from `start`: alpha (1 -+ s/p)^(-1/(D - 2))."""
        share = np.stack([np.asarray(dual), -np.asarray(dual)]) * (1 - 2 / self.depth)
        return np.asarray(start) * np.exp(-np.log1p(-share) / (self.depth - 2))
