"""Laws of covariates: their moments, the mean under exponential weights, and the normal law as a special case."""

import jax.numpy as jnp
import numpy as np
import pytest

from penchant.errors import ArgumentError
from penchant.papers.attention_regression.setting.covariates import (
    Covariates,
    NormalMixture,
    ThreePoint,
    Uniform,
    kurtosis_constants,
)
from penchant.papers.attention_regression.setting.problem import AttentionLayer
from penchant.papers.attention_regression.setting.sample import prescribed_spectrum
from penchant.papers.attention_regression.training.sources import CovariatePopulation, Population

LAWS = [ThreePoint(-2.0), ThreePoint(0.0), ThreePoint(7.0), Uniform(), NormalMixture(0.0), NormalMixture(2.0)]
PROBLEM = prescribed_spectrum(3, (0.3, 0.2), 3.0, 1, 1e-3)
LAYER = AttentionLayer([[0.4, 0.1], [-0.2, 0.3], [0.1, -0.5]], [[0.3, -0.2], [0.1, 0.25]])
KINDS = [f"{type(law).__name__} {law.kurtosis:g}" for law in LAWS]


@pytest.mark.parametrize("law", LAWS, ids=KINDS)
def test_nodes_and_draws_have_the_moments_of_the_law(law):
    points, masses = law.rule()
    moment = lambda power: float(masses @ points**power)
    assert [moment(power) for power in (0, 1, 2, 3)] == pytest.approx([1, 0, 1, 0], abs=1e-13)
    assert moment(4) - 3 == pytest.approx(law.kurtosis, abs=1e-12)
    draws = law.draw(np.random.default_rng(0), (40_000,))
    error = np.sqrt((moment(8) - moment(4) ** 2) / len(draws))
    assert abs(np.mean(draws**4) - moment(4)) < 4 * error + 1e-12
    assert abs(np.mean(draws)) < 4 / np.sqrt(len(draws))


@pytest.mark.parametrize("law", LAWS, ids=KINDS)
def test_the_slope_is_the_mean_under_exponential_weights(law):
    points, masses = law.rule()
    at = np.array([-0.9, -0.3, -1e-3, 0.0, 5e-3, 6e-3, 0.5])
    weights = masses * np.exp(np.outer(at, points))
    assert np.asarray(law.slope(jnp.asarray(at))) == pytest.approx(weights @ points / weights.sum(axis=1), abs=1e-12)


def test_large_logits_give_the_largest_covariate():
    for law in (ThreePoint(1.0), Uniform()):
        largest = law.rule()[0].max() if isinstance(law, ThreePoint) else np.sqrt(3.0)
        assert np.asarray(law.slope(jnp.array([-1e6, 1e6]))) == pytest.approx([-largest, largest], rel=1e-5)


def test_normal_covariates_have_the_known_loss_and_gradient():
    law = NormalMixture(0.0)
    assert float(Covariates(law, 2).excess(PROBLEM, LAYER)) == pytest.approx(float(PROBLEM.excess(LAYER)), rel=1e-12)
    loss, gradient = CovariatePopulation(PROBLEM, law).evaluate(LAYER, None)
    known, exact = Population(PROBLEM).evaluate(LAYER, None)
    assert float(loss) == pytest.approx(float(known), rel=1e-12)
    assert np.asarray(gradient.value) == pytest.approx(np.asarray(exact.value), rel=1e-10)
    assert np.asarray(gradient.key_query) == pytest.approx(np.asarray(exact.key_query), rel=1e-10)


def test_the_constants_are_moments_of_the_cubic_part():
    whitened, m = np.asarray(PROBLEM.whiten(LAYER)), 3
    upper, below = whitened[:m], whitened[m:].T
    nodes = np.asarray(Covariates(NormalMixture(0.0), 2).nodes)
    masses = np.asarray(Covariates(NormalMixture(0.0), 2).masses)
    cubic = (nodes @ below.T) ** 3 @ upper.T / 6
    linear = np.linalg.lstsq(nodes * np.sqrt(masses)[:, None], cubic * np.sqrt(masses)[:, None], rcond=None)[0]
    expected = [float(masses @ np.sum(part**2, axis=1)) for part in (cubic, cubic - nodes @ linear)]
    assert kurtosis_constants(jnp.asarray(whitened), m) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("call", [lambda: ThreePoint(-2.1), lambda: NormalMixture(3.0), lambda: NormalMixture(-0.1)])
def test_a_kurtosis_out_of_reach_is_named(call):
    with pytest.raises(ArgumentError, match="kurtosis"):
        call()
