"""Claims on joint training of attention and decoder: the lemmas, at every step of Eq. (13) inside the theorem and on Figure 3."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from ...diagnostics.joint import log_joint_attention, optimal_entries, score_gaps
from ...lab import Lab
from ...optimisers.base import block_normalised
from ...settings.joint import TokenGram, joint_setting, marked_tokens
from ...training.recorders import Every
from ...training.train import train
from ...training.trajectory import Trajectory
from ...verdict import Verdict, all_of, at_least, at_most
from .joint_evidence import LENGTH, SEEDS, circumstances, crowded, watched_runs
from .joint_theorems import longest_token, near_orthogonal
from .theorems import stated

_GROUPS = ("figure", "inside")


@stated("self-attention-joint/lemma-3", "Lemma 3", slow=True)
def lemma3_gradient(lab: Lab, planted: bool) -> Verdict:
    """|grad_u L| >= L / (4 |u_mm|), and log L is Lipschitz along steps.
    |grad_u log L| >= 1/(4 |u_mm|) at every step, and log L changes by at most B |du| + B^3 |u| |dW|."""
    slopes, changes = [], []
    for run, length, found in watched_runs(lab, *_GROUPS):
        slopes.append(np.exp(run.log_slope_u.min()) * found.decoder.value)
        bound, step = longest_token(run.data), np.arange(4000) + 1.0
        du, dW = length * step ** (-2 / 3), np.append(0.0, length / step[1:])
        allowed = bound * du + bound**3 * np.maximum(run.norm_u[:-1], run.norm_u[1:]) * dW
        changes.append((np.abs(np.diff(run.log_excess)) / allowed).max())
    text, where = "smallest |grad_u log L| |u_mm|, 4000 steps", circumstances(lab, *_GROUPS)
    return all_of(
        at_least(float(min(slopes)), 1.0 if planted else 0.25, text, where),
        at_most(float(max(changes)), 1.0, "largest |change of log L| / (B |du| + B^3 |u| |dW|)"),
    )


def curvatures(run: Trajectory, records: np.ndarray) -> np.ndarray:
    """The operator norm of the Hessian of L over L, in orthonormal coordinates of the span of the tokens."""
    gram = TokenGram(run.data)
    roots = jnp.linalg.cholesky(jnp.stack([gram.plain, gram.paired]))
    first = [jnp.asarray(series[records]) for series in (run.scores, run.logits)]
    return np.linalg.norm(np.asarray(_hessians(roots, gram.labels, *first)), 2, axis=(1, 2))


@jax.jit
@partial(jax.vmap, in_axes=(None, None, 0, 0))
def _hessians(roots: jax.Array, labels: jax.Array, scores: jax.Array, logits: jax.Array) -> jax.Array:
    """Hess L / L = Hess log L + grad log L (grad log L)'."""

    def log_loss(move: jax.Array) -> jax.Array:
        u, W = jnp.einsum("bij,bj->bi", roots, move.reshape(2, -1)).reshape(2, *scores.shape)
        outputs = jnp.sum(jax.nn.softmax(logits + W, axis=1) * (scores + labels[:, None] * u), axis=1)
        return jax.scipy.special.logsumexp(-outputs)

    here = jnp.zeros(2 * scores.size)
    slope = jax.grad(log_loss)(here)
    return jax.hessian(log_loss)(here) + jnp.outer(slope, slope)


@stated("self-attention-joint/lemma-3-hessian", "Lemma 3, constants by us", "sharpened", slow=True)
def lemma3_hessian(lab: Lab, planted: bool) -> Verdict:
    """|Hess L| <= C (1 + |u|^2) L: explicitly (B^2 + B^3 + 2 B^5 |u| + B^6 |u|^2) L.
    |Hess L| <= (B^2 + B^3 + 2 B^5 |u| + B^6 |u|^2) L, at seven steps of every watched run.

    The output z has |grad_u z| <= B, |grad_W z| <= B^3 |u|, a mixed second derivative of at most B^3, and one by W of at most
    2 B^5 |u|. Planted: without the terms in |u|, and with the longest token replaced by the shortest."""
    ratios, records = [], np.array([0, 1, 3, 30, 300, 1000, 4000])
    for run, _, _ in watched_runs(lab, *_GROUPS):
        longest = longest_token(run.data)
        if planted:
            longest = float(np.linalg.norm(np.asarray(run.data.tokens), axis=-1).min())
        size = run.norm_u[records] * (0 if planted else 1)
        allowed = longest**2 + longest**3 + 2 * longest**5 * size + longest**6 * size**2
        ratios.append(float((curvatures(run, records) / allowed).max()))
    text = "largest |Hess L| / (L (B^2 + B^3 + 2 B^5 |u| + B^6 |u|^2))"
    return at_most(max(ratios), 1.0, text, circumstances(lab, *_GROUPS))


@stated("self-attention-joint/lemma-11", "Lemma 11, constants by us", "sharpened")
def lemma11(lab: Lab, planted: bool) -> Verdict:
    """Tokens of the data model are nearly orthogonal (C3) once d >= n^2 factor^4 log(10 n^2 / delta).
    Tokens of the data model are nearly orthogonal (C3) from d = n^2 factor^4 log(10 n^2 / delta) on, n = 3 and 4, delta = 0.1.

    Planted: in the 200 dimensions of Figure 3."""
    ratios = []
    for n in (3, 4):
        d = 200 if planted else int(np.ceil(n**2 * 3.0**4 * np.log(10 * n**2 / 0.1)))
        ratios += [1 - near_orthogonal(marked_tokens(n, 2, d, seed=seed)).slack for seed in SEEDS]
    return at_most(max(ratios), 1.0, "largest 2n |<x, x'>| / (shortest optimal square), n = 3 and 4, seeds 0-9")


@stated("self-attention-joint/lemma-12", "Lemma 12", slow=True)
def lemma12(lab: Lab, planted: bool) -> Verdict:
    """|u_t| <= 3 length t^(1/3) and |W_t| <= length log t."""
    scale, runs = 0.5 if planted else 1.0, [found[:2] for found in watched_runs(lab, *_GROUPS)]
    decoder = max(float((run.norm_u[1:] / (3 * length * np.cbrt(run.steps[1:]))).max()) for run, length in runs)
    weight = max(float((run.norm_W[2:] / (length * np.log(run.steps[2:]))).max()) for run, length in runs)
    return all_of(
        at_most(decoder, scale, "largest |u_t| / (3 length t^(1/3))", circumstances(lab, *_GROUPS)),
        at_most(weight, scale, "largest |W_t| / (length log t)"),
    )


@stated("self-attention-joint/lemma-13", "Lemma 13", slow=True)
def lemma13(lab: Lab, planted: bool) -> Verdict:
    """Score gaps and optimal attention grow at every step, and losses stay comparable.
    Score gaps and optimal attention never decrease, and losses of samples stay within a constant factor.

    The planted run is on crowded data, where one sample ends on its other token."""
    runs = [run for run, _, _ in watched_runs(lab, *_GROUPS)]
    if planted:
        runs = [train(joint_setting(crowded(lab, 1)), block_normalised(LENGTH), steps=4000, recorder=Every())]
    shares = [optimal_entries(run, log_joint_attention(run)) for run in runs]
    gap = min(float(np.diff(score_gaps(run), axis=0).min()) for run in runs)
    share = min(float(np.diff(one, axis=0).min()) for one in shares)
    ratio = max(float(np.ptp(run.margins, axis=1).max()) for run in runs)
    return all_of(
        at_least(gap, 0.0, "smallest change of a score gap in a step", circumstances(lab, *_GROUPS)),
        at_least(share, -1e-12, "smallest change of log s_opt in a step"),
        at_most(ratio, np.log(10.0), "largest log ratio of two samples' losses"),
    )


@stated("self-attention-joint/lemma-14", "Lemma 14, constant by us", "sharpened")
def lemma14(lab: Lab, planted: bool) -> Verdict:
    """u_mm separates the attended tokens with a quarter of its margin, at every step.
    u_mm separates what attention lets through: its margin on every attended token X_i' s_i is at least 1/4 at every step.

    Planted: at least 1, its margin on the optimal tokens themselves."""
    margins = []
    for run, _, found in watched_runs(lab, *_GROUPS):
        scores = np.asarray(run.data.labels)[:, None] * (np.asarray(run.data.tokens) @ found.decoder.weight)
        margins.append(float((np.exp(log_joint_attention(run)) * scores).sum(axis=2).min()))
    text = "smallest margin of u_mm on the attended tokens, 4000 steps"
    return at_least(min(margins), 1.0 if planted else 0.25, text, circumstances(lab, *_GROUPS))
