"""Signed powers: potential and link against mpmath, parameters against their own flow, and the pieces that training asks for."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import penchant as pt
from penchant.errors import ArgumentError
from penchant.settings.potentials import PowerEntropy

DATA, _ = pt.settings.sparse_regression(3, 6, 1, 2)


def exact(weight, scale, depth):
    """Dual point and potential in 50 digits: a root, and b times the integral of the inverse by parts."""
    with mpmath.workdps(50):
        p, z = mpmath.mpf(depth) / (depth - 2), abs(mpmath.mpf(weight)) / mpmath.mpf(scale)
        link = lambda u: (1 - u) ** -p - (1 + u) ** -p
        low, high = mpmath.mpf(0), 1 - (1 + z) ** (-1 / p) / 2
        u = mpmath.findroot(lambda x: link(x) - z, (low, high), solver="anderson", tol=1e-80, verify=False)
        area = p / (p - 1) * ((1 - u) ** (1 - p) + (1 + u) ** (1 - p) - 2)
        return float(mpmath.sign(weight) * p * u), float(mpmath.mpf(scale) * (z * p * u - area))


@pytest.mark.parametrize("depth", [3, 4, 7])
@pytest.mark.parametrize("weight", [1e-12, -1e-4, 3e-3, -0.7, 20.0])
def test_potential_and_gradient_agree_with_mpmath(depth, weight):
    potential = PowerEntropy(np.log([1e-3]), depth)
    dual, value = exact(weight, 1e-3, depth)
    assert potential.gradient(np.array([weight]))[0] == pytest.approx(dual, rel=1e-13)
    assert potential.value(np.array([weight])) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("depth", [3, 5])
def test_link_gradient_conjugate_and_curvature_belong_together(depth, rng):
    potential, h = PowerEntropy(np.full(4, np.log(0.2)), depth), 1e-6
    dual = potential.radius * np.array([0.9, -0.3, 1e-4, 0.0])
    weight = potential.link(dual)
    assert potential.gradient(weight) == pytest.approx(dual, rel=1e-12)
    assert potential.value(weight) + potential.conjugate(dual) == pytest.approx(dual @ weight, rel=1e-12)
    for j in range(3):
        unit = h * np.eye(4)[j]
        slope = (potential.conjugate(dual + unit) - potential.conjugate(dual - unit)) / (2 * h)
        assert slope == pytest.approx(weight[j], rel=1e-6)
        bend = (potential.link(dual + unit) - potential.link(dual - unit))[j] / (2 * h)
        assert bend == pytest.approx(potential.curvature(dual)[j], rel=1e-6)


def test_dual_points_beyond_the_radius_belong_to_no_weight():
    potential = PowerEntropy(np.zeros(1), 4)
    assert np.isnan(potential.link(np.array([2.0]))).all()
    assert potential.conjugate(np.array([-2.5])) == np.inf


@pytest.mark.parametrize("depth", [3, 4])
def test_the_trajectory_form_is_that_of_the_flow_to_rounding(depth):
    inputs, targets, alpha = np.asarray(DATA.inputs), np.asarray(DATA.targets), 0.7

    def field(_, state):
        plus, minus = state[:6], state[6:12]
        residual = inputs @ (plus**depth - minus**depth) - targets
        slope = depth * residual @ inputs
        return np.concatenate([-slope * plus ** (depth - 1), slope * minus ** (depth - 1), residual])

    begin = np.concatenate([np.full(12, alpha), np.zeros(3)])
    end = solve_ivp(field, (0.0, 0.1), begin, method="DOP853", rtol=1e-13, atol=1e-15).y[:, -1]
    model = pt.settings.SignedPowers(alpha, depth)
    potential = model.potential(np.full((2, 6), alpha))
    pull = -potential.rate * end[12:] @ inputs
    assert np.abs(pull).max() > 0.1  # far from the linear regime
    assert model.moved(np.full((2, 6), alpha), pull).ravel() == pytest.approx(end[:12], rel=1e-13)
    assert potential.link(pull) == pytest.approx(end[:6] ** depth - end[6:12] ** depth, rel=1e-10, abs=1e-12)


def test_gradient_and_tangent_kernel_are_those_of_autodiff(rng):
    model, params = pt.settings.SignedPowers(0.5, 4), jnp.asarray(rng.uniform(0.2, 1.0, (2, 6)))
    margins, pull = model.linearise(params, DATA)
    jacobian = jax.jacobian(lambda p: DATA.margins(model.weight(p, DATA)))(params).reshape(3, 12)
    cotangent = jnp.asarray(rng.standard_normal(3))
    assert np.asarray(pull(cotangent)).ravel() == pytest.approx(np.asarray(cotangent @ jacobian), rel=1e-12)
    assert np.asarray(model.gram(params, DATA)) == pytest.approx(np.asarray(jacobian @ jacobian.T), rel=1e-12)
    assert np.asarray(margins) == pytest.approx(np.asarray(DATA.inputs @ (params[0] ** 4 - params[1] ** 4)), rel=1e-12)


@pytest.mark.slow
def test_the_flow_ends_at_the_prediction_and_other_depths_are_refused():
    setting = pt.Setting(DATA, pt.settings.SignedPowers(0.5), pt.Squared(), "sum")
    run = pt.train(setting, pt.GradientFlow(tolerance=1e-5))
    verdict = pt.judge(pt.predict(setting, pt.GradientFlow()), run)
    assert verdict.outcome is pt.verdict.Outcome.confirmed
    assert verdict.measured < 1e-6
    deeper = pt.predict(pt.Setting(DATA, pt.settings.SignedPowers(0.5, 4), pt.Squared(), "sum"), pt.GradientFlow())
    with pytest.raises(ArgumentError, match="depth 3 instead of SignedPowers of depth 4"):
        pt.judge(deeper, run)


def test_predictions_name_the_exponent_of_their_depth():
    prediction = pt.predict(pt.Setting(DATA, pt.settings.SignedPowers(0.5, 4), pt.Squared(), "sum"), pt.GradientFlow())
    assert prediction.theorem.name == "minimum-potential"
    assert prediction.reference.norm == "Q_alpha of depth 4"
    assert any("vanish like alpha^4" in note for note in prediction.notes)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("depth", lambda: pt.settings.SignedPowers(0.1, 2)),
        ("depth", lambda: pt.settings.SignedPowers(0.1, 2.5)),
        ("alpha", lambda: pt.settings.SignedPowers(0.0)),
        ("alpha", lambda: pt.settings.SignedPowers([0.1, 0.2])),
        ("start", lambda: pt.settings.SignedPowers(0.1).potential(np.array([[0.1, 0.2], [0.1, 0.1]]))),
        ("start", lambda: pt.settings.SignedPowers(0.1).potential(np.array([[0.1, -0.2], [0.1, 0.1]]))),
    ],
)
def test_bad_arguments_are_named(name, call):
    with pytest.raises(ArgumentError) as caught:
        call()
    assert caught.value.argument == name


@pytest.mark.parametrize("depth", [3, 6])
def test_squares_of_tiny_dual_points_do_not_underflow(depth):
    """Next to a huge start the potential is |weight|^2 / 4 b, and its conjugate b |s|^2."""
    potential = PowerEntropy(np.full(2, 180 * np.log(10)), depth)
    weight, dual = np.array([1.5, -2.0]), np.array([3e-181, 1e-181])
    assert potential.value(weight) * 1e180 == pytest.approx(6.25 / 4, rel=1e-12)
    assert potential.conjugate(dual) * 1e181 == pytest.approx(1.0, rel=1e-12)
