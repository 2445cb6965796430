r"""Products as weights: the same model, trained in factors, prefers other solutions.

`KeyQuery` trains $W = KQ^\top$ and gradient flow then minimises the nuclear norm; `Hadamard` trains $\beta = a \odot b$ and the norm is
$\ell_1$; `PlusMinus` is `Hadamard` in rotated coordinates. All are Euclidean in their factors, so only the margins and their
Jacobian are special: in margin space $JJ^\top$ has a closed form.

Token selection with a diagonal weight matrix: the margins are linear in a vector of d numbers.
"""

from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ArgumentError
from .base import Data, Infimum, MarginData, Rows, Weighing
from .check import is_whole
from .losses import AbstractLoss
from .parametrisations import PlainMetric
from .tokens import TokenSelection


class Factors(eqx.Module):
    """Key and query matrices, one row per input dimension and one column per unit of width."""

    key: Float[Array, "*b d r"]
    query: Float[Array, "*b e r"]


class KeyQuery(PlainMetric):
    r"""$W = KQ^\top$ with K (d, width) and Q (e, width); the width is by default the larger dimension.

    **Hypotheses:** gradient flow from a small start minimises the nuclear norm (Sheen et al. 2024, for aligned data; conjectured
    otherwise). $K^\top K - Q^\top Q$ is conserved. K = Q = 0 is a stationary point: start with a seed.
    """

    width: int | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        if self.width is not None and not (is_whole(self.width) and self.width >= 1):
            raise ArgumentError("width", "KeyQuery", "a positive integer or None", repr(self.width))

    def columns(self, data: Data) -> int:
        """The width in use."""
        return max(data.weight_shape) if self.width is None else self.width

    def zeros(self, data: Data) -> Factors:
        rows, columns = _matrix_shape(data, "KeyQuery")
        return Factors(*jax.device_put([np.zeros((side, self.columns(data))) for side in (rows, columns)]))

    def random(self, data: Data, rng: np.random.Generator, scale: float) -> Factors:
        rows, columns = _matrix_shape(data, "KeyQuery")
        drawn = [scale * rng.standard_normal((side, self.columns(data))) for side in (rows, columns)]
        return Factors(*jax.device_put(drawn))

    def weight(self, params: Factors, data: TokenSelection) -> Float[Array, "d e"]:
        return params.key @ params.query.T

    def named(self, params: Factors, data: TokenSelection) -> dict[str, Array]:
        return {"K": params.key, "Q": params.query}

    def linearise(self, params: Factors, data: TokenSelection) -> tuple[Array, Callable[[Array], Factors]]:
        differences = data.differences()
        shifted, keyed = differences @ params.key, data.queries @ params.query
        margins = jnp.einsum("ntr,nr->nt", shifted, keyed).ravel()

        def pull(cotangent: Array) -> Factors:
            gathered = jnp.einsum("ntd,nt->nd", differences, cotangent.reshape(shifted.shape[:2]))
            return Factors(gathered.T @ keyed, data.queries.T @ (gathered @ params.key))

        return margins, pull

    def gram(self, params: Factors, data: TokenSelection) -> Float[Array, "N N"]:
        n, others = data.others.shape
        differences = data.differences().reshape(n * others, -1)
        repeat = lambda rows: jnp.repeat(rows, others, axis=0)
        inner = lambda rows: rows @ rows.T
        inputs, outputs = inner(data.queries), inner(data.queries @ params.query)
        wide = lambda square: repeat(repeat(square).T).T
        return inner(differences) * wide(outputs) + inner(differences @ params.key) * wide(inputs)

    def conserved(self, params: Factors) -> Float[Array, "r r"]:
        """K'K - Q'Q, which gradient flow cannot change."""
        return params.key.T @ params.key - params.query.T @ params.query


class Pair(eqx.Module):
    """Two vectors of the length of the weight."""

    first: Float[Array, "*b d"]
    second: Float[Array, "*b d"]


def check_moving(params: Pair) -> None:
    """Refuse a start with a coordinate that can never move; a start of zeros alone is a stationary point, and the run says so."""
    first, second = (np.atleast_2d(np.asarray(leaf)) for leaf in (params.first, params.second))
    frozen = (first == 0) & (second == 0)
    found = np.argwhere(frozen & ~frozen.all(axis=1, keepdims=True))
    if len(found):
        where = f"0 in both factors at coordinate {found[0][1]}"
        fix = "a coordinate that starts there never moves: give one of the two factors a small value"
        raise ArgumentError("start", "train", "non-zero in one of the two factors", where, fix)


class Hadamard(PlainMetric):
    r"""$\beta = a \odot b$: the diagonals of K and Q, or a two-layer diagonal linear network.

    **Hypotheses:** gradient flow from a small start minimises the l1 norm. $a^2 - b^2$ is conserved, so a coordinate with
    a = b = 0 never moves.
    """

    def zeros(self, data: Data) -> Pair:
        return Pair(*jax.device_put(list(np.zeros((2, _vector_length(data, "Hadamard"))))))

    def random(self, data: Data, rng: np.random.Generator, scale: float) -> Pair:
        drawn = scale * rng.standard_normal((2, _vector_length(data, "Hadamard")))
        return Pair(*jax.device_put(list(drawn)))

    def one_sided(self, data: Data, scale: object, rng: np.random.Generator) -> Pair:
        """Equation (5) of the paper: in each coordinate one factor is 0 and the other is sqrt(2) `scale`, drawn by a coin."""
        scales = _scales(scale, _vector_length(data, "Hadamard"), "Hadamard.one_sided")
        picked = rng.integers(0, 2, len(scales)).astype(bool)
        return Pair(*jax.device_put([np.where(chosen, np.sqrt(2) * scales, 0.0) for chosen in (picked, ~picked)]))

    def weight(self, params: Pair, data: Data) -> Float[Array, "d"]:
        return params.first * params.second

    def named(self, params: Pair, data: Data) -> dict[str, Array]:
        return {"a": params.first, "b": params.second}

    def linearise(self, params: Pair, data: Data) -> tuple[Array, Callable[[Array], Pair]]:
        def pull(cotangent: Array) -> Pair:
            direction = data.adjoint(cotangent)
            return Pair(direction * params.second, direction * params.first)

        return data.margins(params.first * params.second), pull

    def gram(self, params: Pair, data: Data) -> Float[Array, "N N"]:
        columns = jax.vmap(data.margins)(jnp.diag(jnp.hypot(params.first, params.second)))
        return columns.T @ columns

    def conserved(self, params: Pair) -> Float[Array, "d"]:
        """a^2 - b^2, coordinate by coordinate."""
        return (params.first - params.second) * (params.first + params.second)

    def twin(self, params: Pair) -> Pair:
        """The same point for `PlusMinus`: (a + b, a - b)/sqrt(2), defined for every start (Lemma 4.1)."""
        return Pair((params.first + params.second) / jnp.sqrt(2.0), (params.first - params.second) / jnp.sqrt(2.0))


class PlusMinus(PlainMetric):
    r"""$\beta = (w_+^2 - w_-^2)/2$: `Hadamard` rotated by 45 degrees, with the same flow of $\beta$; $w_+ \odot w_-$ is conserved."""

    zeros, random, gram = Hadamard.zeros, Hadamard.random, Hadamard.gram  # a rotation changes none of them

    def weight(self, params: Pair, data: Data) -> Float[Array, "d"]:
        return (params.first - params.second) * (params.first + params.second) / 2

    def named(self, params: Pair, data: Data) -> dict[str, Array]:
        return {"w_plus": params.first, "w_minus": params.second}

    def linearise(self, params: Pair, data: Data) -> tuple[Array, Callable[[Array], Pair]]:
        def pull(cotangent: Array) -> Pair:
            direction = data.adjoint(cotangent)
            return Pair(direction * params.first, -direction * params.second)

        return data.margins(self.weight(params, data)), pull

    def conserved(self, params: Pair) -> Float[Array, "d"]:
        """w+ w-, coordinate by coordinate."""
        return params.first * params.second


def selection(data: object) -> TokenSelection | None:
    """The tokens that a matrix, or the diagonal of one, is trained to select; None for other data."""
    found = data.tokens if isinstance(data, DiagonalTokens) else data
    return found if isinstance(found, TokenSelection) else None


def _matrix_shape(data: Data, owner: str) -> tuple[int, int]:
    if len(data.weight_shape) != 2:
        wanted = "TokenSelection, with a matrix as weight"
        raise ArgumentError("data", f"a Setting with {owner}", wanted, type(data).__name__)
    return data.weight_shape


def _vector_length(data: Data, owner: str) -> int:
    if len(data.weight_shape) != 1:
        wanted, found = "data with a vector as weight", type(data).__name__
        fix = "wrap token data as `DiagonalTokens(data)`: its weight is the diagonal of W"
        raise ArgumentError("data", f"a Setting with {owner}", wanted, found, fix)
    return data.weight_shape[0]


def _scales(scale: object, size: int, owner: str) -> np.ndarray:
    scales = np.broadcast_to(np.asarray(scale, float), (size,))
    bad = np.flatnonzero(~(scales > 0))
    if len(bad):
        found, fix = (
            f"{scales[bad[0]]:g} in coordinate {bad[0]}",
            "a coordinate that starts at 0 in both factors never moves",
        )
        raise ArgumentError("scale", owner, "positive in every coordinate", found, fix)
    return scales


class DiagonalTokens(Rows, MarginData):
    r"""`TokenSelection` with $W = \mathrm{Diag}(\beta)$: margins $\langle B_k, \beta\rangle$ with $B_k = (x_{opt} - x) \odot q$.

    The loss is that of the token data; only the set of admissible weights is smaller, so data that a full matrix separates
    need not be separable here.

    >>> import penchant as pt
    >>> data = DiagonalTokens(pt.TokenSelection([[[1.0, 2.0], [0.0, 5.0]]], [1], [1.0, 0.0], queries=[[3.0, 1.0]]))
    >>> data.features().tolist()                               # (1, -3) * (3, 1)
    [[3.0, -3.0]]
    """

    names: ClassVar[dict[str, str]] = {"norm": "l2", "margin": "(x_opt - x)^T Diag(w) q"}
    tokens: TokenSelection

    def __init__(self, tokens: TokenSelection):
        rows, columns = tokens.weight_shape
        if rows != columns:
            wanted = "tokens and queries of one dimension"
            raise ArgumentError("tokens", "DiagonalTokens", wanted, f"{rows} and {columns}")
        self.tokens = tokens

    @property
    def table(self) -> Float[Array, "N d"]:
        return self.features()

    def features(self) -> Float[Array, "N d"]:
        """One row per margin."""
        n, others = self.tokens.others.shape
        return (self.tokens.differences() * self.tokens.queries[:, None]).reshape(n * others, -1)

    def sizes(self, weight: np.ndarray, coefficients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As of the token data, with a diagonal matrix."""
        of_margins, of_pull = self.tokens.sizes(np.diag(weight), coefficients)
        return of_margins, of_pull.diagonal()

    def constrained(self) -> np.ndarray:
        return self.tokens.constrained()

    def weigh(self, margins: Float[Array, "N"], loss: AbstractLoss) -> Weighing:
        return self.tokens.weigh(margins, loss)

    def check_loss(self, loss: AbstractLoss) -> None:
        self.tokens.check_loss(loss)

    def infimum(self, loss: AbstractLoss) -> Infimum:
        return self.tokens.infimum(loss)
