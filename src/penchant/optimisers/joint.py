"""Rules for joint training: how far each block moves along its own slope. A zero block takes a zero step."""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..errors import ArgumentError
from ..settings.joint import Block, JointPoint, JointReading
from .memory import HeavyBall
from .step_rules import positive, within


class BlockFactors(eqx.Module):
    """The factors on the slopes of the two blocks, and whether a cap decided one of them."""

    u: Float[Array, ""]
    W: Float[Array, ""]
    capped: Bool[Array, ""]


class JointMove(eqx.Module):
    """One step: the displacement of both blocks with what it adds to scores and logits, and what is remembered."""

    displacement: JointPoint
    memory: JointPoint | None
    capped: Bool[Array, ""]


class AbstractJointRule(eqx.Module):
    """How u and W move at step `count` = 0, 1, ... A rule with memory remembers a displacement."""

    @abstractmethod
    def init(self, still: JointPoint) -> JointPoint | None:
        """What is remembered before the first step; `still` is the displacement that moves nothing."""

    @abstractmethod
    def move(self, reading: JointReading, memory: JointPoint | None, count: Array) -> JointMove: ...

    @property
    def growth_ratio(self) -> Array:
        """What |u|/|W| tends to where the lengths of the rule fix it, and 1 elsewhere: the ratio of the offset program."""
        return jnp.ones(())


class AbstractFactorRule(AbstractJointRule):
    """A rule without memory: one factor on the slope of each block."""

    @abstractmethod
    def factors(self, reading: JointReading, count: Array) -> BlockFactors: ...

    def init(self, still: JointPoint) -> None:
        return None

    def move(self, reading: JointReading, memory: JointPoint | None, count: Array) -> JointMove:
        factors = self.factors(reading, count)
        return JointMove(_along(reading, factors.u, factors.W), None, factors.capped)


def _along(reading: JointReading, u: Array, W: Array) -> JointPoint:
    """The displacement by these factors on the two slopes."""
    return JointPoint(u * reading.u.slope, W * reading.W.slope, u * reading.u.image, W * reading.W.image)


def _scaled(log_multiplier: Array, block: Block) -> Array:
    """The factor on the slope that multiplies the loss gradient by exp(log_multiplier)."""
    silent = jnp.isneginf(block.log_norm)
    return jnp.where(silent, 0.0, jnp.exp(jnp.where(silent, 0.0, log_multiplier + block.log_scale)))


def _capped(wanted: Array, cap: Array, block: Block) -> tuple[Array, Array]:
    """The factor on the slope with the multiplier of the loss gradient at most `cap`, and whether that decided it."""
    limit = _scaled(jnp.log(cap), block)
    return jnp.minimum(wanted, limit), limit < wanted


_NO = jnp.zeros((), bool)


class JointDescent(AbstractFactorRule):
    """Gradient descent on both blocks."""

    step: Float[Array, "*b"]

    def __init__(self, step: object):
        self.step = positive(step, "step", "JointDescent")

    def factors(self, reading, count):
        log_step = jnp.log(self.step)
        return BlockFactors(_scaled(log_step, reading.u), _scaled(log_step, reading.W), _NO)


class BlockNormalised(AbstractFactorRule):
    """Each block normalised by its own gradient norm, with lengths length/(t+1)^decay; multipliers of its gradient at most `cap`.

    `length` is that of both blocks, or of W alone where u has a `length_u` of its own. Both decays are 0 in the experiments of
    the paper; `scheduled_descent` has those of its Eq. (13).
    """

    length: Float[Array, "*b"]
    decay_u: Float[Array, "*b"]
    decay_W: Float[Array, "*b"]
    cap: Float[Array, "*b"]
    length_u: Float[Array, "*b"] | None

    def __init__(
        self,
        length: object,
        decay_u: object = 0.0,
        decay_W: object = 0.0,
        cap: object = jnp.inf,
        length_u: object = None,
    ):
        self.length, self.cap = (positive(v, n, "BlockNormalised") for n, v in {"length": length, "cap": cap}.items())
        self.length_u = None if length_u is None else positive(length_u, "length_u", "BlockNormalised")
        self.decay_u = within(decay_u, "decay_u", "BlockNormalised", jnp.inf)
        self.decay_W = within(decay_W, "decay_W", "BlockNormalised", jnp.inf)

    def factors(self, reading, count):
        def factor(block: Block, first: Array, decay: Array) -> tuple[Array, Array]:
            silent = jnp.isneginf(block.log_norm)
            length = first * (count + 1.0) ** -decay
            wanted = jnp.where(silent, 0.0, length * jnp.exp(-jnp.where(silent, 0.0, block.log_norm)))
            return _capped(wanted, self.cap, block)

        u, u_capped = factor(reading.u, self.length if self.length_u is None else self.length_u, self.decay_u)
        W, W_capped = factor(reading.W, self.length, self.decay_W)
        return BlockFactors(u, W, u_capped | W_capped)

    @property
    def growth_ratio(self) -> Array:
        if self.length_u is None or bool(jnp.any(self.decay_u != self.decay_W)):
            return jnp.ones(())
        return self.length_u / self.length


def scheduled_descent(length: object) -> BlockNormalised:
    """Eq. (13): u moves by length/(t+1)^(2/3) and W by length/(t+1), each along its normalised gradient."""
    return BlockNormalised(length, 2 / 3, 1.0)


class JointNormalised(AbstractFactorRule):
    """Both blocks divided by the norm of the whole gradient; the multiplier is at most `cap`."""

    length: Float[Array, "*b"]
    cap: Float[Array, "*b"]

    def __init__(self, length: object, cap: object = jnp.inf):
        self.length, self.cap = (positive(v, n, "JointNormalised") for n, v in {"length": length, "cap": cap}.items())

    def factors(self, reading, count):
        wanted, limit = jnp.log(self.length) - reading.log_gradient_norm, jnp.log(self.cap)
        multiplier = jnp.minimum(wanted, limit)
        return BlockFactors(_scaled(multiplier, reading.u), _scaled(multiplier, reading.W), limit < wanted)


class JointPolyak(AbstractFactorRule):
    """Polyak's step on both blocks with infimum 0: the multiplier is L / (c |grad L|^2), at most `cap`."""

    c: Float[Array, "*b"]
    cap: Float[Array, "*b"]

    def __init__(self, c: object = 1.0, cap: object = jnp.inf):
        self.c, self.cap = positive(c, "c", "JointPolyak"), positive(cap, "cap", "JointPolyak")

    def factors(self, reading, count):
        wanted = reading.log_loss - jnp.log(self.c) - 2 * reading.log_gradient_norm
        limit = jnp.log(self.cap)
        multiplier = jnp.minimum(wanted, limit)
        return BlockFactors(_scaled(multiplier, reading.u), _scaled(multiplier, reading.W), limit < wanted)


class JointHeavyBall(AbstractJointRule):
    """Heavy ball on the steps of another rule: V = beta V + step, for both blocks."""

    rule: AbstractFactorRule
    ball: HeavyBall

    def __init__(self, rule: object, beta: object = 0.9):
        if not isinstance(rule, AbstractFactorRule):
            raise ArgumentError("rule", "JointHeavyBall", "a joint rule without memory", type(rule).__name__)
        self.rule, self.ball = rule, HeavyBall(within(beta, "beta", "JointHeavyBall", 1.0))

    @property
    def growth_ratio(self) -> Array:
        return self.rule.growth_ratio

    def init(self, still: JointPoint) -> JointPoint:
        return still

    def move(self, reading: JointReading, memory: JointPoint | None, count: Array) -> JointMove:
        step = self.rule.move(reading, None, count)
        displacement, velocity = self.ball.mix(step.displacement, memory)
        return JointMove(displacement, velocity, step.capped)


class JointAccelerated(AbstractJointRule):
    r"""Dual acceleration on both blocks: $v_t = \frac{t}{t+1}(v_{t-1} - \nabla\log L)$, $\theta \leftarrow \theta + s\,(v_t - \nabla\log L)$.

    With the decoder fixed, 1 - corr of W falls like $t^{-4}$. Here |u| grows like $t^2$ but |W| only like $\log t$,
    because the pull on W dies with the attention that is left to move: W aligns as slowly as under joint normalisation.

    **Reference:** Ji, Srebro, Telgarsky, *Fast margin maximization via dual acceleration*, 2021.
    """

    step: Float[Array, "*b"]

    def __init__(self, step: object):
        self.step = positive(step, "step", "JointAccelerated")

    def init(self, still: JointPoint) -> JointPoint:
        return still

    def move(self, reading: JointReading, memory: JointPoint | None, count: Array) -> JointMove:
        slope = _along(reading, *(_scaled(-reading.log_loss, block) for block in (reading.u, reading.W)))
        memory = jax.tree.map(lambda v, g: (v + g) * (count / (count + 1)), memory, slope)
        return JointMove(jax.tree.map(lambda v, g: self.step * (v + g), memory, slope), memory, _NO)
