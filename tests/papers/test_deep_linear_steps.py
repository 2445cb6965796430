"""Discrete time on deep linear networks: the critical step in closed form, and what is left of the offset."""

import numpy as np
import pytest

import penchant as pt
from penchant.papers.deep_linear.laws import offset_error
from penchant.settings.generators import strips, teacher
from penchant.theory.families.layers import critical_step


def geometry_of(data):
    return pt.references.support_geometry(data, pt.references.max_margin(data))


def test_two_support_vectors_have_the_variance_of_their_distance():
    found = geometry_of(strips(0))
    first, second = found.shares
    apart = np.sum((found.points[0] - found.points[1]) ** 2)
    for depth in (1, 4):
        wanted = 2 * depth * found.margin**2 / (first * second * apart)
        assert critical_step(found, depth) == pytest.approx(wanted, rel=1e-12)


def test_the_critical_step_is_where_a_plain_iteration_of_the_offset_turns_unstable():
    """The Jacobian of one Polyak step of one layer far out, by differences, against the closed form."""
    found = geometry_of(teacher(20, 3, 1, push=0.3))
    drop = critical_step(found, 1)

    def step(weight):
        shares = np.exp(-(found.points @ weight) + (found.points @ weight).min())
        gradient = -(shares / shares.sum()) @ found.points
        return weight - drop * gradient / (gradient @ gradient)

    far, h = 1e3 * found.direction + found.offset, 1e-5
    jacobian = np.column_stack([(step(far + h * e) - step(far - h * e)) / (2 * h) for e in np.eye(3)])
    assert np.linalg.eigvals(jacobian).real.min() == pytest.approx(-1.0, abs=1e-5)


def test_the_offset_itself_has_no_error():
    found = geometry_of(strips(0))
    assert offset_error(7.0 * found.direction + found.offset, found) < 1e-12
