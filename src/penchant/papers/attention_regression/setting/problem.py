r"""Softmax self-attention that learns a linear map in context: the population loss of Gaussian covariates, in closed form.

A layer predicts $U h(x)$, where $h(x)$ averages the context with weights $\propto e^{x_j^\top V x}$. For covariates $N(0, \Sigma)$ the tilted
mean is $\Sigma V x$, so the loss is $m\sigma^2 + \|(U\Sigma V - A)\Sigma^{1/2}\|_F^2$: a matrix factorisation. In *whitened coordinates*
$\tilde U = U\Sigma^{1/2}$, $\tilde V = \Sigma^{1/2}V\Sigma^{1/2}$, stacked as $W = [\tilde U; \tilde V^\top]$, the covariance disappears.
"""

from abc import abstractmethod
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ....errors import ArgumentError
from ....settings.base import Infimum
from ....settings.check import real_array

Blocks = tuple[Float[Array, "m d"], Float[Array, "d d"]]


class AbstractBalance(eqx.Module):
    """A regulariser of the factors: its value, and its gradient by both blocks.

    `printed`: the one of the paper. `scale_free`: it does not see the scale c of (c U, V/c).
    """

    printed: ClassVar[bool] = False
    scale_free: ClassVar[bool] = False

    @abstractmethod
    def value(self, upper: Float[Array, "m d"], lower: Float[Array, "d d"]) -> Float[Array, ""]: ...

    @abstractmethod
    def gradient(self, upper: Float[Array, "m d"], lower: Float[Array, "d d"]) -> Blocks: ...

    def scale(self, upper: Float[Array, "m d"], lower: Float[Array, "d d"]) -> Float[Array, ""]:
        """The c of (c U, V/c) that steps undo before they measure lengths: 1 where the regulariser fixes the scale itself."""
        return jnp.ones(())


class Unregularised(AbstractBalance):
    """Nothing: descent on the loss alone."""

    def value(self, upper, lower):
        return jnp.zeros(())

    def gradient(self, upper, lower):
        return jnp.zeros_like(upper), jnp.zeros_like(lower)


class Balance(AbstractBalance):
    r"""$\frac14\|\tilde U^\top\tilde U - \tilde V\tilde V^\top\|_F^2$: with this weight the gradient of the sum is $WW^\top W - 2JW$."""

    printed = True

    def value(self, upper, lower):
        return 0.25 * jnp.sum((upper.T @ upper - lower.T @ lower) ** 2)

    def gradient(self, upper, lower):
        imbalance = upper.T @ upper - lower.T @ lower
        return upper @ imbalance, -lower @ imbalance


BALANCE = Balance()


class ScaleFreeBalance(AbstractBalance):
    r"""$\frac14\|\rho\,\tilde U^\top\tilde U - \rho^{-1}\tilde V\tilde V^\top\|_F^2$ with $\rho = \|\tilde V\|_F/\|\tilde U\|_F$: blind to the scale $(cU, V/c)$.

    It is `Balance` after the scale that makes both norms equal, so both have the same units and the same minima up to that scale.
    """

    scale_free = True

    def _imbalance(self, upper: Array, lower: Array) -> tuple[Array, Array, Array]:
        ratio = jnp.sqrt(jnp.sum(lower**2) / jnp.sum(upper**2))
        above, below = ratio * upper.T @ upper, lower.T @ lower / ratio
        return ratio, above - below, above + below

    def value(self, upper, lower):
        return 0.25 * jnp.sum(self._imbalance(upper, lower)[1] ** 2)

    def gradient(self, upper, lower):
        ratio, imbalance, total = self._imbalance(upper, lower)
        # by log(ratio), whose gradients are -upper/|upper|^2 and lower/|lower|^2
        pull = 0.5 * jnp.sum(imbalance * total)
        by_upper = ratio * upper @ imbalance - pull * upper / jnp.sum(upper**2)
        by_lower = -lower @ imbalance / ratio + pull * lower / jnp.sum(lower**2)
        return by_upper, by_lower

    def scale(self, upper, lower):
        """At (c U, V/c) the curvature by V is c^2 times, that by U 1/c^2 times the balanced one: steps must be blind to c as well."""
        return (jnp.sum(upper**2) / jnp.sum(lower**2)) ** 0.25


def limit_logits(upper: Float[Array, "m d"], lower: Float[Array, "d d"], most: Float[Array, ""]) -> tuple[Array, Array]:
    """Move scale from V to U until the operator norm of the whitened V is at most `most`; the product stays."""
    size = jnp.linalg.norm(lower, 2)
    factor = jnp.minimum(1.0, most / jnp.where(size > 0, size, 1.0))
    return upper / factor, lower * factor


_ASYMMETRY = 1e-10  # relative asymmetry of a covariance above which it is not rounding but a mistake
_SINGULAR = 1e-14  # per dimension: eigenvalue ratio below which a covariance has no inverse in float64


class AttentionLayer(eqx.Module):
    """Value matrix U (m x d) and merged key-query matrix V (d x d), which is not symmetric in general."""

    value: Float[Array, "m d"]
    key_query: Float[Array, "d d"]

    def __init__(self, value: object, key_query: object):
        self.value, self.key_query = _matrix(value, "value"), _matrix(key_query, "key_query")
        width = self.value.shape[1]
        if self.key_query.shape != (width, width):
            required = f"of shape {(width, width)}, as value has {width} columns"
            raise ArgumentError("key_query", "AttentionLayer", required, f"shape {self.key_query.shape}")


def _matrix(block: object, name: str) -> Array:
    """A block of a layer with two axes; its entries may be traced, so they are not looked at."""
    try:
        array = jnp.asarray(block, float)
    except (TypeError, ValueError) as error:
        raise ArgumentError(name, "AttentionLayer", "a real matrix", f"{type(block).__name__} ({error})") from None
    if array.ndim != 2:
        raise ArgumentError(name, "AttentionLayer", "a matrix", f"shape {array.shape}")
    return array


def symmetric_roots(covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Symmetric root, its inverse and the eigenvalues (ascending) of a positive definite matrix."""
    sizes, basis = np.linalg.eigh((covariance + covariance.T) / 2)
    return (basis * np.sqrt(sizes)) @ basis.T, (basis / np.sqrt(sizes)) @ basis.T, sizes


def signed_svd(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """P, s, Q of a thin SVD, signs fixed by the largest entry of each column of Q being positive."""
    left, sizes, right = np.linalg.svd(matrix, full_matrices=False)
    top = np.abs(right).argmax(axis=1)
    signs = np.sign(right[np.arange(len(right)), top])
    return left * signs, sizes, right.T * signs


def checked_covariance(value: object, owner: str) -> np.ndarray:
    """A symmetric positive definite matrix, or an error that names the eigenvector at fault."""
    covariance = real_array(value, "covariance", owner, "(d, d)", 2)
    if covariance.shape[0] != covariance.shape[1]:
        raise ArgumentError("covariance", owner, "square", f"shape {covariance.shape}")
    asymmetry = np.abs(covariance - covariance.T).max() / max(np.abs(covariance).max(), np.finfo(float).tiny)
    if asymmetry > _ASYMMETRY:
        raise ArgumentError("covariance", owner, "symmetric", f"relative asymmetry {asymmetry:.2g}")
    sizes, basis = np.linalg.eigh((covariance + covariance.T) / 2)
    if not sizes[0] > len(sizes) * _SINGULAR * sizes[-1]:
        found = f"eigenvalues from {sizes[0]:.3g} to {sizes[-1]:.3g}; smallest along {basis[:, 0].round(3).tolist()}"
        fix = "drop the dependent columns, or add a ridge: `covariance + ridge * np.eye(d)`, on the command line `--ridge`"
        raise ArgumentError("covariance", owner, f"positive definite (A1, ratio above {len(sizes)}e-14)", found, fix)
    return (covariance + covariance.T) / 2


class AttentionRegression(eqx.Module):
    r"""Targets $y = Ax + \varepsilon$ with $x \sim N(0, \Sigma)$ and noise of variance `noise` in each of the m outputs.

    **Arguments:** `covariance` (d, d), symmetric positive definite; `planted` (m, d), the map A; `noise`, $\sigma^2 \ge 0$.

    Derived: the root of the covariance and the SVD $A\Sigma^{1/2} = P\,\mathrm{diag}(s)\,Q^\top$ (`left`, `sizes`, `right`). Wide
    ($m < d$) and rank-deficient maps are allowed here; the theorems report them.

    >>> problem = AttentionRegression([[1.0, 0.2], [0.2, 0.5]], [[0.03, 0.0], [0.01, 0.02], [0.0, 0.01]], 1e-3)
    >>> layer = AttentionLayer([[0.3, 0.0], [0.1, 0.2], [0.0, 0.1]], [[0.1, 0.0], [-0.1, 0.2]])
    >>> f"{problem.excess(layer):.6f} {problem.regulariser(layer):.6f} {problem.loss(layer):.6f}"
    '0.000147 0.002848 0.003147'
    """

    covariance: Float[Array, "d d"]
    planted: Float[Array, "m d"]
    noise: Float[Array, ""]
    root: Float[Array, "d d"]
    inverse_root: Float[Array, "d d"]
    spread: Float[Array, "d"]
    left: Float[Array, "m k"]
    sizes: Float[Array, "k"]
    right: Float[Array, "d k"]

    def __init__(self, covariance: object, planted: object, noise: object = 0.0):
        owner = "AttentionRegression"
        covariance = checked_covariance(covariance, owner)
        planted = real_array(planted, "planted", owner, "(m, d)", 2)
        if planted.shape[1] != len(covariance):
            raise ArgumentError("planted", owner, f"of shape (m, {len(covariance)})", f"shape {planted.shape}")
        if not planted.any():
            raise ArgumentError("planted", owner, "a map that is not 0, as there is nothing to learn", "only zeros")
        noise = real_array(noise, "noise", owner, "()", 0)
        if noise < 0:
            raise ArgumentError("noise", owner, "a variance, at least 0", float(noise))
        root, inverse_root, spread = symmetric_roots(covariance)
        left, sizes, right = signed_svd(planted @ root)
        self.covariance, self.planted, self.noise = jnp.asarray(covariance), jnp.asarray(planted), jnp.asarray(noise)
        self.root, self.inverse_root, self.spread = jnp.asarray(root), jnp.asarray(inverse_root), jnp.asarray(spread)
        self.left, self.sizes, self.right = jnp.asarray(left), jnp.asarray(sizes), jnp.asarray(right)

    @property
    def outputs(self) -> int:
        """m."""
        return self.planted.shape[0]

    @property
    def inputs(self) -> int:
        """d."""
        return self.planted.shape[1]

    @property
    def rank(self) -> int:
        """Rank of A: the number of sizes above their rounding."""
        sizes = np.asarray(self.sizes)
        return int(np.sum(sizes > 10 * np.finfo(float).eps * max(self.planted.shape) * sizes[0]))

    @property
    def target(self) -> Float[Array, "m d"]:
        """M = A Sigma^(1/2), what the whitened factors must multiply to."""
        return self.planted @ self.root

    kind = "AttentionRegression"

    @property
    def parts(self) -> dict[str, "AttentionRegression"]:
        return {"problem": self}

    def infimum(self) -> Infimum:
        value = float(self.outputs * self.noise)
        return Infimum(value, attained=True, why="m sigma^2, attained on every factorisation U Sigma V = A")

    def check_layer(self, layer: AttentionLayer, owner: str) -> AttentionLayer:
        """The layer, or an error that names the block of wrong shape or with a value that is not finite."""
        m, d = self.planted.shape
        for name, block, shape in (("value", layer.value, (m, d)), ("key_query", layer.key_query, (d, d))):
            if block.shape != shape:
                raise ArgumentError(name, owner, f"of shape {shape}", f"shape {block.shape}")
            if not bool(jnp.all(jnp.isfinite(block))):
                raise ArgumentError(name, owner, "finite", "a value that is not")
        return layer

    def check_shape(self, truth: "AttentionRegression | None", owner: str) -> None:
        """Raise where `truth` is not a problem with as many inputs and outputs as this one."""
        if truth is None:
            return
        shape = getattr(getattr(truth, "planted", None), "shape", type(truth).__name__)
        if shape != self.planted.shape:
            required = f"an AttentionRegression with a planted map of shape {self.planted.shape}"
            raise ArgumentError("truth", owner, required, f"{shape}")

    def whiten(self, layer: AttentionLayer) -> Float[Array, "rows d"]:
        """W = [U Sigma^(1/2); (Sigma^(1/2) V Sigma^(1/2))']."""
        return jnp.concatenate([layer.value @ self.root, (self.root @ layer.key_query @ self.root).T])

    def unwhiten(self, whitened: Float[Array, "rows d"]) -> AttentionLayer:
        """The layer of a point in whitened coordinates."""
        m, d = self.planted.shape
        if whitened.shape != (m + d, d):
            required = f"of shape {(m + d, d)}: U above the transpose of V"
            raise ArgumentError("whitened", "AttentionRegression.unwhiten", required, f"shape {whitened.shape}")
        upper, lower = whitened[: self.outputs], whitened[self.outputs :]
        return AttentionLayer(upper @ self.inverse_root, self.inverse_root @ lower.T @ self.inverse_root)

    def residual(self, whitened: Float[Array, "rows d"]) -> Float[Array, "m d"]:
        """(U Sigma V - A) Sigma^(1/2), formed before any square: its rounding is 1e-16 of the target."""
        return whitened[: self.outputs] @ whitened[self.outputs :].T - self.target

    def excess(self, layer: AttentionLayer) -> Float[Array, ""]:
        """L - L*, never from L."""
        return self.whitened_excess(self.whiten(layer))

    def loss(self, layer: AttentionLayer) -> Float[Array, ""]:
        return self.outputs * self.noise + self.excess(layer)

    def regulariser(self, layer: AttentionLayer, balance: AbstractBalance = BALANCE) -> Float[Array, ""]:
        return self.whitened_regulariser(self.whiten(layer), balance)

    def gradient(self, layer: AttentionLayer, balance: AbstractBalance = BALANCE) -> AttentionLayer:
        """Gradient of excess + regulariser by U and V."""
        return self.by_layer(self.whitened_gradient(self.whiten(layer), balance))

    def by_layer(self, slope: Float[Array, "rows d"]) -> AttentionLayer:
        """A gradient by W as one by U and V."""
        upper, lower = slope[: self.outputs], slope[self.outputs :]
        return AttentionLayer(upper @ self.root, self.root @ lower.T @ self.root)

    def by_whitened(self, gradient: AttentionLayer) -> Float[Array, "rows d"]:
        """A gradient by U and V as one by W."""
        back = self.inverse_root
        return jnp.concatenate([gradient.value @ back, (back @ gradient.key_query @ back).T])

    def whitened_excess(self, whitened: Float[Array, "rows d"]) -> Float[Array, ""]:
        return jnp.sum(self.residual(whitened) ** 2)

    def whitened_regulariser(
        self, whitened: Float[Array, "rows d"], balance: AbstractBalance = BALANCE
    ) -> Float[Array, ""]:
        return balance.value(whitened[: self.outputs], whitened[self.outputs :])

    def whitened_pull(self, whitened: Float[Array, "rows d"], balance: AbstractBalance = BALANCE) -> Array:
        """The gradient of the regulariser by W."""
        return jnp.concatenate(balance.gradient(whitened[: self.outputs], whitened[self.outputs :]))

    def whitened_gradient(
        self, whitened: Float[Array, "rows d"], balance: AbstractBalance = BALANCE
    ) -> Float[Array, "rows d"]:
        """Gradient by W of excess + regulariser; with `Balance()`, the default, it is W W'W - 2 J W."""
        residual = self.residual(whitened)
        plain = 2 * residual @ whitened[self.outputs :], 2 * residual.T @ whitened[: self.outputs]
        return jnp.concatenate(plain) + self.whitened_pull(whitened, balance)
