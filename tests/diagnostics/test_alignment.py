"""Alignment diagnostics against many digits, and a flow against the published reference points."""

import mpmath
import numpy as np
import pytest

import penchant as pt
from penchant.diagnostics.alignment import alignment, alignments, conservation_drift, sandwich, sine
from penchant.settings.deep_linear import DeepLinear, ensure_assumption2, imbalance_constant
from penchant.settings.generators import strips


def test_small_deficits_and_excesses_keep_their_digits(rng):
    u, v = (vector / np.linalg.norm(vector) for vector in rng.standard_normal((2, 4)))
    matrix = 1e3 * np.outer(u, v) + 1e-6 * rng.standard_normal((4, 4))
    found = alignment([matrix, 5.0 * (u + 1e-9 * rng.standard_normal(4))[None]])
    with mpmath.workdps(50):
        values = mpmath.svd_r(mpmath.matrix(matrix.tolist()), compute_uv=False)
        excess = mpmath.fsum(value**2 for value in values[1:])
        deficit = 1 - values[0] / mpmath.sqrt(values[0] ** 2 + excess)
    assert found.excess[0] == pytest.approx(
        float(excess), rel=1e-6
    )  # sigma_2 is 1e-9 of sigma_1: 7 digits are left in it
    assert found.deficit[0] == pytest.approx(float(deficit), rel=1e-6)
    assert found.deficit[0] < 1e-17
    assert 0 < found.misfit[0] < 1e-16


def test_singular_vectors_of_equal_singular_values_are_flagged():
    assert alignment([np.eye(3), np.ones((1, 3))]).defined.tolist() == [False, True]


def test_imbalance_constant_by_hand():
    first, second = np.diag([2.0, 1.0]), np.array([[0.0, 3.0]])
    # squares 5 and 9; imbalance diag(4, 1) - diag(0, 9) has norm 8
    assert imbalance_constant([first, second]) == pytest.approx(9 - 9 + 8)


def test_sine_is_that_of_the_angle():
    assert sine([np.cos(0.3), np.sin(0.3)], [1.0, 0.0]) == pytest.approx(np.sin(0.3), rel=1e-15)


def test_the_flow_passes_the_published_reference_points():
    """Values of an independent LSODA integration at relative tolerance 1e-11."""
    setting = pt.Setting(strips(0), DeepLinear((8, 8, 8)), pt.Logistic())
    start = ensure_assumption2(setting, setting.start(1, 0.4))
    flow = pt.GradientFlow(tolerance=1e-10, margin_tolerance=1e-8)
    points = {
        1.0: (-0.3891241693, (0.04166583, 0.16904017)),
        10.0: (-2.9296873813, (-3.59601843, 13.40224628)),
        100.0: (-7.5295931951, (-10.79037173, 40.71151545)),
        1000.0: (-10.4209451583, (-15.99069155, 59.92198083)),
    }
    assert float(setting.weigh(setting.margins(start)).log_excess) == pytest.approx(-0.3702532220, abs=1e-10)
    times = np.log(list(points))
    run = pt.train(
        setting, flow, start, until=pt.LogTimeAbove(times[-1]), steps=20_000, recorder=pt.flow.Levels("log_time", times)
    )
    for time, (log_risk, weight) in points.items():
        record = int(np.argmin(np.abs(run.log_time - np.log(time))))
        assert run.log_time[record] == pytest.approx(np.log(time), abs=1e-10)
        assert run.log_excess[record] == pytest.approx(log_risk, abs=2e-8)
        np.testing.assert_allclose(run.weight(record), weight, rtol=1e-7, atol=2e-8)
    assert conservation_drift(run).max() < 1e-8
    np.testing.assert_allclose(alignments(run).frobenius[-1], [2.754644, 3.848727, 3.978397, 2.672468], atol=1e-6)
    lower, upper = sandwich(run)
    assert lower.max() <= 0.13045543527 <= upper.min()


def test_the_slack_of_the_bounds_counts_the_traces_of_all_layers_above_but_the_last():
    setting = pt.Setting(strips(0), DeepLinear((4, 4)), pt.Logistic())
    start = ensure_assumption2(setting, setting.start(1, 0.4))
    run = pt.train(
        setting,
        pt.optimisers.LayerDescent(pt.optimisers.LineSearch(setting, capped=True)),
        start,
        steps=40,
        recorder=pt.training.At((40,)),
    )
    slack, traces = pt.diagnostics.bound_slack(run), run.account["traces"][-1]
    excesses = [np.sum(np.linalg.svd(np.asarray(layer), compute_uv=False)[1:] ** 2) for layer in run.at()]
    gained = [traces[0] + traces[1], traces[1], 0.0]
    wanted = min(imbalance_constant(start) + extra - excess for extra, excess in zip(gained, excesses, strict=True))
    assert slack.excess[-1] == pytest.approx(wanted, rel=1e-12)
    fits = alignment(run.at()).misfit
    floor = pt.diagnostics.alignment_floor(run.at(), start, traces)
    assert slack.alignment[-1] == pytest.approx(np.min((1 - fits) ** 2 - floor), rel=1e-12)
    assert (slack.excess > 0).all()
    assert (slack.alignment > 0).all()
