"""The steps that preconditioned descent needs in the three geometries, by the curvatures at the minima."""

import numpy as np
import pytest

from penchant.papers.attention_regression.setting.geometry import GEOMETRIES, curvature_range
from penchant.papers.attention_regression.setting.sample import prescribed_spectrum
from penchant.papers.attention_regression.theorems import asymptotic_factor

SIZES, SEED = (0.05, 0.04, 0.03, 0.02), 4
GAUGE = np.diag([1.0, -1.0, 1.0, 1.0])  # signs of the singular vectors for which the Euclidean column is tabulated
TABULATED = {  # steps for 1e-10 of the excess at the optimal step: condition, geometry -> steps
    ("1", "two_sided"): 29,
    ("1", "left"): 29,
    ("1", "euclidean"): 29,
    ("10", "two_sided"): 29,
    ("10", "left"): 158,
    ("10", "euclidean"): 324,
    ("100", "two_sided"): 29,
    ("100", "left"): 1532,
    ("100", "euclidean"): 9701,
    ("1000", "two_sided"): 29,
    ("1000", "left"): 15226,
    ("1000", "euclidean"): 207696,
}


@pytest.mark.parametrize(("condition", "name"), TABULATED)
def test_tabulated_steps(condition, name):
    problem, geometry = prescribed_spectrum(6, SIZES, float(condition), SEED), GEOMETRIES[name]
    step = 2 / sum(curvature_range(problem, geometry, GAUGE))
    factor = asymptotic_factor(problem, geometry, step, GAUGE)
    assert int(np.ceil(np.log(1e-10) / (2 * np.log(factor)))) == TABULATED[condition, name]
