"""Joint training of attention and decoder: both blocks of the gradient with a scale of their own, in token coefficients."""

from typing import Any, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..errors import ArgumentError, DegenerateSample
from ..logspace import log_sum
from .base import Infimum
from .check import real_array, sign_labels, warn_of_rounded
from .classification import Classification
from .losses import AbstractLoss, Correlation, Squared
from .tokens import LARGEST, TokenSelection, log_pull


class JointTokens(eqx.Module):
    r"""Sequences of tokens with labels, where attention $W$ and decoder $u$ are trained together.

    The output is $z_i = \sum_\tau s_{i\tau}\gamma_{i\tau}$ with $s_i = \mathrm{softmax}(X_i W q_i)$ and scores $\gamma_{i\tau} = y_i x_{i\tau}^\top u$ that
    move during training. `optimal` names the token of each sample that carries its label: it defines the references and no
    step ever looks at it.

    **Arguments:** `tokens` (n, T, d); `labels` (n,); `optimal` (n,); `queries` (n, d), by default the first token of each sample.
    """

    tokens: Float[Array, "n T d"]
    queries: Float[Array, "n d"]
    labels: Float[Array, "n"]
    optimal: Int[Array, "n"]

    def __init__(self, tokens: object, labels: object, optimal: object, *, queries: object = None):
        warn_of_rounded("JointTokens", tokens=tokens)
        tokens = real_array(tokens, "tokens", "JointTokens", "(n, T, d)", 3, LARGEST)
        n, length, d = tokens.shape
        if length < 2:
            raise ArgumentError("tokens", "JointTokens", "at least two tokens per sample", f"T = {length}")
        labels = sign_labels(labels, "JointTokens", n)
        queries = real_array(
            tokens[:, 0] if queries is None else queries, "queries", "JointTokens", "(n, d)", 2, LARGEST
        )
        if queries.shape != (n, d):
            raise ArgumentError("queries", "JointTokens", f"of shape {(n, d)}", f"shape {queries.shape}")
        zero = np.flatnonzero(~queries.any(axis=1))
        if len(zero):
            raise DegenerateSample(int(zero[0]), "JointTokens")
        self.tokens, self.queries, self.labels = jnp.asarray(tokens), jnp.asarray(queries), jnp.asarray(labels)
        self.optimal = jnp.asarray(_indices(optimal, n, length))

    def attention(self, selection: Any = None, samples: Any = None) -> TokenSelection:
        """Token selection whose margins the W-program constrains: for `selection` (the optimal one by default), on `samples`."""
        n, length, _ = self.tokens.shape
        chosen = np.asarray(self.optimal) if selection is None else _indices(selection, n, length)
        kept = np.arange(n) if samples is None else np.asarray(samples)
        return TokenSelection(self.tokens[kept], queries=self.queries[kept], scores=np.eye(length)[chosen[kept]])

    def decoder(self, selection: Any = None) -> Classification:
        """Linear classification of the selected tokens: its maximum margin is the u-program."""
        n, length, _ = self.tokens.shape
        chosen = np.asarray(self.optimal) if selection is None else _indices(selection, n, length)
        return Classification(self.tokens[np.arange(n), chosen], self.labels)

    def check_loss(self, loss: AbstractLoss) -> None:
        if isinstance(loss, Correlation | Squared):
            required = "decreasing and bounded below on `JointTokens`, where the decoder is trained"
            fix = "use Exponential() or Logistic()"
            raise ArgumentError("loss", "Setting or train_joint", required, f"{type(loss).__name__}()", fix)

    def check_optimiser(self, optimiser: Any) -> None:
        fix = "train_joint(setting.data, BlockNormalised(0.05), steps=1000)"
        raise ArgumentError("setting", "train", "one with a fixed decoder", "`JointTokens` data", fix)

    def infimum(self, loss: AbstractLoss) -> Infimum:
        why = "the loss tends to 0 as the decoder grows, which needs tokens that some decoder classifies"
        return Infimum(0.0, attained=False, why=why)


def _indices(selection: Any, n: int, length: int) -> np.ndarray:
    chosen = np.asarray(selection)
    if chosen.shape != (n,) or chosen.dtype.kind not in "iu" or chosen.min() < 0 or chosen.max() >= length:
        raise ArgumentError("optimal", "JointTokens", f"{n} token indices in 0..{length - 1}", repr(selection))
    return chosen


class JointStart(eqx.Module):
    """Where joint training starts: any decoder u and attention W. What lies outside the span of the tokens stays as it is.

    **Arguments:** `u` (d,); `W` (d, d).
    """

    u: Float[Array, "d"]
    W: Float[Array, "d d"]

    def __init__(self, u: Any, W: Any):
        u = real_array(u, "u", "JointStart", "(d,)", 1)
        W = real_array(W, "W", "JointStart", "(d, d)", 2)
        if W.shape != (len(u), len(u)):
            raise ArgumentError("W", "JointStart", f"of shape {(len(u), len(u))}", f"shape {W.shape}")
        self.u, self.W = jnp.asarray(u), jnp.asarray(W)


def normal_start(data: JointTokens, seed: int, scale: float) -> JointStart:
    """Independent normal entries of standard deviation `scale` in u and then in W."""
    if not 0 < scale < np.inf:
        raise ArgumentError("scale", "normal_start", "positive and finite", scale)
    return _normal(data, np.random.default_rng(seed), scale)


def _normal(data: JointTokens, rng: np.random.Generator, scale: float) -> JointStart:
    d = data.tokens.shape[-1]
    return JointStart(scale * rng.standard_normal(d), scale * rng.standard_normal((d, d)))


class JointPoint(eqx.Module):
    r"""Parameters in token coefficients: $u = u_0 + \sum b_{i\tau}x_{i\tau}$ and $W = W_0 + \sum c_{i\tau}x_{i\tau}q_i^\top$.

    The scores and logits they produce travel with them; training never leaves these spans. A displacement has the same form.
    """

    u: Float[Array, "n T"]
    W: Float[Array, "n T"]
    scores: Float[Array, "n T"]
    logits: Float[Array, "n T"]


class Block(eqx.Module):
    """One block of the gradient: -grad L = exp(log_scale) * slope, and log |slope|; -inf where the block is exactly zero."""

    log_scale: Float[Array, ""]
    slope: Float[Array, "n T"]
    image: Float[Array, "n T"]
    log_norm: Float[Array, ""]

    @property
    def log_gradient_norm(self) -> Float[Array, ""]:
        return self.log_scale + self.log_norm


class JointReading(eqx.Module):
    """The joint loss near one point; the W-block may be smaller than the u-block by any factor without underflow."""

    log_loss: Float[Array, ""]
    outputs: Float[Array, "n"]
    log_share: Float[Array, "n T"]
    u: Block
    W: Block

    @property
    def log_gradient_norm(self) -> Float[Array, ""]:
        """log |grad L| over both blocks."""
        return 0.5 * jnp.logaddexp(2 * self.u.log_gradient_norm, 2 * self.W.log_gradient_norm)


class TokenGram(eqx.Module):
    """The inner products of tokens (`plain`, for u) and of token-query products (`paired`, for W): cost independent of d.

    A start other than zero enters by the scores and logits it gives and by its squared norms.
    """

    plain: Float[Array, "N N"]
    paired: Float[Array, "N N"]
    labels: Float[Array, "n"]
    first_scores: Float[Array, "n T"]
    first_logits: Float[Array, "n T"]
    first_squares: Float[Array, "2"]

    def __init__(self, data: JointTokens, start: JointStart | None = None):
        n, length, d = data.tokens.shape
        flat = data.tokens.reshape(n * length, d)
        queries = jnp.repeat(data.queries, length, axis=0)
        self.plain = flat @ flat.T
        self.paired = self.plain * (queries @ queries.T)
        self.labels = data.labels
        start = JointStart(np.zeros(d), np.zeros((d, d))) if start is None else start
        if start.u.shape != (d,):
            raise ArgumentError("start", "TokenGram", f"a decoder of length {d}", f"length {len(start.u)}")
        self.first_scores = data.labels[:, None] * (data.tokens @ start.u)
        self.first_logits = jnp.einsum("ntd,de,ne->nt", data.tokens, start.W, data.queries)
        self.first_squares = jnp.array([jnp.sum(start.u**2), jnp.sum(start.W**2)])

    def zeros(self, data: JointTokens) -> JointStart:
        d = data.tokens.shape[-1]
        return JointStart(np.zeros(d), np.zeros((d, d)))

    def random(self, data: JointTokens, rng: np.random.Generator, scale: float) -> JointStart:
        return _normal(data, rng, scale)

    def linearise(self, params: Any, data: JointTokens) -> NoReturn:
        """Refused: margins are linear in one weight, and here two move."""
        fix = "`TokenGram(data, start).read(point, loss)` reads both blocks; `train_joint(data, rule, steps=1000)` trains them"
        raise ArgumentError("setting", "read", "one with a fixed decoder", "`JointTokens` data", fix)

    def scores(self, u: Float[Array, "n T"]) -> Float[Array, "n T"]:
        """What token coefficients of u add to the scores."""
        return self.labels[:, None] * (self.plain @ u.ravel()).reshape(u.shape)

    def logits(self, W: Float[Array, "n T"]) -> Float[Array, "n T"]:
        """What token coefficients of W add to the logits."""
        return (self.paired @ W.ravel()).reshape(W.shape)

    def point(self, u: Float[Array, "n T"], W: Float[Array, "n T"]) -> JointPoint:
        return JointPoint(u, W, self.first_scores + self.scores(u), self.first_logits + self.logits(W))

    def norms(self, point: JointPoint) -> tuple[Array, Array]:
        """|u| and |W|."""
        u = jnp.vdot(point.u, self.labels[:, None] * (point.scores + self.first_scores)) + self.first_squares[0]
        W = jnp.vdot(point.W, point.logits + self.first_logits) + self.first_squares[1]
        return jnp.sqrt(jnp.maximum(u, 0.0)), jnp.sqrt(jnp.maximum(W, 0.0))

    def length(self, move: JointPoint) -> Float[Array, ""]:
        """Length of a displacement of both blocks together."""
        square = jnp.vdot(move.u, self.labels[:, None] * move.scores) + jnp.vdot(move.W, move.logits)
        return jnp.sqrt(jnp.maximum(square, 0.0))

    def read(self, point: JointPoint, loss: AbstractLoss) -> JointReading:
        """Loss and both gradient blocks, each with its own scale."""
        count = jnp.log(point.scores.shape[0])
        log_share = jax.nn.log_softmax(point.logits, axis=1)
        share = jnp.exp(log_share)
        outputs = jnp.sum(share * point.scores, axis=1)
        log_slope = loss.log_slope(outputs)
        top = jnp.max(log_slope)
        towards = (jnp.exp(log_slope - top) * self.labels)[:, None] * share
        image = self.scores(towards)
        u = Block(top - count, towards, image, _log_norm(jnp.vdot(towards, self.labels[:, None] * image)))
        log_weights, sign = log_pull(point.scores, log_share, loss)
        top = jnp.max(log_weights)
        push = -sign * jnp.exp(log_weights - jnp.where(jnp.isfinite(top), top, 0.0))
        image = self.logits(push)
        W = Block(top - count, push, image, _log_norm(jnp.vdot(push, image)))
        return JointReading(log_sum(loss.log_value(outputs)) - count, outputs, log_share, u, W)

    def vanished(self, reading: JointReading) -> Bool[Array, ""]:
        """Whether both blocks of the gradient are 0 up to the rounding of the inner products they are made of."""

        def zero(block: Block, matrix: Array) -> Array:
            terms = jnp.vdot(jnp.abs(block.slope).ravel(), jnp.sqrt(jnp.diag(matrix)))
            return jnp.exp(2 * block.log_norm) <= len(matrix) * jnp.finfo(float).eps * terms**2

        return zero(reading.u, self.plain) & zero(reading.W, self.paired)


def _log_norm(square: Float[Array, ""]) -> Float[Array, ""]:
    return jnp.where(square > 0, 0.5 * jnp.log(jnp.where(square > 0, square, 1.0)), -jnp.inf)


def marked_tokens(
    n: int = 10, length: int = 2, d: int = 200, noise: float = 0.1, factor: float = 3.0, seed: int = 0
) -> JointTokens:
    """Normal tokens; one per sample is `factor` times longer and its side of a random hyperplane is the label.

    >>> data = marked_tokens()
    >>> data.tokens.shape, int(data.optimal.sum())
    ((10, 2, 200), 4)
    """
    for name, value in {"n": n, "length": length - 1, "d": d, "noise": noise, "factor": factor - 1}.items():
        if not value > 0:
            raise ArgumentError(name, "marked_tokens", "above 1" if name in ("length", "factor") else "positive", value)
    rng = np.random.default_rng(seed)
    normal = rng.standard_normal(d)
    normal /= np.linalg.norm(normal)
    tokens = noise * rng.standard_normal((n, length, d))
    where = rng.integers(0, length, n)
    tokens[np.arange(n), where] *= factor
    labels = np.where(tokens[np.arange(n), where] @ normal >= 0, 1.0, -1.0)
    return JointTokens(tokens, labels, where)
