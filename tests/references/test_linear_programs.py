"""l1 interpolants and nonnegative ones in any units of the data, and where coefficients vanish in all of them."""

import numpy as np
import pytest

import penchant as pt
from penchant.errors import ArgumentError, InterpolationError
from penchant.references.linear_programs import against_nonnegative, positive_part


@pytest.fixture
def sparse(rng):
    inputs, weight = rng.standard_normal((5, 12)), np.zeros(12)
    weight[[1, 4]] = [2.0, -1.0]
    return inputs, inputs @ weight


@pytest.mark.parametrize("target", [1e-30, 1e-9, 1.0, 1e9])
@pytest.mark.parametrize("scale", [1e-60, 1e-9, 1.0, 1e9])
def test_basis_pursuit_does_not_depend_on_units(sparse, scale, target):
    inputs, targets = sparse
    plain = pt.references.basis_pursuit(pt.Regression(inputs, targets))
    found = pt.references.basis_pursuit(pt.Regression(scale * inputs, target * targets))
    assert found.weight * scale / target == pytest.approx(plain.weight, abs=1e-12)
    assert abs(found.bracket.gap) < 1e-12
    assert found.bracket.infeasibility < 1e-13


def test_basis_pursuit_does_not_depend_on_the_units_of_a_sample_or_a_cost(rng):
    inputs, targets = rng.standard_normal((4, 9)), rng.standard_normal(4)
    plain = pt.references.basis_pursuit(pt.Regression(inputs, targets))
    units = np.array([1e-4, 1.0, 1e3, 1e-2])
    rescaled = pt.references.basis_pursuit(pt.Regression(units[:, None] * inputs, units * targets))
    assert rescaled.weight == pytest.approx(plain.weight, abs=1e-10)
    costs = np.geomspace(1e-9, 1.0, 9)  # the same program in coordinates costs * theta
    weighted = pt.references.basis_pursuit(pt.Regression(inputs * costs, targets), costs)
    assert weighted.weight * costs == pytest.approx(plain.weight, abs=1e-10)


@pytest.mark.parametrize("size", [1.0, 1e-8, 1e-40])
def test_small_targets_that_no_nonnegative_weight_reaches_are_refused_with_a_proof(rng, size):
    inputs = np.abs(rng.standard_normal((5, 12)))
    with pytest.raises(InterpolationError) as caught:
        pt.references.basis_pursuit(pt.Regression(inputs, -size * np.ones(5)), nonnegative=True)
    proof = caught.value.weights
    assert (inputs.T @ proof).min() >= -1e-12
    assert -size * proof.sum() < 0


def test_reachable_targets_have_no_proof_against_them(rng):
    inputs = rng.standard_normal((5, 12))
    assert against_nonnegative(inputs, inputs @ np.abs(rng.standard_normal(12))) is None


def test_costs_must_be_finite(sparse):
    with pytest.raises(ArgumentError, match=r"'weights'.*finite"):
        pt.references.basis_pursuit(pt.Regression(*sparse), np.append(np.ones(11), np.inf))


@pytest.mark.parametrize("alpha", [1e-30, 1e-2, 1.0, 100.0])
def test_coefficients_that_vanish_in_every_nonnegative_interpolant(alpha):
    """The second equation, theta_1 + theta_2 + 2 theta_3 = 0, leaves them no choice; the first one then says theta_0 = 1."""
    data = pt.Regression([[1.0, 1.0, 0.0, 0.0], [0.0, 1.0, 1.0, 2.0]], [1.0, 0.0])
    positive, mu = positive_part(np.asarray(data.inputs), np.asarray(data.targets))
    assert positive.tolist() == [True, False, False, False]
    pull = mu @ np.asarray(data.inputs)
    assert abs(pull[0]) < 1e-12
    assert (pull[1:] < 0).all()
    found = pt.references.minimum_potential(data, pt.Squares(alpha).potential(np.full(4, alpha)))
    exact = np.log(alpha**-2) - 1 + 4 * alpha**2  # KL of (1, 0, 0, 0)
    assert found.weight == pytest.approx([1.0, 0.0, 0.0, 0.0], abs=1e-12)
    assert found.resolved
    assert found.bracket.lower == pytest.approx(exact, rel=1e-12)
    assert found.bracket.upper == pytest.approx(exact, rel=1e-12)


def test_targets_of_zero_leave_only_zero():
    data = pt.Regression([[1.0, 2.0]], [0.0])
    found = pt.references.minimum_potential(data, pt.Squares(0.5).potential(np.full(2, 0.5)))
    assert not found.weight.any()
    assert found.bracket.lower == pytest.approx(0.5, rel=1e-12)
    assert found.bracket.upper == pytest.approx(0.5, rel=1e-12)
