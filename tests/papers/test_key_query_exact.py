"""The exact identities of the key-query flows at the digits that rounding leaves."""

import numpy as np
import pytest

import penchant as pt
from penchant.norms import L1, L2
from penchant.papers import new_lab
from penchant.papers.key_query.evidence import diagonal_run, direct_run
from penchant.papers.key_query.hypotheses import moved
from penchant.theory.judge import brackets

LAB = new_lab()


def test_the_gap_of_gathered_multipliers_decomposes_to_rounding():
    run, _ = diagonal_run(LAB)
    features = np.asarray(run.setting.data.features())
    for record in range(1, len(run)):
        weight, phi, margins = run.weight(record), 2 * run.dual[record], run.margins[record]
        pull, margin = phi @ features, margins.min()
        assert phi @ margins == pytest.approx(weight @ pull, rel=1e-15)
        top = np.abs(pull).max()
        gap = (np.abs(weight).sum() - weight @ pull / top + phi @ (margins - margin) / top) / margin
        found = brackets(run, L1(), record)["accumulated"]
        assert found.gap - found.rounding == pytest.approx(gap * top / phi.sum(), abs=2e-15)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_ratio_of_the_bounds_of_direct_training_is_a_mean_margin(seed):
    run, _ = direct_run(LAB, seed)
    found = [brackets(run, L2(), record)["accumulated"] for record in range(1, len(run))]
    mean = (run.dual * run.margins).sum(axis=1)[1:] / run.dual.sum(axis=1)[1:]
    ratio = np.array([1 + one.gap - one.rounding for one in found])
    assert np.abs(ratio / (mean / run.margins.min(axis=1)[1:]) - 1).max() <= 1e-15


def test_a_verdict_says_how_far_the_direction_has_moved_since_a_smaller_margin():
    run, _ = diagonal_run(LAB)
    now, then = run.weight() / run.smallest_margin()[-1], run.weight(-2) / run.smallest_margin()[-2]
    wanted = np.linalg.norm(now - then) / np.linalg.norm(now)
    assert moved(run) == f"W / margin has moved by {wanted:.2g} of its length since margin 1e+05"
    assert wanted < 0.01
    assert moved(run) in pt.judge(pt.predict(run.setting, pt.GradientFlow()), run).detail
