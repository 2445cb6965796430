"""The meter on networks whose answer is known in closed form, against convex programs, and on what it must refuse."""

import json
import math
from copy import deepcopy

import jax
import numpy as np
import pytest
import scipy

import penchant as pt
from penchant.bridge.jax_kkt import JaxGradients, function_kkt
from penchant.bridge.kkt import NotHomogeneous, homogeneity, instant_weights, plateau, smoothed_margin, trend
from penchant.cli import main
from penchant.errors import ArgumentError, PenchantError, PenchantWarning
from penchant.settings.network import network_setting, smooth_relu

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from penchant.bridge.torch_kkt import TorchGradients, kkt, plan  # noqa: E402

INPUTS, LABELS = np.random.default_rng(0).normal(size=(6, 4)), np.array([1, -1, 1, -1, 1, -1])


class Two(nn.Module):
    def __init__(self, U, v):
        super().__init__()
        self.U, self.v = nn.Parameter(torch.tensor(U)), nn.Parameter(torch.tensor(v))

    def forward(self, x):
        return torch.relu(x @ self.U.T) @ self.v


class Squares(nn.Module):
    """sum of a_j (u_j' x)^2 with fixed signs."""

    def __init__(self, U, signs):
        super().__init__()
        self.U, self.signs = nn.Parameter(torch.tensor(U)), torch.tensor(signs)

    def forward(self, x):
        return (x @ self.U.T).square() @ self.signs


def kinked(degrees, turned=0.0):
    """Two units, each on the kink of the other's point: the best normalised margin is sin(angle) / 4."""
    p = math.radians(degrees)
    units = np.array([[math.sin(p), -math.cos(p)], [0.0, 1.0]]) / 2
    units[0] += turned * np.array([math.cos(p), math.sin(p)])
    return Two(units, np.array([0.5, -0.5])), np.array([[1.0, 0.0], [math.cos(p), math.sin(p)]]), np.array([1, -1])


@pytest.mark.parametrize(("degrees", "autograd"), [(50, 0.510274), (30, 0.774597), (75, 0.186157), (60, 7**-0.5)])
def test_a_kkt_point_on_kinks_is_one_although_autograd_says_otherwise(degrees, autograd):
    found = kkt(*kinked(degrees))
    assert found.normalised_margin == pytest.approx(math.sin(math.radians(degrees)) / 4, rel=1e-12)
    assert found.distance == pytest.approx(autograd, abs=1e-6)
    assert found.distance_lower == pytest.approx(found.distance, rel=1e-9)
    assert found.upper == pytest.approx(found.distance**2, rel=1e-9)
    assert all(one.distance < 1e-13 and one.upper < 1e-13 for one in found.curve)
    assert len(plateau(found.curve)) == len(found.curve)
    assert found.verdict.headline == "confirmed"


def test_the_same_point_turned_by_a_hundredth_is_none():
    found = kkt(*kinked(50, turned=0.02), radii=(1e-5, 1e-4, 1e-3))
    assert found.curve[-1].lower > 1e-4
    assert found.verdict.headline == "undecided"


def test_orthonormal_points_one_unit_for_each_class():
    """(4, 9) samples: margin 0.1, multipliers 1/2 and 1/3; slope 0 at every kink is right, so that the gap is 0 without freeing any."""
    units = np.zeros((2, 13))
    units[0, :4], units[1, 4:] = 1.0, 1.0
    size = np.array([4.0, 9.0]) ** 0.5
    U = units / size[:, None] * np.sqrt(size)[:, None]
    found = kkt(Two(U, np.sqrt(size) * [1.0, -1.0]), np.eye(13), np.r_[np.ones(4), -np.ones(9)].astype(int))
    assert found.normalised_margin == pytest.approx(0.1, rel=1e-12)
    assert found.upper < 1e-12
    np.testing.assert_allclose(found.multipliers, np.r_[np.full(4, 1 / 2), np.full(9, 1 / 3)], rtol=1e-9)


def quadratic(seed=0):
    """Least nuclear norm with margins of at least 1 by a solver, as a network of its eigenvectors."""
    import cvxpy as cp

    rng = np.random.default_rng(seed)
    X = rng.normal(size=(12, 5))
    y = np.sign(rng.normal(size=12)).astype(int)
    plus, minus = cp.Variable((5, 5), PSD=True), cp.Variable((5, 5), PSD=True)
    forms = [cp.trace(np.outer(x, x) @ (plus - minus)) for x in X]
    least = cp.Problem(cp.Minimize(cp.trace(plus + minus)), [s * f >= 1 for s, f in zip(y, forms, strict=True)])
    least.solve("CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    values, vectors = np.linalg.eigh(plus.value - minus.value)
    return Squares((vectors * np.sqrt(np.abs(values))).T, np.sign(values)), X, y, least.value


def test_quadratic_units_at_the_least_nuclear_norm():
    model, X, y, norm = quadratic()
    assert norm == pytest.approx(4.2290558314, rel=1e-8)
    found = kkt(model, X, y)
    assert round(found.homogeneity.degree) == 2
    assert found.normalised_margin == pytest.approx(1 / norm, rel=1e-6)
    assert found.upper < 1e-6  # the solver's eigenvectors, whose error enters by its root
    assert found.upper - found.lower < 1e-9
    with torch.no_grad():
        model.U += 0.01 * torch.tensor(np.random.default_rng(1).normal(size=(5, 5)))
    assert kkt(model, X, y).lower > 1e-5


def separated(seed=0, classes=0):
    """A network of degree 2 without kinks on random data, trained a little until every sample is right."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(9, 6))
    y = rng.integers(0, classes, 9) if classes else np.sign(X @ rng.normal(size=6)).astype(int)
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 5, bias=False), nn.Linear(5, classes or 1, bias=False)).double()
    rule, x, t = torch.optim.Adam(model.parameters(), 0.02), torch.tensor(X), torch.tensor(y)
    for _ in range(400):
        rule.zero_grad()
        f = model(x)
        loss = nn.functional.cross_entropy(f, t) if classes else nn.functional.softplus(-t * f[:, 0]).mean()
        loss.backward()
        rule.step()
    return model, X, y


@pytest.mark.parametrize("classes", [0, 4])
@pytest.mark.parametrize("seed", [0, 1])
def test_distance_and_gap_are_those_of_a_convex_program_and_obey_their_identities(seed, classes):
    import cvxpy as cp

    model, X, y = separated(seed, classes)
    network = TorchGradients(model, X, y)
    unit = network.start / np.linalg.norm(network.start)
    G, q = network.rows(unit, np.arange(len(network.samples))), network.margins(unit)
    np.testing.assert_allclose(G @ unit, 2 * q, atol=1e-14)  # Euler
    weights = np.random.default_rng(0).normal(size=len(q))
    np.testing.assert_allclose(network.pull(unit, weights), weights @ G, atol=1e-13)
    np.testing.assert_allclose(network.push(unit, unit), G @ unit, atol=1e-13)
    found = kkt(model, X, y)
    multipliers = cp.Variable(len(q), nonneg=True)
    solve = lambda aim: cp.Problem(cp.Minimize(aim)).solve("CLARABEL", tol_gap_abs=1e-10, tol_feas=1e-10)
    gap = solve(1 - 4 * q.min() * cp.sum(multipliers) + cp.sum_squares(G.T @ multipliers))
    far = math.sqrt(max(solve(cp.sum_squares(unit - G.T @ multipliers)), 0))
    assert found.lower - 1e-8 <= gap <= found.upper + 1e-8
    assert found.upper - found.lower < 1e-9
    assert found.distance_lower - 1e-6 <= far <= found.distance + 1e-6
    assert found.eps**2 + 2 * found.delta == pytest.approx(found.upper, abs=1e-11)
    assert found.distance**2 <= found.upper + 1e-12
    scaled = deepcopy(model)
    with torch.no_grad():
        for one in scaled.parameters():
            one.mul_(1e100)
    again = kkt(scaled, X, y)
    assert again.upper == pytest.approx(found.upper, rel=1e-9)
    assert again.log_margin == pytest.approx(found.log_margin + 200 * math.log(10))
    assert not again.resolved


def test_a_function_of_jax_reads_as_the_same_module():
    model, X, y = separated(0, 4)
    weights = [one.detach().numpy() for one in model.parameters()]
    ours = function_kkt(lambda w, x: x @ w[0].T @ w[1].T, weights, X, y)
    theirs = kkt(model, X, y)
    for name in ("upper", "lower", "distance", "instant"):
        assert getattr(ours, name) == pytest.approx(getattr(theirs, name), rel=1e-9)


def test_weights_of_the_loss_are_exact_at_any_scale():
    margins = np.array([0.1, 0.1 + 1e-12, 0.2])
    np.testing.assert_allclose(
        instant_weights(margins, 2, math.log(1e6)), [1.0, math.exp(-(margins[1] - 0.1) * 1e12), 0.0]
    )
    assert instant_weights(margins, 3, 1e4).tolist() == [1.0, 0.0, 0.0]


def linear(angle, size):
    """A direction in the plane at some angle from the first axis, which has the margins 1 and 1."""
    model = nn.Linear(2, 1, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(size * torch.tensor([[math.cos(angle), math.sin(angle)]], dtype=torch.float64))
    return kkt(model, [[1.0, 0.0], [-1.0, 0.5]], [1, -1], radii=())


def test_a_trend_is_a_slope_per_decade_of_margin_with_a_verdict():
    flowing = [linear(0.1, 10.0), linear(0.03, 100.0), linear(0.01, 1000.0)]
    found, least = trend(flowing), lambda angle: math.cos(angle) - math.sin(angle) / 2
    assert found.headline == "confirmed"
    assert found.measured["decades"] == pytest.approx(math.log10(100 * least(0.01) / least(0.1)))
    gap = math.log10(flowing[-1].upper / flowing[0].upper)
    assert found.measured["slope"] == pytest.approx(gap / found.measured["decades"])
    assert trend([*flowing[:1], linear(0.09, 20.0)]).headline == "undecided"  # less than a decade
    assert trend([linear(0.03, 10.0), linear(0.03, 1000.0)]).headline == "undecided"  # the same gap
    left = trend([linear(-0.01, 100.0), linear(-0.2, 10000.0)])  # further from the best: its smoothed margin falls
    assert left.headline == "outside the theorem"
    assert "no gradient flow" in left.inequality


def test_the_smoothed_margin_is_that_of_the_definition_at_any_scale():
    for size in (3.0, 1e3, 1e150):
        found = linear(0.1, size)
        value, slack = smoothed_margin(found)
        if size < 1e3:
            q = size * found.margins
            assert value == pytest.approx(-math.log(np.exp(-q).sum()) / size, rel=1e-12)
            logistic = -math.log(math.expm1(np.log1p(np.exp(-q)).sum())) / size
            assert value - slack <= logistic <= value
        assert found.normalised_margin - math.log(2) / size <= value <= found.normalised_margin
    assert smoothed_margin(linear(0.1, 1e-150))[1] == math.inf


@pytest.mark.slow
def test_the_flow_of_smoothed_units_ends_where_free_kinks_say_and_autograd_does_not():
    """40 samples, 50 units, softness 1e-3, at margin 1e8: the distance of the smoothed network, then of ReLU with its weights by autograd, with kinks free within
    1e-4, 3e-4 and 1e-3, and with as many others; compared within 2 %, since the margin of the prototype was not exactly 1e8."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 20)), np.sign(rng.normal(size=40)).astype(int)
    start = {"U": rng.normal(size=(50, 20)) / 20**0.5, "v": rng.normal(size=50) / 50**0.5}
    smooth = lambda params, x: smooth_relu(params["U"], x, 1e-3) @ params["v"]
    run = pt.train(network_setting(smooth, start, X, y, pt.Exponential()), pt.GradientFlow(), until=pt.MarginAbove(1e8))
    params = {name: np.array(one[-1]) for name, one in run.params.items()}
    assert function_kkt(smooth, params, X, y).distance == pytest.approx(0.0463, rel=0.02)
    found = kkt(Two(params["U"], params["v"]), X, y, radii=(1e-4, 3e-4, 1e-3))
    assert found.distance == pytest.approx(0.267, rel=0.02)
    assert [one.distance for one in found.curve] == pytest.approx([0.114, 0.0466, 0.0461], rel=0.02)
    assert found.curve[-1].control > 3 * found.curve[-1].distance


def past(run, level):
    """The parameters at the first record past a margin. The root of the last step's length is found to 1e-12 from either side (the flow on
    a hundred digits ends 2.5e-12 past 1e8): 1e-9 covers that and moves no share, which goes with the log."""
    reached = run.margins.min(axis=1) >= level * (1 - 1e-9)
    assert reached.any(), (run.status, run.margins[-1].min())
    first = int(np.argmax(reached))
    return jax.tree.map(lambda leaf: leaf[first], run.params)


@pytest.mark.slow
def test_fresh_digits_explain_the_weights_too():
    """Squared ReLU on a hundred digits: the share 1 - d^2 that the gradients of the samples explain, of fresh ones, and of those with their pixels shuffled."""
    from sklearn.datasets import load_digits

    images, digits = load_digits(n_class=2, return_X_y=True)
    images, signs, rng = images / 16, 1 - 2 * digits, np.random.default_rng(5)
    order = rng.permutation(360)
    (X, fresh), (y, other) = ((one[order[:100]], one[order[100:200]]) for one in (images, signs))
    shuffled = rng.permuted(X, axis=1)
    start = {"U": rng.normal(size=(16, 64)) * (2 / 64) ** 0.5 / 2, "v": rng.normal(size=16) / 8}
    squares = lambda params, x: jax.numpy.square(jax.nn.relu(x @ params["U"].T)) @ params["v"]
    setting = network_setting(squares, start, X, y, pt.Exponential())
    run, told = pt.train(setting, pt.GradientFlow(), until=pt.MarginAbove(1e8)), {}
    for level in (1e5, 1e8):
        params = past(run, level)
        for samples, labels in ((X, y), (fresh, other), (shuffled, y)):
            network = JaxGradients(squares, params, samples, labels)
            unit = network.start / np.linalg.norm(network.start)
            rows = network.rows(unit, np.arange(100))
            told.setdefault(level, []).append(1 - scipy.optimize.nnls(rows.T, unit)[1] ** 2)
    assert told[1e5] == pytest.approx([0.9966, 0.927, 0.668], abs=1e-3)
    assert told[1e8] == pytest.approx([0.99997, 0.930, 0.669], abs=1e-3)


@pytest.mark.slow
def test_a_convolutional_network_on_digits_to_margin_1e8():
    """3 x 3 filters, squared ReLU, degree 3, 360 digits: normalised margin and gap of the prototype, whose margins are a little past the decades."""
    from sklearn.datasets import load_digits

    images, digits = load_digits(n_class=2, return_X_y=True)
    squares, rng = images.reshape(-1, 8, 8) / 16, np.random.default_rng(0)
    patches = np.stack([squares[:, i : i + 6, j : j + 6].reshape(-1, 36) for i in range(3) for j in range(3)], 2)
    start = {"K": rng.normal(size=(4, 9)) * (2 / 9) ** 0.5, "a": rng.normal(size=144) / 12}
    network = lambda params, x: jax.numpy.square(jax.nn.relu(x @ params["K"].T)).reshape(len(x), -1) @ params["a"]
    setting = network_setting(network, start, patches, 1 - 2 * digits, pt.Exponential())
    run = pt.train(setting, pt.GradientFlow(), until=pt.MarginAbove(1e8))
    table = ((1e1, 0.168645, 0.412), (1e2, 0.302172, 0.154), (1e4, 0.408887, 0.0183), (1e6, 0.424470, 2.70e-3))
    for level, margin, gap in (*table, (1e8, 0.427003, 5.23e-4)):
        params = past(run, level)
        found = function_kkt(network, params, patches, 1 - 2 * digits)
        assert round(found.homogeneity.degree) == 3
        assert found.normalised_margin == pytest.approx(margin, rel=0.02)
        assert found.upper == pytest.approx(gap, rel=0.03)


class Squared(nn.Module):
    def forward(self, z):
        return torch.relu(z).square()


@pytest.mark.parametrize(
    ("layers", "degree", "defect"),
    [
        (lambda: (nn.Linear(4, 8, bias=False), nn.ReLU(), nn.Linear(8, 1, bias=False)), 2, 0.0),
        (lambda: (nn.Linear(4, 8, bias=False), Squared(), nn.Linear(8, 1, bias=False)), 3, 0.0),
        (
            lambda: (nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1, bias=False)),
            2,
            0.0,
        ),  # a bias of the first layer is a weight
        (lambda: (nn.Linear(4, 8, bias=False), nn.ReLU(), nn.Linear(8, 1)), None, 1e-3),  # one of the second is not
        (lambda: (nn.Linear(4, 8, bias=False), nn.GELU(), nn.Linear(8, 1, bias=False)), None, 1e-3),
    ],
)
def test_the_measured_degree_is_that_of_the_layers(layers, degree, defect):
    torch.manual_seed(0)
    found = homogeneity(TorchGradients(nn.Sequential(*layers()).double(), INPUTS, LABELS))
    assert found.holds == (degree is not None)
    if degree is None:
        assert min(found.defect, found.scaling_defect) > defect
    else:
        assert found.degree == pytest.approx(degree, abs=1e-12)  # and not degree + 1


def test_a_gram_formula_in_single_precision_would_leave_the_bracket():
    """Near a KKT point the formula cancels: why every bound comes from a residual."""
    model, X, y, _ = quadratic()
    network = TorchGradients(model, X, y)
    unit = network.start / np.linalg.norm(network.start)
    found = kkt(model, X, y)
    rows = network.rows(unit, np.arange(12)).astype(np.float32)
    given = found.multipliers.astype(np.float32)
    formula = 1 - 4 * np.float32(found.normalised_margin) * given.sum() + given @ (rows @ rows.T) @ given
    assert found.upper - found.lower < 1e-9
    assert not found.lower - 1e-9 <= formula <= found.upper + 1e-9


def test_memory_and_time_are_said_before_they_are_spent():
    model, X, y = separated()
    said = []
    kkt(model, X, y, progress=said.append)
    assert said[0].startswith("9 margins, 35 parameters")
    assert plan(TorchGradients(model, X, y)).count("MB") == 1
    with pytest.raises(ArgumentError, match="'memory'"):
        kkt(model, X, y, memory=10.0)


@pytest.mark.parametrize(
    ("model", "labels", "words"),
    [
        (lambda: nn.ReLU(), LABELS, "has none"),
        (
            lambda: nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)),
            LABELS,
            "BatchNorm1d '1' in training",
        ),
        (lambda: nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5), nn.Linear(3, 1)), LABELS, r"model.eval\(\)"),
        (lambda: nn.Linear(4, 1).requires_grad_(False), LABELS, "'weight', which is frozen"),
        (lambda: nn.Linear(4, 1, bias=False), np.ones(6, int), "both of them"),
        (lambda: nn.Linear(4, 1, bias=False), np.arange(6), "-1 and 1"),
        (lambda: nn.Linear(4, 3, bias=False), np.array([0, 1, 2, 3, 0, 1]), "3 on sample 3"),
        (lambda: nn.Linear(4, 1, bias=False), LABELS[:5], "6 inputs and 5 labels"),
        (lambda: nn.Linear(4, 1, bias=False), (LABELS + 1) // 2, r"Fix: 2 \* labels - 1"),
        (lambda: nn.Linear(4, 3, bias=False), LABELS.astype(float) % 3, r"labels.astype\(int\)"),
        (lambda: nn.Linear(4, 1, bias=False), LABELS[:, None], r"shape \(6, 1\)"),
        (lambda: nn.Linear(3, 1, bias=False), LABELS, "'inputs' argument .* Linear takes"),
        (lambda: nn.LSTM(4, 1), LABELS, "Got tuple"),
        (lambda: nn.LazyLinear(1), LABELS, "'weight' without a shape"),
        (lambda: nn.Linear(4, 1, bias=False), np.array(list("ababab")), "'labels' .* an array of numbers"),
    ],
)
def test_what_cannot_be_measured_is_named(model, labels, words):
    with pytest.raises(ArgumentError, match=words):
        kkt(model(), INPUTS, labels)


@pytest.mark.parametrize("tolerance", [0.0, -1.0, 1.0, math.nan])
def test_a_tolerance_that_decides_nothing_is_refused(tolerance):
    with pytest.raises(ArgumentError, match="'tolerance'"):
        kkt(*separated(), tolerance=tolerance)


def test_statistics_of_a_batch_are_told_not_to_be_what_is_read():
    model, X, y = separated()
    model = nn.Sequential(nn.BatchNorm1d(6, dtype=torch.float64), *model).eval()
    with pytest.warns(PenchantWarning, match="'0' is read with its running statistics"):
        kkt(model, X, y)


def test_bad_weights_wrong_margins_and_biases_are_named():
    model = nn.Linear(4, 1, bias=False)
    with torch.no_grad():
        model.weight[0, 2] = math.nan
    with pytest.raises(ArgumentError, match="'weight' with 1"):
        kkt(model, INPUTS, LABELS)
    far = INPUTS.copy()
    far[3, 1] = math.inf
    with pytest.raises(ArgumentError, match=r"'inputs' .* sample 3"):
        kkt(nn.Linear(4, 1, bias=False), far, LABELS)
    with pytest.raises(ArgumentError, match=r"'inputs' .* Got none"):
        kkt(nn.Linear(4, 1, bias=False), INPUTS[:0], LABELS[:0])
    with pytest.raises(PenchantError, match=r"does not separate .* on sample"):
        kkt(nn.Linear(4, 1, bias=False), INPUTS, LABELS)
    torch.manual_seed(0)
    with pytest.raises(NotHomogeneous, match="nor near it"):
        kkt(nn.Sequential(nn.Linear(4, 8), Sine(), nn.Linear(8, 1)), INPUTS, LABELS)


@pytest.mark.parametrize("last", [nn.MaxPool1d(2), nn.Hardtanh(0.0, 1e9)])
def test_kinks_that_are_not_looked_for_are_named(last):
    """Nothing is said to be smooth, or certified from below over a radius, that has kinks of another kind than ReLU's."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 24, bias=False), nn.ReLU(), last, nn.LazyLinear(2, bias=False)).double()
    labels = model(torch.tensor(INPUTS)).argmax(1).numpy()
    found = kkt(model, INPUTS, labels)
    holds, told = found.hypotheses["smooth margins"]
    assert (holds, told.partition(" ")[0]) == (False, {nn.MaxPool1d: "max_pool1d", nn.Hardtanh: "hardtanh"}[type(last)])
    assert not any(one.exact or one.lower for one in found.curve)


def test_kinks_of_a_function_of_jax_are_named():
    inputs, labels = jax.numpy.array([[2.0, 1.0], [-1.0, -3.0]]), [1, -1]
    kinked = function_kkt(lambda w, x: jax.nn.relu(x @ w) - jax.nn.relu(-x @ w), jax.numpy.ones(2), inputs, labels)
    assert kinked.hypotheses["smooth margins"] == (False, "max may have kinks, which are not looked for")
    smooth = function_kkt(lambda w, x: x @ w, jax.numpy.ones(2), inputs, labels)
    assert smooth.hypotheses["smooth margins"][0]


class Sine(nn.Module):
    def forward(self, z):
        return torch.sin(z)


@pytest.mark.parametrize("bias", [0.3, 0.003])
def test_a_near_homogeneous_network_is_read_as_its_homogenisation(bias):
    """Two linear layers at a KKT point and a bias behind them, which large weights leave no trace of: the distance is its share of the norm."""
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 1)).double()
    best = torch.tensor([1.0, 2.0], dtype=torch.float64) / 5**0.5
    with torch.no_grad():
        model[0].weight.copy_(torch.outer(torch.tensor([1.0, 0.0], dtype=torch.float64), best))
        model[1].weight.copy_(torch.tensor([[1.0, 0.0]]))
        model[1].bias.fill_(bias)
    found = kkt(model, [[2.0, 0.0], [0.0, -1.0]], [1, -1])
    size = math.sqrt(2 + bias**2)
    assert found.distance_lower == pytest.approx(bias / size, rel=1e-9)
    assert found.distance == pytest.approx(bias / size, rel=1e-9)
    assert found.normalised_margin == pytest.approx(2 / 5**0.5 / size**2, rel=1e-9)
    assert found.theorem.startswith("Cai")
    assert {name: ok for name, (ok, _) in found.hypotheses.items()}["near-homogeneous"]
    assert not found.hypotheses["homogeneous"][0]
    assert found.verdict.headline == ("confirmed" if bias < 1e-2 else "undecided")


def test_kinks_of_a_network_with_biases_are_those_of_its_homogenisation():
    """With a bias that is 0 the readings of the network with it and without it agree, kinks freed too."""
    plain, X, y = kinked(50)

    class Biased(Two):
        def __init__(self):
            super().__init__(plain.U.detach().numpy(), plain.v.detach().numpy())
            self.b = nn.Parameter(torch.zeros((), dtype=torch.float64))

        def forward(self, x):
            return super().forward(x) + self.b

    ours, theirs = kkt(Biased(), X, y), kkt(plain, X, y)
    assert not ours.homogeneity.holds
    assert ours.distance == pytest.approx(theirs.distance, rel=1e-9)
    for one, other in zip(ours.curve, theirs.curve, strict=True):
        assert one.free == other.free
        assert one.radius == pytest.approx(other.radius, rel=1e-9)
    assert all(one.distance < 1e-12 for one in ours.curve)


def test_inputs_and_labels_may_be_tensors_that_want_gradients():
    model, X, y = separated()
    found = kkt(model, torch.tensor(X, requires_grad=True), torch.tensor(y))
    assert found.upper == kkt(model, X, y).upper


def test_a_shared_weight_is_counted_once_and_said():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 4, bias=False)
            self.second = nn.Linear(4, 4, bias=False)
            self.second.weight = self.first.weight

        def forward(self, x):
            return self.second(self.first(x))[:, 0]

    torch.manual_seed(0)
    model = Tied().double()
    x = INPUTS
    y = np.sign(model(torch.tensor(x)).detach().numpy()).astype(int)
    with pytest.warns(PenchantWarning, match="second.weight"):
        found = kkt(model, x, y)
    assert found.homogeneity.degree == pytest.approx(2.0)
    assert found.verdict.headline == "undecided"


def test_the_command_line_reads_a_script(tmp_path, capsys):
    model, X, y = separated()
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    (tmp_path / "net.py").write_text(
        "import torch\nfrom torch import nn\nfrom pathlib import Path\n"
        "def model():\n    made = nn.Sequential(nn.Linear(6, 5, bias=False), nn.Linear(5, 1, bias=False)).double()\n"
        "    made.load_state_dict(torch.load(Path(__file__).parent / 'weights.pt'))\n    return made\n"
        "runs = [model(), model()]\n"
    )
    np.savez(tmp_path / "data.npz", inputs=X, labels=y)
    assert main(["kkt", f"{tmp_path}/net.py:model", f"{tmp_path}/data.npz", "--json"]) == 0
    streams = capsys.readouterr()
    told = json.loads(streams.out)
    assert "9 margins" in streams.err
    keys = ("degree", "defect", "margins", "normalised_margin", "distance", "curve", "gap", "theorem", "verdict")
    assert set(keys) <= set(told)
    assert set(told["gap"]) == {"lower", "upper", "eps", "delta"}
    assert len(told["defects"]) == len(X)
    assert told["gap"]["upper"] == pytest.approx(kkt(model, X, y).upper)
    assert main(["kkt", f"{tmp_path}/net.py:runs", f"{tmp_path}/data.npz"]) == 0
    assert "trend" in capsys.readouterr().out
    assert main(["kkt", f"{tmp_path}/net.py:modle", f"{tmp_path}/data.npz"]) == 2
    assert "did you mean model" in capsys.readouterr().err
    assert main(["kkt", f"{tmp_path}/none.py:model", f"{tmp_path}/data.npz"]) == 2
    assert main(["kkt", f"{tmp_path}/net.py", f"{tmp_path}/data.npz"]) == 2
    assert "FILE.py:NAME" in capsys.readouterr().err
    (tmp_path / "bad.py").write_text(
        "number, none = 3, []\ndef model():\n    raise ValueError('no weights')\ndef end():\n    raise SystemExit(0)\n"
    )
    wrong = {
        "number": "Got [3]",
        "none": "Got []",
        "model": "raised ValueError: no weights",
        "end": "raised SystemExit",
    }
    for name, words in wrong.items():
        assert main(["kkt", f"{tmp_path}/bad.py:{name}", f"{tmp_path}/data.npz"]) == 2
        assert words in capsys.readouterr().err
