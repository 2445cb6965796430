"""Training of attention layers: against plain NumPy loops and optax, the published figures, and how runs end."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.special import softmax

from penchant.bridge.optax import OptaxDescent, muon
from penchant.errors import ArgumentError, AssumptionError, DivergedRun, PenchantWarning
from penchant.files import read_npz
from penchant.optimisers.base import Adam
from penchant.papers.attention_regression.setting.problem import AttentionLayer, Unregularised
from penchant.papers.attention_regression.setting.sample import (
    AttentionSample,
    attention_experiment,
    draw_sample,
    prescribed_spectrum,
    spectral_layer,
)
from penchant.papers.attention_regression.training.algorithm1 import algorithm1, train_attention
from penchant.papers.attention_regression.training.rules import LayerRule, PreconditionedDescent
from penchant.papers.attention_regression.training.sources import FreshBatches, FullSample, Minibatch, Population
from penchant.training.events import At, Every
from penchant.training.status import Status

PROBLEM = prescribed_spectrum(4, (0.05, 0.04, 0.03), 5.0, 11, 1e-3)
SAMPLE = draw_sample(PROBLEM, 50, np.random.default_rng(0))
LARGE = draw_sample(PROBLEM, 400, np.random.default_rng(0))  # enough for every first-order prediction
START = AttentionLayer(*(0.5 * np.random.default_rng(1).standard_normal(shape) for shape in ((4, 3), (3, 3))))


def plain(step):
    return PreconditionedDescent("euclidean", step, Unregularised())


def plain_gradient(x, y, u, v, keys=None):
    """The formulas of the paper, one sample after another."""
    keys = x if keys is None else keys
    by_u, by_v = np.zeros_like(u), np.zeros_like(v)
    for xi, yi in zip(x, y, strict=True):
        weights = softmax(keys @ v @ xi)
        mean = weights @ keys
        covariance = (keys - mean).T @ (weights[:, None] * (keys - mean))
        residual = u @ mean - yi
        by_u += 2 * np.outer(residual, mean) / len(x)
        by_v += 2 * np.outer(covariance @ u.T @ residual, xi) / len(x)
    return by_u, by_v


def plain_loop(geometry, batches, step, x, y, u, v, keys="batch"):
    """Preconditioned, regularised descent as printed: covariance from all samples, inverses written out."""
    sigma = x.T @ x / len(x)
    inverse = np.linalg.inv(sigma)
    for rows in batches:
        by_u, by_v = plain_gradient(x[rows], y[rows], u, v, None if keys == "batch" else x)
        imbalance = u.T @ u - v @ sigma @ v.T
        by_u += u @ sigma @ imbalance @ sigma
        by_v -= sigma @ imbalance @ sigma @ v @ sigma
        if geometry == "two_sided":
            by_u, by_v = by_u @ inverse, inverse @ by_v @ inverse
        elif geometry == "left":
            by_v = by_v @ inverse
        u, v = u - step * by_u, v - step * by_v
    return u, v


@pytest.mark.parametrize("keys", ["batch", "full"])
@pytest.mark.parametrize("geometry", ["two_sided", "left", "euclidean"])
def test_minibatch_steps_are_those_of_a_plain_loop(geometry, keys):
    source = Minibatch(SAMPLE, 9, keys=keys, seed=5)
    run = train_attention(source, PreconditionedDescent(geometry, 0.3), START, steps=7, recorder=At(()))
    rng = np.random.default_rng(5)
    batches = [rng.choice(50, 9, replace=False) for _ in range(7)]
    x, y = np.asarray(SAMPLE.inputs), np.asarray(SAMPLE.targets)
    u, v = plain_loop(geometry, batches, 0.3, x, y, np.asarray(START.value), np.asarray(START.key_query), keys)
    assert run.value[-1] == pytest.approx(u, rel=1e-10, abs=1e-12)
    assert run.key_query[-1] == pytest.approx(v, rel=1e-10, abs=1e-12)


def test_full_sample_steps_are_those_of_a_plain_loop():
    run = train_attention(FullSample(SAMPLE), PreconditionedDescent("two_sided", 0.3), START, steps=5, recorder=At(()))
    x, y = np.asarray(SAMPLE.inputs), np.asarray(SAMPLE.targets)
    u, v = plain_loop("two_sided", [np.arange(50)] * 5, 0.3, x, y, np.asarray(START.value), np.asarray(START.key_query))
    assert run.value[-1] == pytest.approx(u, rel=1e-11)
    assert run.key_query[-1] == pytest.approx(v, rel=1e-11)


FIGURES = {
    "two_sided": (35.2732, 0.0571674, 0.00294268, 1.09951e-4),
    "left": (35.2732, 0.12139, 0.0193788, 0.0060702),
    "plain": (35.2732, 0.161292, 0.0343907, 0.00560956),
}


@pytest.mark.parametrize("name", FIGURES)
def test_population_training_has_the_recorded_excess(name):
    found = attention_experiment()
    rule = plain(0.1) if name == "plain" else PreconditionedDescent(name, 0.1)
    source = Population(found.problem)
    run = train_attention(source, rule, found.start, steps=500, recorder=At((10, 100)), truth=found.problem)
    assert [run.excess_at(step) for step in (0, 10, 100, 500)] == pytest.approx(FIGURES[name], rel=5e-6)
    assert run.deviation.max() < 1e-12


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(LayerRule(Adam(0.03, eps=1e-8)), optax.adam(0.03)), (plain(0.2), optax.sgd(0.2))],
    ids=["adam", "descent"],
)
def test_baselines_are_those_of_optax(ours, theirs):
    source = Minibatch(SAMPLE, 20)
    runs = [
        train_attention(source, rule, START, steps=40, recorder=At(()), truth=PROBLEM)
        for rule in (ours, LayerRule(OptaxDescent(theirs)))
    ]
    assert runs[0].value[-1] == pytest.approx(runs[1].value[-1], rel=1e-9)
    assert runs[0].excess[-1] < runs[0].excess[0]


def test_muon_trains_both_blocks():
    run = train_attention(FullSample(SAMPLE), muon(0.01), START, steps=60, recorder=At(()), truth=PROBLEM)
    assert run.excess[-1] < 0.5 * run.excess[0]
    assert not np.allclose(run.key_query[-1], START.key_query)


def test_a_step_too_large_ends_with_the_last_finite_layer_and_the_safe_step():
    found = attention_experiment(seed=1)
    source, rule = Population(found.problem), PreconditionedDescent("two_sided", 0.1)
    run = train_attention(source, rule, found.start, steps=50, truth=found.problem)
    assert run.status is Status.diverging_step
    assert np.isfinite(run.value).all()
    assert run.safe_step == pytest.approx(0.016, abs=5e-4)  # 1/(3 |W_0|^2 + 2 s_1) with |W_0|^2 = 20.8
    assert run.steps[-1] < 50
    safe = PreconditionedDescent("two_sided", run.safe_step)
    assert train_attention(source, safe, found.start, steps=50).status is Status.out_of_steps
    with pytest.raises(DivergedRun, match=r"0\.016") as error:
        train_attention(source, rule, found.start, steps=50, throw=True)
    assert error.value.run.steps[-1] == run.steps[-1]
    assert np.array_equal(error.value.run.at().value, run.value[-1])


def test_steps_beyond_all_numbers_are_not_taken():
    run = train_attention(FullSample(SAMPLE), plain(1e200), START, steps=5)
    assert run.status in (Status.not_finite, Status.diverging_step)
    assert np.array_equal(run.value[-1], np.asarray(START.value))


def test_algorithm1_starts_at_the_spectral_layer_and_stays_in_the_basin():
    run = algorithm1(LARGE, steps=60, gauge="minus", truth=PROBLEM)
    start = spectral_layer(LARGE.estimated, "minus")
    assert run.value[0] == pytest.approx(np.asarray(start.value), rel=1e-12)
    assert run.status is Status.out_of_steps
    assert run.gradient_norm[-1] < run.gradient_norm[0]
    paper = algorithm1(LARGE, steps=2, paper=True)
    assert paper.header["rule"]["geometry"]["kind"] == "Left"
    batched = algorithm1(LARGE, steps=2, batch=10)
    full = algorithm1(LARGE, steps=2, batch=10, keys="full")
    assert not np.array_equal(full.value[-1], batched.value[-1])
    with pytest.raises(ArgumentError, match="keys"):
        algorithm1(LARGE, steps=2, keys="all")
    assert batched.header["source"] == "Minibatch"


def test_the_logit_limit_holds_along_the_run():
    rule = PreconditionedDescent("two_sided", 0.3, Unregularised(), logit_limit=0.2)
    run = train_attention(FullSample(SAMPLE), rule, START, steps=10, recorder=Every(1))
    root = np.asarray(SAMPLE.estimated.root)
    norms = [np.linalg.norm(root @ block @ root, 2) for block in run.key_query[1:]]
    assert max(norms) <= 0.2 * (1 + 1e-12)


def test_runs_repeat_and_seeds_matter():
    go = lambda seed: train_attention(
        Minibatch(SAMPLE, 10, seed=seed), PreconditionedDescent("two_sided", 0.3), START, steps=5
    )
    assert np.array_equal(go(1).value, go(1).value)
    assert not np.array_equal(go(1).value, go(2).value)


def test_a_run_is_saved_whole(tmp_path):
    run = train_attention(Population(PROBLEM), PreconditionedDescent(), START, steps=20, truth=PROBLEM)
    header, arrays = read_npz(run.save(tmp_path / "run.npz"))
    assert header["status"] == "out_of_steps"
    assert np.array_equal(arrays["U"], run.value[-1])
    assert arrays["excess"] == pytest.approx(run.excess)
    assert run.first_below(float(run.excess[0])) == 0
    assert run.first_below(-1.0) is None


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: Minibatch(SAMPLE, 1), "size"),
        (lambda: Minibatch(SAMPLE, 51), "size"),
        (lambda: Minibatch(SAMPLE, 10.5), "size"),
        (lambda: Minibatch(SAMPLE, 5, keys="all"), "keys"),
        (lambda: PreconditionedDescent("right"), "geometry"),
        (lambda: PreconditionedDescent("left", -0.1), "step"),
        (lambda: plain(0.0), "step"),
        (lambda: train_attention(Population(PROBLEM), PreconditionedDescent(), START, steps=-1), "steps"),
        (lambda: train_attention(Population(PROBLEM), PreconditionedDescent(), START, steps=1).excess_at(7), "step"),
        (
            lambda: train_attention(
                Population(PROBLEM),
                PreconditionedDescent(),
                AttentionLayer(jnp.ones((3, 3)), jnp.ones((3, 3))),
                steps=1,
            ),
            "value",
        ),
        (lambda: FreshBatches(PROBLEM, 1, 3), "one key"),
        (lambda: FreshBatches(PROBLEM, 5, 0), "batches"),
    ],
)
def test_bad_calls_name_the_argument(call, word):
    with pytest.raises(ArgumentError, match=word):
        call()


@pytest.mark.parametrize(
    ("count", "step", "word"),
    [(400, 100.0, "stability limit"), (60, "default", r"1/\(n s_d\)"), (3, "adaptive", "cannot be estimated")],
)
def test_algorithm1_says_what_makes_predictions_unreliable(count, step, word):
    sample = draw_sample(PROBLEM, count, np.random.default_rng(0))
    with pytest.warns(PenchantWarning, match=word):
        algorithm1(sample, steps=1, rule=PreconditionedDescent("two_sided", step))


def test_a_sample_of_another_shape_is_refused():
    with pytest.raises(ArgumentError, match="targets"):
        AttentionSample(np.ones((4, 2)), np.ones((3, 2)))


def test_algorithm1_warns_once_of_what_the_data_show(rng):
    inputs = rng.standard_normal((300, 3)) + np.array([0.0, 2.0, 0.0])
    sample = AttentionSample(inputs, inputs @ rng.standard_normal((3, 2)))
    with pytest.warns(PenchantWarning) as caught:
        algorithm1(sample, steps=1, rule=PreconditionedDescent("two_sided", "adaptive"))
    text = str(caught[0].message)
    assert all(word in text for word in ("m = 2, d = 3", "A3", "column 1"))
    with pytest.raises(AssumptionError, match="column 1"):
        algorithm1(sample, steps=1, strict=True)
    algorithm1(LARGE, steps=1)  # warnings are errors here


def test_another_seed_is_the_same_program():
    """Static fields decide whether a source compiles again."""
    for make in (lambda seed: Minibatch(SAMPLE, 10, seed=seed), lambda seed: FreshBatches(PROBLEM, 10, 2, seed)):
        assert jax.tree.structure(make(1)) == jax.tree.structure(make(2))
        assert str(make(1).draws(3)) != str(make(2).draws(3)) == str(make(2).draws(3))


def test_a_run_is_printed_as_other_runs_are():
    run = train_attention(Population(PROBLEM), plain(0.1), START, steps=3, recorder=Every(1))
    assert str(run) == f"status     {run.status.name}: {run.status.message}\n{run.lines()[1]}"
    assert run.lines()[1].startswith(f"run        3 steps, loss {run.loss[-1]:.8g}, gradient ")
    assert (repr(run), run._repr_html_()[:15]) == (
        "<AttentionRun of 3 steps, 4 records: out_of_steps>",
        "<pre>status    ",
    )
