"""The explorer: one HTML file that trains in the browser, and its presets."""

import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from ..errors import DataFileError
from ..files import write_bytes
from ..settings.base import Setting
from ..settings.classification import Classification
from ..settings.deep_linear import DeepLinear, named_start
from ..settings.factored import DiagonalTokens, Hadamard, KeyQuery
from ..settings.files import load, read_arrays
from ..settings.generators import equal_score_tokens, separable, signal_tokens, strips
from ..settings.losses import Exponential, Logistic, Squared
from ..settings.parametrisations import Direct, SignedSquares
from ..settings.regression import Regression
from ..settings.tokens import TokenSelection
from .page import environment

Spec = dict[str, Any]
LOSSES = {"exponential": Exponential, "logistic": Logistic}
_LARGEST = 20_000  # numbers in a file that a page redraws while a point is dragged


def _numbers(**arrays: object) -> dict[str, list]:
    return {name: np.asarray(array, float).tolist() for name, array in arrays.items()}


def _tokens(data: TokenSelection) -> dict[str, list]:
    return _numbers(tokens=data.tokens, scores=data.scores, queries=data.queries)


def _signed(data: Classification, labels: object = 1) -> dict[str, list]:
    """With the labels of a file also its points, of which the data hold the products of both."""
    labels = np.broadcast_to(np.asarray(labels, float), len(data.signed))
    return _numbers(inputs=labels[:, None] * data.signed, labels=labels)


def presets() -> dict[str, Spec]:
    """The runs one can start with, by name: those of the main figures of the papers, and small ones to drag points in."""
    known = json.loads(files("penchant.report").joinpath("explorer/presets.json").read_text(encoding="utf-8"))
    data = known["data"] | {
        "separable": _signed(separable()),
        "strips": _signed(strips(0)),
        "signal": _tokens(signal_tokens(6, 8, 10, 1.0, 0.1)),
        "keys": _tokens(equal_score_tokens(3, 4, 5, 1)),
        "diagonals": _tokens(equal_score_tokens(4, 4, 12, 5)),
    }
    spec = lambda name, own: {"preset": name, "loss": "exponential", "size": 0.05, **own, "data": data[own["data"]]}
    made = {name: spec(name, own) for name, own in known["presets"].items()}
    return {name: {**one, "start": flat_start(one).tolist()} for name, one in made.items()}


def setting_of(spec: Spec) -> Setting:
    """The setting that a description in the explorer stands for."""
    data, kind, loss = spec["data"], spec["setting"], LOSSES[spec["loss"]]()
    if kind == "signed-squares":
        return Setting(Regression(data["inputs"], data["targets"]), SignedSquares(spec["alpha"]), Squared())
    if kind in ("linear", "deep-linear"):
        net = Direct() if kind == "linear" else DeepLinear(tuple(spec["widths"]))
        return Setting(Classification(data["inputs"], data["labels"]), net, loss)
    tokens = TokenSelection(data["tokens"], scores=data["scores"], queries=data.get("queries"))
    if kind == "diagonal":
        return Setting(DiagonalTokens(tokens), Hadamard(), loss)
    return Setting(tokens, KeyQuery(spec["width"]) if kind == "key-query" else Direct(), loss)


def flat_start(spec: Spec) -> np.ndarray:
    """Where its run starts, all parameters in a row."""
    setting = setting_of(spec)
    if spec["setting"] == "deep-linear":
        start = named_start(setting, "normal", spec["seed"], spec["scale"])
    elif spec["setting"] == "diagonal":
        start = Hadamard().one_sided(setting.data, spec["scale"], np.random.default_rng(spec["seed"]))
    else:
        start = setting.start(*((spec["seed"], spec["scale"]) if "seed" in spec else ()))
    return np.asarray(ravel_pytree(start)[0])


_OWN: dict[type, Callable[[Any, str | Path], tuple[Spec, str]]] = {  # and what of such data the explorer does not know
    TokenSelection: lambda data, path: (
        {"setting": "attention", "data": _tokens(data), "margin": 1e6},
        "padded tokens" if jnp.any(data.padded) else "",
    ),
    Classification: lambda data, path: (
        {"setting": "linear", "data": _signed(data, read_arrays(path)["labels"]), "margin": 1e6},
        "",
    ),
    Regression: lambda data, path: (
        {"setting": "signed-squares", "data": _numbers(inputs=data.inputs, targets=data.fitted), "alpha": 0.1},
        f"{data.rank} independent of {len(data.targets)} samples" if data.rank < len(data.targets) else "",
    ),
}


def own_spec(path: str | Path) -> Spec:
    """The description of a user's own data: inputs with labels or targets, or tokens."""
    data, name = load(path), Path(path).name
    size = sum(leaf.size for leaf in jax.tree.leaves(data))
    if size > _LARGEST:
        most = f"the explorer redraws every run and takes at most {_LARGEST}"
        raise DataFileError(f"'{name}' holds {size} numbers; {most}.\n  Fix: `penchant train` takes them all.")
    spec, flaw = _OWN.get(type(data), lambda *_: ({}, "more than two classes"))(data, path)
    if flaw:
        raise DataFileError(f"'{name}' has {flaw}, which the explorer does not know.\n  Fix: `penchant train` does.")
    spec = {"preset": "own", "title": name, "loss": "exponential", "optimiser": "flow", "size": 0.05, **spec}
    return {**spec, "start": flat_start(spec).tolist()}


def write_explorer(path: str | Path, own: Spec | None = None) -> Path:
    """Write the explorer to a file, with style, kernel, interface and presets in one text; returns the file."""
    folder = files("penchant.report")
    names = {"style": "style.css", "draw": "draw.js", "kernel": "explorer/kernel.js", "page": "explorer/page.js"}
    parts = {name: (folder / file).read_text(encoding="utf-8") for name, file in names.items()}
    text = json.dumps(({"own": own} if own else {}) | presets(), separators=(",", ":"))
    parts["presets"] = text.replace("<", "\\u003c")  # so that no name ends the script it stands in
    page = environment("report/explorer").get_template("explorer.html").render(**parts)
    return write_bytes(Path(path), page.encode())
