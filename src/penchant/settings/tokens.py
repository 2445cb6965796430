"""Token selection: one softmax attention layer whose margins say how firmly each optimal token is preferred."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..errors import ArgumentError, DegenerateSample, NonUniqueOptimalToken
from ..logspace import log_sum, signed_log_sum, softplus
from .base import Infimum, MarginData, Weighing
from .check import real_array, sign_labels, warn_of_rounded
from .losses import AbstractLoss, CrossEntropy, Squared

LARGEST = 1e60  # the Gram matrix has products of four entries
_TIE = 1e-9  # scores closer than this, relative to the largest score, count as tied


class TokenSelection(MarginData):
    r"""Sequences of tokens $x_{i\tau}$ with a query $q_i$ each; attention logits are $a_{i\tau} = x_{i\tau}^\top W q_i$.

    The output is $z_i = \sum_\tau \mathrm{softmax}(a_i)_\tau \gamma_{i\tau}$ with scores $\gamma_{i\tau} = y_i x_{i\tau}^\top u$. The optimal
    token $o_i$ has the best score, and the N = n(T-1) margins are $m_{i\tau} = a_{i o_i} - a_{i\tau} = \langle Z_{i\tau}, W\rangle$ with
    $Z_{i\tau} = (x_{i o_i} - x_{i\tau}) q_i^\top$, in the order of the samples and, inside a sample, of the tokens.

    **Arguments:** `tokens` (n, T, d); `labels` (n,) and `head` (d,), or `scores` (n, T) instead of both; `queries` (n, d), by
    default the first token of each sample; `ties="keep"` lets several tokens be best; `mask` (n, T) is False on tokens that only pad
    their sample. What stands there is ignored: the padding gets no attention and asks for no margin. It is kept as copies of the worst
    token of its sample, so that no smallest margin, largest length or range of scores knows of it.

    >>> TokenSelection([[[2.0], [1.0], [9.0]]], scores=[[1.0, 0.0, 5.0]], mask=[[True, True, False]]).constrained().tolist()
    [True, False]
    """

    names: ClassVar[dict[str, str]] = {"norm": "frobenius", "margin": "(x_opt - x)^T W q"}
    refused: ClassVar[tuple[type, ...]] = (CrossEntropy, Squared)  # every decreasing loss is bounded below: scores are
    asked = "a loss of one margin on `TokenSelection` data", ""
    tokens: Float[Array, "n T d"]
    queries: Float[Array, "n d"]
    scores: Float[Array, "n T"]
    optimal: Int[Array, "n"]
    others: Int[Array, "n others"]
    tied: Bool[Array, "n others"]
    padded: Bool[Array, "n others"]

    def __init__(
        self,
        tokens: object,
        labels: object = None,
        head: object = None,
        *,
        queries: object = None,
        scores: object = None,
        ties: str = "raise",
        mask: object = None,
    ):
        warn_of_rounded("TokenSelection", tokens=tokens, queries=queries, head=head, scores=scores)
        tokens = real_array(tokens, "tokens", "TokenSelection", "(n, T, d)", 3, LARGEST)
        length = tokens.shape[1]
        if length < 2:
            raise ArgumentError("tokens", "TokenSelection", "at least two tokens per sample", f"T = {length}")
        mask = _mask(mask, tokens.shape[:2])
        queries = _queries(tokens[np.arange(len(tokens)), mask.argmax(axis=1)], queries)
        tokens, scores = _padded(tokens, _scores(tokens, labels, head, scores), mask)
        if ties not in ("raise", "keep"):
            raise ArgumentError("ties", "TokenSelection", "'raise' or 'keep'", repr(ties))
        optimal = np.where(mask, scores, -np.inf).argmax(axis=1)
        others = np.stack([np.delete(np.arange(length), o) for o in optimal])
        best = np.take_along_axis(scores, optimal[:, None], axis=1)
        tied = best - np.take_along_axis(scores, others, axis=1) <= _TIE * np.abs(scores).max()
        if tied.any() and (ties == "raise" or tied.all(axis=1).any()):
            _report_tie(scores, optimal, others, tied, mask, ties == "keep")
        self.tokens, self.queries, self.scores = jax.device_put((tokens, queries, scores))
        self.optimal, self.others, self.tied = jax.device_put((optimal, others, tied))
        self.padded = jax.device_put(~np.take_along_axis(mask, others, axis=1))

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return (self.tokens.shape[-1], self.queries.shape[-1])

    def mask(self) -> np.ndarray:
        """Which tokens are more than padding."""
        found = np.ones(self.scores.shape, bool)
        np.put_along_axis(found, np.asarray(self.others), ~np.asarray(self.padded), axis=1)
        return found

    def select(self, selection: object) -> "TokenSelection":
        """The same sequences with other tokens called optimal: what a run that settles on `selection` has solved."""
        n, length = self.scores.shape
        wanted = np.asarray(selection)
        if wanted.shape != (n,) or wanted.dtype.kind not in "iu" or wanted.min() < 0 or wanted.max() >= length:
            required = f"{n} token indices in 0..{length - 1}"
            raise ArgumentError("selection", "TokenSelection.select", required, repr(selection))
        scores = np.zeros((n, length))
        scores[np.arange(n), wanted] = 1.0
        return TokenSelection(self.tokens, queries=self.queries, scores=scores, mask=self.mask())

    @eqx.filter_jit
    def margins(self, weight: Float[Array, "d e"]) -> Float[Array, "N"]:
        logits = self.logits(weight)
        best = jnp.take_along_axis(logits, self.optimal[:, None], axis=1)
        return (best - jnp.take_along_axis(logits, self.others, axis=1)).ravel()

    def logits(self, weight: Float[Array, "d e"]) -> Float[Array, "n T"]:
        return jnp.einsum("ntd,nd->nt", self.tokens, self.queries @ weight.T)

    @eqx.filter_jit
    def differences(self) -> Float[Array, "n others d"]:
        """x_opt - x, for every other token."""
        best = jnp.take_along_axis(self.tokens, self.optimal[:, None, None], axis=1)
        return best - jnp.take_along_axis(self.tokens, self.others[..., None], axis=1)

    def adjoint(self, coefficients: Float[Array, "N"]) -> Float[Array, "d e"]:
        blocks = coefficients.reshape(self.others.shape)
        return jnp.einsum("ntd,nt->nd", self.differences(), blocks).T @ self.queries

    def sizes(self, weight: np.ndarray, coefficients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Margins and adjoint with all terms taken absolutely, those of both tokens of a difference: what rounding of these sums is relative to."""
        tokens, queries, others = map(np.asarray, (self.tokens, self.queries, self.others))
        tokens, queries = np.abs(tokens), np.abs(queries)
        optimal, blocks = np.asarray(self.optimal)[:, None], np.abs(coefficients).reshape(others.shape)
        logits = (tokens @ (queries @ np.abs(weight).T)[..., None])[..., 0]
        margins = np.take_along_axis(logits, optimal, 1) + np.take_along_axis(logits, others, 1)
        shares = np.zeros(tokens.shape[:2])
        np.put_along_axis(shares, others, blocks, 1)
        np.put_along_axis(shares, optimal, blocks.sum(axis=1, keepdims=True), 1)
        return margins.ravel(), (shares[:, None] @ tokens)[:, 0].T @ queries

    @eqx.filter_jit
    def gram(self) -> Float[Array, "N N"]:
        n, others = self.others.shape
        pairs = self.differences().reshape(n * others, -1)
        queries = jnp.repeat(self.queries, others, axis=0)
        return (pairs @ pairs.T) * (queries @ queries.T)

    def rows(self, index: Int[Array, "k"]) -> "TokenSelection":
        """Some of the margins, as a sample of two tokens each; with this data also say that their loss is a sum over the samples."""
        count = self.others.shape[1]
        sample, first, second = index // count, jnp.zeros(index.shape, int), jnp.ones((*index.shape, 1), int)
        pair = jnp.stack([self.optimal[sample], self.others[sample, index % count]], axis=1)
        tokens, scores = (array[sample[:, None], pair] for array in (self.tokens, self.scores))
        no = jnp.zeros(second.shape, bool)
        parts = (tokens, self.queries[sample], scores, first, second, no, no)
        return eqx.tree_at(
            lambda d: (d.tokens, d.queries, d.scores, d.optimal, d.others, d.tied, d.padded), self, parts
        )

    def constrained(self) -> np.ndarray:
        """Tied tokens are as good as the optimal one, so nothing asks them to be rejected, nor padding, which has no attention."""
        return ~(np.asarray(self.tied) | np.asarray(self.padded)).ravel()

    @eqx.filter_jit
    def deficits(self) -> Float[Array, "n others"]:
        """Score of the optimal token minus score of the other one; exactly 0 for a tie."""
        best = jnp.take_along_axis(self.scores, self.optimal[:, None], axis=1)
        gap = best - jnp.take_along_axis(self.scores, self.others, axis=1)
        return jnp.where(self.tied, 0.0, gap)

    @eqx.filter_jit
    def best_scores(self) -> Float[Array, "n"]:
        return jnp.take_along_axis(self.scores, self.optimal[:, None], axis=1)[:, 0]

    @eqx.filter_jit
    def log_attention(self, margins: Float[Array, "N"]) -> Float[Array, "n T"]:
        """log softmax of the logits, from the margins alone."""
        n, others = self.others.shape
        logits = jnp.zeros((n, others + 1)).at[jnp.arange(n)[:, None], self.others].set(-self._attended(margins))
        return jax.nn.log_softmax(logits, axis=1)

    def _attended(self, margins: Float[Array, "N"]) -> Float[Array, "n others"]:
        """Margins by sample, infinite where there is only padding."""
        return jnp.where(self.padded, jnp.inf, margins.reshape(self.others.shape))

    def smallest(self, margins: Float[Array, "N"]) -> Float[Array, ""]:
        """Tied tokens are as good as the optimal one: their margins do not count."""
        return jnp.min(jnp.where(self.tied.ravel(), jnp.inf, margins))

    def weigh(self, margins: Float[Array, "N"], loss: AbstractLoss) -> Weighing:
        log_scale, weights = self._loss_weights(margins, loss)
        return Weighing(self._log_excess(margins, loss), log_scale, weights)

    def _log_excess(self, margins: Float[Array, "N"], loss: AbstractLoss) -> Float[Array, ""]:
        """log sum_i [l(z_i) - l(best_i)], with z_i = best_i - deficit_i and the deficit kept as a logarithm."""
        pairs = self._attended(margins)
        log_share = -pairs - softplus(log_sum(-pairs))[:, None]
        deficits = self.deficits()
        log_deficit = jnp.where(self.tied, -jnp.inf, jnp.log(jnp.where(self.tied, 1.0, deficits)))
        return log_sum(loss.log_gap(self.best_scores(), log_sum(log_share + log_deficit)))

    def _loss_weights(self, margins: Float[Array, "N"], loss: AbstractLoss) -> tuple[Array, Array]:
        r"""Scale and weights of $-\partial L/\partial m$, exact wherever attention saturates."""
        log_weights, sign = log_pull(self.scores, self.log_attention(margins), loss)
        log_weights = jnp.take_along_axis(log_weights, self.others, axis=1).ravel()
        top = jax.lax.stop_gradient(jnp.max(log_weights))
        safe = jnp.where(jnp.isfinite(top), top, 0.0)
        signs = jnp.take_along_axis(sign, self.others, axis=1).ravel()
        return top, signs * jnp.exp(log_weights - safe)

    def infimum(self, loss: AbstractLoss) -> Infimum:
        value = float(_mean_value(loss, self.best_scores()))
        return Infimum(value, attained=False, why="all attention on the optimal tokens, approached as the margins grow")


_mean_value = eqx.filter_jit(lambda loss, scores: jnp.mean(loss.value(scores)))


def log_pull(scores: Float[Array, "n T"], log_share: Float[Array, "n T"], loss: AbstractLoss) -> tuple[Array, Array]:
    r"""Logarithm and sign of $\partial L/\partial a_{i\tau}$: how strongly descent pushes each logit down.

    The token $\alpha_i$ with most attention is the reference: with $D_\tau = \gamma_\alpha - \gamma_\tau$ and
    $\delta = \sum_\tau s_\tau D_\tau$ the coefficient of token $\tau$ is $|l'(z)|\, s_\tau (D_\tau - \delta)$. No term cancels when
    $\alpha$ is the optimal token, nor when it is another one.
    """
    leader = jnp.argmax(log_share, axis=1)[:, None]
    gaps = jnp.take_along_axis(scores, leader, axis=1) - scores
    small = jnp.abs(gaps) <= 0
    log_gaps = jnp.where(small, -jnp.inf, jnp.log(jnp.where(small, 1.0, jnp.abs(gaps))))
    log_delta, sign_delta = signed_log_sum(log_share + log_gaps, jnp.sign(gaps))
    delta = (sign_delta * jnp.exp(log_delta))[:, None]
    excess = jnp.where(small, 1.0, gaps - delta)
    vanish = (excess == 0) | (small & jnp.isneginf(log_delta)[:, None])
    log_size = jnp.where(small, log_delta[:, None], jnp.log(jnp.where(vanish, 1.0, jnp.abs(excess))))
    sign = jnp.where(vanish, 0.0, jnp.where(small, -sign_delta[:, None], jnp.sign(excess)))
    reached = jnp.take_along_axis(scores, leader, axis=1) - delta
    return jnp.where(vanish, -jnp.inf, loss.log_slope(reached) + log_share + log_size), sign


def _mask(mask: object, shape: tuple[int, int]) -> np.ndarray:
    if mask is None:
        return np.ones(shape, bool)
    mask = real_array(mask, "mask", "TokenSelection", "(n, T)", 2)
    if mask.shape != shape or not np.isin(mask, (0, 1)).all():
        required = f"True or False for each of {shape} tokens"
        raise ArgumentError("mask", "TokenSelection", required, f"{mask.shape} numbers")
    few = np.flatnonzero(mask.sum(axis=1) < 2)
    if len(few):
        raise ArgumentError("mask", "TokenSelection", "True for at least two tokens per sample", f"sample {few[0]}")
    return mask > 0


def _padded(tokens: np.ndarray, scores: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and scores with the worst token of each sample in place of its padding."""
    worst = np.where(mask, scores, np.inf).argmin(axis=1)[:, None]
    tokens = np.where(mask[..., None], tokens, np.take_along_axis(tokens, worst[..., None], axis=1))
    return tokens, np.where(mask, scores, np.take_along_axis(scores, worst, axis=1))


def _queries(first: np.ndarray, queries: object) -> np.ndarray:
    queries = real_array(first if queries is None else queries, "queries", "TokenSelection", "(n, d)", 2, LARGEST)
    if len(queries) != len(first):
        raise ArgumentError("queries", "TokenSelection", f"one per sample ({len(first)})", f"{len(queries)}")
    zero = np.flatnonzero(~queries.any(axis=1))
    if len(zero):
        raise DegenerateSample(int(zero[0]))
    return queries


def _scores(tokens: np.ndarray, labels: object, head: object, scores: object) -> np.ndarray:
    n, length, d = tokens.shape
    if scores is not None:
        scores = real_array(scores, "scores", "TokenSelection", "(n, T)", 2)
        if scores.shape != (n, length):
            raise ArgumentError("scores", "TokenSelection", f"of shape {(n, length)}", f"shape {scores.shape}")
        return scores
    if labels is None or head is None:
        missing = "labels" if labels is None else "head"
        raise ArgumentError(missing, "TokenSelection", "given, unless `scores` is", "None")
    labels = sign_labels(labels, "TokenSelection", n)
    head = real_array(head, "head", "TokenSelection", "(d,)", 1)
    if len(head) != d:
        required = f"of length {d}, the dimension of the tokens"
        raise ArgumentError("head", "TokenSelection", required, f"length {len(head)}")
    if not head.any():
        raise ArgumentError("head", "TokenSelection", "non-zero: it scores the tokens", "only zeros")
    return labels[:, None] * (tokens @ head)


def _report_tie(
    scores: np.ndarray, optimal: np.ndarray, others: np.ndarray, tied: np.ndarray, mask: np.ndarray, all_tied: bool
) -> None:
    sample, *more = (int(i) for i in np.flatnonzero(tied.all(axis=1) if all_tied else tied.any(axis=1)))
    tokens = [int(optimal[sample]), *(int(token) for token in others[sample][tied[sample]] if mask[sample, token])]
    gap = float(scores[sample].max() - scores[sample][tokens].min())
    raise NonUniqueOptimalToken(sample, sorted(tokens), gap, more, all_tied)
