"""What float64 does not resolve is said, without digits, and never raised as a bare exception."""

import json

import numpy as np
import pytest

import penchant as pt
from penchant.cli import main
from penchant.errors import ArgumentError
from penchant.references.linear_programs import against_nonnegative
from penchant.theory.families import interpolation


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((3, 6))
    return pt.Regression(inputs, inputs @ np.abs(rng.standard_normal(6)))


@pytest.fixture
def file(data, tmp_path):
    np.savez(tmp_path / "data.npz", inputs=data.inputs, targets=data.targets)
    return str(tmp_path / "data.npz")


def predicted(capsys, *arguments):
    assert main(["predict", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["reference"]


@pytest.mark.parametrize("depth", ["20", "50"])
def test_powers_below_the_resolution_of_their_dual_have_a_bracket_all_the_same(file, capsys, depth):
    found = predicted(capsys, file, "--setting", "signed-powers", "--depth", depth)
    assert not found["resolved"]
    assert 0 < found["upper"] - found["lower"] < 1e-6 * found["lower"]


def test_a_weight_that_does_not_interpolate_has_no_digits(file, capsys):
    found = predicted(capsys, file, "--setting", "squares", "--alpha", "1e60")
    assert [found[name] for name in ("value", "lower", "upper")] == [None] * 3
    assert "relative residual" in found["reason"]


def test_a_run_is_not_judged_by_a_reference_that_is_not_resolved(data):
    setting = pt.Setting(data, pt.Squares(1e60), pt.Squared())
    with pytest.warns(pt.errors.PenchantWarning, match="not resolved"):
        prediction = pt.predict(setting, pt.GradientFlow())
    verdict = pt.judge(prediction, pt.train(setting, pt.GradientFlow()))
    assert verdict.outcome is pt.verdict.Outcome.undecided


def test_the_step_of_powers_from_tiny_starts_is_bounded(file, capsys):
    assert predicted(capsys, file, "--setting", "signed-powers", "--alpha", "1e-30", "--optimiser", "gd")["value"] > 0


def test_a_depth_of_zero_is_refused(file, capsys):
    assert main(["predict", file, "--setting", "signed-powers", "--depth", "0"]) == 2
    assert "'depth'" in capsys.readouterr().err


def test_a_start_that_is_no_number_is_refused(data):
    with pytest.raises(ArgumentError, match="'start'"):
        pt.references.minimum_norm(data, np.full(6, np.nan))


def test_a_flow_that_moves_late_is_not_at_rest():
    """From alpha = 1e-300 it waits for some 700 units of time, in which any later relaxation fits a thousand times."""
    rng = np.random.default_rng(11)
    data = pt.Regression(rng.standard_normal((1, 2)), rng.standard_normal(1))
    run = pt.train(pt.Setting(data, pt.SignedSquares(1e-300), pt.Squared()), pt.GradientFlow())
    assert float(abs(run.margins[-1] - data.targets)[0]) <= 1e-6 * float(abs(data.targets[0]))


def test_a_flow_whose_dual_points_meet_their_bound_names_the_end_of_float64(data):
    run = pt.train(pt.Setting(data, pt.settings.SignedPowers(0.01, 20), pt.Squared()), pt.GradientFlow())
    assert run.status is pt.training.Status.resolution_exhausted


def test_a_rival_that_cannot_be_had_is_left_out_with_its_reason(data, monkeypatch):
    def fails(*_, **__):
        raise pt.errors.PenchantError("The l1 program was not solved: so it is.")

    monkeypatch.setattr(interpolation, "basis_pursuit", fails)
    found = pt.predict(pt.Setting(data, pt.SignedSquares(0.1), pt.Squared()), pt.GradientFlow())
    assert [rival.name for rival in found.rivals] == ["l2"]
    assert any("left out: The l1 program was not solved" in note for note in found.notes)


def test_a_proof_against_nonnegative_weights_holds_exactly():
    """Columns that touch the proof are decided in rational numbers; a target inside the cone by one part in 1e9 has no proof against it."""
    inputs = np.array([[1.0, 1.0], [1.0, 1.0 + 1e-9]])
    assert against_nonnegative(inputs, np.array([1.0, 1.0 + 0.5e-9])) is None
    proof = against_nonnegative(np.array([[1.0, -1.0, 0.1], [0.0, 0.0, 1.0]]), np.array([0.3, -1.0]))
    assert proof is not None
    assert proof[1] > 0


def test_rows_of_other_units_are_samples_all_the_same():
    rng = np.random.default_rng(3)
    inputs, targets = rng.standard_normal((4, 9)), rng.standard_normal(4)
    units = np.array([1.0, 1e-14, 1e3, 1e-7])
    data = pt.Regression(units[:, None] * inputs, units * targets)
    assert data.rank == 4
    plain = pt.Regression(inputs, targets)
    for solve in (
        pt.references.minimum_norm,
        pt.references.basis_pursuit,
        lambda one: pt.references.minimum_potential(one, pt.settings.q_alpha(0.1, 9)),
    ):
        found = solve(data)
        assert found.weight == pytest.approx(solve(plain).weight, abs=1e-9)
        assert found.certified


def test_a_rank_that_depends_on_units_bounds_nothing_from_above():
    """The least norm is 3.6055 of three equations, and 3.4664 of the two that one unit for all coordinates shows."""
    inputs = [
        [-8031.597488310322, 1.7878956903532242, 6.275202972402933],
        [-8031.597392275147, 1.7878956903532242, 6.275203009919767],
        [0.0, -1.7878956903532242, 3.1376014862014663],
    ]
    data = pt.Regression(inputs, [-24082.242058986158, -24082.241770805602, 6.275202972402933])
    found = pt.references.minimum_norm(data)
    assert data.rank == 2
    assert found.bracket.upper == np.inf
    assert not found.resolved
    assert not found.certified


def test_nonnegative_weights_are_known_on_the_range_of_their_columns(rng):
    """Five equations for one positive coefficient hold to rounding alone."""
    inputs = rng.standard_normal((5, 8))
    data = pt.Regression(inputs, inputs[:, 0] * 0.3)
    found = pt.references.basis_pursuit(data, nonnegative=True)
    assert found.certified
    assert found.value == pytest.approx(0.3)
    assert pt.bracket(data, np.eye(8)[1] * 0.3, found.dual, pt.Squares(0.1).potential(np.full(8, 0.1))).upper == np.inf
