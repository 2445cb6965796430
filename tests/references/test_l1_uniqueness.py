"""Uniqueness of the least l1 norm: by hand, by a second linear program, under scaling, and bad input."""

import numpy as np
import pytest
from scipy.optimize import linprog

import penchant as pt
from penchant.errors import ArgumentError


def spread(data, weight):
    """Length of the set of l1 solutions in a random direction: the largest minus the smallest value there, by linear programs."""
    inputs, targets, d = np.asarray(data.inputs), np.asarray(data.targets), len(weight)
    towards = np.random.default_rng(0).standard_normal(d)
    rows, least = np.hstack([inputs, -inputs]), np.abs(weight).sum() * (1 + 1e-9)
    ends = [
        linprog(sign * np.concatenate([towards, -towards]), np.ones((1, 2 * d)), [least], rows, targets).fun
        for sign in (1, -1)
    ]
    return -(ends[0] + ends[1])


@pytest.mark.parametrize("seed", range(4))
def test_sparse_solutions_are_unique_and_so_says_a_second_program(seed):
    data, weight = pt.settings.sparse_regression(6, 12, 1, seed)
    found = pt.theory.uniqueness(data, pt.references.basis_pursuit(data))
    assert found.unique
    assert found.support == (0,)
    assert spread(data, weight) <= 1e-6
    assert found.rho == pytest.approx(pt.references.strict_dual(data, weight), rel=1e-9)


@pytest.mark.parametrize("unit", [1.0, 1e-9, 1e9])
def test_equal_columns_share_the_solution_in_any_unit(unit, rng):
    inputs = rng.standard_normal((4, 8))
    inputs[:, 1] = inputs[:, 0]
    inputs = inputs / np.linalg.norm(inputs, axis=0)  # no column is longer than the shared one
    data = pt.Regression(unit * inputs, inputs[:, 0])
    weight = np.zeros(8)
    weight[0] = 1 / unit
    found = pt.references.l1_uniqueness(data, weight)
    assert found.unique is False
    assert found.rho == pytest.approx(1.0, abs=1e-6)
    both = np.where(np.arange(8) < 2, 0.5 / unit, 0.0)
    assert pt.references.l1_uniqueness(data, both).smallest <= 1e-12
    assert pt.references.l1_uniqueness(data, both).unique is False


def test_costs_and_signs_change_the_answer():
    data = pt.Regression([[1.0, 1.0, -1.0]], [1.0])
    first = np.array([1.0, 0.0, 0.0])
    assert pt.references.l1_uniqueness(data, first).unique is False
    assert pt.references.l1_uniqueness(data, first, [1.0, 2.0, 2.0]).unique
    assert pt.references.l1_uniqueness(data, first, [1.0, 2.0, 2.0]).rho == pytest.approx(0.5, abs=1e-9)
    assert pt.references.l1_uniqueness(data, first, [1.0, 2.0, 1.0]).unique is False
    assert pt.references.l1_uniqueness(data, first, [1.0, 2.0, 1.0], nonnegative=True).unique


def test_rho_of_nonnegative_weights_has_no_lower_bound():
    """One sample (1, -5): mu = 1, so that X' mu = -5 off the support, and the second coefficient falls like alpha^12."""
    data = pt.Regression([[1.0, -5.0]], [1.0])
    assert pt.references.strict_dual(data, [1.0, 0.0], nonnegative=True) == pytest.approx(-5.0, abs=1e-9)
    notes = pt.predict(pt.Setting(data, pt.Squares(0.1), pt.Squared()), pt.GradientFlow()).notes
    assert "vanish like alpha^12" in notes[0]
    sizes = [
        pt.references.minimum_potential(data, pt.Squares(a).potential(np.full(2, a))).weight[1] for a in (1e-2, 1e-4)
    ]
    assert np.log(sizes[0] / sizes[1]) / np.log(1e2) == pytest.approx(12.0, abs=1e-6)


def test_coefficients_that_no_interpolant_has_give_rho_minus_infinity():
    data = pt.Regression([[1.0, 0.0], [0.0, -1.0]], [1.0, 0.0])
    found = pt.references.l1_uniqueness(data, [1.0, 0.0], nonnegative=True)
    assert found.unique
    assert found.rho == -np.inf
    wide = pt.Regression([[1.0, 0.0, -1.0], [0.0, -1.0, 0.0]], [1.0, 0.0])
    assert pt.references.strict_dual(wide, [1.0, 0.0, 0.0], nonnegative=True) == pytest.approx(-1.0, abs=1e-9)
    gone = pt.Regression([[1.0, 1.0, 0.5], [0.0, -1.0, -2.0]], [1.0, 0.0])
    notes = pt.predict(pt.Setting(gone, pt.Squares(0.1), pt.Squared()), pt.GradientFlow()).notes
    assert any("are 0 in every nonnegative interpolant, whatever the start" in note for note in notes)


@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("less", [5e-8, 5e-10])
def test_without_a_second_solution_nothing_is_called_not_unique(less, nonnegative):
    near = pt.Regression([[1.0, 1.0 - less]], [1.0])
    assert pt.references.l1_uniqueness(near, [1.0, 0.0], nonnegative=nonnegative).unique is None
    same = pt.Regression([[1.0, 1.0]], [1.0])
    assert pt.references.l1_uniqueness(same, [1.0, 0.0], nonnegative=nonnegative).unique is False
    beside = pt.Regression([[1.0, 1.0, -1.0]], [1.0])  # the third column touches the bound with the other sign
    assert pt.references.l1_uniqueness(beside, [1.0, 0.0, 0.0], nonnegative=nonnegative).unique is False


def test_nearly_dependent_columns_are_left_open():
    data = pt.Regression([[1.0, 1.0], [0.0, 1e-11]], [2.0, 1e-11])
    assert pt.references.l1_uniqueness(data, [1.0, 1.0]).unique is None


def test_strictly_convex_programs_are_unique_and_weighted_ones_want_their_weights():
    data, _ = pt.settings.sparse_regression(5, 9, 2)
    assert pt.theory.uniqueness(data, pt.references.minimum_norm(data)).unique
    with pytest.raises(ArgumentError, match="l1_uniqueness"):
        pt.theory.uniqueness(data, pt.references.basis_pursuit(data, np.arange(1.0, 10.0)))


def test_weights_that_are_no_solutions_are_refused():
    data = pt.Regression([[1.0, 2.0, 0.5]], [1.0])
    with pytest.raises(ArgumentError, match="least l1 norm"):
        pt.references.l1_uniqueness(data, [1.0, 0.0, 0.0])
    assert pt.references.strict_dual(data, [1.0, 0.0, 0.0]) == pytest.approx(2.0, abs=1e-9)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("weight", ([1.0, 0.0],)), ("weight", ([1.0, 1.0, 1.0],)), ("weights", ([1.0, 0.0, 0.0], [1.0, 0.0, 1.0]))],
)
def test_bad_arguments_are_named(name, arguments):
    with pytest.raises(ArgumentError, match=f"'{name}'"):
        pt.references.strict_dual(pt.Regression([[1.0, 2.0, 0.5]], [1.0]), *arguments)
