r"""Rules that move an attention layer: structure-aware descent, which is geometry x step rule x regulariser, and what it is compared with.

A rule has `init(layer) -> memory` and `update(gradient, memory, layer) -> (change, memory)`; the change is added to the layer. A step rule is resolved once per
problem into a number, or into the number $1/(3\|W\|^2 + 2s_1)$ that follows the iterate.
"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ....errors import ArgumentError
from ..setting.geometry import AbstractGeometry, Euclidean, TwoSided, contraction, curvature_range, geometry_of
from ..setting.problem import AbstractBalance, AttentionLayer, AttentionRegression, Balance, ScaleFreeBalance


class AbstractAttentionRule(eqx.Module):
    """A descent rule on the blocks of a layer."""

    @abstractmethod
    def init(self, layer: AttentionLayer) -> Any: ...

    @abstractmethod
    def update(self, gradient: AttentionLayer, memory: Any, layer: AttentionLayer) -> tuple[AttentionLayer, Any]: ...


def positive(value: Any, name: str, owner: str) -> Float[Array, ""]:
    """A step size as an array, so that another one does not compile again."""
    if not 0 < value < jnp.inf:
        raise ArgumentError(name, owner, "positive and finite", value)
    return jnp.asarray(value, float)


class PlainDescent(AbstractAttentionRule):
    """theta - step * gradient: SGD when the gradient is stochastic."""

    step: Float[Array, ""]

    def __init__(self, step: Any):
        self.step = positive(step, "step", "PlainDescent")

    def init(self, layer):
        return ()

    def update(self, gradient, memory, layer):
        return jax.tree.map(lambda leaf: -self.step * leaf, gradient), memory


class LayerAdam(AbstractAttentionRule):
    """Adam. `epsilon` has no default, as in `Adam`: with 0 an entry whose gradient has always been 0 ends the run as not finite."""

    step: Float[Array, ""]
    first: float = eqx.field(static=True)
    second: float = eqx.field(static=True)
    epsilon: float = eqx.field(static=True)

    def __init__(self, step: Any, epsilon: float, first: float = 0.9, second: float = 0.999):
        self.step = positive(step, "step", "LayerAdam")
        if not 0 <= epsilon < jnp.inf:
            raise ArgumentError("epsilon", "LayerAdam", "nonnegative and finite", epsilon)
        for name, value in (("first", first), ("second", second)):
            if not 0 <= value < 1:
                raise ArgumentError(name, "LayerAdam", "in [0, 1)", value)
        self.first, self.second, self.epsilon = first, second, epsilon

    def init(self, layer):
        zero = jax.tree.map(jnp.zeros_like, layer)
        return zero, zero, jnp.zeros(())

    def update(self, gradient, memory, layer):
        mean, square, count = memory
        count = count + 1
        mean = jax.tree.map(lambda old, new: self.first * old + (1 - self.first) * new, mean, gradient)
        square = jax.tree.map(lambda old, new: self.second * old + (1 - self.second) * new**2, square, gradient)
        grown, spread = 1 - self.first**count, 1 - self.second**count
        move = lambda a, b: -self.step * (a / grown) / (jnp.sqrt(b / spread) + self.epsilon)
        return jax.tree.map(move, mean, square), (mean, square, count)


class LayerShampoo(AbstractAttentionRule):
    r"""Shampoo: $L^{-1/4}GR^{-1/4}$ per block with $L = \epsilon I + \sum GG^\top$, $R = \epsilon I + \sum G^\top G$. Its preconditioner is learned from the
    gradients, where the structure-aware one is read off the data. `epsilon` has no default and is not 0: with more outputs than inputs
    the sum of the first gradients has no inverse root."""

    step: Float[Array, ""]
    epsilon: float = eqx.field(static=True)

    def __init__(self, step: Any, epsilon: float):
        self.step = positive(step, "step", "LayerShampoo")
        if not 0 < epsilon < jnp.inf:
            raise ArgumentError("epsilon", "LayerShampoo", "positive and finite", epsilon)
        self.epsilon = epsilon

    def init(self, layer):
        sides = lambda leaf: tuple(self.epsilon * jnp.eye(size, dtype=leaf.dtype) for size in leaf.shape)
        return tuple(sides(leaf) for leaf in jax.tree.leaves(layer))

    def update(self, gradient, memory, layer):
        leaves, structure = jax.tree.flatten(gradient)
        memory = tuple((a + g @ g.T, b + g.T @ g) for g, (a, b) in zip(leaves, memory, strict=True))
        moves = [
            -self.step * _inverse_fourth_root(a) @ g @ _inverse_fourth_root(b)
            for g, (a, b) in zip(leaves, memory, strict=True)
        ]
        return jax.tree.unflatten(structure, moves), memory


def _inverse_fourth_root(matrix: Float[Array, "k k"]) -> Float[Array, "k k"]:
    sizes, basis = jnp.linalg.eigh(matrix)
    return (basis * (sizes**-0.25)[None, :]) @ basis.T


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
    """How long steps are. The problem may be the true one or one with estimated covariance and map."""

    @abstractmethod
    def constant(self, problem: AttentionRegression, geometry: AbstractGeometry) -> float:
        """The step size, for the rules that have one."""

    def resolve(self, problem: AttentionRegression, geometry: AbstractGeometry) -> ResolvedStep:
        stretch = geometry.stretch(problem.spread[-1])
        value = jnp.asarray(self.constant(problem, geometry))
        return ResolvedStep(value, stretch, problem.sizes[0], isinstance(self, AdaptiveStep))


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

    def constant(self, problem, geometry):
        return float(1 / (4 * problem.sizes[0] * geometry.stretch(problem.spread[-1])))


class OptimalStep(AbstractAttentionStep):
    """2/(smallest + largest curvature) at the minimum with the given gauge: the best asymptotic factor of a constant step."""

    rotation: Any = None

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

    def constant(self, problem, geometry):
        return float("nan")


STEPS = {"default": DefaultStep(), "optimal": OptimalStep(), "theory": TheoryStep(), "adaptive": AdaptiveStep()}


def step_of(step: Any) -> AbstractAttentionStep:
    """A step rule from a rule, a name or a number."""
    if isinstance(step, AbstractAttentionStep):
        return step
    if isinstance(step, str):
        if step not in STEPS:
            raise ArgumentError("step", "step_of", f"a number or one of {', '.join(STEPS)}", repr(step))
        return STEPS[step]
    return FixedStep(step)


class PreconditionedDescent(eqx.Module):
    """Structure-aware descent on a layer: theta - step * precondition(gradient of loss + regulariser).

    **Arguments:** `geometry`, "two_sided", "left" or "euclidean"; `step`, a number or one of "default", "optimal", "theory",
    "adaptive"; `balance`, the regulariser (`Balance()`, `ScaleFreeBalance()` or `Unregularised()`); `logit_limit`, the largest
    operator norm of the whitened V: on a sample before the first step, and after each one, scale is moved from V to U until it holds. With a limit the default
    regulariser is the scale-free one, as the other would undo what the limit does. Steps with the scale-free one are those of
    the balanced layer, carried to the scale c of (c U, V/c): the same steps are stable at every c.
    """

    geometry: AbstractGeometry
    step: AbstractAttentionStep
    balance: AbstractBalance
    logit_limit: float | None = None

    def __init__(
        self,
        geometry: str | AbstractGeometry = "two_sided",
        step: object = "default",
        balance: AbstractBalance | None = None,
        logit_limit: float | None = None,
    ):
        if logit_limit is not None and not 0 < logit_limit < jnp.inf:
            raise ArgumentError("logit_limit", "PreconditionedDescent", "positive and finite", logit_limit)
        self.geometry = geometry_of(geometry) if isinstance(geometry, str) else geometry
        own = Balance() if logit_limit is None else ScaleFreeBalance()
        self.step, self.balance = step_of(step), own if balance is None else balance
        self.logit_limit = None if logit_limit is None else float(logit_limit)


def safe_step(problem: AttentionRegression, geometry: AbstractGeometry, whitened: Float[Array, "rows d"]) -> float:
    """1/(3|W|^2 + 2 s_1), divided by the stretch of the geometry: below the inverse curvature of the population at W."""
    return float(AdaptiveStep().resolve(problem, geometry).size(whitened))


def step_warning(problem: AttentionRegression, rule: PreconditionedDescent | AbstractAttentionRule) -> str:
    """Empty, or why a constant step is above the stability limit near the minima; plain descent is Euclidean, other rules have no limit."""
    if isinstance(rule, PlainDescent):
        step, geometry = float(rule.step), Euclidean()
    elif isinstance(rule, PreconditionedDescent):
        step, geometry = rule.step.constant(problem, rule.geometry), rule.geometry
    else:
        return ""
    limit = float(1 / (2 * problem.sizes[0] * geometry.stretch(problem.spread[-1])))
    if not step > limit:  # also for adaptive steps, which are not a number
        return ""
    every = "" if isinstance(geometry, TwoSided) else " of every gauge (near some, longer steps are stable)"
    return f"the step {step:.3g} is above the stability limit {limit:.3g} near the minima{every}"
