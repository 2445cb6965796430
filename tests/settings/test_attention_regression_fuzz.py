"""Arbitrary covariances and maps: a typed error, or a problem whose identities hold."""

import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from penchant.errors import PenchantError
from penchant.papers.attention_regression.setting.balanced_minima import nearest_minimum
from penchant.papers.attention_regression.setting.geometry import Left, TwoSided, balanced_point
from penchant.papers.attention_regression.setting.problem import AttentionRegression

ENTRIES = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, 1e-9, 1e9]),
    st.floats(-10, 10, allow_subnormal=False),
    st.sampled_from([np.nan, np.inf, 1e300, 1e-300]),
)


def matrices(rows, columns, entries=ENTRIES):
    size = rows * columns
    return st.lists(entries, min_size=size, max_size=size).map(lambda values: np.reshape(values, (rows, columns)))


@st.composite
def problems(draw):
    """Mostly symmetric positive semidefinite covariances, sometimes anything."""
    d, m = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    factor = draw(matrices(d, draw(st.integers(1, 4))))
    with np.errstate(all="ignore"):
        covariance = factor @ factor.T if draw(st.integers(0, 3)) else draw(matrices(d, d))
    return covariance, draw(matrices(m, d)), draw(st.sampled_from([0.0, 1e-3, -1.0, np.nan]))


def clearly_good(covariance, planted, noise):
    """Independent of the library: inputs that must be accepted, with room to spare."""
    if not (np.isfinite(covariance).all() and np.isfinite(planted).all() and noise >= 0):
        return False
    moderate = all(1e-90 < np.abs(one).max() < 1e90 for one in (covariance, planted))
    if not (moderate and np.array_equal(covariance, covariance.T)):
        return False
    values = np.linalg.eigvalsh(covariance)
    return bool(values[0] > 1e-10 * values[-1] > 0)


@hypothesis_settings(max_examples=150)
@given(problems())
def test_a_typed_error_or_a_problem_with_its_minima(arguments):
    try:
        problem = AttentionRegression(*arguments)
    except PenchantError:
        assert not clearly_good(*arguments)
        return
    covariance, planted, noise = arguments
    assert np.isfinite(covariance).all()
    assert np.isfinite(planted).all()
    assert noise >= 0
    assert np.linalg.eigvalsh(covariance)[0] > 0
    target = np.asarray(problem.target)
    scale = float(np.linalg.norm(target))
    rebuilt = (np.asarray(problem.left) * np.asarray(problem.sizes)) @ np.asarray(problem.right).T
    assert np.abs(rebuilt - target).max() <= 1e-13 * scale
    point = balanced_point(problem)
    assert float(problem.whitened_excess(jnp.asarray(point))) <= (1e-14 * scale) ** 2
    for geometry in (TwoSided(), Left()):
        assert nearest_minimum(problem, point, geometry).distance <= 1e-6 * max(
            1.0, np.linalg.norm(problem.inverse_root)
        )
