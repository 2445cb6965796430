"""Awkward data and requests of attention regression from the command line: each ends in words, none in a traceback."""

import json

import numpy as np
import pytest

from penchant.cli import main
from penchant.settings.attention_regression_generators import prescribed_spectrum
from penchant.settings.attention_sample import draw_sample

SETTING = ("--setting", "attention-regression")
PROBLEM = prescribed_spectrum(4, (0.05, 0.04, 0.03), 5.0, 11, 1e-3)


@pytest.fixture
def write(tmp_path):
    def save(name: str, **arrays: object) -> str:
        path = tmp_path / f"{name}.npz"
        np.savez(path, **arrays)
        return str(path)

    return save


@pytest.fixture
def known(write):
    sample = draw_sample(PROBLEM, 500, np.random.default_rng(0))
    truth = {name: np.asarray(getattr(PROBLEM, name)) for name in ("covariance", "planted", "noise")}
    return write("known", inputs=np.asarray(sample.inputs), targets=np.asarray(sample.targets), **truth)


def call(capsys, *arguments):
    status = main([str(argument) for argument in arguments])
    return status, capsys.readouterr()


def answer(capsys, *arguments):
    status, printed = call(capsys, *arguments, *SETTING, "--json")
    assert status == 0, printed.err
    return json.loads(printed.out)


def test_a_constant_column_is_named(write, rng, capsys):
    inputs = rng.standard_normal((80, 3))
    inputs[:, 1] = 0.1
    path = write("constant", inputs=inputs, targets=0.05 * inputs + 0.01 * rng.standard_normal((80, 3)))
    found = {row["name"]: row for row in answer(capsys, "predict", path)["hypotheses"]}
    for name in ("gaussian_inputs", "centred_inputs"):
        assert found[name]["holds"] is False
        assert "column 1" in found[name]["offender"]
    assert answer(capsys, "train", path, "--steps", 2)["steps"] == 2
    _, printed = call(capsys, "predict", path, *SETTING)
    assert "column 1, which is constant" in printed.out


def test_columns_that_sum_to_a_constant_are_named_as_a_direction(write, rng, capsys):
    inputs = np.eye(3)[rng.integers(0, 3, 90)]
    path = write("one-hot", inputs=inputs, targets=0.05 * inputs + 0.01 * rng.standard_normal((90, 3)))
    (found,) = (row for row in answer(capsys, "predict", path)["hypotheses"] if row["name"] == "gaussian_inputs")
    assert found["holds"] is False
    assert "0.577, 0.577, 0.577" in found["offender"].replace("-", "")


def test_as_many_samples_as_columns_leave_gaussianity_undecided(write, rng, capsys):
    inputs = rng.standard_normal((3, 3))
    path = write("square", inputs=inputs, targets=0.05 * inputs)
    content = answer(capsys, "predict", path)
    (found,) = (row for row in content["hypotheses"] if row["name"] == "gaussian_inputs")
    assert (found["holds"], found["slack"]) == (None, None)
    assert "too few" in found["detail"]
    _, printed = call(capsys, "predict", path, *SETTING)
    assert "slack unknown" in printed.out


def test_targets_of_zeros_are_refused_by_name(write, rng, capsys):
    path = write("zeros", inputs=rng.standard_normal((50, 2)), targets=np.zeros((50, 2)))
    status, printed = call(capsys, "predict", path, *SETTING)
    assert status == 2
    assert "'targets'" in printed.err
    assert "nothing to learn" in printed.err
