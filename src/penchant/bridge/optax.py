"""Any optax transformation as a rule for attention layers (`pip install optax`).

>>> import jax.numpy as jnp, optax
>>> from penchant.papers.attention_regression.setting.problem import AttentionLayer
>>> layer = AttentionLayer([[1.0, 2.0]], [[3.0, 0.0], [0.0, 4.0]])
>>> rule = Transformation(optax.sgd(0.5))
>>> change, _ = rule.update(layer, rule.init(layer), layer)
>>> change.value.tolist()
[[-0.5, -1.0]]
"""

from typing import Any

import equinox as eqx

from ..papers.attention_regression.training.rules import AbstractAttentionRule


class Transformation(AbstractAttentionRule):
    """Wraps an `optax.GradientTransformation`: `Transformation(optax.contrib.muon(0.02))`."""

    wrapped: Any = eqx.field(static=True)

    def init(self, layer):
        return self.wrapped.init(layer)

    def update(self, gradient, memory, layer):
        return self.wrapped.update(gradient, memory, layer)


def muon(step: float) -> Transformation:
    """Muon: both blocks are matrices, so both take orthogonalised momentum steps."""
    from optax.contrib import muon as make

    return Transformation(make(step))
