"""The page of a deep linear network: its laws against the layers themselves."""

import numpy as np
import pytest

import penchant as pt
from penchant.studies import own_data

DATA = pt.Classification([[0.6, 0.1], [0.2, 0.5], [-0.5, -0.4], [0.9, 0.2]], [1, 1, -1, 1])
SETTING = pt.Setting(DATA, pt.DeepLinear((4, 4)), pt.Exponential())


@pytest.fixture(scope="module")
def result():
    flow = pt.GradientFlow(pt.RelativeDrop())
    prediction = pt.predict(SETTING, flow)
    start = pt.ensure_assumption2(SETTING, SETTING.start(0, 0.4))
    run = pt.train(SETTING, flow, start, until=pt.LogExcessBelow(-1e4))
    return run, own_data.page(prediction, run, prediction.theorem.judge(prediction, run), flow)


def table(result, name):
    return next(one for one in result[1].tables if one.name == name)


def test_layers_are_described_by_their_norms_excess_and_slopes(result):
    run, rows = result[0], table(result, "layers").rows
    for layer, row in zip(run.at(), rows, strict=True):
        values = np.linalg.svd(np.asarray(layer), compute_uv=False)
        assert float(row[1]) == pytest.approx(np.linalg.norm(values), rel=1e-5)
        assert float(row[4]) == pytest.approx(np.sum(values[1:] ** 2), rel=1e-4)
    assert float(rows[0][3]) == pytest.approx(-2 / 3, abs=0.03)
    assert float(rows[0][4]) == pytest.approx(float(rows[0][5]), rel=0.02)  # excess against its limit


def test_the_laws_stand_next_to_their_predictions(result):
    run, rows = result[0], {row[0]: row[1:] for row in table(result, "laws").rows}
    measured, predicted = rows["size law: margin <w, u> + log n + log R"]
    assert float(measured) == pytest.approx(float(predicted.split()[-1]), abs=1e-4)
    measured, predicted = rows["offset |w - <w, u> u|"]
    assert float(measured) == pytest.approx(float(predicted), rel=1e-2)
    weight, reference = run.weight(), pt.max_margin(SETTING.data).weight
    unit = reference / np.linalg.norm(reference)
    assert float(measured) == pytest.approx(np.linalg.norm(weight - (weight @ unit) * unit), rel=1e-5)
    assert abs(float(rows["clock error of -log R"][0])) < 1.0


def test_figures_are_drawn_against_the_risk_level_and_words_are_defined(result):
    figures = {one.name: one for one in result[1].figures}
    assert {"ratios", "alignment", "sandwich", "drift"} <= set(figures)
    lower, upper, best = figures["sandwich"].lines
    assert (lower.y <= best.y * (1 + 1e-12)).all()
    assert (upper.y >= best.y * (1 - 1e-12)).all()
    assert {"-log R", "ratio", "excess", "offset"} <= set(result[1].definitions)
    rate = dict(table(result, "summary").rows)["measured rate"]
    assert "sin(angle) ~ (-log R)^-1.0" in rate or "sin(angle) ~ (-log R)^-0.99" in rate
