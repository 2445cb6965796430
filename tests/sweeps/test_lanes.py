"""Lanes: the numbers of `train`, whoever runs beside a run and however many there are."""

import numpy as np
import pytest

import penchant as pt
from penchant.sweeps.lanes import BITE, LANES
from penchant.sweeps.members import member
from penchant.sweeps.spec import read_spec
from penchant.sweeps.work import run_rows

TOKENS = {
    "generator": "random_tokens",
    "n": 3,
    "length": 3,
    "d": 4,
    "equal_scores": True,
    "optimiser": "ngd",
    "steps": 300,
}


def rows_of(spec, **more):
    return read_spec(spec, **more).rows()


def test_a_run_is_the_same_alone_in_company_and_in_another_order():
    rows = rows_of(TOKENS, seeds=f"0:{LANES + 6}")  # more than there are lanes: some wait for one
    together, _ = run_rows(rows, (), ())
    backwards, _ = run_rows(rows[::-1], (), ())
    assert backwards[::-1] == together
    for k in (0, 7, LANES + 5):
        assert run_rows([rows[k]], (), ())[0] == [together[k]]
    assert len({row["smallest_margin"] for row in together}) == len(rows)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"start": "small", "scale": 0.5},
        {"optimiser": "momentum", "step_size": 0.05},
        {"setting": "attention-kq", "widths": "2", "optimiser": "gd"},
        {"generator": "separable", "optimiser": "polyak", "loss": "logistic", "n": 10},
        {
            "generator": "sparse_regression",
            "setting": "signed-squares",
            "n": 8,
            "d": 12,
            "sparsity": 2,
            "optimiser": "gd",
            "alpha": 0.3,
            "step_size": 0.01,
        },
        {"generator": "teacher", "n": 8, "setting": "deep-linear", "widths": "3,3", "optimiser": "risk-scaled"},
        {"generator": "marked_tokens", "n": 4, "length": 2, "d": 10, "optimiser": "scheduled"},
    ],
    ids=str,
)
def test_lanes_train_what_train_trains(change):
    spec = {key: value for key, value in (TOKENS | change).items() if key in read_allowed(change)}
    row = rows_of(spec, seeds=[3])[0]
    (found,), kept = run_rows([row], (), ("weight",))
    assert found["status"] != "failed", found["reason"]
    one = member(row)
    run = pt.train(one.setting, one.optimiser, one.start, steps=one.steps)
    assert found["status"] == run.status.name
    assert found["steps_taken"] == run.steps[-1]
    np.testing.assert_allclose(found["log_excess"], run.log_excess[-1], rtol=1e-9)
    if (0, "weight") in kept:
        np.testing.assert_allclose(kept[0, "weight"], run.weight(), rtol=1e-8, atol=1e-9)


def read_allowed(change):
    """Keys of `TOKENS` that the generator of a change knows."""
    from penchant.sweeps.spec import RUN, _arguments

    return {**RUN, **_arguments(change.get("generator", "random_tokens"))}


def test_runs_that_stop_early_leave_their_lane(monkeypatch):
    """Half of the runs end at once, half go on: they take as many calls as the long ones alone need."""
    from penchant.sweeps import lanes

    calls = []
    drive = lanes.drive_many
    monkeypatch.setattr(lanes, "LANES", 4)
    monkeypatch.setattr(lanes, "drive_many", lambda *given: calls.append(0) or drive(*given))
    rows = [
        {**row, "margin": level}
        for level in (1e-3, 10.0)
        for row in rows_of({key: value for key, value in TOKENS.items() if key != "steps"}, seeds="0:6")
    ]
    mixed = [row for pair in zip(rows[:6], rows[6:], strict=True) for row in pair]
    found, _ = run_rows(mixed, (), ())
    assert {row["status"] for row in found} == {"reached_target"}
    assert all(row["steps_taken"] < BITE for row in found)
    assert len(calls) == 3  # twelve runs, four lanes


def test_a_row_that_cannot_run_says_why_and_stops_no_other():
    rows = rows_of({"generator": "local_pair", "optimiser": "ngd", "steps": 50}, grid={"second": [0.5, -1.0, 0.7]})
    found, _ = run_rows(rows, (), ())
    assert [row["status"] for row in found] == ["out_of_steps", "failed", "out_of_steps"]
    assert "second" in found[1]["reason"]


def test_flows_and_measures():
    rows = rows_of({"generator": "local_pair", "margin": 100.0}, grid={"second": [0.05, 1.0]})
    found, kept = run_rows(rows, ("limit", "misalignment"), ("margins", "params"))
    assert [row["limit"] for row in found] == ["local", "global"] or found[1]["limit"] == "global"
    assert found[1]["misalignment"] < 1e-2
    assert kept[1, "margins"].min() >= 100


def test_records_are_kept_as_series():
    (row,) = rows_of(TOKENS, records=5)
    _, kept = run_rows([row], (), ("series",))
    steps = kept[0, "series_steps"]
    assert steps[0] == 0
    assert steps[-1] == 300
    assert (np.diff(kept[0, "series_log_excess"]) < 0).all()
