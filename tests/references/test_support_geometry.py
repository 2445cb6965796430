"""Support geometry against brute force and the published numbers."""

import numpy as np
import pytest
from scipy.optimize import minimize

import penchant as pt
from penchant.references.support_geometry import hull_radius, support_geometry
from penchant.settings.generators import blobs, strips, teacher


def found(data):
    return support_geometry(data, pt.references.max_margin(data))


def test_the_strips_have_the_published_geometry():
    one = found(strips(0))
    assert one.margin == pytest.approx(0.13045543527, rel=1e-10)
    assert one.support.tolist() == [12, 38]
    np.testing.assert_allclose(one.shares, [0.54869997, 0.45130003], atol=1e-8)
    assert one.entropy == pytest.approx(0.68839628, abs=1e-8)
    assert one.radius == pytest.approx(0.68422454, abs=1e-8)
    assert one.offset @ [-one.direction[1], one.direction[0]] == pytest.approx(0.12889451, abs=1e-8)
    assert one.thresholds(40)["exponential"] == pytest.approx(6.8528, abs=1e-4)
    assert one.thresholds(40)["logistic"] == pytest.approx(43.0127, abs=1e-4)


@pytest.mark.parametrize("count", [3, 5])
def test_the_hull_radius_in_three_dimensions_is_that_of_a_search_over_all_directions(count, rng):
    unit = np.array([0.0, 0.0, 1.0])
    angles = np.linspace(0, 2 * np.pi, count, endpoint=False) + 0.3 * rng.uniform(size=count)
    points = np.column_stack([np.cos(angles), np.sin(angles), np.ones(count)]) * rng.uniform(0.8, 1.2, (count, 1))
    around = np.linspace(0, 2 * np.pi, 200_001)
    search = (points[:, :2] @ np.stack([np.cos(around), np.sin(around)])).max(axis=0).min()
    assert hull_radius(points, unit) == pytest.approx(
        search, rel=1e-4
    )  # the search overshoots by its spacing times a slope


def test_too_few_support_vectors_have_no_radius_and_do_not_span():
    one = found(blobs(50, 10, 3))
    assert len(one.support) == 6
    assert one.margin == pytest.approx(0.31175583, abs=1e-8)
    assert one.entropy == pytest.approx(1.45321679, abs=1e-8)
    assert (one.radius, one.spans, one.outside().shape) == (0.0, False, (4, 10))
    assert np.abs(one.outside() @ one.points.T).max() < 1e-14


@pytest.mark.parametrize("seed", range(4))
def test_the_offset_minimises_the_exponential_sum_on_the_support(seed):
    one = found(teacher(30, 4, seed))
    across = one.points - np.outer(one.points @ one.direction, one.direction)
    free = minimize(lambda v: np.log(np.exp(-across @ v).sum()) + 1e-9 * v @ v, np.zeros(4), tol=1e-14)
    np.testing.assert_allclose(across @ one.offset, across @ free.x, atol=2e-4 * np.abs(across @ free.x).max())
    assert one.offset @ one.direction == pytest.approx(0.0, abs=1e-9 * np.linalg.norm(one.offset))


def of(*points):
    return found(pt.Classification(points, np.ones(len(points))))


def test_a_support_vector_without_dual_weight_is_idle_and_has_no_part_in_the_offset():
    pair = of((0.5, 0.0), (0.5, 0.5))
    assert pair.pulling.tolist() == [True, False]
    assert (pair.rank, pair.pulling_rank, pair.spans, pair.radius) == (2, 1, False, 0.0)
    np.testing.assert_allclose(pair.offset, 0.0, atol=1e-14)
    np.testing.assert_allclose(np.abs(pair.outside()), [[0.0, 1.0]], atol=1e-14)
    np.testing.assert_allclose(pair.escape, [0.0, 2.0], atol=1e-14)
    space = of((0.5, 0.5, 0.0), (0.5, -0.5, 0.0), (0.5, 0.0, 0.5))
    assert space.pulling.tolist() == [True, True, False]
    assert (space.radius, space.entropy) == (0.0, pytest.approx(np.log(2)))


def test_support_vectors_that_balance_each_other_pull_although_the_solver_gave_them_no_weight():
    first = ((0.5, 0.5, 0.0), (0.5, -0.5, 0.0))
    both = of(*first, (0.5, 0.0, 0.5), (0.5, 0.0, -0.3))
    assert both.pulling.all()
    assert both.spans
    np.testing.assert_allclose(both.shares @ (both.points - both.margin * both.direction), 0.0, atol=1e-12)
    assert not of(*first, (0.5, 0.0, 0.5), (0.5, 0.1, 0.3)).pulling[2:].any()


def test_equal_points_share_their_weight_and_leave_nothing_across():
    twice = of((0.5, 0.1), (0.5, 0.1), (0.1, 0.5))
    np.testing.assert_allclose(twice.shares, [0.25, 0.25, 0.5], atol=1e-12)
    across = twice.points - np.outer(twice.points @ twice.direction, twice.direction)
    np.testing.assert_allclose(np.exp(-across @ twice.offset - twice.entropy), twice.shares, atol=1e-12)
    for points in (((0.5,), (0.5,)), ((0.5, 0.0), (0.5, 0.0)), ((0.3, 0.4), (0.3, 0.4), (0.3, 0.4))):
        same = of(*points)
        assert same.entropy == pytest.approx(np.log(len(points)))
        np.testing.assert_allclose(same.offset, 0.0, atol=1e-14)
    assert of((0.3, 0.4), (0.3, 0.4)).radius == 0.0


def test_the_shares_have_the_largest_entropy_among_all_dual_solutions(rng):
    one = of((0.5, 0.3, 0.1), (0.5, -0.3, 0.2), (0.5, 0.1, -0.3), (0.5, -0.2, -0.25))
    across = one.points[:, 1:]
    null = np.linalg.svd(np.vstack([across.T, np.ones(4)]))[2][-1]  # the one direction in which dual solutions differ
    entropy = lambda p: -np.sum(p * np.log(p))
    assert entropy(one.shares) == pytest.approx(one.entropy, rel=1e-12)
    assert all(entropy(one.shares + step * null) < one.entropy for step in (-1e-3, 1e-3))
    assert one.spans
    assert one.radius > 0
