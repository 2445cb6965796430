r"""Gradient descent on layered networks, with steps that depend on the size of the layers and keep an account of themselves.

$M$ is the largest Frobenius norm of a layer, L the depth, and the loss has $|\ell'| \le G$, $\ell'' \le \beta$. Steps $\eta$ are kept as logarithms:
the line search reaches $e^{90}$. The account holds what the proofs add up: the traces $\sum\eta^2\|\nabla_{W_k}R\|^2$, $\log\sum\eta$, and the
largest violation of the descent inequality $R^+ \le R - \frac\eta2\|\nabla R\|^2$, in logarithms.
"""

from abc import abstractmethod
from typing import ClassVar, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int, PyTree

from ..errors import warn
from ..problem import Reading
from ..settings.base import Setting
from ..settings.deep_linear import layer_norms
from .base import Move
from .step_rules import positive

_NEVER = 700.0  # in log R: more than a float64 risk can fall in one step
_RISES = 10  # a constant step that raises the risk this often in a row is too long, not unlucky


class Account(eqx.Module):
    """What descent remembers of its own steps."""

    radius: Float[Array, ""]
    log_step: Float[Array, ""]
    log_step_sum: Float[Array, ""]
    traces: Float[Array, "L"]
    log_risk: Float[Array, ""]
    promised: Float[Array, ""]
    violation: Float[Array, ""]
    rises: Int[Array, ""]


Radius = TypeVar("Radius", int, float, np.number, np.ndarray, Array)


class Choice(eqx.Module):
    """The logarithm of the step, and the radius of the ball in which it was justified."""

    log_step: Float[Array, ""]
    radius: Float[Array, ""]


class AbstractLayerRule(eqx.Module):
    """A rule for log eta from a reading, the norms of the layers and the account so far; a `fixed` one cannot react to a rise of the risk."""

    fixed: ClassVar[bool] = False

    @abstractmethod
    def choose(self, reading: Reading, norms: Float[Array, "L"], account: Account, count: Array) -> Choice: ...


def smoothness(radius: Radius, depth: int, beta: float = 0.25, slope: float = 1.0) -> Radius:
    """The paper's Lipschitz constant of the gradient on layers of norm at most `radius` >= 1."""
    if not isinstance(radius, Tracer) and np.min(radius) < 1:
        text = f"The paper's bound needs a radius of at least 1, not {np.min(radius):g}; `sharp_smoothness` holds for every radius."
        warn(text)
    return cast(Radius, 2 * depth**2 * radius ** (2 * depth - 2) * (beta + slope))


def sharp_smoothness(radius: Radius, depth: int, beta: float = 0.25, slope: float = 1.0) -> Radius:
    """The same without waste, for every radius > 0: ten to forty times smaller at depth 4."""
    return cast(Radius, beta * depth * radius ** (2 * depth - 2) + slope * (depth - 1) * radius ** (depth - 2))


def risk_bounds(setting: Setting, params: PyTree) -> tuple[float, float] | None:
    """beta and G of the loss as the risk reduces it: those of the logistic loss; for the exponential one what holds wherever the risk is at
    most that of `params`, the sum of the losses for both; None where they are not known."""
    samples = setting.samples
    if setting.loss.kind == "logistic":
        scale = 1.0 if setting.reduction == "mean" else float(samples)
        return 0.25 * scale, scale
    if setting.loss.kind == "exponential":
        risk = float(jnp.exp(setting.weigh(setting.margins(params)).log_excess))
        total = risk * (samples if setting.reduction == "mean" else 1)
        return total, total
    return None


def safe_step(setting: Setting, params: PyTree) -> float:
    """The step of `SharpStep` at these layers: provably short enough there; nan where the bounds of the loss are not known."""
    bounds = risk_bounds(setting, params)
    if bounds is None:
        return float("nan")
    radius = 1.05 * float(jnp.max(layer_norms(params))) + 0.02
    curvature = float(sharp_smoothness(radius, len(params), *bounds))
    return min(1.0, 1 / curvature) if curvature > 0 else 1.0  # bounds of a loss that has underflowed are 0


class BallStep(AbstractLayerRule):
    r"""Assumption 5: $\eta = \min(1/\beta(R), 1)$, where the ball of radius R holds the layers with a `clearance` and grows only when it must.

    With clearance 1 both ends of a step lie in the ball, which the published form does not ensure. `tight` uses the true bound
    $G/(2L^2(\beta+G))$ on the length of a step instead of 1.
    """

    tight: bool = eqx.field(static=True, default=False)
    beta: float = 0.25
    slope: float = 1.0

    def clearance(self, depth: int) -> float:
        return self.slope / (2 * depth**2 * (self.beta + self.slope)) if self.tight else 1.0

    def choose(self, reading, norms, account, count):
        depth, largest = len(norms), jnp.max(norms)
        room = self.clearance(depth)
        grown = jnp.maximum(1.0, largest + room)
        radius = jnp.where((count > 0) & (largest <= account.radius - room), account.radius, grown)
        return Choice(-jnp.log(jnp.maximum(smoothness(radius, depth, self.beta, self.slope), 1.0)), radius)


class SharpStep(AbstractLayerRule):
    """The sharp smoothness bound on a ball 5 % larger than the layers."""

    beta: float = 0.25
    slope: float = 1.0

    def choose(self, reading, norms, account, count):
        radius = 1.05 * jnp.max(norms) + 0.02
        bound = sharp_smoothness(radius, len(norms), self.beta, self.slope)
        return Choice(-jnp.log(jnp.maximum(bound, 1.0)), radius)


class RiskScaled(AbstractLayerRule):
    """1/eta = 4 L^2 max(1, M)^(2L-2) times the risk: for losses with |l'|, l'' <= l the curvature falls with the risk, and the step may grow."""

    def choose(self, reading, norms, account, count):
        depth, radius = len(norms), jnp.maximum(1.0, jnp.max(norms))
        return Choice(-reading.log_excess - jnp.log(4.0 * depth**2) - (2 * depth - 2) * jnp.log(radius), radius)


class ConstantStep(AbstractLayerRule):
    """The same step always; ten rises of the risk in a row end the run as `diverging_step`."""

    step: Float[Array, "*b"]
    fixed = True

    def __init__(self, step: object):
        self.step = positive(step, "step", "ConstantStep")

    def choose(self, reading, norms, account, count):
        return Choice(jnp.log(self.step), jnp.max(norms))


class LineSearch(AbstractLayerRule):
    """Double the last step, then halve until the descent inequality holds, tested in logarithms; `capped` keeps eta <= 1."""

    setting: Setting
    capped: bool = eqx.field(static=True, default=False)

    def choose(self, reading, norms, account, count):
        ceiling = 0.0 if self.capped else jnp.inf
        first = jnp.minimum(jnp.where(count == 0, 0.0, account.log_step) + jnp.log(2.0), ceiling)
        refused = lambda log_step: ~self._descends(reading, log_step)
        return Choice(jax.lax.while_loop(refused, lambda s: s - jnp.log(2.0), first), jnp.max(norms))

    def _descends(self, reading: Reading, log_step: Array) -> Array:
        factor = jnp.exp(log_step + reading.log_scale)
        there = jax.tree.map(lambda p, g: p - factor * g, reading.params, reading.slope)
        log_risk = self.setting.weigh(self.setting.margins(there)).log_excess
        promise, possible = _promise(reading, log_step)
        # A step below the resolution of the parameters promises nothing that rounding could keep: accept it and let the run end.
        return (possible & (log_risk <= promise)) | (factor < 1e-300)


def _promise(reading: Reading, log_step: Array) -> tuple[Array, Array]:
    """log of R - eta |grad R|^2 / 2, and whether that is positive; if not, a promise that no risk can keep."""
    drop = 0.5 * jnp.exp(log_step + 2 * reading.log_gradient_norm - reading.log_excess)
    possible = drop < 1
    return reading.log_excess + jnp.where(possible, jnp.log1p(-jnp.where(possible, drop, 0.0)), -_NEVER), possible


class LayerDescent(eqx.Module):
    """Gradient descent with a layer rule: W - eta grad R, with an account of the steps."""

    rule: AbstractLayerRule

    coordinatewise = False

    def init(self, tangent: PyTree) -> Account:
        slope, _ = tangent
        zero, low = jnp.zeros(()), jnp.array(-jnp.inf)
        high = jnp.array(jnp.inf)  # before the first step nothing is promised
        return Account(zero, zero, low, jnp.zeros(len(slope)), high, high, low, jnp.zeros((), int))

    def move(self, reading: Reading, memory: Account, count: Array) -> Move:
        choice = self.rule.choose(reading, layer_norms(reading.params), memory, count)
        factor = jnp.exp(choice.log_step + reading.log_scale)
        squares = jnp.stack([jnp.sum(layer**2) for layer in reading.slope])
        promise, _ = _promise(reading, choice.log_step)
        account = Account(
            choice.radius,
            choice.log_step,
            jnp.logaddexp(memory.log_step_sum, choice.log_step),
            memory.traces + factor**2 * squares,
            reading.log_excess,
            promise,
            _violation(memory, reading.log_excess),
            jnp.where(reading.log_excess > memory.log_risk, memory.rises + 1, 0),
        )
        diverging = self.rule.fixed & (account.rises >= _RISES)
        displacement = jax.tree.map(lambda leaf: factor * leaf, reading.slope)
        return Move(displacement, -factor * reading.weights, account, factor, jnp.zeros((), bool), diverging)

    def account(self, memory: Account, log_excess: Array) -> dict[str, Array]:
        """What is recorded of the steps, which have led to `log_excess`."""
        kept = {name: getattr(memory, name) for name in ("radius", "log_step", "log_step_sum", "traces")}
        return {**kept, "violation": _violation(memory, log_excess)}


def _violation(memory: Account, log_excess: Array) -> Array:
    """The largest violation so far, with that of the last step, whose risk is `log_excess`."""
    return jnp.maximum(memory.violation, log_excess - memory.promised)
