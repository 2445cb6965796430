"""Accumulators in logarithms, Newton-Schulz steps, decay of steps and weights, minibatches: identities, to rounding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import penchant as pt
from penchant.errors import ArgumentError, PenchantWarning
from penchant.logspace import signed_matmul, to_signed
from penchant.norms import Linf
from penchant.optimisers.base import Adam, Decayed, Minibatches, muon, sign_descent, signum, steepest
from penchant.optimisers.newton_schulz import NewtonSchulz, orthogonalise, spread
from penchant.papers.which_margin.adam import steady_rate, steady_ratio
from penchant.problem import Reading, read
from penchant.settings.generators import clusters
from penchant.settings.losses import CrossEntropy
from penchant.training.events import Every

ONE = pt.Setting(pt.Classification([[2.0]], [1]), pt.Direct(), pt.Exponential())
MANY = pt.Setting(clusters(4, 8, 12, 1.0, 0), pt.Direct(), CrossEntropy())
RNG = np.random.default_rng(0)


def reading(log_scale, slope):
    none = jnp.zeros(())
    return Reading(none, jnp.asarray(log_scale), jnp.asarray(slope), jnp.zeros(1), jnp.zeros(1), none)


def test_nothing_underflows_at_margin_a_million():
    for rule in (Adam(0.5, 0.0, b1=0.0, b2=0.0), signum(0.5), muon(0.5)):
        run = pt.train(ONE, rule, steps=1_000_000)
        assert run.status.name == "out_of_steps"
        assert float(run.margins[-1, 0]) == pytest.approx(1e6, rel=1e-12)


def test_averages_survive_a_gradient_that_falls_by_a_thousand_powers_of_e():
    for rule in (Adam(1.0, 0.0), signum(1.0)):
        memory = rule.init((jnp.ones(2), jnp.zeros(1)))
        for count, scale in enumerate((0.0, -1000.0, -3000.0)):
            move = rule.move(reading(scale, [1.0, -1.0]), memory, jnp.asarray(count))
            memory = move.memory
            assert np.isfinite(move.displacement).all()
            assert np.sign(move.displacement).tolist() == [1.0, -1.0]


def test_adam_in_a_steady_state_has_the_ratio_of_the_law():
    b1, b2 = 0.9, 0.99
    rate = 0.8 * -np.log(b2) / 2
    rule = Adam(1.0, 0.0, b1, b2)

    def step(memory, count):
        move = rule.move(reading(-rate * count, [1.0]), memory, count)
        return move.memory, move.displacement[0]

    steps = jnp.arange(int(20 / (1 - b2 * np.exp(2 * rate))))
    ratios = jax.lax.scan(step, rule.init((jnp.ones(1), jnp.zeros(1))), steps)[1]
    assert float(ratios[-1]) == pytest.approx(steady_ratio(rate, b1, b2), rel=1e-6)
    assert steady_rate(0.1 * 3.4419589, 0.5, 0.9) == pytest.approx(0.051669, abs=1e-6)
    assert steady_rate(0.01 * 3.4419589, 0.5, 0.9) == pytest.approx(0.025640, abs=1e-6)


def test_the_logarithm_of_epsilon_is_a_number_like_any_other():
    turned = pt.train(ONE, Adam(0.5, b1=0.0, b2=0.0, log_eps=-900.0), steps=3000)
    assert 900 < float(turned.margins[-1, 0]) < 915  # afterwards steps shrink like e^-m / eps
    same = [pt.train(ONE, Adam(0.5, **eps), steps=50).params for eps in ({"eps": 1e-8}, {"log_eps": np.log(1e-8)})]
    assert np.array_equal(*same)
    for wrong in ({}, {"eps": 0.1, "log_eps": 0.1}, {"eps": -1.0}, {"log_eps": np.inf}):
        with pytest.raises(ArgumentError, match="eps"):
            Adam(0.5, **wrong)


def test_a_factor_on_the_loss_changes_epsilon_and_nothing_else():
    total = pt.Setting(MANY.data, pt.Direct(), CrossEntropy(), "sum")
    for rule in (steepest(0.1, Linf(), 0.5), signum(0.1), muon(0.1), muon(0.1, orthogonaliser="ns5"), Adam(0.1, 0.0)):
        one, other = (pt.train(setting, rule, steps=40).params for setting in (MANY, total))
        assert np.abs(one - other).max() < 1e-11
    one = pt.train(MANY, Adam(0.1, 1e-2), steps=40).params
    assert np.abs(one - pt.train(total, Adam(0.1, 12e-2), steps=40).params).max() < 1e-11


def test_newton_schulz_steps_map_singular_values_and_are_odd_and_scale_free():
    for shape in ((4, 8), (8, 4)):
        matrix = RNG.standard_normal(shape)
        left, sizes, right = np.linalg.svd(matrix, full_matrices=False)
        wanted = (left * spread(sizes / np.linalg.norm(sizes))) @ right
        steps = NewtonSchulz().direction(jnp.asarray(1e-9 * matrix), jnp.ones(()))
        assert np.abs(steps - wanted).max() < 1e-13
        assert np.abs(orthogonalise(jnp.asarray(-matrix / 9)) + orthogonalise(jnp.asarray(matrix / 9))).max() < 1e-14
    x = np.linspace(1e-5, 1, 100_001)
    assert spread(x).max() == pytest.approx(1.2023686, abs=1e-5)
    assert spread(x[x > 0.001506]).min() == pytest.approx(0.6818315, abs=1e-6)
    assert float(spread(np.array(1e-12)) / 1e-12) == pytest.approx(484.876287, rel=1e-8)
    tiny = NewtonSchulz(np.log(1e-7)).at(jnp.array(-200.0)).direction(jnp.asarray(matrix), jnp.ones(()))
    assert np.asarray(tiny) == pytest.approx(484.876287 * matrix * np.exp(-200.0) / 1e-7, rel=1e-8)


def test_polar_steps_leave_the_direction_of_all_classes_alone():
    run = pt.train(MANY, muon(0.3, 0.0, 0.5), steps=3000)
    assert np.abs(run.weight().sum(axis=0)).max() < 1e-11
    assert np.abs(pt.train(MANY, sign_descent(0.3, 0.5), steps=200).weight().sum(axis=0)).max() > 1


def test_decay_is_frank_wolfe_and_keeps_the_ball():
    rule = Decayed(sign_descent(0.5, 1.0), 2.0)
    run = pt.train(MANY, rule, steps=50, recorder=Every())
    weight = np.zeros(MANY.data.weight_shape)
    for step in range(50):
        share = 1 / (step + 1)
        corner = -0.5 * np.sign(np.asarray(read(MANY, jnp.asarray(weight)).slope))
        weight = (1 - share) * weight + share * corner
        assert np.abs(run.params[step + 1] - weight).max() < 1e-14
    assert np.abs(run.params).max() <= 0.5 + 1e-15
    with pytest.raises(ArgumentError, match="weight_decay"):
        Decayed(sign_descent(0.5), 3.0)


def test_batches_are_means_over_their_samples_and_a_whole_one_is_all():
    rule = Minibatches(sign_descent(0.01), 4, seed=3)
    seen = [rule.look(MANY, MANY.start(1, 0.5), jnp.asarray(count)) for count in range(3)]
    whole = read(MANY, MANY.start(1, 0.5))
    losses = [float(np.exp(one.log_excess)) for one in seen]
    assert np.mean(losses) == pytest.approx(float(np.exp(whole.log_excess)), rel=1e-12)
    gradient = lambda one: np.exp(float(one.log_scale)) * np.asarray(one.slope)
    assert np.mean([gradient(one) for one in seen], axis=0) == pytest.approx(gradient(whole), rel=1e-10, abs=1e-15)
    full = pt.train(MANY, Minibatches(sign_descent(0.01), 12), steps=30).params
    assert np.array_equal(full, pt.train(MANY, sign_descent(0.01), steps=30).params)
    assert pt.train(MANY, rule, steps=300).log_excess[-1] < -1


def test_coordinates_know_signs_below_any_float_and_count_what_is_undecided():
    found = read(MANY, MANY.start(0, 0.3)).coordinates
    plain = to_signed(read(MANY, MANY.start(0, 0.3)).slope)
    assert np.array_equal(found.sign, plain.sign)
    assert np.abs(found.log - plain.log).max() < 1e-12
    even = signed_matmul(jnp.zeros((2, 1)), jnp.array([[1.0], [-1.0]]), jnp.array([[3.0, 1.0], [3.0, 2.0]]))
    assert even.sign.tolist() == [[0.0, -1.0]]


def test_steps_that_sum_to_something_finite_are_warned_of():
    with pytest.warns(PenchantWarning, match=r"t\^-1.5"):
        sign_descent(0.1, 1.5)
    for wrong in (lambda: sign_descent(0.1, -0.5), lambda: muon(0.1, orthogonaliser="svd"), lambda: muon(0.1, eps=0.1)):
        with pytest.raises(ArgumentError):
            wrong()
