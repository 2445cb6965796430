"""The plane of balanced products: its flow is that of the layers, and its curve ends in the saddle."""

import jax.numpy as jnp
import numpy as np
import pytest

import penchant as pt
from penchant.papers import new_lab
from penchant.papers.deep_linear.evidence import problem
from penchant.papers.deep_linear.saddle import RISK, descent_at_zero, escape_times, log_risk, stable_curve, velocity
from penchant.settings.deep_linear import balanced

LAB = new_lab()


def test_the_product_of_balanced_layers_moves_as_the_plane_says():
    setting, _ = problem(LAB, 2, logistic=True)
    weight = np.array([3.0, -2.0])
    first, last = balanced(setting, 0, weight)
    reading = pt.read(setting, (first, last))
    a, b = (-jnp.exp(reading.log_scale) * slope for slope in reading.slope)
    np.testing.assert_allclose(velocity(LAB, weight[None])[0], np.asarray((b @ first + last @ a)[0]), rtol=1e-12)
    assert log_risk(LAB, weight[None])[0] == pytest.approx(float(reading.log_excess), rel=1e-12)


def test_the_curve_follows_the_flow_into_zero_against_the_first_gradient():
    curve = stable_curve(LAB, 6.0)
    inner = curve[np.linalg.norm(curve, axis=1) < 1e-6][-1]
    unit = descent_at_zero(LAB) / np.linalg.norm(descent_at_zero(LAB))
    assert inner @ unit == pytest.approx(-np.linalg.norm(inner), rel=1e-9)
    middle = curve[1:-1]
    tangent, flow = curve[2:] - curve[:-2], velocity(LAB, middle)
    cosine = np.sum(tangent * flow, axis=1) / np.linalg.norm(tangent, axis=1) / np.linalg.norm(flow, axis=1)
    assert cosine[:-1].max() < -0.999  # outwards along the curve, inwards along the flow
    assert np.linalg.norm(curve[-1]) == pytest.approx(6.0, rel=1e-9)


def test_escape_times_are_nan_where_time_runs_out_and_fall_with_the_risk_of_the_start():
    unit = descent_at_zero(LAB) / np.linalg.norm(descent_at_zero(LAB))
    times = escape_times(LAB, np.array([30.0 * unit, 5.0 * unit, stable_curve(LAB, 6.0)[-1]]), 30.0)
    assert log_risk(LAB, 30.0 * unit[None])[0] < np.log(RISK)
    assert times[0] == 0 < times[1]
    assert np.isnan(times[2])
