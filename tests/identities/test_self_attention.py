"""Exact identities of token selection with a fixed decoder."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import penchant as pt
from penchant.diagnostics.direction import misalignment, misalignments, optimal_attention
from penchant.settings.generators import random_tokens, signal_tokens
from penchant.settings.tokens import TokenSelection
from problems import features, sharp_constant

pytestmark = pytest.mark.slow  # the claims on the same runs are in the fast lane

SMALL = random_tokens(4, 3, 5, 2)
NEARLY_ORTHOGONAL = signal_tokens()  # preset E
HARD = signal_tokens(20, 5, 50, 1.0, 0.1)  # preset H
OPTIMISERS = {
    "gd": pt.gradient_descent(0.5),
    "ngd": pt.normalised_descent(0.1),
    "polyak": pt.polyak(2.0),
    "momentum": pt.momentum(0.1),
    "accelerated": pt.Accelerated(0.05),
}


def gram(data, origin=None, loss=None):
    return pt.Setting(data, pt.settings.Gram(data, origin), loss or pt.Exponential())


def h(x):
    return x / -np.expm1(-x)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_gram_and_dense_runs_agree(name):  # 2.1
    origin = 0.2 * np.random.default_rng(0).standard_normal(SMALL.weight_shape)
    dense = pt.train(pt.Setting(SMALL, pt.Direct(), pt.Exponential()), OPTIMISERS[name], jnp.asarray(origin), steps=100)
    short = pt.train(gram(SMALL, origin), OPTIMISERS[name], steps=100)
    assert np.abs(dense.margins - short.margins).max() <= 1e-10 * np.abs(dense.margins).max()
    assert np.abs(dense.weight() - short.weight()).max() <= 1e-10 * np.abs(dense.weight()).max()
    assert np.allclose(dense.norm, short.norm, rtol=1e-10, atol=0)
    assert np.allclose(dense.dual, short.dual, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("length", [0.05, 3.0])
def test_normalised_steps_have_their_length(length):  # item 2
    run = pt.train(
        pt.Setting(SMALL, pt.Direct(), pt.Exponential()),
        pt.normalised_descent(length),
        steps=50,
        recorder=pt.training.Every(),
    )
    lengths = np.linalg.norm(np.diff(run.params, axis=0).reshape(50, -1), axis=1)
    # 4e-16 relative in the step; reading it off the difference of two weights costs eps times their size.
    assert np.abs(lengths - length).max() <= 4e-15 * length + 4e-16 * run.norm.max()


def test_polyak_steps_lower_the_linear_model_by_one_over_c():  # item 2
    setting = pt.Setting(SMALL, pt.Direct(), pt.Exponential())
    run = pt.train(setting, pt.polyak(2.0), steps=30, recorder=pt.training.Every())
    for k in range(30):
        step = run.weight(k + 1) - run.weight(k)
        reading = eqx.filter_jit(pt.read)(setting, jnp.asarray(run.weight(k)))
        slope = np.asarray(reading.slope) * np.exp(float(reading.log_scale - reading.log_excess))
        rounding = 1e-14 * (1 + run.norm[k] * np.linalg.norm(slope))
        assert np.vdot(slope, step) == pytest.approx(-0.5, abs=rounding)
        assert np.linalg.norm(step) == pytest.approx(0.5 / np.linalg.norm(slope), abs=1e-14 * (1 + run.norm[k]))


def pair_of_tokens():
    """n = 1, T = 2, scores 0.7 and -0.4: margin m, attention s = 1/(1 + e^-m), deficit D (1 - s) with D = 1.1."""
    data = TokenSelection([[[1.0, 2.0], [-0.5, 0.3]]], scores=[[0.7, -0.4]])
    return data, np.linalg.norm(features(data)[0])


def test_one_pair_normalised_margin_is_linear_in_time():  # item 3
    data, size = pair_of_tokens()
    run = pt.train(gram(data), pt.normalised_descent(0.3), steps=500, recorder=pt.training.Every())
    assert np.allclose(run.margins[:, 0], 0.3 * size * run.steps, rtol=1e-13, atol=1e-15)


def test_one_pair_polyak_margin_follows_its_recursion():  # item 3
    data, _ = pair_of_tokens()
    run = pt.train(gram(data), pt.polyak(1.5), steps=100, recorder=pt.training.Every())
    m = run.margins[:-1, 0]
    s, deficit = 1 / (1 + np.exp(-m)), 1.1 / (1 + np.exp(m))
    assert np.allclose(run.margins[1:, 0], m + 1 / (1.5 * h(deficit) * s), rtol=1e-13, atol=0)


def test_one_pair_gradient_descent_margin_follows_its_recursion():  # item 3
    data, size = pair_of_tokens()
    run = pt.train(gram(data), pt.gradient_descent(0.8), steps=200, recorder=pt.training.Every())
    m = run.margins[:-1, 0]
    s, rest = 1 / (1 + np.exp(-m)), 1 / (1 + np.exp(m))
    wanted = m + 0.8 * size**2 * 1.1 * np.exp(-0.7 + 1.1 * rest) * s * rest
    assert np.allclose(run.margins[1:, 0], wanted, rtol=1e-13, atol=0)


def test_symmetric_tokens_follow_the_optimal_direction_from_the_first_step():  # item 3
    tokens = np.zeros((1, 5, 5))
    tokens[0, np.arange(5), np.arange(5)] = [1.5, 0.8, 0.8, 0.8, 0.8]
    data = TokenSelection(tokens, scores=[[1.0, 0.0, 0.0, 0.0, 0.0]])
    best = pt.references.max_margin(data)
    run = pt.train(gram(data), pt.normalised_descent(0.1), steps=300)
    assert np.allclose(run.margins, 0.1 * run.steps[:, None] / best.value, rtol=1e-12, atol=1e-15)
    assert np.nanmax(misalignments(run, best)) <= 1e-27  # zero up to the square of the rounding of a direction


@pytest.mark.parametrize("optimiser", ["ngd-logistic", "polyak", "momentum"])
def test_sharp_constant_is_reached(optimiser):  # item 5 and 4.2
    best = pt.references.max_margin(NEARLY_ORTHOGONAL)
    rule, loss, steps = {
        "ngd-logistic": (pt.normalised_descent(0.05), pt.Logistic(), 10_000),
        "polyak": (pt.polyak(), pt.Exponential(), 4000),
        "momentum": (pt.momentum(0.05), pt.Exponential(), 10_000),
    }[optimiser]
    predicted = sharp_constant(NEARLY_ORTHOGONAL, best.dual, type(loss).__name__)
    assert predicted == pytest.approx(0.0478075401, abs=5e-11)  # equal best scores: the same for every loss
    run = pt.train(gram(NEARLY_ORTHOGONAL, loss=loss), rule, steps=steps, recorder=pt.training.At(()))
    found = run.norm[-1] ** 2 * misalignment(run.weight(), best.weight)
    assert found == pytest.approx(predicted, rel=1e-6)  # an independent run had 1e-7 at these steps


@pytest.mark.parametrize(
    "loss", [pt.Exponential(), pt.Logistic(), pt.settings.Correlation()], ids=lambda loss: type(loss).__name__
)
def test_sharp_constant_without_equal_scores_depends_on_the_loss(loss):  # item 5
    scores = np.random.default_rng(1).uniform(0, 0.5, NEARLY_ORTHOGONAL.scores.shape)
    scores[np.arange(10), np.asarray(NEARLY_ORTHOGONAL.optimal)] = np.random.default_rng(2).uniform(1, 1.5, 10)
    data = TokenSelection(np.asarray(NEARLY_ORTHOGONAL.tokens), scores=scores)
    best = pt.references.max_margin(data)
    predicted = {name: sharp_constant(data, best.dual, name) for name in ("Exponential", "Logistic", "Correlation")}
    run = pt.train(gram(data, loss=loss), pt.polyak(), steps=4000, recorder=pt.training.At(()))
    found = run.norm[-1] ** 2 * misalignment(run.weight(), best.weight)
    name = type(loss).__name__
    assert found == pytest.approx(predicted.pop(name), rel=1e-6)
    assert all(abs(found / other - 1) > 1e-3 for other in predicted.values())  # so the test can tell the losses apart


def test_sharp_constant_with_a_random_start_adds_the_frozen_part():  # item 5
    origin = 1e-2 * np.random.default_rng(0).standard_normal(NEARLY_ORTHOGONAL.weight_shape)
    setting = gram(NEARLY_ORTHOGONAL, origin)
    z = features(NEARLY_ORTHOGONAL)
    outside = origin.ravel() - np.linalg.lstsq(z.T, origin.ravel(), rcond=None)[0] @ z
    best = pt.references.max_margin(NEARLY_ORTHOGONAL)
    run = pt.train(setting, pt.normalised_descent(0.05), steps=6000, recorder=pt.training.At(()))
    found = run.norm[-1] ** 2 * misalignment(run.weight(), best.weight)
    predicted = sharp_constant(NEARLY_ORTHOGONAL, best.dual, frozen=outside @ outside)
    assert predicted > 4
    assert found == pytest.approx(predicted, rel=1e-4)  # an independent run had 2.5e-5 at 6000 steps


@pytest.mark.slow
def test_descent_and_flow_share_their_path_up_to_the_step():  # item 6
    best = pt.references.max_margin(HARD)
    flow = pt.train(
        gram(HARD), pt.GradientFlow(tolerance=1e-9, margin_tolerance=1e-7), until=pt.training.NormAbove(5.0)
    )
    target = misalignment(flow.weight(), best.weight)
    errors = []
    for length in (0.01, 0.1):
        run = pt.train(gram(HARD), pt.normalised_descent(length), steps=round(8 / length), recorder=pt.training.Every())
        curve = misalignments(run, best)
        errors.append(abs(np.interp(5.0, run.norm[1:], curve[1:]) / target - 1))
    assert errors[0] < 1.6e-3  # twice the 8e-4 of an independent run
    assert errors[1] < 1.6e-2
    assert 5 < errors[1] / errors[0] < 20  # linear in the step


@pytest.mark.parametrize("data", [NEARLY_ORTHOGONAL, HARD], ids=["nearly orthogonal", "hard"])
@pytest.mark.parametrize("name", ["ngd", "polyak"])
def test_the_margin_is_bracketed_at_every_step(data, name):  # item 7
    best = pt.references.max_margin(data).margin
    run = pt.train(gram(data), OPTIMISERS[name], steps=300, recorder=pt.training.Every())
    matrix = features(data) @ features(data).T
    for k in range(1, len(run)):
        q = np.maximum(run.weights[k], 0) / np.maximum(run.weights[k], 0).sum()
        assert run.weights[k].min() >= 0  # equal scores: the weights are a dual point
        assert run.margins[k].min() / run.norm[k] <= best + 1e-12
        assert best <= np.sqrt(q @ matrix @ q) + 1e-12


def test_symmetries_leave_the_curves_alone():  # item 8
    rng = np.random.default_rng(5)
    data = signal_tokens(6, 4, 20, 1.0)
    tokens, scores = np.asarray(data.tokens), np.asarray(data.scores)
    samples, rest = rng.permutation(6), np.concatenate([[0], 1 + rng.permutation(3)])
    rotation = np.linalg.qr(rng.standard_normal((20, 20)))[0]
    variants = {
        "samples permuted": TokenSelection(tokens[samples], scores=scores[samples]),
        "tokens permuted": TokenSelection(tokens[:, rest], scores=scores[:, rest]),
        "rotated": TokenSelection(tokens @ rotation.T, scores=scores),
    }
    curve = lambda one: misalignments(
        pt.train(gram(one), pt.normalised_descent(0.1), steps=2000), pt.references.max_margin(one)
    )[1:]
    wanted = curve(data)
    for name, variant in variants.items():
        assert np.abs(curve(variant) / wanted - 1).max() <= 1e-10, (
            name
        )  # 5e-14 of an independent run, times the condition of 1 - corr here


def test_rescaling_tokens_rescales_the_reference():  # item 8
    data = signal_tokens(6, 4, 20, 1.0)
    scaled = TokenSelection(3.0 * np.asarray(data.tokens), scores=np.asarray(data.scores))
    one, other = pt.references.max_margin(data).weight, pt.references.max_margin(scaled).weight
    assert np.abs(9 * other - one).max() <= 1e-14 * np.abs(one).max()


def test_norm_bounds_and_monotone_attention_of_normalised_descent():  # item 9, the part that needs no theorem
    eta, best = 0.05, pt.references.max_margin(NEARLY_ORTHOGONAL)
    run = pt.train(gram(NEARLY_ORTHOGONAL), pt.normalised_descent(eta), steps=4000, recorder=pt.training.Every(4))
    bound = np.linalg.norm(np.asarray(NEARLY_ORTHOGONAL.tokens), axis=-1).max() ** 2
    assert (run.norm <= eta * run.steps * (1 + 1e-12)).all()  # Lemma 7
    assert (run.norm >= eta * run.steps / (2 * bound * best.value) * (1 - 1e-12)).all()
    attention = optimal_attention(run)
    below = attention[:-1] < 0.5
    assert (np.diff(attention, axis=0)[below] >= 0).all()
    # Lemma 6: <-slope, V/|V|> >= |slope| / (2 B^2 |V|), from the weights and the Gram matrix.
    z = features(NEARLY_ORTHOGONAL)
    slopes = run.weights[::20] @ z
    along = slopes @ best.weight.ravel() / best.value
    assert (along >= np.linalg.norm(slopes, axis=1) / (2 * bound * best.value) * (1 - 1e-12)).all()


def test_log_attention_falls_by_eta_over_the_norm_each_step():  # 6.1
    best = pt.references.max_margin(NEARLY_ORTHOGONAL)
    run = pt.train(gram(NEARLY_ORTHOGONAL), pt.normalised_descent(0.05), steps=4000, recorder=pt.training.At((2000,)))
    slope = (run.log_excess[-1] - run.log_excess[1]) / 2000
    assert slope * best.value == pytest.approx(-0.05, abs=5e-5)  # the table gives four digits


@pytest.mark.parametrize("name", OPTIMISERS)
def test_the_weight_moves_only_inside_the_span_of_the_features(name):  # item 10
    origin = np.random.default_rng(0).standard_normal(SMALL.weight_shape)
    run = pt.train(pt.Setting(SMALL, pt.Direct(), pt.Exponential()), OPTIMISERS[name], jnp.asarray(origin), steps=100)
    moved = (run.weight() - origin).ravel()
    basis = np.linalg.svd(features(SMALL), full_matrices=False)[2][: np.linalg.matrix_rank(features(SMALL))]
    assert np.linalg.norm(moved - basis.T @ (basis @ moved)) <= 1e-12 * run.norm[-1]
