"""What the joint theorems ask of scores along a run, before it and after it."""

import numpy as np
import pytest

import penchant as pt
from penchant.papers.self_attention.theorems import open_hypotheses


def held(hypotheses):
    return {one.name: one for one in hypotheses}


def predicted(data):
    setting = pt.Setting(data, pt.settings.TokenGram(data), pt.Exponential())
    return held(pt.predict(setting, pt.optimisers.scheduled_descent(0.01)).hypotheses)


def three(rng, twin=False):
    """Orthogonal tokens, three per sample; with `twin` the two others of a sample are one vector."""
    tokens = np.linalg.qr(rng.standard_normal((20, 20)))[0][:12].reshape(4, 3, 20)
    tokens[:, 0] *= 3.0
    if twin:
        tokens[:, 2] = tokens[:, 1]
    return pt.JointTokens(tokens, [1, -1, 1, -1], optimal=[0, 0, 0, 0])


def test_two_tokens_or_equal_ones_have_equal_scores_for_sure(rng):
    for data in (pt.settings.marked_tokens(), three(rng, twin=True)):
        assert held(open_hypotheses(data))["equal_scores"].holds is True
    found = predicted(three(rng))
    assert found["equal_scores"].holds is None
    assert found["score_order"].holds is None
    assert found["loss_ratio"].holds is None


def test_a_run_decides_by_its_recorded_scores(rng):
    data = three(rng)
    start = pt.settings.normal_start(data, 0, 0.5)
    run = pt.train(pt.settings.joint_setting(data, start), pt.optimisers.scheduled_descent(0.05), steps=50)
    found = held(pt.papers.self_attention.run_hypotheses(run))
    scores = run.scores[1:]
    size = np.abs(scores).max(axis=(1, 2))[:, None]
    spread = np.abs(scores[:, :, 1] - scores[:, :, 2]) / size
    lead = (scores[:, :, 0] - scores[:, :, 1:].max(axis=2)) / size
    assert found["equal_scores"].slack == pytest.approx(1e-9 - spread.max(), rel=1e-12)
    assert found["equal_scores"].holds is False
    assert found["score_order"].slack == pytest.approx(lead.min(), rel=1e-12)
    assert found["score_order"].holds is bool(lead.min() > 0)
    assert found["loss_ratio"].slack == pytest.approx(np.ptp(run.margins[1:], axis=1).max(), rel=1e-12)


def test_the_verdict_names_what_fails_along_the_run(rng):
    data = three(rng)
    setting, rule = (
        pt.Setting(data, pt.settings.TokenGram(data), pt.Exponential()),
        pt.optimisers.scheduled_descent(0.05),
    )
    start = pt.settings.normal_start(data, 0, 0.5)
    verdict = pt.judge(pt.predict(setting, rule), pt.train(pt.settings.joint_setting(data, start), rule, steps=50))
    assert "along the run fails equal_scores (sample" in verdict.detail
    quiet = three(rng, twin=True)
    setting = pt.Setting(quiet, pt.settings.TokenGram(quiet), pt.Exponential())
    assert (
        "along the run"
        not in pt.judge(pt.predict(setting, rule), pt.train(pt.settings.joint_setting(quiet), rule, steps=50)).detail
    )
