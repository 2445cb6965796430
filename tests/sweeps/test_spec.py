"""Specs: what they mean, and errors that name the key and what is allowed."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from penchant.cli import _parser
from penchant.commands.sweep import _pairs
from penchant.errors import PenchantError
from penchant.sweeps.members import member
from penchant.sweeps.spec import read_spec
from penchant.sweeps.sweep import sweep

EXAMPLES = sorted((Path(__file__).parents[2] / "docs/examples").glob("*.toml"))
PAIR = {"generator": "local_pair", "optimiser": "ngd", "steps": 10}
TOKENS = {"generator": "random_tokens", "n": 3, "length": 4, "d": 5, "optimiser": "ngd", "steps": 10}
AXES = {"x": {"key": "first", "low": 0.1, "high": 1.0}, "y": {"key": "second", "low": 0.1, "high": 1.0}}

BAD = {
    "unknown key": (PAIR | {"sped": 1}, "sped", "steps"),
    "unknown key of the grid": (PAIR | {"grid": {"d": [4]}}, "'d'", "second"),
    "unknown optimiser": (PAIR | {"optimiser": "ngdd"}, "optimiser", "ngd, momentum"),
    "unknown generator": ({"generator": "local_pairs"}, "generator", "local_pair"),
    "empty grid": (PAIR | {"grid": {"second": []}}, "second", "at least one value"),
    "repeats": (PAIR | {"grid": {"second": [1, 1.0]}}, "second", "without repeats"),
    "no spacing": (PAIR | {"grid": {"second": "geom(0, 1, 3)"}}, "second", "positive"),
    "fixed and in the grid": (PAIR | {"grid": {"steps": [1, 2]}}, "steps", "either fixed or in the grid"),
    "a number that is none": (PAIR | {"steps": "many"}, "steps", "whole number"),
    "a negative count": (PAIR | {"steps": -3}, "steps", "not negative"),
    "a negative count of the grid": (
        {"generator": "sparse_regression", "grid": {"n": ["-4"]}, "optimiser": "flow"},
        "'n'",
        "not negative",
    ),
    "a grid that is a text": (PAIR | {"grid": ""}, "grid", "a table"),
    "a boundary with too few runs": (
        PAIR | {"seeds": "0:9", "boundary": {**AXES, "event": "norm > 1", "runs": 20}},
        "runs",
        "four points with every seed",
    ),
    "a boundary of empty batches": (
        PAIR | {"boundary": {**AXES, "event": "norm > 1", "batch": 0}},
        "batch",
        "in (0, inf)",
    ),
    "a level that no share crosses": (
        PAIR | {"boundary": {**AXES, "event": "norm > 1", "level": 2.0}},
        "level",
        "in (0, 1)",
    ),
    "a step that is no integer": (PAIR | {"steps": 2.5}, "steps", "whole number"),
    "two budgets": (PAIR | {"margin": 3.0}, "margin", "log_time"),
    "no generator": ({"optimiser": "ngd"}, "generator", "random_tokens"),
    "an argument is missing": ({"generator": "random_tokens", "n": 3, "d": 4}, "length", "given"),
    "no data": ({"data": "there-is-none.npz"}, "data", "a file"),
    "seeds backwards": (PAIR | {"seeds": "3:1"}, "seeds", "first:end"),
    "a path": (PAIR | {"name": "../elsewhere"}, "name", "without a path"),
    "unknown measure": (PAIR | {"measures": ["speed"]}, "measures", "misalignment"),
    "no event": (PAIR | {"boundary": {**AXES, "event": "margin"}}, "event", "comparison"),
    "no axis": (PAIR | {"boundary": {"x": AXES["x"], "event": "norm > 1"}}, "y.key", "second"),
    "an axis that is no number": (
        PAIR | {"boundary": {**AXES, "x": {**AXES["x"], "key": "loss"}, "event": "norm > 1"}},
        "x.key",
        "second",
    ),
}


@pytest.mark.parametrize(("spec", "key", "allowed"), BAD.values(), ids=BAD)
def test_a_bad_spec_is_refused_with_its_key_and_what_is_allowed(spec, key, allowed):
    with pytest.raises(PenchantError) as refused:
        read_spec(spec)
    assert key in str(refused.value)
    assert allowed in str(refused.value)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"length": 1}, "length.* above 1. Got 1"),
        ({"n": -3}, "'n'"),
        ({"setting": "regression"}, "setting"),
        ({"step_size": -1.0}, "step-size"),
        ({"optimiser": "momentum", "beta": 1.5}, "beta.* in .0, 1"),
        ({"step_decay": -1.0}, "step-decay"),
        ({"batch": 0}, "batch"),
        ({"optimiser": "scheduled"}, "optimiser.* flow, gd"),
        ({"generator": "marked_tokens", "optimiser": "scheduled", "start": "balanced"}, "'start'.* zeros, small"),
        ({"optimiser": "sharp"}, "optimiser"),
        ({"measures": ["recovery"]}, "'measures'.* sparse_regression"),
        ({"measures": ["l1_ratio"]}, "'measures'.* sparse_regression"),
        ({"widths": "8,8"}, "'widths'.*take.* reduction, step_size, cap"),
        ({"alpha": 0.1}, "'alpha'.*take"),
        ({"tolerance": 1e-3}, "'tolerance'.*take"),
        ({"beta": 0.5}, "'beta'.*take"),
        ({"scale": 0.5}, "'scale'.*take"),
        ({"grid": {"eps": [0.1, 0.2]}}, "'eps'.*take"),
    ],
)
def test_impossible_runs_are_refused_before_anything_is_written(tmp_path, change, key):
    pytest.importorskip("pyarrow")
    sweep(PAIR, engine="here", store=tmp_path)  # runs of another sweep make no difference
    with pytest.raises(PenchantError, match=key):
        sweep(TOKENS | change, engine="here", store=tmp_path)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_key_that_some_of_the_runs_take_is_allowed():
    """A grid of optimisers may say what only some of them listen to."""
    grid = {"optimiser": ["ngd", "momentum"], "start": ["zeros", "small"]}
    spec = {key: value for key, value in PAIR.items() if key != "optimiser"} | {"beta": 0.5, "scale": 0.1}
    assert len(sweep(spec | {"grid": grid}, engine="here").rows) == 4
    with pytest.raises(PenchantError, match="'scale'"):
        sweep(spec | {"grid": {"optimiser": grid["optimiser"]}}, engine="here")


@pytest.mark.parametrize(
    ("spec", "deaf"),
    [
        ({"generator": "separable", "optimiser": "ngd"}, {"bias": True}),
        ({"generator": "sparse_regression", "optimiser": "gd"}, {"loss": "logistic"}),
        ({"generator": "marked_tokens", "optimiser": "scheduled"}, {"reduction": "sum"}),
        ({"generator": "clusters", "classes": 3, "d": 4, "n": 9, "optimiser": "ngd"}, {"depth": 2}),
    ],
)
def test_every_kind_of_data_is_swept_and_says_what_it_takes(spec, deaf):
    assert sweep(spec | {"steps": 3}, engine="here").rows[0]["status"] == "out_of_steps"
    with pytest.raises(PenchantError, match=f"'{next(iter(deaf))}'.*left out"):
        sweep(spec | {"steps": 3} | deaf, engine="here")


def test_grids_of_texts_and_files_are_the_same_rows(tmp_path):
    file = tmp_path / "spec.toml"
    file.write_text(
        'generator = "local_pair"\noptimiser = "ngd"\nseeds = "2:4"\n[grid]\nsecond = [0.1, 1]\nfirst = "lin(1, 2, 2)"\n'
    )
    spec = {"generator": "local_pair", "optimiser": "ngd", "seeds": [2, 3]}
    rows = read_spec(spec, grid={"second": "0.1,1", "first": [1, 2.0]}).rows()
    assert read_spec(file).rows() == rows
    assert len(rows) == 8
    assert {type(row["first"]) for row in rows} == {float}


def test_what_is_not_toml_is_said(tmp_path):
    (tmp_path / "spec.toml").write_text("grid = [")
    with pytest.raises(PenchantError, match="is not a"):
        read_spec(tmp_path / "spec.toml")
    with pytest.raises(PenchantError, match="no file"):
        read_spec(tmp_path / "other.toml")
    with pytest.raises(PenchantError, match="no file"):
        read_spec(tmp_path)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_every_example_of_the_docs_can_be_run(file):
    spec = read_spec(file)
    corner = {axis["key"]: axis["high"] for axis in (spec.boundary[name] for name in "xy" if spec.boundary)}
    values = corner | {key: some[0] for key, some in spec.grid.items()}
    values |= {key: round(value) for key, value in values.items() if spec.kinds[key] is int}
    assert member(spec.row(values, 0)).setting.samples


def test_the_file_and_the_flags_of_the_docs_are_the_same_runs():
    text = (Path(__file__).parents[2] / "docs/sweeps.md").read_text()
    file = re.search(r"```toml\n(.*?)```", text, re.DOTALL)[1]
    options = _parser().parse_args(shlex.split(re.search(r"penchant (sweep --set .*)", text)[1]))
    flags = {"grid": _pairs(options.grid, "--grid"), **_pairs(options.set, "--set"), "seeds": options.seeds}
    assert read_spec({}, **flags).rows() == read_spec(tomllib.loads(file)).rows()
