"""The sharp constant and the part of W outside the span of the support features, against plain linear algebra."""

import numpy as np
import pytest

import penchant as pt
from penchant.papers.self_attention.evidence import sharp_constant
from problems import features
from problems import sharp_constant as oracle

PARTIAL = pt.settings.random_tokens(4, 4, 8, 1)
FULL = pt.settings.signal_tokens(4, 3, 40, 1.0, 0.1)


def outside_support(run, reference):
    """Squared length of the part of W outside the span of the support features, at every record of a run from zero.

    By the accumulated multipliers of the other pairs and the Schur complement of their Gram matrix: nothing cancels.
    """
    support, gram = reference.support, np.asarray(run.setting.data.gram())
    inner, cross = gram[np.ix_(support, support)], gram[np.ix_(support, ~support)]
    schur = gram[np.ix_(~support, ~support)] - cross.T @ np.linalg.solve(inner, cross)
    others = run.dual[:, ~support]
    return np.einsum("rk,kl,rl->r", others, schur, others)


def test_where_every_pair_supports_nothing_is_outside():
    best = pt.references.max_margin(FULL)
    assert best.support.all()
    setting = pt.Setting(FULL, pt.settings.Gram(FULL), pt.Exponential())
    assert sharp_constant(setting, best) == pytest.approx(oracle(FULL, best.dual), rel=1e-11)
    run = pt.train(setting, pt.normalised_descent(0.1), steps=20)
    assert not outside_support(run, best).any()


def test_what_is_outside_is_the_rest_of_a_projection():
    best = pt.references.max_margin(PARTIAL)
    assert not best.support.all()
    run = pt.train(
        pt.Setting(PARTIAL, pt.settings.Gram(PARTIAL), pt.Exponential()), pt.normalised_descent(0.1), steps=200
    )
    inside = features(PARTIAL)[best.support]
    for record in (5, -1):
        weight = run.weight(record).ravel()
        rest = weight - inside.T @ np.linalg.lstsq(inside.T, weight, rcond=None)[0]
        assert outside_support(run, best)[record] == pytest.approx(rest @ rest, rel=1e-8)


def test_the_constant_with_idle_pairs_is_that_of_the_others_plus_what_the_flow_leaves_outside():
    best = pt.references.max_margin(PARTIAL)
    setting = pt.Setting(PARTIAL, pt.settings.Gram(PARTIAL), pt.Exponential())
    flow = pt.train(setting, pt.GradientFlow(), until=pt.MarginAbove(1e5))
    found = flow.norm[-1] ** 2 * pt.diagnostics.misalignment(flow.weight(), best.weight)
    outside = float(outside_support(flow, best)[-1])
    assert found == pytest.approx(sharp_constant(setting, best, outside), rel=1e-5)
    assert abs(found / sharp_constant(setting, best) - 1) > 1e-2
