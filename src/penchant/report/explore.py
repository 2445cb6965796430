"""The explorer: one HTML file that trains in the browser, its presets, and what penchant computes for each of them, against which it is tested."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.flatten_util import ravel_pytree

from ..errors import DataFileError
from ..files import write_bytes
from ..flow.flow import GradientFlow
from ..optimisers.base import Adam, gradient_descent, muon, normalised_descent, polyak, sign_descent
from ..references.interpolation import minimum_potential
from ..settings.base import Setting
from ..settings.classification import Classification
from ..settings.deep_linear import DeepLinear, named_start
from ..settings.diagonal import DiagonalTokens
from ..settings.factored import Hadamard, KeyQuery
from ..settings.files import load
from ..settings.generators import equal_score_tokens, separable, signal_tokens, strips
from ..settings.losses import Exponential, Logistic, Squared
from ..settings.parametrisations import Direct
from ..settings.regression import Regression
from ..settings.square_models import SignedSquares
from ..settings.tokens import TokenSelection
from ..training.events import MarginAbove
from ..training.recorders import LogSpaced
from ..training.train import train

Spec = dict[str, Any]
LOSSES = {"exponential": Exponential, "logistic": Logistic}
OPTIMISERS = {
    "gd": gradient_descent,
    "ngd": normalised_descent,
    "polyak": polyak,
    "sign": sign_descent,
    "adam": lambda size: Adam(size, 0.0),
    "muon": muon,
    "flow": lambda size: GradientFlow(),
}
_POINTS = 100  # records of a descent
_LARGEST = 20_000  # numbers in a file that a page redraws while a point is dragged


def _numbers(**arrays: object) -> dict[str, list]:
    return {name: np.asarray(array, float).tolist() for name, array in arrays.items()}


def _tokens(data: TokenSelection) -> dict[str, list]:
    return _numbers(tokens=data.tokens, scores=data.scores, queries=data.queries)


def _plane() -> dict[str, list]:
    """Eight points of the plane, for which l2, l1 and linf margins point in three directions."""
    signed = [[1.6, 0.7], [2.6, 1.4], [3.0, 0.5], [2.1, 2.4], [1.9, 0.15], [2.4, 1.9], [2.9, 1.0], [3.1, 2.2]]
    labels = np.repeat([1.0, -1.0], 4)
    return _numbers(inputs=labels[:, None] * np.array(signed), labels=labels)


def _pairs() -> dict[str, list]:
    """Three sentences of three words in the plane, with a query each."""
    tokens = [
        [[1.5, 0.4], [0.2, 1.1], [-0.6, -0.5]],
        [[0.3, 1.6], [1.0, 0.2], [-0.8, 0.3]],
        [[-1.2, 1.0], [0.5, -0.7], [0.9, 0.9]],
    ]
    return _numbers(
        tokens=tokens, scores=[[1.0, 0.0, 0.2], [1.0, 0.3, 0.0], [1.0, 0.0, 0.4]], queries=np.eye(3)[:, :2] + 0.4
    )


def presets() -> dict[str, Spec]:
    """The runs one can start with, by name: those of the main figures of the papers, and small ones to drag points in."""
    token_data = equal_score_tokens(3, 4, 5, 1)
    line = _numbers(inputs=[[1.0, 0.5]], targets=[1.5])
    plane, pairs, clouds = _plane(), _pairs(), strips(0)
    signed = _numbers(inputs=clouds.signed, labels=np.ones(len(clouds.signed)))
    cloud = _numbers(inputs=separable().signed, labels=np.ones(30))
    far = {"optimiser": "flow", "margin": 1e6}
    rows = {
        "plane": ("Two classes in the plane: drag a point", "linear", plane, far),
        "max-margin": ("Lecture notes, chapter 9: 30 points, to time e^1000000", "linear", cloud, far),
        "descent": ("Gradient descent: the direction moves like 1/log t", "linear", plane, {"optimiser": "gd", "size": 0.05, "steps": 10000}),
        "logistic": ("Normalised descent on the logistic loss", "linear", plane, {"optimiser": "ngd", "size": 0.05, "steps": 5000, "loss": "logistic"}),
        "polyak": ("Polyak's step: never freezes", "linear", plane, {"optimiser": "polyak", "size": 1.0, "steps": 2000}),
        "sign": ("Sign descent selects the linf margin", "linear", plane, {"optimiser": "sign", "size": 0.01, "steps": 5000}),
        "adam": ("Adam without epsilon: the linf margin again", "linear", plane, {"optimiser": "adam", "size": 0.01, "steps": 5000}),
        "attention": ("Softmax attention in the plane: drag a token", "attention", pairs, far),
        "self-attention": (
            "Self-attention, Example 1 in small (n=6, T=8, d=10)",
            "attention",
            _tokens(signal_tokens(6, 8, 10, 1.0, 0.1)),
            {"optimiser": "ngd", "size": 0.05, "steps": 20000},
        ),
        "muon": ("Muon on attention: the spectral margin", "attention", pairs, {"optimiser": "muon", "size": 0.01, "steps": 3000}),
        "key-query": ("Keys and queries: the nuclear norm", "key-query", _tokens(token_data), {**far, "width": 5, "seed": 1, "scale": 0.1}),
        "diagonal": ("Diagonal keys and queries: the l1 norm", "diagonal", _tokens(equal_score_tokens(4, 4, 12, 5)), {**far, "seed": 5, "scale": 1.0}),
        "deep-linear": ("Deep linear network on two strips: layers align", "deep-linear", signed, {"optimiser": "flow", "margin": 1e4, "widths": [4, 4], "seed": 1, "scale": 0.3}),
        "squares": ("Squares on a line of interpolants: l1 or l2, by alpha", "signed-squares", line, {"optimiser": "flow", "alpha": 0.03}),
        "squares-descent": ("The same by gradient descent", "signed-squares", line, {"optimiser": "gd", "size": 0.05, "steps": 2000, "alpha": 0.3}),
    }  # fmt: skip
    common = {"loss": "exponential", "size": 0.05}
    found = {}
    for name, (title, setting, data, options) in rows.items():
        spec = {"preset": name, "title": title, "setting": setting, "data": data, **common, **options}
        found[name] = {**spec, "start": flat_start(spec).tolist()}
    return found


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


def expected(spec: Spec) -> dict[str, Any]:
    """What penchant computes for a description: the records, and where a flow on a regression ends."""
    setting = setting_of(spec)
    _, unravel = ravel_pytree(setting.start() if "seed" not in spec else setting.start(0, 1.0))
    start = unravel(np.asarray(spec["start"]))
    if spec["setting"] == "signed-squares" and spec["optimiser"] == "flow":
        found = minimum_potential(setting.data, setting.parametrisation.potential(start))
        return {"weight": np.ravel(found.weight).tolist()}
    until = MarginAbove(float(spec["margin"])) if "margin" in spec else None
    flowing = spec["optimiser"] == "flow"
    rule = OPTIMISERS[spec["optimiser"]](spec["size"])
    run = train(
        setting, rule, start, steps=spec.get("steps"), until=until, recorder=None if flowing else LogSpaced(_POINTS)
    )
    weights = [np.ravel(run.weight(k)).tolist() for k in range(len(run.steps))]
    return {
        "status": run.status.name,
        **{name: np.asarray(getattr(run, name)).tolist() for name in ("steps", "log_time", "log_excess", "norm")},
        "margins": np.asarray(run.margins).tolist(),
        "weights": weights,
        "dual": np.asarray(run.dual[-1]).tolist(),
    }


def own_spec(path: str | Path) -> Spec:
    """The description of a user's own data: inputs with labels or targets, or tokens."""
    data, name = load(path), Path(path).name
    size = sum(leaf.size for leaf in jax.tree.leaves(data))
    if size > _LARGEST:
        most = f"the explorer redraws every run and takes at most {_LARGEST}"
        raise DataFileError(f"'{name}' holds {size} numbers; {most}.\n  Fix: `penchant train` takes them all.")
    common = {"preset": "own", "title": name, "loss": "exponential", "optimiser": "flow", "size": 0.05}
    if isinstance(data, TokenSelection):
        spec = {**common, "setting": "attention", "data": _tokens(data), "margin": 1e6}
    elif isinstance(data, Classification):
        arrays = _numbers(inputs=data.signed, labels=np.ones(len(data.signed)))
        spec = {**common, "setting": "linear", "data": arrays, "margin": 1e6}
    else:
        arrays = _numbers(inputs=data.inputs, targets=data.fitted)
        spec = {**common, "setting": "signed-squares", "data": arrays, "alpha": 0.1}
    return {**spec, "start": flat_start(spec).tolist()}


def explorer(own: Spec | None = None) -> str:
    """The page, whole: style, kernel, interface and presets in one text."""
    from jinja2 import Environment, PackageLoader, select_autoescape

    folder = files("penchant.report")
    names = {"style": "style.css", "draw": "draw.js", "kernel": "explorer/kernel.js", "page": "explorer/page.js"}
    parts = {name: (folder / file).read_text(encoding="utf-8") for name, file in names.items()}
    known = presets() if own is None else {"own": own, **presets()}
    text = json.dumps(known, separators=(",", ":")).replace(
        "<", "\\u003c"
    )  # so that no name ends the script it stands in
    loader = PackageLoader("penchant", "report/explorer")
    environment = Environment(loader=loader, autoescape=select_autoescape(), trim_blocks=True, lstrip_blocks=True)
    return environment.get_template("explorer.html").render(**parts, presets=text)


def write_explorer(path: str | Path, own: Spec | None = None) -> Path:
    """Write the explorer to a file; returns it."""
    return write_bytes(Path(path), explorer(own).encode())
