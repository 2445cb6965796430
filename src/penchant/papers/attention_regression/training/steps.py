r"""How long steps are: a number, one from the sizes of the problem, or $1/(3\|W\|^2 + 2s_1)$, which follows the iterate.

Steps from the sizes bound the curvature of the population. A sample curves more: heavy tails, few rows, inputs off centre. So on samples the steps that the
library chooses itself are halved until the objective of the source falls as its slope promises.
"""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ....errors import ArgumentError
from ..setting.geometry import AbstractGeometry, contraction, curvature_range
from ..setting.problem import AttentionRegression

_CONSTANTS: dict[str, Callable[[AttentionRegression, AbstractGeometry], float]] = {
    "default": lambda problem, geometry: float(1 / (4 * problem.sizes[0] * geometry.stretch(problem.spread[-1]))),
    "optimal": lambda problem, geometry: 2 / sum(curvature_range(problem, geometry)),
    "theory": lambda problem, geometry: contraction(problem, geometry).step,
    "adaptive": lambda problem, geometry: float("nan"),
}
_TRIED = {"default": ("all",), "adaptive": ("all", "batch")}


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


class AttentionStep(eqx.Module):
    """How long steps are: a number or a name. The problem may be the true one or one with estimated covariance and map.

    "default" is 1/(4 s_1), divided by what the geometry can stretch: half the population's stability limit near the minima. "optimal" is
    2/(smallest + largest curvature) at the minimum of the gauge identity, the best asymptotic factor of a constant step; "theory" alpha/beta^2 at
    radius r_0, for which one-point convexity guarantees most. "adaptive" is 1/(3|W|^2 + 2 s_1) at every iterate, an upper bound of the population's
    curvature there: safe from any start.
    """

    rule: str | float = eqx.field(static=True)

    def __check_init__(self):
        if isinstance(self.rule, str):
            if self.rule not in _CONSTANTS:
                raise ArgumentError("step", "step_of", f"a number or one of {', '.join(_CONSTANTS)}", repr(self.rule))
        elif not 0 < self.rule < np.inf:
            raise ArgumentError("step", "AttentionStep", "positive and finite", self.rule)

    @property
    def adaptive(self) -> bool:
        return self.rule == "adaptive"

    def tried_on(self, rows: str) -> bool:
        """Whether steps are tried before they are kept. A constant one on minibatches is not, as one bad batch would shorten all later steps."""
        return rows in _TRIED.get(str(self.rule), ())

    def constant(self, problem: AttentionRegression, geometry: AbstractGeometry) -> float:
        """The step size, not a number where it is adaptive."""
        chosen = _CONSTANTS.get(str(self.rule))
        return float(self.rule) if chosen is None else chosen(problem, geometry)

    def resolve(self, problem: AttentionRegression, geometry: AbstractGeometry) -> ResolvedStep:
        stretch = geometry.stretch(problem.spread[-1])
        return ResolvedStep(jnp.asarray(self.constant(problem, geometry)), stretch, problem.sizes[0], self.adaptive)

    def words(self, size: float, factor: float) -> str:
        """Where a step of this size came from, and what the safeguard made of it."""
        if self.adaptive:
            why = f" times {factor:.3g} at the end, as the objective of the sample rose with longer ones" * (factor < 1)
            return f"adaptive, 1/(3|W|^2 + 2 s_1){why}"
        if self.rule != "default":
            return f"{size:.4g}, as given"
        halvings = int(np.rint(-np.log2(factor)))
        why = f", halved {halvings} times until the objective of the sample fell" * (halvings > 0)
        return f"{size:.4g}: that of the population, 1/(4 s_1) over the geometry's stretch{why}"


def step_of(step: AttentionStep | str | float | int) -> AttentionStep:
    """A step rule from a rule, a name or a number."""
    return step if isinstance(step, AttentionStep) else AttentionStep(step)


def safe_step(problem: AttentionRegression, geometry: AbstractGeometry, whitened: Float[Array, "rows d"]) -> float:
    """1/(3|W|^2 + 2 s_1), divided by the stretch of the geometry: below the inverse curvature of the population at W."""
    return float(AttentionStep("adaptive").resolve(problem, geometry).size(whitened))
