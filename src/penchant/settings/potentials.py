r"""Mirror potentials: what the flow of a parametrisation minimises among the weights that fit.

Gradient flow on $\frac\kappa2\|X\theta - y\|^2$ in the parameters moves the weight by $\frac{d}{dt}\nabla\psi(\theta) = -c\,\kappa X^\top(X\theta - y)$
with a convex $\psi$ that depends on the parametrisation and on its start. Hence $\theta = \nabla\psi^*(X^\top\nu)$ for a dual variable
$\nu\in\mathbb R^n$, and the limit minimises the divergence $D_\psi(\theta, \theta_0)$ subject to $X\theta = y$. One object serves flow, limit
program, Newton's method and certificate. Everything is separable, $\nabla\psi(\theta_0) = 0$, and starts are kept as logarithms: a start of
$10^{-100}$ is as good as any other.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace

import numpy as np

from ..errors import ArgumentError

LARGEST = 200 * np.log(10)  # logarithm of the square of a start beyond which squares of its square overflow
_NEAR = 5e-3  # ratios of weight to start below which three terms of a series are all digits, and squares may underflow
_EPS = float(np.finfo(float).eps)
_FLAT, _BENT = 32, 4  # roundings of one coordinate of a potential, and of the logarithms that it is made of
_FAR = 40.0  # logarithm of weight over start above which the power of the other sign is below rounding
_BOUND = np.log(1e-9)  # of 1 - s/p, below which it is not computed from s: the weight is one power then, to nine digits
_SMALL = 1e-100  # dual points whose squares underflow
_STEPS = 60  # of Newton's method for the inverse, which converges monotonically from below
_LARGE = 20.0  # above this e^-2x is below the rounding of 1, and e^-x a relative 1e-9 that the series still resolves


@dataclass(eq=False)  # no Equinox module: binding its methods takes longer than these formulas
class AbstractPotential(ABC):
    """A separable convex potential with its minimum 0 at the start; arrays of d numbers throughout.

    `rate` is the c of the module's docstring: how fast the dual variable moves, in units of the loss scale; `levels` are the logarithms
    of the size of the start, a power `depth` of that of the parameters. Where a parametrisation has no negative weights, its potential
    is `nonnegative`; dual points of weights are smaller than `radius` in every coordinate.
    """

    levels: np.ndarray
    name = ""
    depth = 2
    rate = 4.0
    nonnegative = False
    radius = float("inf")

    def __post_init__(self) -> None:
        if np.max(self.levels) > LARGEST:
            found = f"a start of about e^{np.max(self.levels) / 2:.0f}"
            fix = "such starts select the least l2 norm to all digits: train the weight itself, `Direct`"
            raise ArgumentError("alpha", "square parameters", "at most 1e100", found, fix)

    @property
    def least(self) -> str:
        """What the selected interpolant minimises, in words."""
        return self.name

    @abstractmethod
    def value(self, weight: np.ndarray) -> float:
        """D(weight, start)."""

    @abstractmethod
    def gradient(self, weight: np.ndarray) -> np.ndarray:
        """The dual point of a weight; inverse of `link`."""

    @abstractmethod
    def link(self, dual: np.ndarray) -> np.ndarray:
        """The weight of a dual point s = X' nu; the start at s = 0."""

    @abstractmethod
    def curvature(self, dual: np.ndarray) -> np.ndarray:
        """The derivative of `link`."""

    def speed(self, weight: np.ndarray) -> np.ndarray:
        """rate times the curvature at the dual point of a weight: how fast the flow moves each coefficient there."""
        return self.curvature(self.gradient(weight)) * self.rate

    @abstractmethod
    def conjugate(self, dual: np.ndarray) -> float:
        """The supremum of <s, weight> - value(weight)."""

    def value_rounding(self, weight: np.ndarray) -> float:
        """A bound on the rounding of `value`: that of a logarithm counts as often as exponentials are taken of it, up to e^20."""
        start, slope = self.link(np.zeros_like(weight)), self.gradient(weight)
        logs = self._logs + np.abs(np.log(np.where(weight != 0, np.abs(weight), 1.0)))
        steep = np.where(weight != 0, np.abs(slope), 0.0) + self._tilt
        flat = np.abs(weight) @ steep + np.abs(start) @ self._tilt + abs(self.value(weight))
        near = _EPS * logs * (start != 0)  # at the start the slope itself is rounding
        bent = np.abs(weight) @ (np.minimum(steep + near, _LARGE) * logs) + np.abs(start) @ (self._tilt * logs)
        return _EPS * float((_FLAT + len(weight)) * flat + _BENT * bent)

    def conjugate_rounding(self, dual: np.ndarray) -> float:
        """A bound on the rounding of `conjugate`, which is at most min(1, |s|) times the weight there or at the start."""
        there, start = np.abs(self.link(dual)), np.abs(self.link(np.zeros_like(dual)))
        near = np.minimum(np.abs(dual), 1)
        bent = float((near * (self._logs + np.abs(dual))) @ there)
        return _EPS * ((_FLAT + len(dual)) * float(near @ np.maximum(there, start)) + _BENT * bent)

    @property
    def _logs(self) -> np.ndarray:
        """Sizes of the logarithms that enter exponentials."""
        return np.abs(self.levels) + self._tilt

    @property
    def _tilt(self) -> np.ndarray:
        """Sizes of linear terms of the potential."""
        return np.zeros_like(self.levels)

    def at_levels(self, levels: np.ndarray) -> "AbstractPotential":
        """The same potential with other levels."""
        return replace(self, levels=levels)

    def scaled(self, log_factor: float) -> "AbstractPotential":
        """The potential of the start multiplied by exp(log_factor) (in the parameters)."""
        return self.at_levels(self.levels + self.depth * log_factor)


@dataclass(eq=False, init=False)
class Quadratic(AbstractPotential):
    """|weight - start|^2 / 2: the weight itself is trained, and there is no scale."""

    start: np.ndarray
    name = "l2"
    rate = 1.0

    def __init__(self, start: np.ndarray):
        self.start, self.levels = start, np.zeros_like(start)

    @property
    def least(self) -> str:
        return "l2 distance to the start" if self.start.any() else "l2 norm"

    def value(self, weight: np.ndarray) -> float:
        return float(0.5 * ((weight - self.start) ** 2).sum())

    def gradient(self, weight: np.ndarray) -> np.ndarray:
        return weight - self.start

    def link(self, dual: np.ndarray) -> np.ndarray:
        return self.start + dual

    def curvature(self, dual: np.ndarray) -> np.ndarray:
        return np.ones_like(dual)

    def conjugate(self, dual: np.ndarray) -> float:
        return float(self.start @ dual + 0.5 * dual @ dual)

    @property
    def _logs(self) -> np.ndarray:
        return self.levels

    @property
    def _tilt(self) -> np.ndarray:
        return np.abs(self.start)

    def scaled(self, log_factor: float) -> "Quadratic":
        return Quadratic(np.exp(log_factor) * self.start)


class Entropy(AbstractPotential):
    """KL(weight | start) = sum of weight log(weight/start) - weight + start, for weights >= 0: the parameters are squared."""

    name = "KL"
    nonnegative = True

    def value(self, weight: np.ndarray) -> float:
        if weight.min() < 0:
            return float("inf")
        start, positive = np.exp(self.levels), weight > 0
        near = np.where(positive, weight, 1.0)
        ratio = np.log(near) - self.levels
        small = np.abs(ratio) < 0.5  # then the two parts nearly cancel: x log x - x + 1 with x = 1 + expm1(ratio)
        direct = near * (ratio - 1) + start
        series = start * _entropy_near_one(np.where(small, ratio, 0.0))
        return float(np.where(positive, np.where(small, series, direct), start).sum())

    def gradient(self, weight: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.log(weight) - self.levels

    def link(self, dual: np.ndarray) -> np.ndarray:
        return np.exp(self.levels + dual)

    curvature = link  # an exponential is its own derivative

    def conjugate(self, dual: np.ndarray) -> float:
        start = np.exp(self.levels)
        return float(np.where(np.abs(dual) < 1, start * np.expm1(np.clip(dual, -1, 1)), self.link(dual) - start).sum())


def _entropy_near_one(ratio: np.ndarray) -> np.ndarray:
    """x log x - x + 1 at x = e^ratio: ratio e^ratio - expm1(ratio), summed as a series where it cancels."""
    term, total = np.ones_like(ratio), np.zeros_like(ratio)
    for k in range(2, 20):
        term = term * ratio / (k - 1)
        total = total + term * ratio * (1 - 1 / k)
    return total


@dataclass(eq=False)
class HyperbolicEntropy(AbstractPotential):
    r"""$Q(\theta) = \sum_j b_j\,q(\theta_j/b_j) - s_j\theta_j$ (shifted to the minimum 0), $q(z) = z\,\mathrm{arcsinh}\frac z2 - \frac{z^2}{2+\sqrt{4+z^2}}$.

    The parameters are $w_\pm$ with $\theta = w_+^2 - w_-^2$, $b = w_+w_-$ and $s = \log(w_+/w_-)$ at the start; $b = \alpha^2$ and $s = 0$ give the
    potential $Q_\alpha$, between the l2 norm ($\alpha\to\infty$) and the l1 norm ($\alpha\to0$).
    """

    shift: np.ndarray
    name = "Q_alpha"

    def value(self, weight: np.ndarray) -> float:
        at_start = self._potential(self.link(np.zeros_like(weight)))
        linear = self.shift * (weight - self.link(np.zeros_like(weight)))
        return float((self._potential(weight) - at_start - linear).sum())

    def _ratio(self, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """|weight|, the logarithm of |weight|/b, and where that is so large that the other sign is below rounding."""
        size = np.abs(weight)
        log_ratio = np.where(size > 0, np.log(np.where(size > 0, size, 1.0)), -np.inf) - self.levels
        return size, log_ratio, log_ratio > _LARGE

    def _potential(self, weight: np.ndarray) -> np.ndarray:
        """b q(weight/b)."""
        size, log_ratio, far = self._ratio(weight)
        near = np.exp(np.where(far, 0.0, log_ratio))
        scale = np.exp(self.levels)
        close = scale * (near * np.arcsinh(near / 2) - near**2 / (2 + np.sqrt(4 + near**2)))
        series = size * near * (1 / 4 - near**2 / 192 + near**4 / 2560)
        close = np.where(near < _NEAR, series, close)
        # The last term of the series, b^2/|weight|, is below the rounding of the first one here.
        return np.where(far, size * (np.where(far, log_ratio, 1.0) - 1) + 2 * scale, close)

    def gradient(self, weight: np.ndarray) -> np.ndarray:
        _, log_ratio, far = self._ratio(weight)
        found = np.where(far, np.where(far, log_ratio, 0.0), np.arcsinh(np.exp(np.where(far, 0.0, log_ratio)) / 2))
        return np.sign(weight) * found - self.shift

    def link(self, dual: np.ndarray) -> np.ndarray:
        moved = dual + self.shift
        size = np.abs(moved)
        return np.sign(moved) * np.exp(self.levels + size) * -np.expm1(-2 * size)

    def curvature(self, dual: np.ndarray) -> np.ndarray:
        size = np.abs(dual + self.shift)
        return np.exp(self.levels + size) * (1 + np.exp(-2 * size))

    def conjugate(self, dual: np.ndarray) -> float:
        """2 b (cosh(s + shift) - cosh(shift)) = 4 b sinh(s/2 + shift) sinh(s/2), the second form free of cancellation."""
        first, second = np.abs(dual / 2 + self.shift), np.abs(dual / 2)
        sign = np.sign(dual / 2 + self.shift) * np.sign(dual)
        size = np.exp(self.levels + first + second) * np.expm1(-2 * first) * np.expm1(-2 * second)
        return float((sign * size).sum())

    @property
    def _tilt(self) -> np.ndarray:
        return 2 * np.abs(self.shift)


@dataclass(eq=False)
class PowerEntropy(AbstractPotential):
    r"""$\sum_j b\,\psi_D(\theta_j/b)$ with $b = \alpha^D$, the same in every coordinate, and $\psi_D'$ the inverse of $(1 - \frac sp)^{-p} - (1 + \frac sp)^{-p}$, $p = \frac D{D-2}$.

    Gradient flow on $w_+^D - w_-^D$, $D \ge 3$, moves $w_\pm^{2-D}$ at equal and opposite rates, so that $w_\pm = (\alpha^{2-D} \mp D(D-2)\,S)^{-1/(D-2)}$
    with $S = -\kappa X^\top\int r$ (the trajectory form). In units of the start, $s = D^2\alpha^{D-2}S$, the weight is the function above, which is
    $2\alpha^2\sinh s$ in the limit $D = 2$. Dual points are bounded by p.
    """

    depth: int = field()

    @property
    def radius(self) -> float:
        """p = D / (D - 2)."""
        return self.depth / (self.depth - 2)

    @property
    def name(self) -> str:
        return f"Q_alpha of depth {self.depth}"

    @property
    def rate(self) -> float:
        return float(self.depth**2 * np.exp((1 - 2 / self.depth) * self.levels[0]))

    def value(self, weight: np.ndarray) -> float:
        """<s, weight> - conjugate; from 1 - s/p itself where s is near its bound p, which it leaves no digits."""
        size, log_left, p = np.abs(weight), self._log_left(weight), self.radius
        left = np.exp(log_left)
        far = left < 0.5
        dual = np.where(far, 0.0, self.gradient(weight))
        close = float(dual @ weight) - self.conjugate(dual)
        grown = np.exp(self.levels + (1 - p) * log_left) + np.exp(self.levels) * ((2 - left) ** (1 - p) - 2)
        return close + float(np.where(far, p * (1 - left) * size - p / (p - 1) * grown, 0.0).sum())

    def _log_ratio(self, weight: np.ndarray) -> np.ndarray:
        return np.log(np.maximum(np.abs(weight), np.finfo(float).tiny)) - self.levels

    def _log_left(self, weight: np.ndarray) -> np.ndarray:
        """log(1 - |s|/p) by Newton's method, where the function is convex; at large ratios the second power is below rounding."""
        log_ratio, p = self._log_ratio(weight), self.radius
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
        left, p = np.exp(self._log_left(weight)), self.radius
        ratio, share = np.exp(np.minimum(self._log_ratio(weight), _FAR)), 1 - left
        for _ in range(2):
            near = share < 0.5
            at = np.where(near, share, 0.0)
            share = np.where(near, at - (_odd(at, p) - ratio) / (p * _even(at, p + 1)), share)
        return np.sign(weight) * p * share

    def link(self, dual: np.ndarray) -> np.ndarray:
        share = self._share(dual)
        return np.sign(dual) * np.exp(self.levels) * _odd(np.abs(share), self.radius)

    def curvature(self, dual: np.ndarray) -> np.ndarray:
        return np.exp(self.levels) * _even(np.abs(self._share(dual)), self.radius + 1)

    def conjugate(self, dual: np.ndarray) -> float:
        """b p/(p - 1) [(1 - u)^(1 - p) + (1 + u)^(1 - p) - 2], u = s/p, free of cancellation; infinite beyond the radius."""
        share, p = np.abs(self._share(dual)), self.radius
        if np.isnan(share).any():
            return float("inf")
        angle = (p - 1) * np.arctanh(share)
        grown = np.expm1(-(p - 1) / 2 * np.log1p(-(share**2)))
        total = 2 * (grown * np.cosh(angle) + 2 * np.sinh(angle / 2) ** 2)
        scale = np.exp(self.levels)
        small = p**2 * (scale * share) * share  # all digits, and its square may underflow
        return float(np.where(share < _SMALL, small, scale * p / (p - 1) * total).sum())

    def speed(self, weight: np.ndarray) -> np.ndarray:
        """D^2 |weight|^(2 - 2/D) where the dual point leaves its bound no digits."""
        far = self._log_left(weight) < _BOUND
        near = super().speed(np.where(far, 0.0, weight))
        return np.where(far, self.depth**2 * np.abs(weight) ** (2 - 2 / self.depth), near)

    def _share(self, dual: np.ndarray) -> np.ndarray:
        """s/p; NaN where no weight has this dual point."""
        return np.where(np.abs(dual) < self.radius, dual / self.radius, np.nan)


def _odd(share: np.ndarray, p: float) -> np.ndarray:
    """(1 - u)^-p - (1 + u)^-p for u in [0, 1)."""
    return np.exp(-p * np.log1p(-share)) * -np.expm1(p * (np.log1p(-share) - np.log1p(share)))


def _even(share: np.ndarray, p: float) -> np.ndarray:
    """(1 - u)^-p + (1 + u)^-p for u in [0, 1)."""
    return np.exp(-p * np.log1p(-share)) + np.exp(-p * np.log1p(share))


def q_alpha(alpha: float, d: int) -> HyperbolicEntropy:
    """The potential of signed squares from the start w+ = w- = alpha, in d coordinates."""
    if not 0 < alpha < np.inf:
        raise ArgumentError("alpha", "q_alpha", "a positive and finite number", repr(alpha))
    return HyperbolicEntropy(np.full(d, 2 * np.log(float(alpha))), np.zeros(d))
