"""The key-query studies: what they find, and the tables of the decades against what the runs themselves hold."""

import numpy as np
import pytest

from penchant.references.diagonal_margin import diagonal_margin
from penchant.settings.attention_generators import equal_score_tokens
from penchant.settings.diagonal import DiagonalTokens
from penchant.studies.catalogue import STUDIES
from penchant.studies.key_query_diagonal import residuals
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
            assert (np.diff(line.x) >= 0).all()
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
