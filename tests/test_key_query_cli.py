"""Keys and queries on the command line: notes, widths, bounds saved with the run, runs that stall."""

import json
from argparse import Namespace
from types import SimpleNamespace

import numpy as np
import pytest

import penchant as pt
from penchant.cli import main
from penchant.commands.data import would_decide
from penchant.theory.judge import judge_value
from penchant.training.status import Status


def write(path, data):
    tokens = data.tokens if isinstance(data, pt.settings.DiagonalTokens) else data
    np.savez(path, tokens=tokens.tokens, queries=tokens.queries, scores=tokens.scores)
    return str(path)


@pytest.fixture
def matrix(tmp_path):
    return write(tmp_path / "matrix.npz", pt.settings.equal_score_tokens(3, 4, 5, 1))


def call(capsys, *arguments):
    status = main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return status, json.loads(printed.out) if "--json" in arguments else printed


def test_predict_prints_uniqueness_and_the_width(capsys, matrix):
    status, content = call(capsys, "predict", matrix, "--setting", "attention-kq", "--widths", 1, "--json")
    assert status == 0
    assert content["reference"]["norm"] == "nuclear"
    assert "unique" in content["notes"][0]
    (width,) = [row for row in content["hypotheses"] if row["name"] == "wide_enough"]
    assert width["holds"] is False  # the certified rank is 2
    status, printed = call(capsys, "predict", matrix, "--setting", "attention-diagonal")
    assert status == 0
    assert "note       the l1 solution is unique" in printed.out
    assert main(["predict", matrix, "--setting", "attention-kq", "--widths", "2,3"]) == 2


@pytest.mark.slow
def test_train_saves_the_bounds_of_every_record(capsys, matrix, tmp_path):
    path = tmp_path / "run.npz"
    status, content = call(
        capsys, "train", matrix, "--setting", "attention-kq", "--margin", 100, "--save", path, "--json"
    )
    assert (status, content["status"]) == (0, "reached_target")
    with np.load(path) as saved:
        late = np.isfinite(saved["account_upper"])
        assert late.any()
        optimum = content["prediction"]["reference"]["value"]
        assert (saved["account_upper"][late] >= optimum * (1 - 1e-6)).all()
        for name in ("accumulated", "window", "instant"):
            assert saved[f"account_{name}"].max() <= optimum * (1 + 1e-6)
        weight = saved["K"] @ saved["Q"].T
    assert np.linalg.norm(weight, "nuc") / 100 == pytest.approx(content["bracket"]["upper"], rel=1e-9)


def test_a_run_on_wrong_tokens_ends_and_says_so(capsys, tmp_path):
    path = write(tmp_path / "pair.npz", pt.settings.contrary_pair((6.0, 1.0), (-3.0, 0.0)))
    status, content = call(capsys, "train", path, "--setting", "attention-diagonal", "--scale", 0.1, "--json")
    assert (status, content["status"], content["facts"]["conclusion"]) == (0, "stalled", "fails")
    assert "plateau" in content["message"]


def test_the_page_says_that_the_start_is_small_where_zeros_never_move(capsys, matrix, tmp_path):
    call(capsys, "train", matrix, "--setting", "attention-kq", "--optimiser", "gd", "--steps", 2, "--out", tmp_path)
    tables = json.loads((tmp_path / "own-data" / "study.json").read_text())["tables"]
    assert ["start", "small, scale 0.001"] in next(table["rows"] for table in tables if table["name"] == "made")


@pytest.mark.slow
def test_the_page_measures_keys_and_queries_in_the_nuclear_norm(capsys, matrix, tmp_path):
    out = tmp_path / "page"
    status, content = call(
        capsys, "train", matrix, "--setting", "attention-kq", "--margin", 100, "--out", out, "--json"
    )
    assert status == 0
    study = json.loads((out / "own-data" / "study.json").read_text())
    figures = {figure["name"]: {line["label"]: line for line in figure["lines"]} for figure in study["figures"]}
    run, best = (figures["margin"][label]["y"] for label in ("run", "best possible"))
    assert max(run) <= best[0] * (1 + 1e-6)
    assert run[-1] == pytest.approx(100 / content["weight_norm"]["nuclear"], rel=1e-9)
    assert content["parameter_norm"] != pytest.approx(content["weight_norm"]["nuclear"], rel=1e-2)
    assert content["parameters"] == "(K, Q)"
    assert content["norm"] == content["weight_norm"]["l2"] < content["weight_norm"]["nuclear"]
    singular = [line["y"][-1] for label, line in figures["singular-values"].items() if "predicted" not in label]
    assert sum(singular) == pytest.approx(content["bracket"]["upper"], rel=1e-9)  # all five of a 5 x 5 matrix
    assert {"accumulated", "window", "instant"} == set(figures["certificate"])
    reference = content["prediction"]["reference"]["value"]
    excess = content["bracket"]["upper"] / reference - 1
    assert figures["norm-excess"]["run"]["y"][-1] == pytest.approx(excess, rel=1e-6)
    assert "singular values" in study["definitions"]["norm"]
    (rows,) = [table["rows"] for table in study["tables"] if table["name"] == "hypotheses"]
    shown = {row[0]: row[1:3] for row in rows}
    assert shown["limit_exists"] == ["undecided", "unknown"]  # as in JSON and text, where it neither holds nor fails
    assert shown["aligned_start"][0] == "fails"


def test_the_printed_bracket_is_the_best_of_three(capsys, matrix):
    arguments = ("train", matrix, "--setting", "attention-kq", "--margin", 1000)
    _, content = call(capsys, *arguments, "--json")
    bounds = content["bracket"]
    assert bounds["lower"] == max(bounds[kind] for kind in ("accumulated", "window", "instant"))
    printed = call(capsys, *arguments)[1].out
    assert f"window multipliers {bounds['window']:.6g}" in printed
    assert "hypothesis FAILS  aligned_start" in printed


def test_the_loss_of_inseparable_tokens_is_the_loss(capsys, tmp_path):
    tokens = np.stack([np.eye(3)[:2], np.eye(3)[1::-1]])  # the same two tokens, each best in one of two samples
    path = tmp_path / "contrary.npz"
    np.savez(path, tokens=tokens, queries=np.ones((2, 3)), scores=[[3.0, 0.0], [3.0, 0.0]])
    arguments = ("train", path, "--setting", "attention-kq", "--steps", 60)
    status, content = call(capsys, *arguments, "--json")
    assert status == 0
    assert content["log_loss"] == pytest.approx(-1.5, abs=1e-4)  # attention stays uniform: e^-(3/2)
    assert content["log_excess"] == pytest.approx(np.log(np.exp(-1.5) - np.exp(-3.0)), abs=1e-3)
    assert content["log_excess_is"].startswith("log(L - 0.0497871):")
    assert f"log L {content['log_loss']:.8g}," in call(capsys, *arguments)[1].out


@pytest.mark.parametrize(
    ("setting", "option", "value"),
    [
        ("attention-diagonal", "--widths", 3),
        ("attention", "--widths", 3),
        ("attention-kq", "--alpha", 3),
        ("attention-diagonal", "--seed", -1),
        ("attention-kq", "--seed", -1),
    ],
)
def test_options_that_mean_nothing_are_refused(capsys, matrix, setting, option, value):
    status, printed = call(capsys, "predict", matrix, "--setting", setting, option, value)
    assert status == 2
    assert f"'{option}'" in printed.err


@pytest.mark.parametrize(("setting", "names"), [("attention-kq", "KQ"), ("attention-diagonal", "ab")])
def test_a_start_of_zeros_is_refused_and_one_outside_equation_5_is_reported(capsys, matrix, tmp_path, setting, names):
    path, shape = tmp_path / "start.npz", (5, 5) if names == "KQ" else (5,)
    np.savez(path, **{name: np.zeros(shape) for name in names})
    status, printed = call(capsys, "train", matrix, "--setting", setting, "--start", path)
    assert status == 2
    assert f"non-zero in {names[0]} or {names[1]}" in printed.err
    np.savez(path, **{name: np.full(shape, 0.1) for name in names})
    status, content = call(capsys, "predict", matrix, "--setting", setting, "--start", path, "--json")
    assert status == 0
    found = {row["name"]: row["holds"] for row in content["hypotheses"]}
    assert found["one_sided_start" if names == "ab" else "aligned_start"] is False


def test_descent_on_diagonals_can_be_predicted_and_trained(capsys, matrix):
    arguments = ("--setting", "attention-diagonal", "--optimiser", "ngd")
    status, content = call(capsys, "predict", matrix, *arguments, "--json")
    assert (status, content["theorem"], content["reference"]["norm"]) == (0, "diagonal-conjecture", "l1")
    status, content = call(capsys, "train", matrix, *arguments, "--steps", 50, "--json")
    assert (status, content["steps"]) == (0, 50)


@pytest.mark.parametrize(("still", "advice"), [(True, "not a longer run"), (False, "a longer flow")])
def test_a_direction_that_stands_still_is_not_sent_further(still, advice):
    data = pt.settings.equal_score_tokens(3, 4, 5, 0)
    setting = pt.Setting(data, pt.KeyQuery(), pt.Exponential())
    prediction, margins = pt.predict(setting, pt.GradientFlow()), np.geomspace(1.0, 1e6, 13)
    best, other = prediction.reference.weight, prediction.rivals[0].weight
    weights = [best + (1.0 if still else 1 / margin**0.15) * other for margin in margins]
    run = SimpleNamespace(
        setting=setting,
        status=Status.reached_target,
        steps=np.arange(13),
        smallest_margin=lambda: margins,
        weight=lambda record=-1: weights[record],
    )
    verdict = judge_value(prediction, weights[-1])
    case = SimpleNamespace(prediction=prediction, run=run, verdict=verdict)
    options = Namespace(optimiser="flow", step_decay=None)
    assert would_decide(case, options).startswith(advice)
