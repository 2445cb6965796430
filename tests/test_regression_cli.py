"""Own regressions from the command line."""

import json

import numpy as np
import pytest

from penchant.cli import main
from penchant.references.interpolation import minimum_potential
from penchant.settings.generators import sparse_regression
from penchant.settings.potentials import q_alpha


@pytest.fixture
def file(tmp_path):
    data, _ = sparse_regression(6, 12, 2, 1)
    path = tmp_path / "mine.npz"
    np.savez(path, inputs=data.inputs, targets=data.targets)
    return path, data


def test_predict_and_save(file, tmp_path, capsys):
    path, data = file
    out = tmp_path / "solution.npz"
    code = main(["predict", str(path), "--setting", "signed-squares", "--alpha", "0.05", "--save", str(out), "--json"])
    content = json.loads(capsys.readouterr().out)
    assert code == 0
    assert content["theorem"] == "minimum-potential"
    with np.load(out) as saved:
        assert saved["solution"] == pytest.approx(minimum_potential(data, q_alpha(0.05, 12)).weight, abs=1e-12)


def test_targets_alone_mean_regression_and_train_confirms(file, capsys):
    path, _ = file
    assert main(["train", str(path), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["prediction"]["theorem"] == "minimum-norm"
    assert content["verdict"] == "confirmed"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--setting", "signed-squares", "--alpha", "-1"], "alpha"),
        (["--setting", "regression", "--alpha", "1"], "--alpha"),
        (["--setting", "squares"], "nonnegative"),
    ],
)
def test_bad_requests_end_with_code_2_and_a_message(file, capsys, arguments, word):
    path, data = file
    if "squares" in arguments:
        np.savez(path, inputs=np.abs(data.inputs), targets=-np.ones(6))
    assert main(["predict", str(path), *arguments]) == 2
    assert word in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "names", "least"),
    [("regression", ("W",), "l2 distance to the start"), ("signed-squares", ("w_plus", "w_minus"), "Q_alpha")],
)
def test_a_start_from_a_file_counts_in_the_prediction_and_on_the_page(file, tmp_path, capsys, rng, kind, names, least):
    path, _ = file
    start, out = tmp_path / "start.npz", tmp_path / "page"
    np.savez(start, **{name: np.exp(rng.standard_normal(12)) for name in names})
    assert main(["train", str(path), "--setting", kind, "--start", str(start), "--out", str(out), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    reference, own = content["prediction"]["reference"], content["bracket"]
    assert reference["least"] == least
    assert own["of"] == f"least {least}"
    assert content["directions"][reference["norm"]] < 1e-9
    assert own["lower"] == pytest.approx(reference["lower"], rel=1e-9)
    assert own["upper"] == pytest.approx(reference["upper"], rel=1e-9)
    assert main(["predict", str(path), "--setting", kind, "--start", str(start), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["reference"] == reference
    assert f"least {least}, certified by the run itself" in (out / "index.html").read_text()


def test_targets_that_nothing_fits_are_described_as_such(file, capsys):
    path, data = file
    inputs, targets = np.asarray(data.inputs), np.asarray(data.targets)
    np.savez(path, inputs=np.vstack([inputs, inputs[:1]]), targets=np.append(targets, targets[0] + 1))
    assert main(["train", str(path), "--setting", "signed-squares"]) == 0
    text = capsys.readouterr().out
    assert "no weight interpolates, L* = 0.0357143" in text  # (1/2) (1/2 + 1/2) (1/2) / 7
    assert "least Q_alpha in [" in text
    assert "margin" not in text


def test_the_norm_is_that_of_the_weight_and_distances_are_those_of_the_prediction(file, tmp_path, capsys):
    path, out = file[0], tmp_path / "run.npz"
    squares = ["--setting", "signed-squares", "--alpha", "0.05"]
    assert main(["train", str(path), *squares, "--save", str(out), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    with np.load(out) as saved:
        plus, minus = saved["w_plus"], saved["w_minus"]
    assert content["norm"] == pytest.approx(np.linalg.norm(plus**2 - minus**2), rel=1e-12)
    assert content["parameter_norm"] == pytest.approx(np.hypot(np.linalg.norm(plus), np.linalg.norm(minus)), rel=1e-12)
    rivals = {rival["name"]: rival["separation"] for rival in content["prediction"]["rivals"]}
    assert content["directions"]["l2"] == pytest.approx(rivals["l2"], rel=1e-6)  # the run is at the reference
    assert main(["train", str(path), *squares]) == 0
    assert "l2 norm of the parameters (w_plus, w_minus)" in capsys.readouterr().out


def test_steps_that_a_small_start_outlasts_are_sent_to_the_flow(file, capsys):
    asked = ["train", str(file[0]), "--setting", "signed-powers", "--alpha", "1e-6", "--json"]
    main([*asked, "--optimiser", "gd", "--steps", "100"])
    advice = json.loads(capsys.readouterr().out)["would_decide"].split(", ")[0]
    main([*asked, *advice.split()])
    assert json.loads(capsys.readouterr().out)["verdict"] == "confirmed"


def test_steps_that_do_not_shrink_are_not_told_to_go_on(file, capsys):
    for optimiser, verdict in (("momentum", "undecided"), ("gd", "confirmed")):
        main(["train", str(file[0]), "--optimiser", optimiser, "--json"])
        content = json.loads(capsys.readouterr().out)
        assert content["verdict"] == verdict
        assert ("--optimiser flow, or gd" in content["would_decide"]) == (verdict == "undecided")
        assert "--steps" not in content["would_decide"]
