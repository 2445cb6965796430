"""Layer step rules against a plain float64 loop, and against the published counts."""

import numpy as np
import pytest

import penchant as pt
from penchant.optimisers.layerwise import BallStep, ConstantStep, LayerDescent, LineSearch, RiskScaled, SharpStep
from penchant.settings.deep_linear import DeepLinear, ensure_assumption2, imbalances
from penchant.settings.generators import strips


def problem(depth=2):
    setting = pt.Setting(strips(0), DeepLinear((8,) * (depth - 1)), pt.Logistic())
    return setting, ensure_assumption2(setting, setting.start(1, 0.4))


def risk_and_gradients(signed, layers):
    """Mean logistic risk and the gradient of two layers, in plain numpy."""
    first, second = layers
    margins = signed @ (second @ first)[0]
    slope = -1 / (1 + np.exp(margins)) / len(margins)
    pull = slope @ signed
    return np.mean(np.logaddexp(0, -margins)), [np.outer(second[0], pull), (first @ pull)[None]]


def plain_loop(layers, signed, step_of, steps):
    state = {}
    for _ in range(steps):
        risk, gradients = risk_and_gradients(signed, layers)
        step = step_of(max(np.linalg.norm(layer) for layer in layers), risk, state)
        layers = [layer - step * gradient for layer, gradient in zip(layers, gradients, strict=True)]
    return layers


def ball(clearance):
    def step_of(largest, risk, state):
        radius = state.get("radius", 0.0)
        state["radius"] = radius if radius and largest <= radius - clearance else max(1.0, largest + clearance)
        return min(1.0, 1 / (2 * 4 * state["radius"] ** 2 * 1.25))

    return step_of


def sharp(largest, risk, state):
    return min(1.0, 1 / (0.25 * 2 * (1.05 * largest + 0.02) ** 2 + 1.0))


def scaled(largest, risk, state):
    return 1 / (16 * risk * max(1.0, largest) ** 2)


@pytest.mark.parametrize(
    ("rule", "step_of"),
    [
        (BallStep(), ball(1.0)),
        (BallStep(tight=True), ball(1 / (8 * 1.25))),
        (SharpStep(), sharp),
        (RiskScaled(), scaled),
    ],
    ids=["A5", "A5-tight", "sharp", "risk-scaled"],
)
def test_rules_take_the_steps_of_a_plain_loop(rule, step_of):
    setting, start = problem()
    run = pt.train(setting, LayerDescent(rule), start, steps=300, recorder=pt.training.At(()))
    wanted = plain_loop([np.asarray(layer) for layer in start], np.asarray(setting.data.signed), step_of, 300)
    for found, layer in zip(run.at(), wanted, strict=True):
        np.testing.assert_allclose(found, layer, rtol=1e-10)


@pytest.mark.parametrize(
    ("rule", "counts"),
    [
        (lambda s: BallStep(), (904, 25953)),
        (lambda s: SharpStep(), (34, 1037)),
        (lambda s: LineSearch(s, capped=True), (15, 107)),
        (lambda s: LineSearch(s), (4, 8)),
    ],
    ids=["A5", "sharp", "capped", "line-search"],
)
def test_steps_to_a_risk_are_the_published_ones(rule, counts):
    setting, start = problem()
    for risk, count in zip((0.3, 0.01), counts, strict=True):
        run = pt.train(
            setting,
            LayerDescent(rule(setting)),
            start,
            steps=30_000,
            until=pt.LogExcessBelow(float(np.log(risk))),
            recorder=pt.training.At(()),
        )
        assert run.steps[-1] == count
        assert run.account["violation"][-1] <= 0


def test_the_account_adds_up_to_the_change_of_the_imbalances():
    setting, start = problem()
    run = pt.train(setting, LayerDescent(SharpStep()), start, steps=500, recorder=pt.training.At(()))
    traces = run.account["traces"][-1]
    change = np.trace(imbalances(run.at())[0]) - np.trace(imbalances(start)[0])
    assert traces[0] - traces[1] == pytest.approx(change, rel=1e-9)  # tr of the identity G_k G_k' - G_{k+1}' G_{k+1}
    assert np.exp(run.account["log_step_sum"][-1]) == pytest.approx(np.exp(run.log_time[-1]), rel=1e-12)


def test_the_uncapped_line_search_takes_steps_that_only_logarithms_hold():
    setting, start = problem(4)
    run = pt.train(setting, LayerDescent(LineSearch(setting)), start, steps=250, recorder=pt.training.At(()))
    assert run.account["log_step"][-1] > 80
    assert np.exp(run.log_excess[-1]) == pytest.approx(9.6e-41, rel=0.02)


def test_a_constant_step_that_keeps_raising_the_risk_ends_the_run():
    setting, start = problem()
    run = pt.train(setting, LayerDescent(ConstantStep(12.0)), start, steps=200, recorder=pt.training.At(()))
    assert run.status is pt.training.Status.diverging_step
    assert run.account["violation"][-1] > 0
    calm = pt.train(setting, LayerDescent(ConstantStep(2.0)), start, steps=200, recorder=pt.training.At(()))
    assert calm.status is pt.training.Status.out_of_steps


def test_the_account_is_saved_with_the_run(tmp_path):
    setting, start = problem()
    run = pt.train(setting, LayerDescent(SharpStep()), start, steps=20)
    with np.load(run.save(tmp_path / "run.npz")) as saved:
        np.testing.assert_array_equal(saved["account_traces"], run.account["traces"])
        assert saved["W1"].shape == (8, 2)
        assert saved["history_W2"].shape == (len(run), 1, 8)
