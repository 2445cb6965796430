"""The key-query studies: what they find, and the tables of the decades against what the runs themselves hold."""

import numpy as np
import pytest

from penchant.references.diagonal_margin import diagonal_margin
from penchant.settings.attention_generators import equal_score_tokens
from penchant.settings.diagonal import DiagonalTokens
from penchant.studies.catalogue import STUDIES
from penchant.studies.key_query_diagonal import _decades_table, residuals
from penchant.studies.key_query_target import Reached, _table
from penchant.theorems.key_query_runs import diagonal_run
from penchant.verdict import Outcome

OURS = [study for study in STUDIES if study.paper == "kq_attention"]
QUICK = [study for study in OURS if study.name == "key-query-aligned"]


def check(study):
    result = study.run(0, False, lambda text: None)
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
    run, reference = diagonal_run()
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
    run, reference = diagonal_run()
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
