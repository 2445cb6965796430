"""Joint training of attention and decoder: both blocks of the gradient with a scale of their own, in token coefficients."""

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from ..door import LISTED
from ..errors import ArgumentError, DegenerateSample
from ..logspace import log_sum
from .base import RESOLUTION, MarginData, Setting, Weighing
from .check import real_array, sign_labels, warn_of_rounded
from .classification import Classification
from .losses import AbstractLoss, Correlation, Exponential, Squared
from .tokens import LARGEST, TokenSelection, log_pull

_FLAT = 1e-8  # |theta| |grad log L| below which a step that rounding swallows is at a minimum


class JointTokens(MarginData):
    r"""Sequences of tokens with labels, where attention $W$ and decoder $u$ are trained together.

    The output is $z_i = \sum_\tau s_{i\tau}\gamma_{i\tau}$ with $s_i = \mathrm{softmax}(X_i W q_i)$ and scores $\gamma_{i\tau} = y_i x_{i\tau}^\top u$ that
    move during training; the margin of a sample is its output. `optimal` names the token of each sample that carries its label: it defines the references and no
    step ever looks at it.

    **Arguments:** `tokens` (n, T, d); `labels` (n,); `optimal` (n,); `queries` (n, d), by default the first token of each sample.
    """

    refused: ClassVar[tuple[type, ...]] = (Correlation, Squared)
    asked = (
        "decreasing and bounded below on `JointTokens`, where the decoder is trained",
        "use Exponential() or Logistic()",
    )
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
        queries = tokens[:, 0] if queries is None else queries
        queries = real_array(queries, "queries", "JointTokens", "(n, d)", 2, LARGEST)
        if queries.shape != (n, d):
            raise ArgumentError("queries", "JointTokens", f"of shape {(n, d)}", f"shape {queries.shape}")
        zero = np.flatnonzero(~queries.any(axis=1))
        if len(zero):
            raise DegenerateSample(int(zero[0]), "JointTokens")
        parts = tokens, queries, labels, _indices(optimal, n, length)
        self.tokens, self.queries, self.labels, self.optimal = jax.device_put(parts)

    def attention(
        self, selection: ArrayLike | None = None, samples: ArrayLike | Sequence[int] | None = None
    ) -> TokenSelection:
        """Token selection whose margins the W-program constrains: for `selection` (the optimal one by default), on `samples`."""
        n, length, _ = self.tokens.shape
        chosen = np.asarray(self.optimal) if selection is None else _indices(selection, n, length)
        kept = np.arange(n) if samples is None else np.asarray(samples)
        return TokenSelection(self.tokens[kept], queries=self.queries[kept], scores=np.eye(length)[chosen[kept]])

    def decoder(self, selection: ArrayLike | None = None) -> Classification:
        """Linear classification of the selected tokens: its maximum margin is the u-program."""
        n, length, _ = self.tokens.shape
        chosen = np.asarray(self.optimal) if selection is None else _indices(selection, n, length)
        return Classification(self.tokens[np.arange(n), chosen], self.labels)

    def check_parametrisation(self, parametrisation: object) -> None:
        """Two weights are trained, of which neither makes the margins alone."""
        if not hasattr(parametrisation, "blocks"):
            fix, found = "joint_setting(data)", type(parametrisation).__name__
            raise ArgumentError("parametrisation", "Setting", "`TokenGram` on `JointTokens` data", found, fix)

    def check_optimiser(self, optimiser: object) -> None:
        """Of one weight or of blocks: the parametrisation decides."""

    def constrained(self) -> np.ndarray:
        return np.ones(len(self.labels), bool)

    def weigh(self, margins: Float[Array, "n"], loss: AbstractLoss) -> Weighing:
        log_slope = loss.log_slope(margins)
        top = jnp.max(log_slope)
        return Weighing(log_sum(loss.log_value(margins)), top, jnp.exp(log_slope - top))


def _indices(selection: object, n: int, length: int) -> np.ndarray:
    chosen = np.asarray(selection) if LISTED.holds(selection) else np.empty(0)
    if chosen.shape != (n,) or chosen.dtype.kind not in "iu" or chosen.min() < 0 or chosen.max() >= length:
        raise ArgumentError("optimal", "JointTokens", f"{n} token indices in 0..{length - 1}", repr(selection))
    return chosen


class JointStart(eqx.Module):
    """Where joint training starts: any decoder u and attention W. What lies outside the span of the tokens stays as it is.

    **Arguments:** `u` (d,); `W` (d, d).
    """

    u: Float[Array, "d"]
    W: Float[Array, "d d"]

    def __init__(self, u: object, W: object):
        u = real_array(u, "u", "JointStart", "(d,)", 1)
        W = real_array(W, "W", "JointStart", "(d, d)", 2)
        if W.shape != (len(u), len(u)):
            raise ArgumentError("W", "JointStart", f"of shape {(len(u), len(u))}", f"shape {W.shape}")
        self.u, self.W = jax.device_put((u, W))


def normal_start(data: JointTokens, seed: int, scale: float) -> JointStart:
    """Independent normal entries of standard deviation `scale` in u and then in W."""
    if not 0 < scale < np.inf:
        raise ArgumentError("scale", "normal_start", "positive and finite", scale)
    rng, d = np.random.default_rng(seed), data.tokens.shape[-1]
    return JointStart(scale * rng.standard_normal(d), scale * rng.standard_normal((d, d)))


class Span(eqx.Module):
    """A weight in coefficients of what spans it, with the scores or logits it produces; a displacement and a slope have the same form."""

    coefficients: Float[Array, "*b n T"]
    image: Float[Array, "*b n T"]


class JointPoint(NamedTuple):
    r"""Both blocks in token coefficients: $u = u_0 + \sum b_{i\tau}x_{i\tau}$ with scores, $W = W_0 + \sum c_{i\tau}x_{i\tau}q_i^\top$ with logits.

    Training never leaves these spans.
    """

    u: Span
    W: Span


class Block(eqx.Module):
    """One block of the gradient: grad L = exp(log_scale) * slope, and log |slope|; -inf where the block is exactly zero."""

    log_scale: Float[Array, ""]
    slope: Span
    log_norm: Float[Array, ""]


class TokenGram(eqx.Module):
    """Decoder and attention in the inner products of tokens (`plain`, for u) and of token-query products (`paired`, for W): cost independent of d.

    A start other than zero enters by the scores and logits it gives and by its squared norms; what training adds is counted from it.
    """

    form = "plain weights"
    plain: Float[Array, "N N"]
    paired: Float[Array, "N N"]
    labels: Float[Array, "n"]
    start: JointStart
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
        self.start = JointStart(np.zeros(d), np.zeros((d, d))) if start is None else start
        if self.start.u.shape != (d,):
            raise ArgumentError("start", "TokenGram", f"a decoder of length {d}", f"length {len(self.start.u)}")
        self.first_scores = data.labels[:, None] * (data.tokens @ self.start.u)
        self.first_logits = jnp.einsum("ntd,de,ne->nt", data.tokens, self.start.W, data.queries)
        self.first_squares = jnp.array([jnp.sum(self.start.u**2), jnp.sum(self.start.W**2)])

    def zeros(self, data: JointTokens) -> JointPoint:
        zeros = jnp.zeros_like(self.first_scores)
        return JointPoint(Span(zeros, self.first_scores), Span(zeros, self.first_logits))

    def random(self, data: JointTokens, rng: np.random.Generator, scale: float) -> NoReturn:
        fix = "pass the start as `TokenGram(data, normal_start(data, seed, scale))`"
        raise ArgumentError("seed", "Setting.start with TokenGram", "None", "a seed", fix)

    def point(self, u: Float[Array, "n T"], W: Float[Array, "n T"]) -> JointPoint:
        """The point of these coefficients."""
        return JointPoint(Span(u, self.first_scores + self._scores(u)), Span(W, self.first_logits + self._logits(W)))

    def refresh(self, params: JointPoint) -> JointPoint:
        return self.point(params.u.coefficients, params.W.coefficients)

    def _scores(self, u: Float[Array, "n T"]) -> Float[Array, "n T"]:
        return self.labels[:, None] * (self.plain @ u.ravel()).reshape(u.shape)

    def _logits(self, W: Float[Array, "n T"]) -> Float[Array, "n T"]:
        return (self.paired @ W.ravel()).reshape(W.shape)

    def weight(self, params: JointPoint, data: JointTokens) -> np.ndarray:
        """W as a matrix."""
        added = np.einsum("nt,ntd->nd", params.W.coefficients, data.tokens).T @ np.asarray(data.queries)
        return added + np.asarray(self.start.W)

    def named(self, params: JointPoint, data: JointTokens) -> dict[str, np.ndarray]:
        added = np.einsum("nt,ntd->d", params.u.coefficients, data.tokens)
        return {"u": added + np.asarray(self.start.u), "W": self.weight(params, data)}

    def linearise(self, params: JointPoint, data: JointTokens) -> NoReturn:
        """Refused: margins are linear in one weight, and here two move."""
        fix = "`read(setting, params)` reads both blocks"
        raise ArgumentError("setting", "margins", "one with a fixed decoder", "`JointTokens` data", fix)

    def inner(self, a: JointPoint, b: JointPoint) -> Float[Array, ""]:
        """Of displacements, over both blocks."""
        return jnp.vdot(a.u.coefficients, self.labels[:, None] * b.u.image) + jnp.vdot(a.W.coefficients, b.W.image)

    def norms(self, params: JointPoint) -> tuple[Array, Array]:
        """|u| and |W|."""
        scores, logits = params.u.image + self.first_scores, params.W.image + self.first_logits
        u = jnp.vdot(params.u.coefficients, self.labels[:, None] * scores) + self.first_squares[0]
        W = jnp.vdot(params.W.coefficients, logits) + self.first_squares[1]
        return jnp.sqrt(jnp.maximum(u, 0.0)), jnp.sqrt(jnp.maximum(W, 0.0))

    def norm(self, params: JointPoint) -> Float[Array, ""]:
        return jnp.hypot(*self.norms(params))

    def outputs(self, params: JointPoint) -> Float[Array, "n"]:
        return jnp.sum(jax.nn.softmax(params.W.image, axis=1) * params.u.image, axis=1)

    def blocks(self, params: JointPoint, weighing: Weighing, loss: AbstractLoss) -> tuple[Block, Block]:
        """Both blocks of the gradient, each with its own scale; `weighing` is that of the outputs."""
        log_share = jax.nn.log_softmax(params.W.image, axis=1)
        towards = -(weighing.weights * self.labels)[:, None] * jnp.exp(log_share)
        scores = self._scores(towards)
        square = jnp.vdot(towards, self.labels[:, None] * scores)
        log_weights, sign = log_pull(params.u.image, log_share, loss)
        top = jnp.max(log_weights)
        push = sign * jnp.exp(log_weights - jnp.where(jnp.isfinite(top), top, 0.0))
        logits = self._logits(push)
        u = Block(weighing.log_scale, Span(towards, scores), _log_norm(square))
        return u, Block(top, Span(push, logits), _log_norm(jnp.vdot(push, logits)))

    def endings(self, reading: Any, square: Array, norm: Array, count: Array) -> dict[str, Array]:
        """What ends joint training besides: no gradient at the start, a loss beyond floats, a minimum, logits that are not resolved.

        At a minimum, unlike where a gradient has underflown, a step that rounding swallows comes with a small |theta| |grad log L|.
        """
        eps = jnp.finfo(float).eps
        flat = reading.log_relative_slope + jnp.log(norm) < jnp.log(_FLAT)
        unresolved = eps * jnp.max(jnp.abs(reading.params.W.image)) > RESOLUTION
        return {
            "zero_gradient": (count == 0) & self._vanished(reading),
            "not_finite": ~jnp.isfinite(reading.log_excess),
            "settled": flat & (jnp.sqrt(square) <= eps * norm),
            "resolution_exhausted": unresolved,
        }

    def _vanished(self, reading: Any) -> Bool[Array, ""]:
        """Whether both blocks of the gradient are 0 up to the rounding of the inner products they are made of."""

        def zero(slope: Span, log_norm: Array, matrix: Array) -> Array:
            terms = jnp.vdot(jnp.abs(slope.coefficients).ravel(), jnp.sqrt(jnp.diag(matrix)))
            return jnp.exp(2 * log_norm) <= len(matrix) * jnp.finfo(float).eps * terms**2

        u, W = map(zero, reading.slope, reading.log_norms, (self.plain, self.paired))
        return u & W

    def series(self, reading: Any) -> dict[str, Array]:
        """What a run keeps of both blocks, besides what it keeps of every training."""
        (norm_u, norm_W), above = self.norms(reading.params), reading.log_scale - reading.log_excess
        slope_u, slope_W = (one + (rel + above) for one, rel in zip(reading.log_norms, reading.relative, strict=True))
        images = {"scores": reading.params.u.image, "logits": reading.params.W.image}
        return {"norm_u": norm_u, "norm_W": norm_W, "log_slope_u": slope_u, "log_slope_W": slope_W, **images}

    def lost(self, before: JointPoint, after: JointPoint) -> bool:
        return False

    def check_optimiser(self, optimiser: object) -> None:
        """Coordinates and singular values of a slope are not known here, and a flow has one weight."""
        if not getattr(optimiser, "combines", False):
            fix = "gradient_descent, normalised_descent, block_normalised, polyak, momentum or Accelerated"
            found = type(optimiser).__name__
            raise ArgumentError("optimiser", "train on `JointTokens`", "a combination of gradients", found, fix)


def _log_norm(square: Float[Array, ""]) -> Float[Array, ""]:
    return jnp.where(square > 0, 0.5 * jnp.log(jnp.where(square > 0, square, 1.0)), -jnp.inf)


def joint_setting(data: JointTokens, start: JointStart | None = None, loss: AbstractLoss = Exponential()) -> Setting:  # noqa: B008
    """Attention and decoder of `JointTokens`, trained together from zero or from a `JointStart`.

    >>> import penchant as pt
    >>> run = pt.train(joint_setting(marked_tokens()), pt.optimisers.block_normalised(0.05), steps=100)
    >>> run.status.name, round(float(run.norm_u[-1]), 2), round(float(run.norm_W[-1]), 2)
    ('out_of_steps', 4.98, 4.83)
    """
    return Setting(data, TokenGram(data, start), loss)


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
