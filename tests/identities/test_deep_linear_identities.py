"""Identities and published numbers of deep linear networks, against SciPy where it can go."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import penchant as pt
from penchant.diagnostics.alignment import alignments, sine
from penchant.flow.flow import Levels
from penchant.papers import new_lab
from penchant.papers.deep_linear.evidence import (
    FAR,
    FINEST,
    few_supports,
    flow,
    geometry,
    kept,
    levels,
    problem,
    tight_flow,
)
from penchant.settings.deep_linear import balanced, imbalance_constant, imbalances
from penchant.settings.generators import strips

LAB = new_lab()

FINE = pt.GradientFlow(tolerance=1e-11, margin_tolerance=1e-9, order=6)


def logistic_gradient(signed, weight):
    return -(signed / (1 + np.exp(signed @ weight))[:, None]).mean(axis=0)


def test_balanced_starts_follow_the_flow_of_the_product_alone():
    setting = pt.Setting(strips(0), pt.DeepLinear((4, 4)), pt.Logistic())
    first, signed, depth = np.array([0.3, 0.2]), np.asarray(strips(0).signed), 3

    def field(_, w):
        gradient, unit = logistic_gradient(signed, w), w / np.linalg.norm(w)
        return -(np.linalg.norm(w) ** (2 - 2 / depth)) * (gradient + (depth - 1) * (unit @ gradient) * unit)

    wanted = solve_ivp(field, (0, 1e3), first, method="DOP853", rtol=1e-12, atol=1e-13).y[:, -1]
    run = pt.train(setting, FINE, balanced(setting, 0, first), until=pt.LogTimeAbove(float(np.log(1e3))), steps=9000)
    np.testing.assert_allclose(run.weight(), wanted, rtol=3e-9)


def test_the_layers_follow_a_plain_integration_in_physical_time_and_conserve_what_it_conserves():
    setting, start = problem(LAB, 3, logistic=True, width=4)
    signed, shapes = np.asarray(setting.data.signed), [layer.shape for layer in start]
    cuts = np.cumsum([np.prod(shape) for shape in shapes])[:-1]
    unpack = lambda flat: [part.reshape(shape) for part, shape in zip(np.split(flat, cuts), shapes, strict=True)]

    def field(_, flat):
        a, b, c = unpack(flat)
        g = logistic_gradient(signed, (c @ b @ a)[0])
        return -np.concatenate([np.outer((c @ b)[0], g).ravel(), np.outer(c[0], a @ g).ravel(), (b @ a @ g).ravel()])

    flat = np.concatenate([np.asarray(layer).ravel() for layer in start])
    wanted = unpack(solve_ivp(field, (0, 100), flat, method="DOP853", rtol=3e-14, atol=1e-14).y[:, -1])
    run = pt.train(setting, FINE, start, until=pt.LogTimeAbove(float(np.log(100))), steps=9000)
    for found, layer in zip(run.at(), wanted, strict=True):
        np.testing.assert_allclose(found, layer, atol=2e-9)
    for now, then in zip(imbalances(wanted), imbalances(start), strict=True):
        assert np.abs(now - then).max() < 2e-13


def test_rotating_hidden_units_commutes_with_the_flow(rng):
    setting, start = problem(LAB, 3, logistic=True, width=4)
    turn, other = (np.linalg.qr(rng.standard_normal((4, 4)))[0] for _ in range(2))
    turned = (turn @ start[0], other @ start[1] @ turn.T, start[2] @ other.T)
    until = pt.LogTimeAbove(float(np.log(100)))
    one, two = (pt.train(setting, FINEST, point, until=until, steps=9000) for point in (start, turned))
    assert np.abs(one.weight() - two.weight()).max() < 2e-13 * np.linalg.norm(one.weight())


def test_one_layer_is_the_plain_linear_model():
    setting, start = problem(LAB, 1)
    plain = pt.Setting(setting.data, pt.Direct(), setting.loss)
    pairs, until = ((setting, start), (plain, setting.weight(start))), pt.LogExcessBelow(-5.0)
    deep, linear = (pt.train(one, FINEST, begin, until=until, steps=20_000) for one, begin in pairs)
    np.testing.assert_allclose(deep.weight(), linear.weight(), rtol=7e-16)


@pytest.mark.slow
@pytest.mark.xdist_group("deep_linear")
def test_the_risk_falls_as_the_clock_of_the_flow_says():
    """dR/dt = -|grad R|^2: in the clock x = log(1 + drop of log R) the drop is e^x - 1, to risk e^-1000000."""
    assert abs(pt.diagnostics.clock_error(tight_flow(LAB))) <= 3e-6


def test_one_layer_has_the_slope_of_the_maximum_margin_in_the_end():
    setting, start = problem(LAB, 1)
    run = pt.train(setting, FINE, start, until=pt.LogExcessBelow(-1e5), steps=9000)
    assert np.exp(2 * run.log_slope[-1]) == pytest.approx(geometry(LAB).margin ** 2, rel=1e-10)


@pytest.mark.xdist_group("deep_linear")
def test_the_flow_passes_the_published_table():
    """Columns: 1 - ratio of layer 2, 1 - |<v_3, u_2>|, signed offset, sines of w and v_1, |w| over the product of norms."""
    table = {
        107.1: (9.65e-2, 4.8e-3, 0.195769, 2.45e-4, 4.94e-4, 0.81482),
        1123.0: (3.29e-2, 4.4e-4, 0.128914, 1.50e-5, 6.47e-5, 0.93528),
        11689.0: (1.06e-2, 4.2e-5, 0.128897, 1.44e-6, 1.08e-5, 0.97905),
        1e5: (3.66e-3, 4.9e-6, 0.128895, 1.68e-7, 2.13e-6, 0.99274),
        1e6: (1.16e-3, 4.9e-7, 0.128895, 1.68e-8, 3.75e-7, 0.99769),
    }
    digits = (
        0.006,
        0.02,
        4e-4,
        0.006,
        0.006,
        6e-5,
    )  # half a unit of the last digit, and what rounding of the levels adds
    setting, start = problem(LAB, 4, seed=1)
    recorder = Levels("log_excess", [-risk for risk in table])
    run = pt.train(setting, FAR, start, until=kept(max(table)), steps=20_000, recorder=recorder)
    unit = geometry(LAB).direction
    found = alignments(run)
    for k, (level, row) in enumerate(table.items(), 1):
        assert levels(run)[k] == pytest.approx(level, rel=1e-9)
        offset = run.weight(k) @ np.array([-unit[1], unit[0]])
        sines = sine(run.weight(k), unit), sine(found.first[k], unit)
        measured = (found.deficit[k, 1], found.misfit[k, 1], offset, *sines, 1 - found.product[k])
        for value, wanted, room in zip(measured, row, digits, strict=True):
            assert value == pytest.approx(wanted, rel=room)
    assert found.excess[-1].max() == pytest.approx(6.440, abs=5e-4)


@pytest.mark.slow
@pytest.mark.xdist_group("deep_linear")
@pytest.mark.parametrize("depth", [2, 4])
def test_flows_behind_the_laws_keep_what_the_exact_flow_keeps(depth):
    run = flow(LAB, depth)
    assert run.status is pt.training.Status.reached_target
    assert pt.diagnostics.conservation_drift(run).max() < 1e-5 * (1 + imbalance_constant(run.at(0)))
    assert abs(pt.diagnostics.clock_error(run)) < 1e-3 * 1e3


@pytest.mark.slow
@pytest.mark.xdist_group("deep_linear")
def test_outside_the_span_of_the_support_vectors_the_flow_has_the_published_numbers():
    found, run = few_supports(LAB, 3)
    assert len(found.support) == 6
    assert found.margin == pytest.approx(0.31175583, abs=5e-9)
    assert found.entropy == pytest.approx(1.45321679, abs=5e-9)
    outside = np.array([np.linalg.norm(found.outside() @ run.weight(k)) for k in range(len(run))])
    at = lambda level: np.exp(np.interp(np.log(level), np.log(levels(run)), np.log(outside)))
    assert at(1150.0) == pytest.approx(111.7, abs=0.1)
    assert at(1e5) == pytest.approx(2196, abs=1)
