"""Token selection with a diagonal weight matrix: the margins are linear in a vector of d numbers."""

import numpy as np
from jaxtyping import Array, Float

from ..errors import ArgumentError
from .base import Infimum, MarginData, Weighing
from .losses import AbstractLoss
from .tokens import TokenSelection


class DiagonalTokens(MarginData):
    r"""`TokenSelection` with $W = \mathrm{Diag}(\beta)$: margins $\langle B_k, \beta\rangle$ with $B_k = (x_{opt} - x) \odot q$.

    The loss is that of the token data; only the set of admissible weights is smaller, so data that a full matrix separates
    need not be separable here.

    >>> import penchant as pt
    >>> data = DiagonalTokens(pt.TokenSelection([[[1.0, 2.0], [0.0, 5.0]]], [1], [1.0, 0.0], queries=[[3.0, 1.0]]))
    >>> data.features().tolist()                               # (1, -3) * (3, 1)
    [[3.0, -3.0]]
    """

    tokens: TokenSelection

    def __init__(self, tokens: object):
        if not isinstance(tokens, TokenSelection):
            raise ArgumentError("tokens", "DiagonalTokens", "TokenSelection", type(tokens).__name__)
        rows, columns = tokens.weight_shape
        if rows != columns:
            wanted = "tokens and queries of one dimension"
            raise ArgumentError("tokens", "DiagonalTokens", wanted, f"{rows} and {columns}")
        self.tokens = tokens

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return (self.tokens.weight_shape[0],)

    @property
    def names(self) -> dict[str, str]:
        return {"norm": "l2", "margin": "(x_opt - x)^T Diag(w) q"}

    def features(self) -> Float[Array, "N d"]:
        """One row per margin."""
        n, others = self.tokens.others.shape
        return (self.tokens.differences() * self.tokens.queries[:, None]).reshape(n * others, -1)

    def margins(self, weight: Float[Array, "d"]) -> Float[Array, "N"]:
        return self.features() @ weight

    def adjoint(self, coefficients: Float[Array, "N"]) -> Float[Array, "d"]:
        return coefficients @ self.features()

    def sizes(self, weight: np.ndarray, coefficients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As of the token data, with a diagonal matrix."""
        of_margins, of_pull = self.tokens.sizes(np.diag(weight), coefficients)
        return of_margins, of_pull.diagonal()

    def gram(self) -> Float[Array, "N N"]:
        features = self.features()
        return features @ features.T

    def constrained(self) -> np.ndarray:
        return self.tokens.constrained()

    def weigh(self, margins: Float[Array, "N"], loss: AbstractLoss) -> Weighing:
        return self.tokens.weigh(margins, loss)

    def check_loss(self, loss: AbstractLoss) -> None:
        self.tokens.check_loss(loss)

    def infimum(self, loss: AbstractLoss) -> Infimum:
        return self.tokens.infimum(loss)
