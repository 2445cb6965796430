"""Keys and queries on the command line: notes, widths, bounds saved with the run, runs that stall."""

import json

import numpy as np
import pytest

import penchant as pt
from penchant.cli import main


def write(path, data):
    tokens = data.tokens if isinstance(data, pt.DiagonalTokens) else data
    np.savez(path, tokens=tokens.tokens, queries=tokens.queries, scores=tokens.scores)
    return str(path)


@pytest.fixture
def matrix(tmp_path):
    return write(tmp_path / "matrix.npz", pt.equal_score_tokens(3, 4, 5, 1))


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
    path = write(tmp_path / "pair.npz", pt.contrary_pair((6.0, 1.0), (-3.0, 0.0)))
    status, content = call(capsys, "train", path, "--setting", "attention-diagonal", "--scale", 0.1, "--json")
    assert (status, content["status"], content["verdict"]) == (0, "stalled", "undecided")
    assert "plateau" in content["message"]
