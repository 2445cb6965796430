"""Step rules of preconditioned descent: their numbers, and that each one does what its docstring says."""

import jax.numpy as jnp
import numpy as np
import pytest

from penchant.errors import ArgumentError
from penchant.optimisers.base import Adam
from penchant.papers.attention_regression.setting.geometry import (
    GEOMETRIES,
    Euclidean,
    Left,
    TwoSided,
    balanced_point,
    hessian,
)
from penchant.papers.attention_regression.setting.problem import AttentionRegression, Unregularised
from penchant.papers.attention_regression.setting.sample import prescribed_spectrum
from penchant.papers.attention_regression.training.rules import LayerRule, PreconditionedDescent, step_warning
from penchant.papers.attention_regression.training.steps import safe_step, step_of

PROBLEM = prescribed_spectrum(4, (0.05, 0.03, 0.01), 5.0, 11)
# The same sizes with a covariance of norm 3 and of norm 1/3: what a geometry stretches is not 1.
LARGE = AttentionRegression(3 * PROBLEM.covariance, PROBLEM.planted / np.sqrt(3))
SMALL = AttentionRegression(PROBLEM.covariance / 3, PROBLEM.planted * np.sqrt(3))


def linearised(problem, geometry, whitened):
    """The matrix of the linearised step, by applying the geometry to columns of the Hessian."""
    size = whitened.size
    columns = hessian(problem, whitened).T.reshape(size, *whitened.shape)
    direct = lambda one: geometry.precondition(problem.by_layer(jnp.asarray(one)), problem.covariance)
    moved = [problem.whiten(direct(one)) for one in columns]
    return np.stack([np.asarray(one).ravel() for one in moved], axis=1)


@pytest.mark.parametrize("geometry", GEOMETRIES.values(), ids=GEOMETRIES)
def test_no_other_constant_step_contracts_faster_than_the_optimal_one(geometry):
    values = np.linalg.eigvals(linearised(PROBLEM, geometry, balanced_point(PROBLEM))).real
    values = np.sort(values)[3:]  # without the three gauge directions
    factor = lambda step: np.abs(1 - step * values).max()
    best = step_of("optimal").constant(PROBLEM, geometry)
    assert factor(best) < 1
    assert all(factor(best) <= factor(best * share) for share in (0.9, 0.99, 1.01, 1.1))


@pytest.mark.parametrize("problem", [PROBLEM, LARGE, SMALL], ids=["1", "3", "1/3"])
@pytest.mark.parametrize("geometry", GEOMETRIES.values(), ids=GEOMETRIES)
def test_the_safe_step_is_below_the_inverse_curvature_everywhere(geometry, problem, rng):
    for size in (0.01, 0.3, 3.0):
        whitened = size * rng.standard_normal((7, 3))
        values = np.abs(np.linalg.eigvals(linearised(problem, geometry, whitened)))
        assert safe_step(problem, geometry, jnp.asarray(whitened)) * values.max() <= 1
    at_minimum = np.abs(np.linalg.eigvals(linearised(problem, geometry, balanced_point(problem)))).max()
    assert step_of("default").constant(problem, geometry) * at_minimum <= 1 + 1e-12


def test_numbers_of_the_rules():
    resolve = lambda step, geometry: step_of(step).resolve(PROBLEM, geometry)
    point = jnp.asarray(balanced_point(PROBLEM))
    assert float(resolve("default", TwoSided()).size(point)) == pytest.approx(5.0)
    assert float(resolve("optimal", TwoSided()).size(point)) == pytest.approx(2 / 0.22)
    assert float(resolve("theory", TwoSided()).size(point)) == pytest.approx(0.01 / 0.292852814**2)
    assert float(resolve("adaptive", TwoSided()).size(point)) == pytest.approx(1 / 0.4)  # |W|^2 = 2 s_1 there
    assert float(resolve(0.1, Euclidean()).size(point)) == 0.1
    default = step_of("default")
    assert [default.constant(LARGE, one) for one in (TwoSided(), Left(), Euclidean())] == pytest.approx(
        [5, 5 / 3, 5 / 9]
    )
    assert [default.constant(SMALL, one) for one in (TwoSided(), Left(), Euclidean())] == pytest.approx([5, 15, 15])


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: step_of(0.0), "step"),
        (lambda: PreconditionedDescent(step=-0.1), "step"),
        (lambda: PreconditionedDescent(step="fast"), "step"),
        (lambda: PreconditionedDescent("right"), "geometry"),
        (lambda: PreconditionedDescent(logit_limit=0.0), "logit_limit"),
        (lambda: step_of("theory").resolve(PROBLEM, Euclidean()), "geometry"),
    ],
)
def test_bad_input_is_named(call, argument):
    with pytest.raises(ArgumentError) as caught:
        call()
    assert caught.value.argument == argument


def test_steps_above_the_stability_limit_are_named_for_plain_descent_too():
    plain = lambda step: PreconditionedDescent("euclidean", step, Unregularised())
    limit = 1 / (2 * float(PROBLEM.sizes[0]) * float(Euclidean().stretch(PROBLEM.spread[-1])))
    assert f"limit {limit:.3g}" in step_warning(PROBLEM, plain(1.01 * limit))
    assert step_warning(PROBLEM, plain(0.99 * limit)) == ""
    assert step_warning(PROBLEM, LayerRule(Adam(100.0, eps=1e-8))) == ""
    assert step_warning(PROBLEM, PreconditionedDescent(step="adaptive")) == ""
