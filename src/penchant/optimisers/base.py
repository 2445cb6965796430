"""Optimisers: geometry (which direction) x step rule (how far) + optional memory."""

from dataclasses import replace
from typing import Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from ..errors import ArgumentError
from ..logspace import Signed, is_signed, to_floats, to_signed
from ..norms import L2, Entrywise, Geometry, Linf, Spectral
from ..problem import Reading, read
from ..settings.base import Setting
from .newton_schulz import ROUNDS, SHIPPED, NewtonSchulz
from .step_rules import (
    AbstractStepRule,
    Average,
    Constant,
    GradientAverage,
    HeavyBall,
    Normalised,
    Polyak,
    exponent,
    log_epsilon,
    positive,
    within,
)


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
        slope, weights = tangent
        seen = (to_signed(slope), weights) if self.geometry.coordinatewise else tangent
        return self.before and self.before.init(seen), self.after and self.after.init(tangent)

    def pace(self, count: Array) -> Array:
        return self.rule.pace(count)

    def move(self, reading: Reading, memory: PyTree, count: Array) -> Move:
        (gradients, steps), pull, unit = memory, -reading.weights, reading.log_scale
        slope = reading.coordinates if self.geometry.coordinatewise else reading.slope
        if self.before is not None:
            gradients, seen = self.before.look((slope, pull), gradients, unit)
            (slope, pull), unit = seen.value, seen.log_unit
        slope, geometry = to_floats(slope), self.geometry
        geometry = geometry.at(unit) if isinstance(geometry, NewtonSchulz) else geometry
        size = geometry.dual_norm(slope, reading.log_slope_norm)
        factor = self.rule.factor(reading, size, count)
        step, dual = reading.scaled(geometry.direction(slope, size), factor.value), factor.value * pull
        if self.after is not None:
            step, dual = steps = self.after.mix((step, dual), steps)
        multiplier = factor.value * jnp.exp(reading.log_scale - unit)  # of the gradient, in units of the reading
        return Move(step, dual, (gradients, steps), multiplier, factor.capped, factor.diverging)


class Blockwise(eqx.Module):
    """Every block of the parameters by a descent of its own: normalised, for example, by the norm of its own gradient."""

    descents: tuple[Descent, ...]
    coordinatewise = False

    @property
    def combines(self) -> bool:
        return all(one.combines for one in self.descents)

    @property
    def normalised(self) -> list[Normalised]:
        """The rules of the blocks whose steps have a length of their own."""
        return [one.rule for one in self.descents if isinstance(one.rule, Normalised)]

    @property
    def growth_ratio(self) -> Array:
        """What the ratio of the norms of the first two blocks tends to where the lengths of the rules fix it, and 1 elsewhere."""
        rules = self.normalised
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
    r"""Adam, exact after the gradient has underflowed: every coordinate of both averages is a logarithm.

    `eps` has no default: with eps > 0 Adam turns into gradient descent with momentum once the gradient is smaller than eps, with
    eps = 0 it never does. `log_eps` in its place may be any number: $\epsilon = e^{-900}$ is a legal experiment. Steps are step/(t+1)^decay.

    **Reference:** Kingma and Ba, *Adam: a method for stochastic optimization*, 2015.
    """

    step: Float[Array, "*b"]
    eps: Float[Array, "*b"]
    b1: float = eqx.field(static=True)
    b2: float = eqx.field(static=True)
    log_eps: Float[Array, "*b"]
    decay: Float[Array, "*b"] | None
    coordinatewise = True
    combines = False

    def __init__(
        self,
        step: object,
        eps: object = None,
        b1: float = 0.9,
        b2: float = 0.999,
        *,
        log_eps: object = None,
        decay: object = None,
    ):
        self.step, self.log_eps = positive(step, "step", "Adam"), log_epsilon(eps, log_eps, "Adam")
        self.eps, self.decay = jnp.exp(self.log_eps), exponent(decay, "Adam")
        self.b1, self.b2 = (float(within(value, name, "Adam", 1.0)) for name, value in (("b1", b1), ("b2", b2)))

    def init(self, tangent: PyTree) -> tuple[Average, Average]:
        none = GradientAverage(self.b1).init(to_signed(tangent[0]))
        return none, none

    def pace(self, count: Array) -> Array:
        return self.step if self.decay is None else self.step * (count + 1.0) ** -self.decay

    def move(self, reading: Reading, memory: tuple[Average, Average], count: Array) -> Move:
        slope, scale = reading.coordinates, reading.log_scale
        squares = jax.tree.map(lambda g: Signed(2 * g.log, jnp.abs(g.sign)), slope, is_leaf=is_signed)
        mean = GradientAverage(self.b1).mix(slope, memory[0], scale)
        square = GradientAverage(self.b2).mix(squares, memory[1], 2 * scale)
        tilt, spread = jnp.log1p(-(self.b1 ** (count + 1.0))), jnp.log1p(-(self.b2 ** (count + 1.0)))
        pace, unit = self.pace(count), (square.log_unit - 2 * scale - spread) / 2

        def displace(m: Signed, v: Signed) -> Array:
            """A coordinate whose gradient has always been 0 does not move, for eps = 0 as for every eps > 0."""
            divisor = jnp.logaddexp(v.log / 2 + unit, self.log_eps - scale)
            log_size = m.log + (mean.log_unit - scale) - tilt - divisor
            return pace * m.sign * jnp.exp(jnp.where(jnp.isneginf(v.log), -jnp.inf, log_size))

        displacement = jax.tree.map(displace, mean.value, square.value, is_leaf=is_signed)
        no = jnp.zeros((), bool)
        return Move(displacement, -pace * reading.weights, (mean, square), pace, no, no)


class Decayed(eqx.Module):
    r"""Decoupled weight decay: $\theta \leftarrow (1 - h_t\lambda)\theta$ besides the step of another optimiser, with $h_t$ the size of that step.

    For normalised steepest descent this is the Frank-Wolfe method on the ball $N(\theta) \le 1/\lambda$, with steps $h_t\lambda$. The multipliers of
    the run are those of the steps alone.

    **Reference:** Loshchilov and Hutter, *Decoupled weight decay regularization*, 2019.
    """

    optimiser: Descent | Adam
    weight_decay: Float[Array, "*b"]
    combines = False

    def __init__(self, optimiser: Descent | Adam, weight_decay: object):
        self.optimiser, self.weight_decay = optimiser, within(weight_decay, "weight_decay", "Decayed", jnp.inf)
        share = float(np.max(np.asarray(optimiser.pace(jnp.zeros(())) * self.weight_decay)))
        if share > 1:
            found = f"{share:.6g} at the first step"
            fix = "a smaller step or decay: a larger share throws the weight to the other side of 0"
            raise ArgumentError("weight_decay", "Decayed", "at most 1 / step", found, fix)

    @property
    def coordinatewise(self) -> bool:
        return self.optimiser.coordinatewise

    def init(self, tangent: PyTree) -> PyTree:
        return self.optimiser.init(tangent)

    def move(self, reading: Reading, memory: PyTree, count: Array) -> Move:
        move, share = self.optimiser.move(reading, memory, count), self.optimiser.pace(count) * self.weight_decay
        shrunk = jax.tree.map(lambda step, theta: step + share * theta, move.displacement, reading.params)
        return replace(move, displacement=shrunk)


class Minibatches(eqx.Module):
    """Another optimiser on `size` samples at a time: every epoch goes once through all of them, in an order of its own.

    What is left over at the end of an epoch joins no batch. Gradients are means over the batch, each in its own log scale.
    """

    optimiser: Descent | Adam | Decayed
    size: int = eqx.field(static=True)
    seed: int = eqx.field(static=True, default=0)
    combines = False
    coordinatewise, init = Decayed.coordinatewise, Decayed.init  # of the optimiser inside

    def __check_init__(self):
        if self.size < 1:
            raise ArgumentError("size", "Minibatches", "at least 1", self.size)

    def look(self, setting: Setting, params: PyTree, count: Array) -> Reading:
        """The loss of the batch of this step: the margins of all other samples count as infinite."""
        samples = setting.samples
        batches = max(samples // self.size, 1)
        order = jax.random.permutation(jax.random.fold_in(jax.random.key(self.seed), count // batches), samples)
        place = jnp.zeros(samples, int).at[order].set(jnp.arange(samples)) // min(self.size, samples)
        return read(setting, params, place == count % batches)

    def move(self, reading: Reading, memory: PyTree, count: Array) -> Move:
        return self.optimiser.move(reading, memory, count)


def turns_at(optimiser: object) -> float:
    """The margin from which on steps with an epsilon are those of gradient descent, and margins grow like log t; infinite where there is none."""
    match optimiser:
        case Decayed() | Minibatches():
            return turns_at(optimiser.optimiser)
        case Adam():
            return -float(np.max(np.asarray(optimiser.log_eps)))
        case Descent(geometry=NewtonSchulz() as steps):
            return float(ROUNDS * np.log(SHIPPED[0]) - np.max(np.asarray(steps.log_eps)))
    return np.inf


def kept_within(optimiser: object) -> float:
    """The radius of the ball, in the norm of the steps, that weight decay keeps weights in; infinite where there is none."""
    match optimiser:
        case Minibatches():
            return kept_within(optimiser.optimiser)
        case Decayed() if np.any(share := np.asarray(optimiser.weight_decay)):
            return 1 / float(np.max(share))
    return np.inf


def _positive(owner: str, **values: object) -> list[Array]:
    """Arguments that must be positive, checked under the name of the function that the user has called."""
    return [positive(value, name, owner) for name, value in values.items()]


def gradient_descent(step: object) -> Descent:
    """theta - step * grad L."""
    return Descent(Constant(positive(step, "step", "gradient_descent")))


def normalised_descent(length: object, cap: object = jnp.inf, decay: object = None) -> Descent:
    """theta - length/(t+1)^decay * grad L / |grad L|."""
    size, most = _positive("normalised_descent", length=length, cap=cap)
    return Descent(Normalised(size, most, decay))


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


def sign_descent(length: object, decay: object = None) -> Descent:
    """theta - length/(t+1)^decay * sign(grad L)."""
    return Descent(Normalised(positive(length, "length", "sign_descent"), decay=decay), Linf())


def signum(length: object, beta: object = 0.9, decay: object = None) -> Descent:
    """theta - length * sign(M), with M a moving average of the gradients: sign descent with momentum.

    **Reference:** Bernstein et al., *signSGD: compressed optimisation for non-convex problems*, 2018.
    """
    rule = Normalised(positive(length, "length", "signum"), decay=decay)
    return Descent(rule, Linf(), before=GradientAverage(within(beta, "beta", "signum", 1.0)))


def muon(
    length: object,
    beta: object = 0.95,
    decay: object = None,
    *,
    nesterov: bool = False,
    orthogonaliser: str = "polar",
    eps: object = None,
    log_eps: object = None,
) -> Descent:
    """theta - length * U V', with M = U S V' a moving average of the gradients: the same step in every singular direction.

    With the `orthogonaliser` "ns5" five Newton-Schulz steps stand for the polar factor U V', as in what is shipped; eps (none by default)
    is then added to the norm that M is divided by.

    **Reference:** Jordan et al., *Muon: an optimizer for hidden layers in neural networks*, 2024.
    """
    rule = Normalised(positive(length, "length", "muon"), decay=decay)
    if orthogonaliser not in ("polar", "ns5"):
        raise ArgumentError("orthogonaliser", "muon", "'polar' or 'ns5'", repr(orthogonaliser))
    if orthogonaliser == "polar" and not (eps is None and log_eps is None):
        raise ArgumentError("eps", "muon", "left out with the polar factor", eps, "orthogonaliser='ns5'")
    given = 0.0 if eps is None and log_eps is None else eps
    geometry = Spectral() if orthogonaliser == "polar" else NewtonSchulz(log_epsilon(given, log_eps, "muon"))
    average = GradientAverage(within(beta, "beta", "muon", 1.0), nesterov)
    return Descent(rule, geometry, before=average if np.any(average.beta) else None)


def steepest(
    length: object, norm: Geometry, decay: object = None, beta: object = 0.0, nesterov: bool = False
) -> Descent:
    """Steps of length/(t+1)^decay in a norm, as steep as any of that length; with beta > 0 against a moving average of the gradients.

    >>> import penchant as pt
    >>> bool(steepest(0.1, pt.norms.Linf()) == sign_descent(0.1))
    True
    """
    rule = Normalised(positive(length, "length", "steepest"), decay=decay)
    share = within(beta, "beta", "steepest", 1.0)
    if not np.any(share):
        return Descent(rule, norm)
    return Descent(rule, Entrywise(2) if norm.combines else norm, before=GradientAverage(share, nesterov))


def adam(size: object, eps: object = None, log_eps: object = None, decay: object = None) -> Adam:
    """Adam; without an eps, with eps = 0, which never turns into gradient descent."""
    return Adam(size, 0.0 if eps is None and log_eps is None else eps, log_eps=log_eps, decay=decay)
