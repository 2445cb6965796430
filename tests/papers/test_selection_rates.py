"""Rates of token selection: every row of the tables has a verdict, and a direction that stands still is not called convergent."""

from types import SimpleNamespace

import numpy as np
import pytest

from penchant.papers import new_lab
from penchant.papers.self_attention.figures.rates import _joint_findings, run_memory

STEPS = np.unique(np.geomspace(1e3, 1e4, 60).round())
RUNS = [SimpleNamespace(steps=STEPS)] * 3


@pytest.mark.parametrize(
    ("name", "exponent", "outcome"),
    [
        ("block-normalised", -2.0, "confirmed"),
        ("block-normalised", 0.0, "refuted"),
        ("dual acceleration of log L", -4.0, "confirmed"),
        ("dual acceleration of log L", 0.0, "refuted"),
    ],
)
def test_the_direction_of_a_jointly_trained_attention_has_a_verdict(name, exponent, outcome):
    distances = [c * STEPS**exponent for c in (1.0, 1.1, 1.2)]
    (finding,) = _joint_findings(name, RUNS, distances)
    assert finding.verdict.outcome.value == outcome


@pytest.mark.slow
def test_momentum_and_acceleration_say_what_is_known():
    result = run_memory(new_lab())
    found = {finding.statement.split(":")[0]: finding.verdict.outcome.value for finding in result.findings}
    assert (
        found["Heavy ball with beta = 0.99 keeps the exponent and lowers the constant by (1 - beta)^2."] == "confirmed"
    )
    assert found["Decoder trained as well, dual acceleration of log L"] == "refuted"
    assert list(found.values()).count("refuted") == 1
    assert all(finding.citation for finding in result.findings)
