"""The key-query studies: what they find, and the tables of the decades against what the runs themselves hold."""

import numpy as np
import pytest

from penchant.papers import PAPERS, new_lab
from penchant.papers.key_query.evidence import diagonal_run, drifting_run
from penchant.papers.key_query.figures.basin import Started, started
from penchant.papers.key_query.figures.basin import _table as _basin_table
from penchant.papers.key_query.figures.decades import Decade, falling
from penchant.papers.key_query.figures.diagonal import _decades_table, residuals
from penchant.papers.key_query.figures.drift import visits
from penchant.papers.key_query.figures.race import _gathered_last
from penchant.papers.key_query.figures.race import _table as _race_table
from penchant.papers.key_query.figures.target import Reached, _table
from penchant.references.polyhedral_margin import diagonal_margin
from penchant.settings.diagonal import DiagonalTokens
from penchant.settings.token_generators import equal_score_tokens
from penchant.theory.certificate_mix import Race
from penchant.verdict import Outcome

LAB = new_lab()

OURS = [study for paper in PAPERS if paper.name == "key_query" for study in paper.studies]
QUICK = [study for study in OURS if study.name == "key-query-aligned"]


def check(study):
    result = study.run(new_lab())
    assert all(finding.verdict.outcome is Outcome.confirmed for finding in result.findings), result.findings
    for figure in result.figures:
        for line in figure.lines:
            assert len(line.x) == len(line.y) > 1
            assert np.isfinite(line.y).all()
            assert (
                np.diff(line.x) >= -1e-6
            ).all()  # on a plateau log t stands still to the 1e-7 that a step is integrated to
    for table in result.tables:
        assert all(len(row) == len(table.columns) for row in table.rows)
    assert all("upper" in (run.account or {}) for run in result.runs.values())


@pytest.mark.slow
@pytest.mark.parametrize("study", QUICK, ids=lambda study: study.name)
def test_the_quick_study_confirms_its_findings(study):
    check(study)


@pytest.mark.slow
@pytest.mark.parametrize("study", [study for study in OURS if study not in QUICK], ids=lambda study: study.name)
def test_every_study_confirms_its_findings(study):
    check(study)


def test_the_conditions_of_the_paper_are_met_ever_better_but_only_slowly():
    run, reference = diagonal_run(LAB)
    found = [residuals(run, k, reference) for k in range(1, len(run))]
    assert found[0].stationarity > found[-1].stationarity > 0.3  # closes like 1/log margin
    assert found[0].off_support > found[-1].off_support
    assert found[-1].tight == int(reference.support.sum())
    exact = diagonal_margin(DiagonalTokens(equal_score_tokens(4, 4, 12, 5)))
    features = np.asarray(run.setting.data.features())
    weight = run.weight() / run.smallest_margin()[-1]
    off = np.abs(exact.weight) <= 1e-9
    assert found[-1].off_support == pytest.approx(np.linalg.norm(weight[off]), rel=1e-12)
    assert found[-1].tight == int(((features @ weight) < 1 + 1e-3).sum())


def test_distances_of_the_decades_are_between_points_at_margin_1():
    run, reference = diagonal_run(LAB)
    table = _decades_table(run, [2], reference)  # margin 1e3
    row = dict(zip(table.columns, table.rows[0], strict=True))
    wanted = np.linalg.norm(run.weight(2) / 1e3 - reference.weight) / np.linalg.norm(reference.weight)
    assert float(row["distance to l1"]) == pytest.approx(wanted, rel=3e-3)
    assert (row["distance to l1"], row["distance to finite margin"]) == ("3.08e-02", "2.31e-02")


def test_a_target_that_is_missed_is_called_so_with_the_margin_to_expect_it_at():
    slow, fast = Reached(0, 2e-3, 1e-3, 1e-3), Reached(1, 5e-5, 1e-5, float("nan"))
    table = _table([slow, fast])
    assert [row[4] for row in table.rows] == ["missed", "met"]
    assert "met on 1 of 2" in table.caption
    # 1e-3 falls by 2 per decade: another factor of 10 takes log(10)/log(2) decades.
    assert slow.expected == pytest.approx(1e8 * 10 ** (1 / np.log10(2)), rel=1e-12)
    assert [row[2] for row in table.rows] == ["1.000e-03", "-"]


def test_the_drifting_run_keeps_its_unfinished_set_of_tight_margins():
    (only,) = visits(drifting_run(LAB))
    assert len(only.tight) == 7  # of the 9 that are tight at the solution
    assert only.dwell == pytest.approx(np.log(10), rel=1e-6)
    assert only.fastest == pytest.approx(1.1, abs=0.02)  # above 1: a coordinate still gains on the others
    assert only.error <= 2e-2


def test_a_new_tight_margin_ends_a_visit():
    run = diagonal_run(LAB)[0]
    found = visits(run)
    assert [len(one.tight) for one in found] == [1, 4, 8]
    assert found[0].last == pytest.approx(found[1].first)


def test_a_run_whose_excess_rises_is_not_falling():
    rows = [
        Decade("0", 1.0, margin, value, 0.0, 0.0, 0.0, 1.0) for margin, value in ((1e2, 0.1), (1e4, 0.01), (1e6, 0.02))
    ]
    assert falling(rows).outcome is Outcome.refuted
    assert falling(rows[:2]).outcome is Outcome.confirmed
    other = Decade(
        "1", 1.0, 1e2, 0.5, 0.0, 0.0, 0.0, 1.0
    )  # another run, with a larger excess than the one before it in the table
    assert falling([*rows[:2], other]).outcome is Outcome.confirmed


def test_starts_that_are_not_global_are_counted_by_their_wrong_samples():
    common = ((3, 4), 6.0, 8.0)
    found = [Started(*common, -1.0, True, 0), Started(*common, -0.5, False, 1), Started(*common, -0.7, False, 2)]
    row = dict(zip(_basin_table(found).columns, _basin_table(found).rows[0], strict=True))
    assert row["share global"] == "0.33"
    assert row["slack of Assumption 3"] == "-1.00 to -0.50"
    assert row["others: samples on a wrong token"] == "1 with 1 of 3, 1 with 2 of 3"


@pytest.mark.slow
def test_small_starts_are_global_and_huge_ones_stand_on_a_plateau():
    small, huge = (started((3, 4), 6.0, scale, 0) for scale in (0.1, 8.0))
    assert (small.reached, small.wrong) == (True, 0)
    assert small.slack > 0 > huge.slack
    assert (huge.reached, huge.wrong) == (False, 1)


def test_a_race_in_which_gathered_multipliers_win_refutes_that_they_are_last():
    levels = (1e-1, 1e-2, 1e-3, 1e-4)
    made = lambda first, second: Race(levels, {"accumulated": np.full(4, first), "instant": np.full(4, second)})
    assert _gathered_last({"data": made(10.0, 20.0)}).outcome is Outcome.refuted
    assert _gathered_last({"data": made(np.inf, 20.0)}).outcome is Outcome.confirmed
    columns = {kind: np.array([5.0, np.inf, np.inf, np.inf]) for kind in ("accumulated", "window", "instant", "mixed")}
    row = _race_table({"data": Race(levels, columns)}).rows
    assert row[0][-1] == "accumulated, window, instant, mixed"
    assert row[1][2:] == ("-", "-", "-", "-", "none")
