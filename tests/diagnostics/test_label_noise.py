"""The part of a gradient along the zero-loss set and the time that label noise takes there: by hand, and bad input."""

import numpy as np
import pytest

import penchant as pt
from penchant.errors import ArgumentError


def test_the_tangent_part_changes_no_prediction_and_leaves_what_does(rng):
    jacobian, gradient = rng.standard_normal((3, 8)), rng.standard_normal(8)
    found = pt.diagnostics.tangent_part(gradient, jacobian)
    assert np.abs(jacobian @ found).max() < 1e-12
    rest = gradient - found
    assert rest == pytest.approx(jacobian.T @ np.linalg.lstsq(jacobian.T, rest, rcond=None)[0], abs=1e-12)


def test_the_time_is_its_formula_and_infinite_where_nothing_drives(rng):
    gradient = np.array([0.0, 3.0, 4.0])
    jacobian = np.array([[1.0, 0.0, 0.0]])
    assert pt.diagnostics.moving_time(gradient, jacobian, 0.01, 2.0, 5) == pytest.approx(
        4 * 5 / (1e-4 * 4 * 5), rel=1e-12
    )
    assert pt.diagnostics.moving_time(np.array([2.0, 0.0, 0.0]), jacobian, 0.01, 2.0) == np.inf


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("step", ([1.0], [[1.0]], 0.0, 1.0)),
        ("deviation", ([1.0], [[1.0]], 0.1, -1.0)),
        ("jacobian", ([1.0, 2.0], [[1.0]], 0.1, 1.0)),
        ("gradient", ([np.nan], [[1.0]], 0.1, 1.0)),
    ],
)
def test_bad_arguments_are_named(name, arguments):
    with pytest.raises(ArgumentError) as caught:
        pt.diagnostics.moving_time(*arguments)
    assert caught.value.argument == name
