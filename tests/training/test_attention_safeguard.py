"""Samples that curve more than the population: the library's own steps descend."""

import numpy as np
import pytest

from penchant.errors import ArgumentError
from penchant.papers.attention_regression.advice import advise
from penchant.papers.attention_regression.setting.problem import Balance
from penchant.papers.attention_regression.setting.sample import (
    AttentionSample,
    draw_sample,
    prescribed_spectrum,
    spectral_layer,
)
from penchant.papers.attention_regression.training.algorithm1 import train_attention
from penchant.papers.attention_regression.training.rules import PreconditionedDescent
from penchant.papers.attention_regression.training.sources import FullSample, Minibatch
from penchant.training.events import Every
from penchant.training.status import Status

STEPS = 40


@pytest.fixture(scope="module")
def heavy():
    rng = np.random.default_rng(1)
    return AttentionSample(rng.standard_t(2.1, (60, 2)), 0.05 * rng.standard_normal((60, 2)))


def run_of(source, step, start=None, **options):
    start = spectral_layer(source.problem) if start is None else start
    rule = PreconditionedDescent("two_sided", step, **options)
    return train_attention(source, rule, start, steps=STEPS, recorder=Every(1))


def objectives(run):
    m = run.problem.outputs
    whitened = [np.asarray(run.problem.whiten(run.at(k))) for k in range(len(run))]
    return run.loss + np.array([float(Balance().value(one[:m], one[m:])) for one in whitened])


def test_the_population_step_diverges_on_a_heavy_sample(heavy):
    population = 1 / (4 * float(heavy.estimated.sizes[0]))
    lost = run_of(FullSample(heavy), population)
    assert lost.status is Status.diverging_step


@pytest.mark.parametrize("step", ["default", "adaptive"])
def test_own_steps_descend_on_a_heavy_sample(heavy, step):
    run = run_of(FullSample(heavy), step)
    values = objectives(run)
    assert run.status is Status.out_of_steps
    assert len(run) == STEPS + 1
    assert np.all(np.diff(values) <= 1e-12 * values[0])
    assert values[-1] < 0.9 * values[0]
    assert run.step_factor.min() < 1


def test_where_the_population_step_descends_nothing_is_shortened():
    sample = draw_sample(prescribed_spectrum(2, (0.05, 0.04), 2.0, 1, 1e-3), 60, np.random.default_rng(0))
    plain = 1 / (4 * float(sample.estimated.sizes[0]))
    own, fixed = run_of(FullSample(sample), "default"), run_of(FullSample(sample), plain)
    assert own.step_factor.min() == 1
    assert own.value == pytest.approx(fixed.value, rel=1e-12)
    assert own.loss == pytest.approx(fixed.loss, rel=1e-12)


def test_adaptive_steps_on_minibatches_are_tried_on_their_own_batch(heavy):
    source = Minibatch(heavy, 8, seed=1)
    assert run_of(source, 1 / (4 * float(heavy.estimated.sizes[0]))).status is Status.diverging_step
    run = run_of(source, "adaptive")
    assert run.status is Status.out_of_steps
    everyone = FullSample(heavy)
    before, after = (float(everyone.evaluate(run.at(k), None)[0]) for k in (0, -1))
    assert after < before


def test_a_logit_limit_holds_from_the_start_and_the_loss_stays_below_it(heavy):
    run = run_of(FullSample(heavy), "default", logit_limit=0.2)
    norms = [np.linalg.norm(np.asarray(run.problem.whiten(run.at(k)))[2:], 2) for k in range(len(run))]
    assert max(norms) <= 0.2 * (1 + 1e-12)
    assert run.loss[-1] <= 1.01 * run.loss[0]
    assert run.status is Status.out_of_steps


def test_a_truth_of_another_shape_is_refused_by_name(heavy):
    other = prescribed_spectrum(3, (0.05, 0.04), 2.0, 1)
    start = spectral_layer(heavy.estimated)
    with pytest.raises(ArgumentError, match="truth") as caught:
        train_attention(FullSample(heavy), PreconditionedDescent(), start, steps=1, truth=other)
    assert "(3, 2)" in str(caught.value)
    with pytest.raises(ArgumentError, match="truth"):
        advise(heavy, other)
