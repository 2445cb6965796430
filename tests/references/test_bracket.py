"""Certificates: valid for any primal and any dual, whoever made them."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import penchant as pt
from penchant.norms import L1, Linf
from penchant.references.bracket import bracket
from penchant.references.euclidean_margin import max_margin
from penchant.references.linear_programs import polyhedral_margin
from penchant.settings.generators import random_tokens, separable, signal_tokens

DATA = {"separable": separable(12, 3), "tokens": random_tokens(3, 4, 5, 0), "signal": signal_tokens(4, 3, 8)}
OPTIMA = {name: max_margin(data).bracket for name, data in DATA.items()}


@pytest.mark.parametrize("name", DATA)
@hypothesis_settings(max_examples=60)
@given(seed=st.integers(0, 10**9), near=st.floats(0, 1))
def test_bracket_of_any_points_contains_the_optimum(name, seed, near):
    data, rng = DATA[name], np.random.default_rng(seed)
    best = max_margin(data)
    primal = near * best.weight + (1 - near) * rng.standard_normal(best.weight.shape)
    dual = near * best.dual / best.dual.max() + (1 - near) * rng.standard_normal(best.dual.shape)
    found = bracket(data, primal, dual)
    assert found.lower <= OPTIMA[name].upper
    assert found.upper >= OPTIMA[name].lower


@pytest.mark.parametrize("norm", [L1(), Linf()], ids=lambda norm: norm.name)
@hypothesis_settings(max_examples=50)
@given(seed=st.integers(0, 10**9))
def test_bracket_contains_the_optimum_in_polyhedral_norms(norm, seed):
    data, rng = DATA["separable"], np.random.default_rng(seed)
    best = polyhedral_margin(data, norm)
    found = bracket(data, best.weight + 0.1 * rng.standard_normal(3), rng.random(12), norm)
    assert found.lower <= best.value * (1 + 1e-9) <= found.upper * (1 + 2e-9)  # HiGHS solves to about 1e-9


@pytest.mark.parametrize("norm", [L1(), Linf()], ids=lambda norm: norm.name)
@pytest.mark.parametrize("name", ["separable", "tokens"])
def test_polyhedral_solutions_are_certified(name, norm):
    found = polyhedral_margin(DATA[name], norm)
    assert found.bracket.gap == pytest.approx(0, abs=1e-8)  # HiGHS feasibility 1e-7 in the worst case, 1e-9 seen
    assert found.bracket.infeasibility <= 1e-8
    assert found.bracket.negativity == 0


@pytest.mark.parametrize(
    "optimiser",
    [pt.gradient_descent(0.5), pt.normalised_descent(0.1), pt.momentum(0.1), pt.polyak(2.0), pt.Accelerated(0.05)],
    ids=["gd", "ngd", "momentum", "polyak", "accelerated"],
)
@pytest.mark.parametrize("name", ["separable", "tokens"])
def test_a_run_certifies_itself_and_the_bracket_narrows(name, optimiser):
    data = DATA[name]
    run = pt.train(
        pt.Setting(data, pt.Direct(), pt.Exponential()), optimiser, steps=3000, recorder=pt.training.At((30, 300, 3000))
    )
    found = [bracket(data, run.weight(k), run.dual[k]) for k in (1, 2, 3)]
    for one in found:
        assert one.lower <= OPTIMA[name].upper
        assert one.upper >= OPTIMA[name].lower
    assert found[0].gap > found[1].gap > found[2].gap > 0


def test_dual_of_a_run_reproduces_its_weights_exactly():
    for data in (DATA["separable"], DATA["tokens"]):
        run = pt.train(pt.Setting(data, pt.Direct(), pt.Exponential()), pt.momentum(0.1), steps=500)
        again = np.asarray(data.adjoint(jnp.asarray(run.dual[-1])))
        assert np.abs(again - run.weight()).max() <= 1e-12 * np.abs(run.weight()).max()  # 500 roundings of each


def test_zero_primal_and_zero_dual_bound_nothing():
    found = bracket(DATA["separable"], np.zeros(3), np.zeros(12))
    assert (found.lower, found.upper) == (0.0, np.inf)
    assert found.gap == np.inf


def test_negative_multipliers_are_reported_and_do_not_count():
    data = DATA["separable"]
    dual = np.ones(12)
    dual[3] = -0.5
    clipped = np.maximum(dual, 0)
    one, other = bracket(data, np.ones(3), dual), bracket(data, np.ones(3), clipped)
    assert one.lower == other.lower
    assert (one.negativity, other.negativity) == (0.5, 0.0)


def test_an_infeasible_primal_has_no_upper_bound_and_shows_its_shortfall():
    found = bracket(pt.Classification([[2.0, 0.0], [0.0, 1.0]], [1, 1]), [1.0, -0.25], [1.0, 1.0])
    assert found.upper == np.inf
    assert found.infeasibility == 1.25


def test_a_dual_that_combines_features_to_zero_leaves_no_weight_but_one_beyond_rounding():
    found = bracket(pt.Classification([[1.0], [-1.0]], [1, 1]), [1.0], [1.0, 1.0])
    assert (1e15 < found.lower < np.inf, found.upper) == (True, np.inf)
