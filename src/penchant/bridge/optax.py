"""Any optax transformation as an optimiser of settings, and as a rule for attention layers (`pip install optax`).

>>> import optax, penchant as pt
>>> setting = pt.Setting(pt.Classification([[2.0, 0.5], [0.1, -1.0]], [1, -1]), pt.Direct(), pt.Logistic())
>>> run = pt.train(setting, OptaxDescent(optax.sgd(0.5)), steps=20)
>>> bool(abs(run.log_excess - pt.train(setting, pt.gradient_descent(0.5), steps=20).log_excess).max() < 1e-12)
True

>>> from penchant.papers.attention_regression.setting.problem import AttentionLayer
>>> from penchant.papers.attention_regression.training.rules import LayerRule
>>> layer = AttentionLayer([[1.0, 2.0]], [[3.0, 0.0], [0.0, 4.0]])
>>> rule = LayerRule(OptaxDescent(optax.sgd(0.5)))
>>> change, _ = rule.update(layer, rule.init(layer), layer)
>>> change.value.tolist()
[[-0.5, -1.0]]
"""

from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree

from ..errors import ArgumentError
from ..optimisers.base import Move
from ..papers.attention_regression.training.rules import LayerRule
from ..problem import Reading
from ..settings.parametrisations import tree_inner


@runtime_checkable
class Transforms(Protocol):
    """An `optax.GradientTransformation`."""

    def init(self, params: PyTree) -> PyTree: ...
    def update(self, updates: PyTree, state: PyTree, params: PyTree) -> tuple[PyTree, PyTree]: ...


class OptaxDescent(eqx.Module):
    """An optimiser of any setting with arrays as parameters: `OptaxDescent(optax.lion(1e-3))`.

    The transformation sees the gradient itself, which underflows once margins pass some 700; penchant's own rules see its logarithm.
    Multipliers move as those of a gradient step of the same length: exact for plain descent.
    """

    wrapped: Transforms = eqx.field(static=True)
    coordinatewise: bool = eqx.field(
        static=True, default=True
    )  # as far as anyone knows: never traded for its Gram form

    def init(self, tangent: PyTree) -> PyTree:
        return self.wrapped.init(tangent[0])

    def move(self, reading: Reading, memory: PyTree, count: Int[Array, ""]) -> Move:
        gradient = jax.tree.map(lambda leaf: jnp.exp(reading.log_scale) * leaf, reading.slope)
        try:
            change, memory = self.wrapped.update(gradient, memory, reading.params)
        except TypeError as error:
            found, fix = f"one whose update says: {error}", "a line search reads the loss again; torch.optim.LBFGS may"
            raise ArgumentError("wrapped", "OptaxDescent", "a transformation of gradients alone", found, fix) from error
        length = jnp.sqrt(tree_inner(change, change) / tree_inner(reading.slope, reading.slope))
        no = jnp.zeros((), bool)
        return Move(jax.tree.map(jnp.negative, change), -length * reading.weights, memory, length, no, no)


def muon(step: float) -> LayerRule:
    """Muon: both blocks are matrices, so both take orthogonalised momentum steps."""
    from optax.contrib import muon as make

    return LayerRule(OptaxDescent(make(step)))
