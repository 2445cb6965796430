"""Data for joint training on which one sample does not support the decoder, as near to orthogonal as such data can be."""

import numpy as np

from ..errors import ArgumentError
from .joint import JointTokens


def leaning_tokens(n: int = 6, lean: float = 0.13, length: float = 0.1, seed: int = 0) -> JointTokens:
    r"""Two tokens per sample, the first one optimal; the optimal tokens (times their labels) of all samples but the last lean away from one another, towards the last.

    Inner products of optimal tokens are in $(0.9, 1]$ times $\mp$`lean` `length`$^2$; the other tokens are half as long and
    orthogonal to everything. From $(2n - 3)\,$`lean` $> 1$ on, the decoder that separates the others classifies the last sample
    with room to spare, so that it is no support vector; near-orthogonality with constant $2n$ would need $2n\,$`lean` $\le 1$.

    >>> data = leaning_tokens()
    >>> data.tokens.shape, float(abs(data.tokens).max()) < 0.1
    ((6, 2, 12), True)
    """
    if n < 3:
        raise ArgumentError("n", "leaning_tokens", "at least 3", n)
    if not 0 < lean * (n - 2) < 1:
        raise ArgumentError("lean", "leaning_tokens", f"between 0 and 1/(n - 2) = {1 / (n - 2):.4g}", lean)
    if not 0 < length < np.inf:
        raise ArgumentError("length", "leaning_tokens", "positive and finite", length)
    rng = np.random.default_rng(seed)
    products = -lean * (1 - 0.1 * rng.random((n, n)))
    products[-1] *= -1
    products = np.tril(products, -1)
    gram = np.eye(n) + products + products.T
    turn = np.linalg.qr(rng.standard_normal((2 * n, 2 * n)))[0]
    labels = rng.choice([-1.0, 1.0], n)
    marked = labels[:, None] * np.linalg.cholesky(gram) @ turn[:n]
    tokens = length * np.stack([marked, 0.5 * turn[n:]], axis=1)
    return JointTokens(tokens, labels, np.zeros(n, int))
