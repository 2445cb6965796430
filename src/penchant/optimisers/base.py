"""Optimisers: geometry (which direction) x step rule (how far) + optional memory."""

from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ..errors import ArgumentError
from ..norms import L2, Geometry, Linf
from ..problem import Reading
from ..settings.base import Setting
from .memory import HeavyBall, NoMemory
from .step_rules import AbstractStepRule, Constant, Normalised, Polyak, positive, within


class Move(eqx.Module):
    """One step: what is subtracted from the parameters and from the accumulated multipliers, and what is remembered."""

    displacement: PyTree
    dual: Float[Array, "N"]
    memory: PyTree
    factor: Float[Array, ""]
    capped: Bool[Array, ""]
    diverging: Bool[Array, ""]


@runtime_checkable
class Optimiser(Protocol):
    """What training asks of an optimiser. `coordinatewise` ones depend on each coordinate of the slope by itself."""

    @property
    def coordinatewise(self) -> bool: ...
    def init(self, tangent: PyTree) -> PyTree: ...
    def move(self, reading: Reading, memory: PyTree, count: Any) -> Move: ...


class Descent(eqx.Module):
    """Steepest descent in a geometry, with a step rule and an optional memory of past steps.

    The multipliers accumulated on the margins take exactly the steps the parameters take, so that for margins linear in
    the parameters they remain a dual point of the run: the run carries its own certificate.
    """

    rule: AbstractStepRule
    geometry: Geometry = L2()
    memory: Any = NoMemory()

    @property
    def coordinatewise(self) -> bool:
        return self.geometry.coordinatewise

    @property
    def combines(self) -> bool:
        """Whether every step is a combination of gradients, as the Gram form needs."""
        return self.geometry.combines

    def init(self, tangent: PyTree) -> PyTree:
        return self.memory.init(tangent)

    def move(self, reading: Reading, memory: PyTree, count: Any) -> Move:
        size = self.geometry.dual_norm(reading.slope, reading.log_slope_norm)
        factor = self.rule.factor(reading, size)
        tangent = (self.geometry.direction(reading.slope, size), -reading.weights)
        step = jax.tree.map(lambda leaf: factor.value * leaf, tangent)
        (displacement, dual), memory = self.memory.mix(step, memory)
        return Move(displacement, dual, memory, factor.value, factor.capped, factor.diverging)


class Accelerated(eqx.Module):
    r"""Dual acceleration: $v_t = \frac{t}{t+1}(v_{t-1} + \nabla\varphi)$, $\theta \leftarrow \theta - s\,(v_t + \nabla\varphi)$, $\varphi = \log(L - L^\star)$.

    The squared distance of the direction then falls like $t^{-4}$ on linear data, where normalised descent has $t^{-2}$.
    `step` is about half the inverse of the largest squared feature length.

    **Reference:** Ji, Srebro, Telgarsky, *Fast margin maximization via dual acceleration*, 2021.
    """

    step: Float[Array, "*b"]

    def __init__(self, step: object):
        self.step = positive(step, "step", "Accelerated")

    @property
    def coordinatewise(self) -> bool:
        return False

    def init(self, tangent: PyTree) -> PyTree:
        return jax.tree.map(jnp.zeros_like, tangent)

    def move(self, reading: Reading, memory: PyTree, count: Any) -> Move:
        relative = jnp.exp(reading.log_scale - reading.log_excess)
        tangent = jax.tree.map(lambda leaf: relative * leaf, (reading.slope, -reading.weights))
        memory = jax.tree.map(lambda v, g: (v + g) * (count / (count + 1)), memory, tangent)
        displacement, dual = jax.tree.map(lambda v, g: self.step * (v + g), memory, tangent)
        no = jnp.zeros((), bool)
        return Move(displacement, dual, memory, self.step * relative, no, no)


def _positive(owner: str, **values: object) -> list[Array]:
    """Arguments that must be positive, checked under the name of the function that the user has called."""
    return [positive(value, name, owner) for name, value in values.items()]


def gradient_descent(step: object) -> Descent:
    """theta - step * grad L."""
    return Descent(Constant(positive(step, "step", "gradient_descent")))


def normalised_descent(length: object, cap: object = jnp.inf) -> Descent:
    """theta - length * grad L / |grad L|."""
    return Descent(Normalised(*_positive("normalised_descent", length=length, cap=cap)))


def momentum(length: object, beta: object = 0.9, cap: object = jnp.inf) -> Descent:
    """Heavy ball on normalised gradients: V = beta V + length * grad L / |grad L|, theta - V."""
    rule = Normalised(*_positive("momentum", length=length, cap=cap))
    return Descent(rule, L2(), HeavyBall(within(beta, "beta", "momentum", 1.0)))


def polyak(c: object = 1.0, cap: object = jnp.inf, gap: object = 0.0) -> Descent:
    """theta - (L - L*) / (c |grad L|^2) * grad L, with an L* that is too low by `gap`."""
    divisor, largest = _positive("polyak", c=c, cap=cap)
    return Descent(Polyak(divisor, largest, gap))


def polyak_towards(setting: Setting, target: float, c: object = 1.0, cap: object = jnp.inf) -> Descent:
    """Polyak's step with your own estimate `target` of the infimum, which must not lie above it.

    >>> import penchant as pt
    >>> setting = pt.Setting(pt.settings.local_pair(), pt.Direct(), pt.Exponential())
    >>> print(f"{setting.infimum().value:.4f} {float(polyak_towards(setting, 0.6).rule.gap):.4f}")
    0.6364 0.0364
    """
    infimum = setting.infimum().value
    if not target <= infimum:
        fix = "lower it: a step towards an unreachable value overshoots"
        raise ArgumentError("target", "polyak_towards", f"at most the infimum {infimum:.8g}", target, fix)
    return polyak(c, cap, infimum - target)


def sign_descent(length: object) -> Descent:
    """theta - length * sign(grad L)."""
    return Descent(Normalised(positive(length, "length", "sign_descent")), Linf())
