"""Local directions: which selections are locally optimal, and which one a run has reached."""

import jax.numpy as jnp
import numpy as np
import pytest

import penchant as pt
from penchant.diagnostics.direction import misalignment
from penchant.errors import ArgumentError
from penchant.papers import new_lab
from penchant.papers.key_query.evidence import diagonal_run, direct_run, matrix_run
from penchant.settings.generators import local_pair, local_single, random_tokens, separable
from penchant.theory.selections import detect_limit, is_locally_optimal, locally_optimal_selections
from problems import every_selection

LAB = new_lab()


def run(data, optimiser, steps):
    return pt.train(
        pt.Setting(data, pt.Direct(), pt.Exponential()), optimiser, steps=steps, recorder=pt.training.At(())
    )


def correlations(data, optimiser, steps):
    """Correlation with the global and with the reached direction, and what `detect_limit` says."""
    end = run(data, optimiser, steps)
    limit = detect_limit(end)
    return 1 - misalignment(end.weight(), pt.references.max_margin(data).weight), 1 - limit.misalignment, limit


def test_pair_has_exactly_two_locally_optimal_selections():
    data = local_pair(1.0, 0.1)
    assert [found.tokens for found in locally_optimal_selections(data)] == [(1, 0), (1, 1)]
    assert [is_locally_optimal(data, tokens).locally_optimal for tokens in every_selection(2, 2)] == [
        False,
        False,
        True,
        True,
    ]


def test_pair_references_are_known_in_closed_form():
    data = local_pair(1.0, 0.1)
    column = lambda solution: solution.weight[:, 2]
    assert np.allclose(column(pt.references.max_margin(data)), [1, 3, 0], rtol=0, atol=1e-13)
    local = is_locally_optimal(data, (1, 0))
    assert np.allclose(column(local.solution), [1, 0, 0], rtol=0, atol=1e-13)
    assert np.allclose(data.select([1, 0]).margins(jnp.asarray(local.solution.weight)), [1, 2], rtol=0, atol=1e-13)


# Optimiser, steps, correlation with W_mm, with W_alpha, and the digits known from independent runs.
PAIR = {
    "gd": (pt.gradient_descent(1.0), 20_000, 0.3616, 5e-5, 0.99884, 5e-6),
    "ngd": (pt.normalised_descent(0.05), 5000, 0.31774, 5e-6, 0.9999987, 5e-8),
    "polyak capped": (pt.polyak(cap=50.0), 2000, 0.3776, 5e-5, 0.99786, 5e-6),
}


@pytest.mark.parametrize("name", PAIR)
def test_pair_with_a_small_gap_goes_to_the_local_direction(name):
    optimiser, steps, wide, wide_digits, near, near_digits = PAIR[name]
    found, reached, limit = correlations(local_pair(1.0, 0.1), optimiser, steps)
    assert (limit.kind, limit.tokens) == ("local", (1, 0))
    assert found == pytest.approx(wide, abs=1.1 * wide_digits)
    assert reached == pytest.approx(near, abs=1.1 * near_digits)
    assert limit.plateau == pytest.approx(-3.0453156416, abs=1e-10)
    assert limit.reached.locally_optimal


def test_pair_distance_from_the_plateau():
    limit = correlations(local_pair(1.0, 0.1), *PAIR["gd"][:2])[2]
    assert limit.plateau_distance == pytest.approx(1.05e-3, abs=5.5e-6)


@pytest.mark.parametrize(
    ("optimiser", "steps", "wanted", "digits"),
    [(pt.gradient_descent(1.0), 20_000, 0.9999945, 5e-8), (pt.normalised_descent(0.05), 20_000, 0.999999998, 5e-10)],
    ids=["gd", "ngd"],
)
def test_pair_with_a_larger_gap_goes_to_the_global_direction(optimiser, steps, wanted, digits):
    found, _, limit = correlations(local_pair(1.0, 0.25), optimiser, steps)
    assert limit.kind == "global"
    assert found == pytest.approx(wanted, abs=1.1 * digits)


@pytest.mark.parametrize(("gap", "kind"), [(0.18008, "local"), (0.18021, "global")])
def test_threshold_between_local_and_global(gap, kind):
    assert detect_limit(run(local_pair(1.0, gap), pt.normalised_descent(0.01), 20_000)).kind == kind


@pytest.mark.parametrize(
    ("optimiser", "steps", "near", "near_digits", "wide"),
    [
        (pt.gradient_descent(1.0), 100_000, 0.99967, 5e-6, -0.964),
        (pt.normalised_descent(0.05), 20_000, 0.9999999976, 5e-11, -0.970),
    ],
    ids=["gd", "ngd"],
)
def test_single_sample_selects_the_second_best_token(optimiser, steps, near, near_digits, wide):
    found, reached, limit = correlations(local_single(), optimiser, steps)
    assert (limit.kind, limit.tokens) == ("local", (2,))
    assert found == pytest.approx(wide, abs=5.5e-4)
    assert reached == pytest.approx(near, abs=1.1 * near_digits)
    assert limit.plateau == pytest.approx(-3.252168, abs=5e-7)


def test_single_sample_reference_norms():
    assert pt.references.max_margin(local_single()).value == pytest.approx(0.4850712501, abs=5e-11)
    assert is_locally_optimal(local_single(), (2,)).solution.value == pytest.approx(0.25, abs=1e-13)


def test_an_infeasible_selection_is_not_locally_optimal():
    tokens = np.array([[[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]]])
    middle = pt.TokenSelection(tokens, scores=[[0.0, 0.0, 1.0]])
    found = is_locally_optimal(middle, (1,))  # the middle of three points on a line
    assert not found.locally_optimal
    assert found.solution is None


def test_equal_scores_allow_no_local_selection_of_a_single_sample():
    for seed in range(5):
        data = random_tokens(1, 4, 5, seed, equal_scores=True)
        assert [found.tokens for found in locally_optimal_selections(data)] == [(int(data.optimal[0]),)]


def test_an_unfinished_run_is_undecided():
    assert detect_limit(run(local_pair(1.0, 0.1), pt.gradient_descent(0.01), 3)).kind == "undecided"


def test_beyond_the_limit_only_selections_one_sample_away_are_tried():
    data = local_pair(1.0, 0.1)
    assert [found.tokens for found in locally_optimal_selections(data, limit=3, around=(0, 0))] == [(1, 0)]
    assert [found.tokens for found in locally_optimal_selections(data, limit=3)] == [(1, 1), (1, 0)]
    many = random_tokens(10, 3, 30, 0)  # 3^10 selections
    assert tuple(int(token) for token in many.optimal) in {found.tokens for found in locally_optimal_selections(many)}


def test_too_many_flips_and_a_wrong_centre_are_refused():
    with pytest.raises(ArgumentError, match="'limit' argument"):
        locally_optimal_selections(random_tokens(10, 3, 5, 0), limit=20)
    with pytest.raises(ArgumentError, match="'selection' argument"):
        locally_optimal_selections(random_tokens(10, 3, 5, 0), around=(0, 0))


def test_limit_of_a_classification_run_is_refused():
    with pytest.raises(ArgumentError, match="'run' argument"):
        detect_limit(run(separable(6, 2), pt.gradient_descent(0.1), 3))


def test_the_limit_of_keys_and_queries_is_measured_in_the_nuclear_norm():
    end, reference = matrix_run(LAB)
    limit = detect_limit(end)
    assert (limit.kind, limit.reached.solution.norm) == ("global", "nuclear")
    assert limit.misalignment == pytest.approx(misalignment(end.weight(), reference.weight), rel=1e-6)
    assert limit.misalignment < misalignment(end.weight(), pt.references.max_margin(end.setting.data).weight) / 10
    direct = detect_limit(direct_run(LAB)[0])
    assert direct.reached.solution.norm == "frobenius"


@pytest.mark.slow
def test_the_limit_of_diagonals_is_measured_in_the_l1_norm():
    end, reference = diagonal_run(LAB)
    limit = detect_limit(end)
    assert (limit.kind, limit.reached.solution.norm) == ("global", "l1")
    assert limit.misalignment == pytest.approx(misalignment(end.weight(), reference.weight), rel=1e-6)
    rotated = pt.Setting(end.setting.data, pt.Direct(), pt.Exponential())
    straight = pt.train(rotated, pt.GradientFlow(), until=pt.MarginAbove(1e4))
    assert detect_limit(straight).reached.solution.norm == "l2"
    assert detect_limit(straight).misalignment < 1e-6
