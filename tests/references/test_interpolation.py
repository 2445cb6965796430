"""Interpolants: against CVXPY and SLSQP where they can, certified everywhere, and honest about what cannot be reached."""

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import minimize

import penchant as pt
from penchant.errors import ArgumentError, InterpolationError
from penchant.references.interpolation import basis_pursuit, minimum_norm, minimum_potential, potential_path
from penchant.references.interpolation_bracket import interpolation_bracket
from penchant.settings.generators import sparse_regression
from penchant.settings.potentials import Entropy, HyperbolicEntropy, q_alpha

DATA, TRUTH = sparse_regression(8, 20, 2, 4)
INPUTS, TARGETS = np.asarray(DATA.inputs), np.asarray(DATA.targets)


def by_cvxpy(alpha):
    """min KL(u | alpha^2) + KL(v | alpha^2) subject to X(u - v) = y: the disciplined form of Q_alpha."""
    u, v = cp.Variable(20, nonneg=True), cp.Variable(20, nonneg=True)
    level = np.full(20, alpha**2)
    cost = cp.sum(cp.kl_div(u, level) + cp.kl_div(v, level))
    cp.Problem(cp.Minimize(cost), [INPUTS @ (u - v) == TARGETS]).solve(solver="CLARABEL")
    return u.value - v.value


@pytest.mark.parametrize("alpha", [3.0, 0.3, 0.03])
def test_q_alpha_agrees_with_cvxpy(alpha):
    ours, theirs = minimum_potential(DATA, q_alpha(alpha, 20)), by_cvxpy(alpha)
    # Clarabel stops at 1e-8 in the objective, whose curvature is at least 1/(2 alpha^2 + |theta|): 1e-4 * alpha in the point.
    assert q_alpha(alpha, 20).value(theirs) == pytest.approx(ours.value, rel=1e-7)
    assert ours.weight == pytest.approx(theirs, abs=1e-4 * max(alpha, 1.0))


def test_q_alpha_agrees_with_slsqp():
    potential = q_alpha(0.5, 20)
    constraint = {"type": "eq", "fun": lambda w: INPUTS @ w - TARGETS, "jac": lambda w: INPUTS}
    found = minimize(
        potential.value,
        minimum_norm(DATA).weight,
        jac=potential.gradient,
        constraints=[constraint],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert minimum_potential(DATA, potential).weight == pytest.approx(found.x, abs=1e-5)


@pytest.mark.parametrize(
    ("alpha", "one", "two"),
    [
        (1e3, 9.7863063713, 1.2951528720),
        (1.0, 9.7765395696, 1.2951560028),
        (1e-1, 7.1254335601, 1.5668453659),
        (1e-2, 5.2292132632, 2.1368807849),
        (1e-4, 5.0025269528, 2.2348134988),
        (1e-8, 5.0000004491, 2.2360677465),
    ],
)
def test_norms_along_the_path_are_the_published_ones(alpha, one, two):
    data, _ = sparse_regression()
    weight = minimum_potential(data, q_alpha(alpha, 100)).weight
    assert np.abs(weight).sum() == pytest.approx(one, abs=2e-10)
    assert np.linalg.norm(weight) == pytest.approx(two, abs=2e-10)


def test_every_point_of_the_path_is_certified_and_the_resolution_limit_is_said():
    data, _ = sparse_regression()
    alphas = (1e3, 1.0, 1e-3, 1e-9, 1e-14, 1e-30, 1e-100)
    path = potential_path(data, q_alpha(1.0, 100), tuple(np.log(alphas)))
    assert [found.resolved for found in path] == [True] * 5 + [False] * 2
    for found in path:
        assert abs(found.bracket.gap) <= 1e-12
        assert found.bracket.infeasibility <= 1e-12


def test_unequal_starts_reach_the_weighted_l1_solution(rng):
    """Scales exp(-c_j k) with c_j different: for large k the limit is min sum c_j |theta_j|."""
    costs = rng.uniform(0.5, 2.0, 20)
    weight = minimum_potential(DATA, HyperbolicEntropy(-40 * costs, np.zeros(20))).weight
    variable = cp.Variable(20)
    cp.Problem(cp.Minimize(costs @ cp.abs(variable)), [INPUTS @ variable == TARGETS]).solve(solver="CLARABEL")
    assert weight == pytest.approx(variable.value, abs=1e-3)


def test_basis_pursuit_agrees_with_cvxpy_and_is_certified():
    found = basis_pursuit(DATA)
    variable = cp.Variable(20)
    problem = cp.Problem(cp.Minimize(cp.norm1(variable)), [INPUTS @ variable == TARGETS])
    problem.solve(solver="CLARABEL")
    assert found.value == pytest.approx(problem.value, rel=1e-6)
    assert abs(found.bracket.gap) <= 1e-9


def test_the_bracket_of_any_points_contains_the_optimum(rng):
    potential = q_alpha(0.2, 20)
    best = minimum_potential(DATA, potential)
    for size in (1e-3, 0.1, 1.0):
        primal = best.weight + size * rng.standard_normal(20)
        dual = best.dual + size * rng.standard_normal(8)
        found = interpolation_bracket(DATA, primal, dual, potential)
        assert found.lower <= best.value * (1 + 1e-12) <= found.upper * (1 + 2e-12)


def test_minimum_norm_is_the_projection_of_the_start(rng):
    start = rng.standard_normal(20)
    found = minimum_norm(DATA, start)
    assert found.weight == pytest.approx(start + np.linalg.pinv(INPUTS) @ (TARGETS - INPUTS @ start), abs=1e-12)
    assert abs(found.bracket.gap) <= 1e-12


def test_rank_deficient_inputs_are_solved_on_their_range(rng):
    inputs = np.vstack([INPUTS, INPUTS[0] + INPUTS[1]])
    data = pt.Regression(inputs, inputs @ TRUTH)
    twin = minimum_potential(DATA, q_alpha(0.1, 20)).weight
    assert minimum_potential(data, q_alpha(0.1, 20)).weight == pytest.approx(twin, abs=1e-10)


def test_targets_out_of_range_are_refused_with_the_part_that_cannot_be_reached():
    data = pt.Regression([[1.0, 2.0], [2.0, 4.0]], [1.0, 0.0])
    with pytest.raises(InterpolationError) as caught:
        minimum_potential(data, q_alpha(0.1, 2))
    assert np.asarray(data.inputs).T @ caught.value.weights == pytest.approx(np.zeros(2), abs=1e-12)
    assert minimum_norm(data).weight == pytest.approx(np.linalg.lstsq(np.asarray(data.inputs), [1.0, 0.0])[0])


def test_targets_that_need_a_negative_weight_are_refused_with_a_farkas_vector():
    data = pt.Regression([[1.0, 2.0]], [-1.0])
    with pytest.raises(InterpolationError) as caught:
        minimum_potential(data, Entropy(np.zeros(2)))
    mu = caught.value.weights
    assert (np.asarray(data.inputs).T @ mu >= 0).all()
    assert float(np.asarray(data.targets) @ mu) < 0


@pytest.mark.parametrize(
    ("inputs", "targets", "name"),
    [
        ([[1.0, np.nan]], [1.0], "inputs"),
        ([[1.0, 2.0]], [1.0, 2.0], "targets"),
        ([[0.0, 0.0]], [1.0], "inputs"),
        ([1.0], [1.0], "inputs"),
    ],
)
def test_bad_regression_arrays_are_named(inputs, targets, name):
    with pytest.raises(ArgumentError, match=f"'{name}'"):
        pt.Regression(inputs, targets)


def test_losses_and_data_that_do_not_fit_are_refused():
    with pytest.raises(ArgumentError, match="'loss'"):
        pt.Setting(DATA, pt.Direct(), pt.Exponential())
    with pytest.raises(ArgumentError, match="'loss'"):
        pt.Setting(pt.Classification([[1.0]], [1]), pt.Direct(), pt.Squared())


@pytest.mark.parametrize("alpha", [1e100, 1e10, 1.0, 1e-2, 1e-8, 1e-14, 1e-100])
def test_bounds_are_in_order_however_they_round(alpha):
    data, _ = sparse_regression(20, 60, 3, 2)
    found = minimum_potential(data, q_alpha(alpha, 60)).bracket
    assert 0 < found.gap < 1e-11
    inside = [minimum_norm(data).bracket, basis_pursuit(data).bracket]
    assert all(0 < one.gap < 1e-11 for one in inside)


def test_the_bracket_of_a_regression_is_about_its_targets(rng):
    data = pt.Regression(rng.standard_normal((4, 9)), rng.standard_normal(4))
    found = pt.references.minimum_norm(data)
    own = pt.bracket(data, found.weight, found.dual)
    assert own.lower == pytest.approx(np.linalg.norm(found.weight), rel=1e-12)
    assert own.upper == pytest.approx(np.linalg.norm(found.weight), rel=1e-12)
    rough = pt.bracket(data, found.weight + 0.1 * rng.standard_normal(9), found.dual + 0.01 * rng.standard_normal(4))
    assert rough.lower < own.lower < rough.upper
    potential = pt.settings.q_alpha(0.1, 9)
    solved = pt.references.minimum_potential(data, potential)
    assert pt.bracket(data, solved.weight, solved.dual, potential).lower == solved.bracket.lower
    for name, point in (("primal", (np.ones(4), found.dual)), ("dual", (found.weight, np.ones(3)))):
        with pytest.raises(ArgumentError, match=f"'{name}'"):
            pt.bracket(data, *point)


def test_nonnegative_weights_of_least_cost_are_certified_in_their_costs():
    data = pt.Regression([[1.0, 2.0, 1.0]], [2.0])
    found = basis_pursuit(data, [1.0, 9.0, 3.0], nonnegative=True)
    assert found.weight.tolist() == [2.0, 0.0, 0.0]
    assert found.bracket.lower == pytest.approx(2.0, rel=1e-14)
    assert found.bracket.upper == pytest.approx(2.0, rel=1e-14)


def test_nonnegative_solutions_say_how_far_their_targets_may_be():
    data = pt.Regression([[0.1, 0.3, 0.7], [0.2, 0.1, 0.5]], [0.1, 0.2])
    assert pt.references.basis_pursuit(data).allowance == 0
    assert pt.references.basis_pursuit(data, nonnegative=True).allowance == 1e-12
    squares = pt.Setting(data, pt.Squares(0.1), pt.Squared())
    assert "for targets within 1e-12 of these" in str(pt.predict(squares, pt.GradientFlow()))
    exact = pt.Regression(
        [[1.0, 0.3, 0.7], [0.2, 1.0, 0.5]], [1.3, 1.2]
    )  # two positive weights reach all targets near these
    assert pt.references.basis_pursuit(exact, nonnegative=True).allowance == 0
