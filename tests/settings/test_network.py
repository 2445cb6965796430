"""A network as a setting: its margins, what moves them, and what of the flow is conserved."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import penchant as pt
from penchant.errors import ArgumentError
from penchant.settings.network import Network, network_setting, smooth_relu

RNG = np.random.default_rng(0)
INPUTS, SIGNS = RNG.normal(size=(6, 3)), np.array([1, -1, 1, 1, -1, -1])
START = {"U": RNG.normal(size=(4, 3)), "v": RNG.normal(size=4)}


def squares(params, inputs):
    return jnp.square(inputs @ params["U"].T) @ params["v"]


def test_margins_gradients_and_gram_matrix_are_those_of_the_function():
    setting = network_setting(squares, START, INPUTS, SIGNS, pt.Exponential())
    network, data = setting.parametrisation, setting.data
    margins, pull = network.linearise(START, data)
    np.testing.assert_allclose(margins, SIGNS * squares(START, INPUTS), rtol=1e-14)
    rows = jax.jacrev(lambda params: SIGNS * squares(params, INPUTS))(START)
    weights = RNG.normal(size=6)
    for name, leaf in pull(jnp.asarray(weights)).items():
        np.testing.assert_allclose(leaf, np.tensordot(weights, rows[name], 1), rtol=1e-12)
    flat = np.concatenate([np.asarray(rows[name]).reshape(6, -1) for name in ("U", "v")], axis=1)
    np.testing.assert_allclose(network.gram(START, data), flat @ flat.T, rtol=1e-12)
    some = flat[[4, 1]]
    np.testing.assert_allclose(network.gram(START, data.rows(jnp.array([4, 1]))), some @ some.T, rtol=1e-12)


def test_classes_have_one_margin_for_each_other_class():
    weight, labels = RNG.normal(size=(3, 3)), np.array([0, 2, 1, 1, 0, 2])
    made = lambda function, start, given: network_setting(function, start, INPUTS, given, pt.Logistic())
    network = made(lambda w, x: x @ w, weight, labels)
    scores = INPUTS @ weight
    expected = [scores[k, y] - scores[k, c] for k, y in enumerate(labels) for c in range(3) if c != y]
    np.testing.assert_allclose(network.parametrisation.weight(weight, network.data), expected, rtol=1e-13)
    halves = made(lambda w, x: jnp.stack([-(x @ w), x @ w], 1) / 2, weight[0], (SIGNS + 1) // 2)
    np.testing.assert_allclose(
        halves.parametrisation.weight(weight[0], halves.data), SIGNS * (INPUTS @ weight[0]), rtol=1e-13
    )


def test_a_flow_conserves_the_balance_of_every_unit_and_follows_the_slope():
    setting = network_setting(squares, START, INPUTS, SIGNS, pt.Exponential())
    run = pt.train(setting, pt.GradientFlow(), until=pt.MarginAbove(1e4))
    assert run.margins[-1].min() >= 1e4 * (1 - 1e-14)  # the margins of a record are computed again
    kept = np.sum(np.asarray(run.params["U"]) ** 2, axis=2) - 2 * np.asarray(run.params["v"]) ** 2
    assert np.abs(kept - kept[0]).max() <= 1e-6 * run.norm[-1] ** 2
    last = jax.tree.map(lambda leaf: leaf[-1], run.params)
    np.testing.assert_allclose(run.margins[-1], SIGNS * squares(last, INPUTS), rtol=1e-9)


@pytest.mark.parametrize("softness", [1e-1, 1e-3])
def test_smoothed_units_are_homogeneous_and_close_to_relu(softness):
    units, inputs = jnp.asarray(RNG.normal(size=(5, 3))), jnp.asarray(INPUTS)
    found, plain = smooth_relu(units, inputs, softness), jax.nn.relu(inputs @ units.T)
    most = softness / 2 * np.linalg.norm(INPUTS, axis=1)[:, None] * np.linalg.norm(units, axis=1)
    assert (found >= plain).all()
    assert (found - plain <= most * (1 + 1e-12)).all()
    np.testing.assert_allclose(smooth_relu(8 * units, inputs, softness), 8 * found, rtol=1e-14)
    np.testing.assert_allclose(smooth_relu(units, 8 * inputs, softness), 8 * found, rtol=1e-14)


@pytest.mark.parametrize(
    ("function", "labels", "words"),
    [
        (lambda w, x: x @ w, np.array([1, -1, 1, 1, 0, -1]), "0 on sample 4"),
        (lambda w, x: jnp.stack([x @ w, x @ w], 1), np.array([0, 1, 2, 0, 1, 0]), "2 on sample 2"),
        (lambda w, x: (x @ w)[:5], SIGNS, "'function'"),
        (lambda w, x: jnp.zeros((6, 2, 2)), SIGNS, "'function'"),
        (lambda w, x: x @ w - jnp.mean(x @ w), SIGNS, "all samples together"),
    ],
)
def test_labels_and_outputs_that_do_not_match_are_named(function, labels, words):
    with pytest.raises(ArgumentError, match=words):
        Network(function, np.ones(3), INPUTS, labels)
