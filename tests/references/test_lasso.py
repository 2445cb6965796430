"""The lasso: by hand, by its optimality conditions, at both ends of its path, and bad input."""

import numpy as np
import pytest

import penchant as pt
from penchant.errors import ArgumentError


def test_orthogonal_columns_are_thresholded(rng):
    basis = np.linalg.qr(rng.standard_normal((8, 5)))[0]
    data = pt.Regression(2 * basis, rng.standard_normal(8))
    pull = 2 * basis.T @ np.asarray(data.targets)
    (found,) = pt.references.lasso_path(data, [0.3])
    assert found.weight == pytest.approx(np.sign(pull) * np.maximum(np.abs(pull) - 0.3, 0.0) / 4, abs=1e-12)


@pytest.mark.parametrize("unit", [1.0, 1e-4, 1e6])
def test_optimality_conditions_hold_along_the_path_in_any_unit(unit, rng):
    inputs, targets = rng.standard_normal((12, 30)), rng.standard_normal(12)
    data = pt.Regression(unit * inputs, targets)
    top = float(np.abs(unit * inputs.T @ targets).max())
    path = pt.references.lasso_path(data, top * np.array([0.02, 0.5, 0.1]))
    assert [found.penalty / top for found in path] == pytest.approx([0.02, 0.5, 0.1])
    for found in path:
        pull = unit * inputs.T @ found.residual
        on = found.weight != 0
        assert 0 < on.sum() <= 12
        assert pull[on] == pytest.approx(found.penalty * np.sign(found.weight[on]), rel=1e-9)
        assert np.abs(pull).max() <= found.penalty * (1 + 1e-9)
        assert found.gap < 1e-12


def test_nonnegative_weights_have_one_sided_conditions(rng):
    inputs, targets = rng.standard_normal((12, 30)), rng.standard_normal(12)
    penalty = 0.1 * float((inputs.T @ targets).max())
    (found,) = pt.references.lasso_path(pt.Regression(inputs, targets), [penalty], nonnegative=True)
    pull, on = inputs.T @ found.residual, found.weight > 0
    assert found.weight.min() == 0
    assert pull[on] == pytest.approx(np.full(on.sum(), penalty), rel=1e-9)
    assert pull.max() <= penalty * (1 + 1e-9)
    assert pull.min() < -penalty
    assert found.gap < 1e-12


def test_the_path_begins_at_0_and_ends_at_basis_pursuit():
    data, weight = pt.settings.sparse_regression(6, 12, 1, 0)
    top = float(np.abs(np.asarray(data.inputs).T @ np.asarray(data.targets)).max())
    first, last = pt.references.lasso_path(data, [1.01 * top, 1e-8 * top])
    assert not first.weight.any()
    assert last.weight == pytest.approx(weight, abs=1e-6)


@pytest.mark.parametrize("penalties", [[0.0], [-1.0, 1.0], [np.inf], [[1.0]]])
def test_penalties_must_be_positive(penalties):
    with pytest.raises(ArgumentError, match="'penalties'"):
        pt.references.lasso_path(pt.Regression([[1.0, 2.0]], [1.0]), penalties)
