"""Every optimiser against a plain float64 loop on the loss itself, while the loss is representable."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import penchant as pt
from penchant.errors import ArgumentError
from penchant.settings.generators import random_tokens, separable
from problems import infimum, loss_and_gradient

STEPS = 60
PROBLEMS = {
    "classification": (separable(8, 3), pt.Exponential()),
    "tokens": (random_tokens(4, 3, 4, 1), pt.Logistic()),
}


def descend(problem, advance, start):
    """theta and an arbitrary state, driven by (L, grad L, L - L*) of the mean loss in plain float64."""
    data, loss = problem
    name = type(loss).__name__
    n = len(np.asarray(data.signed)) if hasattr(data, "signed") else len(np.asarray(data.tokens))
    weight, state, path = np.array(start), None, [np.array(start)]
    for _ in range(STEPS):
        value, gradient = loss_and_gradient(data, weight, name)
        step, state = advance(gradient / n, (value - infimum(data, name)) / n, state)
        weight = weight - step
        path.append(weight)
    return np.array(path)


def capped(multiplier, cap):
    return min(multiplier, cap)


def heavy_ball(gradient, excess, velocity):
    velocity = 0.9 * (0 if velocity is None else velocity) + 0.1 * gradient / np.linalg.norm(gradient)
    return velocity, velocity


def accelerated(gradient, excess, state):
    age, v = state or (0, 0.0)
    slope = gradient / excess
    v = (v + slope) * (age / (age + 1))
    return 0.05 * (v + slope), (age + 1, v)


def signum(gradient, excess, average):
    average = 0.9 * (0 if average is None else average) + 0.1 * gradient
    return 0.03 * np.sign(average), average


def muon(gradient, excess, average):
    average = 0.95 * (0 if average is None else average) + 0.05 * gradient
    if average.ndim == 1:
        return 0.03 * average / np.linalg.norm(average), average
    left, _, right = np.linalg.svd(average, full_matrices=False)
    return 0.03 * left @ right, average


RULES = {
    "gradient_descent": (pt.gradient_descent(0.3), lambda g, e, s: (0.3 * g, s)),
    "normalised": (pt.normalised_descent(0.1), lambda g, e, s: (0.1 * g / np.linalg.norm(g), s)),
    "normalised_capped": (
        pt.normalised_descent(0.1, cap=0.5),
        lambda g, e, s: (capped(0.1 / np.linalg.norm(g), 0.5) * g, s),
    ),
    "momentum": (pt.momentum(0.1), heavy_ball),
    "polyak": (pt.polyak(3.0), lambda g, e, s: (e / (3 * np.vdot(g, g)) * g, s)),
    "polyak_capped": (pt.polyak(1.0, cap=0.7), lambda g, e, s: (capped(e / np.vdot(g, g), 0.7) * g, s)),
    "sign": (pt.sign_descent(0.03), lambda g, e, s: (0.03 * np.sign(g), s)),
    "signum": (pt.optimisers.signum(0.03), signum),
    "muon": (pt.optimisers.muon(0.03), muon),
    "accelerated": (pt.Accelerated(0.05), accelerated),
}


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("rule", RULES)
def test_optimiser_follows_the_plain_loop(problem, rule):
    optimiser, advance = RULES[rule]
    data, loss = PROBLEMS[problem]
    setting = pt.Setting(data, pt.Direct(), loss)
    start = setting.start(seed=7, scale=0.3)
    run = pt.train(setting, optimiser, start, steps=STEPS, recorder=pt.training.Every())
    wanted = descend(PROBLEMS[problem], advance, np.asarray(start))
    assert len(run) == STEPS + 1
    # The plain loop forms L - L*, which loses four digits before the excess falls to 1e-4: sixty steps of 1e-12 each.
    fair = run.log_excess > np.log(1e-4)
    fair[1:] = fair[:-1].copy()  # a record depends on the readings before it
    assert fair.sum() > 10
    assert np.abs(run.params - wanted)[fair].max() <= 1e-10 * np.abs(wanted[fair]).max()


@pytest.mark.parametrize("eps", [0.0, 1e-8, 1e-2])
@pytest.mark.parametrize("problem", ["classification", "tokens"])
def test_adam_follows_optax(problem, eps):
    data, loss = PROBLEMS[problem]
    setting = pt.Setting(data, pt.Direct(), loss)
    start = setting.start(seed=7, scale=0.3)
    run = pt.train(setting, pt.Adam(0.05, eps, b1=0.8, b2=0.95), start, steps=200, recorder=pt.training.Every())
    reference = optax.adam(0.05, b1=0.8, b2=0.95, eps=eps)
    weight, n = np.asarray(start), setting.samples
    state = reference.init(jnp.asarray(weight))
    for record in range(1, 201):
        gradient = loss_and_gradient(data, weight, type(loss).__name__)[1] / n
        update, state = reference.update(jnp.asarray(gradient), state)
        weight = weight + np.asarray(update)
        assert np.abs(run.params[record] - weight).max() <= 1e-11 * np.abs(weight).max(), (
            record
        )  # 1e-13 measured, amplified near sign flips


def test_adam_without_eps_keeps_going_after_the_loss_has_underflowed():
    # One feature: every step is `step` in size (b1 = 0, b2 = 0), so the margin after k steps is known exactly.
    setting = pt.Setting(pt.Classification([[2.0]], [1]), pt.Direct(), pt.Exponential())
    run = pt.train(setting, pt.Adam(0.5, 0.0, b1=0.0, b2=0.0), steps=2000)
    assert run.status.name == "out_of_steps"
    assert float(run.margins[-1, 0]) == pytest.approx(2000.0, rel=1e-12)


def test_adam_with_eps_stands_still_once_the_gradient_is_far_below_eps():
    setting = pt.Setting(pt.Classification([[2.0]], [1]), pt.Direct(), pt.Exponential())
    run = pt.train(setting, pt.Adam(0.5, 1e-8, b1=0.0, b2=0.0), steps=2000)
    assert run.status.name == "out_of_steps"
    assert (
        18 < float(run.margins[-1, 0]) < 40
    )  # e^-m falls below eps at m = 18.4; afterwards steps shrink like e^-m / eps


@pytest.mark.parametrize("rule", ["normalised", "momentum", "polyak", "accelerated"])
def test_scale_free_rules_do_not_see_a_constant_factor_on_the_loss(rule):
    data, loss = PROBLEMS["tokens"]
    settings = (pt.Setting(data, pt.Direct(), loss, reduction) for reduction in ("mean", "sum"))
    mean, total = (pt.train(setting, RULES[rule][0], steps=200).params for setting in settings)
    # The factor n enters as log n only, and cancels: identical up to the rounding of that sum.
    assert np.abs(mean - total).max() <= 1e-12 * np.abs(mean).max()


def test_gradient_descent_sees_the_factor_as_a_step_size():
    data, loss = PROBLEMS["classification"]
    one = pt.train(pt.Setting(data, pt.Direct(), loss, "sum"), pt.gradient_descent(0.05), steps=100)
    other = pt.train(pt.Setting(data, pt.Direct(), loss, "mean"), pt.gradient_descent(0.4), steps=100)
    assert np.abs(one.params - other.params).max() <= 1e-13 * np.abs(one.params).max()


def test_cap_is_reported_at_its_first_step():
    data = pt.Classification([[1.0]], [1])
    run = pt.train(pt.Setting(data, pt.Direct(), pt.Exponential()), pt.normalised_descent(1.0, cap=100.0), steps=20)
    # |grad L| = e^-m with m = k at step k: the multiplier e^k passes 100 first at k = 5.
    assert run.header["first_capped"] == 5
    assert float(run.params[-1, 0]) < 20


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: pt.gradient_descent(0.0), "step"),
        (lambda: pt.gradient_descent(-1.0), "step"),
        (lambda: pt.gradient_descent(np.nan), "step"),
        (lambda: pt.gradient_descent([0.1, -0.1]), "step"),
        (lambda: pt.normalised_descent(-0.1), "length"),
        (lambda: pt.normalised_descent(0.1, cap=0.0), "cap"),
        (lambda: pt.momentum(0.1, beta=1.0), "beta"),
        (lambda: pt.momentum(0.1, beta=-0.1), "beta"),
        (lambda: pt.polyak(0.0), "c"),
        (lambda: pt.polyak(1.0, cap=-1.0), "cap"),
        (lambda: pt.sign_descent(0.0), "length"),
        (lambda: pt.Accelerated(-1.0), "step"),
        (lambda: pt.Adam(-1.0, 0.0), "step"),
        (lambda: pt.Adam(0.1, -1.0), "eps"),
        (lambda: pt.Adam(0.1, 0.0, b1=1.0), "b1"),
        (lambda: pt.Adam(0.1, 0.0, b2=-0.1), "b2"),
    ],
)
def test_bad_hyperparameters_are_named(make, argument):
    with pytest.raises(ArgumentError, match=f"The '{argument}' argument") as caught:
        make()
    assert caught.value.argument == argument


@pytest.mark.parametrize(
    "make",
    [lambda: pt.gradient_descent("fast"), lambda: pt.normalised_descent(None), lambda: pt.gradient_descent([[0.1]])],
)
def test_hyperparameters_that_are_not_numbers_are_named(make):
    with pytest.raises(ArgumentError, match="argument of"):
        make()


def test_gradient_descent_takes_neither_momentum_nor_cap():
    with pytest.raises(ArgumentError, match="'cap' argument of gradient_descent"):
        pt.gradient_descent(0.1, cap=1.0)


def test_adam_leaves_a_coordinate_alone_that_has_no_gradient():
    """As every eps > 0 does: without one the quotient would be 0/0."""
    data = pt.Classification([[2.0, 0.0, 1.0], [0.0, 0.0, 1.0]], [1, 1])
    setting = pt.Setting(data, pt.Direct(), pt.Exponential())
    run = pt.train(setting, pt.Adam(0.1, eps=0.0), [0.5, 0.25, 0.0], steps=40)
    with_eps = pt.train(setting, pt.Adam(0.1, eps=1e-30), [0.5, 0.25, 0.0], steps=40)
    assert run.status.name == "out_of_steps"
    assert run.weight()[1] == 0.25
    assert run.weight() == pytest.approx(with_eps.weight(), rel=1e-12)
