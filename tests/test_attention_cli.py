"""Own attention regressions from the command line."""

import json

import numpy as np
import pytest

from penchant.cli import main
from penchant.papers.attention_regression.setting.sample import draw_sample, prescribed_spectrum

SETTING = ("--setting", "attention-regression")


@pytest.fixture
def files(tmp_path):
    problem = prescribed_spectrum(4, (0.05, 0.04, 0.03), 5.0, 11, 1e-3)
    sample = draw_sample(problem, 500, np.random.default_rng(0))
    data = {"inputs": np.asarray(sample.inputs), "targets": np.asarray(sample.targets)}
    own, known = tmp_path / "own.npz", tmp_path / "known.npz"
    np.savez(own, **data)
    np.savez(known, **data, covariance=problem.covariance, planted=problem.planted, noise=problem.noise)
    return str(own), str(known), problem


def call(capsys, *arguments):
    status = main([str(argument) for argument in arguments])
    return status, capsys.readouterr()


def test_predict_estimates_the_problem_and_recommends(files, tmp_path, capsys):
    own, _, problem = files
    saved = tmp_path / "start.npz"
    status, printed = call(capsys, "predict", own, *SETTING, "--json", "--save", saved)
    content = json.loads(printed.out)
    assert status == 0
    level = content["estimate"]["size_noise_level"]
    assert np.abs(np.subtract(content["estimate"]["sizes"], problem.sizes)).max() < 4 * level
    error = np.sqrt(2 / (4 * (500 - 3)))  # of a variance from m (n - d) residuals, relative
    assert content["estimate"]["noise"] == pytest.approx(1e-3, rel=3 * error)
    assert {row["name"]: row["holds"] for row in content["hypotheses"]} == {
        "A1_covariance": True,
        "A2_full_rank": True,
        "A3_moments": True,
        "gaussian_inputs": True,
        "centred_inputs": True,
        "initialisation": True,
    }
    assert content["recommended"]["geometry"] == "two_sided"
    assert content["recommended"]["step"] == pytest.approx(1 / (4 * content["estimate"]["sizes"][0]), rel=1e-12)
    with np.load(saved) as arrays, np.load(own) as data:
        covariance = data["inputs"].T @ data["inputs"] / 500
        product = arrays["U"] @ covariance @ arrays["V"]
        least_squares = np.linalg.lstsq(data["inputs"], data["targets"], rcond=None)[0].T
    assert product == pytest.approx(least_squares, abs=1e-12)


def test_predict_prints_for_people(files, capsys):
    status, printed = call(capsys, "predict", files[0], *SETTING)
    assert status == 0
    assert "<- recommended" in printed.out
    assert "A3_moments" in printed.out


def test_train_knows_the_excess_only_with_the_truth(files, capsys):
    own, known, _ = files
    _, printed = call(capsys, "train", own, *SETTING, "--steps", 50, "--json")
    blind = json.loads(printed.out)
    assert blind["excess"] is None
    assert blind["verdict"] == "undecided"
    _, printed = call(capsys, "train", known, *SETTING, "--steps", 50, "--json")
    told = json.loads(printed.out)
    assert told["verdict"] == "confirmed"
    assert [row["name"] for row in blind["hypotheses"]] == [row["name"] for row in told["hypotheses"]]
    assert blind["hypotheses"][-1]["slack"] is None
    oracle = told["hypotheses"][-1]
    assert (oracle["name"], oracle["holds"], oracle["offender"]) == ("expected_gradients", False, "empirical")
    assert -1.0 < oracle["slack"] < 0
    assert told["excess"] < 4 * told["predicted_excess"]
    assert told["loss"] == pytest.approx(blind["loss"], rel=1e-12)


def test_train_saves_a_run_and_a_page(files, tmp_path, capsys):
    _, known, _ = files
    saved = tmp_path / "run.npz"
    status, printed = call(
        capsys, "train", known, *SETTING, "--batch", 50, "--steps", 20, "--step-size", 0.5, "--save", saved,
        "--out", tmp_path / "page",
    )  # fmt: skip
    assert status == 0
    assert "verdict" in printed.out
    assert "A3_moments" in (tmp_path / "page" / "index.html").read_text()
    with np.load(saved) as arrays:
        layers = {"U": arrays["U"], "V": arrays["V"]}
    start = tmp_path / "start.npz"
    np.savez(start, **layers)
    status, printed = call(capsys, "train", known, *SETTING, "--start", start, "--steps", 0, "--json")
    assert status == 0
    assert json.loads(printed.out)["steps"] == 0


@pytest.mark.parametrize("optimiser", ["gd", "adam"])
def test_baselines_train_from_a_random_start(files, capsys, optimiser):
    arguments = ("--optimiser", optimiser, "--step-size", 0.05, "--start", "small", "--scale", 0.5, "--steps", 50)
    status, printed = call(capsys, "train", files[1], *SETTING, *arguments, "--json")
    assert status == 0
    assert json.loads(printed.out)["status"] == "out_of_steps"


@pytest.mark.slow
def test_a_diverging_step_is_reported_with_a_safe_one(files, capsys):
    arguments = ("--step-size", 50, "--start", "small", "--scale", 1, "--steps", 50)
    _, printed = call(capsys, "train", files[1], *SETTING, *arguments, "--json")
    content = json.loads(printed.out)
    assert content["status"] in ("diverging_step", "not_finite")
    assert f"--step-size {content['safe_step']:.3g}" in content["message"]
    assert any("stability limit" in warning for warning in content["warnings"])
    retry = ("--step-size", content["safe_step"], "--start", "small", "--scale", 1, "--steps", 50)
    _, printed = call(capsys, "train", files[1], *SETTING, *retry, "--json")
    assert json.loads(printed.out)["status"] == "out_of_steps"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((*SETTING, "--batch", "1"), "size"),
        ((*SETTING, "--batch", "9000"), "size"),
        ((*SETTING, "--keys", "full"), "--keys"),
        ((*SETTING, "--alpha", "1"), "--alpha"),
        ((*SETTING, "--joint"), "--joint"),
        ((*SETTING, "--bias"), "--bias"),
        ((*SETTING, "--loss", "logistic"), "--loss"),
        ((*SETTING, "--optimiser", "flow"), "--optimiser"),
        ((*SETTING, "--optimiser", "adam"), "--step-size"),
        ((*SETTING, "--step-size", "-1"), "--step-size"),
        ((*SETTING, "--start", "small", "--gauge", "plus"), "--gauge"),
        (("--setting", "regression", "--geometry", "left"), "--geometry"),
        (("--setting", "nonsense"), "attention-regression"),
    ],
)
def test_bad_requests_end_with_code_2_and_a_message(files, capsys, arguments, word):
    status, printed = call(capsys, "train", files[0], *arguments)
    assert status == 2
    assert word in printed.err


@pytest.mark.parametrize(
    ("arrays", "word"),
    [
        ({"inputs": np.ones((2, 3)), "targets": np.ones((2, 3))}, "ridge"),
        ({"inputs": np.ones((9, 3)), "targets": np.ones((8, 3))}, "targets"),
        ({"inputs": np.full((9, 3), np.inf), "targets": np.ones((9, 3))}, "finite"),
        ({"inputs": np.ones((9, 3))}, "missing"),
    ],
)
def test_bad_files_end_with_code_2_and_a_message(tmp_path, capsys, arrays, word):
    path = tmp_path / "bad.npz"
    np.savez(path, **arrays)
    status, printed = call(capsys, "predict", path, *SETTING)
    assert status == 2
    assert word in printed.err


def test_warnings_name_what_is_wrong(tmp_path, capsys):
    rng = np.random.default_rng(3)
    path = tmp_path / "shifted.npz"
    inputs = rng.standard_normal((60, 2)) + 3.0
    np.savez(path, inputs=inputs, targets=inputs @ np.diag([1.0, 0.9]) + 0.01 * rng.standard_normal((60, 2)))
    _, printed = call(capsys, "predict", path, *SETTING, "--json")
    warnings = " ".join(json.loads(printed.out)["warnings"])
    assert "not centred" in warnings
    assert "1/2" in warnings
