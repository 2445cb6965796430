"""The pages on interpolation show the numbers that are known: where each rule ends, and how lazy large starts are."""

import pytest

from penchant.papers import new_lab
from penchant.papers.notes.figures import path_of_minimisers
from penchant.papers.notes.q_alpha import kernel_deviation
from penchant.settings.generators import sparse_regression


@pytest.mark.parametrize(("alpha", "deviation"), [(1.0, 1.8e-3), (10.0, 1.8e-7)])
def test_large_starts_follow_their_tangent_kernel(alpha, deviation):
    assert kernel_deviation(sparse_regression()[0], alpha)[1] == pytest.approx(deviation, rel=0.03)


@pytest.mark.slow
def test_the_path_of_q_alpha_shows_all_eight_starts():
    _, norms = path_of_minimisers(new_lab())
    assert [row[0].value for row in norms.rows] == pytest.approx([1e3, 1, 0.1, 0.01, 1e-3, 1e-4, 1e-6, 1e-8])
    assert norms.rows[2][1].value == pytest.approx(7.1254335601, abs=1e-9)
