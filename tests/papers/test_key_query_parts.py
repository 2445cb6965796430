"""Pairings, starts, uniqueness, finite margins, recorded bounds and stalled runs, each against an independent account."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

import penchant as pt
from penchant.errors import ArgumentError, NotSeparableError
from penchant.norms import L1
from penchant.papers import new_lab
from penchant.papers.key_query import hypotheses as assumptions
from penchant.papers.key_query.evidence import diagonal_run
from penchant.references.finite_margin import finite_margin, potential
from penchant.settings.factored import Factors, Pair
from penchant.theory.judge import certificates, certified
from penchant.theory.selections import equal_scores
from penchant.theory.uniqueness import uniqueness
from penchant.training.status import Status

LAB = new_lab()

DIAGONAL = pt.settings.DiagonalTokens(pt.settings.equal_score_tokens(4, 4, 12, 5))
FEATURES = np.asarray(DIAGONAL.features())


def test_repeated_pairs_are_paired_although_an_assignment_may_run_in_a_circle():
    data = pt.settings.aligned_tokens().data
    tokens, others = np.array(data.tokens), np.asarray(data.others)
    for i in range(3):  # both pairs of a sample become the same pair: e, -e, e, -e
        tokens[i, others[i, 2]], tokens[i, others[i, 3]] = tokens[i, others[i, 0]], tokens[i, others[i, 1]]
    found = assumptions.paired_tokens(pt.TokenSelection(tokens, queries=data.queries, scores=data.scores))
    assert found.holds
    many = pt.settings.aligned_tokens(tokens=13, d=14)  # past the size that is enumerated
    assert assumptions.paired_tokens(many.data).holds
    assert sorted(len(one.pairs) for one in assumptions.pairings(many.data)) == [6, 6, 6]


def test_shares_of_pairs_are_read_off_the_tokens():
    shares = np.array([(0.05, -0.1), (0.0, 0.1), (-0.05, -0.2)])
    data = pt.settings.aligned_tokens(shares=shares).data
    found = [sorted(one.shares) for one in assumptions.pairings(data)]
    assert np.allclose(found, np.sort(shares, axis=1), atol=1e-12)
    assert assumptions.pairwise_scores(data).holds
    assert not equal_scores(data).holds
    scores = np.array(data.scores)
    scores[2, int(data.others[2, 0])] += 1e-6
    moved = assumptions.pairwise_scores(pt.TokenSelection(data.tokens, queries=data.queries, scores=scores))
    assert not moved.holds
    assert moved.offender == "sample 2"


def test_odd_numbers_of_other_tokens_cannot_be_paired():
    data = pt.settings.equal_score_tokens(3, 4, 5, 1)
    assert not assumptions.paired_tokens(data).holds
    assert not assumptions.pairwise_scores(data).holds


VARIANTS = {
    "aligned": {},
    "queries in a frame of their own": {"parallel": False},
    "equal scores in pairs only": {"shares": ((0.05, -0.1), (0.0, 0.1), (-0.05, -0.2))},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_alignment_of_a_start_is_seen_from_the_data_alone(variant):
    aligned = pt.settings.aligned_tokens(**VARIANTS[variant])
    start = aligned.start((0.1, 0.2, 0.15, 0.1, 0.3, 0.2), 7, 5)
    assert assumptions.aligned_start(aligned.data, start).holds
    bent = Factors(start.key.at[0, 0].add(1e-4), start.query)
    assert not assumptions.aligned_start(aligned.data, bent).holds


def test_starts_outside_equation_5_are_named():
    assert assumptions.one_sided_start(Pair(jnp.array([0.0, 1.0]), jnp.array([2.0, 0.0]))).holds
    both = assumptions.one_sided_start(Pair(jnp.array([0.0, 1.0]), jnp.array([2.0, 0.5])))
    frozen = assumptions.one_sided_start(Pair(jnp.array([0.0, 1.0]), jnp.array([0.0, 0.0])))
    assert (both.holds, both.offender) == (False, "coordinate 1")
    assert (frozen.holds, frozen.offender) == (False, "coordinate 0")


def test_a_verdict_says_that_the_start_breaks_the_hypotheses():
    setting = pt.Setting(DIAGONAL, pt.Hadamard(), pt.Exponential())
    start = Pair(jnp.full(12, 0.5), jnp.full(12, 0.5))
    run = pt.train(setting, pt.GradientFlow(), start, steps=3)
    verdict = pt.judge(pt.predict(setting, pt.GradientFlow()), run)
    assert "one_sided_start" in verdict.detail


def test_coordinates_that_can_never_move_are_refused():
    setting = pt.Setting(DIAGONAL, pt.Hadamard(), pt.Exponential())
    start = Pair(jnp.ones(12).at[3].set(0.0), jnp.zeros(12))
    with pytest.raises(ArgumentError, match="coordinate 3"):
        pt.train(setting, pt.GradientFlow(), start, steps=1)
    run = pt.train(setting, pt.GradientFlow(), steps=1)
    assert run.status is Status.zero_gradient
    assert run.log_time[-1] == -np.inf  # no time has passed


def test_equal_tokens_with_different_scores_are_proved_inseparable():
    tokens = np.array(DIAGONAL.tokens.tokens)
    best, other = int(DIAGONAL.tokens.optimal[2]), int(DIAGONAL.tokens.others[2, 1])
    tokens[2, other] = tokens[2, best]
    data = pt.TokenSelection(tokens, queries=DIAGONAL.tokens.queries, scores=DIAGONAL.tokens.scores)
    with pytest.raises(NotSeparableError) as caught:
        pt.references.nuclear_margin(data)
    assert caught.value.weights[2 * 3 + 1] == pytest.approx(1.0, abs=1e-9)  # the proof names the pair
    assert f"1 on sample 2 token {other}" in str(caught.value)


def extent(features, value):
    """How far the set of l1-optimal weights reaches in random directions, by linear programs (plus and minus parts)."""
    d = features.shape[1]
    rows = np.vstack([np.hstack([-features, features]), np.ones(2 * d)])
    bounds = np.append(-np.ones(len(features)), value * (1 + 1e-9))
    widths = []
    for direction in np.random.default_rng(0).standard_normal((4, d)):
        ends = [
            linprog(s * np.append(direction, -direction), A_ub=rows, b_ub=bounds, method="highs").fun for s in (1, -1)
        ]
        widths.append(abs(ends[0] + ends[1]))
    return max(widths)


def test_uniqueness_of_the_l1_solution_agrees_with_the_extent_of_the_optimal_set():
    single = pt.references.diagonal_margin(DIAGONAL)
    assert uniqueness(DIAGONAL, single).unique
    assert extent(FEATURES, single.value) <= 1e-6
    tokens = DIAGONAL.tokens
    twice = lambda array: np.concatenate([np.asarray(array)] * 2, axis=-1)
    doubled = pt.settings.DiagonalTokens(
        pt.TokenSelection(twice(tokens.tokens), queries=twice(tokens.queries), scores=tokens.scores)
    )
    several = pt.references.diagonal_margin(doubled)
    assert uniqueness(doubled, several).unique is not True
    assert extent(np.asarray(doubled.features()), several.value) >= 1e-2


@pytest.mark.parametrize("margin", [1.0, 1e3, 1e6, 1e10])
def test_finite_margin_solutions_satisfy_the_optimality_conditions(margin):
    found = finite_margin(DIAGONAL, 0.5, margin)
    margins = FEATURES @ found.weight
    assert np.allclose(np.arcsinh(found.weight / 0.25), found.dual @ FEATURES, rtol=1e-9, atol=1e-9)
    assert found.dual.min() >= 0
    assert margins.min() >= margin * (1 - 1e-9)
    assert found.dual @ (margins - margin) <= 1e-9 * margin * found.dual.sum()


def test_finite_margins_lead_from_the_l2_to_the_l1_solution():
    euclidean, polyhedral = pt.references.max_margin(DIAGONAL), pt.references.diagonal_margin(DIAGONAL)
    assert pt.diagnostics.misalignment(finite_margin(DIAGONAL, 1e4, 1.0).weight, euclidean.weight) <= 1e-9
    excess = [np.abs(finite_margin(DIAGONAL, 1.0, m).weight).sum() / m / polyhedral.value - 1 for m in (1e3, 1e6, 1e9)]
    assert 0 < excess[2] < excess[1] < excess[0]
    step = 1e-6 * np.arange(1, 13)
    weight = np.linspace(-2, 3, 12)
    slope = (potential(weight + step, np.ones(12)) - potential(weight - step, np.ones(12))) / 2
    assert slope == pytest.approx(step @ np.arcsinh(weight), rel=1e-7)  # the gradient of the potential


@pytest.mark.parametrize(("scales", "margin", "argument"), [(1.0, -1.0, "margin"), (0.0, 1.0, "scales")])
def test_bad_finite_margins_are_named(scales, margin, argument):
    with pytest.raises(ArgumentError) as caught:
        finite_margin(DIAGONAL, scales, margin)
    assert caught.value.argument == argument


def test_bounds_are_saved_with_the_run_and_enclose_the_optimum(tmp_path):
    run, reference = diagonal_run(LAB)
    path = certified(run, L1(), reference).save(tmp_path / "run.npz")
    with np.load(path) as saved:
        bounds = {name: saved[f"account_{name}"] for name in ("upper", "accumulated", "window", "instant", "excess")}
        weight, dual = saved["a"] * saved["b"], saved["dual"][-1]
    late = np.isfinite(bounds["upper"])
    for name in ("accumulated", "window", "instant"):
        assert (bounds[name] <= reference.value * (1 + 1e-9)).all()
    assert (bounds["upper"][late] >= reference.value * (1 - 1e-9)).all()
    # By hand, from the saved arrays alone.
    assert bounds["upper"][-1] == pytest.approx(np.abs(weight).sum() / (FEATURES @ weight).min(), rel=1e-12)
    assert bounds["accumulated"][-1] == pytest.approx(dual.sum() / np.abs(dual @ FEATURES).max(), rel=1e-12)
    found = certificates(run, L1())
    assert np.isinf(found.gap("accumulated")[0])  # at the start nothing separates


def stuck(until):
    data = pt.settings.DiagonalTokens(pt.settings.contrary_pair((6.0, 1.0), (-3.0, 0.0)))
    start = pt.Hadamard().one_sided(data, 0.1, np.random.default_rng(0))
    return pt.train(
        pt.Setting(data, pt.Hadamard(), pt.Exponential()), pt.GradientFlow(), start, until=until, steps=3000
    )


def test_a_run_on_wrong_tokens_stalls_and_its_plateau_is_named():
    run = stuck((pt.MarginAbove(1e6), pt.training.Stalled()))
    assert run.status is Status.stalled
    assert run.smallest_margin()[-1] <= -1e3
    limit = pt.theory.detect_limit(run)
    assert (limit.kind, limit.tokens) == ("local", (0, 1))
    plateau = np.log((1 - np.exp(-1.0)) / 2)  # only the second sample is wrong: (e^0 - e^-1)/2
    assert limit.plateau == pytest.approx(plateau, abs=1e-12)
    assert run.log_excess[-1] == pytest.approx(plateau, abs=1e-9)


def test_margins_beyond_float64_are_refused_and_descent_does_not_watch_for_stalls():
    with pytest.raises(ArgumentError, match="at most 1e\\+12"):
        stuck(pt.MarginAbove(1e13))
    with pytest.warns(pt.errors.PenchantWarning, match="knows margins only to 2e-06"):
        stuck((pt.MarginAbove(1e10), pt.training.Stalled()))
    setting = pt.Setting(pt.settings.separable(), pt.Direct(), pt.Exponential())
    with pytest.raises(ArgumentError) as caught:
        pt.train(setting, pt.normalised_descent(0.1), steps=10, until=pt.training.Stalled())
    assert caught.value.argument == "until"


def test_predictions_carry_uniqueness_and_closed_forms():
    aligned = pt.settings.aligned_tokens()
    notes = pt.predict(pt.Setting(aligned.data, pt.KeyQuery(), pt.Exponential()), pt.GradientFlow()).notes
    assert "unique" in notes[0]
    assert f"{(1 / aligned.strengths).sum():.10g}" in notes[1]
    diagonal = pt.predict(pt.Setting(DIAGONAL, pt.Hadamard(), pt.Exponential()), pt.GradientFlow()).notes
    pull = np.sort(np.abs(pt.references.diagonal_margin(DIAGONAL).dual @ FEATURES))
    off = (pull / pull[-1])[pull / pull[-1] < 1 - 1e-7].max()  # the largest pull off the support
    assert f"margin^-{1 - off:.4g}" in diagonal[1]
