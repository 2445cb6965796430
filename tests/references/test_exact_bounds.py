"""A bound is a bound: brackets against rational arithmetic about the stored floats."""

from fractions import Fraction

import jax
import numpy as np
import pytest
from exact_margins import fractions, least_square, near_degenerate

import penchant as pt
from penchant.cli import main
from penchant.errors import ArgumentError, UndecidedMargin
from penchant.norms import L1, L2, Linf, Nuclear, SignProduct
from penchant.references.bracket import bracket
from penchant.rounding import dual_above, value_above
from penchant.settings.base import MarginData

OVERSHOT = (  # a lower bound without outward rounding is above the optimum by 3e-10 to 7e-6, of 296 (10 x 2) by 1.3e-7
    *(13, 35, 69, 107, 108, 117, 139, 144, 158, 185, 186, 191, 272, 296, 314, 322, 344, 350, 351, 354, 376, 384, 430),
    *(440, 465, 469, 499),
)
LOST = 4  # 14 x 5: no margin that is computed is provably positive


def _contains(seed: int) -> bool:
    """Whether the bracket of the reference contains the optimum; False without a reference."""
    inputs = near_degenerate(seed)
    try:
        found = pt.references.max_margin(pt.Classification(inputs, np.ones(len(inputs)))).bracket
    except UndecidedMargin:
        return False
    square = least_square(fractions(inputs))
    assert square is not None
    assert Fraction(found.lower) ** 2 <= square <= Fraction(found.upper) ** 2
    return True


def test_near_degenerate_references_contain_the_exact_optimum():
    assert sum(_contains(seed) for seed in OVERSHOT) > 20  # of the others float64 cannot say that they are separable


@pytest.mark.slow
def test_a_thousand_near_degenerate_references_contain_the_exact_optimum():
    assert sum(_contains(seed) for seed in range(1000)) > 700


# Some need rows of length 1, some as they are, and the last three a margin above 1 where long rows are rounded.
@pytest.mark.parametrize("seed", [20_069, 20_102, 20_173, 20_166, 20_178, 20_184])
def test_the_bracket_chooses_what_resolves_a_small_margin(seed):
    inputs = near_degenerate(seed)
    assert pt.references.max_margin(pt.Classification(inputs, np.ones(len(inputs)))).certified


def test_a_bracket_is_returned_however_wide_and_its_digits_are_not_printed(tmp_path, capsys):
    seed = next(seed for seed in range(20_000, 20_100) if _gap(seed) > 1)
    assert _contains(seed)
    np.savez(tmp_path / "data.npz", inputs=near_degenerate(seed), labels=np.ones(len(near_degenerate(seed))))
    assert main(["predict", str(tmp_path / "data.npz")]) == 0
    printed = capsys.readouterr().out
    assert "more float64 does not say" in printed
    assert "maximum margin per unit of norm: at least" in printed


def _gap(seed: int) -> float:
    inputs = near_degenerate(seed)
    try:
        return pt.references.max_margin(pt.Classification(inputs, np.ones(len(inputs)))).bracket.gap
    except UndecidedMargin:
        return 0.0


def test_margins_that_are_not_provably_positive_are_undecided():
    inputs = near_degenerate(LOST)
    with pytest.raises(UndecidedMargin) as raised:
        pt.references.max_margin(pt.Classification(inputs, np.ones(len(inputs))))
    most = float(str(raised.value).split("it is at most ")[1].split(",")[0])
    assert float(least_square(fractions(inputs))) ** -0.5 < most < 1e-14
    weight = np.array([1.0, -1.0])
    found = bracket(pt.Classification([[1.0, 0.0], [1e16 + 2, 1e16]], [1, 1]), weight, [1.0, 1.0])
    assert found.upper == np.inf  # the second margin is 2, which next to 1e16 is rounding


def test_samples_that_contradict_each_other_up_to_rounding_are_named_as_a_cause(rng):
    inputs = rng.standard_normal((9, 4))
    labels = np.sign(inputs @ [1.0, -2.0, 3.0, 1.0])
    data = pt.Classification(np.vstack([inputs, -0.7 * inputs[:2]]), [*labels, *labels[:2]])
    with pytest.raises(UndecidedMargin, match="nearly contradictory samples"):
        pt.references.max_margin(data)


class _Product(MarginData):
    """Margins of data of another kind, through a method that does not say what its sums are made of."""

    plain: pt.Classification
    weight_shape = property(lambda self: self.plain.weight_shape)
    names = property(lambda self: self.plain.names)
    margins = lambda self, weight: self.plain.margins(weight)
    adjoint = lambda self, coefficients: self.plain.adjoint(coefficients)
    gram = lambda self: self.plain.gram()
    constrained = lambda self: self.plain.constrained()
    weigh = check_loss = infimum = lambda self, *_: None


def _tokens(rng: np.random.Generator) -> pt.TokenSelection:
    """Two dimensions, far from the origin: differences of tokens cancel most of their digits."""
    tokens = rng.standard_normal((3, 3, 2)) + 10.0 ** rng.uniform(0, 8) * rng.standard_normal(2)
    return pt.TokenSelection(tokens, scores=rng.standard_normal((3, 3)), queries=rng.standard_normal((3, 2)))


def _features(data) -> np.ndarray:
    """Exact rows."""
    if isinstance(data, pt.Classification):
        return fractions(data.signed)
    if isinstance(data, _Product):
        return fractions(data.plain.signed)
    tokens = data.tokens if isinstance(data, pt.settings.DiagonalTokens) else data
    exact, queries = fractions(tokens.tokens), fractions(tokens.queries)
    rows = [
        np.outer(exact[i, tokens.optimal[i]] - exact[i, other], queries[i])
        for i in range(len(exact))
        for other in np.asarray(tokens.others[i])
    ]
    return np.array([row.diagonal() if data is not tokens else row.ravel() for row in rows])


def _square(norm, vector: np.ndarray, dual: bool):
    """The square of a norm or dual norm: a rational number, or for the largest singular value of a 2 x 2 matrix the pair p, q of p + sqrt q."""
    size = np.abs(vector)
    if isinstance(norm, L2):
        return sum(vector**2)
    if norm in (L1(), Linf()):
        return (size.max() if (norm == L1()) == dual else size.sum()) ** 2
    a, b, c, d = vector
    if isinstance(
        norm, SignProduct
    ):  # of a 2 x 2 matrix: the extreme points of the dual ball are +-e_ij and +-[[1, 1], [1, -1]]/2
        if dual:
            return max(abs(a + b) + abs(c + d), abs(a - b) + abs(c - d)) ** 2
        signs = [np.array([s, t, u, -s * t * u]) for s in (1, -1) for t in (1, -1) for u in (1, -1)]
        return max(size.max(), max(sum(sign * vector) for sign in signs) / 2) ** 2
    length, area = sum(vector**2), abs(a * d - b * c)
    return (length / 2, length**2 / 4 - area**2) if dual else length + 2 * area


def _at_least(bound: Fraction, square) -> bool:
    if not isinstance(square, tuple):
        return bound >= square
    return bound >= square[0] and (bound - square[0]) ** 2 >= square[1]


MATRIX = [L2(), Nuclear(), L1(), Linf(), SignProduct()]
KINDS = {
    "classification": (lambda rng: pt.Classification(_inputs(rng), np.ones(5)), MATRIX[:1] + MATRIX[2:4]),
    "own": (lambda rng: _Product(pt.Classification(_inputs(rng), np.ones(5))), MATRIX[:1]),
    "tokens": (_tokens, MATRIX),
    "diagonal": (lambda rng: pt.settings.DiagonalTokens(_tokens(rng)), [L1()]),
}


def _inputs(rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((5, 3)) * 10.0 ** rng.uniform(-8, 8, (5, 1)) * 10.0 ** rng.uniform(-8, 8, (1, 3))


@pytest.mark.parametrize("name", KINDS)
def test_both_ends_are_on_the_safe_side_of_what_their_points_prove(name):
    make, norms = KINDS[name]
    bounded = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        data = make(rng)
        rows = _features(data)
        flat = np.array(rows, float)
        weight = np.linalg.lstsq(flat, rng.random(len(flat)) + 0.5, rcond=None)[0]
        dual = np.maximum(np.linalg.svd(flat)[0][:, -1], 0.0) + 10.0 ** -rng.uniform(0, 16) * rng.random(len(flat))
        mass, pull, margin = sum(fractions(dual)), fractions(dual) @ rows, (rows @ fractions(weight)).min()
        for norm in norms:
            found = bracket(data, weight.reshape(data.weight_shape), dual, norm)
            assert 0 < found.lower < np.inf
            assert _at_least((mass / Fraction(found.lower)) ** 2, _square(norm, pull, True))
            if found.upper < np.inf:
                assert margin > 0
                assert _at_least((Fraction(found.upper) * margin) ** 2, _square(norm, fractions(weight), False))
                bounded += 1
    assert bounded > 0


@pytest.mark.parametrize("size", [1e-300, 1e-160, 1e160, 1e300])
def test_norms_of_any_size_are_bounded_from_above(size):
    matrix = size * np.array([[3.0, 4.0], [0.0, 0.0]])
    for norm, wanted in ((L2(), 5), (Nuclear(), 5), (L1(), 7), (Linf(), 4)):
        exact = wanted * Fraction(size)
        assert exact <= Fraction(value_above(norm, matrix)) <= exact * (1 + Fraction(1, 10**13))
        assert Fraction(dual_above(norm, matrix)) >= (exact if wanted == 5 else (11 - wanted) * Fraction(size))


def test_bounds_do_not_depend_on_the_size_of_their_points():
    data = pt.settings.separable(12, 3)
    best = pt.references.max_margin(data)
    for size in (1e-250, 1e250):
        found = bracket(data, size * best.weight, size * best.dual)
        assert found.lower == pytest.approx(best.bracket.lower, rel=1e-14)
        assert found.upper == pytest.approx(best.bracket.upper, rel=1e-14)


@pytest.mark.parametrize("seed", range(5))
def test_offset_bounds_are_on_the_safe_side_of_what_their_points_prove(seed):
    rng = np.random.default_rng(seed)
    data, offsets = _tokens(rng), rng.standard_normal(6)
    found, rows = pt.references.offset_margin(data, offsets), _features(data)
    weight, shares = fractions(found.weight.ravel()), fractions(found.dual)
    reached, length = rows @ weight, sum(weight**2)
    for margin, offset in zip(reached, fractions(offsets), strict=True):  # lower - offset <= margin / |weight|
        left = Fraction(found.lower) - offset
        assert (left <= 0 <= margin) or (left**2 * length <= margin**2 if margin > 0 else left**2 * length >= margin**2)
    rest = Fraction(found.upper) * sum(shares) - sum(shares * fractions(offsets))
    assert rest >= 0
    assert rest**2 >= sum((shares @ rows) ** 2)


@pytest.mark.parametrize(
    ("primal", "dual", "wanted"),
    [
        (np.ma.masked_equal([1.0, 2.0], 2.0), [1.0, 1.0], "'primal'.*without masked entries"),
        ([1.0, 1.0], np.ma.masked_equal([1.0, 2.0], 2.0), "'dual'.*without masked entries"),
        ([1.0, np.nan], [1.0, 1.0], "'primal'.*finite"),
        ([1.0, 1.0], [1.0, np.inf], "'dual'.*finite"),
        ([1.0, 1.0], np.inf, "'dual'"),
    ],
)
def test_points_that_prove_nothing_are_refused(primal, dual, wanted):
    with pytest.raises(ArgumentError, match=wanted):
        bracket(pt.Classification(np.eye(2), [1, 1]), primal, dual)


def test_references_need_64_bit_mode():
    data, tokens, regression = (
        pt.settings.separable(6, 2),
        pt.settings.signal_tokens(4, 3, 8),
        pt.Regression(np.eye(2), [1.0, 2.0]),
    )
    calls = [
        lambda: pt.references.max_margin(data),
        lambda: bracket(data, np.ones(2), np.ones(6)),
        lambda: pt.references.nuclear_margin(tokens),
        lambda: pt.references.offset_margin(data, np.zeros(6)),
        lambda: pt.references.minimum_norm(regression),
        lambda: pt.bracket(regression, np.ones(regression.inputs.shape[1]), np.ones(len(regression.inputs))),
    ]
    jax.config.update("jax_enable_x64", False)
    try:
        single = pt.settings.separable(6, 2)
        for call in calls:
            with pytest.raises(ArgumentError, match="jax_enable_x64"):
                call()
    finally:
        jax.config.update("jax_enable_x64", True)
    with pytest.raises(ArgumentError, match="float32 arrays"):
        pt.references.max_margin(single)
