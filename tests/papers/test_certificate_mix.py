"""Mixtures of dual points: the least pull against closed forms and brute force, and bounds that stay bounds."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from penchant.errors import ArgumentError
from penchant.norms import L1, L2, Linf, Nuclear
from penchant.papers import new_lab
from penchant.papers.key_query.evidence import diagonal_run
from penchant.references.bracket import bracket
from penchant.theory.certificates import Race, certificates, least_pull, mixture, race

LAB = new_lab()

NORMS = (L2(), Nuclear(), L1(), Linf())


@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.name)
def test_two_pulls_are_mixed_as_a_search_over_their_shares_mixes_them(norm, rng):
    pulls = rng.standard_normal((2, 4, 3)) + 0.5
    size = lambda share: norm.dual(share * pulls[0] + (1 - share) * pulls[1])
    wanted = minimize_scalar(size, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-12}).fun
    shares = least_pull(pulls, norm)
    assert shares.min() >= 0
    assert shares.sum() == pytest.approx(1.0, rel=1e-12)
    assert norm.dual(np.tensordot(shares, pulls, 1)) == pytest.approx(wanted, rel=1e-8)


def test_perpendicular_pulls_are_mixed_in_inverse_proportion_to_their_squares():
    assert np.allclose(least_pull(np.array([[1.0, 0.0], [0.0, 2.0]]), L2()), [0.8, 0.2], atol=1e-4)
    assert np.allclose(least_pull(np.array([[1.0, 0.0], [0.0, 2.0]]), L1()), [2 / 3, 1 / 3], atol=1e-9)


def test_a_norm_without_a_touching_weight_is_refused():
    class Other:
        name = "other"
        value = dual = staticmethod(lambda weight: float(np.abs(weight).max()))

    with pytest.raises(ArgumentError, match="touching"):
        least_pull(np.ones((2, 2)), Other())


def test_the_mixture_bounds_the_optimum_and_no_single_certificate_is_better():
    run, reference = diagonal_run(LAB)
    bounds, data = certificates(run, L1()), run.setting.data
    for record in (2, -1):
        found = bracket(data, run.weight(record), mixture(run, L1(), record), L1()).lower
        assert bounds.best_lower[record] * (1 - 1e-12) <= found <= reference.value * (1 + 1e-12)


def test_the_race_names_the_kind_that_is_first():
    run, _ = diagonal_run(LAB)
    found = race(run, L1(), (1e-1, 1e-2, 1e-9))
    assert found.first(1) == "mixed"
    assert found.first(2) == "none"
    assert all((margins[1:] >= margins[:-1]).all() for margins in found.margins.values())
    made = Race((0.1,), {"accumulated": np.array([5.0]), "instant": np.array([5.0]), "window": np.array([np.inf])})
    assert made.first(0) == "accumulated, instant"
