r"""Newton-Schulz steps in place of a polar factor: what Muon ships.

With $X_0 = G/(\|G\|_F + \epsilon)$ five rounds of $X \leftarrow aX + (bXX^\top + c(XX^\top)^2)X$ send every singular value $x_i = \sigma_i/\|\sigma\|$ to $f(x_i)$,
$f = \pi^{\circ 5}$, $\pi(x) = ax + bx^3 + cx^5$. f is not monotone and not constant, so that this is steepest descent in no norm.

**Reference:** Jordan et al., *Muon: an optimizer for hidden layers in neural networks*, 2024.
"""

from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

SHIPPED, ROUNDS = (3.4445, -4.7750, 2.0315), 5
M = TypeVar("M", np.ndarray, Array)


def spread(x: np.ndarray) -> np.ndarray | np.float64:
    """f(x), where the steps send a singular value of x."""
    a, b, c = SHIPPED
    for _ in range(ROUNDS):
        x = a * x + b * x**3 + c * x**5
    return x


def orthogonalise(matrix: M) -> M:
    """The rounds on a matrix whose singular values are at most 1."""
    a, b, c = SHIPPED
    x = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    for _ in range(ROUNDS):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x


class NewtonSchulz(eqx.Module):
    """A geometry for descents: every matrix of the slope as the rounds leave it; other arrays as matrices of one row.

    eps is added to the Frobenius norm of the gradient itself, given by its logarithm (-inf is none): once the gradient is far below it,
    the rounds only multiply by a^5 = 484.9, and this is gradient descent.
    """

    log_eps: Float[Array, "*b"]
    coordinatewise = False
    combines = False

    def __init__(self, log_eps: object = -jnp.inf):
        self.log_eps = jnp.asarray(log_eps, float)

    def at(self, log_unit: Float[Array, ""]) -> "NewtonSchulz":
        """For slopes in units of e^log_unit."""
        return NewtonSchulz(self.log_eps - log_unit)

    def dual_norm(self, slope: PyTree, log_norm: Array) -> Float[Array, ""]:
        return jnp.sqrt(jnp.sum(jnp.stack([jnp.sum(leaf**2) for leaf in jax.tree.leaves(slope)])))

    def direction(self, slope: PyTree, size: Float[Array, ""]) -> PyTree:
        def steps(leaf: Array) -> Array:
            matrix = leaf.reshape(-1, leaf.shape[-1])
            return size * orthogonalise(matrix / (jnp.linalg.norm(matrix) + jnp.exp(self.log_eps))).reshape(leaf.shape)

        return jax.tree.map(steps, slope)
