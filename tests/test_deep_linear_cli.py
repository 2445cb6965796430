"""Deep linear networks from the command line."""

import json

import numpy as np
import pytest

from penchant.cli import main
from penchant.settings.generators import strips


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "data.npz"
    np.savez(path, inputs=np.asarray(strips(0).signed), labels=np.ones(40))
    return str(path)


def asked(capsys, *arguments):
    code = main([*arguments, "--setting", "deep-linear", "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_the_proved_steps_satisfy_every_hypothesis_and_a_line_search_turns_to_the_margin(capsys, data):
    code, found = asked(capsys, "predict", data, "--widths", "4", "--loss", "logistic", "--optimiser", "assumption5")
    assert code == 0
    assert found["holds"]
    assert found["theorem"] == "deep-linear-max-margin"
    code, run = asked(
        capsys, "train", data, "--widths", "4", "--loss", "logistic", "--optimiser", "line-search", "--steps", "200"
    )
    assert code == 0
    assert run["verdict"] == "beyond the theorem"  # longer steps than it allows
    assert run["facts"] == {"conclusion": "holds", "hypotheses": "fail"}


def test_layer_rules_are_refused_elsewhere(capsys, data):
    assert main(["train", data, "--optimiser", "line-search", "--json"]) == 2
    assert "deep-linear" in json.loads(capsys.readouterr().out)["message"]
    assert asked(capsys, "train", data, "--optimiser", "assumption5", "--step-size", "0.1")[0] == 2


@pytest.mark.slow
def test_the_scale_of_the_start_is_not_ignored(capsys, data):
    fixed = ("--widths", "4", "--optimiser", "sharp", "--steps", "0")
    starts = (("0.025",), ("0.1",), ("0.1", "--start", "small"), ("0.1", "--start", "normal"))
    norms = [asked(capsys, "train", data, *fixed, "--scale", *start)[1]["parameter_norm"] for start in starts]
    assert norms[1] == norms[2] == norms[3]
    assert norms[1] == pytest.approx(4 * norms[0], rel=1e-12)


def test_a_small_start_is_brought_below_the_risk_of_zero(capsys, data):
    options = ("--start", "small", "--scale", "0.4", "--seed", "4", "--loss", "logistic", "--optimiser", "assumption5")
    found = asked(capsys, "predict", data, "--widths", "4", *options)[1]
    start = next(one for one in found["hypotheses"] if one["name"] == "start")
    assert start["holds"]
    assert start["exactness"] == "exact"


@pytest.mark.parametrize(
    "points", [[[0.5, 0.5, 0], [0.5, -0.5, 0], [0.5, 0, 0.5]], [[0.5], [0.5]], [[0.5, 0], [0.5, 0.5]]]
)
def test_degenerate_data_are_predicted(capsys, tmp_path, points):
    path = tmp_path / "small.npz"
    np.savez(path, inputs=points, labels=np.ones(len(points)))
    code, found = asked(capsys, "predict", str(path), "--widths", "4")
    assert code == 0
    assert not found["holds"]


def test_a_loss_of_the_users_own_is_read_from_a_file(capsys, data, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "import jax.numpy as jnp\nimport penchant as pt\nhalf = pt.UserLoss(lambda z: -z / 2, lambda z: jnp.log(0.5) - z / 2)\nother = 3\n"
    )
    code, found = asked(capsys, "predict", data, "--widths", "4", "--loss", f"{path}:half")
    assert code == 0
    assert found["holds"]
    for name, words in (("other", "a loss named"), ("missing", "one of")):
        code, found = asked(capsys, "predict", data, "--loss", f"{path}:{name}")
        assert code == 2
        assert words in found["message"]
    assert asked(capsys, "predict", data, "--loss", "hinge")[0] == 2
    path.write_text("1 / 0")
    assert "ZeroDivisionError" in asked(capsys, "predict", data, "--loss", f"{path}:half")[1]["message"]


@pytest.mark.parametrize("rule", ["assumption5-tight", "sharp", "risk-scaled", "line-search-capped", "gd"])
def test_every_rule_reaches_a_risk_level_from_a_named_start(capsys, data, rule):
    options = ("--widths", "4", "--loss", "logistic", "--start", "equal-frobenius", "--optimiser", rule)
    code, found = asked(capsys, "train", data, *options, "--risk-level", "0.5")
    assert code == 0
    assert found["status"] == "reached_target"
    assert -0.9 < found["log_excess"] <= -0.5


def test_options_of_networks_are_refused_where_they_mean_nothing(capsys, data):
    for options in (
        ("--start", "balanced"),
        ("--joint", "--risk-level", "3"),
        ("--setting", "attention", "--normalise"),
    ):
        assert main(["train", data, *options, "--json"]) == 2
    capsys.readouterr()
    assert "torch-default" in asked(capsys, "train", data, "--start", "torch-default", "--scale", "2")[1]["message"]
    assert asked(capsys, "train", data, "--risk-level", "-1")[0] == 2
    assert "equal-frobenius" in asked(capsys, "train", data, "--start", "gaussian")[1]["message"]


def test_layers_from_a_file_are_taken_as_they_are(capsys, data, tmp_path):
    path = tmp_path / "start.npz"
    np.savez(path, W1=np.full((4, 2), 0.1), W2=np.full((1, 4), -0.2))
    options = ("--widths", "4", "--start", str(path), "--optimiser", "sharp", "--steps", "0", "--json")
    assert main(["train", data, "--setting", "deep-linear", *options]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert found["parameter_norm"] == pytest.approx(np.sqrt(8 * 0.01 + 4 * 0.04))
    assert found["norm"] == pytest.approx(0.08 * np.sqrt(2))  # of the product
    assert "outside the theorem's hypotheses: smooth_loss, steps, start" in found["detail"]
    assert printed.err.count("above the risk of weight 0") == 1


def test_normalise_divides_the_inputs_and_says_by_what(capsys, data, tmp_path):
    path = tmp_path / "long.npz"
    np.savez(path, inputs=3 * np.asarray(strips(0).signed), labels=np.ones(40))
    found = asked(capsys, "predict", str(path), "--widths", "4", "--normalise")[1]
    plain = asked(capsys, "predict", data, "--widths", "4")[1]
    assert found["reference"]["margin"] == pytest.approx(plain["reference"]["margin"], rel=1e-12)
    assert "divided by 3" in found["notes"][0]


def test_a_flow_reports_what_it_has_lost_and_stops_where_that_is_too_much(capsys, data):
    options = ("--widths", "4", "--scale", "0.4")
    code, run = asked(capsys, "train", data, *options, "--margin", "1e3")
    found = run["accuracy"]
    assert (code, run["status"]) == (0, "reached_target")
    assert abs(found["clock_error"]) < 1e-6 < found["clock_error_allowed"]
    assert found["conservation_drift"] < 1e-8 < found["conservation_drift_allowed"] < 1e-3
    code, run = asked(capsys, "train", data, *options, "--margin", "1e6", "--tolerance", "1e-4")
    assert (code, run["status"]) == (0, "inaccurate")
    assert run["accuracy"]["conservation_drift"] > run["accuracy"]["conservation_drift_allowed"]
    assert "--tolerance" in run["message"]
    assert main(["train", data, "--setting", "deep-linear", *options, "--time", "10"]) == 0
    assert "accuracy   clock error" in capsys.readouterr().out


def test_only_flows_have_a_tolerance_and_only_a_sensible_one(capsys, data):
    assert (
        "used with --optimiser flow"
        in asked(capsys, "train", data, "--optimiser", "gd", "--tolerance", "1e-9")[1]["message"]
    )
    assert "between 0 and 1" in asked(capsys, "train", data, "--tolerance", "2")[1]["message"]
    code, run = asked(capsys, "train", data, "--optimiser", "sharp", "--steps", "2")
    assert code == 0
    assert "accuracy" not in run


def test_a_flow_on_data_that_nothing_separates_settles_and_keeps_its_matrices(capsys, tmp_path):
    path = tmp_path / "mixed.npz"
    np.savez(path, inputs=[[0.5, 0.1], [0.4, -0.3], [-0.2, 0.1]], labels=[1, 1, 1])
    code, run = asked(capsys, "train", str(path), "--widths", "3", "--scale", "0.4")
    assert code == 0
    assert run["status"] == "settled"
    assert set(run["accuracy"]) == {"conservation_drift", "conservation_drift_allowed"}
    assert run["accuracy"]["conservation_drift"] < run["accuracy"]["conservation_drift_allowed"]


def test_a_prediction_shows_the_constants_of_the_laws(capsys, data):
    options = ("predict", data, "--setting", "deep-linear", "--widths", "8,8,8", "--seed", "1", "--scale", "0.4")
    found = asked(capsys, *options)[1]["network"]
    assert found["direction"] == pytest.approx([-0.25564241, 0.96677141], abs=1e-8)
    assert found["support"] == [12, 38]
    assert found["shares"] == pytest.approx([0.54869997, 0.45130003], abs=1e-8)
    assert (found["entropy"], found["offset_norm"]) == pytest.approx((0.68839628, 0.12889451), abs=1e-8)
    assert (found["imbalance"], found["hull_radius"]) == pytest.approx((21.247244, 0.68422454), rel=1e-7)
    assert found["thresholds"]["exponential"] == pytest.approx(6.8528, abs=1e-4)
    assert main([*options, "--loss", "logistic"]) == 0
    printed = capsys.readouterr().out
    assert "u = (-0.255642, 0.966771)" in printed
    assert "D = 21.247244 of the start" in printed
    assert "43.0127 (logistic)" in printed


def test_descent_reports_its_account(capsys, data):
    options = ("train", data, "--setting", "deep-linear", "--widths", "4", "--loss", "logistic", "--optimiser", "sharp")
    found = asked(capsys, *options, "--steps", "20")[1]["descent"]
    assert len(found["traces"]) == 2
    assert found["log_step"] < 0 < found["traces"][0]
    assert found["violation"] < 0
    assert main([*options, "--steps", "20"]) == 0
    assert "descent inequality: largest violation" in capsys.readouterr().out


def test_a_margin_out_of_reach_is_a_bad_argument(capsys, tmp_path):
    path = tmp_path / "mixed.npz"
    np.savez(path, inputs=[[0.5, 0.1], [0.5, 0.1], [0.1, 0.5]], labels=[1.0, -1.0, 1.0])
    code, found = asked(capsys, "train", str(path), "--margin", "10")
    assert code == 2
    assert "'--margin' argument of penchant train must be one that a run can reach" in found["message"]


@pytest.mark.parametrize(
    "text",
    [
        "raise SystemExit(0)",
        "import penchant as pt\nmine = pt.UserLoss(lambda z: 1 / 0, lambda z: -z)",
        "import penchant as pt\nclass Mine(pt.Exponential):\n    def log_value(self, z):\n        return 1 / 0\nmine = Mine()",
    ],
)
def test_a_file_of_a_loss_that_fails_is_named(capsys, data, tmp_path, text):
    path = tmp_path / "mine.py"
    path.write_text(text)
    code, found = asked(capsys, "predict", data, "--loss", f"{path}:mine")
    assert code == 2
    assert str(path) in found["message"]
    assert "SystemExit" in found["message"] or "ZeroDivisionError" in found["message"]
