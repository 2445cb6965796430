"""Which margin: the tables of the derivation to their digits, verdicts by margins, rest points, the turn, and bad input."""

import jax
import numpy as np
import pytest

import penchant as pt
from penchant.errors import ArgumentError, NotSeparableError
from penchant.norms import L1, Linf, Nuclear, Spectral, norm_named
from penchant.optimisers.base import Accelerated, Adam, muon, normalised_descent, sign_descent, signum, steepest
from penchant.papers.which_margin.comparison import NAMES, Comparison, best_margins, compare
from penchant.papers.which_margin.evidence import LOSSES
from penchant.papers.which_margin.flows import (
    fitness,
    follow,
    newton_schulz,
    newton_schulz_with,
    polar,
    rest_point,
    soft_sign,
)
from penchant.papers.which_margin.steepest import curvature_bound
from penchant.references.base import feature_rows, watching
from penchant.settings.classification import Multiclass
from penchant.settings.generators import clusters
from penchant.settings.losses import CrossEntropy
from penchant.training.events import At, Every

DATA = clusters(4, 8, 12, 1.0, 0)
SETTING = pt.Setting(DATA, pt.Direct(), CrossEntropy())
FEATURES = feature_rows(DATA, DATA.constrained()).reshape(-1, 4, 8)
BEST = {"frobenius": 0.9065483005, "l1": 0.2560323, "max": 3.4419589, "spectral": 1.46645536, "nuclear": 0.5345958}
RUNS = {  # rule, norm, missing share at t = 100, 1000, 10000, and log L in the end (sections 6.2 and 6.3)
    "frobenius": (normalised_descent(0.3, decay=0.5), "frobenius", (1.900e-1, 5.473e-2, 1.558e-2), -53.8),
    "max": (sign_descent(0.3, 0.5), "max", (9.568e-2, 3.261e-2, 1.053e-2), -204),
    "spectral": (muon(0.3, 0.0, 0.5), "spectral", (1.139e-1, 3.276e-2, 9.451e-3), -87.6),
    "nuclear": (steepest(0.3, Nuclear(), 0.5), "nuclear", (3.316e-1, 9.529e-2, 2.770e-2), -31.7),
    "l1": (steepest(0.3, L1(), 0.5), "l1", (7.347e-1, 1.579e-1, 5.248e-2), -15.4),
    "signum": (signum(0.1, 0.9, 0.5), "max", (1.542e-1, 5.268e-2, 1.630e-2), None),
    "fast adam": (Adam(0.1, 0.0, 0.9, 0.95, decay=0.3), "max", (0.2762, 0.1885, 0.0347), -185.9),
    "adam": (Adam(0.1, 0.0, 0.9, 0.95, decay=0.5), "max", (0.2767, 0.1353, 0.0385), -59.72),
    "late adam": (Adam(0.1, 0.0, 0.9, 0.95, decay=0.8), "max", (0.3450, 0.2082, 0.1339), -9.13),
    "slow adam": (Adam(0.1, 0.0, 0.9, 0.95, decay=1.0), "max", (0.4922, 0.3389, 0.2634), -3.261),
}


OTHERS = {  # shares of the best margins in other norms after 10 000 steps (section 6.2)
    "frobenius": {"max": 0.562, "l1": 0.749, "spectral": 0.924, "nuclear": 0.979},
    "max": {"l1": 0.529, "frobenius": 0.789, "spectral": 0.767, "nuclear": 0.712},
    "spectral": {"max": 0.541, "l1": 0.703, "frobenius": 0.928, "nuclear": 0.909},
    "nuclear": {"frobenius": 0.969, "spectral": 0.884},
    "l1": {"max": 0.330, "frobenius": 0.730},
}


def share(run, norm, record=-1):
    return run.smallest_margin()[record] / norm_named(norm).value(run.weight(record)) / BEST[norm]


@pytest.mark.parametrize("name", RUNS)
def test_runs_have_the_digits_of_the_tables(name):
    rule, norm, wanted, log_loss = RUNS[name]
    run = pt.train(SETTING, rule, steps=10_000, recorder=At((100, 1000, 10_000)))
    missing = [1 - share(run, norm, record) for record in (1, 2, 3)]
    # Plain NumPy with its samples in another order moves the nuclear digits by 0.6 %, and those of l1 in the fifth.
    chatter = 1e-2 if name in ("nuclear", "max", "signum") else 2e-3
    assert missing == pytest.approx(wanted, rel=chatter)
    assert log_loss is None or run.log_excess[-1] == pytest.approx(log_loss, rel=2e-3)
    others = OTHERS.get(name, {})
    assert {other: share(run, other) for other in others} == pytest.approx(others, abs=6e-4)  # of three digits


def test_muon_with_momentum_has_the_digits_of_the_table():
    run = pt.train(SETTING, muon(0.3, 0.95, 0.5, nesterov=True), steps=5000, recorder=At((500, 5000)))
    assert [share(run, "spectral", record) for record in (1, 2)] == pytest.approx([0.9349, 0.9829], abs=6e-5)


@pytest.mark.parametrize("name", NAMES)
def test_steps_have_their_length_in_their_norm_and_weights_never_exceed_its_sum(name):
    norm, lengths = norm_named(name), 0.3 / np.sqrt(1.0 + np.arange(50))
    weights = np.asarray(pt.train(SETTING, steepest(0.3, norm, 0.5), steps=50, recorder=Every(1)).params)
    assert [norm.value(step) for step in np.diff(weights, axis=0)] == pytest.approx(lengths, rel=1e-12)
    assert all(norm.value(weights[t + 1]) <= lengths[: t + 1].sum() * (1 + 1e-12) for t in range(50))


@pytest.mark.parametrize(
    ("rule", "turns"),
    [
        (muon(0.3, 0.9, 0.5), True),
        (muon(0.3, 0.9, 0.5, orthogonaliser="ns5"), True),
        (sign_descent(0.3, 0.5), False),
        (Adam(0.1, 0.0), False),
    ],
)
def test_runs_of_matrix_rules_turn_with_the_inputs_and_those_of_coordinates_do_not(rule, turns):
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((8, 8)))[0]
    turned = Multiclass(np.asarray(DATA.inputs) @ turn, DATA.labels)
    runs = [pt.train(pt.Setting(data, pt.Direct(), CrossEntropy()), rule, steps=30) for data in (DATA, turned)]
    apart = np.abs(runs[0].weight() @ turn - runs[1].weight()).max() / np.abs(runs[1].weight()).max()
    assert apart < 1e-11 if turns else apart > 0.1


def test_the_best_margins_and_a_verdict_by_margins():
    found = best_margins(DATA)
    assert {name: one.margin for name, one in found.items()} == pytest.approx(BEST, rel=3e-7)
    weight = found["frobenius"].weight  # the one that is unique: its margins in the other norms are in section 6.1
    shares = {name: 1 / one.measure.value(weight) / one.margin for name, one in found.items()}
    wanted = {"frobenius": 1, "l1": 0.7579, "max": 0.5811, "spectral": 0.9262, "nuclear": 0.9960}
    assert shares == pytest.approx(wanted, abs=6e-5)
    run = pt.train(SETTING, sign_descent(0.3, 0.5), steps=10_000)
    told = compare(run, found)
    assert (told.leader, told.verdict("max").outcome.value, told.verdict("l1").outcome.value) == (
        "max",
        "confirmed",
        "refuted",
    )
    content = told.content()
    assert set(content["references"]) == set(content["shares"]) == set(NAMES)
    assert content["references"]["max"]["lower"] <= content["references"]["max"]["upper"]


def test_a_short_run_is_undecided_in_every_norm_and_best_margins_are_solved_once():
    setting = pt.Setting(clusters(4, 8, 12, 1.0, 5), pt.Direct(), CrossEntropy())
    with watching() as calls:
        found = best_margins(setting.data)
        pt.predict(setting, sign_descent(0.3, 0.5))
    assert sum(call.solver == "norm_margin" for call in calls) == len(NAMES)
    told = compare(pt.train(setting, Adam(0.01, 1e-8), steps=400), found)
    assert told.margin[-1] > 1
    assert {told.verdict(name).outcome.value for name in NAMES} == {"undecided"}
    assert "too short" in told.verdict("max").inequality


def test_newton_schulz_rests_where_the_table_says_and_its_epsilon_makes_it_descent():
    path = follow(FEATURES, newton_schulz, np.array([0.0, 300.0, 1000.0, 3000.0]))
    shares = [path.margins[k] / np.linalg.norm(path.weights[k], 2) / BEST["spectral"] for k in (1, 2, 3)]
    assert shares == pytest.approx([0.958634, 0.959547, 0.959802], abs=2e-6)
    rest = rest_point(FEATURES, newton_schulz, path.shares[-1])
    assert rest.pace / np.linalg.norm(rest.velocity, 2) / BEST["spectral"] == pytest.approx(0.959928, abs=1e-6)
    assert max(rest.residual, rest.missing) < 1e-10
    late = follow(FEATURES, newton_schulz_with(np.log(1e-7)), np.array([0.0, 500.0]))
    share = late.margins[-1] / np.linalg.norm(late.weights[-1]) / BEST["frobenius"]
    assert share > 0.99


@pytest.mark.parametrize(("seed", "wanted"), [(1, 0.936846), (2, 0.931754), (3, 0.924003)])
def test_other_data_rest_where_the_table_says(seed, wanted):
    data = clusters(4, 8, 12, 1.0, seed)
    features = feature_rows(data, data.constrained()).reshape(-1, 4, 8)
    path = follow(features, newton_schulz, np.array([0.0, 3000.0]))
    rest = rest_point(features, newton_schulz, path.shares[-1])
    best = pt.references.norm_margin(data, Spectral()).margin
    assert rest.pace / np.linalg.norm(rest.velocity, 2) / best == pytest.approx(wanted, abs=1e-6)


def test_one_sample_turns_where_its_closed_form_says():
    # m + eps (e^m - 1) = d tau for one input of d ones; two classes of one feature each way: every margin moves by 2 d per unit.
    eps, features = 1e-3, np.array([[[1.0, 1.0, 1.0], [-1.0, -1.0, -1.0]]])
    path = follow(
        features, lambda slope, log_loss: slope / (np.abs(slope) + eps * np.exp(-log_loss)), np.array([0.0, 3.0])
    )
    margin = path.margins[-1]
    assert margin + eps * np.expm1(margin) == pytest.approx(6 * 3.0, rel=1e-6)


def test_the_turn_of_adam_is_where_its_epsilon_says():
    path = follow(
        FEATURES, soft_sign(np.log(1e-4)), np.concatenate([[0.0], np.geomspace(0.1, 1200, 100)]), tolerance=1e-6
    )
    share = path.margins[1:] / np.abs(path.weights[1:]).max(axis=(1, 2)) / BEST["max"]
    assert share.max() == pytest.approx(0.8527, abs=2e-3)
    assert path.margins[1 + share.argmax()] == pytest.approx(5.5, abs=0.4)
    assert share[-1] == pytest.approx(0.583, abs=5e-3)


def test_turns_are_leads_of_more_than_a_hundredth():
    series = {"max": np.array([0.9, 0.9, 0.7]), "l1": np.array([0.2, 0.905, 0.95])}
    told = Comparison({}, series, np.arange(3), np.arange(3.0), np.array([1.0, 5.0, 9.0]))
    assert list(told.turns()) == [(9.0, 2.0, "max", "l1")]


@pytest.mark.parametrize(
    ("optimiser", "theorem", "norm", "open_or_failed"),
    [
        (sign_descent(0.3, 0.5), "steepest-margin", "linf", set()),
        (steepest(0.3, norm_named("schatten-3"), 0.5), "steepest-margin", "schatten-3", set()),
        (signum(0.1), "momentum-margin", "linf", {"falling_steps", "fresh_momentum"}),
        (muon(0.3, 0.95, 0.5), "momentum-margin", "spectral", set()),
        (muon(0.3, 0.95, 0.5, orthogonaliser="ns5"), "margin-conjecture", "spectral", {"optimiser_covered"}),
        (Adam(0.1, 0.0, decay=0.5), "adam-margin", "linf", set()),
        (Adam(0.1, 1e-8), "adam-epsilon", "l2", {"past_epsilon"}),
        (pt.GradientFlow(), "gradient-margin", "l2", set()),
        (pt.gradient_descent(0.1), "gradient-margin", "l2", set()),
        (pt.polyak(), "margin-conjecture", "l2", {"optimiser_covered"}),
        (pt.momentum(0.1), "margin-conjecture", "l2", {"optimiser_covered"}),
        (Accelerated(0.1), "margin-conjecture", "l2", {"optimiser_covered"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_theorem_follows_the_norm_of_the_steps(optimiser, theorem, norm, open_or_failed):
    found = pt.predict(SETTING, optimiser)
    assert (found.theorem.name, found.reference.measure.name) == (theorem, norm)
    assert {one.name for one in found.hypotheses if one.holds is not True} == open_or_failed


def test_bad_input_is_named():
    inputs = np.random.default_rng(0).standard_normal((6, 3))
    for wrong in ([0] * 6, [0, 1, 2, 0, 1, -1], [0.5, 1, 2, 0, 1, 2]):
        with pytest.raises(ArgumentError, match="labels"):
            Multiclass(inputs, wrong)
    with pytest.raises(NotSeparableError):
        best_margins(Multiclass(np.vstack([inputs, inputs]), [0, 1, 2, 0, 1, 2, 1, 2, 0, 1, 2, 0]))
    for name in ("l0.5", "spectre"):
        with pytest.raises(ArgumentError):
            norm_named(name)
    with pytest.raises(ArgumentError, match="norm"):
        pt.references.norm_margin(pt.Classification([[1.0, 2.0]], [1]), Spectral())
    assert set(best_margins(pt.Classification([[1.0, 2.0]], [1]))) == {"frobenius", "l1", "max"}
    assert norm_named("linf") == Linf()


def curvatures(data, loss, weight, pull):
    """Of log L along the steepest direction of each norm, over the square of the largest dual norm of a feature."""
    setting = pt.Setting(data, pt.Direct(), LOSSES[loss])
    log_loss = lambda h, along: setting.weigh(setting.data.margins(weight + h * along)).log_excess
    along = np.stack([norm_named(name).touching(pull) for name in NAMES])
    found = jax.vmap(lambda one: jax.grad(jax.grad(log_loss))(0.0, one))(along)
    return np.asarray(found) / np.array([curvature_bound(data, name) ** 2 for name in NAMES])


@pytest.mark.parametrize("loss", ["cross-entropy", "exponential", "pairwise"])
def test_the_curvature_of_the_log_loss_is_bounded_in_every_norm(rng, loss):
    for _ in range(10):
        assert curvatures(DATA, loss, *rng.standard_normal((2, *DATA.weight_shape))).max() <= 1


def test_one_input_with_two_labels_attains_the_bound():
    feature = np.outer([1.0, -1.0], [1.0, 2.0, -0.5])
    found = curvatures(Multiclass([feature[0]] * 2, [0, 1]), "exponential", np.zeros((2, 3)), feature)
    assert found == pytest.approx(np.ones(5), rel=1e-12)


@pytest.mark.parametrize("rule", [polar, newton_schulz])
def test_shares_grow_by_the_replicator_law(rule):
    """In a flow that sees the direction of the gradient only, every share grows at the rate <p, F> - F_i."""
    found = follow(FEATURES, rule, np.array([0.0, 1.0, 1.0 + 1e-4, 1.0 + 2e-4]))
    rate = (np.log(found.shares[3]) - np.log(found.shares[1])) / 2e-4
    paces = fitness(FEATURES, rule, found.shares[2])[0]
    assert np.abs(rate - (found.shares[2] @ paces - paces)).max() < 1e-2 * np.ptp(paces)
