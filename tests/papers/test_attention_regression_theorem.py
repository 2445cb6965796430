"""Hypotheses, prediction and verdict for attention regression; moments against Monte Carlo."""

import re

import jax.numpy as jnp
import numpy as np
import pytest

import penchant as pt
from penchant.errors import ArgumentError, AssumptionError
from penchant.papers.attention_regression.setting.balanced_minima import nearest_minimum
from penchant.papers.attention_regression.setting.geometry import GEOMETRIES, Left, TwoSided, balanced_point, eigenbasis
from penchant.papers.attention_regression.setting.problem import AttentionRegression, Unregularised
from penchant.papers.attention_regression.setting.sample import (
    attention_experiment,
    draw_sample,
    key_strength,
    log_cross_moment,
    log_self_moment,
    moment_room,
    moment_threshold,
    prescribed_spectrum,
    spectral_layer,
)
from penchant.papers.attention_regression.theorems import (
    centred_inputs,
    check_assumptions,
    expected_gradients,
    finite_moments,
    full_rank,
    gaussian_inputs,
    near_minima,
    noise_level,
    positive_definite,
)
from penchant.papers.attention_regression.training.algorithm1 import train_attention, train_population
from penchant.papers.attention_regression.training.rules import PreconditionedDescent
from penchant.papers.attention_regression.training.sources import FullSample, Population
from penchant.verdict import Outcome

PROBLEM = prescribed_spectrum(4, (0.05, 0.03, 0.01), 5.0, 11, 1e-3)


def test_moments_are_those_of_normal_samples(rng):
    """Monte Carlo with its standard error, four of them allowed."""
    key = 0.15 * rng.standard_normal((3, 3))
    x, y = rng.standard_normal((2, 400_000, 3))
    for other, power, found in ((x, 0.5, log_self_moment(key, 0.5)), (y, 1.0, log_cross_moment(key, 1.0))):
        draws = np.exp(power * np.einsum("ni,ij,nj->n", x, key, other))
        error = draws.std() / np.sqrt(len(draws))
        assert abs(draws.mean() - np.exp(found)) < 4 * error
        assert error < 0.01


def test_moments_end_where_the_determinants_vanish():
    assert np.isinf(log_self_moment(np.diag([0.25, 0.0]), 2.0))
    assert np.isfinite(log_self_moment(np.diag([0.2499, 0.0]), 2.0))
    assert np.isinf(log_cross_moment(np.diag([0.5, 0.0]), 2.0))
    assert log_self_moment(np.array([[0.0, 0.9], [-0.9, 0.0]]), 2.0) == 0.0  # only the symmetric part counts
    with pytest.raises(ArgumentError, match="positive"):
        moment_threshold(0.0)


def test_moments_stay_finite_within_their_radius(rng):
    radius = np.sqrt(moment_threshold(2.0)) - np.sqrt(float(PROBLEM.sizes[0]))
    worst = balanced_point(PROBLEM, np.asarray(PROBLEM.right).T)
    for _ in range(50):
        step = rng.standard_normal(worst.shape)
        assert moment_room(worst + 0.999 * radius * step / np.linalg.norm(step), 4) > 0
    top = np.asarray(PROBLEM.right)[:, :1]
    push = np.concatenate([np.zeros((4, 3)), top @ top.T])
    path = worst + np.array([0.5, 0.99, 1.01])[:, None, None] * radius * push
    assert [moment_room(one, 4) > 0 for one in path] == [True, True, False]
    assert key_strength(worst, 4)[0] == pytest.approx(np.sqrt(0.05))


def test_exact_hypotheses():
    held = (positive_definite(PROBLEM), full_rank(PROBLEM), finite_moments(PROBLEM))
    assert all(one.holds for one in held)
    assert [one.slack for one in held] == pytest.approx([0.2, 0.01, 0.0125], rel=1e-9)
    deficient = full_rank(prescribed_spectrum(4, (0.05, 0.0)))
    assert deficient.holds is False
    wide = full_rank(prescribed_spectrum(2, (0.05, 0.03, 0.01)))
    assert (wide.holds, wide.slack) == (False, -1.0)
    large = finite_moments(prescribed_spectrum(4, (0.6, 0.1)))
    assert large.holds is False
    assert "1/2 fails" in large.detail
    assert "s_1 < 1 holds" in large.detail
    assert "infinite on the minima" in large.detail
    assert "distance -" not in large.detail
    assert finite_moments(PROBLEM, 3.0).slack == pytest.approx(1 / 36 - 0.05)


def test_the_noise_level_covers_what_estimates_do(rng):
    """The smallest size of estimated maps is off by less than the level, and by more than a twentieth of it."""
    root, planted = np.asarray(PROBLEM.root), np.asarray(PROBLEM.planted)
    for samples in (200, 3200):
        gaps = []
        for _ in range(20):
            inputs = rng.standard_normal((samples, 3)) @ root
            targets = inputs @ planted.T + np.sqrt(1e-3) * rng.standard_normal((samples, 4))
            fitted = np.linalg.lstsq(inputs, targets, rcond=None)[0].T
            estimate = AttentionRegression(inputs.T @ inputs / samples, fitted, 1e-3)
            gaps.append(np.abs(np.asarray(estimate.sizes) - np.asarray(PROBLEM.sizes)).max())
        level = noise_level(PROBLEM, samples)
        assert level / 20 < np.median(gaps) < max(gaps) < level
    assert noise_level(PROBLEM, 700) == pytest.approx(np.sqrt(1e-3 * 7 / 700) + 0.05 * np.sqrt(3 / 700))


def test_estimated_hypotheses_are_undecided_below_their_noise():
    few, many = (full_rank(PROBLEM, samples) for samples in (100, 10**6))
    assert few.holds is None
    assert few.slack < 0
    assert many.holds is True
    assert finite_moments(PROBLEM, samples=20).holds is None
    found = positive_definite(PROBLEM, 100)
    assert (found.exactness, "from 100 samples" in found.detail) == ("estimated", True)
    assert f"good to a factor of 1 ± {2 * np.sqrt(3 / 100):.2g}" in positive_definite(PROBLEM, 100).detail


@pytest.mark.parametrize("geometry", GEOMETRIES.values(), ids=GEOMETRIES)
def test_the_start_is_near_or_far(geometry, rng):
    near = PROBLEM.unwhiten(jnp.asarray(balanced_point(PROBLEM) + 1e-3 * rng.standard_normal((7, 3))))
    far = PROBLEM.unwhiten(jnp.asarray(rng.standard_normal((7, 3))))
    assert near_minima(PROBLEM, near, geometry).holds
    assert not near_minima(PROBLEM, far, geometry).holds
    radius = 0.04 if isinstance(geometry, Left) else np.sqrt(0.008)
    assert near_minima(PROBLEM, near, geometry).slack == pytest.approx(radius, abs=0.02)


def _mardia(inputs):
    """The two z-scores as the hypothesis reports them."""
    found = re.search(r"skewness (\S+), kurtosis (\S+)$", gaussian_inputs(inputs).detail)
    return [float(part) for part in found.groups()]


def test_gaussianity_is_seen_and_so_is_its_failure(rng):
    normal = rng.standard_normal((5000, 3)) @ rng.standard_normal((3, 3))
    scores = [_mardia(rng.standard_normal((400, 2))) for _ in range(300)]
    assert np.abs(np.mean(scores, axis=0)).max() < 0.35  # z-scores: mean 0 and variance 1, up to 1/n and sampling
    assert np.abs(np.std(scores, axis=0) - 1).max() < 0.25
    assert gaussian_inputs(normal).holds
    assert centred_inputs(normal).holds
    heavy = rng.standard_t(5, (5000, 3))
    heavy[17] = 100.0
    assert gaussian_inputs(heavy).holds is False
    assert gaussian_inputs(heavy).offender == "sample 17"
    skewed = rng.exponential(size=(5000, 3)) - 1
    assert gaussian_inputs(skewed).holds is False
    shifted = normal + np.array([0.0, 5.0, 0.0])
    assert centred_inputs(shifted).offender == "column 1"
    assert gaussian_inputs(shifted).slack == pytest.approx(gaussian_inputs(normal).slack)


def test_other_gradients_are_outside_the_theorem():
    assert expected_gradients("population").holds
    other = expected_gradients("minibatch", 0.01)
    assert (other.holds, other.slack, other.offender) == (False, -0.01, "minibatch")


def test_prediction_and_verdict():
    found = attention_experiment(n=10)
    rule = PreconditionedDescent("two_sided", "adaptive")
    prediction = pt.predict(found.problem, rule)
    assert prediction.theorem.name == "attention-regression"
    assert prediction.holds
    assert prediction.reference.components == 2
    start = found.problem.whiten(found.start)
    done = train_population(found.problem, rule, found.start, steps=6000)
    assert pt.judge(prediction, done).outcome is Outcome.confirmed
    early = train_population(found.problem, rule, found.start, steps=30)
    assert pt.judge(prediction, early).outcome is Outcome.undecided
    mode = eigenbasis(found.problem).plus[:, -1:]
    saddle = found.problem.unwhiten(jnp.asarray(np.asarray(start) - mode @ (mode.T @ np.asarray(start))))
    stuck = train_population(found.problem, rule, saddle, steps=1800)
    verdict = pt.judge(prediction, stuck)
    assert verdict.outcome is Outcome.refuted
    assert "without mode 4" in verdict.detail


def test_the_predicted_rate_names_its_factor():
    rate = pt.predict(PROBLEM, PreconditionedDescent("two_sided", "optimal")).rate
    assert f"{((0.2 - 0.02) / (0.2 + 0.02)) ** 2:.6g}" in rate
    assert "0.998834" in rate
    assert "gauge" in pt.predict(PROBLEM, PreconditionedDescent("euclidean")).rate
    assert "t^-2" in pt.predict(prescribed_spectrum(4, (0.05, 0.0)), PreconditionedDescent()).rate
    assert "exponentially" in pt.predict(prescribed_spectrum(2, (0.05, 0.03, 0.01)), PreconditionedDescent()).rate


def test_failed_assumptions_are_raised_with_slack_and_offender_or_only_reported():
    assert all(one.holds for one in check_assumptions(PROBLEM))
    bad = prescribed_spectrum(2, (0.6, 0.1, 0.1))
    with pytest.raises(AssumptionError) as caught:
        check_assumptions(bad)
    assert len(caught.value.failed) == 2
    assert "m = 2, d = 3" in str(caught.value)
    assert "slack -0.53" in str(caught.value)
    assert [one.holds for one in check_assumptions(bad, strict=False)] == [True, False, False]


def test_what_no_theorem_covers_is_a_conjecture_and_other_optimisers_are_refused():
    prediction = pt.predict(PROBLEM, PreconditionedDescent("two_sided", 1.0, Unregularised()))
    assert prediction.theorem.name.endswith("conjecture")
    assert not prediction.holds
    assert pt.predict(PROBLEM, PreconditionedDescent("euclidean")).theorem.name.endswith("conjecture")
    with pytest.raises(ArgumentError, match="PreconditionedDescent"):
        pt.predict(PROBLEM, pt.gradient_descent(0.1))
    unstable = pt.predict(PROBLEM, PreconditionedDescent("two_sided", 11.0))
    assert [one.name for one in unstable.hypotheses if not one.holds] == ["stable_step"]


def test_the_reference_is_the_manifold_of_minima(rng):
    whitened = balanced_point(PROBLEM) + 0.01 * rng.standard_normal((7, 3))
    reference = pt.predict(PROBLEM, PreconditionedDescent()).reference
    found = nearest_minimum(reference.problem, whitened, TwoSided())
    assert np.abs(found.whitened - balanced_point(PROBLEM, found.rotation)).max() < 1e-12
    assert isinstance(reference.problem, AttentionRegression)


def test_runs_on_samples_are_judged_at_their_last_layer():
    sample = draw_sample(PROBLEM, 400, np.random.default_rng(0))
    prediction = pt.predict(PROBLEM, PreconditionedDescent())
    run = train_attention(FullSample(sample), PreconditionedDescent(), spectral_layer(sample.estimated), steps=2)
    verdict = pt.judge(prediction, run)  # without a truth of its own
    assert verdict.outcome is Outcome.undecided
    assert verdict.measured == pytest.approx(float(PROBLEM.excess(run.at())), rel=1e-12)
    assert "floor" in verdict.detail
    exact = train_attention(Population(PROBLEM), PreconditionedDescent(), spectral_layer(PROBLEM), steps=2)
    assert pt.judge(prediction, exact).outcome is Outcome.confirmed
    basis, sizes = eigenbasis(PROBLEM), np.asarray(PROBLEM.sizes)
    saddle = PROBLEM.unwhiten(jnp.asarray(basis.plus * np.sqrt(2 * sizes) * [1.0, 1.0, 0.0]))
    stuck = train_attention(Population(PROBLEM), PreconditionedDescent(), saddle, steps=2)
    assert pt.judge(prediction, stuck).outcome is Outcome.refuted
    with pytest.raises(ArgumentError, match="value"):
        pt.judge(pt.predict(prescribed_spectrum(5, (0.05, 0.03, 0.01)), PreconditionedDescent()), run)
