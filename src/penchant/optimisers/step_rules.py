"""Step rules: one number, the factor on the slope.

The loss gradient is exp(log_scale) * slope, so a rule that multiplies the gradient by `a` has the factor a * exp(log_scale).
A cap bounds that multiplier of the gradient; once it binds, the rule is gradient descent with step `cap`.

Memory: what an optimiser carries from step to step, of its steps or of the gradients before a geometry makes steps of them.
"""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from ..errors import ArgumentError, warn
from ..logspace import Signed, is_signed, signed_log_sum
from ..problem import Reading
from ..settings.check import one_or_more

# An uncapped Polyak step from a smaller |grad log(L - L*)| leaps out of the region its linear model describes.
_FLAT = 1e-6


class Factor(eqx.Module):
    """The factor on the slope, whether the cap decided it, and whether the rule left its domain."""

    value: Float[Array, ""]
    capped: Bool[Array, ""]
    diverging: Bool[Array, ""]


class AbstractStepRule(eqx.Module):
    """A rule for the factor on the slope at step `count` = 0, 1, ...; `dual_norm` is the slope's size in the optimiser's geometry."""

    @abstractmethod
    def factor(self, reading: Reading, dual_norm: Float[Array, ""], count: Array) -> Factor: ...

    def pace(self, count: Array) -> Array:
        """The size of a step that weight decay is in proportion to."""
        raise NotImplementedError(f"{type(self).__name__} has no step size of its own for weight decay")


def positive(value: object, name: str, owner: str) -> Float[Array, "*b"]:
    """A positive number, or a batch of them, as float64; only a cap may be infinite, which is none."""
    required, most = ("positive", np.inf) if name == "cap" else ("positive and finite", np.finfo(float).max)
    return jax.device_put(one_or_more(value, name, owner, required, lambda size: (size > 0) & (size <= most)))


def within(value: object, name: str, owner: str, high: float) -> Float[Array, "*b"]:
    """A number in [0, high), or a batch of them, as float64."""
    return jax.device_put(one_or_more(value, name, owner, f"in [0, {high:g})", lambda x: (x >= 0) & (x < high)))


def exponent(value: object, owner: str) -> Float[Array, "*b"] | None:
    """The exponent a of step sizes that fall like (t+1)^-a; None is a constant size."""
    if value is None:
        return None
    found = within(value, "decay", owner, jnp.inf)
    if np.any(np.asarray(found) > 1):
        text = f"`{owner}` has steps that fall like t^-{float(np.max(found)):g}: their sum is finite"
        warn(f"{text}, and no theorem speaks of a limit.")
    return found


def log_epsilon(eps: object, log_eps: object, owner: str) -> Float[Array, "*b"]:
    """log(eps) from one of the two; -inf for eps = 0."""
    if (eps is None) == (log_eps is None):
        found = "neither" if eps is None else "both"
        raise ArgumentError("eps", owner, "given, or `log_eps` in its place", found, "eps=0.0, or log_eps=-900.0")
    if eps is not None:
        return jnp.log(within(eps, "eps", owner, jnp.inf))
    return jnp.asarray(one_or_more(log_eps, "log_eps", owner, "below infinity", lambda x: x < np.inf))


def _capped(wanted: Array, cap: Array, reading: Reading, diverging: Array) -> Factor:
    none = jnp.isinf(cap)
    limit = jnp.where(none, jnp.inf, jnp.exp(jnp.log(jnp.where(none, 1.0, cap)) + reading.log_scale))
    capped = limit < wanted
    return Factor(jnp.where(capped, limit, wanted), capped, diverging & ~capped)


class Constant(AbstractStepRule):
    """Gradient descent: the gradient times a constant `step`."""

    step: Float[Array, "*b"]

    def __init__(self, step: object):
        self.step = positive(step, "step", "Constant")

    def factor(self, reading, dual_norm, count):
        no = jnp.zeros((), bool)
        return Factor(jnp.exp(jnp.log(self.step) + reading.log_scale), no, no)

    def pace(self, count):
        return self.step


class Normalised(AbstractStepRule):
    """Every step has the same `length`, or length/(t+1)^decay, unless the cap on the multiplier of the gradient binds."""

    length: Float[Array, "*b"]
    cap: Float[Array, "*b"]
    decay: Float[Array, "*b"] | None

    def __init__(self, length: object, cap: object = jnp.inf, decay: object = None):
        self.length, self.cap = positive(length, "length", "Normalised"), positive(cap, "cap", "Normalised")
        self.decay = exponent(decay, "Normalised")

    def pace(self, count):
        return self.length if self.decay is None else self.length * (count + 1.0) ** -self.decay

    def factor(self, reading, dual_norm, count):
        return _capped(self.pace(count) / dual_norm, self.cap, reading, jnp.zeros((), bool))


class Polyak(AbstractStepRule):
    r"""Polyak's step: cross the gap to the infimum in one linear model.

    With $\varphi = \log(L - L^\star)$ the update $\theta - \frac{L - L^\star}{c\|\nabla L\|^2}\nabla L$ is
    $\theta - \nabla\varphi / (c\|\nabla\varphi\|^2)$: the loss never appears, so nothing underflows.

    **Hypotheses:** $L^\star$ is the infimum on the component being descended. On a plateau above it the linear model sends the
    step to infinity; without a cap the run then ends as `diverging_step`. So it does near the end where the assumed
    infimum is too low by a positive `gap`: then $L - L^\star$ never gets below it.

    !!! example
        >>> import penchant as pt
        >>> setting = pt.Setting(pt.Classification([[2.0, 0.0], [0.0, 1.0]], [1, 1]), pt.Direct(), pt.Exponential())
        >>> run = pt.train(setting, pt.polyak(), steps=1000)          # best margin 2/sqrt(5) = 0.8944
        >>> found = pt.bracket(setting.data, run.weight(), run.dual[-1])
        >>> print(f"{1 / found.upper:.4f} {1 / found.lower:.4f}")
        0.8942 0.8944

    **Reference:** Polyak, *Introduction to Optimization*, 1987.
    """

    c: Float[Array, "*b"]
    cap: Float[Array, "*b"]
    gap: Float[Array, "*b"]

    def __init__(self, c: object = 1.0, cap: object = jnp.inf, gap: object = 0.0):
        self.c, self.cap = positive(c, "c", "Polyak"), positive(cap, "cap", "Polyak")
        required = "nonnegative and finite, as steps go uphill from an infimum above the true one"
        self.gap = jax.device_put(one_or_more(gap, "gap", "Polyak", required, lambda x: (x >= 0) & (x < np.inf)))

    def factor(self, reading, dual_norm, count):
        log_excess = jnp.logaddexp(reading.log_excess, jnp.log(self.gap))  # log(0) is -inf: nothing is added
        wanted = jnp.exp(log_excess - reading.log_scale) / (self.c * dual_norm**2)
        return _capped(wanted, self.cap, reading, reading.log_gradient_norm - log_excess < jnp.log(_FLAT))


class HeavyBall(eqx.Module):
    """V = beta V + step. V is a displacement, in the units of the parameters, so it needs no rescaling."""

    beta: Float[Array, "*b"]

    def __init__(self, beta: object = 0.9):
        self.beta = within(beta, "beta", "HeavyBall", 1.0)

    def init(self, tangent: PyTree) -> PyTree:
        return jax.tree.map(jnp.zeros_like, tangent)

    def mix(self, step: PyTree, memory: PyTree) -> PyTree:
        return jax.tree.map(lambda v, s: self.beta * v + s, memory, step)


class Average(eqx.Module):
    """A moving average in a unit of its own, e^log_unit, which follows the larger one of what is remembered and what is new."""

    value: PyTree
    log_unit: Float[Array, ""]


class GradientAverage(eqx.Module):
    """M = beta M + (1 - beta) gradient. Gradients may shrink by any factor from step to step: nothing over- or underflows.

    With `nesterov` a step is made of beta M + (1 - beta) gradient, with the M that has seen the gradient.
    """

    beta: Float[Array, "*b"]
    nesterov: bool = eqx.field(static=True)

    def __init__(self, beta: object = 0.9, nesterov: bool = False):
        self.beta, self.nesterov = within(beta, "beta", "GradientAverage", 1.0), nesterov

    def init(self, tangent: PyTree) -> Average:
        none = lambda g: Signed(jnp.full_like(g.log, -jnp.inf), g.sign) if is_signed(g) else jnp.zeros_like(g)
        return Average(jax.tree.map(none, tangent, is_leaf=is_signed), jnp.array(-jnp.inf))

    def mix(self, tangent: PyTree, memory: Average, log_unit: Array) -> Average:
        """The average once it has seen a tangent in units of e^log_unit."""
        kept, added = memory.log_unit + jnp.log(self.beta), log_unit + jnp.log1p(-self.beta)
        unit = jnp.maximum(kept, added)
        unit = jnp.where(jnp.isneginf(unit), 0.0, unit)
        both = lambda g, m: _sum(m, g, kept - unit, added - unit)
        return Average(jax.tree.map(both, tangent, memory.value, is_leaf=is_signed), unit)

    def look(self, tangent: PyTree, memory: Average, log_unit: Array) -> tuple[Average, Average]:
        """What is remembered, and what a step is made of."""
        memory = self.mix(tangent, memory, log_unit)
        return memory, self.mix(tangent, memory, log_unit) if self.nesterov else memory


def _sum(memory: Array | Signed, new: Array | Signed, kept: Array, added: Array) -> Array | Signed:
    if not (is_signed(memory) and is_signed(new)):
        return jnp.exp(kept) * memory + jnp.exp(added) * new  # pyright: ignore[reportOperatorIssue, reportReturnType]
    logs = jnp.stack([memory.log + kept, new.log + added], axis=-1)
    return Signed(*signed_log_sum(logs, jnp.stack([memory.sign, new.sign], axis=-1)))
