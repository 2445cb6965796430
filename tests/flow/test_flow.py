"""Gradient flow against SciPy, closed forms and the scale-free identities, to margins of a million."""

import re
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

import penchant as pt
from penchant.diagnostics.direction import misalignment
from penchant.errors import ArgumentError
from penchant.flow.flow import follow
from penchant.settings.generators import local_pair, random_tokens, separable, signal_tokens
from penchant.settings.tokens import TokenSelection
from penchant.training.events import limits
from penchant.training.status import Status
from problems import loss_and_gradient

PAIR = pt.Setting(pt.Classification([[2.0, 0.0], [0.0, 1.0]], [1, 1]), pt.Direct(), pt.Exponential(), "sum")
CLOCKS = {"arc": pt.flow.RelativeArc(), "drop": pt.flow.LogExcessDrop(), "time": pt.flow.LogTime()}
TIGHT = {"tolerance": 1e-10, "margin_tolerance": 1e-8}
PROBLEMS = {
    "classification": pt.Setting(separable(8, 3), pt.Direct(), pt.Exponential(), "sum"),
    "tokens": pt.Setting(random_tokens(4, 3, 4, 1), pt.Direct(), pt.Logistic(), "sum"),
}


def by_scipy(setting, start, time):
    name, shape = type(setting.loss).__name__, np.shape(start)
    slope = lambda t, w: -loss_and_gradient(setting.data, w.reshape(shape), name)[1].ravel()
    return solve_ivp(slope, (0, time), np.ravel(start), method="LSODA", rtol=1e-12, atol=1e-13).y[:, -1].reshape(shape)


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_flow_agrees_with_scipy_at_a_moderate_time(problem, clock):
    setting = PROBLEMS[problem]
    start = setting.start(seed=3, scale=0.5)
    run = pt.train(setting, pt.GradientFlow(CLOCKS[clock], **TIGHT), start, until=pt.LogTimeAbove(np.log(20.0)))
    assert run.status is Status.reached_target
    assert run.log_time[-1] == pytest.approx(np.log(20.0), abs=1e-9)
    wanted = by_scipy(setting, start, 20.0)
    # Local tolerance 1e-10 over a few hundred steps.
    assert np.abs(run.weight() - wanted).max() <= 1e-7 * np.abs(wanted).max()


def test_orthogonal_data_have_their_closed_form_to_astronomical_times():
    # w' = sum e^-m z with orthogonal z: m_i' = |z_i|^2 e^-m_i, so m_i = log1p(|z_i|^2 t).
    run = pt.train(PAIR, pt.GradientFlow(), until=pt.MarginAbove(1e3))
    assert run.log_time[-1] == pytest.approx(1e3, rel=1e-3)  # t = e^1000: not a float64 number
    for record in range(1, len(run)):
        wanted = np.logaddexp(0.0, np.log([4.0, 1.0]) + run.log_time[record])
        # Local error 1e-7 in the norm and the time, 1e-4 in margin differences, accumulated over the steps.
        assert np.abs(run.margins[record] - wanted).max() <= 2e-4 + 1e-6 * wanted.max(), record


def test_closed_form_is_met_tightly_with_tight_tolerances():
    run = pt.train(PAIR, pt.GradientFlow(**TIGHT), until=pt.LogTimeAbove(np.log(1e3)))
    assert np.abs(run.margins[-1] - np.log1p([4e3, 1e3])).max() <= 1e-8  # 1e-10 local, about 100 steps


def test_logistic_closed_form_on_orthogonal_data():
    setting = pt.Setting(PAIR.data, pt.Direct(), pt.Logistic(), "sum")
    run = pt.train(setting, pt.GradientFlow(**TIGHT), until=pt.LogTimeAbove(np.log(1e3)))
    wanted = [brentq(lambda m, s=s: m + np.exp(m) - 1 - s * 1e3, 0, 20, xtol=1e-14) for s in (4.0, 1.0)]
    assert np.abs(run.margins[-1] - wanted).max() <= 1e-8


@pytest.mark.slow
@pytest.mark.parametrize("problem", PROBLEMS)
def test_all_clocks_run_along_the_same_path(problem):
    setting = PROBLEMS[problem]
    start = setting.start(seed=3, scale=0.5)
    ends = [
        pt.train(setting, pt.GradientFlow(clock, **TIGHT), start, until=pt.training.NormAbove(30.0))
        for clock in CLOCKS.values()
    ]
    for run in ends[1:]:
        assert np.abs(run.weight() - ends[0].weight()).max() <= 1e-6 * 30
        assert run.log_time[-1] == pytest.approx(ends[0].log_time[-1], abs=1e-5)


@pytest.mark.slow
def test_log_excess_falls_with_its_own_clock():
    data = signal_tokens(6, 4, 40)
    setting = pt.Setting(data, pt.settings.Gram(data), pt.Exponential())
    run = pt.train(
        setting,
        pt.GradientFlow(pt.flow.LogExcessDrop(), tolerance=1e-9, margin_tolerance=1e-7),
        until=pt.LogExcessBelow(-50.0),
    )
    assert run.log_excess[0] - run.log_excess[-1] == pytest.approx(run.header["integrator"]["clock"], abs=1e-5)
    assert run.log_excess[-1] == pytest.approx(-50.0, abs=1e-8)


@pytest.mark.slow
def test_time_times_excess_tends_to_the_square_of_the_margin_norm():
    data = signal_tokens()
    setting = pt.Setting(data, pt.settings.Gram(data), pt.Exponential())
    run = pt.train(setting, pt.GradientFlow(tolerance=1e-8), until=pt.LogExcessBelow(-1e4))
    best = pt.references.max_margin(data)
    assert run.log_time[-1] + run.log_excess[-1] == pytest.approx(
        2 * np.log(best.value), abs=1e-6
    )  # 1.5e-12 with every digit, less the tolerance of this flow
    found = run.norm[-1] ** 2 * misalignment(run.weight(), best.weight)
    assert found == pytest.approx(0.0478075401, rel=1e-4)


@pytest.mark.parametrize(
    "event",
    [pt.MarginAbove(7.0), pt.training.NormAbove(11.0), pt.LogTimeAbove(9.0), pt.LogExcessBelow(-8.0)],
    ids=lambda event: type(event).__name__,
)
def test_events_are_met_exactly(event):
    run = pt.train(PAIR, pt.GradientFlow(), until=event)
    measured = {
        "MarginAbove": run.smallest_margin(),
        "NormAbove": run.norm,
        "LogTimeAbove": run.log_time,
        "LogExcessBelow": run.log_excess,
    }[type(event).__name__]
    assert run.status is Status.reached_target
    assert measured[-1] == pytest.approx(event.level, rel=1e-9)  # a root found to 1e-12 in the step length


def test_direction_settled_stops_when_the_direction_hardly_turns():
    run = pt.train(PAIR, pt.GradientFlow(), until=pt.training.DirectionSettled(1e-3))
    assert run.status is Status.reached_target
    longer = pt.train(PAIR, pt.GradientFlow(), until=pt.training.NormAbove(2 * float(run.norm[-1])))
    angle = np.sqrt(2 * misalignment(run.weight(), longer.weight()))
    assert angle <= 1e-3  # the promise: less than this while the norm doubles


@pytest.mark.parametrize(
    "event",
    [pt.MarginAbove(1.0), pt.training.NormAbove(2.0), pt.LogExcessBelow(0.0)],
    ids=lambda event: type(event).__name__,
)
def test_a_start_beyond_the_level_ends_at_once(event):
    run = pt.train(PAIR, pt.GradientFlow(), jnp.array([5.0, 5.0]), until=event, steps=50)
    assert run.status is Status.reached_target
    assert run.steps[-1] <= 1


def test_max_steps_end_the_flow():
    run = pt.train(PAIR, pt.GradientFlow(), steps=7)
    assert run.status is Status.out_of_steps
    assert run.steps[-1] == 7


def test_levels_are_recorded_where_they_are_crossed():
    values = [1.0, 2.5, 4.0]
    series, params, status, _ = follow(
        PAIR,
        pt.GradientFlow(**TIGHT),
        PAIR.start(),
        limits(pt.MarginAbove(6.0)),
        None,
        pt.flow.Levels("margin", values),
    )
    assert status is Status.reached_target
    assert series["margins"].min(axis=1) == pytest.approx([0.0, *values, 6.0], rel=1e-9, abs=1e-12)
    assert len(params) == 5
    wanted = np.logaddexp(0.0, np.log([4.0, 1.0]) + series["log_time"][:, None])
    assert np.abs(series["margins"] - wanted).max() <= 1e-6


def test_levels_are_a_recorder_of_train():
    run = pt.train(
        PAIR, pt.GradientFlow(), until=pt.training.NormAbove(8.0), recorder=pt.flow.Levels("norm", [2.0, 4.0])
    )
    assert run.norm == pytest.approx([0.0, 2.0, 4.0, 8.0], rel=1e-9)


def test_levels_of_unknown_quantities_are_refused():
    with pytest.raises(ArgumentError, match="'quantity' argument"):
        pt.flow.Levels("loss", [1.0])
    with pytest.raises(ArgumentError, match="finite"):
        pt.flow.Levels("margin", [1.0, np.nan])


def test_levels_are_recorded_in_the_order_of_time_and_not_beyond_the_end():
    levels = [11.0, 9.0, 10.0, 10.2, 4.0, 4.01]
    run = pt.train(PAIR, pt.GradientFlow(), until=pt.MarginAbove(10.0), recorder=pt.flow.Levels("margin", levels))
    assert run.smallest_margin()[1:] == pytest.approx([4.0, 4.01, 9.0, 10.0], rel=1e-9)
    assert (np.diff(run.log_time) > 0).all()


@pytest.mark.parametrize("name", ["tolerance", "margin_tolerance"])
@pytest.mark.parametrize("value", [0.0, -1.0, 1.0, np.nan])
def test_bad_tolerances_are_named(name, value):
    with pytest.raises(ArgumentError, match=f"'{name}' argument"):
        pt.GradientFlow(**{name: value})


def test_a_critical_start_is_a_zero_gradient():
    data = TokenSelection(
        [[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]], queries=[[1.0, 1.0]] * 2, scores=[[1.0, 0.0], [1.0, 0.0]]
    )
    run = pt.train(
        pt.Setting(data, pt.Direct(), pt.settings.Correlation()), pt.GradientFlow(), until=pt.MarginAbove(1.0)
    )
    assert run.status is Status.zero_gradient
    assert len(run) == 1


@pytest.mark.parametrize("problem", ["classification", "signal"])
def test_margin_of_a_million_within_two_seconds_and_the_direction_to_1e_9(problem):
    data = separable() if problem == "classification" else signal_tokens()
    setting = pt.Setting(data, pt.settings.Gram(data), pt.Exponential())
    pt.train(setting, pt.GradientFlow(), until=pt.MarginAbove(10.0))  # compiles
    clock = time.process_time()
    run = pt.train(setting, pt.GradientFlow(), until=pt.MarginAbove(1e6))
    elapsed = time.process_time() - clock
    best = pt.references.max_margin(data)
    assert run.status is Status.reached_target
    assert misalignment(run.weight(), best.weight) <= 1e-9
    assert pt.bracket(data, run.weight(), run.dual[-1]).upper / best.value - 1 <= 1e-5  # 1/margin times log n
    assert elapsed < 2  # processor time, so that a busy machine does not matter


def test_flow_reaches_the_local_direction_of_the_pair():
    setting = pt.Setting(local_pair(1.0, 0.1), pt.Direct(), pt.Exponential())
    run = pt.train(setting, pt.GradientFlow(), until=pt.training.NormAbove(1e3))
    local = pt.references.max_margin(setting.data.select([1, 0])).weight
    assert misalignment(run.weight(), local) <= 1e-6
    assert 1 - misalignment(run.weight(), pt.references.max_margin(setting.data).weight) == pytest.approx(
        1 / np.sqrt(10), abs=1e-3
    )
    assert run.log_excess[-1] == pytest.approx(-3.0453156416, abs=1e-9)


def test_flow_of_a_batch_of_starts_equals_single_flows():
    starts = jnp.array([[0.5, 0.0], [0.0, -0.5]])
    runs = pt.train(PAIR, pt.GradientFlow(), starts, until=pt.MarginAbove(3.0))
    single = pt.train(PAIR, pt.GradientFlow(), starts[1], until=pt.MarginAbove(3.0))
    assert np.array_equal(runs[1].weight(), single.weight())


@pytest.mark.slow
def test_gram_and_direct_flows_agree():
    data = random_tokens(3, 3, 4, 0)
    origin = 0.3 * np.random.default_rng(0).standard_normal((4, 4))
    direct = pt.train(
        pt.Setting(data, pt.Direct(), pt.Exponential()),
        pt.GradientFlow(tolerance=1e-8),
        jnp.asarray(origin),
        until=pt.training.NormAbove(20.0),
    )
    gram = pt.train(
        pt.Setting(data, pt.settings.Gram(data, origin), pt.Exponential()),
        pt.GradientFlow(tolerance=1e-8),
        until=pt.training.NormAbove(20.0),
    )
    assert (
        np.abs(direct.weight() - gram.weight()).max() <= 1e-9 * 20
    )  # the same steps in other coordinates: only rounding differs


def test_smooth_margin_grows_and_obeys_the_constants_of_the_lecture_notes():
    data = separable()
    run = pt.train(
        pt.Setting(data, pt.Direct(), pt.Exponential(), "sum"),
        pt.GradientFlow(tolerance=1e-9),
        until=pt.LogExcessBelow(-1e5),
    )
    best = pt.references.max_margin(data).margin
    smooth = -run.log_excess[1:] / run.norm[1:]
    late = run.log_excess[1:] < 0
    assert (np.diff(smooth[late]) > -1e-9).all()
    assert (best - smooth[-1]) * run.norm[-1] == pytest.approx(
        0.93101, abs=2e-4
    )  # E6 at 1e5; 1e-9 relative of the norm 1.6e5
    normalised = run.smallest_margin()[-1] / run.norm[-1]
    assert (best - normalised) * run.norm[-1] == pytest.approx(0.16631, abs=2e-4)


def test_a_direction_settles_where_it_first_turns_by_less_while_the_norm_doubles():
    def turn(run, k):
        first, last = run.weight(k - 1) / run.norm[k - 1], run.weight(k) / run.norm[k]
        return np.log(2) * np.linalg.norm(last - first) / np.log(run.norm[k] / run.norm[k - 1])

    for level in (0.1, 1e-4, 1e-8):
        events = [pt.training.DirectionSettled(level), pt.training.NormAbove(1e9)]
        run = pt.train(PROBLEMS["classification"], pt.GradientFlow(), until=events)
        large = np.flatnonzero(np.abs(run.margins).max(axis=1) >= 10).tolist()
        assert run.norm[-1] < 9e8  # it is the direction that ended the run
        assert turn(run, large[-1]) < level
        assert all(turn(run, k) >= level for k in large[:-1])


def test_a_flow_that_was_told_no_end_ends_where_its_direction_is_decided():
    run = pt.train(PROBLEMS["classification"], pt.GradientFlow())
    assert run.status is Status.reached_target
    longer = pt.train(PROBLEMS["classification"], pt.GradientFlow(), until=pt.MarginAbove(1e8))
    assert 1e-12 < misalignment(run.weight(), longer.weight()) <= 1e-8


@pytest.mark.filterwarnings("ignore::penchant.errors.PenchantWarning")  # of the drawn layers
@pytest.mark.parametrize(
    ("parametrisation", "programs"), [(pt.Direct(), ["march"]), (pt.DeepLinear((2,)), ["_look", "march"])]
)
def test_a_flow_compiles_one_program_and_one_that_looks_at_the_layers_of_its_start(parametrisation, programs, caplog):
    setting = pt.Setting(
        separable(13, 11), parametrisation, pt.Exponential()
    )  # a size of its own, so that nothing is compiled yet
    start = setting.start(seed=0, scale=0.1)
    with jax.log_compiles():
        pt.train(setting, pt.GradientFlow(), start, steps=2)
    assert re.findall(r"Finished XLA compilation of jit\((\w+)\)", caplog.text) == programs
