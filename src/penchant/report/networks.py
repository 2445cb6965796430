"""Saved runs as pages, from the file alone: the record of a PyTorch network (`Probe.save`), also as text, and a run of `train`. Needs neither PyTorch nor the data."""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from ..errors import DataFileError
from ..exhibits import DEFINITIONS, Figure, Line, Result, Table, table
from ..files import VERSIONS, check_mark, mark, read_npz
from ..lab import Study
from .page import render, save

Series = Mapping[str, np.ndarray]
WORDS = {
    "ratio": "spectral over Frobenius norm of a layer; 1 means rank one",
    "stable rank": "squared Frobenius over squared spectral norm",
    "floor": "the smallest ratio that a layer of this shape can have: 1/sqrt of its smaller side",
    "alignment": "|<v, u>| of the top right singular vector of a layer and the top left one of the layer before it in the model, where their sizes agree",
    "balancedness": "|W_k|^2 - |W_{k+1}|^2 in Frobenius norms; gradient flow conserves it where layers are homogeneous and without biases",
    "turn": "angle of all parameters together to the start, in radians; turned: since the record before",
    "margin": "output of the label minus the largest other (y f for one output); normalised by the norm of all parameters to the power of the degree",
    "degree, defect": "of homogeneity, from doubling all parameters at the record: f(2 theta) = 2^degree f(theta) up to the relative defect; the power is the first degree that is known, rounded",
    "entropy": "of attention, over the logarithm of the number of keys: 1 is uniform, 0 is one token; mean over rows",
    "saturation": "log(1 - largest attention probability), median over rows",
    "spectrum": "singular values of W_Q' W_K of a head",
}

_RUNS = tuple(kind for kind in VERSIONS if kind not in ("study", "ledger", "runs"))


def read_network(path: str | os.PathLike) -> tuple[dict, dict[str, np.ndarray]]:
    """Header and series of the record of a network; another kind of file is refused."""
    header, arrays = read_npz(path)
    check_mark(header.get("format"), ("network run",), path)
    missing = {"steps", "losses", "frobenius", "spectral", "nuclear", "norm"} - set(arrays)
    if missing:
        raise DataFileError(f"'{path}' has no series '{min(missing)}'.\n  Fix: save the probe again.")
    return header, arrays


def summary(header: dict, series: Series) -> Table:
    """One row per layer, at the first and at the last record."""
    ratio = series["spectral"] / series["frobenius"]
    columns = {"layer": "", "shape": "", "norm": ".4g", "growth": ".4g", "ratio before": ".4f", "ratio": ".4f"}
    columns |= {"floor": ".4f", "stable rank": ".4g", "nuclear norm": ".4g", "alignment with the next": ".4f"}
    fits = np.append(series["alignment"][-1], np.nan)
    rows = []
    for k, (name, shape) in enumerate(zip(header["layers"], header["shapes"], strict=True)):
        sizes = series["frobenius"][-1, k], series["frobenius"][-1, k] / series["frobenius"][0, k]
        rest = ratio[0, k], ratio[-1, k], min(shape) ** -0.5, ratio[-1, k] ** -2, series["nuclear"][-1, k], fits[k]
        rows.append((name, " x ".join(map(str, shape)), *sizes, *rest))
    caption = f"At step {series['steps'][-1]}; growth and 'before' from step {series['steps'][0]}."
    return table("layers", "Layers", columns, rows, caption)


def figures(header: dict, series: Series) -> Iterator[Figure]:
    """Everything that has a curve, against the step."""
    names, steps = header["layers"], np.maximum(series["steps"], 1)
    draw = lambda name, title, label, lines, scale="linear": Figure(
        name, title, "step", label, tuple(Line(one, steps, np.asarray(y)) for one, y in lines), "", "log", scale
    )
    each = lambda values, labels=names: zip(labels, np.asarray(values).T, strict=True)
    yield draw("loss", "Loss", "loss", [("loss", series["losses"])], "log")
    yield draw("ratios", "Every layer: how near to rank one", "ratio", each(series["spectral"] / series["frobenius"]))
    growth = each(series["frobenius"] / series["frobenius"][0])
    yield draw("growth", "Growth of the layers", "norm / first norm", growth, "log")
    if len(names) > 1:
        pairs = [f"{a}, {b}" for a, b in pairwise(names)]
        shown = [one for one in zip(pairs, series["alignment"].T, strict=True) if np.isfinite(one[1]).any()]
        yield draw("alignment", "Adjacent layers", "alignment", shown)
        yield draw("balance", "Balancedness", "|W_k|^2 - |W_k+1|^2", each(-np.diff(series["frobenius"] ** 2), pairs))
    angles = [(word, series[word]) for word in ("turn", "turned")]
    yield draw("direction", "Direction of all parameters", "angle", angles, "log")
    if "margins" in series:
        levels = ("smallest", "10 %", "median", "90 %")
        yield draw("margins", "Margins", "margin", each(series["margins"], levels))
        shares = each(series["normalised_margins"], levels)
        yield draw("normalised", "Normalised margins", "margin / norm^degree", shares)
    yield from _attention(header["blocks"], series, draw)


def _attention(blocks: Sequence[str], series: Series, draw: Callable[..., Figure]) -> Iterator[Figure]:
    heads = [(k, name, h) for k, name in enumerate(blocks) for h in range(series[f"spectrum_{k}"].shape[1])]
    curves = lambda read: [(f"{name or 'attention'}, head {h + 1}", read(k, h)) for k, name, h in heads]
    if heads:
        tops = curves(lambda k, h: series[f"spectrum_{k}"][:, h].max(axis=1))
        yield draw("spectra", "Largest singular value of W_Q' W_K", "spectrum", tops, "log")
    heads = [one for one in heads if f"entropy_{one[0]}" in series]
    if heads:
        yield draw("entropy", "Entropy of attention", "entropy", curves(lambda k, h: series[f"entropy_{k}"][:, h]))
        rest = curves(lambda k, h: series[f"saturation_{k}"][:, h, 1])
        yield draw("saturation", "Saturation of attention", "log(1 - p)", rest)


def run_page(header: dict, arrays: Series) -> Result:
    """What the report shows of a run of `train`: every number that it kept at each record, and how it was made."""
    steps, lines = np.maximum(arrays["steps"], 1), {}
    for name, values in arrays.items():
        if name != "steps" and values.shape == steps.shape:
            label = name.removeprefix("account_").replace("_", " ")
            lines[label] = [Line(label, steps, values)]
    if "margins" in arrays:
        named = {"smallest": arrays["margins"].min(1), "median": np.median(arrays["margins"], axis=1)}
        lines["margins"] = [Line(label, steps, values) for label, values in named.items()]
    draw = lambda name: (name.replace(" ", "-"), name.capitalize(), "step", name, tuple(lines[name]), "", "log")
    drawn = tuple(Figure(*draw(name)) for name in lines)
    ends = [(line.label, line.y[0], line.y[-1]) for curves in lines.values() for line in curves]
    columns, caption = {"series": "", "first": ".6g", "last": ".6g"}, f"{len(steps)} records."
    told = [(name, json.dumps(value).strip('"')) for name, value in header.items()]
    about = "A run file has no data in it, and so no verdict: `penchant train DATA --out DIR` has."
    made = Table("made", "How it was made", ("what", "value"), tuple(told), about)
    return Result((), drawn, (table("ends", "Start and end", columns, ends, caption), made), {}, DEFINITIONS)


def write_page(path: str | os.PathLike, directory: str | Path) -> Path:
    """The page of a saved run, in a folder of its name: several runs may share a directory, and its index."""
    header, arrays = read_npz(path)
    check_mark(header.get("format"), _RUNS, path)
    if not len(arrays.get("steps", ())):
        raise DataFileError(f"'{path}' has no records: its series 'steps' is missing or empty.")
    network = header["format"] == mark("network run")
    name = Path(path).stem
    title = f"Network: {header['model']}" if network else f"Run: {name}"
    study = Study(re.sub(r"[^\w-]", "-", name, flags=re.ASCII), title, seeded=False)
    drawn = Result((), tuple(figures(*read_network(path))), (summary(header, arrays),), {}, WORDS) if network else None
    result = drawn or run_page(header, arrays)
    save(study, result, directory)
    return render(directory)
