"""Is a start near the minima, when those are only estimated?"""

import numpy as np
import pytest

from penchant.papers.attention_regression.advice import advise
from penchant.papers.attention_regression.diagnostics import near_estimated_minima, start_errors
from penchant.papers.attention_regression.setting.balanced_minima import nearest_minimum
from penchant.papers.attention_regression.setting.geometry import TwoSided
from penchant.papers.attention_regression.setting.problem import AttentionLayer
from penchant.papers.attention_regression.setting.sample import draw_sample, prescribed_spectrum, spectral_layer

PROBLEM = prescribed_spectrum(4, (0.05, 0.04, 0.03), 5.0, 11, 1e-3)


def distance(problem, layer):
    return nearest_minimum(problem, np.asarray(problem.whiten(layer)), TwoSided()).distance


def test_drawn_errors_have_the_law_of_real_samples():
    samples = (draw_sample(PROBLEM, 300, np.random.default_rng(k)) for k in range(40))
    real = np.array([distance(PROBLEM, spectral_layer(sample.estimated)) for sample in samples])
    drawn = start_errors(PROBLEM, 300)
    error = real.std() / np.sqrt(len(real))
    assert abs(real.mean() - drawn.mean()) < 3 * error
    assert np.mean(real > np.quantile(drawn, 0.95)) < 0.2


def test_the_spectral_start_of_few_samples_is_not_called_near():
    """Its distance to its own minima is rounding; to the true ones it is beyond r_0."""
    problem = prescribed_spectrum(4, (0.05, 0.03, 0.003), 20.0, 3, 1e-3)
    sample = draw_sample(problem, 60, np.random.default_rng(0))
    start = spectral_layer(sample.estimated)
    assert distance(sample.estimated, start) < 1e-12
    assert distance(problem, start) > np.sqrt(0.8 * 0.003)
    found = near_estimated_minima(sample, start)
    assert found.holds is None
    assert found.slack < 0
    told = {one.name: one for one in advise(sample, problem).hypotheses}
    assert told["initialisation"].holds is False
    assert told["initialisation"].slack == pytest.approx(np.sqrt(0.8 * 0.003) - distance(problem, start), rel=1e-9)
    assert told["A2_full_rank"].holds is True  # of the truth; the sample leaves it undecided
    assert {one.name: one.holds for one in advise(sample).hypotheses}["A2_full_rank"] is None


def test_many_samples_decide_near_and_far():
    sample = draw_sample(PROBLEM, 4000, np.random.default_rng(1))
    start = spectral_layer(sample.estimated)
    near, far = (
        near_estimated_minima(sample, AttentionLayer(c * start.value, c * start.key_query)) for c in (1.0, 2.5)
    )
    assert near.holds is True
    assert near.slack < np.sqrt(0.8 * 0.03) - 0.5 * start_errors(PROBLEM, 4000).mean()  # the estimate's error counts
    assert far.holds is False
