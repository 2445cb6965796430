"""Optimisers: geometry (which direction) x step rule (how far) + optional memory."""

from dataclasses import replace
from typing import Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from ..errors import ArgumentError
from ..norms import L2, Geometry, Linf, Spectral
from ..problem import Reading
from ..settings.base import Setting
from .memory import Average, GradientAverage, HeavyBall
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
    def move(self, reading: Reading, memory: PyTree, count: Array) -> Move: ...


class Descent(eqx.Module):
    """Steepest descent in a geometry, with a step rule and optional memories: of gradients `before` the geometry, of steps `after` it.

    The multipliers accumulated on the margins take exactly the steps the parameters take, so that for margins linear in
    the parameters they remain a dual point of the run: the run carries its own certificate.
    """

    rule: AbstractStepRule
    geometry: Geometry = L2()
    after: HeavyBall | None = None
    before: GradientAverage | None = None

    def __check_init__(self):
        if self.before is not None and self.geometry.combines:
            fix = "in the l2 geometry give the memory as `after`"
            raise ArgumentError("before", "Descent", "with a geometry such as Linf() or Spectral()", "L2", fix)

    @property
    def coordinatewise(self) -> bool:
        return self.geometry.coordinatewise

    @property
    def combines(self) -> bool:
        """Whether every step is a combination of gradients, as the Gram form needs."""
        return self.geometry.combines

    @property
    def memoryless(self) -> bool:
        return self.after is None and self.before is None

    def remembering(self, ball: HeavyBall) -> "Descent":
        return replace(self, after=ball)

    def init(self, tangent: PyTree) -> PyTree:
        return tuple(None if part is None else part.init(tangent) for part in (self.before, self.after))

    def move(self, reading: Reading, memory: PyTree, count: Array) -> Move:
        (gradients, steps), slope, pull = memory, reading.slope, -reading.weights
        if self.before is not None:
            gradients = self.before.mix((slope, pull), gradients, reading.log_scale)
            slope, pull = gradients.value
        size = self.geometry.dual_norm(slope, reading.log_slope_norm)
        factor = self.rule.factor(reading, size, count)
        step, dual = reading.scaled(self.geometry.direction(slope, size), factor.value), factor.value * pull
        if self.after is not None:
            step, dual = steps = self.after.mix((step, dual), steps)
        return Move(step, dual, (gradients, steps), factor.value, factor.capped, factor.diverging)


class Blockwise(eqx.Module):
    """Every block of the parameters by a descent of its own: normalised, for example, by the norm of its own gradient."""

    descents: tuple[Descent, ...]
    coordinatewise = False

    @property
    def combines(self) -> bool:
        return all(one.combines for one in self.descents)

    @property
    def growth_ratio(self) -> Array:
        """What the ratio of the norms of the first two blocks tends to where the lengths of the rules fix it, and 1 elsewhere."""
        rules = [one.rule for one in self.descents[:2] if isinstance(one.rule, Normalised)]
        decays = [0.0 if rule.decay is None else rule.decay for rule in rules]
        known = len(rules) == 2 and np.array_equal(decays[0], decays[1])
        return rules[0].length / rules[1].length if known else jnp.ones(())

    @property
    def memoryless(self) -> bool:
        return all(one.memoryless for one in self.descents)

    def remembering(self, ball: HeavyBall) -> "Blockwise":
        return Blockwise(tuple(one.remembering(ball) for one in self.descents))

    def init(self, tangent: PyTree) -> PyTree:
        slopes, weights = tangent
        return tuple(one.init((slope, weights)) for one, slope in zip(self.descents, slopes, strict=True))

    def move(self, reading: Reading, memory: PyTree, count: Array) -> Move:
        parts = zip(self.descents, reading.blocks(), memory, strict=True)
        moves = [one.move(block, kept, count) for one, block, kept in parts]
        heard = jnp.array([~jnp.isneginf(norm) for norm in reading.log_norms])
        capped = jnp.any(heard & jnp.array([move.capped for move in moves]))
        diverging = jnp.any(heard & jnp.array([move.diverging for move in moves]))
        displacement = type(reading.slope)(*(move.displacement for move in moves))
        factor = moves[0].factor * jnp.exp(-reading.relative[0])  # of the first block, in units of the whole reading
        return Move(displacement, moves[0].dual, tuple(move.memory for move in moves), factor, capped, diverging)


class Accelerated(eqx.Module):
    r"""Dual acceleration: $v_t = \frac{t}{t+1}(v_{t-1} + \nabla\varphi)$, $\theta \leftarrow \theta - s\,(v_t + \nabla\varphi)$, $\varphi = \log(L - L^\star)$.

    The squared distance of the direction then falls like $t^{-4}$ on linear data, where normalised descent has $t^{-2}$.
    `step` is about half the inverse of the largest squared feature length.

    **Reference:** Ji, Srebro, Telgarsky, *Fast margin maximization via dual acceleration*, 2021.
    """

    step: Float[Array, "*b"]
    coordinatewise = False
    combines = True

    def __init__(self, step: object):
        self.step = positive(step, "step", "Accelerated")

    def init(self, tangent: PyTree) -> PyTree:
        return jax.tree.map(jnp.zeros_like, tangent)

    def move(self, reading: Reading, memory: PyTree, count: Array) -> Move:
        relative = jnp.exp(reading.log_scale - reading.log_excess)
        tangent = reading.scaled(reading.slope, relative), relative * -reading.weights
        memory = jax.tree.map(lambda v, g: (v + g) * (count / (count + 1)), memory, tangent)
        displacement, dual = jax.tree.map(lambda v, g: self.step * (v + g), memory, tangent)
        no = jnp.zeros((), bool)
        return Move(displacement, dual, memory, self.step * relative, no, no)


class Adam(eqx.Module):
    """Adam, exact after the gradient has underflowed.

    The accumulators live in today's units: they are multiplied by exp(old scale - new scale) before each update, and
    epsilon is divided by the scale. `eps` has no default: with eps > 0 Adam turns into gradient descent with momentum
    once the gradient is smaller than eps, with eps = 0 it never does.

    **Reference:** Kingma and Ba, *Adam: a method for stochastic optimization*, 2015.
    """

    step: Float[Array, "*b"]
    eps: Float[Array, "*b"]
    b1: float = eqx.field(static=True)
    b2: float = eqx.field(static=True)
    coordinatewise = True
    combines = False

    def __init__(self, step: object, eps: object, b1: float = 0.9, b2: float = 0.999):
        self.step, self.eps = positive(step, "step", "Adam"), within(eps, "eps", "Adam", jnp.inf)
        self.b1, self.b2 = (float(within(value, name, "Adam", 1.0)) for name, value in (("b1", b1), ("b2", b2)))

    def init(self, tangent: PyTree) -> tuple[Average, Average]:
        return GradientAverage(self.b1).init(tangent[0]), GradientAverage(self.b2).init(tangent[0])

    def move(self, reading: Reading, memory: tuple[Average, Average], count: Array) -> Move:
        mean = GradientAverage(self.b1).mix(reading.slope, memory[0], reading.log_scale)
        squares = jax.tree.map(lambda g: g * g, reading.slope)
        square = GradientAverage(self.b2).mix(squares, memory[1], reading.log_scale, 2)
        tilt, spread = 1 - self.b1 ** (count + 1.0), 1 - self.b2 ** (count + 1.0)
        eps = jnp.where(self.eps > 0, self.eps * jnp.exp(-reading.log_scale), 0.0)

        def displace(m: Array, v: Array) -> Array:
            """A coordinate whose gradient has always been 0 does not move, for eps = 0 as for every eps > 0."""
            return jnp.where(v == 0, 0.0, self.step * (m / tilt) / (jnp.sqrt(jnp.where(v == 0, 1.0, v) / spread) + eps))

        displacement = jax.tree.map(displace, mean.value, square.value)
        no = jnp.zeros((), bool)
        return Move(displacement, -self.step * reading.weights, (mean, square), self.step, no, no)


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
    return Descent(rule, after=HeavyBall(within(beta, "beta", "momentum", 1.0)))


D = TypeVar("D", Descent, Blockwise)


def heavy_ball(optimiser: D, beta: object = 0.9) -> D:
    """Heavy ball on the steps of another optimiser that has no memory: V = beta V + step."""
    ball = HeavyBall(within(beta, "beta", "heavy_ball", 1.0))
    if not getattr(optimiser, "memoryless", False):
        raise ArgumentError("optimiser", "heavy_ball", "a descent without memory", type(optimiser).__name__)
    return optimiser.remembering(ball)


def block_normalised(
    length: object, decay_u: object = None, decay_W: object = None, cap: object = jnp.inf, length_u: object = None
) -> Blockwise:
    """Decoder and attention each normalised by its own gradient norm, with lengths length/(t+1)^decay; multipliers of its gradient at most `cap`.

    `length` is that of both blocks, or of W alone where u has a `length_u` of its own; without decays it stays the same.
    """
    each, most = _positive("block_normalised", length=length, cap=cap)
    first = each if length_u is None else positive(length_u, "length_u", "block_normalised")
    decays = {"decay_u": decay_u, "decay_W": decay_W}
    u, W = (p if p is None else within(p, name, "block_normalised", jnp.inf) for name, p in decays.items())
    return Blockwise((Descent(Normalised(first, most, u)), Descent(Normalised(each, most, W))))


def block_momentum(
    length: object, beta: object = 0.9, cap: object = jnp.inf, decay_u: object = None, decay_W: object = None
) -> Blockwise:
    """Heavy ball on the steps of `block_normalised`."""
    return heavy_ball(block_normalised(length, decay_u, decay_W, cap), beta)


def scheduled_descent(length: object) -> Blockwise:
    """Eq. (13) of Vasudeva et al.: u moves by length/(t+1)^(2/3) and W by length/(t+1), each along its normalised gradient."""
    return block_normalised(length, 2 / 3, 1.0)


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


def signum(length: object, beta: object = 0.9) -> Descent:
    """theta - length * sign(M), with M a moving average of the gradients: sign descent with momentum.

    **Reference:** Bernstein et al., *signSGD: compressed optimisation for non-convex problems*, 2018.
    """
    rule, average = positive(length, "length", "signum"), GradientAverage(within(beta, "beta", "signum", 1.0))
    return Descent(Normalised(rule), Linf(), before=average)


def muon(length: object, beta: object = 0.95) -> Descent:
    """theta - length * U V', with M = U S V' a moving average of the gradients: the same step in every singular direction.

    **Reference:** Jordan et al., *Muon: an optimizer for hidden layers in neural networks*, 2024.
    """
    rule, average = positive(length, "length", "muon"), GradientAverage(within(beta, "beta", "muon", 1.0))
    return Descent(Normalised(rule), Spectral(), before=average)


def exact_adam(step: object) -> Adam:
    """Adam with eps = 0, which never turns into gradient descent."""
    return Adam(step, 0.0)
