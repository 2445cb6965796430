"""The maximum-margin program against an independent solver, closed forms, and proofs of infeasibility."""

import cvxpy
import numpy as np
import pytest

import penchant as pt
from penchant.errors import NotSeparableError, UndecidedMargin
from penchant.references.bracket import bracket
from penchant.references.euclidean_margin import max_margin
from penchant.references.exact_margin import balanced
from penchant.settings.classification import Classification
from penchant.settings.generators import local_pair, local_single, random_tokens, separable, signal_tokens
from penchant.settings.tokens import TokenSelection
from problems import features


def by_clarabel(data):
    rows = features(data)[data.constrained()]
    weight = cvxpy.Variable(rows.shape[1])
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.sum_squares(weight)), [rows @ weight >= 1])
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
    return weight.value


def rank_deficient(seed):
    """Inputs of rank 3 in dimension 8, twice as many samples as dimensions, some rows repeated."""
    rng = np.random.default_rng(seed)
    inputs = rng.standard_normal((16, 3)) @ rng.standard_normal((3, 8))
    inputs[8:11] = inputs[:3]
    return Classification(inputs, np.sign(inputs @ rng.standard_normal(8)))


def repeated_sequences(seed):
    """Two copies of every sequence: the Gram matrix has half its rank."""
    data = random_tokens(3, 4, 6, seed)
    twice = lambda a: np.concatenate([np.asarray(a)] * 2)
    return TokenSelection(twice(data.tokens), scores=twice(data.scores))


PROBLEMS = {
    **{f"separable {seed}": separable(seed=seed) for seed in (5, 6, 7)},
    **{f"rank deficient {seed}": rank_deficient(seed) for seed in (0, 1)},
    **{f"random tokens {seed}": random_tokens(4, 4, 8, seed) for seed in (0, 1, 2)},
    "equal scores": random_tokens(5, 3, 6, 3, equal_scores=True),
    "repeated sequences": repeated_sequences(4),
    "signal": signal_tokens(6, 4, 20, 1.0),
    "local pair": local_pair(),
    "local single": local_single(),
    "one sample": Classification([[3.0, -4.0]], [-1]),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_weight_and_value_agree_with_clarabel(name):
    data = PROBLEMS[name]
    solution, other = max_margin(data), by_clarabel(data)
    assert solution.value == pytest.approx(
        np.linalg.norm(other), rel=1e-8
    )  # Clarabel at 1e-12 in the square, less its conditioning
    assert np.linalg.norm(solution.weight.ravel() - other) <= 1e-5 * np.linalg.norm(other)  # the square root of that


@pytest.mark.parametrize("name", PROBLEMS)
def test_optimality_conditions_hold_and_certify_the_value(name):
    data = PROBLEMS[name]
    solution = max_margin(data)
    rows = features(data)
    reached, dual = rows @ solution.weight.ravel(), solution.dual
    assert reached.min() >= 1 - 1e-12  # primal feasible
    assert dual.min() >= 0  # dual feasible
    scaled = dual * (solution.value**2 / dual.sum())  # at the optimum the multipliers sum to |W|^2
    assert np.abs(scaled @ rows - solution.weight.ravel()).max() <= 1e-10 * np.abs(solution.weight).max()  # stationary
    assert abs(scaled @ (reached - 1)) <= 1e-10 * solution.value**2  # complementary
    assert 0 <= solution.bracket.gap + 1e-15 <= 1e-12 + 1e-15  # what the solver promises, from either side of rounding
    assert solution.bracket.infeasibility <= 1e-12
    assert solution.bracket.negativity == 0
    assert solution.bracket.complementarity <= 1e-10
    assert abs(solution.bracket.misalignment) <= 1e-12


def test_single_pair_closed_form():
    data = TokenSelection([[[1.0, 2.0], [3.0, -1.0]]], scores=[[0.0, 1.0]])
    z = np.outer([2.0, -3.0], [1.0, 2.0])
    assert np.allclose(max_margin(data).weight, z / np.sum(z**2), rtol=1e-14, atol=1e-16)


def test_orthogonal_tokens_closed_form():
    # n = 1, |x_o|^2 = 2.25, other |x|^2 = 0.64 = |q|^2, T = 5: |W|^2 = 4 / (0.64 (2.25 * 4 + 0.64)).
    tokens = np.zeros((1, 5, 5))
    tokens[0, np.arange(5), np.arange(5)] = [0.8, 0.8, 1.5, 0.8, 0.8]
    data = TokenSelection(tokens, scores=[[0.0, 0.0, 1.0, 0.0, 0.0]])
    assert max_margin(data).value ** 2 == pytest.approx(0.64834024896, abs=5e-12)  # eleven digits given


def test_orthogonal_queries_split_the_problem():
    rng = np.random.default_rng(3)
    tokens, queries = rng.standard_normal((3, 4, 5)), np.diag([1.0, 2.0, 0.5])
    scores = np.eye(4)[[0, 2, 3]]
    whole = max_margin(TokenSelection(tokens, queries=queries, scores=scores))
    parts = [
        max_margin(TokenSelection(tokens[i : i + 1], queries=queries[i : i + 1], scores=scores[i : i + 1]))
        for i in range(3)
    ]
    squares = np.array([part.value**2 for part in parts])
    mass = whole.dual.reshape(3, 3).sum(axis=1)
    assert whole.value**2 == pytest.approx(squares.sum(), rel=1e-12)
    assert np.allclose(mass / mass.sum(), squares / squares.sum(), rtol=1e-10)


@pytest.mark.parametrize("scale", [1e-3, 7.0, 1e4])
def test_rescaling_tokens_rescales_the_weight_by_the_inverse_square(scale):
    data = random_tokens(4, 3, 6, 1)
    scaled = TokenSelection(scale * np.asarray(data.tokens), scores=np.asarray(data.scores))
    one, other = max_margin(data), max_margin(scaled)
    assert np.abs(other.weight * scale**2 - one.weight).max() <= 1e-13 * np.abs(one.weight).max()


def test_tied_tokens_are_left_out_of_the_constraints():
    tokens = [[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]]
    kept = max_margin(TokenSelection(tokens, scores=[[1.0, 1.0, 0.0]], ties="keep"))
    alone = max_margin(TokenSelection([[[1.0, 0.0], [1.0, 1.0]]], scores=[[1.0, 0.0]]))
    assert kept.value == pytest.approx(alone.value, rel=1e-14)
    assert kept.dual[0] == 0


def test_linear_model_of_the_lecture_notes():
    solution = max_margin(separable())
    assert solution.margin == pytest.approx(0.61247408, abs=5e-9)  # E6: eight digits given
    assert solution.support.sum() == 4


INFEASIBLE = {
    "opposite labels": lambda: Classification([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [1, -1, 1]),
    "dependent columns": lambda: Classification([[0.1, 0.2], [-0.3, -0.6], [0.5, 1.0]], [1, 1, 1]),
    "a zero input": lambda: Classification([[1.0, 0.0], [0.0, 0.0]], [1, 1]),
    "a triangle around 0": lambda: Classification([[1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0]], [1, 1, 1]),
    "label noise": lambda: Classification(
        np.random.default_rng(0).standard_normal((40, 3)), np.random.default_rng(1).choice([-1, 1], 40)
    ),
    "contradictory sequences": lambda: TokenSelection(
        [[[1.0, 0.0], [0.0, 1.0]]] * 2, queries=[[1.0, 1.0]] * 2, scores=[[1.0, 0.0], [0.0, 1.0]]
    ),
    "a token between two others": lambda: TokenSelection(
        [[[1.0, 0.0], [3.0, 0.0], [2.0, 0.0]]], scores=[[0.0, 0.0, 1.0]]
    ),
    "a duplicated optimal token": lambda: TokenSelection(
        [[[1.0, 2.0], [1.0, 2.0], [0.0, 1.0]]], scores=[[1.0, 0.0, 0.0]]
    ),
}


@pytest.mark.parametrize("name", INFEASIBLE)
def test_infeasible_data_raise_with_a_proof(name):
    data = INFEASIBLE[name]()
    with pytest.raises(NotSeparableError) as caught:
        max_margin(data)
    q, rows = caught.value.weights, features(data)
    assert q.shape == (len(rows),)
    assert q.min() >= 0
    assert q.sum() == pytest.approx(1, abs=1e-12)
    longest = np.linalg.norm(rows, axis=1).max()
    # The proof: no weight of norm 1 has all margins above |sum q Z|, computed here from the features alone.
    assert np.linalg.norm(q @ rows) <= 1e-9 * longest
    assert caught.value.norm == pytest.approx(np.linalg.norm(q @ rows), abs=1e-9 * longest)


@pytest.mark.parametrize(
    ("name", "largest", "cause"),
    [
        ("a zero input", "1 on sample 1.", "the input of sample 1 is zero"),
        ("opposite labels", "0.5 on sample 0, 0.5 on sample 1.", "samples 0 and 1 contradict each other"),
        ("a triangle around 0", "0.5 on sample 0, 0.25 on sample ", "label noise"),
    ],
)
def test_the_message_names_the_samples_of_the_proof(name, largest, cause):
    with pytest.raises(NotSeparableError) as caught:
        max_margin(INFEASIBLE[name]())
    assert f"Largest weights: {largest}" in str(caught.value)
    assert cause in str(caught.value)


def test_a_long_proof_is_not_listed_in_full():
    corners = np.eye(10)
    with pytest.raises(NotSeparableError, match=r"and above 0\.01 on 6 more"):
        max_margin(Classification([*corners, -corners.sum(axis=0)], np.ones(11)))


@pytest.mark.parametrize("margin", [1e-2, 1e-4, 1e-6])
def test_a_small_margin_is_not_called_infeasible(margin):
    # Two nearly opposite inputs: the best direction is e_2 and its margin is known.
    data = Classification([[1.0, margin], [-1.0, margin]], [1, 1])
    solution = max_margin(data)
    assert solution.margin == pytest.approx(margin, rel=1e-6)
    assert bracket(data, solution.weight, solution.dual).gap <= 1e-6


@pytest.mark.parametrize("gap", [1e-7, 1e-9, 1e-12, 1e-13])
def test_margins_below_the_resolution_of_the_gram_matrix_are_found(gap, rng):
    """Two samples (gap, +-1, 0, 0) allow no margin above the gap, and the first coordinate alone attains it."""
    inputs = rng.standard_normal((40, 4))
    inputs[:, 0] = gap + np.abs(inputs[:, 0])
    data = pt.Classification(np.vstack([inputs, [[gap, 1, 0, 0], [gap, -1, 0, 0]]]), np.ones(42))
    found = pt.references.max_margin(data)
    assert found.bracket.gap <= 1e-15 / gap
    assert found.margin <= gap * (1 + 1e-12)
    assert found.margin == pytest.approx(gap, rel=max(1e-12, 1e-15 / gap))


def test_a_column_of_large_numbers_does_not_make_data_inseparable():
    """Times in nanoseconds: the second column separates with margin 1, seventeen digits below the first."""
    labels = np.array([1, -1] * 3)
    inputs = np.c_[1.7e18 + 1e9 * np.arange(6), labels]
    found = pt.references.max_margin(pt.Classification(inputs, labels))
    assert found.weight == pytest.approx([0, 1], abs=1e-12)
    assert found.bracket.lower <= 1 <= found.bracket.upper <= 1 + 1e-12
    assert not found.certified  # float64 does not say so
    inputs[:, 1] = [1, -1, 1, -1, -1, 1]  # and these are not: times 0, 1, 2, 3, 4, 5 are no use
    scaled = inputs - [1.7e18, 0]
    with pytest.raises(NotSeparableError):
        pt.references.max_margin(pt.Classification(scaled * [1e-9, 1e9], labels))


def gap_or_doubt(data):
    try:
        return pt.references.max_margin(data).bracket.gap, ""
    except UndecidedMargin as error:
        return np.inf, str(error)


@pytest.mark.parametrize("seed", range(3))
def test_units_of_columns_and_lengths_of_rows_never_make_a_proof(seed):
    rng = np.random.default_rng(seed)
    inputs, teacher = rng.standard_normal((20, 5)), rng.standard_normal(5)
    labels = np.sign(inputs @ teacher)
    inputs += 0.3 * labels[:, None] * teacher
    for scale in ([1, 1e12, 1e-12, 1e6, 1], 10.0 ** rng.uniform(-30, 30, (20, 1))):
        gap, doubt = gap_or_doubt(pt.Classification(inputs * scale, labels))
        assert gap < 1e-2 or "are separable" in doubt


def test_many_samples_need_no_matrix_of_all_pairs(rng):
    inputs, teacher = rng.standard_normal((6000, 3)), np.array([0.6, 0.0, 0.8])
    labels = np.sign(inputs @ teacher)
    data = pt.Classification(inputs + 0.3 * labels[:, None] * teacher, labels)
    found = pt.references.max_margin(data)
    assert found.bracket.gap <= 1e-12
    few = pt.references.max_margin(
        pt.Classification(np.asarray(data.signed)[found.support], np.ones(found.support.sum()))
    )
    assert found.weight == pytest.approx(few.weight, rel=1e-9)


def test_a_margin_of_a_thousand_roundings_is_no_proof_that_there_is_none():
    found = pt.references.max_margin(pt.Classification([[1.0, 1.0], [-1.0, -1.0 + 2e-13]], [1, 1]))
    assert found.margin == pytest.approx(1e-13 / np.sqrt(2), rel=1e-2)  # half the difference of the two, across them
    labels = np.array([1, -1] * 3)
    with pytest.raises(UndecidedMargin, match="are separable"):  # (-1e7, 1) has margin 1e-6
        pt.references.max_margin(pt.Classification(np.c_[np.ones(6), labels * 1e-6 + 1e7], labels))


def test_samples_that_oppose_each_other_up_to_rounding_are_no_contradiction():
    """Their determinant is not 0: the exact margin is 1.7e-59."""
    inputs = [[-1.802334251161485e-36, 7.914784164256052e-36], [4.975102760220355e-43, -2.18477036192165e-42]]
    with pytest.raises(UndecidedMargin):
        max_margin(Classification(inputs, [1, 1]))


def test_contradictions_of_every_kind_are_exact(rng):
    """General position by an enclosure, dependent coordinates and tokens of one query by integers."""
    general, bits = rng.standard_normal((60, 10)), rng.integers(0, 2, (60, 8)) * 1.0
    tokens, query = rng.standard_normal((30, 3, 3)), np.ones((30, 3))
    for data in (
        Classification(general, np.ones(60)),
        Classification(np.hstack([bits, 1 - bits]), rng.choice([-1.0, 1.0], 60)),
        TokenSelection(tokens, queries=query, scores=rng.standard_normal((30, 3))),
    ):
        with pytest.raises(NotSeparableError) as caught:
            max_margin(data)
        assert balanced(data, caught.value.weights)
    nearly = np.array([0.5, 0.5])
    assert not balanced(Classification([[1.0, 1.0], [-1.0, -1.0 + 2.0**-53]], [1, 1]), nearly)


def test_a_contradiction_of_two_samples_is_exact_and_asks_for_no_bias_that_cannot_help():
    with pytest.raises(NotSeparableError, match="no direction has a positive margin") as caught:
        max_margin(Classification([[1.3, 2.7], [1.3, 2.7], [3.0, 1.0]], [1, -1, 1]))
    assert "unless their inputs are equal" in str(caught.value)
