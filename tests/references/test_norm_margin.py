"""The maximum margin in every norm: tables, closed forms, order of the norms, symmetries, faces, proofs and bad input."""

import jax.numpy as jnp
import numpy as np
import pytest

import penchant as pt
from penchant.errors import ArgumentError, NotSeparableError
from penchant.norms import L1, L2, Entrywise, Hybrid, Linf, Nuclear, Schatten, Spectral, WeightedL2
from penchant.references import constrained_gap, max_margin, norm_margin
from penchant.references.linear_programs import polyhedral_margin
from penchant.references.pair_program import Certificate, Pairs
from penchant.report.explore import presets, setting_of
from penchant.settings import CrossEntropy, Multiclass, add_bias, clusters

FIVE = (Linf(), L1(), L2(), Spectral(), Nuclear())
TABLE = {  # of clusters(4, 8, 12, 1.0, seed)
    0: (3.4419589, 0.2560323, 0.9065483005, 1.46645536, 0.5345958),
    1: (1.9316486, 0.1724539, 0.5776529126, 0.8486256, 0.3563611),
    2: (2.3596248, 0.1577838, 0.6065988879, 0.9687348, 0.3651083),
    3: (3.3123553, 0.2411994, 0.8699069703, 1.3545313, 0.5193793),
}
POWERS = (Entrywise(1.5), Entrywise(3), Entrywise(8), Schatten(1.2), Schatten(3), Schatten(8))
BLOCKS = Hybrid(((Spectral(), 8), (Linf(), 1)))


def margin(data, norm):
    found = norm_margin(data, norm)
    assert found.bracket.lower <= found.value
    assert found.bracket.gap < 5e-9
    return found.margin


@pytest.mark.parametrize("seed", TABLE)
def test_the_references_of_the_table(seed):
    data = clusters(4, 8, 12, 1.0, seed)
    for norm, wanted in zip(FIVE, TABLE[seed], strict=True):
        assert margin(data, norm) == pytest.approx(wanted, rel=2e-7)


@pytest.mark.parametrize(
    ("size", "norm", "wanted"),
    [
        ((3, 4, 9, 0.5), Linf(), 0.6571953),
        ((3, 4, 9, 0.5), L1(), 0.1153358),
        ((3, 4, 9, 0.5), L2(), 0.2644385),
        ((4, 8, 12, 0.5), Spectral(), 1.53414477),
        ((10, 10, 30, 0.3), Spectral(), 0.9417029361),
        ((30, 30, 60, 0.5), Spectral(), 3.2420970835),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_other_sizes_of_the_table(size, norm, wanted):
    assert margin(clusters(*size, 0), norm) == pytest.approx(wanted, rel=5e-7 if wanted < 0.7 else 5e-9)


@pytest.mark.parametrize("seed", range(5))
def test_polyhedral_margins_are_those_of_the_linear_programs(seed):
    data = clusters(3, 4, 9, 0.5, seed)
    for norm in (L1(), Linf()):
        assert margin(data, norm) == pytest.approx(polyhedral_margin(data, norm).margin, rel=1e-8)


@pytest.mark.parametrize("seed", range(4))
def test_norms_are_ordered_and_their_margins_with_them(seed):
    data = clusters(5, 6, 15, 0.7, 10 + seed)
    found = {norm.name: margin(data, norm) for norm in (*FIVE, *POWERS)}
    assert found["spectral"] >= found["schatten-8"] >= found["schatten-3"] >= found["l2"]
    assert found["l2"] >= found["schatten-1.2"] >= found["nuclear"]
    assert found["linf"] >= found["l8"] >= found["l3"] >= found["l2"] >= found["l1.5"] >= found["l1"]
    assert found["l2"] >= found["spectral"] / np.sqrt(5)


def test_margins_scale_with_the_inputs_and_the_norms_of_matrices_do_not_see_rotations():
    data = clusters(4, 8, 12)
    inputs, labels = np.asarray(data.inputs), np.asarray(data.labels)
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((8, 8)))[0]
    for norm in (*FIVE, Schatten(3)):
        assert margin(Multiclass(3 * inputs, labels), norm) == pytest.approx(3 * margin(data, norm), rel=1e-8)
    for norm in (L2(), Spectral(), Nuclear(), Schatten(3)):
        assert margin(Multiclass(inputs @ turn, labels), norm) == pytest.approx(margin(data, norm), rel=1e-8)
    assert abs(margin(Multiclass(inputs @ turn, labels), Linf()) / margin(data, Linf()) - 1) > 0.01


def test_one_sample_has_closed_forms():
    x, k = np.array([3.0, -4.0, 1.0]), 4
    one = [pt.Classification(np.outer(np.eye(k)[0] - np.eye(k)[c], x).reshape(1, -1), [1]) for c in range(1, k)]
    rows = np.concatenate([np.asarray(part.signed) for part in one])
    vector = pt.Classification(rows, np.ones(k - 1))
    assert margin(vector, L2()) == pytest.approx(np.linalg.norm(x) * np.sqrt(k / (k - 1)), rel=1e-8)
    assert margin(vector, Linf()) == pytest.approx(2 * np.abs(x).sum(), rel=1e-8)
    assert margin(vector, L1()) == pytest.approx(np.abs(x).max(), rel=1e-8)
    tokens = pt.TokenSelection(np.eye(k)[None], scores=[[1.0, 0.0, 0.0, 0.0]], queries=[x])
    for norm in (L2(), Spectral(), Nuclear(), Schatten(3)):
        assert margin(tokens, norm) == pytest.approx(np.linalg.norm(x) * np.sqrt(k / (k - 1)), rel=1e-8)


def test_any_weight_and_any_multipliers_bound_what_is_found():
    rng, data = np.random.default_rng(0), clusters(4, 8, 12)
    for norm in (*FIVE, *POWERS):
        found = norm_margin(data, norm)
        for _ in range(20):
            other = pt.bracket(data, found.weight + 0.1 * rng.standard_normal((4, 8)), rng.random(36), norm)
            assert other.lower <= found.bracket.upper
            assert other.upper >= found.bracket.lower


@pytest.mark.parametrize(
    "norm", [L1(), Linf(), Spectral(), Nuclear(), Schatten(3), Entrywise(1.5)], ids=lambda norm: norm.name
)
def test_tokens_have_these_margins_too(norm):
    data = pt.settings.random_tokens(6, 4, 5, 0)
    wanted = pt.references.nuclear_margin(data).margin if norm == Nuclear() else None
    found = margin(data, norm)
    assert wanted is None or found == pytest.approx(wanted, rel=1e-8)


def test_vectors_have_the_entrywise_ones():
    data = pt.settings.separable(20, 3, 0)
    assert margin(data, Linf()) == pytest.approx(polyhedral_margin(data, Linf()).margin, rel=1e-8)
    assert max_margin(data).margin < margin(data, Entrywise(3)) < margin(data, Linf())


def test_a_block_of_one_column_may_be_measured_either_way():
    data = clusters(4, 8, 12)
    data = Multiclass(add_bias(data.inputs), data.labels)
    found = margin(data, BLOCKS)
    assert found == pytest.approx(1.5311093943, rel=1e-9)
    assert found >= margin(data, Spectral())  # each block alone is at most the whole
    assert margin(data, Hybrid(((Linf(), 9),))) == pytest.approx(margin(data, Linf()), rel=1e-8)


def test_a_weighted_norm_is_the_plain_one_of_rescaled_inputs():
    data = clusters(4, 8, 12)
    scales = np.linspace(0.5, 2.0, 8)
    rescaled = Multiclass(np.asarray(data.inputs) / np.sqrt(scales), data.labels)
    found = norm_margin(data, WeightedL2(np.tile(scales, (4, 1))))
    assert found.margin == pytest.approx(max_margin(rescaled).margin, rel=1e-9)
    assert found.bracket.gap < 1e-9


def test_faces():
    data = clusters(4, 8, 12)
    for norm, unique in ((L2(), True), (Schatten(3), True), (Spectral(), False), (Nuclear(), True)):
        assert pt.theory.uniqueness(data, norm_margin(data, norm)).unique is unique
    found = norm_margin(data, Spectral())
    moved = np.ones((4, 1)) * np.linalg.svd(found.weight)[2][-1:]
    assert norm_margin(data, Spectral()).measure.value(found.weight + 0.1 * found.value * moved) == pytest.approx(
        found.value
    )
    near = clusters(3, 4, 9, 0.5, 0)
    assert pt.theory.uniqueness(near, norm_margin(near, Linf())).unique is False
    vertex = polyhedral_margin(near, Linf()).weight
    assert np.abs(vertex - norm_margin(near, Linf()).weight).max() > 1e-2  # margins agree, directions do not


def test_the_gap_of_a_constrained_minimiser_bounds_its_excess():
    data, norm, decay = clusters(4, 8, 12), Linf(), 0.2
    setting = pt.Setting(data, pt.Direct(), pt.Exponential())
    loss = lambda weight: float(setting.weigh(data.margins(weight)).log_excess)
    weight, seen = np.zeros((4, 8)), []
    for t in range(400):
        pull = np.asarray(data.adjoint(setting.weigh(data.margins(jnp.asarray(weight))).weights))
        seen.append((loss(jnp.asarray(weight)), constrained_gap(setting, weight, norm, decay)))
        weight = weight + 2 / (t + 2) * (np.sign(pull) / decay - weight)
    best = min(log for log, _ in seen)
    assert all(gap >= -np.expm1(best - log) - 1e-12 for log, gap in seen)
    assert min(gap for _, gap in seen) < 2.0
    assert decay * float(data.margins(jnp.asarray(weight)).min()) >= 3.4419 - decay * np.log(36) - 0.05


def test_inseparable_data_come_with_the_proof_in_every_norm():
    data = Multiclass([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [0, 1, 2])
    for norm in (*FIVE, Schatten(3), Entrywise(1.5)):
        with pytest.raises(NotSeparableError) as error:
            norm_margin(data, norm)
        assert np.abs(np.asarray(data.adjoint(jnp.asarray(error.value.weights)))).max() < 1e-15
    contrary = pt.TokenSelection([[[1.0, 0.0], [0.0, 1.0]]] * 2, scores=np.eye(2))
    for norm in (Schatten(3), Schatten(1.5)):
        with pytest.raises(NotSeparableError):
            norm_margin(contrary, norm)


@pytest.mark.parametrize("p", [1.001, 3.0, 1e5])
@pytest.mark.filterwarnings("ignore:`norm_margin` could not certify")
def test_margins_next_to_nothing_and_exponents_of_any_size_end_in_a_bracket(p):
    across = np.array([0.6, -1.0])
    rows = np.outer([1.0, -0.65, -0.12], [1.0, 0.6]) + 1e-12 * across
    found = norm_margin(pt.Classification(rows, np.ones(3)), Entrywise(p))
    feasible = across / (rows @ across).min()
    assert 0 < found.bracket.lower <= Entrywise(p).value(feasible)
    assert found.bracket.upper < 2 * found.bracket.lower
    tokens = pt.TokenSelection([[[1.0, 0.2], [0.3, 1.0]], [[0.5, 1.0], [1.0, -1.0]]], scores=np.eye(2)[[0, 0]])
    for norm in (Entrywise(p), Schatten(p)):
        bounds = norm_margin(tokens, norm).bracket
        assert 0 < bounds.lower <= bounds.upper < np.inf


@pytest.mark.parametrize(
    ("end", "near", "apart"),
    [(L1(), Entrywise(1.0001), 3e-4), (Linf(), Entrywise(5000), 6e-4), (Spectral(), Schatten(3000), 4e-4)],
)
@pytest.mark.filterwarnings("ignore:`norm_margin` could not certify")
def test_exponents_next_to_the_ends_are_bounded_by_the_ends(end, near, apart):
    """Norms of twelve entries and of three singular values differ by no more than their number to the power of 1/p - 1/end."""
    data = clusters(3, 4, 9, 0.5)
    found = norm_margin(data, near)
    assert found.bracket.gap < apart
    assert found.margin == pytest.approx(margin(data, end), rel=apart)


def test_multipliers_whose_sum_overflows_are_shares():
    pairs = Pairs(np.ones((2, 1)), np.array([[1.0, 0.0], [0.0, 1.0]]), np.arange(2))
    best = Certificate(pairs, Entrywise(1000))
    assert best.offer(np.ones((1, 2)), np.ones(2), np.full(2, 1.5e308)) < 1e-12
    assert np.isfinite(best.multipliers.sum())


@pytest.mark.filterwarnings("ignore:`norm_margin` could not certify")
@pytest.mark.parametrize("norm", [Schatten(1000), Entrywise(1000)])
def test_exponents_next_to_infinity_are_no_farther_from_it_than_the_norms(norm):
    data = pt.TokenSelection(
        [
            [[0.0, 0.0, 0.0], [8.7, 5.3, -24.3]],
            [[0.0, 0.0, 0.0], [-28.7, -5.3, -6.5]],
            [[0.0, 0.0, 0.0], [1.3, 37.9, 24.5]],
        ],
        queries=[[1.56, 0.4, 0.76], [-0.15, 1.12, 0.78], [-0.96, -1.42, -1.09]],
        scores=[[1.0, 0.0]] * 3,
    )
    limit, found = norm_margin(data, type(norm)(np.inf)), norm_margin(data, norm)
    assert found.bracket.gap <= 9**0.001 - 1
    assert (
        found.bracket.lower
        <= norm.value(limit.weight) / np.asarray(data.margins(limit.weight))[data.constrained()].min()
    )


def test_bad_input_is_named():
    data, vector = clusters(4, 8, 12), pt.settings.separable(20, 3, 0)
    for p in (0.5, -1, float("nan"), "2"):
        for norm in (Entrywise, Schatten):
            with pytest.raises((ArgumentError, Exception), match="p"):
                norm(p)
    for problem, norm, words in (
        (vector, Spectral(), "a norm of matrices"),
        (vector, BLOCKS, "a norm of matrices"),
        (data, BLOCKS, "9 columns"),
        (data, Hybrid(((Nuclear(), 8),)), "a block of nuclear"),
        (data, WeightedL2(np.ones(3)), r"shape \(3,\)"),
        (data, "spectral", "'spectral'"),
    ):
        with pytest.raises(ArgumentError, match=words):
            norm_margin(problem, norm)
    with pytest.raises(ArgumentError, match="positive and finite in every coordinate"):
        WeightedL2([1.0, 0.0])
    setting = pt.Setting(data, pt.Direct(), CrossEntropy())
    with pytest.raises(ArgumentError, match="of norm at most 5"):
        constrained_gap(setting, np.full((4, 8), 6.0), Linf(), 0.2)
    with pytest.raises(ArgumentError, match="'decay'"):
        constrained_gap(setting, np.zeros((4, 8)), Linf(), 0.0)


@pytest.mark.slow
def test_a_hundred_classes_in_seconds():
    found = norm_margin(clusters(100, 100, 100, 0.5, 0), Spectral())
    assert found.margin == pytest.approx(8.08768405, rel=1e-9)
    assert found.bracket.gap < 1e-9


def test_a_best_weight_whose_singular_values_are_equal_has_nowhere_to_go():
    """The Muon preset of the explorer: no direction keeps the spectral norm, and the l2 solution is another one."""
    data = setting_of(presets()["muon"]).data
    found = norm_margin(data, Spectral())
    sizes = np.linalg.svd(found.weight, compute_uv=False)
    assert sizes[0] - sizes[1] < 1e-8
    assert pt.theory.uniqueness(data, found).unique
    assert Spectral().value(pt.references.max_margin(data).weight) > 1.1 * found.value
