"""Population training: against a plain loop, the published numbers, statuses, and symmetries."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg as sl

from penchant.errors import ArgumentError, DivergedRun
from penchant.files import read_npz
from penchant.papers.attention_regression.setting.geometry import GEOMETRIES, balanced_point
from penchant.papers.attention_regression.setting.problem import (
    AbstractBalance,
    AttentionLayer,
    AttentionRegression,
    Balance,
    ScaleFreeBalance,
    Unregularised,
)
from penchant.papers.attention_regression.setting.sample import (
    attention_experiment,
    prescribed_spectrum,
    spectral_layer,
)
from penchant.papers.attention_regression.training.algorithm1 import (
    train_attention,
    train_population,
    train_populations,
)
from penchant.papers.attention_regression.training.rules import PreconditionedDescent
from penchant.papers.attention_regression.training.sources import Population
from penchant.training.events import At, Every
from penchant.training.status import Status

EXPERIMENT = attention_experiment(n=10_000)


def plain_loop(experiment, geometry, step, steps, regularised=True):
    """The layer after some steps, with gradients in U and V and explicit inverses."""
    covariance, planted = np.asarray(experiment.problem.covariance), np.asarray(experiment.problem.planted)
    inverse = np.linalg.inv(covariance)
    u, v = np.asarray(experiment.start.value), np.asarray(experiment.start.key_query)
    for _ in range(steps):
        error, gap = u @ covariance @ v - planted, u.T @ u - v @ covariance @ v.T
        gap = gap * float(regularised)
        by_u = 2 * error @ covariance @ v.T @ covariance + u @ covariance @ gap @ covariance
        by_v = 2 * covariance @ u.T @ error @ covariance - covariance @ gap @ covariance @ v @ covariance
        if geometry == "left":
            by_v = by_v @ inverse
        if geometry == "two_sided":
            by_u, by_v = by_u @ inverse, inverse @ by_v @ inverse
        u, v = u - step * by_u, v - step * by_v
    return np.sum(((u @ covariance @ v - planted) @ sl.sqrtm(covariance).real) ** 2)


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_a_run_is_the_plain_loop(geometry):
    run = train_population(EXPERIMENT.problem, PreconditionedDescent(geometry, 0.1), EXPERIMENT.start, steps=200)
    assert run.excess[-1] == pytest.approx(plain_loop(EXPERIMENT, geometry, 0.1, 200), rel=1e-9)
    layer = run.at()
    assert float(EXPERIMENT.problem.excess(layer)) == pytest.approx(run.excess[-1], rel=1e-9)


PUBLISHED = {
    "two_sided": (35.2732, 0.0571674, 0.00294268, 1.09951e-4, 3.79066e-5, 9.62383e-6),
    "left": (35.2732, 0.12139, 0.0193788, 0.0060702, 0.00232403, 5.85679e-4),
    "euclidean": (35.2732, 0.161292, 0.0343907, 0.00560956, 0.0021638, 0.00137758),
}


@pytest.mark.parametrize("geometry", PUBLISHED)
def test_noise_free_figure(geometry):
    balance = Unregularised() if geometry == "euclidean" else None
    rule = PreconditionedDescent(geometry, 0.1, balance)
    found = train_population(
        EXPERIMENT.problem, rule, EXPERIMENT.start, steps=2000, recorder=At((10, 100, 500, 1000, 2000))
    )
    assert found.excess == pytest.approx(PUBLISHED[geometry], rel=5e-6)


def test_a_diverging_run_keeps_its_last_finite_state_and_names_the_safe_step():
    experiment = attention_experiment(seed=1, n=10_000)
    rule = PreconditionedDescent("two_sided", 0.1)
    run = train_population(experiment.problem, rule, experiment.start, steps=100)
    assert run.status is Status.diverging_step
    assert np.isfinite(run.whitened).all()
    assert np.isfinite(run.excess).all()
    last = int(run.steps[-1])
    assert run.excess[-1] == pytest.approx(plain_loop(experiment, "two_sided", 0.1, last), rel=1e-6)
    assert np.linalg.norm(run.whitened[-1]) < 1e6
    assert train_population(experiment.problem, rule, experiment.start, steps=last).status is Status.out_of_steps
    assert train_population(experiment.problem, rule, experiment.start, steps=last + 1).steps[-1] == last
    sparse = train_population(experiment.problem, rule, experiment.start, steps=100, recorder=At((50,)))
    assert np.array_equal(sparse.steps, [0, last])
    assert np.array_equal(sparse.whitened[-1], run.whitened[-1])
    assert run.safe_step == pytest.approx(0.016, abs=5e-4)
    with pytest.raises(DivergedRun) as caught:
        train_attention(Population(experiment.problem), rule, experiment.start, steps=100, throw=True)
    assert caught.value.run.steps[-1] == run.steps[-1] < 100
    assert np.asarray(caught.value.run.at().value) == pytest.approx(np.asarray(run.at().value), rel=1e-6)
    assert "0.016" in str(caught.value)
    safe = PreconditionedDescent("two_sided", run.safe_step)
    assert train_population(experiment.problem, safe, experiment.start, steps=500).status is Status.out_of_steps


def test_adaptive_steps_descend_from_anywhere(rng):
    problem = EXPERIMENT.problem
    starts = [
        AttentionLayer(size * rng.standard_normal((10, 5)), size * rng.standard_normal((5, 5)))
        for size in np.geomspace(0.1, 30, 12)
    ]
    for geometry in GEOMETRIES:
        rule = PreconditionedDescent(geometry, "adaptive")
        for run in train_populations(problem, rule, starts, steps=100, recorder=Every(1)):
            total = run.excess + run.regulariser
            assert (np.diff(total) <= 1e-12 * total[:-1]).all()


def moved_problem(problem, layer, change):
    """The same problem for x -> T x."""
    inverse = np.linalg.inv(change)
    covariance = change @ np.asarray(problem.covariance) @ change.T
    moved = AttentionRegression(covariance, np.asarray(problem.planted) @ inverse)
    return moved, AttentionLayer(np.asarray(layer.value) @ inverse, inverse.T @ np.asarray(layer.key_query) @ inverse)


def test_two_sided_training_is_affine_equivariant_and_left_is_not(rng):
    problem = prescribed_spectrum(4, (0.05, 0.03, 0.01), 5.0, 2)
    layer = problem.unwhiten(jnp.asarray(balanced_point(problem) + 0.1 * rng.standard_normal((7, 3))))
    other, there = moved_problem(problem, layer, rng.standard_normal((3, 3)))
    for geometry, same in (("two_sided", True), ("left", False)):
        rule = PreconditionedDescent(geometry, 0.5)
        first, second = (
            train_population(one, rule, start, steps=30, recorder=Every(1))
            for one, start in ((problem, layer), (other, there))
        )
        difference = np.abs(second.excess / first.excess - 1).max()
        assert bool(difference < 1e-10) is same
        assert same or difference > 0.01


def test_the_gauge_group_commutes_with_two_sided_steps(rng):
    problem = prescribed_spectrum(4, (0.05, 0.03, 0.01), 5.0, 2)
    whitened = balanced_point(problem) + 0.1 * rng.standard_normal((7, 3))
    turn = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    rule = PreconditionedDescent("two_sided", 1.0)
    plain, turned = (
        train_population(problem, rule, problem.unwhiten(jnp.asarray(one)), steps=20)
        for one in (whitened, whitened @ turn)
    )
    assert np.abs(plain.whitened[-1] @ turn - turned.whitened[-1]).max() < 1e-14
    stretched = np.concatenate([1.5 * whitened[:4], whitened[4:] / 1.5])
    scaled = problem.unwhiten(jnp.asarray(stretched))
    assert float(problem.excess(scaled)) == pytest.approx(float(problem.whitened_excess(jnp.asarray(whitened))))
    assert float(problem.regulariser(scaled)) > 1.1 * float(problem.whitened_regulariser(jnp.asarray(whitened)))


def test_the_logit_limit_holds_at_every_step_and_the_excess_still_vanishes(rng):
    """With s_1 = 1.5 the balanced minima have logits of norm 1.22; scale moves to U instead."""
    problem = prescribed_spectrum(4, (1.5, 1.0, 0.5), 3.0, 2)
    layer = problem.unwhiten(jnp.asarray(0.5 * rng.standard_normal((7, 3))))
    rule = PreconditionedDescent("two_sided", "adaptive", ScaleFreeBalance(), logit_limit=0.4)
    run = train_population(problem, rule, layer, steps=15_000)
    sizes = np.linalg.norm(run.whitened[1:, 4:], 2, axis=(1, 2))
    assert sizes.max() <= 0.4 * (1 + 1e-12)
    assert run.excess[-1] < 1e-20
    assert run.regulariser[-1] < 1e-20
    free = train_population(problem, PreconditionedDescent("two_sided", "adaptive"), layer, steps=3000)
    assert np.linalg.norm(free.whitened[-1, 4:], 2) == pytest.approx(np.sqrt(1.5), rel=1e-6)


@pytest.mark.parametrize("step", ["default", "adaptive"])
def test_steps_of_the_scale_free_regulariser_are_those_of_the_balanced_layer(rng, step):
    """At (4 U, V/4) the curvature by V is 16 times the balanced one: a step that did not know it would diverge."""
    problem = prescribed_spectrum(4, (1.5, 1.0, 0.5), 3.0, 2)
    whitened = balanced_point(problem) + 0.05 * rng.standard_normal((7, 3))
    free, limited = (
        PreconditionedDescent(step=step, balance=ScaleFreeBalance()),
        PreconditionedDescent(step=step, logit_limit=0.2),
    )
    away = np.concatenate([4 * whitened[:4], whitened[4:] / 4])
    plain, moved = (
        train_population(problem, free, problem.unwhiten(jnp.asarray(one)), steps=40) for one in (whitened, away)
    )
    assert plain.excess[-1] < 1e-3 * plain.excess[0]
    assert moved.excess == pytest.approx(plain.excess, rel=1e-9)
    assert moved.step_size == pytest.approx(plain.step_size, rel=1e-12)
    held = train_population(problem, limited, problem.unwhiten(jnp.asarray(whitened)), steps=40)
    assert held.excess == pytest.approx(plain.excess, rel=1e-9)
    assert np.linalg.norm(held.whitened[-1, 4:], 2) <= 0.2 * (1 + 1e-12)


def test_a_saved_run_has_its_layer(tmp_path):
    run = train_population(EXPERIMENT.problem, PreconditionedDescent("left"), EXPERIMENT.start, steps=0)
    header, arrays = read_npz(run.save(tmp_path / "run.npz"))
    assert header["status"] == "out_of_steps"
    assert np.allclose(arrays["U"], EXPERIMENT.start.value, rtol=1e-12, atol=1e-13)
    assert arrays["value"].shape == (1, 10, 5)


@pytest.mark.parametrize(
    ("start", "steps", "argument"),
    [
        (AttentionLayer(np.ones((5, 5)), np.eye(5)), 3, "value"),
        (EXPERIMENT.start, -1, "steps"),
        (EXPERIMENT.start, True, "steps"),
    ],
)
def test_bad_input_is_named(start, steps, argument):
    with pytest.raises(ArgumentError) as caught:
        train_population(EXPERIMENT.problem, PreconditionedDescent(), start, steps=steps)
    assert caught.value.argument == argument


def test_several_starts_are_the_runs_of_each():
    rule, starts = (
        PreconditionedDescent("two_sided", "adaptive"),
        [EXPERIMENT.start, spectral_layer(EXPERIMENT.problem)],
    )
    for run, start in zip(train_populations(EXPERIMENT.problem, rule, starts, steps=5), starts, strict=True):
        assert run.excess == pytest.approx(train_population(EXPERIMENT.problem, rule, start, steps=5).excess, rel=1e-9)
    with pytest.raises(ArgumentError, match="at least one"):
        train_populations(EXPERIMENT.problem, rule, [], steps=3)


class Counting(AbstractBalance):
    """The paper's regulariser, with a note of every trace."""

    traces: list = eqx.field(static=True)

    def value(self, upper, lower):
        return Balance().value(upper, lower)

    def gradient(self, upper, lower):
        self.traces.append(1)
        return Balance().gradient(upper, lower)


def test_another_step_size_does_not_compile_again():
    traces = []
    train_population(
        EXPERIMENT.problem, PreconditionedDescent("left", 0.05, Counting(traces)), EXPERIMENT.start, steps=3
    )
    first = len(traces)
    train_population(
        EXPERIMENT.problem, PreconditionedDescent("left", 0.06, Counting(traces)), EXPERIMENT.start, steps=3
    )
    assert len(traces) == first >= 1
