"""Saved runs: whole or absent, read back bit by bit, never unpickled."""

import json
import os
import signal
import subprocess
import sys
import zipfile

import numpy as np
import pytest

import penchant as pt
from penchant import files
from penchant.errors import DataFileError
from penchant.files import read_npz
from penchant.settings.generators import random_tokens

SERIES = ("steps", "log_time", "log_excess", "log_slope", "norm", "margins", "weights", "dual")
SETTING = pt.Setting(random_tokens(3, 3, 4, 0), pt.Direct(), pt.Logistic())


@pytest.fixture(scope="module")
def run():
    return pt.train(SETTING, pt.normalised_descent(0.05, cap=10.0), steps=30)


def test_a_saved_run_reads_back_bit_by_bit(run, tmp_path):
    header, arrays = read_npz(run.save(tmp_path / "deep" / "run.npz"))
    for name in SERIES:
        assert np.array_equal(arrays[name], getattr(run, name)), name
    assert np.array_equal(arrays["W"], run.weight())
    assert np.array_equal(arrays["history_W"], run.params)
    assert header["status"] == "out_of_steps"
    assert header["optimiser"]["rule"] == {"kind": "Normalised", "length": 0.05, "cap": 10.0, "decay": None}
    assert header["steps"] == 30
    assert json.loads(json.dumps(header)) == header


def test_the_header_says_with_which_numbers_and_until_when():
    setting = pt.Setting(
        pt.Classification([[2.0, 0.0], [0.0, 1.0]], [1, 1]), pt.Direct(), pt.settings.PolynomialTail(2.0)
    )
    header = pt.train(
        setting, pt.GradientFlow(), until=[pt.training.NormAbove(3.0)], recorder=pt.flow.Levels("norm", [2.0])
    ).header
    assert header["loss"]["kind"] == "PolynomialTail"
    assert 2.0 in header["loss"].values()
    assert header["parametrisation"] == {"kind": "Direct"}
    assert header["until"] == [{"kind": "NormAbove", "level": 3.0}]
    assert header["recorder"]["quantity"] == "norm"
    gram = pt.train(
        pt.Setting(SETTING.data, pt.settings.Gram(SETTING.data), pt.Logistic()), pt.GradientFlow(), steps=2
    ).header
    assert gram["parametrisation"]["matrix"] == {"shape": [6, 6]}  # data, which the digest covers


def test_header_identifies_the_data(run):
    other = pt.train(
        pt.Setting(random_tokens(3, 3, 4, 1), pt.Direct(), pt.Logistic()),
        pt.normalised_descent(0.05, cap=10.0),
        steps=30,
    )
    assert run.header["data"]["sha256"] != other.header["data"]["sha256"]
    assert run.header["data"]["kind"] == "TokenSelection"
    assert {"python", "penchant", "jax", "numpy"} <= set(run.header["software"])


def test_a_gram_run_saves_the_weight_it_stands_for(tmp_path):
    setting = pt.Setting(SETTING.data, pt.settings.Gram(SETTING.data), pt.Logistic())
    run = pt.train(setting, pt.normalised_descent(0.05), steps=30)
    _, arrays = read_npz(run.save(tmp_path / "run.npz"))
    assert np.array_equal(arrays["W"], run.weight())
    assert arrays["W"].shape == (4, 4)


def test_records_of_a_run_agree_with_each_other(run):
    for record in (0, 5, -1):
        assert run.norm[record] == pytest.approx(np.linalg.norm(run.weight(record)), rel=1e-14)
    assert len(run) == len(run.steps) == len(run.params)


def broken(kind, path, run):
    saved = run.save(path)
    whole = saved.read_bytes()
    if kind == "truncated":
        saved.write_bytes(whole[: len(whole) // 2])
    elif kind == "empty":
        saved.write_bytes(b"")
    elif kind == "text":
        saved.write_text("steps,loss\n1,2\n")
    elif kind == "flipped":
        saved.write_bytes(whole[:200] + bytes(byte ^ 255 for byte in whole[200:400]) + whole[400:])
    elif kind == "one array":
        with path.open("wb") as file:
            np.save(file, np.arange(3))
    elif kind == "pickled":
        np.savez(path, header=np.frombuffer(b"{}", np.uint8), steps=np.array([{"a": 1}], dtype=object))
    elif kind == "no header":
        np.savez(path, steps=np.arange(3))
    elif kind == "header not json":
        np.savez(path, header=np.frombuffer(b"{not json", np.uint8))
    elif kind == "plain zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("readme.txt", "hello")
    return path


@pytest.mark.parametrize(
    "kind",
    ["truncated", "empty", "text", "flipped", "one array", "pickled", "no header", "header not json", "plain zip"],
)
def test_a_broken_file_is_a_data_file_error_that_names_it(kind, run, tmp_path):
    path = broken(kind, tmp_path / "run.npz", run)
    with pytest.raises(DataFileError, match=r"run\.npz"):
        read_npz(path)


@pytest.mark.parametrize("name", ["missing.npz", "folder"])
def test_what_is_not_a_file_is_a_data_file_error(name, tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(DataFileError, match=name):
        read_npz(tmp_path / name)


@pytest.mark.parametrize("culprit", ["replace", "link"])
@pytest.mark.parametrize("before", [None, b"the old file"])
def test_a_failed_write_leaves_the_folder_as_it_was(culprit, before, tmp_path, monkeypatch):
    path = tmp_path / "run.npz"
    if before is not None:
        path.write_bytes(before)

    def fail(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, culprit, fail)
    with pytest.raises(KeyboardInterrupt):
        files.write_bytes(path, b"new content")
    monkeypatch.undo()
    assert [file.name for file in tmp_path.iterdir()] == ([] if before is None else ["run.npz"])
    assert before is None or path.read_bytes() == before


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="this system has no files without a name")
def test_a_process_that_is_killed_while_it_writes_leaves_nothing(tmp_path):
    code = (
        "import os, signal, sys; from penchant import files\n"
        "os.link = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)  # all is written, nothing has a name\n"
        "files.write_bytes(sys.argv[1], bytes(10_000_000))"
    )
    found = subprocess.run([sys.executable, "-c", code, str(tmp_path / "run.npz")], check=False)
    assert found.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_nameless_files_is_written_to_all_the_same(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    assert files.write_bytes(tmp_path / "deep" / "run.npz", b"content").read_bytes() == b"content"
    assert [file.name for file in (tmp_path / "deep").iterdir()] == ["run.npz"]


def test_a_full_disk_leaves_no_file(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "fdopen", fail)
    with pytest.raises(OSError, match="No space left"):
        files.write_bytes(tmp_path / "run.npz", b"content")
    assert list(tmp_path.iterdir()) == []
