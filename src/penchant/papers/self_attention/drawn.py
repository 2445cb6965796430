"""Claims on token selection that say "any": data, scores, query tokens, start directions and sizes are drawn, and trained in one vectorised run.

Claims on joint training that say "any": other exponents of the schedule, random small starts.
"""

from collections.abc import Iterator
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ...diagnostics import direction as diagnostics
from ...diagnostics.direction import log_attention_loss, misalignment, misalignments, optimal_attention
from ...diagnostics.rates import linear_slope, log_log_slope, rate, settling
from ...lab import Lab, recipe
from ...optimisers.base import block_normalised, gradient_descent, normalised_descent, polyak
from ...references.base import Solution
from ...references.euclidean_margin import max_margin
from ...settings.base import Setting
from ...settings.generators import signal_tokens
from ...settings.joint import JointStart, joint_setting, normal_start
from ...settings.losses import Exponential
from ...settings.parametrisations import Gram
from ...settings.tokens import TokenSelection
from ...theory import selections as conditions
from ...training.events import At, Every, LogSpaced
from ...training.train import train
from ...training.trajectory import Trajectory
from ...verdict import ROUNDING, Verdict, at_least, at_most, close, covers
from . import joint_evidence as evidence
from .evidence import lemma2_excess, sharp_constant
from .theorems import stated

_DRAWS, _WANTED, _LENGTH, _STEPS = 27, 20, 0.12, 20_000  # 0.12 is below 1/(2 B^2) for tokens of length at most 2
_WATCHED = At((*range(1, 101), *range(1000, _STEPS, 1000)))
_SHAPE = (6, 4, 100)


class Draw(NamedTuple):
    """Data with a start, their program, and whether Assumptions 1 and 2 and the conditions on the steps hold."""

    setting: Setting
    reference: Solution
    query: int
    floor: float
    inside: bool


def _data(seed: int) -> tuple[TokenSelection, int]:
    """Example 1 with drawn signal, noise, score gaps (equal within a sample) and query token."""
    rng, (n, length, d) = np.random.default_rng(seed), _SHAPE
    base = signal_tokens(n, length, d, rng.uniform(1.5, 2), rng.uniform(0.05, 0.1), seed)
    best, gap, query = rng.uniform(0.5, 1.5, (n, 1)), rng.uniform(0.8, 1.25, (n, 1)), int(rng.integers(length))
    scores = best - gap * (np.arange(length) != np.asarray(base.optimal)[:, None])
    return TokenSelection(base.tokens, scores=scores, queries=base.tokens[:, query]), query


def _draw(seed: int) -> Draw:
    """The start: normal entries, a normal combination of the features, or -W_mm itself, with logit margins of up to 1."""
    (data, query), rng = _data(seed), np.random.default_rng((seed, 1))
    reference, pairs = max_margin(data), data.others.size
    normal = rng.standard_normal(data.weight_shape)
    start = (normal, data.adjoint(jnp.asarray(rng.standard_normal(pairs))), -reference.weight)[seed % 3]
    start = np.asarray(start) * rng.uniform(0.05, 1.0) / np.abs(data.margins(jnp.asarray(start))).max()
    setting = Setting(data, Gram(data, start), Exponential())
    floor = conditions.attention_floor(setting, setting.start(), _LENGTH)
    asked = (
        conditions.near_orthogonal_pairs(data, setting.loss, floor),
        conditions.equal_scores(data),
        conditions.short_steps(_LENGTH, data),
        conditions.stable_normalised(data, reference, _LENGTH),
    )
    return Draw(setting, reference, query, floor, all(one.holds for one in asked))


@recipe
def draws(lab: Lab) -> tuple[tuple[Draw, Trajectory], ...]:
    """The draws inside the hypotheses, with normalised descent on all of them at once."""
    kept = [one for one in map(_draw, range(_DRAWS)) if one.inside]
    runs = train([one.setting for one in kept], normalised_descent(_LENGTH), steps=_STEPS, recorder=_WATCHED)
    return tuple(zip(kept, runs, strict=True))


def enough(lab: Lab) -> Verdict:
    text = f"draws of {_DRAWS} inside the hypotheses"
    return at_least(
        float(len(draws(lab))), float(_WANTED), text, "starts normal, in the span of the features, and opposite to W_mm"
    )


def law(one: Draw, run: Trajectory) -> float:
    """|W|^2 sin^2 of the angle to W_mm over its limit: twice the sharp constant, with what the start has outside the span of the features."""
    missing = float(misalignments(run, one.reference)[-1])
    limit = 2 * sharp_constant(one.setting, one.reference, float(one.setting.parametrisation.frozen))
    return run.norm[-1] ** 2 * missing * (2 - missing) / limit


@stated("self-attention/theorem-1-any-start", "Theorem 1; limit by us", "sharpened", slow=True)
def any_start(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """From any start direction normalised descent turns to the maximum-margin token selection: the square of the angle falls like c/|W|^2, with the c of the support pairs and the start.
    The limit is approached like e^(-chi |W|), so that 20 000 steps leave nothing of it but rounding and the slowest chi. Planted: a c one per cent too large."""
    yield enough(lab)
    worst = max(abs(law(*pair) * (1 / 1.01 if planted else 1.0) - 1) for pair in draws(lab))
    yield at_most(worst, 1e-4, "largest relative error of |W|^2 sin^2 after 20 000 steps")


@stated("self-attention/any-query", "footnote 3", slow=True)
def any_query(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """The results hold for any query token: W turns to the program of the tokens that ask.
    Where another token than the first one asks, 1 - corr is below 1.01 c/|W|^2. Planted: the program of the first tokens."""
    others, worst = [pair for pair in draws(lab) if pair[0].query], 0.0
    for one, run in others:
        data: TokenSelection = one.setting.data
        first = TokenSelection(data.tokens, scores=data.scores) if planted else data
        weight, program = run.weight(), (max_margin(first) if planted else one.reference).weight
        limit = sharp_constant(one.setting, one.reference, float(one.setting.parametrisation.frozen))
        worst = max(worst, misalignment(weight, program) * run.norm[-1] ** 2 / limit)
    text = "largest (1 - corr) |W|^2 / c after 20 000 steps"
    yield at_most(worst, 1.01, text, f"{len(others)} draws whose query is the second to last token")


@stated("self-attention/lemma-5", "Lemma 5", slow=True)
def lemma5(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Attention on the optimal tokens never falls below its floor, and never decreases while below one half, from any start.
    The first 100 steps of every draw. Planted: a floor one per cent higher."""
    yield enough(lab)
    shares = [(one, optimal_attention(run)) for one, run in draws(lab)]
    rises = [np.where(s[:100] < 0.5, np.diff(s[:101], axis=0), np.inf).min() for _, s in shares]
    yield at_least(float(min(rises)), 0.0, "smallest change of s_opt in a step while below 1/2")
    least = min(float(s.min()) / one.floor for one, s in shares)
    yield at_least(least, 1.01 if planted else 1 - ROUNDING, "smallest s_opt over its floor")


def _longest(one: Draw) -> float:
    """max |Z|, the length of the longest pair feature: at most 2 B^2."""
    return float(np.sqrt(np.diag(np.asarray(one.setting.parametrisation.matrix)).max()))


_weights = eqx.filter_jit(lambda setting, margins: jax.vmap(lambda one: setting.weigh(one).weights)(margins))


def _cosines(one: Draw, margins: np.ndarray) -> np.ndarray:
    """cos of -grad L and W_mm at weights with these margins."""
    weights = np.asarray(_weights(one.setting, jnp.asarray(margins)))
    matrix = np.asarray(one.setting.parametrisation.matrix)
    size = np.sqrt(np.einsum("rk,kl,rl->r", weights, matrix, weights, optimize=True))
    return weights @ (matrix @ one.reference.dual) / (size * one.reference.value)


@stated("self-attention/lemma-6", "Lemma 6, with max |Z| for 2 B^2", "sharpened", slow=True)
def lemma6(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """The gradient has correlation at least 1/(max|Z| |W_mm|) >= 1/(2 B^2 |W_mm|) with W_mm at every W, and no larger bound holds.
    At 200 weights per draw, and at one where all attention but that on one side of the longest pair has settled, which attains the bound to e^-30. Planted: a bound one per cent larger."""
    least, ends, room = np.inf, [], []
    for k, (one, _) in enumerate(draws(lab)):
        rng, bound = np.random.default_rng((k, 2)), 1 / (_longest(one) * one.reference.value)
        diagonal = np.diag(np.asarray(one.setting.parametrisation.matrix))
        points = rng.standard_normal((200, len(diagonal))) * rng.uniform(0, 20, (200, 1))
        points[0] = np.where(np.arange(len(diagonal)) == diagonal.argmax(), 0.0, 40.0)
        found = _cosines(one, points) / bound
        least = min(least, float(found.min()))
        ends.append(abs(found[0] - 1))
        room.append(_longest(one) / (2 * conditions.token_bound(one.setting.data) ** 2))
    yield at_least(least, 1.01 if planted else 1 - ROUNDING, "smallest cos(-grad L, W_mm) max|Z| |W_mm|")
    yield at_most(float(max(ends)), 1e-12, "distance from 1 where one pair is left")
    yield at_most(float(max(room)), 1.0, "largest max|Z| / (2 B^2)")


@stated("self-attention/lemma-7", "Lemma 7, with max |Z| for 2 B^2", "sharpened", slow=True)
def lemma7(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """The norm grows linearly from any start: length t/(max|Z| |W_mm|) - |W_0| <= |W_t| <= length t + |W_0|, in the end by the length of the step along W_mm.
    Planted: without |W_0|."""
    yield enough(lab)
    lower, upper, growth = [], [], []
    for one, run in draws(lab):
        walked, first = _LENGTH * run.steps[1:], run.norm[0] * (0 if planted else 1)
        lower.append(((run.norm[1:] + first) / walked).min() * _longest(one) * one.reference.value)
        upper.append(((run.norm[1:] - first) / walked).max())
        along = run.norm * (1 - misalignments(run, one.reference))
        growth.append((along[-1] - along[-2]) / (walked[-1] - walked[-2]))
    yield at_most(float(max(upper)), 1 + ROUNDING, "largest (|W_t| - |W_0|) / (length t)")
    yield at_least(float(min(lower)), 1.0, "smallest (|W_t| + |W_0|) max|Z| |W_mm| / (length t)")
    yield close(float(min(growth)), 1.0, 1e-6, "slowest growth along W_mm over the length of the steps, last 1000")


@stated("self-attention/lemma-1", "Lemma 1; rate by us", "sharpened", slow=True)
def lemma1(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Attention on other tokens is at most (T-1) exp(-|W| / (2 |W_mm|)) once W is within 1/(4 B^2 |W_mm|) of its direction, which it ends up to be, from any start.
    By what the proof shows at every W: 1 - 2 B^2 |W_mm| distance for that half, which tends to 1. Planted: one per cent more."""
    yield enough(lab)
    excess, shares = [], []
    for one, run in draws(lab):
        apart = np.sqrt(2 * misalignments(run, one.reference))
        share = 1 - 2 * conditions.token_bound(one.setting.data) ** 2 * one.reference.value * apart
        bound = np.log(_SHAPE[1] - 1) - (share + (0.01 if planted else 0.0)) * run.norm / one.reference.value
        excess.append(float((log_attention_loss(run).max(axis=1) - bound).max()))
        shares.append(float(share[-1]))
    yield at_most(max(excess), 0.0, "largest log(1 - s_opt) minus its bound, all records")
    yield at_least(min(shares), 0.5, "smallest share of the rate at the end, at least 1/2 where W is close enough")


@stated("self-attention/lemma-2", "Lemma 2", slow=True)
def lemma2(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Far out, the gradient correlates with W_mm at least as well as with W_t, up to 1 + pi, from any start.
    <-grad L, W/|W|> <= (1 + pi(|W|)) <-grad L, W_mm/|W_mm|> at every record of every draw. Planted: without the pi."""
    yield enough(lab)
    worst = []
    for one, run in draws(lab):
        target = np.asarray(one.setting.data.margins(jnp.asarray(one.reference.weight)))
        along, ideal = (run.weights * run.margins).sum(axis=1) / run.norm, run.weights @ target / one.reference.value
        allowed = lemma2_excess(one.setting, one.reference, one.floor, run.norm) * (0 if planted else 1)
        worst.append(float((along / ideal - 1 - allowed)[1:].max()))
    yield at_most(max(worst), 0.0, "largest excess of <-grad L, W/|W|> over (1 + pi(|W|)) <-grad L, W_mm/|W_mm|>")


@recipe
def _early(lab: Lab) -> list[tuple[Draw, Trajectory]]:
    """The first 3000 steps of every draw, all of them recorded."""
    kept = [one for one, _ in draws(lab)]
    runs = train([one.setting for one in kept], normalised_descent(_LENGTH), steps=3000, recorder=Every())
    return list(zip(kept, runs, strict=True))


@recipe
def beside(lab: Lab) -> list[tuple[np.ndarray, np.ndarray]]:
    """By draw, where 20 000 steps of gradient descent just inside the theorem end, and the two points of normalised descent between which |W| is there."""
    runs, rooms = _early(lab), [conditions.longest_step(one.setting.data) for one, _ in _early(lab)]
    slack = [conditions.small_step_size(1.0, one.setting.data, one.setting.loss).slack for one, _ in runs]
    steps = 0.999 * np.array(rooms) / (np.array(rooms) - slack)
    ends = train([one.setting for one, _ in runs], gradient_descent(steps), steps=_STEPS, recorder=At(()))
    after = [int(np.argmax(run.norm > end.norm[-1])) for (_, run), end in zip(runs, ends, strict=True)]
    return [
        (end.weight(), np.stack([run.weight(k - 1), run.weight(k)]))
        for (_, run), end, k in zip(runs, ends, after, strict=True)
    ]


@recipe
def polyak_runs(lab: Lab) -> list[tuple[Draw, Trajectory]]:
    """2000 Polyak steps on every draw, all recorded."""
    kept = [one for one, _ in draws(lab)]
    return list(zip(kept, train([one.setting for one in kept], polyak(), steps=2000, recorder=Every()), strict=True))


@stated("self-attention/theorem-1-bound", "Theorem 5 (appendix form of Theorem 1)", "sharpened", slow=True)
def theorem1_bound(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """The proof's bound on 1 - corr holds at every step from any start, with explicit constants, and says something from some step on.
    From the first of 3000 steps of every draw on; below 2 it says something. How loose it is theorem-1-any-start says. Planted: the steps add nothing to it."""
    yield enough(lab)
    worst, ends, since = [], [], []
    for one, run in _early(lab):
        norm, distance = run.norm[1:], misalignments(run, one.reference)[1:]
        growth = _LENGTH * lemma2_excess(one.setting, one.reference, one.floor, norm) + _LENGTH**2 / (2 * norm)
        added = np.append(0.0, np.cumsum(growth[:-1])) * (0 if planted else 1)
        bound = (norm[0] * distance[0] + added) / norm
        worst.append(float((distance / bound)[1:].max()))  # at the first step the bound is an equality
        ends.append(float(bound[-1]))
        since.append(int(np.flatnonzero(bound >= 2).max(initial=-1)) + 2)
    yield at_most(max(worst), 1.0, "largest (1 - corr) / (bound of the proof), 3000 steps")
    yield at_most(max(ends), 2.0, "largest bound at step 3000", f"below 2 since steps {min(since)} to {max(since)}")


_JOINT_STEPS, _TINY = 10_000, 1e-6  # and the scale of random starts, next to which a step of C4 is long
_POWERS = (2 / 3, *(2 / 3 + np.random.default_rng(0).uniform(0, 0.3, 19)).tolist())


def _path(length: float, power: float) -> np.ndarray:
    """How far u has come, at every record."""
    walked = np.append(0.0, np.cumsum((np.arange(_JOINT_STEPS) + 1.0) ** -power))
    return length * walked[LogSpaced(61).schedule(_JOINT_STEPS)]


@recipe
def drawn_runs(
    lab: Lab, length: float, powers: tuple[float, ...], scale: float, group: str = "figure"
) -> tuple[Trajectory, ...]:
    """Twenty runs at once: both blocks normalised, u by length/(t+1)^p and W by length/(t+1); on twenty data sets, or each of ten twice, with starts of their own."""
    data = (evidence.watched(lab, group)[0] * 2)[:20]
    d = data[0].tokens.shape[-1]
    zero = JointStart(np.zeros(d), np.zeros((d, d)))
    starts = [normal_start(one, 100 + k, scale) if scale else zero for k, one in enumerate(data)]
    rule = block_normalised(length, np.array(powers), 1.0)
    return tuple(train([*map(joint_setting, data, starts)], rule, steps=_JOINT_STEPS, recorder=LogSpaced(61)))


def _drops(lab: Lab, runs: tuple[Trajectory, ...], group: str = "figure") -> list[np.ndarray]:
    """What log L has lost times |u_mm|, at every record."""
    found = (evidence.watched_references(lab, group) * 2)[:20]
    return [(run.log_excess[0] - run.log_excess) * one.decoder.value for run, one in zip(runs, found, strict=True)]


@stated(
    "self-attention-joint/any-power",
    "Section 4.1, any p in [2/3, 1) in Eq. (13); constant by us",
    "sharpened",
    slow=True,
)
def any_power(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """With any other p in [2/3, 1) in the schedule of u the loss falls like exp(-sum of its steps / |u_mm|).
    Twenty p: at every record log L has lost a quarter of that, as Theorem 2 has it, and in the end it loses all of it. Planted: the sum of p = 2/3."""
    runs = drawn_runs(lab, evidence.LONG, _POWERS, 0.0)
    paths = [_path(evidence.LONG, 2 / 3 if planted else power) for power in _POWERS]
    pairs = [(path / path[-1], drop / path[-1]) for path, drop in zip(paths, _drops(lab, runs), strict=True)]
    where = f"p from 0.667 to {max(_POWERS):.3f}; {evidence.far_circumstances(lab)}"
    quarter = min(float((drop[1:] / path[1:]).min()) for path, drop in pairs)
    text = "(log L_0 - log L_t) |u_mm| / (path of u)"
    yield covers(settling(pairs, (0.7, 1.0), linear_slope), 1.0, f"growth of {text}, last 3/10 of it", where, rival=0.9)
    yield at_least(quarter, 0.25, f"smallest {text} of 20 runs")


@stated("self-attention-joint/random-start", "Section 4.1, random start of small scale", slow=True)
def random_start(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """From a random start of small scale, as from zero, the loss falls, score gaps grow, the margin of u stays above a quarter of the best and W turns to W_mm.
    Twenty starts on the data of Figure 3 with its length, and twenty inside the conditions. However small the start, the first step of W has its
    whole length in the direction that u_0 happens to give: short steps (C4) are needed here, where zero starts do without. Planted: the length 0.3, which zero starts bear."""
    lengths = {"figure": evidence.LONG if planted else evidence.LENGTH, "inside": evidence.watched(lab, "inside")[1]}
    for group, length in lengths.items():
        runs, found = drawn_runs(lab, length, (2 / 3,) * 20, _TINY, group), evidence.watched_references(lab, group)
        pairs, where = list(zip(runs, (found * 2)[:20], strict=True)), evidence.circumstances(lab, group)
        gap = min(float(np.diff(diagnostics.score_gaps(run)[1:], axis=0).min()) for run in runs)
        yield at_least(gap, 0.0, f"{group}: smallest change of a score gap between records of 20 runs", where)
        loss = min(float((drop[1:] / _path(length, 2 / 3)[1:]).min()) for drop in _drops(lab, runs, group))
        yield at_least(loss, 0.25, f"{group}: smallest (log L_0 - log L_t) |u_mm| / (path of u)")
        margin = min(float(np.nanmin(diagnostics.decoder_margins(run)[1:]) * one.decoder.value) for run, one in pairs)
        yield at_least(margin, 0.25, f"{group}: smallest margin of u_t over the best margin")
    far = drawn_runs(lab, lengths["figure"], (2 / 3,) * 20, _TINY)
    slopes = [
        log_log_slope(
            np.log(np.maximum(run.steps, 1)),
            diagnostics.joint_misalignments(run, one.attention.weight),
            (np.log(1e3), np.log(_JOINT_STEPS)),
        )
        for run, one in zip(far, evidence.references(lab) * 2, strict=True)
    ]
    found = rate(slopes)
    yield at_most(found.high, -1.0, f"upper end of the exponent {found} of 1 - corr of W in log t, steps 1e3 to 1e4,")
