"""Settings: data x parametrisation x loss, read in logarithms."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..door import FINITE, SEED
from ..errors import ArgumentError, kind
from .losses import AbstractLoss

RESOLUTION = 1e-3  # weights are e^-margin: an absolute margin error above this makes them wrong by 0.1 %


class Infimum(eqx.Module):
    """The infimum of the loss: its value, whether a finite parameter attains it, and why."""

    value: float
    attained: bool
    why: str


class Weighing(eqx.Module):
    """The loss as seen from the margins.

    `log_excess` is log(L - L*); minus dL/dmargins is exp(log_scale) * weights. For losses of separable data the scale is the
    excess itself and the weights are minus the gradient of `log_excess`; where training saturates on a plateau above
    the infimum the gradient is far smaller than the excess, and only the pair can say so without underflow. Data that know the pull on
    each coordinate in logarithms (`log_adjoint`) give `log_weights` too.
    """

    log_excess: Float[Array, ""]
    log_scale: Float[Array, ""]
    weights: Float[Array, "N"]
    log_weights: Float[Array, "N"] | None = None


class MarginData(eqx.Module):
    """What holds of data unless they say otherwise: the infimum is approached as the margins grow, and all margins count."""

    attained: ClassVar[bool] = False  # whether a finite parameter attains the infimum: a run may then stand still there
    refused: ClassVar[tuple[type, ...]] = ()  # losses that mean nothing here
    asked: ClassVar[tuple[str, str]] = ("", "")  # what a loss must be in their place, and the line to type

    def smallest(self, margins: Float[Array, "N"]) -> Float[Array, ""]:
        """The smallest margin that the reference program constrains."""
        return jnp.min(margins)

    def reached(self, margins: np.ndarray) -> str:
        """How far margins have come, in words."""
        return f"margin {float(self.smallest(jnp.asarray(margins))):.6g}"

    def at_rounding(self, margins: Float[Array, "N"]) -> Array | bool:
        """Whether the loss is at its infimum up to rounding."""
        return False

    def check_loss(self, loss: AbstractLoss) -> None:
        if isinstance(loss, self.refused):
            raise ArgumentError("loss", "Setting", self.asked[0], f"{type(loss).__name__}()", self.asked[1])

    def infimum(self, loss: AbstractLoss) -> Infimum:
        return Infimum(0.0, attained=False, why="the loss tends to 0 as all margins grow, which needs separable data")

    def ceiling(self, highest: Float[Array, ""]) -> Float[Array, ""]:
        """log excess above which a run diverges; `highest` is the larger one of the start and of weight 0."""
        return jnp.array(jnp.inf)

    def check_optimiser(self, optimiser: object) -> None:
        """Any optimiser of one weight will do."""
        if hasattr(optimiser, "descents"):
            wanted = "an optimiser of one weight, such as gradient_descent(0.1)"
            found, fix = type(optimiser).__name__, "the blocks are those of `JointTokens`"
            raise ArgumentError("optimiser", "train", wanted, found, fix)


class Rows(eqx.Module):
    """What data share whose margins are rows of numbers times a vector, all of them constrained; `table` has the rows."""

    @property
    @abstractmethod
    def table(self) -> Float[Array, "N d"]: ...

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return (self.table.shape[-1],)

    def margins(self, weight: Float[Array, "d"]) -> Float[Array, "N"]:
        return self.table @ weight

    def adjoint(self, coefficients: Float[Array, "N"]) -> Float[Array, "d"]:
        return coefficients @ self.table

    def gram(self) -> Float[Array, "N N"]:
        return self.table @ self.table.T

    def constrained(self) -> np.ndarray:
        """Which margins the reference program constrains."""
        return np.ones(self.table.shape[0], bool)


def weigh_sum(margins: Array, loss: AbstractLoss) -> Weighing:
    """The sum of the losses of all margins, along the last axis one by one or as the loss takes them together."""
    log_losses = loss.log_value(margins)
    top = jnp.max(log_losses)  # subtracted first: the weights must not inherit the rounding of a huge log excess
    total = jnp.sum(jnp.exp(log_losses - top))
    log_excess = top + jnp.log(total)
    log_slopes = (loss.log_slope(margins) - top).ravel()
    return Weighing(log_excess, log_excess, jnp.exp(log_slopes) / total, log_slopes - jnp.log(total))


@runtime_checkable
class Data(Protocol):
    """What a setting asks of its data: a linear map from a weight to N margins, and the loss of those margins."""

    names: ClassVar[dict[str, str]]

    @property
    def weight_shape(self) -> tuple[int, ...]: ...
    def margins(self, weight: Array) -> Array: ...
    def adjoint(self, coefficients: Array) -> Array: ...
    def gram(self) -> Array: ...
    def constrained(self) -> np.ndarray: ...
    def weigh(self, margins: Array, loss: AbstractLoss) -> Weighing: ...
    def check_loss(self, loss: AbstractLoss) -> None: ...
    def infimum(self, loss: AbstractLoss) -> Infimum: ...
    def smallest(self, margins: Array) -> Array: ...
    def at_rounding(self, margins: Array) -> Array | bool: ...
    def ceiling(self, highest: Array) -> Array: ...
    def check_optimiser(self, optimiser: object) -> None: ...


@runtime_checkable
class Parametrisation(Protocol):
    """How parameters make a weight, and the metric in which they are trained."""

    def zeros(self, data: Data) -> PyTree: ...
    def random(self, data: Data, rng: np.random.Generator, scale: float) -> PyTree: ...
    def weight(self, params: PyTree, data: Data) -> Array | np.ndarray: ...
    def named(self, params: PyTree, data: Data) -> dict[str, Array | np.ndarray]: ...
    def linearise(self, params: PyTree, data: Data) -> tuple[Array, Callable[[Array], PyTree]]: ...
    def gram(self, params: PyTree, data: Data) -> Array: ...
    def inner(self, a: PyTree, b: PyTree) -> Array: ...
    def norm(self, params: PyTree) -> Array: ...
    def refresh(self, params: PyTree) -> PyTree: ...
    def lost(self, before: PyTree, after: PyTree) -> Array | bool: ...
    def check_optimiser(self, optimiser: object) -> None: ...


class Setting(eqx.Module):
    """What is trained: data x parametrisation x loss.

    `reduction` is "mean" or "sum" over the samples; it shifts `log_excess` by log n and changes nothing else.

    >>> import penchant as pt
    >>> setting = pt.Setting(pt.Classification([[2.0, 0.0], [0.0, 1.0]], [1, 1]), pt.Direct(), pt.Exponential())
    >>> float(setting.weigh(jnp.array([700.0, 1000.0])).log_excess)        # log((e^-700 + e^-1000) / 2)
    -700.6931471805599
    """

    data: Any
    parametrisation: Any
    loss: AbstractLoss
    reduction: str = eqx.field(static=True, default="mean")
    samples: int = eqx.field(static=True, default=0)

    def __init__(
        self, data: Data | MarginData, parametrisation: eqx.Module, loss: AbstractLoss, reduction: str = "mean"
    ):
        if reduction not in ("mean", "sum"):
            raise ArgumentError("reduction", "Setting", "'mean' or 'sum'", repr(reduction))
        data.check_loss(loss)
        getattr(parametrisation, "check_data", lambda _: None)(data)
        getattr(data, "check_parametrisation", lambda _: None)(parametrisation)
        self.data, self.parametrisation, self.loss = data, parametrisation, loss
        self.reduction, self.samples = reduction, jax.tree.leaves(data)[0].shape[0]

    def start(self, seed: int | None = None, scale: float = 1.0) -> PyTree:
        """Zeros without a seed; otherwise independent normal entries of standard deviation `scale`."""
        if seed is None:
            return self.parametrisation.zeros(self.data)
        for name, value, promise in (("seed", seed, SEED), ("scale", scale, FINITE)):
            if not promise.holds(value):
                raise ArgumentError(name, "Setting.start", promise.words, kind(value))
        if not scale > 0:
            raise ArgumentError("scale", "Setting.start", "positive", scale)
        return self.parametrisation.random(self.data, np.random.default_rng(seed), scale)

    def margins(self, params: PyTree) -> Float[Array, "N"]:
        return self.parametrisation.linearise(params, self.data)[0]

    def linearise(self, params: PyTree) -> tuple[Array, Callable[[Array], PyTree]]:
        """Margins, and the map from a margin cotangent to the parameter tangent of steepest ascent."""
        return self.parametrisation.linearise(params, self.data)

    def weigh(self, margins: Float[Array, "N"]) -> Weighing:
        weighing = self.data.weigh(margins, self.loss)
        return replace(weighing, log_excess=weighing.log_excess - self.shift, log_scale=weighing.log_scale - self.shift)

    @property
    def shift(self) -> Float[Array, ""]:
        """log of what the sum of the losses is divided by."""
        return jnp.log(self.samples) if self.reduction == "mean" else jnp.zeros(())

    def inner(self, a: PyTree, b: PyTree) -> Float[Array, ""]:
        """The inner product in which training is steepest descent."""
        return self.parametrisation.inner(a, b)

    def norm(self, params: PyTree) -> Float[Array, ""]:
        return self.parametrisation.norm(params)

    def weight(self, params: PyTree) -> Array | np.ndarray:
        """The effective weight the parameters stand for."""
        return self.parametrisation.weight(params, self.data)

    @property
    def kind(self) -> str:
        return f"{type(self.data).__name__} with {type(self.parametrisation).__name__}"

    @property
    def parts(self) -> dict[str, PyTree]:
        """What makes two settings the same; a parametrisation by its form, which forgets where training starts."""
        form = getattr(self.parametrisation, "form", self.parametrisation)
        return {"data": self.data, "parametrisation": form, "loss": self.loss, "reduction": self.reduction}

    def name_of_loss(self, in_reach: bool) -> str:
        """What `log_excess` is: an infimum that may be out of reach is not subtracted by name."""
        floor = self.infimum()
        if in_reach or floor.attained:
            return "log(L - L*)"
        return "log L" if floor.value == 0 else f"log(L - {floor.value:.6g})"

    def infimum(self) -> Infimum:
        found = self.data.infimum(self.loss)
        scale = 1 if self.reduction == "mean" else self.samples
        return Infimum(found.value * scale, found.attained, found.why)
