"""Any network of JAX as a setting: the weight is the vector of its margins, so that flow and descent run in margin space."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from ..errors import ArgumentError
from .base import Data, Setting
from .classification import Classification
from .losses import AbstractLoss
from .parametrisations import PlainMetric


class Network(PlainMetric):
    """`function(params, inputs)` with outputs (n,) for labels -1 and 1, or (n, classes): one margin y f, or one f_y - f_c for each other class.

    Outputs of a sample depend on that sample alone, and gradients are taken sample by sample: those of the batch, one after the other, would cost n times as much.

    Smooth networks only: at a kink the flow would have to slide along it. `smooth_relu` is a unit that may take the place of ReLU.
    """

    function: Callable = eqx.field(static=True)
    inputs: Array
    signs: Array
    own: Array
    other: Array
    sample: Array
    start: PyTree
    form = "a network"

    def __init__(self, function: Callable, start: PyTree, inputs: object, labels: object):
        self.function, self.inputs, self.start = function, jnp.asarray(inputs, float), jax.tree.map(jnp.asarray, start)
        labels, outputs = np.asarray(labels), list(np.shape(function(self.start, self.inputs)))
        if outputs[:1] != list(labels.shape) or len(outputs) > 2:
            raise ArgumentError("function", "Network", f"of outputs ({len(labels)},) or (.., classes)", outputs)
        classes = outputs[1] if outputs[1:] else 2
        known = range(classes) if outputs[1:] else (-1, 1)
        bad = [k for k, label in enumerate(labels.tolist()) if label not in known]
        if bad:
            found = f"{labels[bad[0]]} on sample {bad[0]}"
            raise ArgumentError("labels", "Network", f"one of {', '.join(map(str, known))}", found)
        pairs = [(k, y, c) for k, y in enumerate(labels) for c in known if c != y]
        place = lambda k, y: k * classes + y if outputs[1:] else k
        self.signs = jnp.asarray([1.0 if outputs[1:] else float(y) for _, y, _ in pairs])
        self.own, self.other = (jnp.asarray([place(k, one[at]) for k, *one in pairs]) for at in (0, 1))
        self.sample = jnp.asarray([k for k, *_ in pairs])
        alone, together = (function(self.start, self.inputs[:n])[:1] for n in (1, len(labels)))
        if not np.allclose(alone, together, rtol=1e-9, atol=1e-9 * np.max(np.abs(together), initial=0.0)):
            found = "another one where it sees all samples together"
            raise ArgumentError("function", "Network", "the same output for a sample by itself", found)

    def weight(self, params: PyTree, data: Data) -> Float[Array, "N"]:
        """The margins."""
        outputs = self.function(params, self.inputs)
        flat = outputs.reshape(-1)
        return self.signs * (flat[self.own] - (flat[self.other] if outputs.ndim > 1 else 0.0))

    def zeros(self, data: Data) -> PyTree:
        """The start that the network came with: zero is no place to begin."""
        return self.start

    def random(self, data: Data, rng: np.random.Generator, scale: float) -> PyTree:
        return jax.tree.map(lambda leaf: jnp.asarray(scale * rng.standard_normal(leaf.shape)), self.start)

    def named(self, params: PyTree, data: Data) -> dict[str, Array]:
        return {"theta": ravel_pytree(params)[0]}

    def linearise(self, params: PyTree, data: Data) -> tuple[Array, Callable[[Array], PyTree]]:
        margins, pull = jax.vjp(lambda theta: self.weight(theta, data), params)
        return margins, lambda cotangent: pull(cotangent)[0]

    def gram(self, params: PyTree, data: Classification) -> Float[Array, "N N"]:
        """Of the gradients of the margins that the data, rows of an identity, name."""
        theta, back = ravel_pytree(params)

        def margin(flat: Array, k: Array) -> Array:
            outputs = self.function(back(flat), self.inputs[self.sample[k]][None])[0]
            pair = (outputs[self.own[k] % outputs.size], outputs[self.other[k] % outputs.size]) if outputs.ndim else ()
            return self.signs[k] * (pair[0] - pair[1] if pair else outputs)

        rows = jax.vmap(jax.grad(margin), (None, 0))(theta, jnp.argmax(data.signed, axis=1))
        return rows @ rows.T


def network_setting(function: Callable, start: PyTree, inputs: object, labels: object, loss: AbstractLoss) -> Setting:
    """A network with its data as a setting. The theorems are about the sum over all margins."""
    network = Network(function, start, inputs, labels)
    return Setting(Classification(np.eye(len(network.signs)), np.ones(len(network.signs))), network, loss, "sum")


def smooth_relu(units: Array, inputs: Array, softness: float) -> Array:
    r"""$\frac12(z + \sqrt{z^2 + \kappa^2|U_j|^2|x|^2})$ with $z = \langle U_j, x\rangle$: smooth, above ReLU by at most $\frac\kappa2|U_j||x|$, and still homogeneous in both."""
    z = inputs @ units.T
    scale = jnp.outer(jnp.linalg.norm(inputs, axis=1), jnp.linalg.norm(units, axis=1))
    return 0.5 * (z + jnp.sqrt(z**2 + (softness * scale) ** 2))
