"""The store: whole files or none, every run once, and files that are not what they say are named and left out."""

import shutil
import sys

import numpy as np
import pytest

from penchant.cli import main
from penchant.errors import PenchantError
from penchant.sweeps.store import Store, digest

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")


def rows_of(first, count, **more):
    return [
        {"key": digest(k), "seed": k, "status": "done", "reason": "", "value": k / 7, **more}
        for k in range(first, first + count)
    ]


def filled(tmp_path):
    store = Store(tmp_path / "store")
    store.write(rows_of(0, 5), {"kind": "test"}, {f"{digest(k)}/weight": np.full(3, k / 3) for k in range(5)})
    store.write(rows_of(5, 5, scale=0.5), {"kind": "test"})
    return store


def count(store):
    return Store(store.path).query("select count(*) from runs")[1][0][0]


def test_what_is_written_is_read_back_to_the_bit(tmp_path):
    store = filled(tmp_path)
    assert [one["value"] for one in sorted(store.rows(), key=lambda one: one["value"])] == [k / 7 for k in range(10)]
    np.testing.assert_array_equal(store.arrays(digest(4))["weight"], np.full(3, 4 / 3))
    assert store.arrays(digest(7)) == {}
    assert count(store) == 10


def test_writing_twice_changes_nothing_and_a_run_in_two_groups_counts_once(tmp_path):
    store = filled(tmp_path)
    before = sorted(file.name for file in store.path.iterdir())
    filled(tmp_path)
    assert sorted(file.name for file in store.path.iterdir()) == before
    store.write(rows_of(3, 4), {"kind": "other"})
    assert count(store) == 10
    assert len(store.rows()) == 10


def test_a_result_counts_before_a_failure(tmp_path):
    store = filled(tmp_path)
    store.write([{**row, "status": "failed"} for row in rows_of(0, 2)], {})
    store.write([{**row, "status": "failed"} for row in rows_of(20, 1)], {})
    assert {row["key"]: row["status"] for row in store.rows()}.items() >= {
        digest(0): "done",
        digest(20): "failed",
    }.items()
    assert Store(store.path).query("select count(*) from runs where status = 'failed'")[1] == [(1,)]


def damage(store, how):
    file = next(file for file in store.path.glob("*.parquet") if store._group(file, False).arrays)
    arrays = next(store.path.glob("*.npz"))
    if how == "cut short":
        file.write_bytes(file.read_bytes()[:-100])
    elif how == "changed":
        content = bytearray(file.read_bytes())
        content[200] ^= 1
        file.write_bytes(content)
    elif how == "arrays missing":
        arrays.unlink()
    elif how == "arrays cut short":
        arrays.write_bytes(arrays.read_bytes()[:50])
    elif how == "renamed":
        shutil.move(file, file.with_name("a" * 20 + file.name[20:-23] + "b" * 15 + ".parquet"))
    else:
        (store.path / "notes.txt").write_text("mine")
        (store.path / f"{'0' * 20}-{'0' * 16}.parquet").write_bytes(b"PAR1")


@pytest.mark.parametrize("how", ["cut short", "changed", "arrays missing", "arrays cut short", "renamed", "foreign"])
def test_a_damaged_group_is_named_and_left_out(tmp_path, how):
    store = filled(tmp_path)
    damage(store, how)
    fresh = Store(store.path)
    assert fresh.query("select count(*) from runs")[1] == [(10 if how == "foreign" else 5,)]
    assert len(fresh.skipped) == (2 if how == "foreign" else 1)
    assert len(fresh.rows()) == (10 if how == "foreign" else 5)


def test_writing_again_mends_what_was_cut(tmp_path):
    store = filled(tmp_path)
    damage(store, "cut short")
    assert not filled(tmp_path).scan(whole=True)[1]
    assert count(store) == 10


def test_a_bit_that_changed_inside_the_arrays_is_found_by_the_check(tmp_path):
    store = filled(tmp_path)
    arrays = next(store.path.glob("*.npz"))
    content = bytearray(arrays.read_bytes())
    content[60] ^= 1
    arrays.write_bytes(content)
    assert not store.scan()[1]
    assert "changed" in next(iter(store.scan(whole=True)[1].values()))


def test_pruned_runs_are_gone_and_the_others_stay_with_their_arrays(tmp_path):
    store = filled(tmp_path)
    assert store.prune("seed in (1, 2, 5, 6, 7, 8, 9)") == 7
    fresh = Store(store.path)
    assert sorted(row["seed"] for row in fresh.rows()) == [0, 3, 4]
    np.testing.assert_array_equal(fresh.arrays(digest(3))["weight"], np.ones(3))
    assert not fresh.scan(whole=True)[1]
    assert len(list(store.path.iterdir())) == 2


@pytest.mark.parametrize(
    "sql",
    [
        "select nothing from runs",
        "select * from read_text('/etc/hostname')",
        "copy runs to 'x.csv'",
        "drop table runs",
        "select 1; delete from runs",
        "no sql",
    ],
)
def test_a_question_reads_the_runs_and_nothing_else(tmp_path, sql, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PenchantError, match="value"):
        filled(tmp_path).query(sql)
    assert not (tmp_path / "x.csv").exists()


def test_a_store_in_which_nothing_is_whole_names_what_it_leaves_out(tmp_path):
    store = Store(tmp_path / "store")
    file = store.write(rows_of(0, 5), {"kind": "test"})
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(PenchantError, match=rf"no runs.*\n.*{file.name}', cut short"):
        Store(store.path).query("select 1")


def test_an_empty_store_says_so(tmp_path):
    with pytest.raises(PenchantError, match="no runs"):
        Store(tmp_path / "none").query("select 1")
    (tmp_path / "file").write_text("")
    with pytest.raises(PenchantError, match="folder"):
        Store(tmp_path / "file")


@pytest.mark.parametrize(
    "command", [["sweep", "none.toml"], ["train", "none.npz"], ["verify", "none"], ["study", "none"]]
)
@pytest.mark.parametrize("lacking", ["folder", "extra"])
def test_a_store_that_cannot_be_written_is_refused_before_the_work(tmp_path, command, lacking, monkeypatch, capsys):
    """Before even the spec or the data are looked for. Reading needs neither."""
    place = tmp_path / "file" / "runs" if lacking == "folder" else tmp_path / "runs"
    (tmp_path / "file").write_text("")
    if lacking == "extra":
        monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert main([*command, "--store", str(place)]) == 2
    assert {"folder": "Not a directory", "extra": "penchant[sweeps]"}[lacking] in capsys.readouterr().err
    assert Store(place).rows() == []
