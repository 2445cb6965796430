"""Projections on the manifold of minima: certificates, brute force, and the two components."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.spatial.transform import Rotation

from penchant.errors import ArgumentError, PenchantWarning
from penchant.papers.attention_regression.setting import balanced_minima
from penchant.papers.attention_regression.setting.balanced_minima import (
    BalancedMinima,
    Procrustes,
    component_distance,
    descend,
    nearest_minimum,
    polar,
)
from penchant.papers.attention_regression.setting.geometry import Euclidean, Left, TwoSided, balanced_point
from penchant.papers.attention_regression.setting.sample import attention_experiment, prescribed_spectrum
from problems import layer_square

PROBLEM = prescribed_spectrum(4, (0.05, 0.03, 0.01), 5.0, 11)


def perturbed(problem, rng, size):
    d, rows = problem.inputs, problem.outputs + problem.inputs
    rotation = np.linalg.qr(rng.standard_normal((d, d)))[0]
    return balanced_point(problem, rotation) + size * rng.standard_normal((rows, d))


def distance_by_search(problem, whitened, geometry, rng, starts=30):
    """The least distance over rotation vectors, both components, many starts each: an independent solver."""
    stacked, best = balanced_point(problem), np.inf
    weight = np.asarray(problem.inverse_root) if isinstance(geometry, Left) else np.eye(3)
    for mirror in (np.eye(3), np.diag([1.0, 1.0, -1.0])):
        far = lambda v, mirror=mirror: float(
            np.sum(((whitened - stacked @ (Rotation.from_rotvec(v).as_matrix() @ mirror)) @ weight) ** 2)
        )
        found = [minimize(far, rng.standard_normal(3), method="BFGS", options={"gtol": 1e-12}) for _ in range(starts)]
        best = min(best, *(np.sqrt(one.fun) for one in found))
    return best


@pytest.mark.parametrize("geometry", [TwoSided(), Left()], ids=lambda one: one.name)
def test_the_projection_is_the_nearest_minimum(geometry, rng):
    for _ in range(3):
        whitened = perturbed(PROBLEM, rng, 0.03)
        found = nearest_minimum(PROBLEM, whitened, geometry)
        assert found.distance == pytest.approx(distance_by_search(PROBLEM, whitened, geometry, rng), rel=1e-7)
        first, second = (PROBLEM.unwhiten(jnp.asarray(point)) for point in (whitened, found.whitened))
        gap = jax.tree.map(jnp.subtract, first, second)
        assert found.distance == pytest.approx(layer_square(geometry.name, gap, PROBLEM.covariance) ** 0.5, rel=1e-10)
        # four sums of three products are rounded: both factors turned, their product, and the singular values it is held against
        rounding = 4 * 3 * np.finfo(float).eps * np.sum(found.whitened**2)
        assert float(PROBLEM.whitened_excess(jnp.asarray(found.whitened))) < rounding**2


@pytest.mark.parametrize("condition", [1.0, 70.0, 1e4])
def test_certificates(condition, rng):
    problem = prescribed_spectrum(6, (0.05, 0.04, 0.03, 0.02, 0.01), condition, 2)
    for size in (1e-6, 0.03):
        whitened = perturbed(problem, rng, size)
        two_sided, left = (nearest_minimum(problem, whitened, one) for one in (TwoSided(), Left()))
        tolerance = 1e-12 if size > 1e-3 else 1e-8  # a gap of 1e-6 has lost ten digits against the point
        assert two_sided.asymmetry < tolerance
        assert left.asymmetry < tolerance
        overlap = two_sided.whitened.T @ whitened  # positive semidefinite: the answer is the global one
        assert np.linalg.eigvalsh((overlap + overlap.T) / 2).min() > -1e-15
        assert two_sided.distance < two_sided.other


def monotone_distance(problem, whitened, steps):
    """The left distance by R <- polar(c R - C R G + B) alone, from both components: slow, and without a second derivative."""
    stacked, inverse = balanced_point(problem), np.asarray(problem.inverse_root)
    weight, metric = 2 * np.asarray(problem.sizes)[:, None], inverse @ inverse
    distances, pull = [], stacked.T @ whitened @ metric
    for flip in (False, True):
        rotation = polar(stacked.T @ whitened, flip)
        for _ in range(steps):
            rotation = polar(weight[0] * np.linalg.norm(metric, 2) * rotation - weight * rotation @ metric + pull)
        distances.append(np.linalg.norm((whitened - stacked @ rotation) @ inverse))
    return min(distances)


@pytest.mark.parametrize("seed", [26, 53])
def test_the_left_projection_settles_far_from_the_minima(seed):
    found = attention_experiment(seed=seed, n=20)
    whitened = np.asarray(found.problem.whiten(found.start))
    nearest = nearest_minimum(found.problem, whitened, Left())
    assert nearest.asymmetry < 1e-10
    assert nearest.distance <= monotone_distance(found.problem, whitened, 2000) * (1 + 1e-9)


def test_no_search_undercuts_what_is_called_proved(rng):
    """Far away the nearest two-sided rotation may lead to local minima, which are not."""
    problem, draw = prescribed_spectrum(4, (0.05, 0.03, 0.01), 50.0, 3), np.random.default_rng(0)
    points = [perturbed(problem, draw, size) for size in (0.05, 0.3, 1.0)]
    found = [nearest_minimum(problem, whitened, Left()) for whitened in points]
    assert [one.proved for one in found] == [True, False, True]
    for one, whitened in zip(found, points, strict=True):
        assert one.asymmetry < 1e-8
        least = distance_by_search(problem, whitened, Left(), rng, 12)
        assert not one.proved or one.distance <= least * (1 + 1e-9)


def test_only_the_nearest_rotation_is_proved(rng):
    problem = prescribed_spectrum(4, (0.05, 0.03, 0.01), 5.0, 11)
    whitened = perturbed(problem, rng, 0.03)
    dual = Procrustes(whitened, balanced_point(problem), np.asarray(problem.inverse_root))
    nearest = nearest_minimum(problem, whitened, Left())
    assert nearest.proved
    assert dual.slope(nearest.rotation) < 1e-14
    other = descend(dual, polar(nearest.rotation, flip=True))  # stationary as well, on the other component
    assert dual.slope(other) < 1e-14
    assert dual.proof(other) < -1e-4


def test_an_iteration_that_has_not_settled_says_so(rng, monkeypatch):
    monkeypatch.setattr(balanced_minima, "_NEWTON", 1)
    with pytest.warns(PenchantWarning, match="has not settled"):
        nearest_minimum(PROBLEM, perturbed(PROBLEM, rng, 0.3), Left())


def test_a_point_of_the_manifold_is_its_own_projection(rng):
    rotation = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    point = balanced_point(PROBLEM, rotation)
    for geometry in (TwoSided(), Left()):
        found = nearest_minimum(PROBLEM, point, geometry)
        assert found.distance < 1e-14
        assert found.component == round(np.linalg.det(rotation))
        assert np.abs(found.rotation - rotation).max() < 1e-12


def test_the_components_are_apart_by_their_weakest_mode(rng):
    """sqrt(8 s_d) is attained by a reflection and never undercut."""
    plus = balanced_point(PROBLEM)
    reflected = balanced_point(PROBLEM, np.diag([1.0, 1.0, -1.0]))
    assert np.linalg.norm(plus - reflected) == pytest.approx(component_distance(PROBLEM), rel=1e-12)
    distances = []
    for _ in range(200):
        found = nearest_minimum(PROBLEM, perturbed(PROBLEM, rng, 0.0), TwoSided())
        distances.append(found.other)
    assert min(distances) >= component_distance(PROBLEM) * (1 - 1e-12)


def test_wide_maps_have_one_component(rng):
    problem = prescribed_spectrum(2, (0.05, 0.03, 0.01), 5.0, 1)
    whitened = balanced_point(problem) + 0.01 * rng.standard_normal((5, 3))
    for geometry in (TwoSided(), Left()):
        found = nearest_minimum(problem, whitened, geometry)
        assert found.component == 0
        assert np.isinf(found.other)
        assert np.abs(found.rotation @ found.rotation.T - np.eye(2)).max() < 1e-12
        tried = [balanced_point(problem, np.linalg.qr(rng.standard_normal((3, 2)))[0].T) for _ in range(300)]
        scale = np.asarray(problem.inverse_root) if isinstance(geometry, Left) else np.eye(3)
        assert found.distance <= min(np.linalg.norm((whitened - one) @ scale) for one in tried)


@pytest.mark.parametrize(
    ("whitened", "geometry", "argument"),
    [
        (np.ones((3, 3)), TwoSided(), "whitened"),
        (np.full((7, 3), np.nan), Left(), "whitened"),
        (np.ones((7, 3)), Euclidean(), "geometry"),
    ],
)
def test_bad_input_is_named(whitened, geometry, argument):
    with pytest.raises(ArgumentError) as caught:
        nearest_minimum(PROBLEM, whitened, geometry)
    assert caught.value.argument == argument


def test_minima_are_connected_where_the_map_has_a_kernel():
    assert BalancedMinima(PROBLEM).components == 2
    assert BalancedMinima(prescribed_spectrum(4, (0.05, 0.02, 0.0))).components == 1
