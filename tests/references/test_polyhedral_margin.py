"""l1 and linf margins of data that a linear program in floats drops or calls infeasible."""

import numpy as np
import pytest

import penchant as pt
from penchant.errors import NotSeparableError, UndecidedMargin
from penchant.norms import L1, Linf
from penchant.references.linear_programs import least_cost, polyhedral_margin
from trials import oracles

NORMS = [L1(), Linf()]


@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.name)
def test_entries_below_the_tolerance_of_the_solver(norm):
    found = polyhedral_margin(pt.Classification([[1.0, 0.0], [0.0, 1e-9]], [1, 1]), norm)
    exact = 1e9 + (norm.name == "l1")
    assert found.bracket.lower <= exact <= found.bracket.upper
    assert found.certified
    assert found.weight[1] == pytest.approx(1e9)


@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.name)
@pytest.mark.parametrize("scale", [1e-7, 1e-9])
def test_small_margins_against_exact_programs(norm, scale, rng):
    """Every margin is `scale` of the inputs: below what the solver tells from a contradiction."""
    inputs, toward = rng.standard_normal((8, 3)), np.array([0.6, 0.0, 0.8])
    inputs += np.outer(scale * (1 + rng.random(8)) - inputs @ toward, toward)
    best = oracles.least_margin_norm(oracles.exact(inputs), norm.name)
    found = polyhedral_margin(pt.Classification(inputs, np.ones(8)), norm).bracket
    assert found.lower <= best <= found.upper
    assert found.gap < 1e-4


@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.name)
def test_a_contradiction_is_proved_and_a_doubt_is_one(norm):
    with pytest.raises(NotSeparableError):
        polyhedral_margin(pt.Classification([[1.0, 2.0], [-3.0, -6.0]], [1, 1]), norm)
    with pytest.raises(UndecidedMargin):
        polyhedral_margin(pt.Classification([[1.0, 1.0], [-1.0, -1.0 + 2.0**-53]], [1, 1]), norm)


def test_programs_are_refined_beyond_the_tolerance_of_the_solver():
    """x_0 is 1e-12, which HiGHS alone cannot tell from 0."""
    x, y = least_cost(np.array([1.0, 1.0]), np.array([[1.0, 1e-3]]), np.array([1e-12]))
    assert x == pytest.approx([1e-12, 0.0], abs=1e-18)
    assert y == pytest.approx([1.0])
