r"""Attention regression with covariates that are not normal: $x = \Sigma^{1/2}z$ with independent, symmetric coordinates of variance 1.

Under weights $\propto e^{x'^\top Vx}$ the mean of $x'$ is the gradient of the log moment generating function at $Vx$. In whitened coordinates that is $k'(\tilde Vz)$, entry by entry,
with $k$ that of one coordinate; $k'(t) = t + \kappa t^3/6 + \dots$, $\kappa$ the excess kurtosis, so only $\kappa = 0$ is a matrix factorisation. Finite sums over `nodes`
stand for expectations: exact for laws of finitely many values, quadrature otherwise.

Laws with exponential tails (Laplace) have no population loss: $k$ ends where queries still go, and $k'^2$ is not integrable up to there.
"""

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ....errors import ArgumentError
from .problem import AttentionLayer, AttentionRegression

_QUADRATURE = 12  # nodes of a smooth law per dimension


class AbstractCoordinate(eqx.Module):
    """The law of one coordinate: mean 0, variance 1, symmetric."""

    @property
    @abstractmethod
    def kurtosis(self) -> float:
        """Excess kurtosis, 0 for the normal law."""

    @abstractmethod
    def slope(self, t: Array) -> Array:
        """k'(t), the mean under weights exp(t z)."""

    @abstractmethod
    def rule(self) -> tuple[np.ndarray, np.ndarray]:
        """Nodes and masses."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Independent coordinates."""


class ThreePoint(AbstractCoordinate):
    """0, or one of two opposite values with probability 1/(kurtosis + 3) together: any excess kurtosis from -2 on, and every sum is exact."""

    excess: Float[Array, ""]  # an array: another kurtosis does not compile again

    def __init__(self, kurtosis: float):
        if not -2 <= kurtosis < np.inf:
            raise ArgumentError("kurtosis", "ThreePoint", "at least -2, as of any law, and finite", kurtosis)
        self.excess = jnp.asarray(kurtosis, float)

    @property
    def kurtosis(self):
        return float(self.excess)

    @property
    def share(self) -> Float[Array, ""]:
        return 1 / (self.excess + 3)

    def slope(self, t):
        size = self.share**-0.5
        away = jnp.exp(-size * jnp.abs(t))  # hyperbolic functions over exp(size |t|): nothing overflows
        total = (1 - self.share) * away + self.share * (1 + away**2) / 2
        return jnp.sign(t) * self.share * size * (1 - away**2) / 2 / total

    def rule(self):
        share = float(self.share)
        return share**-0.5 * np.array([-1.0, 0.0, 1.0]), np.array([share / 2, 1 - share, share / 2])

    def draw(self, rng, shape):
        values, masses = self.rule()
        return rng.choice(values, shape, p=masses)


class Uniform(AbstractCoordinate):
    """Uniform on an interval: excess kurtosis -1.2."""

    @property
    def kurtosis(self):
        return -1.2

    def slope(self, t):
        scaled = jnp.sqrt(3.0) * t
        small = jnp.abs(scaled) < 1e-2
        safe = jnp.where(small, 1.0, scaled)
        series = scaled / 3 - scaled**3 / 45 + 2 * scaled**5 / 945  # the next term is below rounding
        return jnp.sqrt(3.0) * jnp.where(small, series, 1 / jnp.tanh(safe) - 1 / safe)

    def rule(self):
        points, weights = np.polynomial.legendre.leggauss(_QUADRATURE)
        return np.sqrt(3.0) * points, weights / 2

    def draw(self, rng, shape):
        return rng.uniform(-np.sqrt(3.0), np.sqrt(3.0), shape)


class NormalMixture(AbstractCoordinate):
    """Half N(0, 1 + w), half N(0, 1 - w): excess kurtosis 3 w^2, below 3; 0 is the normal law."""

    excess: Float[Array, ""]  # an array: another kurtosis does not compile again

    def __init__(self, kurtosis: float):
        if not 0 <= kurtosis < 3:
            raise ArgumentError("kurtosis", "NormalMixture", "in [0, 3)", kurtosis, "ThreePoint takes any from -2 on")
        self.excess = jnp.asarray(kurtosis, float)

    @property
    def kurtosis(self):
        return float(self.excess)

    @property
    def width(self) -> Float[Array, ""]:
        return jnp.sqrt(self.excess / 3)

    def slope(self, t):
        return t * (1 + self.width * jnp.tanh(self.width * t**2 / 2))

    def rule(self):
        points, weights = np.polynomial.hermite_e.hermegauss(_QUADRATURE)
        both = [np.sqrt(1 + sign * float(self.width)) * points for sign in (1, -1)]
        return np.concatenate(both), np.tile(weights / weights.sum() / 2, 2)

    def draw(self, rng, shape):
        return rng.standard_normal(shape) * np.sqrt(1 + float(self.width) * rng.choice([-1.0, 1.0], shape))


class Covariates(eqx.Module):
    """Vectors of d independent coordinates of one law, as nodes with masses: what expectations over z are sums over.

    >>> Covariates(ThreePoint(1.0), 2).nodes.shape, Covariates(Uniform(), 2).nodes.shape
    ((9, 2), (144, 2))
    """

    law: AbstractCoordinate
    nodes: Float[Array, "k d"]
    masses: Float[Array, "k"]

    def __init__(self, law: AbstractCoordinate, inputs: int):
        points, weights = law.rule()
        product = lambda one: np.stack(np.meshgrid(*[one] * inputs, indexing="ij"), -1).reshape(-1, inputs)
        self.law, self.nodes, self.masses = (
            law,
            jnp.asarray(product(points)),
            jnp.asarray(product(weights).prod(axis=1)),
        )

    def whitened_excess(self, whitened: Float[Array, "rows d"], target: Float[Array, "m d"]) -> Float[Array, ""]:
        """Population loss minus m sigma^2 at W: the infimum itself is out of reach unless the law is normal."""
        upper, below = whitened[: target.shape[0]], whitened[target.shape[0] :].T
        residual = self.law.slope(self.nodes @ below.T) @ upper.T - self.nodes @ target.T
        return self.masses @ jnp.sum(residual**2, axis=1)

    def excess(self, problem: AttentionRegression, layer: AttentionLayer) -> Float[Array, ""]:
        """The same for a layer."""
        return self.whitened_excess(problem.whiten(layer), problem.target)


def kurtosis_constants(whitened: Float[Array, "rows d"], outputs: int) -> tuple[float, float]:
    r"""The excess at W, where $\tilde U\tilde V = M$, is about $\kappa^2$ times the first number, and after the best linear correction $\kappa^2$ times the second.

    With $G = \tilde V\tilde V^\top$: $\sum_{ab}(\tilde U^\top\tilde U)_{ab}(6G_{ab}^3 + 9G_{aa}G_{bb}G_{ab})/36$, whose second part is linear in z and can be fitted.
    """
    upper, below = np.asarray(whitened[:outputs]), np.asarray(whitened[outputs:]).T
    values, gram = upper.T @ upper, below @ below.T
    strength = np.diag(gram)
    cubic, linear = np.sum(values * gram**3) / 6, np.sum(values * np.outer(strength, strength) * gram) / 4
    return float(cubic + linear), float(cubic)
