"""One look at an objective: everything an optimiser, a flow or a diagnostic needs, and nothing that underflows."""

from dataclasses import replace
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Float, PyTree

from .errors import ArgumentError, kind
from .logspace import Signed, check_float64, to_signed
from .settings.base import Infimum, Parametrisation, Setting, Weighing
from .settings.parametrisations import Direct

_TINY = 1e-280  # squared norms below this lose digits, or underflow


@runtime_checkable
class Problem(Protocol):
    """What can be trained: a `Setting`, or a problem that a paper brings. `parts` are what two equal problems have in common, by name."""

    @property
    def kind(self) -> str: ...
    @property
    def parts(self) -> dict[str, PyTree]: ...
    def infimum(self) -> Infimum: ...


class Reading(eqx.Module):
    """The loss near one point, in logarithms.

    The loss gradient is exp(log_scale) * slope and is never formed; `weights` are the matching dual variables, one per
    margin. For classification `log_scale` equals `log_excess`, and `slope` is the gradient of `log_excess`. `params` is the
    point itself, for rules whose step depends on it.

    Where one part of the parameters may have a gradient smaller than another by a factor that no float can hold, the slope is a tuple of
    blocks: `relative` has the log scale of each minus `log_scale`, and `log_norms` the logarithm of its length; -inf for a block that is 0.
    """

    log_excess: Float[Array, ""]
    log_scale: Float[Array, ""]
    slope: PyTree
    margins: Float[Array, "N"]
    weights: Float[Array, "N"]
    log_slope_norm: Float[Array, ""]
    params: PyTree = None
    relative: tuple[Float[Array, ""], ...] = ()
    log_norms: tuple[Float[Array, ""], ...] = ()
    signed: Signed | None = (
        None  # the slope of a weight by logarithms and signs, where the data know more than floats hold
    )

    @property
    def coordinates(self) -> PyTree:
        """The slope by logarithm and sign of every coordinate."""
        return to_signed(self.slope) if self.signed is None else self.signed

    def scaled(self, direction: PyTree, factor: Float[Array, ""]) -> PyTree:
        """A direction made of the blocks of the slope, times the factor, with each block in its own scale; a silent block stays 0."""
        if not self.relative:
            return jax.tree.map(lambda leaf: factor * leaf, direction)
        scales = (
            jnp.where(jnp.isneginf(n), 0.0, jnp.exp(r)) for r, n in zip(self.relative, self.log_norms, strict=True)
        )
        parts = (jax.tree.map(lambda leaf, s=s: factor * s * leaf, b) for s, b in zip(scales, direction, strict=True))
        return type(direction)(*parts)

    def blocks(self) -> "tuple[Reading, ...]":
        """A reading of each block by itself. One that is silent has a slope of 0 and the length 1, so that every step along it is 0."""
        found = []
        for relative, slope, norm in zip(self.relative, self.slope, self.log_norms, strict=True):
            silent = jnp.isneginf(norm)
            slope, norm = jax.tree.map(lambda x, off=silent: jnp.where(off, 0.0, x), (slope, norm))
            scale = self.log_scale + jnp.where(silent, 0.0, relative)
            found.append(Reading(self.log_excess, scale, slope, self.margins, self.weights, norm))
        return tuple(found)

    @property
    def log_gradient_norm(self) -> Float[Array, ""]:
        """log |grad L|."""
        return self.log_scale + self.log_slope_norm

    @property
    def log_relative_slope(self) -> Float[Array, ""]:
        """log |grad log(L - L*)|. The two logarithms of the size of the loss may be -1e6 and equal: their difference comes first."""
        return self.log_slope_norm + (self.log_scale - self.log_excess)


def _check_point(setting: Setting, params: PyTree) -> None:
    """Parameters of other shapes than those of the setting are refused; inside compiled code they have been checked."""
    check_float64()
    leaves = jax.tree.leaves(params)
    if any(isinstance(leaf, Tracer) for leaf in leaves) or not isinstance(setting.parametrisation, Parametrisation):
        return
    wanted = [leaf.shape for leaf in jax.tree.leaves(setting.parametrisation.zeros(setting.data))]
    found = [getattr(leaf, "shape", kind(leaf)) for leaf in leaves]
    if found != wanted:
        raise ArgumentError("params", "read", f"arrays of shape {wanted}", found, "setting.start(seed=0, scale=0.1)")


def read(setting: Setting, params: PyTree, chosen: Array | None = None) -> Reading:
    """Evaluate a setting once; of `chosen` samples, where they are given, the mean of their losses alone.

    >>> import penchant as pt
    >>> setting = pt.Setting(pt.Classification([[2.0, 0.0], [0.0, 1.0]], [1, 1]), pt.Direct(), pt.Exponential())
    >>> reading = read(setting, jnp.array([400.0, 1000.0]))       # margins 800 and 1000: the loss is below 1e-300
    >>> reading.slope.tolist(), float(reading.log_excess)
    ([-2.0, -1.3838965267367376e-87], -800.6931471805599)
    """
    _check_point(setting, params)
    if hasattr(setting.parametrisation, "blocks"):
        return _read_blocks(setting, params)
    margins, pull = setting.linearise(params)
    weighing = setting.weigh(margins) if chosen is None else _weigh_some(setting, margins, chosen)
    slope = pull(-weighing.weights)
    square = setting.inner(slope, slope)
    log_norm = jnp.where(square > 0, 0.5 * jnp.log(jnp.where(square > 0, square, 1.0)), -jnp.inf)
    if setting.data.attained:
        log_norm = jnp.where(square > _TINY, log_norm, _log_small_norm(setting, slope))
    signed = None
    if isinstance(setting.parametrisation, Direct) and hasattr(setting.data, "log_adjoint"):
        pull = setting.data.log_adjoint(weighing.log_weights)
        signed = Signed(pull.log, -pull.sign)
    found = Reading(weighing.log_excess, weighing.log_scale, slope, margins, weighing.weights, log_norm, params)
    return replace(found, signed=signed)


def _weigh_some(setting: Setting, margins: Array, chosen: Array) -> Weighing:
    """A sample without a part in the loss is one with infinite margins."""
    counted = jnp.repeat(chosen, len(margins) // setting.samples)
    found = setting.weigh(jnp.where(counted, margins, jnp.inf))
    gained = jnp.log(setting.samples / jnp.sum(chosen)) if setting.reduction == "mean" else 0.0
    return replace(found, log_excess=found.log_excess + gained, log_scale=found.log_scale + gained)


def _read_blocks(setting: Setting, params: PyTree) -> Reading:
    """Where the parametrisation knows the blocks of the gradient, each with a scale of its own."""
    margins = setting.parametrisation.outputs(params)
    weighing = setting.data.weigh(margins, setting.loss)
    parts = setting.parametrisation.blocks(params, weighing, setting.loss)
    top = jnp.maximum(*(part.log_scale for part in parts))
    relative = tuple(part.log_scale - top for part in parts)
    norms = tuple(part.log_norm for part in parts)
    length = 0.5 * jnp.logaddexp(*(2 * (one + norm) for one, norm in zip(relative, norms, strict=True)))
    slope = type(params)(*(part.slope for part in parts))
    weights = weighing.weights * jnp.exp(weighing.log_scale - top)
    excess, scale = weighing.log_excess - setting.shift, top - setting.shift
    return Reading(excess, scale, slope, margins, weights, length, params, relative, norms)


def _log_small_norm(setting: Setting, slope: PyTree) -> Float[Array, ""]:
    """log |slope| where its square underflows: square models leave starts of 1e-200, whose gradient is as small."""
    unit = jnp.max(jnp.stack([jnp.max(jnp.abs(leaf)) for leaf in jax.tree.leaves(slope)]))
    safe = jnp.where(unit > 0, unit, 1.0)
    scaled = jax.tree.map(lambda leaf: leaf / safe, slope)
    square = setting.inner(scaled, scaled)  # between 1 and the number of entries, or 0
    return jnp.where(unit > 0, jnp.log(safe) + 0.5 * jnp.log(jnp.maximum(square, 1.0)), -jnp.inf)


read_once = eqx.filter_jit(read)  # for a single look: op by op, a new shape compiles a hundred tiny kernels


def smallest_margin(setting: Setting, margins: Float[Array, "N"]) -> Float[Array, ""]:
    """The smallest margin that the reference program constrains: tied tokens are as good as the optimal one."""
    return setting.data.smallest(margins)
