"""The KKT meter for functions of JAX."""

import re
from collections.abc import Callable
from copy import copy

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import PyTree

from ..errors import ArgumentError
from ..logspace import check_float64
from .kkt import Reading, read
from .kkt_cone import LARGE, Masks, margin_pairs

_KINKED = r"f64\[[^\]]*\] = (abs|clamp|max|min|reduce_max|reduce_min|reduce_window\w*|select_n|sign|sort|top_k)\b"


class JaxGradients:
    """`f(params, inputs)` of JAX: outputs (n,) or (n, classes) for labels -1, 1 or classes. Its kinks are not looked for; operations that may have some are `unseen`."""

    def __init__(self, function: Callable, params: PyTree, inputs: object, labels: object):
        wrong = [leaf.dtype for leaf in map(jnp.asarray, jax.tree.leaves(params)) if leaf.dtype.kind != "f"]
        if wrong:
            raise ArgumentError("params", "function_kkt", "of real numbers", f"an array of {wrong[0]}")
        check_float64()
        wide = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), params)
        start, unravel = ravel_pytree(wide)
        inputs = jnp.asarray(inputs) if type(inputs) is np.ndarray else inputs
        self.start, known = np.asarray(start), np.asarray(labels)
        self._function = lambda theta: jnp.asarray(function(unravel(theta), inputs)).reshape(len(known), -1)
        self.samples, self._pairs = margin_pairs(known, self._function(start).shape[1])
        self._scale(1.0, 0)
        self.unseen = ", ".join(sorted({*re.findall(_KINKED, str(jax.make_jaxpr(self._outputs)(start)))}))

    def _scale(self, size: float, degree: int) -> None:
        sign, own, other, two = self._pairs
        pick = lambda found: sign * (found[self.samples, own] - two * found[self.samples, other])
        self._outputs = lambda theta: size**-degree * self._function(size * theta)
        self._margins = jax.jit(lambda theta: pick(self._outputs(theta)))

    def homogenised(self, degree: int) -> "JaxGradients":
        found = copy(self)
        found._scale(LARGE, degree)
        return found

    def outputs(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, slope = jax.jvp(self._outputs, (theta,), (theta,))
        return np.asarray(value), np.asarray(slope)

    def margins(self, theta: np.ndarray) -> np.ndarray:
        return np.asarray(self._margins(theta))

    def pull(self, theta: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return np.asarray(jax.vjp(self._margins, theta)[1](jnp.asarray(weights))[0])

    def push(self, theta: np.ndarray, along: np.ndarray) -> np.ndarray:
        return np.asarray(jax.jvp(self._margins, (theta,), (along,))[1])

    def rows(self, theta: np.ndarray, which: np.ndarray, masks: Masks = None) -> np.ndarray:
        pull = jax.vjp(self._margins, theta)[1]
        return np.stack([np.asarray(pull(jnp.zeros(len(self.samples)).at[k].set(1.0))[0]) for k in which])

    def kinks(self, theta: np.ndarray) -> None:
        return None

    def chosen(self, theta, along, masks, free, sign):  # no kinks, no choice
        raise NotImplementedError


def function_kkt(
    function: Callable, params: PyTree, inputs: object, labels: object, *, tolerance: float = 1e-2
) -> Reading:
    """The meter for a JAX function of parameters and inputs.

    >>> import jax.numpy as jnp
    >>> inputs, labels = jnp.array([[1.0, 0.0], [0.0, 2.0]]), np.array([1, -1])
    >>> found = function_kkt(lambda w, x: x @ w, jnp.array([2.0, -1.0]), inputs, labels)
    >>> round(found.homogeneity.degree), found.upper < 1e-12, found.verdict.headline
    (1, True, 'confirmed')
    """
    return read(JaxGradients(function, params, inputs, labels), tolerance=tolerance)
