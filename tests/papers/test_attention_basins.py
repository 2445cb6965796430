"""Basins of the locally optimal selections against a plain loop, and the shares that are read off them."""

import jax.numpy as jnp
import numpy as np
import pytest

import penchant as pt
from penchant.papers import new_lab
from penchant.papers.self_attention.assumptions import Basins, basins
from penchant.papers.self_attention.figures.phases import gap_map
from penchant.papers.self_attention.figures.rates import swing_figure
from penchant.settings.generators import local_pair
from penchant.theory.token_hypotheses import stability_number, unstable_direction
from problems import features


def plain_descent(data, start, length, steps):
    """Normalised descent in the plane of the two features e_1 and e_2 - 2 e_1, exponential loss, and the tokens it ends on."""
    tokens, scores = np.asarray(data.tokens)[:, :, :2], np.asarray(data.scores)
    point = np.array(start)
    for _ in range(steps):
        share = np.exp(tokens @ point)
        share /= share.sum(axis=1, keepdims=True)
        reached = (share * scores).sum(axis=1)
        pull = np.exp(-reached)[:, None] * share * (scores - reached[:, None])
        gradient = np.einsum("nt,ntd->d", pull, tokens)
        point += length * gradient / np.linalg.norm(gradient)
    return tuple(int(token) for token in (tokens @ point).argmax(axis=1))


def test_starts_end_where_a_plain_loop_takes_them():
    data = local_pair(1.0, 0.1)
    found = basins(new_lab(), "pair, gaps 1 and 0.1", 2, 4)
    assert found.selections() == [(1, 0), (1, 1)]
    for ring, starts in zip(found.reached, found.starts, strict=True):
        for tokens, start in zip(ring, starts, strict=True):
            assert tokens == plain_descent(data, start, 0.05, 300)  # before plain float64 loses the gradient


def test_a_disc_weighs_its_rings_by_their_radius():
    ring = ((0,), (0,), (1,), None)
    found = Basins(local_pair(), np.array([1.0, 2.0]), np.zeros((2, 4, 2)), (((0,),) * 4, ring))
    assert found.shares((0,)).tolist() == [1.0, 0.5]
    assert found.volume((0,)) == pytest.approx((1 + 2 * 0.5) / 3)
    assert found.volume((1,)) == pytest.approx(2 * 0.25 / 3)
    assert found.volume(None) == pytest.approx(2 * 0.25 / 3)


@pytest.mark.slow
def test_the_border_of_the_pair_crosses_the_published_threshold():
    """With a first gap of 1 it lies between 0.18008 and 0.18021."""
    figure, table = gap_map(new_lab())
    (row,) = (row for row in table.rows if float(row[0]) == 1.0)
    assert float(row[1]) < 0.18008 < 0.18021 < float(row[3])
    assert {line.label for line in figure.lines} == {"global", "local"}


def test_the_unstable_direction_is_a_unit_vector_across_the_limit():
    data = pt.settings.signal_tokens(4, 3, 12, 1.0, 0.3, seed=1)
    best = pt.references.max_margin(data)
    numbers = unstable_direction(data, best)
    direction = numbers @ features(data)
    assert np.linalg.norm(direction) == pytest.approx(1.0, rel=1e-12)
    assert abs(direction @ best.weight.ravel()) < 1e-12
    shares = best.dual / best.dual.sum()
    curvature = shares @ (features(data) @ direction) ** 2  # of log sum of shares e^-margin, along it
    assert curvature * best.value**2 == pytest.approx(stability_number(data, best), rel=1e-12)
    weight = jnp.asarray(np.random.default_rng(0).standard_normal(data.weight_shape))
    assert numbers @ np.asarray(data.margins(weight)) == pytest.approx(direction @ np.asarray(weight).ravel())


@pytest.mark.slow
def test_one_point_below_the_limit_and_two_beyond():
    line = swing_figure(new_lab()).lines[0]
    for ratio, count in ((1.6, 1), (1.9, 1), (2.4, 2), (3.0, 2)):
        found = line.y[np.abs(line.x - ratio) < 1e-9]
        assert len(found) == 16
        assert len(np.unique(found.round(6))) == count
