"""The matrix of least spectral potential: optimality by its own dual, and its limits."""

import numpy as np
import pytest

import penchant as pt
from penchant.errors import ArgumentError
from penchant.references.bracket import adjoint, margins
from penchant.references.finite_margin import _growth, potential, spectral_finite_margin, spectral_potential

DATA = pt.settings.equal_score_tokens(3, 4, 5, 1)


def apart(weight, target):
    return np.linalg.norm(weight / np.linalg.norm(weight) - target / np.linalg.norm(target))


@pytest.mark.parametrize("margin", [1e-2, 1.0, 1e4])
def test_primal_and_dual_agree(margin):
    scale = 0.7
    found = spectral_finite_margin(DATA, scale, margin)
    reached = np.asarray(margins(DATA, found.weight))
    assert reached.min() >= margin * (1 - 1e-9)
    assert found.dual.min() >= 0
    sizes = np.linalg.svd(np.asarray(adjoint(DATA, found.dual)), compute_uv=False)
    value = margin * found.dual.sum() - scale**2 * (np.cosh(sizes) - 1).sum()  # weak duality: at most the potential
    assert value == pytest.approx(found.potential, rel=1e-8)


def test_small_margins_give_the_frobenius_and_large_ones_the_nuclear_solution():
    assert apart(spectral_finite_margin(DATA, 1.0, 1e-4).weight, pt.references.max_margin(DATA).weight) <= 1e-6
    reference = pt.references.nuclear_margin(DATA)
    norms = [np.linalg.norm(spectral_finite_margin(DATA, 1.0, margin).weight, "nuc") / margin for margin in (1e4, 1e10)]
    early, late = (norm / reference.value - 1 for norm in norms)
    assert 0 <= late <= early / 20  # slowly: the second singular value lags
    assert late <= 1e-4


def test_derivatives_of_the_growth_by_differences(rng):
    pairs, dual = rng.standard_normal((3, 4, 2)), rng.uniform(0.1, 0.5, 3)
    growth = _growth(pairs, 0.8)
    gradient, hessian = growth.derivatives(dual)
    for k, step in enumerate(1e-5 * np.eye(3)):
        assert (growth.value(dual + step) - growth.value(dual - step)) / 2e-5 == pytest.approx(gradient[k], rel=1e-7)
        moved = growth.derivatives(dual + step)[0] - growth.derivatives(dual - step)[0]
        assert np.allclose(moved / 2e-5, hessian[k], rtol=1e-7)


def test_the_potential_is_that_of_the_singular_values(rng):
    left, right = (np.linalg.qr(rng.standard_normal((3, 3)))[0] for _ in range(2))
    weight = left @ np.diag([3.0, 1.0, 0.0]) @ right
    assert spectral_potential(weight, 1.0) == pytest.approx(potential([3.0, 1.0, 0.0], np.ones(3)), rel=1e-12)


@pytest.mark.parametrize(("name", "arguments"), [("scale", (0.0, 1.0)), ("margin", (1.0, -1.0))])
def test_arguments_without_a_minimiser_are_named(name, arguments):
    with pytest.raises(ArgumentError, match=name):
        spectral_finite_margin(DATA, *arguments)
