r"""How long steps are: a number, one from the sizes of the problem, or $1/(3\|W\|^2 + 2s_1)$, which follows the iterate.

Steps from the sizes bound the curvature of the population. A sample curves more: heavy tails, few rows, inputs off centre. So on samples the steps that the
library chooses itself are halved until the objective of the source falls as its slope promises.
"""

from abc import abstractmethod
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ....errors import ArgumentError
from ..setting.geometry import AbstractGeometry, contraction, curvature_range
from ..setting.problem import AttentionRegression


class ResolvedStep(eqx.Module):
    """A step size: `constant`, or where `adaptive` the inverse of a bound on the curvature at W."""

    constant: Float[Array, ""]
    stretch: Float[Array, ""]
    largest: Float[Array, ""]
    adaptive: bool = eqx.field(static=True)

    def size(self, whitened: Float[Array, "rows d"]) -> Float[Array, ""]:
        if not self.adaptive:
            return self.constant
        square = jnp.linalg.eigvalsh(whitened.T @ whitened)[-1]  # |W|^2, cheaper than singular values
        return 1 / (self.stretch * (3 * square + 2 * self.largest))


class AbstractAttentionStep(eqx.Module):
    """How long steps are. The problem may be the true one or one with estimated covariance and map.

    `tried_on`: where steps are tried before they are kept. A constant one on minibatches is not, as one bad batch would shorten all later steps.
    """

    adaptive: ClassVar[bool] = False
    tried_on: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def constant(self, problem: AttentionRegression, geometry: AbstractGeometry) -> float:
        """The step size, for the rules that have one."""

    def resolve(self, problem: AttentionRegression, geometry: AbstractGeometry) -> ResolvedStep:
        stretch = geometry.stretch(problem.spread[-1])
        value = jnp.asarray(self.constant(problem, geometry))
        return ResolvedStep(value, stretch, problem.sizes[0], self.adaptive)

    def words(self, size: float, factor: float) -> str:
        """Where a step of this size came from, and what the safeguard made of it."""
        return f"{size:.4g}, as given"


class FixedStep(AbstractAttentionStep):
    """A number."""

    step: float

    def __init__(self, step: float | int):
        if not 0 < step < jnp.inf:
            raise ArgumentError("step", "FixedStep", "positive and finite", step)
        self.step = float(step)

    def constant(self, problem, geometry):
        return self.step


class DefaultStep(AbstractAttentionStep):
    """1/(4 s_1), divided by what the geometry can stretch: half the population's stability limit near the minima.

    Training on all samples halves it where their objective does not fall.
    """

    tried_on = ("all",)

    def constant(self, problem, geometry):
        return float(1 / (4 * problem.sizes[0] * geometry.stretch(problem.spread[-1])))

    def words(self, size, factor):
        halvings = int(np.rint(-np.log2(factor)))
        why = f", halved {halvings} times until the objective of the sample fell" * (halvings > 0)
        return f"{size:.4g}: that of the population, 1/(4 s_1) over the geometry's stretch{why}"


class OptimalStep(AbstractAttentionStep):
    """2/(smallest + largest curvature) at the minimum with the given gauge: the best asymptotic factor of a constant step."""

    rotation: np.ndarray | None = None

    def constant(self, problem, geometry):
        low, high = curvature_range(problem, geometry, self.rotation)
        return 2 / (low + high)


class TheoryStep(AbstractAttentionStep):
    """alpha/beta^2 at radius r_0: the step for which one-point convexity guarantees most."""

    def constant(self, problem, geometry):
        return contraction(problem, geometry).step


class AdaptiveStep(AbstractAttentionStep):
    """1/(3|W|^2 + 2 s_1) at every iterate, an upper bound of the population's curvature there: safe from any start.

    Samples may curve more; training on one shortens the step where its objective does not fall.
    """

    adaptive = True
    tried_on = ("all", "batch")

    def constant(self, problem, geometry):
        return float("nan")

    def words(self, size, factor):
        why = f" times {factor:.3g} at the end, as the objective of the sample rose with longer ones" * (factor < 1)
        return f"adaptive, 1/(3|W|^2 + 2 s_1){why}"


STEPS = {"default": DefaultStep(), "optimal": OptimalStep(), "theory": TheoryStep(), "adaptive": AdaptiveStep()}


def step_of(step: AbstractAttentionStep | str | float | int) -> AbstractAttentionStep:
    """A step rule from a rule, a name or a number."""
    if isinstance(step, AbstractAttentionStep):
        return step
    if isinstance(step, str):
        if step not in STEPS:
            raise ArgumentError("step", "step_of", f"a number or one of {', '.join(STEPS)}", repr(step))
        return STEPS[step]
    return FixedStep(step)


def safe_step(problem: AttentionRegression, geometry: AbstractGeometry, whitened: Float[Array, "rows d"]) -> float:
    """1/(3|W|^2 + 2 s_1), divided by the stretch of the geometry: below the inverse curvature of the population at W."""
    return float(AdaptiveStep().resolve(problem, geometry).size(whitened))
