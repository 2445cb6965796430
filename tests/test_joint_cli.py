"""The command line of joint training, and limits of attention with a fixed decoder, on the user's own data."""

import json

import numpy as np
import pytest

import penchant as pt
from penchant.cli import main
from penchant.report import page


@pytest.fixture
def marked(tmp_path):
    data = pt.settings.marked_tokens(5, 2, 12, 0.3, 3.0, seed=1)
    path = tmp_path / "marked.npz"
    np.savez(path, tokens=data.tokens, labels=data.labels, optimal=data.optimal)
    return str(path)


@pytest.fixture
def contradictory(tmp_path):
    tokens = np.repeat(np.random.default_rng(0).standard_normal((1, 3, 5)), 2, axis=0)
    path = tmp_path / "contradictory.npz"
    np.savez(path, tokens=tokens, labels=[1.0, -1.0], optimal=[0, 0])
    return str(path)


@pytest.fixture
def local(tmp_path):
    data = pt.settings.local_pair(1.0, 0.1)
    path = tmp_path / "local.npz"
    np.savez(path, tokens=data.tokens, labels=np.ones(2), head=np.array([1.0, 2.1, 0.0]))
    return str(path)


def answer(capsys, *arguments):
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    "extra",
    [
        ["--bias"],
        ["--ties", "keep"],
        ["--widths", "3"],
        ["--alpha", "3"],
        ["--scale", "5"],
        ["--optimiser", "gd", "--cap", "3"],
        ["--optimiser", "ngd", "--beta", "0.5"],
        ["--optimiser", "polyak", "--decays", "0,1"],
        ["--decays", "1"],
        ["--decays=-1,0"],
        ["--decays", "1/0,0"],
        ["--optimiser", "momentum", "--beta", "1"],
    ],
)
def test_options_without_a_meaning_for_joint_training_are_refused(marked, extra, capsys):
    for command in ("train", "predict"):
        assert main([command, marked, "--joint", *extra]) == 2
        printed = capsys.readouterr().err
        assert f"'{next(word for word in reversed(extra) if word.startswith('--')).partition('=')[0]}'" in printed


def test_options_of_joint_training_are_refused_elsewhere(local, capsys):
    for extra in (
        ["--decays", "0,1"],
        ["--optimiser", "ngd", "--beta", "0.5"],
        ["--optimiser", "momentum", "--beta", "2"],
    ):
        assert main(["train", local, *extra]) == 2
        assert "must be" in capsys.readouterr().err


@pytest.mark.slow
def test_decays_beta_and_cap_reach_the_rule(marked, capsys, tmp_path):
    data = pt.settings.marked_tokens(5, 2, 12, 0.3, 3.0, seed=1)
    rules = {
        ("--optimiser", "scheduled", "--decays", "3/4, 0.5"): pt.optimisers.block_normalised(0.1, 0.75, 0.5),
        ("--optimiser", "ngd", "--cap", "0.2"): pt.optimisers.block_normalised(0.1, cap=0.2),
        ("--optimiser", "joint-ngd", "--cap", "0.2"): pt.normalised_descent(0.1, cap=0.2),
        ("--optimiser", "momentum", "--beta", "0.5"): pt.optimisers.heavy_ball(
            pt.optimisers.block_normalised(0.1), 0.5
        ),
    }
    for options, rule in rules.items():
        command = ("train", marked, "--joint", "--step-size", "0.1", "--steps", "20", *options)
        content, run = answer(capsys, *command), pt.train(pt.settings.joint_setting(data), rule, steps=20)
        assert content["norm_u"] == pytest.approx(run.norm_u[-1], rel=1e-12), options
        assert content["norm_W"] == pytest.approx(run.norm_W[-1], rel=1e-12), options
        assert content["first_capped"] == run.header["first_capped"]
    assert answer(capsys, "predict", marked, "--joint", "--decays", "2/3,1")["theorem"] == "theorem-3"
    assert answer(capsys, "predict", marked, "--joint", "--decays", "0.7,1")["theorem"] == "joint-conjecture"


def test_beta_reaches_momentum_with_a_fixed_decoder(local, capsys):
    command = ("train", local, "--optimiser", "momentum", "--step-size", "0.1", "--steps", "30", "--beta", "0.5")
    setting = pt.Setting(pt.settings.local_pair(1.0, 0.1), pt.Direct(), pt.Exponential())
    run = pt.train(setting, pt.momentum(0.1, 0.5), steps=30)
    assert answer(capsys, *command)["norm"] == pytest.approx(run.norm[-1], rel=1e-9)


def test_joint_json_carries_prediction_and_programs(marked, capsys):
    content = answer(capsys, "train", marked, "--joint", "--optimiser", "ngd", "--step-size", "0.5", "--steps", "300")
    predicted = answer(capsys, "predict", marked, "--joint", "--optimiser", "ngd", "--step-size", "0.5")
    assert content["prediction"]["hypotheses"] == predicted["hypotheses"]
    assert content["programs"] == predicted["programs"]
    assert content["reached_programs"]["tokens"] == content["tokens"]
    assert 0 < content["concentration"] <= 1


def test_a_joint_run_that_never_moves_has_an_ending_and_a_page(contradictory, capsys, tmp_path):
    out = tmp_path / "page"
    command = ("train", contradictory, "--joint", "--optimiser", "ngd", "--steps", "200", "--out", str(out))
    content = answer(capsys, *command)
    assert content["status"] == "zero_gradient"
    assert content["prediction"] is None
    assert "No decoder u classifies" in content["inequality"]
    assert (out / "index.html").exists()


def test_a_local_limit_is_a_result_with_a_page(local, capsys, tmp_path):
    out, saved = tmp_path / "page", tmp_path / "run.npz"
    budget = ("--optimiser", "ngd", "--step-size", "0.05", "--steps", "2000")
    command = ("train", local, "--setting", "attention", *budget)
    content = answer(capsys, *command, "--save", str(saved), "--out", str(out))
    assert (content["limit"], content["tokens"], content["verdict"]) == ("local", [1, 0], "outside the theorem")
    reached = content["reached"]
    assert reached["locally_optimal"] is True
    assert reached["norm"] == pytest.approx(1.0)
    assert reached["misalignment"] < 1e-5 < 0.6 < reached["global_misalignment"]
    assert content["plateau"]["log_excess"] == pytest.approx(-3.0453156416, abs=1e-9)
    with np.load(saved) as arrays:
        assert pt.diagnostics.misalignment(arrays["W"], arrays["limit"]) == pytest.approx(reached["misalignment"])
    assert "its smallest margin never was positive" in (out / "index.html").read_text()
    assert main([*command]) == 0
    printed = capsys.readouterr().out
    assert "limit      local, most attended tokens [1, 0] (locally optimal)" in printed
    assert "plateau    log excess tends to -3.0453156" in printed


@pytest.mark.parametrize("joint", [True, False])
def test_a_page_that_fails_does_not_take_the_verdict_along(marked, local, joint, capsys, tmp_path, monkeypatch):
    def broken(directory):
        raise RuntimeError("no ink")

    monkeypatch.setattr(page, "render", broken)
    command = ["train", marked, "--joint"] if joint else ["train", local, "--optimiser", "ngd"]
    command += ["--steps", "5", "--out", str(tmp_path / "page")]
    assert main(command) == 1
    printed = capsys.readouterr()
    assert "verdict    undecided" in printed.out  # near its first step, which is where every run begins
    assert "the selection is open" in printed.out
    assert "page       not written (RuntimeError: no ink)" in printed.out
    assert main([*command, "--json"]) == 1
    content = json.loads(capsys.readouterr().out)
    assert (content["page"], content["page_error"]) == (None, "RuntimeError: no ink")
    assert content["verdict"] == "undecided"


def test_the_message_names_the_samples_that_contradict_each_other(contradictory, capsys):
    assert main(["predict", contradictory, "--joint"]) == 2
    printed = capsys.readouterr().err
    assert "Largest weights: 0.5 on sample 0, 0.5 on sample 1." in printed
    assert "samples 0 and 1 contradict each other" in printed


def test_a_zero_slack_has_no_sign(marked, capsys):
    assert main(["predict", marked, "--joint"]) == 0
    assert "zero_start: slack 0 " in capsys.readouterr().out


def test_the_correlation_loss_is_for_a_fixed_decoder(local, marked, capsys):
    found = answer(capsys, "train", local, "--loss", "correlation", "--optimiser", "ngd", "--steps", "50")
    assert found["log_loss"] is None  # the loss is negative: minus a mean score
    plain = answer(capsys, "train", local, "--optimiser", "ngd", "--steps", "50")
    assert found["log_excess"] != pytest.approx(plain["log_excess"], rel=1e-3)
    assert main(["predict", marked, "--joint", "--loss", "correlation"]) == 2
    assert "exponential or logistic with --joint" in capsys.readouterr().err
