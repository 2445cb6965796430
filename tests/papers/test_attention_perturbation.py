"""What the steps of a run on a sample deviate by: against formulas with inverses written out, and the recursion's own algebra."""

import jax.numpy as jnp
import numpy as np
import pytest

from penchant.errors import ArgumentError
from penchant.papers.attention_regression.diagnostics import Perturbation, covariance_error, perturbation
from penchant.papers.attention_regression.setting.context_sums import context_sums
from penchant.papers.attention_regression.setting.geometry import Contraction, balanced_point
from penchant.papers.attention_regression.setting.sample import draw_sample, prescribed_spectrum, spectral_layer
from penchant.papers.attention_regression.training.algorithm1 import train_attention
from penchant.papers.attention_regression.training.rules import PreconditionedDescent
from penchant.papers.attention_regression.training.sources import FullSample, Population
from penchant.training.events import At, Every

PROBLEM = prescribed_spectrum(3, (0.05, 0.03), 4.0, 2, 1e-3)
SAMPLE = draw_sample(PROBLEM, 60, np.random.default_rng(0))


def direction(u, v, by_u, by_v, sigma, geometry):
    """Regularised gradient, preconditioned, by the formulas of the paper."""
    imbalance, inverse = u.T @ u - v @ sigma @ v.T, np.linalg.inv(sigma)
    by_u, by_v = by_u + u @ sigma @ imbalance @ sigma, by_v - sigma @ imbalance @ sigma @ v @ sigma
    if geometry == "two_sided":
        return by_u @ inverse, inverse @ by_v @ inverse
    return by_u, by_v @ inverse


@pytest.mark.parametrize("geometry", ["two_sided", "left"])
def test_the_error_is_that_of_the_direction_used(geometry):
    rule = PreconditionedDescent(geometry, 0.1)
    start = spectral_layer(SAMPLE.estimated)
    run = train_attention(FullSample(SAMPLE), rule, start, steps=3, recorder=Every(1), truth=PROBLEM)
    found = perturbation(run, rule, PROBLEM)
    sigma, planted = np.asarray(PROBLEM.covariance), np.asarray(PROBLEM.planted)
    for step, error in enumerate(found.error):
        u, v = run.value[step], run.key_query[step]
        sums = context_sums(SAMPLE.inputs, SAMPLE.targets, u, v)
        slip = u @ sigma @ v - planted
        exact = (2 * slip @ sigma @ v.T @ sigma, 2 * sigma @ u.T @ slip @ sigma)
        used = direction(
            u, v, np.asarray(sums.value), np.asarray(sums.key_query), np.asarray(SAMPLE.estimated.covariance), geometry
        )
        gap_u, gap_v = (a - b for a, b in zip(used, direction(u, v, *exact, sigma, geometry), strict=True))
        square = np.trace(gap_u @ sigma @ gap_u.T) + np.trace(sigma @ gap_v @ sigma @ gap_v.T)
        if geometry == "left":
            square = np.trace(gap_u @ gap_u.T) + np.trace(gap_v @ sigma @ gap_v.T)
        assert error == pytest.approx(np.sqrt(square), rel=1e-9)
    assert len(found.distance) == 4
    assert found.relative == covariance_error(PROBLEM, SAMPLE.estimated.covariance) > 0.05


def test_exact_gradients_have_no_error():
    rule = PreconditionedDescent("two_sided", 0.1)
    start = PROBLEM.unwhiten(jnp.asarray(1.05 * balanced_point(PROBLEM)))
    run = train_attention(Population(PROBLEM), rule, start, steps=3, recorder=Every(1), truth=PROBLEM)
    found = perturbation(run, rule, PROBLEM)
    assert found.error.max() < 1e-13
    assert found.relative < 1e-13
    assert (np.diff(found.distance) < 0).all()


def test_the_bound_is_the_recursion_and_its_limit_the_fixed_point():
    found = Perturbation(np.full(4000, 1e-3), np.full(4001, 0.05), 0.1, Contraction(0.15, 0.03, 0.4), 0.04)
    gain, added = 1 - 0.04 * 0.03 + 2 * 0.04**2 * 0.16, 0.04 / 0.03 + 2 * 0.04**2
    assert found.allowed[0] == pytest.approx(gain * 0.05**2 + added * 1e-6, rel=1e-14)
    assert found.bound[2] == pytest.approx(gain * (gain * 0.05**2 + added * 1e-6) + added * 1e-6, rel=1e-14)
    assert found.limit == pytest.approx(gain * found.limit + added * 1e-6, rel=1e-12)
    assert found.bound[-1] - found.limit == pytest.approx(gain**4000 * (0.05**2 - found.limit), rel=1e-9)
    assert Perturbation(np.ones(1), np.ones(2), 0.1, Contraction(0.15, 0.03, 0.4), 0.1).limit == np.inf


@pytest.mark.parametrize(
    ("recorder", "step", "found"), [(At(()), 0.1, "2 records"), (Every(1), "adaptive", "several sizes")]
)
def test_runs_whose_steps_are_not_known_are_refused(recorder, step, found):
    rule = PreconditionedDescent("two_sided", step)
    run = train_attention(Population(PROBLEM), rule, spectral_layer(SAMPLE.estimated), steps=3, recorder=recorder)
    with pytest.raises(ArgumentError, match=found):
        perturbation(run, rule, PROBLEM)
