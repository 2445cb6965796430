"""The deep linear parametrisation against plain numpy, finite differences and the published numbers of its data."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import penchant as pt
from penchant.errors import ArgumentError, CriticalPointError, PenchantWarning
from penchant.problem import read
from penchant.settings.deep_linear import (
    NAMED,
    DeepLinear,
    balanced,
    deep_linear,
    ensure_assumption2,
    equal_frobenius,
    imbalance_constant,
    named_start,
    risk_of_zero,
    torch_default,
    zero_first,
)
from penchant.settings.generators import blobs, strips, teacher
from penchant.settings.losses import PolynomialTail, UserLoss


def network(widths=(4, 3), loss=None, d=5):
    return pt.Setting(teacher(12, d, seed=3), DeepLinear(widths), loss or pt.Logistic())


def plain_risk(signed, layers):
    weight = np.linalg.multi_dot([*layers[::-1]])[0] if len(layers) > 1 else layers[0][0]
    return np.mean(np.logaddexp(0, -signed @ weight))


@pytest.mark.parametrize("widths", [(), (3,), (4, 3), (2, 5, 3)])
def test_gradients_of_every_layer_agree_with_finite_differences_of_the_plain_risk(widths):
    setting = network(widths)
    layers = [np.asarray(layer) for layer in setting.start(0, 0.7)]
    signed, h = np.asarray(setting.data.signed), 1e-6
    reading = read(setting, tuple(map(jnp.asarray, layers)))
    assert np.exp(reading.log_excess) == pytest.approx(plain_risk(signed, layers), rel=1e-13)
    for k, layer in enumerate(layers):
        for index in np.ndindex(layer.shape):
            ends = []
            for sign in (1, -1):
                moved = [one.copy() for one in layers]
                moved[k][index] += sign * h
                ends.append(plain_risk(signed, moved))
            gradient = float(np.exp(reading.log_scale) * reading.slope[k][index])
            assert gradient == pytest.approx((ends[0] - ends[1]) / (2 * h), abs=2e-10)  # rounding 1e-16/h


def test_the_gram_matrix_is_that_of_the_jacobian_of_the_margins():
    setting = network((4, 3))
    start = setting.start(1, 0.5)
    jacobian = jax.jacobian(setting.margins)(start)
    rows = np.concatenate([np.asarray(part).reshape(setting.samples, -1) for part in jacobian], axis=1)
    gram = setting.parametrisation.gram(start, setting.data)
    np.testing.assert_allclose(gram, rows @ rows.T, rtol=1e-12, atol=1e-14)


def test_scaling_the_data_and_the_first_layer_oppositely_changes_nothing_at_all():
    setting = network((4,))
    first, last = setting.start(2, 0.5)
    longer = pt.Classification(2 * np.asarray(setting.data.signed), np.ones(12))
    with pytest.warns(PenchantWarning, match="norm 2"):
        scaled = pt.Setting(longer, DeepLinear((4,)), pt.Logistic())
    assert float(read(setting, (first, last)).log_excess) == float(read(scaled, (first / 2, last)).log_excess)


def test_generators_give_the_published_numbers():
    labels = np.where(np.arange(40) < 20, 1.0, -1.0)[:, None]
    inputs = 6.264300492 * np.asarray(strips(0).signed) * labels
    np.testing.assert_allclose(inputs[0], [1.15237364, 2.04943492], atol=1e-8)
    np.testing.assert_allclose(inputs[12], [3.93485005, 1.88578872], atol=1e-8)
    assert inputs.sum() == pytest.approx(21.35536877, abs=1e-7)
    setting = pt.Setting(strips(0), DeepLinear((8, 8, 8)), pt.Logistic())
    start = setting.start(1, 0.4)
    np.testing.assert_allclose(start[0][0], [0.13823368, 0.32864726], atol=1e-8)
    assert imbalance_constant(start) == pytest.approx(21.247244, abs=1e-6)
    assert np.linalg.norm(np.asarray(blobs(50, 10, 3).signed), axis=1).max() == pytest.approx(1.0, abs=1e-15)


def test_starts_have_the_properties_they_are_named_after():
    setting, weight = network((4, 3)), np.array([0.3, -0.1, 0.2, 0.5, 0.0])
    rank_one = balanced(setting, 0, weight)
    assert imbalance_constant(rank_one) == pytest.approx(0.0, abs=1e-15)
    np.testing.assert_allclose(setting.weight(rank_one), weight, atol=1e-15)
    assert [float(np.linalg.norm(layer)) for layer in equal_frobenius(setting, 0, 4.0)] == pytest.approx([4.0] * 3)
    uniform = torch_default(setting, 0)
    assert all(0.5 / np.sqrt(w.shape[1]) < float(jnp.abs(w).max()) <= 1 / np.sqrt(w.shape[1]) for w in uniform)
    from_zero = read(setting, zero_first(setting, 0, 0.5))
    assert float(from_zero.log_excess) == pytest.approx(np.log(np.log(2)), abs=1e-15)
    assert np.isfinite(from_zero.log_slope_norm)


@pytest.mark.parametrize("seed", range(6))
def test_ensure_assumption2_ends_below_the_risk_of_zero(seed):
    setting = network((4, 3))
    found = ensure_assumption2(setting, setting.start(seed, 2.0))
    assert plain_risk(np.asarray(setting.data.signed), [np.asarray(w) for w in found]) <= np.log(2)
    assert risk_of_zero(setting) == pytest.approx(-0.366512920581664)  # log log 2


def test_ensure_assumption2_refuses_a_start_without_a_gradient():
    setting = network((4, 3))
    with pytest.raises(CriticalPointError, match="gradient is exactly 0"):
        ensure_assumption2(setting, setting.start())


def test_a_loss_of_the_users_own_trains_like_the_built_in_one():
    mine = UserLoss(lambda z: -z, lambda z: -z)
    one, other = (read(network((4,), loss), network((4,)).start(0, 0.5)) for loss in (mine, pt.Exponential()))
    assert float(one.log_excess) == float(other.log_excess)
    np.testing.assert_array_equal(one.slope[0], other.slope[0])


@pytest.mark.parametrize(
    ("value", "slope"),
    [
        (lambda z: -z, lambda z: -3 * z),
        (lambda z: -z, lambda z: -z + 1e-3),  # a factor, which only changes the clock, is no derivative either
        (lambda z: z, lambda z: z),  # rising
        (lambda z: -jnp.log(z), lambda z: -jnp.log(z)),  # no number at negative margins
        (lambda z: -z, lambda z: jnp.where(z > 20, -2 * z, -z)),  # wrong far out only
        (lambda z: -jnp.abs(z + 40), lambda z: -jnp.abs(z + 40)),  # rising far out
    ],
)
def test_a_loss_whose_derivative_is_wrong_is_refused(value, slope):
    with pytest.raises(ArgumentError, match="difference quotient"):
        UserLoss(value, slope)


def test_polynomial_tails_are_their_formula():
    loss, z = PolynomialTail(2.0), np.array([-3.0, -0.5, 1e-9, 0.5, 40.0])
    plain = np.where(z >= 0, (1 + np.maximum(z, 0)) ** -2.0, 1 - 2 * z)
    np.testing.assert_allclose(np.exp(loss.log_value(jnp.asarray(z))), plain, rtol=1e-14)
    slopes = jax.vmap(jax.grad(lambda m: jnp.exp(loss.log_value(m))))(jnp.asarray(z))
    np.testing.assert_allclose(np.exp(loss.log_slope(jnp.asarray(z))), -slopes, rtol=1e-13)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: DeepLinear((3, 0)), "'widths'"),
        (lambda: DeepLinear((2.5,)), "'widths'"),
        (lambda: DeepLinear(8), "DeepLinear((8,))"),
        (lambda: DeepLinear("88"), "'widths'"),
        (lambda: deep_linear(np.zeros((2, 2)), [1, 1], (3,), pt.Logistic(), normalise=True), "only zeros"),
        (lambda: named_start(network(), "zeros"), "'name'"),
        (lambda: named_start(network(), "normal", 0, -1.0), "'scale'"),
        (lambda: named_start(network(), "torch-default", -1), "'seed'"),
        (lambda: deep_linear([[2.0, 0.0], [0.0, 0.5]], [1, 1], (3,), pt.Logistic()), "index 0"),
        (lambda: deep_linear([[0.2, 0.0], [0.0, 0.5]], [1, 2], (3,), pt.Logistic()), "index 1"),
        (lambda: deep_linear([[0.2, np.nan]], [1], (3,), pt.Logistic()), "finite"),
        (lambda: deep_linear(np.zeros((0, 2)), [], (3,), pt.Logistic()), "non-empty"),
        (
            lambda: network((4, 3)).parametrisation.check(
                [np.ones((4, 5)), np.ones((3, 3)), np.ones((1, 3))], network().data
            ),
            "'W2'",
        ),
        (lambda: network((4, 3)).parametrisation.check([np.ones((4, 5))], network().data), "3 matrices"),
        (
            lambda: network((4, 3)).parametrisation.check(
                [np.ones((4, 5)), np.ones((3, 4)), np.ones((2, 3))], network().data
            ),
            "'W3'",
        ),
        (lambda: PolynomialTail(0.0), "'power'"),
    ],
)
def test_bad_input_is_refused_by_name(call, words):
    with pytest.raises(ArgumentError, match="must be") as caught:
        call()
    assert words in str(caught.value)


def test_normalise_divides_by_the_largest_norm_and_the_margin_with_it():
    inputs, labels = np.array([[3.0, 1.0], [-1.0, -2.0], [2.0, 4.0]]), np.array([1, -1, 1])
    setting = deep_linear(inputs, labels, (3,), pt.Logistic(), normalise=True)
    raw = pt.references.max_margin(pt.Classification(inputs, labels)).margin
    assert pt.references.max_margin(setting.data).margin == pytest.approx(raw / np.sqrt(20.0), rel=1e-12)
    assert setting.data.divisor == pytest.approx(np.sqrt(20.0), rel=1e-15)


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("seed", range(3))
def test_every_named_start_lies_below_the_risk_of_zero_and_moves(name, seed):
    setting = network((4, 3))
    layers = named_start(setting, name, seed)
    found = read(setting, layers)
    assert float(found.log_excess) <= risk_of_zero(setting)
    assert np.isfinite(found.log_slope_norm)
    if name == "balanced":
        assert imbalance_constant(layers) == pytest.approx(0.0, abs=1e-15)
    if name == "normal":
        larger = named_start(setting, name, seed, 0.6)
        np.testing.assert_allclose(np.abs(larger[1]), 2 * np.abs(layers[1]), rtol=1e-12)  # the scale is not ignored


def test_a_loss_may_leave_the_range_of_floats_far_out():
    naive = UserLoss(lambda z: jnp.log(jnp.log1p(jnp.exp(-z))), lambda z: -jnp.log1p(jnp.exp(z)))  # logistic
    np.testing.assert_allclose(naive.log_value(jnp.ones(1)), pt.Logistic().log_value(jnp.ones(1)), rtol=1e-14)
