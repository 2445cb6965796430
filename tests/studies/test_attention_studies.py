"""Studies of attention from data: the quick ones run, and say what they are known to say."""

import json

import numpy as np
import pytest

from penchant.report.page import render
from penchant.settings.attention_curvature import balanced_point
from penchant.settings.attention_regression_generators import prescribed_spectrum
from penchant.studies.attention_time_scales import split_gradient
from penchant.studies.base import save
from penchant.studies.catalogue import STUDIES

KNOWN = {
    "attention-time-scales": ["confirmed", "confirmed", "confirmed", "refuted"],
    "attention-beyond-a3": ["refuted", "confirmed", "confirmed", "confirmed"],
    "attention-bias": ["confirmed"] * 6,
    "attention-scaling-law": ["confirmed"] * 7,
    "attention-regression": ["confirmed"] * 6,
}
SLOW = [name for name in KNOWN if name != "attention-time-scales"]


@pytest.mark.parametrize(
    "name", ["attention-time-scales", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_a_study_says_what_is_known(tmp_path, name):
    study = next(study for study in STUDIES if study.name == name)
    result = study.run(0, False, lambda text: None)
    save(study, result, tmp_path, seed=0, full=False, seconds=1.0)
    assert [finding.verdict.outcome.value for finding in result.findings] == KNOWN[name]
    assert render(tmp_path).read_text().count("<svg") == len(result.figures)
    saved = json.loads((tmp_path / name / "study.json").read_text())
    assert [table["title"] for table in saved["tables"]] == [table.title for table in result.tables]


def test_a_gradient_is_split_along_and_across_the_minima(rng):
    problem = prescribed_spectrum(4, (0.05, 0.04, 0.03), 5.0, 11)
    point = balanced_point(problem)
    skew = rng.standard_normal((3, 3))
    along = point @ (skew - skew.T)
    tangential, normal = split_gradient(point, along)
    assert tangential == pytest.approx(np.linalg.norm(along), rel=1e-12)
    assert normal < 1e-14
    symmetric = point @ np.diag([1.0, 2.0, 3.0])  # orthogonal to every W Omega because W'W commutes with it here
    tangential, normal = split_gradient(point, symmetric)
    assert tangential < 1e-14
    assert normal == pytest.approx(np.linalg.norm(symmetric), rel=1e-12)
