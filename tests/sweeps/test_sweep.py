"""Sweeps as a whole: resume, failures, interrupts, engines, and what the commands keep."""

import json
import os
import signal
import subprocess
import sys
import time
import tomllib

import jax
import numpy as np
import pytest

import penchant as pt
from penchant.cli import main
from penchant.errors import PenchantError
from penchant.sweeps import executors
from penchant.sweeps import sweep as module
from penchant.sweeps.executors import pool
from penchant.sweeps.spec import read_spec
from penchant.sweeps.store import Store
from penchant.sweeps.work import failed

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

PAIR = {
    "generator": "local_pair",
    "grid": {"second": [0.1, 0.4, 1.0]},
    "optimiser": "ngd",
    "steps": 50,
    "start": "small",
    "seeds": "0:3",
}


def die(row):
    if row["x"] == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"square": 0.0}


def test_a_finished_run_is_never_repeated(tmp_path, monkeypatch):
    first = pt.sweep(PAIR | {"seeds": "0:2"}, store=tmp_path, engine="here")
    given = []
    monkeypatch.setattr(module, "work", lambda group, real=module.work: given.extend(group["rows"]) or real(group))
    more = pt.sweep(PAIR, store=tmp_path, engine="here")
    assert (first.kept, more.kept, len(more.rows)) == (0, 6, 9)
    assert {row["seed"] for row in given} == {2}
    alone = pt.sweep(PAIR, engine="here")
    assert [row["norm"] for row in alone.rows] == [row["norm"] for row in more.rows]
    assert pt.sweep(PAIR, store=tmp_path, engine="here").kept == 9
    assert len(given) == 3 + 9  # the one without a store is kept nowhere


def test_a_boundary_goes_on_where_it_was(tmp_path):
    pytest.importorskip("adaptive")
    axes = {"x": {"key": "first", "low": 0.5, "high": 2.0}, "y": {"key": "second", "low": 0.05, "high": 1.0}}
    spec = {"generator": "local_pair", "optimiser": "ngd", "steps": 50}
    asked = lambda runs: spec | {"boundary": {**axes, "event": "smallest_margin > 0", "runs": runs, "batch": 4}}
    told = []
    assert pt.sweep(asked(8), store=tmp_path, engine="here", progress=told.append).kept == 0
    assert [text.split()[0] for text in told] == ["[0/8]", "[4/8]", "[8/8]"]  # of all batches, not of each
    assert pt.sweep(asked(12), store=tmp_path, engine="here").kept == 8
    assert len(Store(tmp_path).rows()) == 12


def test_what_determines_a_result_is_in_its_key(tmp_path):
    keys = lambda **change: {row["key"] for row in pt.sweep(PAIR | change, engine="here").rows}
    assert not keys() & keys(steps=51)
    assert not keys() & keys(measures=["l2_norm"])
    assert keys() == keys(name="other")


def test_failures_are_recorded_and_tried_again_only_on_request(tmp_path):
    spec = PAIR | {"grid": {"second": [0.1, 0.4, -1.0, 1.0]}, "seeds": [0]}
    found = pt.sweep(spec, store=tmp_path, engine="here")
    assert list(found.failures.values()) == [1]
    assert "second" in next(iter(found.failures))
    assert [row.get("norm") is None for row in found.rows] == [False, False, True, False]
    assert pt.sweep(spec, store=tmp_path, engine="here").kept == 4
    assert pt.sweep(spec, store=tmp_path, engine="here", retry=True).kept == 3
    assert len(Store(tmp_path).rows()) == 4


def test_an_interrupt_keeps_what_is_done(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "GROUP", 2)

    def stop(text):
        if not text.startswith("[0/4] begun"):
            assert "runs a second" in text
            assert "left" in text
            raise KeyboardInterrupt

    spec = PAIR | {"grid": {"second": [0.1, 0.4, 0.7, 1.0]}, "seeds": [0]}
    with pytest.raises(KeyboardInterrupt):
        pt.sweep(spec, store=tmp_path, engine="here", progress=stop)
    assert [row["second"] for row in Store(tmp_path).rows()] == [0.1, 0.4]
    assert pt.sweep(spec, store=tmp_path, engine="here").kept == 2


def test_the_pool_gives_the_same_numbers_and_survives_a_dead_worker(tmp_path):
    spec = PAIR | {"grid": {"second": [0.1, 1.0]}, "steps": 20, "seeds": "0:2"}
    kept = lambda rows: [{name: row[name] for name in row if name not in ("kind", "name", "code")} for row in rows]
    assert kept(pt.sweep(spec, jobs=1, store=tmp_path).rows) == kept(pt.sweep(spec, engine="here").rows)
    with pool(2) as run:
        found = dict(run(die, [{"x": 0}, {"x": 1}, {"x": 2}]))
    assert found[0] == found[2] == {"square": 0.0}
    assert "died 3 times" in str(found[1])


def test_a_script_sweeps_without_ado(tmp_path):
    """Spawned processes run the script of their parent again, unless they are kept from it; one from a pipe is no file that they could run."""
    script = f"import penchant as pt\nprint([row['status'] for row in pt.sweep({PAIR | {'seeds': 0}}, jobs=2).rows])\n"
    (tmp_path / "script.py").write_text(script)
    for how, given in ((str(tmp_path / "script.py"), None), ("-", script)):
        done = subprocess.run([sys.executable, how], input=given, capture_output=True, text=True, timeout=300)
        assert (done.stdout, done.stderr) == (f"{['out_of_steps'] * 3}\n", "")


def test_a_pool_has_as_many_processes_as_its_job_has_processors(monkeypatch):
    """A cluster gives a job some processors of a large machine."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 5, 7}, raising=False)
    asked = []
    monkeypatch.setitem(module.ENGINES, "pool", lambda jobs, scheduler: asked.append(jobs) or executors.here())
    pt.sweep(PAIR | {"steps": 3})
    assert asked == [3]


def test_a_worker_with_other_code_is_refused():
    with pytest.raises(PenchantError, match="other code"):
        module.work({"code": "other", "rows": [], "paper": ""})


def test_an_engine_that_is_none():
    with pytest.raises(PenchantError, match="pool, dask, here"):
        pt.sweep(PAIR, engine="ray")
    for address in ("", "foo", "tcp://127.0.0.1", "http://127.0.0.1:80"):
        with pytest.raises(PenchantError, match=r"tcp://127\.0\.0\.1:8786"):
            pt.sweep(PAIR, engine="dask", scheduler=address)
    with pytest.raises(PenchantError, match="--engine dask"):
        pt.sweep(PAIR, engine="here", scheduler="tcp://127.0.0.1:8786")


def test_a_scheduler_that_never_answers_is_named(monkeypatch, capsys):
    distributed = pytest.importorskip("distributed")

    def nobody(*_, **__):
        raise OSError("timed out")

    monkeypatch.setattr(distributed, "Client", nobody)
    monkeypatch.setattr(executors, "_PATIENCE", 0.5)
    with pytest.raises(PenchantError, match=r"scheduler.*none at tcp://127\.0\.0\.1:8999"):
        pt.sweep(PAIR, engine="dask", scheduler="tcp://127.0.0.1:8999")
    assert "groups left: 1" in capsys.readouterr().err


def test_a_scheduler_without_workers_is_said_to_have_none(monkeypatch, capsys):
    """Workers end with their scheduler: a new one has none until they are started again."""
    distributed = pytest.importorskip("distributed")

    class Alone:
        __enter__, __exit__ = lambda self: self, lambda *_: None
        nthreads = dict

        def __init__(self, *_, **__):
            self.loop = None

        def submit(self, *_, **__):
            raise KeyboardInterrupt

    monkeypatch.setattr(distributed, "Client", Alone)
    with pytest.raises(KeyboardInterrupt):
        pt.sweep(PAIR, engine="dask", scheduler="tcp://127.0.0.1:8999")
    assert "dask worker tcp://127.0.0.1:8999" in capsys.readouterr().err


def test_a_sweep_without_x64_is_refused(tmp_path):
    jax.config.update("jax_enable_x64", False)
    try:
        with pytest.raises(PenchantError, match="jax_enable_x64"):
            pt.sweep(PAIR, engine="here", store=tmp_path)
    finally:
        jax.config.update("jax_enable_x64", True)
    assert not Store(tmp_path).rows()


def test_long_reasons_are_told_by_their_first_line(tmp_path, capsys):
    """Proofs that differ from run to run share a line, and a table keeps one line a run; the store has them whole."""
    spec = tmp_path / "spec.toml"
    spec.write_text(
        'generator = "blobs"\nn = 12\nd = 3\noptimiser = "gd"\nsteps = 5\nseeds = "0:3"\nmeasures = ["misalignment"]\n[grid]\ncentre = [0.1, 4.0]\n'
    )
    assert main(["sweep", str(spec), "--engine", "here", "--store", str(tmp_path / "store")]) == 0
    assert "failed     3: NotSeparableError" in capsys.readouterr().out
    assert main(["runs", "--store", str(tmp_path / "store"), "--rows", "--where", "status = 'failed'"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4
    reasons = {row["reason"] for row in Store(tmp_path / "store").rows() if row["status"] == "failed"}
    assert len(reasons) == 3
    assert all("Proof" in reason for reason in reasons)


def test_attention_regression_is_swept_like_any_setting(tmp_path):
    """The rows are the runs of `train_attention`; keys of other settings are refused, and the paper's code is part of the key."""
    from penchant.papers import attention_regression as paper

    spec = {"generator": "attention_experiment", "n": 60, "d": 2, "m": 3, "steps": 20, "measures": ["late_excess"]}
    found = pt.sweep(spec | {"grid": {"geometry": ["two_sided", "left"]}, "arrays": ["params"]}, engine="here")
    made = paper.attention_experiment(3, 2, n=60, seed=0)
    sample = pt.AttentionSample(made.inputs, made.targets)
    for row, geometry in zip(found.rows, ("two_sided", "left"), strict=True):
        rule, start = pt.PreconditionedDescent(geometry), paper.spectral_layer(sample.estimated)
        run = paper.train_attention(paper.FullSample(sample), rule, start, steps=20, truth=made.problem)
        assert row["excess"] == pytest.approx(run.excess[-1], rel=1e-9)
        np.testing.assert_allclose(found.arrays[row["key"], "params_U"], run.at().value, rtol=1e-9)
        assert 0.1 < row["late_excess"] / row["excess"] < 10
    assert found.rows[0]["excess"] != found.rows[1]["excess"]
    with pytest.raises(PenchantError, match=r"margin.*geometry"):
        pt.sweep(spec | {"margin": 3.0}, engine="here")
    with pytest.raises(PenchantError, match="step-size"):
        pt.sweep(spec | {"optimiser": "gd"}, engine="here")
    with pytest.raises(PenchantError, match="attention_experiment"):
        pt.sweep({"generator": "separable", "setting": "attention-regression"}, engine="here")


def test_own_data_are_part_of_the_key(tmp_path):
    file = tmp_path / "data.npz"
    np.savez(file, inputs=[[2.0, 0.0], [0.0, 1.0]], labels=[1, 1])
    spec = {"data": str(file), "optimiser": "ngd", "steps": 20, "grid": {"step_size": [0.1, 0.5]}}
    first = pt.sweep(spec, engine="here").column("key")
    np.savez(file, inputs=[[2.0, 0.0], [0.0, 3.0]], labels=[1, 1])
    assert set(first).isdisjoint(pt.sweep(spec, engine="here").column("key"))
    asked = read_spec(spec)
    np.savez(
        file, inputs=[[2.0, 0.0], [0.0, 5.0]], labels=[1, 1]
    )  # after the spec was read: no row says what it is not
    with pytest.raises(PenchantError, match="as it was"):
        pt.sweep(asked, engine="here")


def test_commands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    grid = ["--grid", "second=0.1,1", "--seeds", "0:2", "--set", "steps=20"]
    start = ["sweep", "--set", "generator=local_pair", "--set", "optimiser=ngd", "--engine", "here", *grid]
    assert main([*start, "--measure", "smallest_margin > 0", "--out", "page", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert not told["failures"]
    assert told["cells"][0]["runs"] == 2
    assert (tmp_path / "page" / "index.html").exists()
    ((line,),) = (one["lines"] for one in json.loads(next(tmp_path.glob("page/*/study.json")).read_text())["figures"])
    bars = [[float(y - down), float(y + up)] for y, down, up in zip(line["y"], *line["error"], strict=True)]
    assert bars == [pytest.approx([cell["low"], cell["high"]]) for cell in told["cells"]]  # none leaves 0 to 1
    assert next(tmp_path.glob("page/*/line.csv")).read_text().splitlines()[0].endswith("down,up")
    assert main(["runs", "--by", "second", "--show", "norm, norm > 0", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["columns"] == ["second", "runs", "norm", "norm > 0"]
    assert [row[:2] for row in told["rows"]] == [[0.1, 2], [1.0, 2]]
    assert main(["runs", "--export", "all.csv"]) == 0
    assert len((tmp_path / "all.csv").read_text().splitlines()) == 5
    assert main(["runs", "--by", "second", "--export", "cells.csv"]) == 0
    assert (tmp_path / "cells.csv").read_text().splitlines()[0] == "second,runs"
    assert main(["runs", "--prune", "--where", "seed = 1"]) == 0
    assert main(["runs", "--check"]) == 0
    (tmp_path / "runs" / "foreign.txt").write_text("")
    capsys.readouterr()
    assert main(["runs", "--check"]) == 1
    assert main(["runs"]) == 0
    assert "foreign.txt" in capsys.readouterr().err
    once = ["sweep", "--set", "generator=local_pair", "--set", "optimiser=ngd", "--set", "steps=20", "--engine", "here"]
    assert main([*once, "--measure", "norm", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cells"][0]["mean"] > 0  # of all runs, where there is no grid
    for bad in (
        ["runs", "--prune"],
        ["runs", "--sql", "select 1 from runs", "--where", "seed = 1"],
        ["runs", "--prune", "--where", "seed = 0", "--export", "gone.csv"],
        ["runs", "--check", "--export", "all.csv"],
        [*once, "--measure", "speed"],
        ["runs", "--export", "all.xls"],
        ["sweep", "--set", "steps"],
        ["sweep", "no.toml"],
        [*start, "--jobs", "0"],
        [*start, "--set", "grid="],
        [*start, "--measure", "speed > 0"],
        [*start, "--set", "widths=8,8"],
    ):
        assert main(bad) == 2
    assert main(start) == 0
    bad = [*start, "--set", "data_seed=0", "--retry", "--store", "bad"]
    monkeypatch.setattr(
        module,
        "work",
        lambda group: {"found": [failed(ValueError("no"))] * len(group["rows"]), "arrays": {}, "made": {}},
    )
    assert main(bad) == 1  # all four failed


def test_the_map_of_an_event_carries_its_boundary(tmp_path, monkeypatch, capsys):
    """Over a grid of two numbers with seeds that differ: the boundary is inside its band, and the band inside the grid."""
    monkeypatch.chdir(tmp_path)
    grid = ["--grid", "first=geom(0.5,2,4)", "--grid", "second=geom(0.05,1,6)", "--seeds", "0:6", "--set", "steps=60"]
    start = ["sweep", "--set", "generator=local_pair", "--set", "optimiser=ngd", "--set", "start=small", *grid]
    assert main([*start, "--engine", "here", "--measure", "smallest_margin > 0", "--out", "page"]) == 0
    (study,) = tmp_path.glob("page/**/study.json")
    drawn = json.loads(study.read_text())["figures"][0]
    assert "1/2 inside the band" in drawn["caption"]
    lines = {line["label"]: np.array(line["y"], float) for line in drawn["lines"]}
    assert set(lines) == {"smallest_margin > 0", "boundary", "band, lower end", "band, upper end"}
    assert len(lines["boundary"]) > 30
    assert (lines["band, lower end"] <= lines["boundary"]).all()
    assert (lines["boundary"] <= lines["band, upper end"]).all()
    assert lines["band, upper end"].max() <= 1.0
    assert main([*start, "--engine", "here", "--measure", "norm", "--out", "mean"]) == 0  # a mean has none
    (study,) = tmp_path.glob("mean/**/study.json")
    assert len(json.loads(study.read_text())["figures"][0]["lines"]) == 1


def test_train_study_and_verify_write_to_the_same_store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("data.npz", inputs=[[2.0, 0.5], [0.1, 1.0]], labels=[1, 1])
    for _ in range(2):
        assert main(["train", "data.npz", "--optimiser", "ngd", "--steps", "50", "--store", "runs"]) == 0
    assert main(["train", "data.npz", "--optimiser", "ngd", "--steps", "60", "--store", "runs"]) == 0
    assert main(["verify", "--claim", "min-norm/interpolants", "--jobs", "1", "--store", "runs"]) == 0
    _, rows = Store("runs").query("select kind, count(*) from runs group by kind order by kind")
    assert rows == [("claim", 1), ("train", 2)]


@pytest.mark.slow
def test_a_sweep_that_is_killed_at_any_moment_goes_on(tmp_path):
    """Twenty times SIGKILL, workers and all: at a random moment, every other time after a group was written; then what is missing, and the same numbers as without."""
    spec, place = tmp_path / "spec.toml", tmp_path / "store"
    spec.write_text(
        'generator = "local_pair"\noptimiser = "ngd"\nsteps = 2000\nstart = "small"\narrays = ["weight"]\nseeds = "0:4000"\n'
    )
    command = [sys.executable, "-m", "penchant.cli", "sweep", str(spec), "--jobs", "2", "--store", str(place)]
    rng, seen, files = np.random.default_rng(0), [], lambda: len(list(place.glob("*")))
    for kill in range(20):
        before, quiet = files(), {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(command, start_new_session=True, **quiet)
        while kill % 2 and files() == before and process.poll() is None:
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 2) if kill % 2 else rng.uniform(0, 8))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert not Store(place).scan(whole=True)[1]
        seen.append(len(Store(place).rows()))
    print(seen)
    assert seen == sorted(seen)
    subprocess.run(command, check=True)
    assert not Store(place).scan(whole=True)[1]
    found = {row["seed"]: row["norm"] for row in Store(place).rows()}
    assert len(found) == 4000
    few = pt.sweep({**tomllib.loads(spec.read_text()), "seeds": "100:110"}, engine="here")
    assert [found[row["seed"]] for row in few.rows] == [row["norm"] for row in few.rows]
