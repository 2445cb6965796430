"""Rules for attention layers that know nothing of the covariance: what structure-aware preconditioning is compared with.

A rule has `init(layer) -> memory` and `update(gradient, memory, layer) -> (change, memory)`; the change is added to the layer.
"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ....errors import ArgumentError
from ..setting.problem import AttentionLayer


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
