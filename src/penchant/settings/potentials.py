r"""Mirror potentials: what the flow of a parametrisation minimises among the weights that fit.

Gradient flow on $\frac\kappa2\|X\theta - y\|^2$ in the parameters moves the weight by $\frac{d}{dt}\nabla\psi(\theta) = -c\,\kappa X^\top(X\theta - y)$
with a convex $\psi$ that depends on the parametrisation and on its start. Hence $\theta = \nabla\psi^*(X^\top\nu)$ for a dual variable
$\nu\in\mathbb R^n$, and the limit minimises the divergence $D_\psi(\theta, \theta_0)$ subject to $X\theta = y$. One object serves flow, limit
program, Newton's method and certificate. Everything is separable, $\nabla\psi(\theta_0) = 0$, and starts are kept as logarithms: a start of
$10^{-100}$ is as good as any other.
"""

from abc import abstractmethod
from numbers import Integral, Real
from typing import Any

import equinox as eqx
import numpy as np

from ..errors import ArgumentError

_LARGEST = 200 * np.log(10)  # logarithm of the square of a start beyond which squares of its square overflow
_NEAR = 5e-3  # ratios of weight to start below which three terms of a series are all digits, and squares may underflow
_EPS = float(np.finfo(float).eps)
_FLAT, _BENT = 32, 4  # roundings of one coordinate of a potential, and of the logarithms that it is made of
_LARGE = 20.0  # above this e^-2x is below the rounding of 1, and e^-x a relative 1e-9 that the series still resolves


class AbstractPotential(eqx.Module):
    """A separable convex potential with its minimum 0 at the start; arrays of d numbers throughout.

    `rate` is the c of the module's docstring: how fast the dual variable moves, in units of the loss scale.
    """

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    @abstractmethod
    def rate(self) -> float: ...

    @property
    def nonnegative(self) -> bool:
        """Whether weights of this parametrisation cannot be negative."""
        return False

    @property
    def radius(self) -> float:
        """Dual points of weights are smaller than this in every coordinate."""
        return float("inf")

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
        there, start, near = (
            np.abs(self.link(dual)),
            np.abs(self.link(np.zeros_like(dual))),
            np.minimum(np.abs(dual), 1),
        )
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

    @abstractmethod
    def scaled(self, log_factor: float) -> "AbstractPotential":
        """The potential of the start multiplied by exp(log_factor) (in the parameters)."""

    @property
    def levels(self) -> np.ndarray:
        """Logarithms of the size of the start, one per coordinate, for potentials that have a scale."""
        raise NotImplementedError(f"{type(self).__name__} has no scale")

    def at_levels(self, levels: np.ndarray) -> "AbstractPotential":
        """The same potential with other levels."""
        raise NotImplementedError(f"{type(self).__name__} has no scale")


def check_levels(levels: np.ndarray) -> None:
    if np.max(levels) > _LARGEST:
        raise ArgumentError(
            "alpha",
            "square parameters",
            "at most 1e100",
            f"a start of about e^{np.max(levels) / 2:.0f}",
            "such starts select the least l2 norm to all digits: train the weight itself, `Direct`",
        )


class Quadratic(AbstractPotential):
    """|weight - start|^2 / 2: the weight itself is trained."""

    start: np.ndarray

    @property
    def name(self) -> str:
        return "l2"

    @property
    def rate(self) -> float:
        return 1.0

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
        return np.zeros_like(self.start)

    @property
    def _tilt(self) -> np.ndarray:
        return np.abs(self.start)

    def scaled(self, log_factor: float) -> "Quadratic":
        return Quadratic(np.exp(log_factor) * self.start)


class Entropy(AbstractPotential):
    """KL(weight | start) = sum of weight log(weight/start) - weight + start, for weights >= 0: the parameters are squared."""

    log_start: np.ndarray

    def __check_init__(self) -> None:
        check_levels(self.log_start)

    @property
    def name(self) -> str:
        return "KL"

    @property
    def rate(self) -> float:
        return 4.0

    @property
    def nonnegative(self) -> bool:
        return True

    def value(self, weight: np.ndarray) -> float:
        if weight.min() < 0:
            return float("inf")
        start, positive = np.exp(self.log_start), weight > 0
        near = np.where(positive, weight, 1.0)
        ratio = np.log(near) - self.log_start
        small = np.abs(ratio) < 0.5  # then the two parts nearly cancel: x log x - x + 1 with x = 1 + expm1(ratio)
        direct = near * (ratio - 1) + start
        series = start * _entropy_near_one(np.where(small, ratio, 0.0))
        return float(np.where(positive, np.where(small, series, direct), start).sum())

    def gradient(self, weight: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.log(weight) - self.log_start

    def link(self, dual: np.ndarray) -> np.ndarray:
        return np.exp(self.log_start + dual)

    def curvature(self, dual: np.ndarray) -> np.ndarray:
        return np.exp(self.log_start + dual)

    def conjugate(self, dual: np.ndarray) -> float:
        start = np.exp(self.log_start)
        return float(np.where(np.abs(dual) < 1, start * np.expm1(np.clip(dual, -1, 1)), self.link(dual) - start).sum())

    def scaled(self, log_factor: float) -> "Entropy":
        return Entropy(self.log_start + 2 * log_factor)

    @property
    def levels(self) -> np.ndarray:
        return self.log_start

    def at_levels(self, levels: np.ndarray) -> "Entropy":
        return Entropy(levels)


def _entropy_near_one(ratio: np.ndarray) -> np.ndarray:
    """x log x - x + 1 at x = e^ratio: ratio e^ratio - expm1(ratio), summed as a series where it cancels."""
    term, total = np.ones_like(ratio), np.zeros_like(ratio)
    for k in range(2, 20):
        term = term * ratio / (k - 1)
        total = total + term * ratio * (1 - 1 / k)
    return total


class HyperbolicEntropy(AbstractPotential):
    r"""$Q(\theta) = \sum_j b_j\,q(\theta_j/b_j) - s_j\theta_j$ (shifted to the minimum 0), $q(z) = z\,\mathrm{arcsinh}\frac z2 - \frac{z^2}{2+\sqrt{4+z^2}}$.

    The parameters are $w_\pm$ with $\theta = w_+^2 - w_-^2$, $b = w_+w_-$ and $s = \log(w_+/w_-)$ at the start; $b = \alpha^2$ and $s = 0$ give the
    potential $Q_\alpha$, between the l2 norm ($\alpha\to\infty$) and the l1 norm ($\alpha\to0$).

    >>> potential = HyperbolicEntropy(np.log([1e-60, 1.0]), np.zeros(2))
    >>> potential.link(np.array([138.0, 1.0])).round(6).tolist()                    # 2 b sinh(s)
    [0.856325, 2.350402]
    """

    log_scale: np.ndarray
    shift: np.ndarray

    def __check_init__(self) -> None:
        check_levels(self.log_scale)

    @property
    def name(self) -> str:
        return "Q_alpha"

    @property
    def rate(self) -> float:
        return 4.0

    def value(self, weight: np.ndarray) -> float:
        at_start = self._potential(self.link(np.zeros_like(weight)))
        linear = self.shift * (weight - self.link(np.zeros_like(weight)))
        return float((self._potential(weight) - at_start - linear).sum())

    def _potential(self, weight: np.ndarray) -> np.ndarray:
        """b q(weight/b)."""
        size = np.abs(weight)
        log_ratio = np.where(size > 0, np.log(np.where(size > 0, size, 1.0)), -np.inf) - self.log_scale
        far = log_ratio > _LARGE
        near = np.exp(np.where(far, 0.0, log_ratio))
        scale = np.exp(self.log_scale)
        close = scale * (near * np.arcsinh(near / 2) - near**2 / (2 + np.sqrt(4 + near**2)))
        series = size * near * (1 / 4 - near**2 / 192 + near**4 / 2560)
        close = np.where(near < _NEAR, series, close)
        # The last term of the series, b^2/|weight|, is below the rounding of the first one here.
        return np.where(far, size * (np.where(far, log_ratio, 1.0) - 1) + 2 * scale, close)

    def gradient(self, weight: np.ndarray) -> np.ndarray:
        size = np.abs(weight)
        log_ratio = np.where(size > 0, np.log(np.where(size > 0, size, 1.0)), -np.inf) - self.log_scale
        far = log_ratio > _LARGE
        found = np.where(far, np.where(far, log_ratio, 0.0), np.arcsinh(np.exp(np.where(far, 0.0, log_ratio)) / 2))
        return np.sign(weight) * found - self.shift

    def link(self, dual: np.ndarray) -> np.ndarray:
        moved = dual + self.shift
        size = np.abs(moved)
        return np.sign(moved) * np.exp(self.log_scale + size) * -np.expm1(-2 * size)

    def curvature(self, dual: np.ndarray) -> np.ndarray:
        size = np.abs(dual + self.shift)
        return np.exp(self.log_scale + size) * (1 + np.exp(-2 * size))

    def conjugate(self, dual: np.ndarray) -> float:
        """2 b (cosh(s + shift) - cosh(shift)) = 4 b sinh(s/2 + shift) sinh(s/2), the second form free of cancellation."""
        first, second = np.abs(dual / 2 + self.shift), np.abs(dual / 2)
        sign = np.sign(dual / 2 + self.shift) * np.sign(dual)
        size = np.exp(self.log_scale + first + second) * np.expm1(-2 * first) * np.expm1(-2 * second)
        return float((sign * size).sum())

    @property
    def _tilt(self) -> np.ndarray:
        return 2 * np.abs(self.shift)

    def scaled(self, log_factor: float) -> "HyperbolicEntropy":
        return HyperbolicEntropy(self.log_scale + 2 * log_factor, self.shift)

    @property
    def levels(self) -> np.ndarray:
        return self.log_scale

    def at_levels(self, levels: np.ndarray) -> "HyperbolicEntropy":
        return HyperbolicEntropy(levels, self.shift)


def q_alpha(alpha: Any, d: Any) -> HyperbolicEntropy:
    """The potential of signed squares from the start w+ = w- = alpha, in d coordinates."""
    if not (isinstance(alpha, Real) and 0 < float(alpha) < np.inf):
        raise ArgumentError("alpha", "q_alpha", "a positive and finite number", repr(alpha))
    if not (isinstance(d, Integral) and int(d) > 0):
        raise ArgumentError("d", "q_alpha", "a positive integer", repr(d))
    return HyperbolicEntropy(np.full(int(d), 2 * np.log(float(alpha))), np.zeros(int(d)))
