"""The proof of Theorem 4.1 step by step, on drawn data inside its hypotheses: what the printed formulas say of the flow, and what the flow does."""

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import NotSeparableError, UndecidedMargin
from ...lab import Lab, claim, recipe
from ...references.base import Solution
from ...references.bracket import margins
from ...references.euclidean_margin import max_margin
from ...references.linear_programs import diagonal_margin
from ...settings.generators import equal_score_tokens
from ...theory.judge import excess
from ...training.loop import runge_kutta
from ...training.trajectory import Trajectory
from ...verdict import Outcome, Verdict, at_least, at_most
from . import evidence
from .hypotheses import initial_loss
from .theorems import SHEEN

_DRAWS, _TOP, _LEVELS = 24, 1e5, (1e2, 1e3, 1e4)
_APART = 0.01  # of a margin from the smallest, beyond which it has weight e^-100 and less
_STEP, _STEPS = 0.02, 1_500  # of the classical Runge-Kutta rule


class Drawn(NamedTuple):
    """A flow inside the hypotheses of Theorem 4.1: its run, the l1 solution, the scales w_0, and how many draws it took."""

    run: Trajectory
    reference: Solution
    scales: np.ndarray
    tried: int


@recipe
def drawn(lab: Lab) -> list[Drawn]:
    """Equal scores (Assumption 2) with gaps of 2 to 8, a one-sided start (5) of uneven scales; kept if a diagonal separates and Assumption 3 holds."""
    found, seed = [], 1000 * lab.seed
    while len(found) < _DRAWS:
        rng, seed = np.random.default_rng(seed), seed + 1
        tokens, scales = equal_score_tokens(3, 3, 8, seed, gap=rng.uniform(2.0, 8.0)), rng.uniform(0.5, 1.5, 8)
        setting, start = evidence.on_diagonals(tokens, scales)
        with suppress(NotSeparableError, UndecidedMargin):
            reference = diagonal_margin(setting.data)
            if initial_loss(setting, tokens, start).holds:
                run = evidence.flow_to(setting, start, _TOP, _LEVELS, evidence.COARSE)
                found.append(Drawn(run, reference, scales, seed - 1000 * lab.seed))
    return found


def _kept(lab: Lab) -> str:
    runs = drawn(lab)
    return f"{len(runs)} of {runs[-1].tried} draws inside the hypotheses"


class Point(NamedTuple):
    """beta / margin with lambda = phi / log margin at a record, and how far they are from a KKT point."""

    weight: np.ndarray
    multipliers: np.ndarray
    pull: np.ndarray
    slack: np.ndarray
    stationarity: float  # epsilon
    moved: float  # epsilon'
    complementarity: float  # delta


def _point(one: Drawn, record: int, share: float = 1.0) -> Point:
    """Definition A.3 with the paper's multipliers, `share` times them; the sign of the solution on its support, the nearest of [-1, 1] off it."""
    margin, on = float(one.run.smallest_margin()[record]), np.abs(one.reference.weight) > 1e-9
    weight, slack = one.run.weight(record) / margin, one.run.margins[record] / margin - 1
    multipliers = share * 2 * one.run.dual[record] / np.log(margin)
    pull = multipliers @ np.asarray(one.run.setting.data.features())
    nearest = np.where(on, np.sign(one.reference.weight), np.clip(pull, -1.0, 1.0))
    sizes = np.linalg.norm(nearest - pull), np.linalg.norm(weight[~on]), (multipliers * slack).max()
    return Point(weight, multipliers, pull, slack, *map(float, sizes))


def _share(lab: Lab, ratios: np.ndarray, what: str) -> Verdict:
    """Whether all of these are at most 1: the largest decides, and the detail counts those above."""
    above = f"{_kept(lab)}, {int((ratios > 1).sum())} of {ratios.size} above"
    return at_most(float(ratios.max()), 1.0, what, above)


@claim("key-query/theorem-4.1", f"{SHEEN}, Theorem 4.1", "proved", slow=True)
def theorem41(lab: Lab, planted: bool) -> Verdict:
    """The flow of diagonal K and Q minimises the l1 norm.
    At margin 1e5 the l1 norm over its minimum is at most what the flow's own multipliers leave open at the solution b: (sum |b| (top - u) + slack)/(top N),
    u = log(2 |b| margin / w_0^2), which is O(1/log margin). Planted: the l2 solution as the limit."""
    ratios = []
    for run, reference, scales, _ in drawn(lab):
        data, on = run.setting.data, np.abs(reference.weight) > 1e-9
        size, margin = np.abs(reference.weight[on]), run.smallest_margin()[-1]
        pull = np.log(2 * size * margin / scales[on] ** 2)
        slack = 2 * run.dual[-1] @ np.maximum(np.asarray(margins(data, reference.weight)) - 1, 0.0)
        allowed = float(size @ (pull.max() - pull) + slack) / (pull.max() * reference.value)
        limit = max_margin(data).weight if planted else run.weight()
        ratios.append(excess(data, limit, reference) / allowed)
    return _share(lab, np.array(ratios), "largest l1 excess over what the multipliers leave open")


def _ends(runs: list[Trajectory]) -> tuple[float, float]:
    """The smallest log |grad log(L - L*)| at the end of flows, and the largest |beta| there."""
    return min(float(run.log_slope[-1]) for run in runs), max(float(np.linalg.norm(run.weight())) for run in runs)


@claim(
    "key-query/lemma-4.2-as-printed",
    f"{SHEEN}, Lemma 4.2",
    "proved",
    expected=Outcome.refuted,
    slow=True,
    repair="key-query/lemma-4.2",
)
def lemma42_printed(lab: Lab, planted: bool) -> Verdict:
    """Under Assumption 2, from a start (5), |beta| tends to infinity.
    On data that a full matrix separates and no diagonal does, which the lemma does not exclude: the flow settles at a finite weight. Planted: with a gradient above 1e-3."""
    runs = evidence.unseparated(lab)
    flattest, largest = _ends(runs)
    text = f"smallest log |grad log(L - L*)| at the end of {len(runs)} flows"
    return at_least(flattest, np.log(1e-3 if planted else 1e-6), text, f"|beta| up to {largest:.3g}")


@claim("key-query/lemma-4.2", f"repair of {SHEEN}, Lemma 4.2", "repaired", slow=True)
def lemma42(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Under Assumption 2, from a start (5), |beta| tends to infinity if some diagonal separates, and then L tends to L*; where none does it converges to a finite weight, above L*.
    All draws to margin 1e5; data that only a full matrix separates, until they settle. Planted: these for those."""
    beyond = evidence.unseparated(lab)
    runs = beyond if planted else [one.run for one in drawn(lab)]
    # log(L - L*) <= log(gap e^gap) - margin + log 2, with score gaps up to 8
    most = max(float(run.log_excess[-1]) for run in runs)
    yield at_most(most, 11.0 - _TOP, "largest log(L - L*) at the end", _kept(lab))
    flattest, largest = max(float(run.log_slope[-1]) for run in beyond), _ends(beyond)[1]
    yield at_most(
        flattest, np.log(1e-6), "largest log |gradient| where no diagonal separates", f"|beta| up to {largest:.3g}"
    )
    least = min(float(run.log_excess[-1]) for run in beyond)
    yield at_least(least, -5.0, f"smallest log(L - L*) there, {len(beyond)} flows")


@claim("key-query/idle-multipliers", f"{SHEEN}, proof of Theorem 4.1, (35) and (36)", "sharpened", slow=True)
def idle_multipliers(lab: Lab, planted: bool) -> Verdict:
    """Multipliers off the support tend to 0 like 1 / log margin.
    lambda = phi / log margin of margins apart from the smallest, at 1e5 over 1e4. Planted: like 1 / (log margin)^2."""
    ratios = []
    for one in drawn(lab):
        before, after = _point(one, -2), _point(one, -1)
        idle = np.minimum(before.slack, after.slack) > _APART
        ratios.extend(after.multipliers[idle] / before.multipliers[idle])
    law = (np.log(1e4) / np.log(1e5)) ** (2 if planted else 1)
    text = f"largest relative distance of {len(ratios)} ratios of multipliers to log 1e4 / log 1e5"
    return at_most(float(np.abs(np.array(ratios) / law - 1).max()), 1e-9, text, _kept(lab))


@claim("key-query/stationarity", f"{SHEEN}, proof of Theorem 4.1, (31) and (37)", "sharpened", slow=True)
def stationary_signs(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """On the support (B lambda)_j = +-(1 + log(2 |b_j| / w_0j^2) / log margin), with the sign of the solution: it tends to +-1.
    At margins 1e2 to 1e5, b = beta / margin. Planted: w_0 for its square."""
    apart, wrong = [], 0
    for one in drawn(lab):
        on = np.abs(one.reference.weight) > 1e-9
        for record in range(1, len(one.run)):
            found, margin = _point(one, record), one.run.smallest_margin()[record]
            scale = one.scales[on] ** (1 if planted else 2)
            size = np.arcsinh(found.weight[on] * margin / scale) / np.log(margin)
            apart.append(np.abs(found.pull[on] - size).max())
            wrong += int((np.sign(found.pull[on]) != np.sign(one.reference.weight[on])).sum()) * (margin > _TOP / 2)
    yield at_most(float(wrong), 0.0, "signs on the support that differ from those of the solution at margin 1e5")
    # A hundred steps of relative error 1e-5 are 1e-3 of a weight, and that over log margin in B lambda.
    yield at_most(float(max(apart)), 1e-3 / np.log(1e2), "largest distance of (B lambda)_j to its law", _kept(lab))


@claim("key-query/approximate-kkt", f"{SHEEN}, Definition A.3 and the proof of Theorem 4.1", "proved", slow=True)
def approximate_kkt(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """beta / margin is an (eps, eps', delta)-KKT point of the l1 program whose eps, eps' and delta fall along the flow.
    Margins 1e2 to 1e5: eps falls on every draw, eps' and delta, which wait for the slowest drift, in the mean. Planted: half the multipliers."""
    points = [[_point(one, k, 0.5 if planted else 1.0) for k in range(1, len(one.run))] for one in drawn(lab)]
    values = np.array([[(p.stationarity, p.moved, p.complementarity) for p in row] for row in points])
    first, last = values.mean(axis=0)[[0, -1]]
    # On the support |log(2b/w_0^2)| / log margin is left of eps: between these margins a factor of log 1e2 / log 1e5 = 0.4.
    yield at_most(float(last[0] / first[0]), 0.5, "mean eps at margin 1e5 over that at 1e2", _kept(lab))
    yield at_most(float((values[:, 1:, 0] / values[:, :-1, 0]).max()), 1.0, "largest eps over that a decade before")
    for k, name in ((1, "eps'"), (2, "delta")):
        falls = values[..., k].mean(axis=0)
        shown = ", ".join(f"{value:.3g}" for value in falls)
        yield at_most(
            float((falls[1:] / falls[:-1]).max()), 1.0, f"largest mean {name} over that a decade before", shown
        )


class Moving(NamedTuple):
    """The state of a diagonal flow in its own time: K and Q, the phi of Lemma A.1, and the integral of |grad L|^2."""

    key: jax.Array
    query: jax.Array
    gathered: jax.Array
    energy: jax.Array


class Tokens(NamedTuple):
    """One data set as the paper writes it: X, z, scores, and B with a column of zeros for every optimal token."""

    tokens: jax.Array
    queries: jax.Array
    scores: jax.Array
    columns: jax.Array


def _loss(data: Tokens, weight: jax.Array) -> jax.Array:
    attention = jax.nn.softmax(jnp.einsum("nld,d,nd->nl", data.tokens, weight, data.queries), axis=1)
    return jnp.mean(jnp.exp(-jnp.sum(data.scores * attention, axis=1)))


def _printed(data: Tokens, weight: jax.Array) -> jax.Array:
    """phi' as printed in Lemma A.1: -(2/n) exp(-score) (Sigma score)_l."""
    attention = jax.nn.softmax(jnp.einsum("nld,d,nd->nl", data.tokens, weight, data.queries), axis=1)
    mean = jnp.sum(data.scores * attention, axis=1, keepdims=True)
    return -2 / len(data.scores) * jnp.exp(-mean) * attention * (data.scores - mean)


def _velocity(data: Tokens, state: Moving) -> Moving:
    loss = lambda key, query: _loss(data, key * query)
    key, query = jax.grad(loss, (0, 1))(state.key, state.query)
    weight = state.key * state.query
    return Moving(-key, -query, _printed(data, weight), jnp.sum(jax.grad(_loss, 1)(data, weight) ** 2))


def _integrate(data: Tokens, start: Moving) -> Moving:
    """The classical Runge-Kutta rule to time 30."""
    advance = lambda state, _: (runge_kutta(partial(_velocity, data), state, _STEP), None)
    return jax.lax.scan(advance, start, None, _STEPS)[0]


@recipe
def _followed(lab: Lab) -> tuple[Tokens, Moving, Moving, jax.Array]:
    """All draws at once by nothing but the paper's formulas and automatic differentiation, from K = sqrt(2) w_0, Q = 0: data, start, end, w_0."""
    runs = drawn(lab)
    tokens = [one.run.setting.data.tokens for one in runs]
    best = jnp.stack([t.tokens[np.arange(3), t.optimal] for t in tokens])[:, :, None]
    plain, queries, scores = (jnp.stack([getattr(t, name) for t in tokens]) for name in ("tokens", "queries", "scores"))
    data = Tokens(plain, queries, scores, (best - plain) * queries[:, :, None])
    scales = jnp.array([np.full(8, one.scales.mean()) if k % 2 else one.scales for k, one in enumerate(runs)])
    start = Moving(jnp.sqrt(2) * scales, jnp.zeros_like(scales), jnp.zeros_like(scores), jnp.zeros(len(runs)))
    return data, start, jax.jit(jax.vmap(_integrate))(data, start), scales


@claim("key-query/lemma-a.1", f"{SHEEN}, Lemma A.1", "proved", slow=True)
def lemma_a1(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """beta = w_0^2 sinh(B phi) with the printed phi, and beta' = 2/n sqrt(beta^2 + w_0^4) times the sum over B that is printed.
    Both against the flow of K and Q by automatic differentiation at time 30, and the first along a flow to margin 1e6 with the multipliers that it gathers. Planted: w_0^2 for w_0^4 under the root."""
    data, _, end, scales = _followed(lab)
    weight, moving = end.key * end.query, jax.vmap(_velocity)(data, end)
    gathered = lambda phi: jnp.einsum("snld,snl->sd", data.columns, phi)
    closed = scales**2 * jnp.sinh(gathered(end.gathered))
    velocity = moving.key * end.query + end.key * moving.query
    law = jnp.sqrt(weight**2 + scales ** (2 if planted else 4)) * gathered(moving.gathered)
    for found, exact, what in ((closed, weight, "w_0^2 sinh(B phi)"), (law, velocity, "the printed beta'")):
        error = float(jnp.max(jnp.abs(found - exact).max(axis=1) / jnp.abs(exact).max(axis=1)))
        text = f"largest relative error of {what}"
        yield at_most(error, 1e-7, text, f"{_kept(lab)}; steps of {_STEP} to the power 4")
    run = evidence.precise_diagonal_run(lab)
    pulls = 2 * run.dual[1:] @ np.asarray(run.setting.data.features())
    weights = np.array([run.weight(k) for k in range(1, len(run))])
    errors = np.abs(weights - np.sinh(pulls)).max(axis=1) / np.abs(weights).max(axis=1)
    # a margin of 1e6 rounds at 1e-10, which is what remains
    yield at_most(float(errors.max()), 2e-10, "largest relative error of w_0^2 sinh(2 B'phi), margins 1e2 to 1e6")


@claim("key-query/energy", f"{SHEEN}, (27) and (28); factor derived for penchant", "sharpened", slow=True)
def energy(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """dL/dt <= -2 w_min^2 |grad L|^2, n times the bound that is printed, and it is attained at the start; so is its integral (28).
    |grad_(K,Q) L|^2 over 2 w_min^2 |grad_beta L|^2 at both ends, and the fall of the loss over the integral. Planted: 2.2 for 2."""
    data, start, end, scales = _followed(lab)
    least = (2.2 if planted else 2.0) * scales.min(axis=1) ** 2
    for state, when in ((start, "start"), (end, "end")):
        moving = jax.vmap(_velocity)(data, state)
        fall = jnp.sum(moving.key**2 + moving.query**2, axis=1)
        yield at_least(
            float((fall / (least * moving.energy)).min()), 1 - 1e-12, f"smallest -dL/dt over its bound, {when}"
        )
    losses = [jax.vmap(_loss)(data, state.key * state.query) for state in (start, end)]
    worst = float(((losses[0] - losses[1]) / (least * end.energy)).min())
    yield at_least(worst, 1.0, "smallest fall of the loss over the integral of its bound", _kept(lab))


@claim("key-query/above-infimum", f"{SHEEN}, Section 3.2", "proved", slow=True)
def above_infimum(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """The loss is above L* = mean exp(-best score) at every finite weight, and tends to it along a weight that separates.
    The loss as it is written at drawn weights, and at 1 to 12 times the l1 solution. Planted: above 1.001 L*."""
    data, *_ = _followed(lab)
    bound = (1.001 if planted else 1.0) * np.exp(-np.asarray(data.scores).max(axis=2)).mean(axis=1)
    normal = np.random.default_rng(lab.seed).standard_normal((len(bound), 8))
    along = jnp.array([one.reference.weight for one in drawn(lab)])
    losses = np.stack(
        [jax.vmap(_loss)(data, jnp.asarray(w)) for w in (normal, 3 * normal, along, 4 * along, 12 * along)]
    )
    yield at_least(float((losses / bound - 1).min()), 1e-9, "smallest L / L* - 1 at five weights each", _kept(lab))
    # 1 - s_opt <= 2 e^-m, so log(L/L*) <= 2 gap e^-m with gaps up to 8
    yield at_most(
        float((losses[-1] / bound - 1).max()), float(np.expm1(16 * np.exp(-12.0))), "largest L / L* - 1 at margin 12"
    )
