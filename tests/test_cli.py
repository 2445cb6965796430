"""The command line as a program: JSON on standard output, one message for bad input, files that are whole."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import penchant as pt
from penchant.case import make_case
from penchant.cli import main
from penchant.commands import data, progress, verify
from penchant.commands.own import Trained
from penchant.diagnostics.rates import rate
from penchant.exhibits import Figure, Finding, Line, Result, Shown, Table
from penchant.files import read_npz, write_npz
from penchant.lab import Study
from penchant.papers import PAPERS
from penchant.report.panel import happens
from penchant.settings.files import load
from penchant.settings.generators import local_pair, separable
from penchant.verdict import at_most


@pytest.fixture
def linear(tmp_path):
    path = tmp_path / "linear.npz"
    np.savez(path, inputs=np.asarray(separable().signed), labels=np.ones(30))
    return str(path)


@pytest.fixture
def attention(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "attention.npz"
    np.savez(path, tokens=rng.standard_normal((6, 5, 10)), labels=rng.choice([-1, 1], 6), head=rng.standard_normal(10))
    return str(path)


def call(capsys, *arguments):
    status = main([str(argument) for argument in arguments])
    return status, capsys.readouterr()


def test_predict_prints_the_schema_and_saves_the_certified_solution(capsys, attention, tmp_path):
    saved = tmp_path / "out.npz"
    status, printed = call(capsys, "predict", attention, "--setting", "attention", "--json", "--save", saved)
    content = json.loads(printed.out)
    assert status == 0
    assert {"theorem", "hypotheses", "reference", "rivals"} <= set(content)
    assert set(content["reference"]) == {"norm", "value", "lower", "upper", "margin", "certified"}
    assert all({"name", "holds", "slack", "offender"} <= set(row) for row in content["hypotheses"])
    with np.load(saved) as arrays, np.load(attention) as data:
        solution, dual = arrays["solution"], arrays["dual"]
        scores = data["labels"][:, None] * (data["tokens"] @ data["head"])
        logits = np.einsum("ntd,de,ne->nt", data["tokens"], solution, data["tokens"][:, 0])
    best = np.take_along_axis(logits, scores.argmax(1)[:, None], 1)
    margins = np.delete((best - logits).ravel(), np.arange(6) * 5 + scores.argmax(1))
    assert margins.min() == pytest.approx(1.0, abs=1e-12)  # scaled to smallest margin 1
    assert dual.min() >= 0
    # Strong duality in the saved numbers themselves: complementary dual mass on active margins only.
    assert dual @ (margins - 1) <= 1e-10 * dual.sum()
    assert np.linalg.norm(solution) == pytest.approx(content["reference"]["value"], rel=1e-12)


@pytest.mark.parametrize(
    ("optimiser", "verdict"),
    [
        ("flow", "confirmed"),  # 200 steps of the slow rules are not enough to decide
        ("gd", "undecided"),
        ("ngd", "undecided"),
        ("momentum", "undecided"),
        ("polyak", "beyond the theorem"),
        ("accelerated", "beyond the theorem"),
        ("adam", "undecided"),
    ],
)
def test_train_prints_the_schema_for_every_optimiser(capsys, linear, optimiser, verdict):
    budget = ("--margin", "50") if optimiser == "flow" else ("--steps", "200")
    status, printed = call(capsys, "train", linear, "--optimiser", optimiser, *budget, "--json")
    content = json.loads(printed.out)
    wanted = {"status", "steps", "log_excess", "log_time", "margin", "norm", "directions", "bracket", "verdict"}
    assert status == 0
    assert wanted <= set(content)
    assert content["verdict"] == verdict
    assert content["bracket"]["lower"] <= 1.6327221508826 * (1 + 1e-9)  # the best norm of this data set
    if content["bracket"]["upper"] is not None:
        assert content["bracket"]["upper"] >= 1.6327221508825 * (1 - 1e-9)


def test_budgets_mean_what_they_say(capsys, linear):
    margin = json.loads(call(capsys, "train", linear, "--margin", "1000", "--json")[1].out)
    assert margin["margin"] == pytest.approx(1000, rel=1e-9)
    log_time = json.loads(call(capsys, "train", linear, "--log-time", "500", "--json")[1].out)
    assert log_time["log_time"] == pytest.approx(500, rel=1e-9)
    physical = json.loads(
        call(capsys, "train", linear, "--time", "20", "--optimiser", "gd", "--step-size", "0.1", "--json")[1].out
    )
    assert physical["log_time"] == pytest.approx(np.log(20), abs=6e-3)  # one step of 0.1 in 20
    assert physical["steps"] in (200, 201)


def test_a_cap_that_binds_is_announced(capsys, linear):
    options = ("train", linear, "--optimiser", "ngd", "--step-size", "0.1", "--steps", "20", "--cap")
    assert "cap        first binds at step 0: " in call(capsys, *options, "0.001")[1].out
    assert json.loads(call(capsys, *options, "1e9", "--json")[1].out)["first_capped"] is None


def test_save_keeps_the_trajectory_and_the_parameters_by_name(capsys, attention, tmp_path):
    path = tmp_path / "run.npz"
    printed = json.loads(call(capsys, "train", attention, "--margin", "100", "--save", path, "--json")[1].out)
    with np.load(path) as arrays:
        assert arrays["W"].shape == (10, 10)
        assert arrays["log_excess"][-1] == printed["log_excess"]
        assert np.linalg.norm(arrays["W"]) == pytest.approx(printed["norm"], rel=1e-12)
    again = json.loads(call(capsys, "train", attention, "--start", path, "--margin", "200", "--json")[1].out)
    assert again["margin"] == pytest.approx(200, rel=1e-9)


def test_a_random_start_is_a_function_of_its_seed(capsys, attention):
    runs = [
        call(
            capsys,
            "train",
            attention,
            "--optimiser",
            "ngd",
            "--steps",
            20,
            "--start",
            "small",
            "--scale",
            "0.5",
            "--seed",
            seed,
            "--json",
        )[1].out
        for seed in (1, 1, 2)
    ]
    assert runs[0] == runs[1] != runs[2]


def test_csv_and_npz_give_the_same_prediction(capsys, linear, tmp_path):
    with np.load(linear) as data:
        table = np.column_stack([data["inputs"], data["labels"]])
    path = tmp_path / "data.csv"
    np.savetxt(path, table, delimiter=",", fmt="%.17g", header="a,b,c,d,label", comments="")
    assert call(capsys, "predict", path, "--json")[1].out == call(capsys, "predict", linear, "--json")[1].out


def test_a_local_direction_is_named(capsys, tmp_path):
    data = local_pair(1.0, 0.1)
    path = tmp_path / "pair.npz"
    np.savez(path, tokens=np.asarray(data.tokens), scores=np.asarray(data.scores))
    content = json.loads(
        call(capsys, "train", path, "--optimiser", "ngd", "--step-size", 0.05, "--steps", 5000, "--json")[1].out
    )
    assert content["verdict"] == "outside the theorem"
    assert "local direction of tokens [1, 0] (locally optimal)" in content["detail"]


def test_infeasible_data_train_but_do_not_predict(capsys, tmp_path):
    path = tmp_path / "noise.npz"
    np.savez(path, inputs=[[1.0, 0.0], [1.0, 0.0]], labels=[1, -1])
    status, printed = call(capsys, "predict", path, "--json")
    assert status == 2
    assert json.loads(printed.out)["error"] == "NotSeparableError"
    status, printed = call(capsys, "train", path, "--optimiser", "gd", "--steps", 10, "--json")
    content = json.loads(printed.out)
    assert status == 0
    assert content["verdict"] == "undecided"
    assert content["prediction"] is None


def truncated(path):
    np.savez(path, inputs=np.ones((50, 3)), labels=np.ones(50))
    path.write_bytes(path.read_bytes()[:200])


def foreign(path):
    path.write_bytes(b"this is no archive")


def pickled(path):
    np.savez(path, inputs=np.array([{"a": 1}], dtype=object), labels=[1])


@pytest.mark.parametrize("spoil", [truncated, foreign, pickled])
def test_files_that_cannot_be_data_are_named(capsys, tmp_path, spoil):
    path = tmp_path / "bad.npz"
    spoil(path)
    status, printed = call(capsys, "predict", path)
    assert status == 2
    assert "bad.npz" in printed.err
    assert "Traceback" not in printed.err


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--step-size", "-1", "--optimiser", "gd"), "step"),
        (("--cap", "0", "--optimiser", "ngd"), "cap"),
        (("--cap", "5", "--optimiser", "gd"), "--cap"),
        (("--steps", "-3", "--optimiser", "gd"), "steps"),
        (("--step-size", "inf", "--optimiser", "gd"), "finite"),
        (("--time", "0",), "--time"),
        (("--time", "inf",), "--time"),
        (("--log-time", "nan",), "--log-time"),
        (("--log-time", "30", "--optimiser", "gd"), "which is 1e+08 steps"),
        (("--start", "nowhere",), "--start"),
        (("--setting", "nonsense",), "setting"),
        (("--save", "run.txt",), "--save"),
    ],
)  # fmt: skip
def test_bad_options_name_the_option(capsys, linear, arguments, word):
    status, printed = call(capsys, "train", linear, *arguments)
    assert status == 2
    assert word in printed.err


def test_report_says_what_is_wrong_with_a_directory(capsys, tmp_path):
    assert call(capsys, "report", tmp_path / "missing")[0] == 2
    assert call(capsys, "report", tmp_path)[0] == 2
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "study.json").write_text('{"format": "penchant study 1", "na')
    status, printed = call(capsys, "report", tmp_path)
    assert status == 2
    assert "study.json" in printed.err
    (tmp_path / "study" / "study.json").write_text('{"format": "something else"}')
    assert "was not written by penchant" in call(capsys, "report", tmp_path)[1].err
    (tmp_path / "data.npz").write_bytes(b"")
    assert "is not a readable .npz file" in call(capsys, "report", tmp_path / "data.npz")[1].err


def test_report_draws_saved_runs_and_refuses_other_files(capsys, linear, tmp_path):
    call(capsys, "train", linear, "--margin", "100", "--save", tmp_path / "my run.npz")
    page = tmp_path / "page"
    assert call(capsys, "report", tmp_path / "my run.npz", "--out", page)[0] == 0
    shown = json.loads((page / "my-run" / "study.json").read_text())
    saved = np.load(tmp_path / "my run.npz")
    drawn = {one["name"]: one["lines"][0]["y"] for one in shown["figures"]}
    assert drawn["log-excess"] == saved["log_excess"].tolist()
    assert drawn["margins"] == saved["margins"].min(axis=1).tolist()
    assert "Run: my run" in (page / "index.html").read_text()
    assert "`Probe.save` wrote" in call(capsys, "report", linear)[1].err
    write_npz(tmp_path / "none.npz", {"format": "penchant trajectory 1"}, {"steps": []})
    assert "has no records" in call(capsys, "report", tmp_path / "none.npz")[1].err


def test_report_says_which_part_of_a_study_is_broken(capsys, linear, tmp_path):
    call(capsys, "train", linear, "--margin", "100", "--out", tmp_path)
    saved = next(tmp_path.glob("*/study.json"))
    study, run = json.loads(saved.read_text()), next(tmp_path.glob("*/*.npz"))
    whole = run.read_bytes()
    run.write_bytes(whole[: len(whole) // 2])
    assert f"'{run}' is not a readable .npz file" in call(capsys, "report", tmp_path)[1].err
    run.unlink()
    assert f"There is no file '{run}'" in call(capsys, "report", tmp_path)[1].err
    run.write_bytes(whole)
    assert call(capsys, "report", tmp_path)[0] == 0
    study["figures"][0]["lines"] = None
    saved.write_text(json.dumps(study))
    status, printed = call(capsys, "report", tmp_path)
    assert status == 2
    assert "['figures'][0]['lines'] is None" in printed.err
    for key, value in (("tables", None), ("findings", [{"citation": None}])):
        saved.write_text(json.dumps({**study, key: value}))
        assert "is not a penchant study" in call(capsys, "report", tmp_path)[1].err


def test_the_default_step_does_not_grow_with_the_number_of_samples_of_a_sum(capsys, linear):
    options = ("train", linear, "--optimiser", "gd", "--loss", "exponential", "--steps", "5", "--json")
    mean, total = (json.loads(call(capsys, *options, "--reduction", one)[1].out) for one in ("mean", "sum"))
    assert total["status"] == mean["status"] == "out_of_steps"
    assert total["norm"] == pytest.approx(mean["norm"], rel=1e-12)  # the same steps of the same size
    assert not [row for row in total["prediction"]["hypotheses"] if row["name"] == "step_size" and not row["holds"]]


def test_powers_are_trained_from_a_shell(capsys, tmp_path):
    path = tmp_path / "sparse.npz"
    inputs = np.random.default_rng(0).standard_normal((4, 8))
    np.savez(path, inputs=inputs, targets=2.0 * inputs[:, 0])
    options = ("--setting", "signed-powers", "--alpha", "0.1", "--depth")
    found = json.loads(call(capsys, "train", path, *options, "4", "--json")[1].out)
    assert found["verdict"] == "confirmed"
    assert call(capsys, "train", path, *options, "2")[0] == 2
    for depth in ("3", "0"):
        status, printed = call(capsys, "train", path, "--setting", "squares", "--depth", depth)
        assert status == 2
        assert "used with signed-powers" in printed.err


def test_a_terminated_command_cleans_up():
    handlers = {asked: signal.getsignal(asked) for asked in (signal.SIGTERM, signal.SIGINT)}
    try:
        main(["studies"])
        with pytest.raises(KeyboardInterrupt):  # on its way out it cleans up what is being written
            signal.raise_signal(signal.SIGTERM)
    finally:
        for asked, handler in handlers.items():
            signal.signal(asked, handler)


def test_a_page_of_own_data_stands_alone(capsys, linear, tmp_path):
    call(capsys, "train", linear, "--margin", "100", "--out", tmp_path / "page")
    page = (tmp_path / "page" / "index.html").read_text()
    assert page.count('class="plot"') == 4
    assert "Theorem 9.25" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "<script src" not in page
    assert (tmp_path / "page" / "own-data" / "direction.csv").exists()
    assert main(["report", str(tmp_path / "page")]) == 0


def test_study_prints_what_it_saves_with_all_digits(capsys, tmp_path, monkeypatch):
    finding = Finding("It is small.", at_most(2 / 3, 1.0, "share", "of three"), "Someone")
    figure = Figure("curve", "Curve", "x", "y", (Line("run", np.arange(3.0), np.arange(3.0) / 7),), "")
    slopes = rate([-2.0, -2.1])
    table = Table("shares", "Shares", ("name", "n", "share", "slope"), (("a", 3, Shown(2 / 3, ".3f"), slopes),), "")
    tiny = Study("tiny", "Tiny", lambda lab: Result((finding,), (figure,), (table,)))
    monkeypatch.setattr(verify, "find_study", lambda name: (PAPERS[0], tiny))
    status, printed = call(capsys, "study", "tiny", "--out", tmp_path, "--json")
    content = json.loads(printed.out)
    assert status == 0
    assert json.loads((tmp_path / "tiny" / "study.json").read_text()).items() <= content.items()
    verdict = content["findings"][0]["verdict"]
    assert (verdict["outcome"], verdict["measured"], verdict["detail"]) == ("confirmed", 2 / 3, "of three")
    assert content["tables"][0]["rows"] == [["a", 3, "0.667", str(slopes)]]
    assert content["tables"][0]["values"][0][:3] == ["a", 3, 2 / 3]
    assert content["tables"][0]["values"][0][3]["centre"] == slopes.slope
    assert content["figures"][0]["lines"][0]["y"] == [0.0, 1 / 7, 2 / 7]
    assert "0.667" in (tmp_path / "index.html").read_text()
    assert call(capsys, "study", "tiny", "--out", tmp_path)[1].out.startswith("confirmed  It is small.")


def test_unknown_paper_and_study_are_errors(capsys):
    assert call(capsys, "verify", "no-such-paper")[0] == 2
    assert call(capsys, "study", "no-such-study")[0] == 2


def test_help_needs_no_heavy_import():
    code = "import sys; import penchant.cli as c; c._parser(); sys.exit(any(m in sys.modules for m in ('jax', 'numpy', 'scipy', 'matplotlib')))"
    started = time.perf_counter()
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    assert time.perf_counter() - started < 2.0  # typically 0.1 s; the bound only catches an import gone heavy


def test_an_intercept_separates_what_no_direction_through_zero_does(capsys, tmp_path):
    path = tmp_path / "shifted.npz"
    np.savez(path, inputs=[[1.0], [2.0], [3.0], [4.0]], labels=[-1, -1, 1, 1])
    status, _ = call(capsys, "predict", path, "--json")
    assert status == 2  # 1 and 2 lie on the same side of zero as 3 and 4
    status, printed = call(capsys, "predict", path, "--bias", "--json")
    assert status == 0
    assert json.loads(printed.out)["reference"]["value"] == pytest.approx(np.hypot(2, 5), rel=1e-10)  # w = 2, b = -5


def test_tied_tokens_are_refused_or_kept(capsys, tmp_path):
    rng = np.random.default_rng(0)
    tokens, head = rng.standard_normal((3, 4, 8)), rng.standard_normal(8)
    best = int(np.argmax(tokens[0] @ head))
    tokens[0, (best + 1) % 4] = tokens[0, best]
    path = tmp_path / "tied.npz"
    np.savez(path, tokens=tokens, labels=np.ones(3), head=head)
    status, printed = call(capsys, "predict", path)
    assert status == 2
    assert "NonUniqueOptimalToken" in printed.err
    assert call(capsys, "predict", path, "--ties", "keep")[0] == 0


@pytest.mark.parametrize("option", [("--bias",), ("--ties", "keep")])
def test_options_that_do_not_apply_are_refused(capsys, tmp_path, option):
    path = tmp_path / "regression.npz"
    np.savez(path, inputs=np.eye(2), targets=np.ones(2))
    status, printed = call(capsys, "predict", path, *option)
    assert status == 2
    assert option[0] in printed.err


def test_usage_errors_are_json_too(capsys):
    status, printed = call(capsys, "predict", "--json")
    assert status == 2
    assert json.loads(printed.out)["error"] == "UsageError"
    assert "DATA" in printed.err


def test_other_separators_and_directories_are_named(capsys, tmp_path):
    path = tmp_path / "german.csv"
    path.write_text("a;b;label\n1;2;1\n")
    assert "commas" in call(capsys, "predict", path)[1].err
    assert "directory" in call(capsys, "predict", tmp_path)[1].err


def test_data_that_nothing_separates_report_the_loss_itself(capsys, tmp_path):
    path = tmp_path / "mixed.npz"
    np.savez(path, inputs=[[1.0], [2.0], [-1.0]], labels=[1, -1, 1])
    status, printed = call(capsys, "train", path, "--json")
    content = json.loads(printed.out)
    assert status == 0
    assert content["status"] == "settled"
    assert content["log_excess_is"].startswith("log L")
    weight = np.linspace(-2, 2, 400_001)
    loss = (np.exp(-weight) + np.exp(2 * weight) + np.exp(weight)) / 3
    assert content["log_excess"] == pytest.approx(np.log(loss.min()), abs=1e-8)


def test_a_page_is_replaced_only_where_that_is_asked_for(capsys, monkeypatch, linear, tmp_path):
    trained = []
    gap = at_most(0.0, 1.0, "gap")
    case = SimpleNamespace(finding=Finding("", gap), verdict=gap, made={}, run=None)
    trained_now = lambda options: trained.append(options) or Trained(case, (), Path, "")
    monkeypatch.setattr(data, "train", trained_now)
    (tmp_path / "page" / "own-data").mkdir(parents=True)
    (tmp_path / "page" / "index.html").touch()
    command = ("train", linear, "--json", "--out", tmp_path / "page")
    status, printed = call(capsys, *command)
    assert (status, trained) == (2, [])
    assert "--overwrite" in printed.err
    assert call(capsys, *command, "--overwrite")[0] == 0
    assert call(capsys, *command[:-1], tmp_path / "other")[0] == 0
    assert len(trained) == 2
    (tmp_path / "run.npz").touch()
    command = ("train", linear, "--json", "--save", tmp_path / "run.npz")
    assert "--overwrite" in call(capsys, *command)[1].err
    assert call(capsys, *command, "--overwrite")[0] == 0
    assert len(trained) == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (",2,1\n1,2,1\n-1,-3,-1\n", "Line 1 of .* must have a finite number in column 1. Got nothing"),
        ("NA,2,1\n1,2,1\n", "Line 1 .* column 1. Got 'NA'"),
        ("NA,NA,NA\n1,2,1\n", "Line 1 .* column 1. Got 'NA'"),
        ("0x1F,2,1\n1,2,1\n", "Line 1 .* column 1. Got '0x1F'"),
        ("height,weight,label\n1,2,1\n\n1,,-1\n", r"Line 4 .* column 2 \('weight'\). Got nothing"),
        ("1,2,1\n1,nan,-1\n", "Line 2 .* column 2. Got 'nan'"),
        ("1,2,1\n1,inf,-1\n", "Line 2 .* column 2. Got 'inf'"),
        ("1,2,1\n1,2\n", "Line 2 .* must have 3 numbers.* Got 2 columns"),
        (",,\n1,2,1\n", "Line 1 .* column 1. Got nothing"),
        ("1_0,2,1\n1,2,1\n", "Line 1 .* column 1. Got '1_0'"),
        ("1,2,1\n\u0661,2,1\n", "Line 2 .* column 1. Got"),
        (",a,label\n0,2,1\n1,-3,-1\n", "no name and counts the rows.*\\n.*\\n.*index=False"),
        ('1,2,1\n"1,2,1\n', "is not a table of commas: unexpected end of data"),
    ],
)
def test_missing_values_are_named_by_line_and_column(capsys, tmp_path, text, words):
    path = tmp_path / "data.csv"
    path.write_text(text)
    status, printed = call(capsys, "predict", path)
    assert status == 2
    assert re.search(words, printed.err)


def test_a_first_row_without_numbers_is_a_header(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text(" ,b,label\n1,2,1\n-1,-3,-1\n")
    assert load(path).signed.tolist() == [[1.0, 2.0], [1.0, 3.0]]


def test_a_complex_start_is_refused(capsys, linear, tmp_path):
    np.savez(tmp_path / "start.npz", W=np.ones(4) * 1j)
    status, printed = call(capsys, "train", linear, "--start", tmp_path / "start.npz")
    assert status == 2
    assert "dtype complex128" in printed.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("train", "--optimiser", "gd", "--steps", "99999999999999999999"), "--steps: an integer below 2^62"),
        (("predict", "--setting", "deep-linear", "--widths", "8²"), "positive integers"),
        (("predict", "--setting", "deep-linear", "--widths", "1000000000,1000"), "small enough for the memory"),
    ],
)
def test_numbers_too_large_for_the_machine_are_named(capsys, linear, arguments, words):
    status, printed = call(capsys, arguments[0], linear, *arguments[1:])
    assert status == 2
    assert words in printed.err


@pytest.mark.parametrize("seed", [-1, 2**70])
def test_a_seed_is_checked(capsys, seed):
    status, printed = call(capsys, "study", "min-norm", "--seed", seed)
    assert status == 2
    assert "argument --seed" in printed.err


def test_a_prediction_about_layers_is_saved(capsys, linear, tmp_path):
    path = tmp_path / "found.npz"
    status, _ = call(capsys, "predict", linear, "--setting", "deep-linear", "--optimiser", "gd", "--save", path)
    assert status == 0
    header, arrays = read_npz(path)
    evidence = [np.asarray(row["evidence"]) for row in header["hypotheses"] if row.get("evidence") is not None]
    assert evidence[0].dtype == float
    assert set(arrays) == {"solution", "dual"}


def run_alone(*arguments, limit=-1, **variables):
    """The command in a process of its own, under a limit on the size of the files it writes."""
    limits = f"import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))"
    code = f"{limits}; from penchant.cli import main; sys.exit(main())"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, env=os.environ | variables)


@pytest.mark.slow
def test_what_the_system_refuses_is_a_message(linear, tmp_path):
    found = run_alone("train", linear, "--margin", "10", "--save", str(tmp_path / "run.npz"), limit=4096)
    assert found.returncode == 2
    assert b"File too large" in found.stderr
    assert not (tmp_path / "run.npz").exists()
    found = run_alone("predict", linear, JAX_PLATFORMS="rocm")
    assert found.returncode == 2
    assert b"'JAX_PLATFORMS' argument of penchant must be a device of this machine" in found.stderr


@pytest.mark.slow
def test_names_of_files_need_not_be_text(linear, tmp_path):
    path, out = (tmp_path / os.fsdecode(name) for name in (b"caf\xe9.npz", b"page\xff"))
    path.write_bytes(Path(linear).read_bytes())
    found = run_alone("train", path, "--margin", "10", "--out", out, PYTHONIOENCODING="utf-8:strict")
    assert found.returncode == 0
    assert os.fsencode(out) in found.stdout
    assert "Your data: caf\ufffd.npz" in (out / "index.html").read_text()


@pytest.mark.parametrize("optimiser", ["momentum", "adam"])
def test_a_resumed_run_is_the_uninterrupted_one_to_the_bit(capsys, linear, tmp_path, optimiser):
    whole, part, rest = (tmp_path / f"{name}.npz" for name in ("whole", "part", "rest"))
    options = ("train", linear, "--optimiser", optimiser)
    call(capsys, *options, "--steps", "50", "--save", whole)
    call(capsys, *options, "--steps", "20", "--save", part)
    _, printed = call(capsys, *options, "--steps", "30", "--start", part, "--save", rest)
    assert "memory" not in printed.err
    with np.load(whole) as wanted, np.load(rest) as found:
        np.testing.assert_array_equal(found["W"], wanted["W"])
        assert json.loads(found["header"].tobytes())["taken"] == 50


def test_a_run_resumed_by_another_optimiser_says_that_memory_is_lost(capsys, linear, tmp_path):
    saved, options = tmp_path / "run.npz", ("train", linear, "--optimiser", "momentum", "--steps", "20")
    assert "memory" not in call(capsys, *options, "--save", saved)[1].err
    for others in (("--beta", "0.5"), ("--optimiser", "gd"), ("--optimiser", "flow")):
        assert "carried, which is dropped" in call(capsys, *options, "--start", saved, *others)[1].err, others
    plain = "train", linear, "--optimiser", "gd", "--steps", "20"
    call(capsys, *plain, "--save", tmp_path / "plain.npz")
    assert "dropped" not in call(capsys, *plain, "--start", tmp_path / "plain.npz", "--step-size", "0.01")[1].err
    steepest = "train", linear, "--optimiser", "steepest", "--norm", "linf", "--steps", "20", "--start"
    assert "memory" not in call(capsys, *steepest, tmp_path / "plain.npz")[1].err
    assert "no memory of this optimiser" in call(capsys, *steepest, tmp_path / "plain.npz", "--beta", "0.5")[1].err


def test_layers_that_do_not_fit_are_an_error_with_their_size(capsys, linear):
    status, printed = call(capsys, "predict", linear, "--setting", "deep-linear", "--widths", "1000000")
    assert status == 2
    assert "7.28 TiB" in printed.err
    assert "--widths" in printed.err
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    width = there // 64  # with the inputs of `linear` their parameters fit, and a step with them does not
    status, printed = call(capsys, "predict", linear, "--setting", "deep-linear", "--widths", width)
    assert status == 2
    assert "GB of parameters in four copies" in printed.err


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_inside_a_callback_of_compiled_code_ends_the_command(capsys, linear, monkeypatch, name, code):
    """JAX turns what a callback raises into an error of its own."""
    number = signal.Signals[name]
    monkeypatch.setattr(data, "sparse", lambda *_: lambda *_: os.kill(os.getpid(), number))
    before = signal.getsignal(number)
    try:
        status, printed = call(capsys, "train", linear, "--optimiser", "gd", "--steps", "20")
    finally:
        signal.signal(number, before)
    assert status == code
    assert printed.err.endswith("files written so far are whole.\n")


@pytest.mark.slow
def test_ctrl_c_ends_a_long_descent(linear):
    command = [sys.executable, "-m", "penchant.cli", "train", linear, "--optimiser", "gd", "--steps", "1000000000"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        next(line for line in process.stderr if line.startswith("step "))  # the compiled code is at work
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130


def test_an_undecided_run_says_what_would_decide_it_and_that_decides(capsys, linear):
    _, told = call(capsys, "train", linear, "--optimiser", "gd", "--steps", "100", "--json")
    content = json.loads(told.out)
    assert content["verdict"] == "undecided"
    assert "Constant(step=" in content["optimiser"]
    assert "the default, from the data" in content["optimiser"]
    flow, ngd = (line.split() for line in content["would_decide"].split(" (")[0].split(", or "))
    for advice in (flow, ngd):
        again = json.loads(call(capsys, "train", linear, *advice, "--json")[1].out)
        assert (again["verdict"], again["would_decide"]) == ("confirmed", "")


def test_an_undecided_run_of_signs_is_not_sent_to_the_flow_which_has_another_limit(capsys, tmp_path):
    path = tmp_path / "three.csv"
    path.write_text("1,3,1\n1,-2,1\n2,1,1\n")
    asked = ["train", path, "--optimiser", "sign", "--step-size", "0.1", "--step-decay", "0.3", "--json"]
    first = json.loads(call(capsys, *asked, "--steps", "20")[1].out)
    words = first["would_decide"].split()
    assert (first["verdict"], words[-2]) == ("undecided", "--steps")
    assert "flow" not in words
    assert json.loads(call(capsys, *asked, *words[-2:])[1].out)["verdict"] == "confirmed"


def test_adam_is_judged_by_the_linf_margin(capsys, tmp_path):
    path = tmp_path / "two.csv"
    path.write_text("2,1,1\n1,4,1\n3,0.5,1\n")
    content = json.loads(call(capsys, "train", path, "--optimiser", "adam", "--json")[1].out)
    assert content["prediction"]["reference"]["norm"] == "linf"
    assert content["facts"]["conclusion"] == "holds"
    assert call(capsys, "train", path, "--setting", "deep-linear", "--optimiser", "adam", "--steps", "9")[0] == 0


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("1,0,1\n1,0,-1\n0,1,1\n", ("v + u log t: 1 of 3", "(margin 1 per unit", "loss of the other 2 at |v| = 0")),
        ("1,0,1\n1,0,-1\n0,1,1\n0,1,-1\n", ("converges to the minimum v of the loss at |v| = 0, loss 0.693147",)),
    ],
)
def test_data_that_nothing_separates_are_told_what_training_does_instead(capsys, tmp_path, rows, words):
    path = tmp_path / "mixed.csv"
    path.write_text(rows)
    status, told = call(capsys, "predict", path, "--loss", "logistic")
    assert status == 2
    for word in words:
        assert word in told.err
    assert "--bias" in told.err
    assert "--bias" not in call(capsys, "predict", path, "--bias")[1].err
    assert words[0].split(":")[0].split(" at")[0] in call(capsys, "train", path, "--steps", "9")[1].out


def test_the_default_queries_are_named(capsys, attention, tmp_path):
    assert "queries: the first token" in call(capsys, "predict", attention)[1].out
    arrays = dict(np.load(attention))
    np.savez(tmp_path / "asked.npz", **arrays, queries=arrays["tokens"][:, 1])
    assert "queries: the first token" not in call(capsys, "predict", tmp_path / "asked.npz")[1].out


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (("train", "DATA", "--optimizer", "gd"), "--optimiser"),
        (("train", "DATA", "--optimiser", "addam"), "adam"),
        (("predict", "DATA", "--setting", "lineer"), "linear"),
        (("study", "max-margn"), "max-margin"),
        (("verify", "key_qury"), "key_query"),
        (("predikt", "DATA"), "predict"),
    ],
)
def test_misspelt_names_are_answered_with_the_nearest_one(capsys, linear, arguments, near):
    status, printed = call(capsys, *(linear if word == "DATA" else word for word in arguments))
    assert status == 2
    assert re.search(f"[Dd]id you mean {near}\\?", printed.err)


def test_an_option_of_another_command_is_not_answered_with_itself(capsys, tmp_path):
    status, printed = call(capsys, "report", tmp_path, "--overwrite")
    assert status == 2
    assert "--overwrite" in printed.err
    assert "Did you mean --overwrite" not in printed.err


def test_what_python_prints_is_what_the_command_line_says(capsys, linear):
    setting = pt.Setting(load(linear), pt.Direct(), pt.Exponential())
    prediction = pt.predict(setting, pt.GradientFlow())
    run = pt.train(setting, pt.GradientFlow(), until=pt.MarginAbove(50.0))
    case = make_case(prediction, run)
    told = call(capsys, "predict", linear)[1].out.splitlines()
    assert [line for line in told if not line.startswith("optimiser")] == str(prediction).splitlines()
    told = call(capsys, "train", linear, "--margin", "50")[1].out.splitlines()
    assert str(run).splitlines()[0] in told
    assert f"verdict    {case.verdict}" in told
    assert str(case) == f"{prediction}\n{run}\n{case.verdict}"
    assert [repr(one)[0] for one in (prediction, run, case.verdict, case)] == ["<"] * 4
    assert all("<pre>" in one._repr_html_() for one in (prediction, run, case))


def test_a_page_says_how_it_was_made_and_draws_the_rivals(capsys, linear, tmp_path):
    command = ("train", linear, "--optimiser", "ngd", "--steps", "300", "--step-size", "0.25", "--out", str(tmp_path))
    call(capsys, *command)
    study = json.loads((tmp_path / "own-data" / "study.json").read_text())
    made = dict(next(table["rows"] for table in study["tables"] if table["name"] == "made"))
    assert made["command"] == shlex.join(("penchant", *command))
    assert made["data"] == "linear.npz: inputs 30 x 4, labels 30"
    assert (made["step size"], made["seed"]) == ("0.25", "0")
    (figure,) = (figure for figure in study["figures"] if figure["name"] == "direction")
    assert [line["label"] for line in figure["lines"]][:2] == ["l2 reference", "rival: l1"]


def test_figures_on_which_nothing_happens_are_left_out():
    steps, still = np.arange(1.0, 9.0), np.ones(8)
    drawn = lambda y, style="line": Figure("f", "F", "step", "y", (Line("run", steps, y, style),), "", "log", "log")
    assert happens(drawn(1 / steps))
    assert not any(map(happens, (drawn(still), drawn(-steps), drawn(steps, "prediction"), drawn(still * np.nan))))


def test_a_flow_foretells_the_time_that_is_left_from_the_pace_of_its_margin(monkeypatch):
    clock, told = iter([0.0, 1.0, 2.0, 8.0, 14.0]), []
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    tell = progress.sparse(told.append, "log L", margins=True, level=1e6)
    for step, margin in enumerate([0.5, 10.0, 1e3, 2e6]):
        tell(step, -margin, margin)
    assert told[0] == "step 2: log L -1000, smallest margin 1000, about 9 s left"  # a hundredfold took 6 s
    assert told[1].endswith("about 0 s left")
