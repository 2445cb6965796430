"""The page of a deep linear network: its laws against the layers themselves."""

import jax.numpy as jnp
import numpy as np
import pytest

import penchant as pt
from penchant.case import make_case
from penchant.report.panel import page
from penchant.report.panels import PANELS, network

DATA = pt.Classification([[0.6, 0.1], [0.2, 0.5], [-0.5, -0.4], [0.9, 0.2]], [1, 1, -1, 1])
SETTING = pt.Setting(DATA, pt.DeepLinear((4, 4)), pt.Exponential())


@pytest.fixture(scope="module")
def result():
    flow = pt.GradientFlow(pt.flow.RelativeDrop())
    prediction = pt.predict(SETTING, flow)
    start = pt.settings.ensure_assumption2(SETTING, SETTING.start(0, 0.4))
    run = pt.train(SETTING, flow, start, until=pt.LogExcessBelow(-1e4))
    return run, page(make_case(prediction, run, optimiser=flow), PANELS)


def drawn(run, prediction):
    """The figures and tables of the network panel by name, and its words."""
    case = make_case(prediction, run)
    return {one.name: one for one in network.draw(case)}, network.words(case)


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
    measured, predicted, ratio = rows["size law: log n + log R - log l(margin <w, u>)"]
    assert float(measured) == pytest.approx(float(predicted), abs=1e-4)
    assert float(ratio) == pytest.approx(1, abs=1e-4)
    assert float(rows["gradient law: |grad log R|^2"][2]) == pytest.approx(1, abs=1e-2)
    assert float(rows["first layer: slope of sin(angle of v_1)"][0]) == pytest.approx(-1, abs=0.05)
    measured, predicted, _ = rows["offset |w - <w, u> u|"]
    assert float(measured) == pytest.approx(float(predicted), rel=1e-2)
    weight, reference = run.weight(), pt.references.max_margin(SETTING.data).weight
    unit = reference / np.linalg.norm(reference)
    assert float(measured) == pytest.approx(np.linalg.norm(weight - (weight @ unit) * unit), rel=1e-5)
    assert abs(float(rows["clock error of -log R"][0])) < 1.0
    assert float(rows["Lemma 2: smallest slack of excess <= D"][0]) > 0
    assert 0 < float(rows["Lemma 2: smallest slack of the bound on <v, u>^2"][0]) < 1


LOSSES = {
    "exponential": (pt.Exponential(), 1.0),
    "logistic": (pt.Logistic(), 1.0),
    "twice as steep": (pt.UserLoss(lambda z: -2 * z, lambda z: jnp.log(2.0) - 2 * z), 2.0),
    "five times as large": (pt.UserLoss(lambda z: jnp.log(5.0) - z, lambda z: jnp.log(5.0) - z), 1.0),
}


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_laws_hold_for_sums_and_for_losses_with_another_factor_or_rate(loss, reduction):
    """At the weight that the laws describe, far along the maximum margin with the predicted offset, measured and predicted agree."""
    setting = pt.Setting(DATA, pt.DeepLinear(()), LOSSES[loss][0], reduction)
    constants = pt.theory.network_constants(setting)
    assert constants.tail == pytest.approx(LOSSES[loss][1])
    start = (jnp.asarray(1e3 * constants.geometry.direction + constants.offset)[None],)
    run = pt.train(setting, pt.optimisers.LayerDescent(pt.optimisers.ConstantStep(1.0)), start, steps=0)
    shown, words = drawn(run, pt.predict(setting, pt.GradientFlow()))
    rows = {row[0]: row[1:] for row in shown["laws"].rows}
    laws = [row for name, row in rows.items() if name.startswith(("size law", "offset", "gradient law"))]
    assert len(laws) == 3
    assert [float(row[2]) for row in laws] == pytest.approx([1.0] * 3, rel=1e-5)
    assert f"the {reduction} of the losses" in words["-log R"]


def test_a_polynomial_tail_has_no_predicted_laws():
    setting = pt.Setting(DATA, pt.DeepLinear((4,)), pt.settings.PolynomialTail(2.0))
    start = pt.settings.ensure_assumption2(setting, setting.start(0, 0.4))
    run = pt.train(setting, pt.optimisers.LayerDescent(pt.optimisers.ConstantStep(0.1)), start, steps=0)
    shown, _ = drawn(run, pt.predict(setting, pt.GradientFlow()))
    rows = {row[0]: row[1:] for row in shown["laws"].rows}
    for name in ("offset |w - <w, u> u|", "gradient law: |grad log R|^2", "first layer: slope of sin(angle of v_1)"):
        assert rows[name][1].startswith("unknown")
    assert "no theory" in shown["layers"].caption


def test_figures_are_drawn_against_the_risk_level_and_words_are_defined(result):
    figures = {one.name: one for one in result[1].figures}
    assert {"ratios", "alignment", "offset", "sandwich", "drift", "level-time", "ratios-time"} <= set(figures)
    run, predicted = figures["offset"].lines
    assert run.y[-1] == pytest.approx(predicted.y[-1], rel=1e-2)
    run, law = figures["level-time"].lines
    assert law.x[-1] == pytest.approx(run.x[-1], abs=1e-3)
    lower, upper, best = figures["sandwich"].lines
    assert (lower.y <= best.y * (1 + 1e-12)).all()
    assert (upper.y >= best.y * (1 - 1e-12)).all()
    assert {"-log R", "ratio", "excess", "offset"} <= set(result[1].definitions)
    rate = dict(table(result, "summary").rows)["measured rate"]
    assert "sin(angle) ~ (-log R)^-1.0" in rate or "sin(angle) ~ (-log R)^-0.99" in rate


def test_descent_shows_its_steps():
    setting = pt.Setting(DATA, pt.DeepLinear((4,)), pt.Logistic())
    start = pt.settings.ensure_assumption2(setting, setting.start(0, 0.4))
    rule = pt.optimisers.LayerDescent(pt.optimisers.LineSearch(setting, capped=True))
    run = pt.train(setting, rule, start, steps=50)
    shown, words = drawn(run, pt.predict(setting, rule))
    assert shown["steps"].lines[0].y[-1] == run.account["log_step"][-1] <= 0
    assert shown["violation"].lines[0].y[-1] <= 0
    rows = {row[0]: row[1:] for row in shown["laws"].rows}
    assert float(rows["sum of the traces"][0]) == pytest.approx(run.account["traces"][-1].sum(), rel=1e-5)
    assert float(rows["Lemma 8: smallest slack of excess <= D + traces of k to L - 1"][0]) >= 0
    assert {"traces", "violation"} <= set(words)
