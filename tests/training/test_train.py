"""Runs: batches, compilation, endings, records."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import penchant as pt
from penchant.errors import ArgumentError
from penchant.settings.generators import local_pair, random_tokens, signal_tokens
from penchant.settings.tokens import TokenSelection
from penchant.training.status import Status

PAIR = pt.Setting(pt.Classification([[2.0, 0.0], [0.0, 1.0]], [1, 1]), pt.Direct(), pt.Exponential())
OPTIMISERS = {
    "gd": pt.gradient_descent,
    "ngd": pt.normalised_descent,
    "momentum": pt.momentum,
    "polyak": pt.polyak,
    "sign": pt.sign_descent,
    "accelerated": pt.Accelerated,
    "adam": lambda step: pt.Adam(step, 1e-8),
}
TOKENS = pt.Setting(random_tokens(3, 3, 4, 0), pt.Direct(), pt.Logistic())


@pytest.mark.parametrize("name", OPTIMISERS)
def test_a_batch_of_step_sizes_equals_the_single_runs(name):
    sizes = [4.0, 5.0] if name == "polyak" else [0.02, 0.1]  # below c = 4 Polyak oscillates and amplifies rounding
    batch = pt.train(TOKENS, OPTIMISERS[name](sizes), steps=30)
    for size, run in zip(sizes, batch, strict=True):
        single = pt.train(TOKENS, OPTIMISERS[name](size), steps=30)
        assert np.abs(run.params - single.params).max() <= 1e-12 * np.abs(single.params).max()  # sums in another order
        assert np.array_equal(run.steps, single.steps)
        assert run.status is single.status


@pytest.mark.parametrize("name", OPTIMISERS)
def test_a_batch_of_starts_equals_the_single_runs(name):
    starts = jnp.stack([TOKENS.start(seed=k) for k in range(3)])
    optimiser = OPTIMISERS[name](4.0 if name == "polyak" else 0.05)
    for start, run in zip(starts, pt.train(TOKENS, optimiser, starts, steps=30), strict=True):
        single = pt.train(TOKENS, optimiser, start, steps=30)
        assert np.abs(run.params - single.params).max() <= 1e-12 * np.abs(single.params).max()


def test_starts_and_step_sizes_are_paired():
    starts = jnp.stack([TOKENS.start(seed=k) for k in range(2)])
    runs = pt.train(TOKENS, pt.normalised_descent([0.1, 0.3]), starts, steps=20)
    single = pt.train(TOKENS, pt.normalised_descent(0.3), starts[1], steps=20)
    assert np.abs(runs[1].params - single.params).max() <= 1e-12
    with pytest.raises(ArgumentError, match="batch"):
        pt.train(TOKENS, pt.normalised_descent([0.1, 0.2, 0.3]), starts, steps=20)


def test_gram_starts_can_be_batched():
    data = random_tokens(3, 3, 4, 0)
    setting = pt.Setting(data, pt.settings.Gram(data), pt.Exponential())
    runs = pt.train(setting, pt.normalised_descent([0.1, 0.2]), steps=30)
    assert [float(run.norm[-1]) for run in runs] == pytest.approx(
        [float(pt.train(setting, pt.normalised_descent(size), steps=30).norm[-1]) for size in (0.1, 0.2)], rel=1e-12
    )


class Counting(eqx.Module):
    """Any optimiser, counting how often it is traced."""

    inner: object
    traces: list = eqx.field(static=True)

    @property
    def coordinatewise(self):
        return self.inner.coordinatewise

    def init(self, tangent):
        return self.inner.init(tangent)

    def move(self, reading, memory, count):
        self.traces.append(1)
        return self.inner.move(reading, memory, count)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_a_second_run_does_not_compile_again(name):
    traces = []
    pt.train(TOKENS, Counting(OPTIMISERS[name](0.05), traces), steps=30)
    first = len(traces)
    assert first >= 1
    other = pt.Setting(random_tokens(3, 3, 4, 1), pt.Direct(), pt.Logistic())  # other data of the same shape
    pt.train(other, Counting(OPTIMISERS[name](0.07), traces), TOKENS.start(seed=1), steps=30, until=pt.MarginAbove(1e3))
    assert len(traces) == first


def test_a_second_batch_does_not_compile_again():
    traces = []
    pt.train(TOKENS, Counting(pt.gradient_descent([0.1, 0.2]), traces), steps=30)
    first = len(traces)
    pt.train(TOKENS, Counting(pt.gradient_descent([0.3, 0.4]), traces), steps=30)
    assert len(traces) == first


def test_out_of_steps_is_the_default_ending():
    run = pt.train(PAIR, pt.gradient_descent(0.1), steps=17)
    assert run.status is Status.out_of_steps
    assert (run.steps[0], run.steps[-1]) == (0, 17)


@pytest.mark.parametrize(
    ("event", "reached"),
    [
        (pt.MarginAbove(5.0), lambda run: run.smallest_margin() >= 5.0),
        (pt.training.NormAbove(9.0), lambda run: run.norm >= 9.0),
        (pt.LogExcessBelow(-20.0), lambda run: run.log_excess <= -20.0),
        (pt.LogTimeAbove(3.0), lambda run: run.log_time >= 3.0),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_event_ends_the_run_at_the_first_step_beyond_its_level(event, reached):
    run = pt.train(PAIR, pt.normalised_descent(0.1), steps=2000, until=event, recorder=pt.training.Every())
    assert run.status is Status.reached_target
    assert list(reached(run)) == [False] * (len(run) - 1) + [True]


def test_the_first_of_several_events_decides():
    run = pt.train(PAIR, pt.normalised_descent(0.1), until=(pt.MarginAbove(50.0), pt.training.NormAbove(3.0)))
    assert run.status is Status.reached_target
    assert 3.0 <= run.norm[-1] < 3.2


def test_tied_tokens_do_not_count_for_the_margin_event():
    tokens = [
        [[1.0, 0.0], [3.0, 0.0], [0.0, 1.0]]
    ]  # the second, tied, token attracts attention: its margin becomes negative
    data = TokenSelection(tokens, queries=[[1.0, 0.0]], scores=[[1.0, 1.0, 0.0]], ties="keep")
    setting = pt.Setting(data, pt.Direct(), pt.Exponential())
    run = pt.train(setting, pt.normalised_descent(0.1), steps=3000, until=pt.MarginAbove(5.0))
    assert run.margins[-1].min() < 0  # the tied margin
    assert run.status is Status.reached_target
    assert 5.0 <= run.smallest_margin()[-1] < 6.0


def test_uncapped_polyak_on_a_plateau_is_a_diverging_step_and_is_not_taken():
    run = pt.train(
        pt.Setting(local_pair(1.0, 0.1), pt.Direct(), pt.Exponential()),
        pt.polyak(),
        steps=2000,
        recorder=pt.training.Every(),
    )
    assert run.status is Status.diverging_step
    assert run.steps[-1] == 3  # a plain loop overflows there
    assert np.isfinite(run.params).all()
    assert "cap" in run.status.message


def test_a_huge_step_is_diverging():
    assert pt.train(PAIR, pt.normalised_descent(1e8), steps=5).status is Status.diverging_step


def test_a_critical_start_is_a_zero_gradient():
    # Scores symmetric around the mean and equal logits everywhere, with the same token twice with opposite effect.
    data = TokenSelection(
        [[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]], queries=[[1.0, 1.0]] * 2, scores=[[1.0, 0.0], [1.0, 0.0]]
    )
    run = pt.train(pt.Setting(data, pt.Direct(), pt.settings.Correlation()), pt.gradient_descent(0.1), steps=10)
    assert run.status is Status.zero_gradient
    assert run.steps[-1] == 0
    assert not run.params[-1].any()


def test_sign_descent_keeps_its_signs_after_a_multiplier_has_underflowed():
    setting = pt.Setting(pt.Classification([[2.0, 0.0], [0.0, 1.0]], [1, 1]), pt.Direct(), pt.Exponential())
    run = pt.train(setting, pt.sign_descent(1.0), steps=5000, recorder=pt.training.Every())
    assert run.status is Status.out_of_steps
    # Once margins differ by 745 the small multiplier is 0 as a float; sign descent stays on (1, 1) all the same.
    assert np.array_equal(run.params[:, 0], run.params[:, 1])
    assert run.weights[-1, 0] == 0


def test_sign_descent_stops_where_coordinates_are_floats_and_a_multiplier_underflows():
    tokens = [[[2.0, 0.0], [0.0, 0.0]], [[0.0, 1.0], [0.0, 0.0]]]
    data = TokenSelection(tokens, queries=[[1.0, 0.0], [0.0, 1.0]], scores=[[1.0, 0.0]] * 2)
    run = pt.train(pt.Setting(data, pt.Direct(), pt.Exponential()), pt.sign_descent(1.0), steps=5000)
    assert run.status is Status.coordinate_underflow


@pytest.mark.parametrize(
    "optimiser", [pt.normalised_descent(1e6), pt.polyak(), pt.Accelerated(1e3)], ids=["ngd", "polyak", "accelerated"]
)
def test_margins_beyond_float64_end_the_run(optimiser):
    start = jnp.array([4e12, 8e12])  # margin differences are rounded to 1e-3 from 4.5e12 on
    run = pt.train(PAIR, optimiser, start, steps=10)
    assert run.status is Status.resolution_exhausted


def test_zero_steps_record_the_start_alone():
    run = pt.train(PAIR, pt.gradient_descent(0.1), steps=0)
    assert len(run) == 1
    assert float(run.log_excess[0]) == 0.0  # the mean of e^0


@pytest.mark.parametrize("name", OPTIMISERS)
def test_log_time_is_the_log_of_the_sum_of_gradient_multipliers(name):
    run = pt.train(PAIR, OPTIMISERS[name](0.3), steps=20, recorder=pt.training.Every())
    assert run.log_time[0] == -np.inf
    assert (np.diff(run.log_time) > 0).all()


def test_log_time_of_gradient_descent_is_log_of_step_times_count():
    run = pt.train(PAIR, pt.gradient_descent(0.3), steps=20, recorder=pt.training.Every())
    assert np.allclose(run.log_time[1:], np.log(0.3 * np.arange(1, 21)), rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("recorder", "steps"),
    [
        (pt.training.Every(7), [0, 7, 14, 20]),
        (pt.training.At((3, 3, 12)), [0, 3, 12, 20]),
        (pt.training.LogSpaced(3), [0, 1, 4, 20]),
    ],
    ids=["every", "at", "log"],
)
def test_recorders_keep_what_they_say(recorder, steps):
    run = pt.train(PAIR, pt.gradient_descent(0.3), steps=20, recorder=recorder)
    whole = pt.train(PAIR, pt.gradient_descent(0.3), steps=20, recorder=pt.training.Every())
    assert run.steps.tolist() == steps
    assert np.array_equal(run.params, whole.params[steps])


def test_recording_does_not_change_a_gram_run_beyond_rounding():
    data = signal_tokens(4, 3, 12)
    setting = pt.Setting(data, pt.settings.Gram(data), pt.Exponential())
    often, seldom = (
        pt.train(setting, pt.normalised_descent(0.1), steps=1000, recorder=r)
        for r in (pt.training.Every(10), pt.training.At(()))
    )
    assert np.abs(often.margins[-1] - seldom.margins[-1]).max() <= 1e-10 * np.abs(seldom.margins[-1]).max()


BAD_CALLS = {
    "no length": (lambda: pt.train(PAIR, pt.gradient_descent(0.1)), "steps"),
    "negative steps": (lambda: pt.train(PAIR, pt.gradient_descent(0.1), steps=-1), "steps"),
    "fractional steps": (lambda: pt.train(PAIR, pt.gradient_descent(0.1), steps=2.5), "steps"),
    "boolean steps": (lambda: pt.train(PAIR, pt.gradient_descent(0.1), steps=True), "steps"),
    "start of wrong shape": (lambda: pt.train(PAIR, pt.gradient_descent(0.1), np.zeros(3), steps=1), "start"),
    "start with nan": (lambda: pt.train(PAIR, pt.gradient_descent(0.1), np.array([np.nan, 0.0]), steps=1), "start"),
    "start as ragged lists": (lambda: pt.train(PAIR, pt.gradient_descent(0.1), [0.0, [0.0]], steps=1), "start"),
    "masked start": (
        lambda: pt.train(PAIR, pt.gradient_descent(0.1), np.ma.array([0.0, 1.0], mask=[0, 1]), steps=1),
        "start",
    ),
    "empty batch of starts": (lambda: pt.train(PAIR, pt.gradient_descent(0.1), np.zeros((0, 2)), steps=1), "start"),
    "start in words": (lambda: pt.train(PAIR, pt.gradient_descent(0.1), "zeros", steps=1), "start"),
    "unknown event": (lambda: pt.train(PAIR, pt.gradient_descent(0.1), until=3.0), "until"),
    "infinite level": (lambda: pt.train(PAIR, pt.gradient_descent(0.1), until=pt.MarginAbove(np.inf)), "level"),
    "nan level": (lambda: pt.train(PAIR, pt.gradient_descent(0.1), until=pt.MarginAbove(np.nan)), "level"),
    "settling without a flow": (
        lambda: pt.train(PAIR, pt.gradient_descent(0.1), steps=5, until=pt.training.DirectionSettled(0.1)),
        "until",
    ),
    "record beyond the end": (
        lambda: pt.train(PAIR, pt.gradient_descent(0.1), steps=5, recorder=pt.training.At((6,))),
        "steps",
    ),
    "one point": (
        lambda: pt.train(PAIR, pt.gradient_descent(0.1), steps=5, recorder=pt.training.LogSpaced(1)),
        "points",
    ),
    "no interval": (
        lambda: pt.train(PAIR, pt.gradient_descent(0.1), steps=5, recorder=pt.training.Every(0)),
        "interval",
    ),
    "sign with gram": (
        lambda: pt.train(pt.Setting(PAIR.data, pt.settings.Gram(PAIR.data), PAIR.loss), pt.sign_descent(0.1), steps=5),
        "optimiser",
    ),
    "adam with gram": (
        lambda: pt.train(pt.Setting(PAIR.data, pt.settings.Gram(PAIR.data), PAIR.loss), pt.Adam(0.1, 0.0), steps=5),
        "optimiser",
    ),
    "not an optimiser": (lambda: pt.train(PAIR, "sgd", steps=5), "optimiser"),
    "empty batch": (lambda: pt.train(PAIR, pt.gradient_descent([]), steps=5), "step"),
    "flow with negative steps": (lambda: pt.train(PAIR, pt.GradientFlow(), steps=-1), "steps"),
    "flow with a step recorder": (
        lambda: pt.train(PAIR, pt.GradientFlow(), steps=1, recorder=pt.training.Every()),
        "recorder",
    ),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_calls_name_the_argument(name):
    call, argument = BAD_CALLS[name]
    with pytest.raises(ArgumentError) as caught:
        call()
    assert caught.value.argument == argument


@pytest.mark.parametrize("start", [np.zeros(2, np.float32), np.zeros(2, int)], ids=["float32", "int"])
def test_any_real_start_of_the_right_shape_is_taken_in_float64(start):
    run = pt.train(PAIR, pt.gradient_descent(0.1), start, steps=5)
    assert np.asarray(run.params).dtype == np.float64
    assert np.array_equal(run.params, pt.train(PAIR, pt.gradient_descent(0.1), steps=5).params)


def test_float32_data_are_refused():
    data = eqx.tree_at(lambda d: d.signed, PAIR.data, PAIR.data.signed.astype(jnp.float32))
    setting = eqx.tree_at(lambda s: s.data, PAIR, data)
    with pytest.raises(ArgumentError, match="float64"):
        pt.train(setting, pt.gradient_descent(0.1), steps=5)


JOINT = pt.settings.joint_setting(pt.settings.marked_tokens())


def _trainings():
    """Every way to train, by name, ready to be called."""
    regression = pt.Regression([[1.0, 2.0, 0.0], [0.0, 1.0, 1.0]], [2.0, 1.0])
    layers, rule = pt.papers.attention_regression.attention_experiment(n=10), pt.PreconditionedDescent("two_sided", 0.1)
    sample = pt.AttentionSample(np.eye(2), np.eye(2))
    noise = {"step": 0.01, "deviation": 0.1, "steps": [1]}
    return {
        "train": lambda: pt.train(PAIR, pt.gradient_descent(0.1), np.zeros(2), steps=1),
        "joint": lambda: pt.train(JOINT, pt.optimisers.block_normalised(0.05), steps=1),
        "train_population": lambda: pt.papers.attention_regression.train_population(
            layers.problem, rule, layers.start, steps=1
        ),
        "train_attention": lambda: pt.papers.attention_regression.train_attention(
            pt.papers.attention_regression.Population(layers.problem), rule, layers.start, steps=1
        ),
        "algorithm1": lambda: pt.papers.attention_regression.algorithm1(sample, steps=1),
        "label_noise": lambda: pt.training.label_noise(regression, np.ones(3), **noise),
        "moment_descent": lambda: pt.training.moment_descent(regression, np.ones(3), **noise),
        "quadratic_noise": lambda: pt.training.quadratic_noise(np.eye(2), np.eye(2), 0.1, 1, 1),
        "sample_noise": lambda: pt.training.sample_noise(np.eye(2), np.ones(2), 0.1, 1, 1),
    }


def test_training_without_x64_is_refused():
    trainings = _trainings()
    jax.config.update("jax_enable_x64", False)
    try:
        refused = {name for name, call in trainings.items() if _refuses(call)}
    finally:
        jax.config.update("jax_enable_x64", True)
    assert refused == set(trainings)


def _refuses(call):
    try:
        call()
    except ArgumentError as error:
        return "jax_enable_x64" in str(error)
    return False


@pytest.mark.parametrize("status", list(Status))
def test_every_status_has_a_sentence(status):
    assert status.message.rstrip().endswith(".") or "Fix:" in status.message
    assert len(status.message) > 20


def test_infeasible_data_can_still_be_trained():
    data = pt.Classification([[1.0, 0.0], [-1.0, 0.5], [0.0, -1.0]], [1, 1, 1])
    run = pt.train(pt.Setting(data, pt.Direct(), pt.Exponential()), pt.gradient_descent(0.1), steps=500)
    assert run.status is Status.out_of_steps
    assert np.isfinite(run.log_excess).all()


@pytest.mark.parametrize("optimiser", [pt.gradient_descent(0.1), pt.GradientFlow()])
def test_what_progress_raises_is_raised(optimiser):
    def told(*numbers):
        raise LookupError("own")

    for _ in range(2):  # the second run uses the compiled code of the first
        with pytest.raises(LookupError, match="own"):
            pt.train(PAIR, optimiser, steps=20, progress=told)


@pytest.mark.parametrize(("optimiser", "budget"), [(pt.GradientFlow(), 40), (pt.normalised_descent(0.1), 40)])
def test_progress_is_told_what_the_run_records(optimiser, budget):
    told = []
    run = pt.train(PAIR, optimiser, steps=budget, progress=lambda *numbers: told.append([float(x) for x in numbers]))
    recorded = np.stack([run.steps, run.log_excess, run.smallest_margin()], axis=1)
    assert np.array_equal(np.asarray(told)[-1], recorded[-1])
    assert len(told) > 5


def test_a_list_of_numbers_is_a_start():
    listed, array = (
        pt.train(PAIR, pt.gradient_descent(0.1), start, steps=5) for start in ([0.5, 1], np.array([0.5, 1]))
    )
    assert np.array_equal(listed.weight(), array.weight())


def test_looking_at_a_run_without_x64_is_refused():
    run, prediction = pt.train(PAIR, pt.gradient_descent(0.1), steps=5), pt.predict(PAIR, pt.gradient_descent(0.1))
    jax.config.update("jax_enable_x64", False)
    try:
        assert _refuses(lambda: pt.read(PAIR, np.zeros(2)))
        assert _refuses(lambda: pt.judge(prediction, run))
        assert _refuses(run.weight)
    finally:
        jax.config.update("jax_enable_x64", True)
