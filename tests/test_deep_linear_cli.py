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
    assert run["verdict"] == "confirmed"
    assert not run["prediction"]["holds"]  # longer steps than the theorem allows


def test_layer_rules_are_refused_elsewhere(capsys, data):
    assert main(["train", data, "--optimiser", "line-search", "--json"]) == 2
    assert "deep-linear" in json.loads(capsys.readouterr().out)["message"]
    assert asked(capsys, "train", data, "--optimiser", "assumption5", "--step-size", "0.1")[0] == 2
