"""The counts of runs that end globally, the critical score gap, and the long series of the joint rule."""

import numpy as np
import pytest

import penchant as pt
from penchant.diagnostics.joint import decoder_margins, joint_misalignments
from penchant.papers.self_attention.assumptions import threshold
from penchant.papers.self_attention.figures.phases import Group, group
from penchant.theory.selections import Limit

# (global runs, feasible data sets, local runs on a locally optimal selection) of 16 seeds with random scores, as published.
COUNTS = {3: (7, 15, 7), 4: (14, 16, 2), 6: (15, 16, 1), 12: (16, 16, 0)}


@pytest.mark.slow
@pytest.mark.parametrize("d", COUNTS)
def test_random_scores_have_the_published_counts(d):
    limits = group(d, False, 0.0, range(16)).limits
    kinds = [limit.kind for limit in limits]
    called = sum(limit.kind == "local" and limit.reached.locally_optimal for limit in limits)
    assert (kinds.count("global"), len(limits), called) == COUNTS[d]
    assert "undecided" not in kinds
    assert np.median([limit.misalignment for limit in limits]) < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("d", [4, 6, 12])
def test_equal_scores_are_global_from_four_dimensions_on(d):
    assert [limit.kind for limit in group(d, True, 0.0, range(16)).limits] == ["global"] * 16


@pytest.mark.slow
def test_the_critical_score_gap_of_the_pair():
    low, high = threshold(3)
    assert low <= 0.18021
    assert high >= 0.18008
    assert high - low < 2e-4


@pytest.mark.slow
def test_a_million_steps_of_the_scheduled_rule():
    data = pt.settings.marked_tokens()
    found = pt.theory.joint_references(data)
    decades = tuple(10**k for k in range(2, 7))
    run = pt.train(
        pt.settings.joint_setting(data),
        pt.optimisers.scheduled_descent(0.3),
        steps=decades[-1],
        recorder=pt.training.At(decades),
    )
    at = np.searchsorted(run.steps, decades)
    distance = joint_misalignments(run, found.attention.weight)[at]
    np.testing.assert_allclose(distance, [2.94e-2, 1.21e-2, 6.48e-3, 4.00e-3, 2.72e-3], rtol=3e-3)
    slope = np.diff(run.log_excess[at]) / np.diff(np.cbrt(run.steps[at])) * found.decoder.value / 0.9
    np.testing.assert_allclose(slope, [-1.0094, -1.0017, -1.0003, -1.00004], atol=5.5e-5)
    np.testing.assert_allclose(
        decoder_margins(run)[at] * found.decoder.value, [0.952, 0.984, 0.994, 0.997, 0.999], atol=5.5e-4
    )
    assert np.log(distance[-1] / distance[-3]) / np.log(6 / 4) == pytest.approx(-2.14, abs=0.006)


def ended(kinds, shift):
    nan = float("nan")
    limits = tuple(Limit(kind, (0,), None, nan, nan, nan, nan) for kind in kinds)
    return Group(12, False, shift, limits)


def test_a_group_without_data_sets_has_no_share():
    assert ended(["global", "local", "undecided", "global"], 0.0).share() == 0.5
    assert np.isnan(ended([], 2.0).share())


def test_the_row_of_a_group_accounts_for_every_run():
    row = ended(["global", "local", "undecided", "undecided"], 1.0).row()
    assert row[3] == "1/4"
    assert (row[4], row[6]) == (1, 2)
