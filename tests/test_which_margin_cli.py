"""`penchant which-margin`, and multiclass and next-token data on the command line."""

import json
from argparse import Namespace
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import penchant as pt
from penchant.cli import main
from penchant.commands.which_margin import _default_steps
from penchant.norms import norm_named
from penchant.papers.which_margin.comparison import compare
from penchant.references.norm_margin import norm_margin
from penchant.settings.generators import clusters


@pytest.fixture
def data(tmp_path):
    drawn = clusters(3, 4, 9, 0.5, 0)
    np.savez(tmp_path / "data.npz", inputs=np.asarray(drawn.inputs), labels=np.asarray(drawn.labels))
    return str(tmp_path / "data.npz")


def test_which_margin_says_norm_theorem_and_brackets(data, capsys, tmp_path):
    assert main(["which-margin", data, "--optimiser", "sign", "--json", "--out", str(tmp_path / "page")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["references"]) == {"frobenius", "l1", "max", "spectral", "nuclear"}
    assert found["references"]["max"]["margin"] == pytest.approx(0.6571953, abs=1e-6)
    assert (found["maximises"], found["theorem"], found["predicted"]) == ("max", "steepest-margin", None)
    assert isinstance(found["turns"], list)
    assert "share of 1 is the maximum margin in that norm" in (tmp_path / "page" / "index.html").read_text()


def test_several_optimisers_share_their_references_and_one_may_be_the_users(data, capsys, tmp_path):
    script = tmp_path / "mine.py"
    script.write_text("import optax\nmake_optimiser = lambda: optax.sgd(0.5)\n")
    names = f"muon,{script}:make_optimiser"
    assert main(["which-margin", data, "--optimiser", names, "--steps", "300", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["muon"]["theorem"] == "momentum-margin"
    assert found[f"{script}:make_optimiser"]["theorem"] is None


def test_a_torch_optimiser_runs_as_it_is(data, capsys, tmp_path):
    pytest.importorskip("torch")
    script = tmp_path / "mine.py"
    script.write_text("import torch\nmake = lambda parameters: torch.optim.Adam(parameters, 0.01)\n")
    assert main(["which-margin", data, "--optimiser", f"{script}:make", "--steps", "200"]) == 0
    assert "none covers this optimiser" in capsys.readouterr().out


def test_a_run_that_has_settled_is_not_asked_for_more_steps(capsys, tmp_path):
    rows = np.outer([1.0, -0.65, -0.12], [1.0, 0.6]) + 1e-12 * np.array(
        [0.6, -1.0]
    )  # separated, by hardly more than nothing
    np.savez(tmp_path / "thin.npz", inputs=rows, labels=np.ones(3))
    assert main(["which-margin", str(tmp_path / "thin.npz"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["to_decide"] == "not more steps: the run has ended as settled"


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ("flow --margin 100", "--margin 1e+03"),
        (
            "sign --weight-decay 0.2 --steps 50",
            "--weight-decay below 0.0227: this one keeps the margin below some 3.29",
        ),
        ("adam --eps 1e-8 --weight-decay 0.1 --batch 3 --steps 50", "--weight-decay below 0.0227"),
        ("sign --weight-decay 0 --steps 50", "--steps"),
    ],
)
def test_what_would_decide_is_something_that_can_be_reached(data, capsys, words, advice):
    assert main(["which-margin", data, "--optimiser", *words.split(), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["to_decide"].startswith(advice)


def test_training_with_weight_decay_is_not_asked_for_a_margin_out_of_its_ball(data, capsys):
    words = "--optimiser sign --weight-decay 0.2 --steps 50 --json"
    assert main(["train", data, *words.split()]) == 0
    assert json.loads(capsys.readouterr().out)["would_decide"].startswith("a smaller --weight-decay")


def test_an_optimiser_that_stops_by_itself_is_not_asked_for_more_steps(data, capsys, tmp_path):
    pytest.importorskip("torch")
    script = tmp_path / "mine.py"
    script.write_text("import torch\nmake = lambda parameters: torch.optim.LBFGS(parameters)\n")
    assert main(["which-margin", data, "--optimiser", f"{script}:make", "--steps", "400", "--json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["to_decide"].startswith("another optimiser: this one has stopped")
    assert "conditioned" not in told.err
    assert main(["which-margin", data, "--optimiser", f"{script}:make", "--steps", "0"]) == 0
    assert "nothing yet: the smallest margin is 0" in capsys.readouterr().out


def test_what_was_predicted_has_a_verdict_where_another_norm_leads(tmp_path, capsys):
    drawn = clusters(4, 8, 12, 1.0, 0)
    np.savez(tmp_path / "data.npz", inputs=np.asarray(drawn.inputs), labels=np.asarray(drawn.labels))
    words = "--optimiser muon --orthogonaliser ns5 --steps 4000 --json"
    assert main(["which-margin", str(tmp_path / "data.npz"), *words.split()]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["maximises"], found["theorem"]) == ("frobenius", None)
    assert "1 - share of the best spectral margin" in found["predicted"]


def test_train_takes_every_option_of_steepest_descent(data, capsys):
    words = "--setting multiclass --optimiser steepest --norm max --step-size 0.1 --step-decay 0.5 --momentum 0.5 --nesterov --weight-decay 0.01 --batch 3 --steps 200"
    assert main(["train", data, *words.split()]) == 0
    assert "Minibatches(Decayed(Descent(" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--optimiser steepest --norm spectre", "norm"),
        ("--optimiser gd --norm max", "--norm"),
        ("--optimiser adam --eps 0.1 --log-eps -3", "eps"),
        ("--optimiser sign --step-size 2 --weight-decay 1", "weight_decay"),
        ("--optimiser muon --orthogonaliser polar --eps 0.1", "eps"),
        ("--optimiser nothing.py:mine", "nothing.py"),
        ("--optimiser nonsense", "one of flow, gd"),
        ("--optimiser joint-ngd", "--joint"),
        ("--steps -5", "'--steps' argument of penchant must be a nonnegative integer"),
    ],
)
def test_what_does_not_fit_is_refused(data, capsys, words, named):
    assert main(["which-margin", data, "--steps", "10", *words.split()]) == 2
    assert named in capsys.readouterr().err


OWN = (
    "import optax, torch\nsgd = lambda: optax.sgd(0.5)\nadam = lambda parameters: torch.optim.Adam(parameters, 0.01)\n"
)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("sgd --norm max", "mine.py:sgd --norm max"),
        ("sgd --step-decay 0.5", "mine.py:sgd --step-decay"),
        ("sgd --weight-decay 0.1", "--weight-decay"),
        ("sgd --momentum 0.5", "--beta"),
        ("sgd --eps 0.1", "mine.py:sgd --eps"),
        ("sgd --batch 3", "--batch"),
        ("adam --margin 5", "the only end of a torch.optim optimiser"),
    ],
)
def test_options_that_an_optimiser_of_the_user_would_not_see_are_refused(data, capsys, tmp_path, words, named):
    pytest.importorskip("torch")
    (tmp_path / "mine.py").write_text(OWN)
    assert main(["which-margin", data, "--optimiser", *f"{tmp_path}/mine.py:{words}".split()]) == 2
    assert named in capsys.readouterr().err


def test_several_optimisers_are_checked_before_one_is_trained(data, capsys):
    from penchant.references.base import watching

    with watching() as calls:
        assert main(["which-margin", data, "--optimiser", "sign,sing", "--steps", "20"]) == 2
    assert not calls
    assert "sing" in capsys.readouterr().err


def test_steps_with_an_epsilon_are_not_asked_for_a_margin_that_grows_like_log_t(data, capsys):
    words = "--optimiser adam --eps 1e-8 --step-size 0.01 --steps 100"
    assert main(["which-margin", data, *words.split()]) == 0
    # log L falls by the step times margin^2 / eps times L there: from L = eps on, e^(28.9 - 18.4) / 0.2644^2 of them.
    assert "a smaller --eps, or steps that add up to some 5e+05" in capsys.readouterr().out
    assert main(["train", data, *words.split()]) == 0
    assert "gain margin like log t" in capsys.readouterr().out


def test_the_epsilon_of_newton_schulz_steps_makes_them_descent(data, capsys):
    words = "--optimiser muon --orthogonaliser ns5 --eps 1e-7"
    assert main(["predict", data, *words.split()]) == 0
    told = capsys.readouterr().out
    assert "minimum frobenius norm" in told
    assert "gradient descent beyond the margin log(485/eps) = 22.3" in told


def test_best_weights_that_are_not_the_only_ones_are_named(tmp_path, capsys):
    # The second coordinate of all inputs is 0: that of the weight is free in the max norm, and 0 in the others.
    np.savez(tmp_path / "line.npz", inputs=[[1.0, 0.0], [-2.0, 0.0]], labels=[1, -1])
    assert main(["which-margin", str(tmp_path / "line.npz"), "--optimiser", "sign", "--steps", "50", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unique"] == {"frobenius": True, "l1": True, "max": False}
    assert main(["which-margin", str(tmp_path / "line.npz"), "--optimiser", "sign", "--steps", "50"]) == 0
    assert capsys.readouterr().out.count("by more than one weight") == 1


def test_next_token_counts_are_predicted_and_trained(tmp_path, capsys):
    counts = [[6, 4, 0, 0], [0, 1, 3, 0], [2, 0, 0, 2]]
    np.savez(tmp_path / "tokens.npz", inputs=np.random.default_rng(5).standard_normal((3, 5)), counts=counts)
    assert main(["train", str(tmp_path / "tokens.npz"), "--margin", "20"]) == 0
    assert "reached_target" in capsys.readouterr().out


def test_an_open_verdict_names_the_line_that_would_decide(data, capsys):
    assert main(["which-margin", data, "--optimiser", "gd,adam,sign", "--steps", "50", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["gd"]["to_decide"].startswith("--optimiser ngd")
    assert "falls by at most 0.9995 per step" in found["adam"]["to_decide"]
    assert int(found["sign"]["to_decide"].removeprefix("--steps ")) >= 100


def test_one_best_weight_in_several_norms_is_told_apart_by_no_run(tmp_path, capsys):
    np.savez(tmp_path / "line.npz", inputs=[[2.0, 1.0], [-1.0, -2.0]], labels=[1, -1])
    assert main(["which-margin", str(tmp_path / "line.npz"), "--optimiser", "sign", "--steps", "50", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["to_decide"].startswith("other data")


def test_gradient_descent_takes_one_over_the_smoothness_of_the_mean_cross_entropy():
    drawn = clusters(3, 4, 9, 0.5, 0)
    setting = pt.Setting(drawn, pt.Direct(), pt.settings.CrossEntropy())
    options = Namespace(optimiser="gd", step_size=None, step_decay=None, norm=None)
    _default_steps(options, setting)
    loss = lambda weight: jnp.exp(setting.weigh(drawn.margins(weight.reshape(3, 4))).log_excess)
    curvature = jnp.linalg.eigvalsh(jax.hessian(loss)(jnp.zeros(12))).max()
    # At 0 the largest eigenvalue of diag(s) - s s' is 1/3 with three classes, where 1/2 is the bound.
    assert float(curvature) == pytest.approx(2 / 3 / options.step_size, rel=1e-9)


def test_a_norm_of_matrices_is_refused_for_vectors_and_one_class_by_name(tmp_path, capsys):
    inputs = np.random.default_rng(0).standard_normal((5, 8))
    np.savez(tmp_path / "two.npz", inputs=inputs, labels=[1, -1, 1, -1, 1])
    np.savez(tmp_path / "one.npz", inputs=inputs, labels=[2] * 5)
    words = ["--optimiser", "steepest", "--norm", "spectral"]
    assert main(["which-margin", str(tmp_path / "two.npz"), *words]) == 2
    assert "weights of shape (8,)" in capsys.readouterr().err
    assert main(["which-margin", str(tmp_path / "one.npz"), "--optimiser", "sign"]) == 2
    assert "at least two classes" in capsys.readouterr().err


def test_full_supports_have_a_finite_limit_and_rows_that_do_not_sum_are_named(tmp_path, capsys):
    inputs, path = np.eye(2), str(tmp_path / "full.npz")
    np.savez(path, inputs=inputs, counts=[[3, 2], [1, 2]])
    assert main(["predict", path]) != 0
    assert "no margin grows" in capsys.readouterr().err
    assert main(["train", path, "--optimiser", "gd", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "settled"
    np.savez(path, inputs=inputs, targets=[[0.6, 0.4], [0.2, 0.75]])
    assert main(["predict", path, "--setting", "next-token"]) != 0
    assert "0.95 in context 1" in capsys.readouterr().err


def test_references_of_several_optimisers_are_solved_once(data, monkeypatch, capsys):
    from penchant.papers.which_margin import comparison

    asked, solve = [], comparison.norm_margin
    monkeypatch.setattr(comparison, "norm_margin", lambda *given: asked.append(given[1].name) or solve(*given))
    assert main(["which-margin", str(data), "--optimiser", "gd,sign", "--steps", "10"]) == 0
    assert len(asked) == len(comparison.NAMES)


def test_a_best_margin_that_is_not_resolved_has_no_share(capsys, tmp_path):
    signs, rows = np.array([1, -1, 1, -1, 1, -1.0]), np.zeros((6, 3))
    rows[:, 0] = 1e-12 * signs * np.array([1.0, 1.9, 1.1, 1.5, 1.3, 1.7])
    rows[:, 1:] = [
        [-0.132, 0.64],
        [-0.536, 0.362],
        [0.947, -0.704],
        [-0.623, 0.041],
        [-0.219, -1.246],
        [-0.544, -0.316],
    ]
    np.savez(tmp_path / "thin.npz", inputs=rows, labels=signs)
    assert main(["which-margin", str(tmp_path / "thin.npz"), "--steps", "20"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("no share") == 3
    assert "share reached" not in shown
    setting = pt.Setting(pt.Classification(rows, signs), pt.Direct(), pt.Exponential())
    run = pt.train(setting, pt.sign_descent(0.1), np.array([1.0, 0.0, 0.0]), steps=0)
    with pytest.warns(pt.errors.PenchantWarning, match="could not certify"):
        found = compare(run, {"max": replace(norm_margin(setting.data, norm_named("max")), norm="max")})
    assert (found.reached["max"], found.last["max"] > 0) == (None, True)
    assert found.verdict("max").outcome.value == "undecided"
