"""Which margins enter the systems of a step, and that what is left out is not heard."""

import equinox as eqx
import jax
import numpy as np
import pytest

import penchant as pt
from penchant.flow import spaces
from penchant.flow.spaces import _blocks, _by_products, active, linearised, loads
from penchant.problem import read
from penchant.settings.factored import Hadamard, PlusMinus
from penchant.settings.generators import random_tokens, separable


def test_margins_that_cannot_be_heard_are_left_out_and_come_back_for_longer_steps():
    steep, even = np.exp(-np.arange(300.0)), np.ones(300)
    assert active(steep, steep, 1.0).tolist() == list(range(64))
    assert len(active(steep, steep, 1e20)) == 256
    assert len(active(even, even, 1.0)) == 300
    heavy = np.where(np.arange(2000) % 2 == 0, 1e-3, 1e-20)
    assert len(active(heavy, heavy, 1.0)) == 1024
    assert len(active(heavy, heavy, 1e4)) == 2000  # what is left out adds up


def test_a_margin_with_most_of_the_weight_is_never_left_out():
    light = np.where(np.arange(300) < 64, 1.0, 1e-30)
    assert len(active(light, light, 1.0)) == 64
    assert len(active(light, np.where(light < 1, 1.0, 1e-3), 1.0)) == 300


def _settings(seed):
    rng = np.random.default_rng(seed)
    inputs = rng.standard_normal((12, 5)) * np.exp(rng.standard_normal((12, 1)))
    yield pt.Setting(pt.Classification(inputs, np.where(rng.random(12) < 0.5, 1, -1)), pt.Direct(), pt.Logistic())
    yield pt.Setting(random_tokens(4, 4, 3, seed, equal_scores=True), pt.Direct(), pt.Logistic())


@pytest.mark.parametrize("seed", range(10))
def test_what_is_left_out_of_a_system_is_at_most_the_sum_of_its_loads(seed, monkeypatch):
    """As matrices over all parameters, P J' H J with all margins and with some, after multiples of the weights are removed from H."""
    monkeypatch.setattr(spaces, "FEW", 1)
    for setting in _settings(seed):
        params = setting.start(seed, 3.0)
        reading = read(setting, params)
        jacobian = np.asarray(jax.jacobian(setting.margins)(params)).reshape(len(reading.margins), -1)
        curvature = np.asarray(jax.scipy.linalg.block_diag(*_blocks(setting, reading)))
        weights, bounds = np.asarray(reading.weights), np.asarray(loads(setting, params)[0])
        bounds = bounds * np.exp(float(reading.log_slope_norm))
        unit = jacobian.T @ weights / np.linalg.norm(jacobian.T @ weights)
        off = np.eye(len(unit)) - np.outer(unit, unit)

        def system(rows, j=jacobian, h=curvature, w=weights, off=off):
            h, w, j = h[np.ix_(rows, rows)], w[rows], j[rows]
            return off @ j.T @ (h - np.outer(w, w @ h / (w @ w))) @ j

        whole, order = system(np.arange(len(weights))), np.argsort(bounds)
        for left in range(1, len(weights)):
            rows = np.sort(order[left:])
            if np.sum(weights[rows] ** 2) >= np.sum(weights**2) / 2:
                change = np.linalg.norm(whole - system(rows), 2)
                assert change <= np.sum(bounds[order[:left]]) + 1e-14 * np.linalg.norm(whole)


@pytest.mark.parametrize(
    "parametrisation",
    [pt.Direct(), pt.DeepLinear((3,)), Hadamard(), PlusMinus(), pt.SignedSquares(0.3)],
    ids=str,
)
def test_the_gram_matrix_of_some_margins_is_that_part_of_the_whole(parametrisation):
    inputs = np.random.default_rng(2).uniform(-0.5, 0.5, (9, 4))
    data, rows = pt.Classification(inputs, np.ones(9, int)), np.array([1, 5, 6])
    params = pt.Setting(data, parametrisation, pt.Logistic()).start(1)
    whole, part = (np.asarray(parametrisation.gram(params, some)) for some in (data, data.rows(rows)))
    assert parametrisation.by_rows
    np.testing.assert_allclose(part, whole[np.ix_(rows, rows)], rtol=1e-13, atol=1e-13 * np.abs(whole).max())


def _flow(setting, start):
    """Where margins are landed on; between, a rounding of the error decides on the last digits of a step's length, along the same path."""
    levels = pt.flow.Levels("margin", [1.0, 100.0])
    run = pt.train(setting, pt.GradientFlow(), start, until=pt.MarginAbove(1e3), recorder=levels)
    return [*(np.asarray(leaf)[1:] for leaf in jax.tree.leaves(run.params)), run.log_time[1:], run.dual, run.margins]


@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 10), marks=pytest.mark.slow)])
def test_flows_in_smaller_spaces_are_those_with_all_margins(seeds, monkeypatch):
    """Ten drawn settings; differences of rounding."""
    for seed in seeds:
        setting = pt.Setting(separable(220, 6, seed=seed), pt.Direct(), pt.Logistic())
        start = setting.start(seed, 0.1)
        found = _flow(setting, start)
        with monkeypatch.context() as patch:
            patch.setattr(spaces, "FEW", 10**9)
            wanted = _flow(setting, start)
        worst = max(np.abs(a - b).max() / np.abs(b).max() for a, b in zip(found, wanted, strict=True))
        assert worst <= 1e-10  # 2e-14 on all ten


@pytest.mark.parametrize("seed", range(2))
def test_conjugate_gradients_solve_the_system_of_all_margins(seed):
    """With the exponential loss, whose H is diagonal; from steps without stiffness to one over which the first margins would move by a million."""
    setting = pt.Setting(separable(30, 40, seed=seed), pt.Direct(), pt.Exponential())
    params, tangent = setting.start(seed, 1.0), setting.start(seed + 100, 1.0)

    @eqx.filter_jit
    def solved(params, tangent, h):
        reading, one = read(setting, params), jax.numpy.ones(())
        whole, _ = linearised(setting, params, reading, one, None)
        return _by_products(setting, params, reading, one)(h)(tangent), whole(h)(tangent)

    for h in (1e-3, 1.0, 1e3, 1e6):
        for found, wanted in zip(*solved(params, tangent, jax.numpy.asarray(h)), strict=True):
            assert np.linalg.norm(found - wanted) <= 1e-6 * np.linalg.norm(wanted)


def test_flows_without_a_matrix_go_the_way_of_those_with_one(monkeypatch):
    setting = pt.Setting(random_tokens(12, 8, 10, 0, equal_scores=True), pt.Direct(), pt.Logistic())
    start = setting.start(0, 0.1)
    wanted = _flow(setting, start)
    monkeypatch.setattr(spaces, "FEW", 1)
    monkeypatch.setattr(spaces, "_SIZES", (1,))
    assert not spaces.Spaces(setting, 84).at(start, 0, 1.0).rows.size
    found = _flow(setting, start)
    assert max(np.abs(a - b).max() / np.abs(b).max() for a, b in zip(found, wanted, strict=True)) <= 1e-4
