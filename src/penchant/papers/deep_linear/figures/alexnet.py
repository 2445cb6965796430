"""The dense layers of AlexNet on genuine pictures (Figure 2 of the paper), drawn from what `bridge.torch_experiments` measured."""

from collections.abc import Callable

import numpy as np

from ....exhibits import Figure, Finding, Result, Table, table
from ....verdict import Verdict, at_least
from ..theorems import JI


def result(found: dict, curves: Callable, runs: dict[str, list[dict]]) -> Result:
    """Ratios of spectral to Frobenius norm of the three dense layers from both starts, and the loss."""
    layers = [name for name in found["runs"][0]["norms"] if name.startswith("ratio")]
    settings = found["settings"]
    about = f"{settings['samples']} pictures, {settings['epochs']} epochs, {len(settings['seeds'])} seeds; {found['device']}."
    draw = lambda name, title, label, read, scale: Figure(
        name, title, "epoch", label, curves(found, read), about, "linear", scale
    )
    ratios = (
        draw(f"layer-{k}", f"Dense layer {k}", "spectral / Frobenius", lambda one, n=name: one["norms"][n], "linear")
        for k, name in enumerate(layers, 1)
    )
    loss = draw("loss", "Train loss", "train loss", lambda one: one["train_loss"], "log")
    return Result(_findings(runs, layers), (*ratios, loss), (_table(runs, layers, about),))


def _findings(runs: dict[str, list[dict]], layers: list[str]) -> tuple[Finding, ...]:
    """What is said of alignment is said of runs that left the plateau of equal probabilities, and how many did is a finding of its own."""
    every = [one for those in runs.values() for one in those]
    left = lambda one: one["train_loss"][-1] <= 0.9 * one["train_loss"][0]
    gain = lambda one: np.array([one["norms"][name][-1] / one["norms"][name][0] for name in layers])
    gains = {start: np.array([gain(one) for one in those if left(one)]) for start, those in runs.items()}
    rise = min((float(rows.min()) for rows in gains.values() if len(rows)), default=np.nan)
    none = np.full((1, 2), np.nan)
    default, equal = (
        gains[name][:, :2] if len(gains.get(name, ())) else none for name in ("default start", "equal norms")
    )
    more: Verdict = at_least(
        float(equal.min() / default.max()), 1.0, "least growth from equal norms over most from the default"
    )
    count = sum(map(left, every))
    return (
        Finding(
            "The ratios of dense layers rise while the loss falls.", at_least(rise, 1.0, "least growth of a ratio"), JI
        ),
        Finding("The two wide layers align more from layers of equal norm.", more, JI),
        Finding("Every run trains.", at_least(count, len(every), "runs whose loss falls"), JI),
    )


def _table(runs: dict[str, list[dict]], layers: list[str], about: str) -> Table:
    ends = lambda one: (value for name in layers for value in (one["norms"][name][0], one["norms"][name][-1]))
    head = lambda start, one: (start, one["seed"], one["rate"], one["train_loss"][-1], one["test_accuracy"][-1])
    rows = [(*head(start, one), *ends(one)) for start, those in runs.items() for one in those]
    columns = {"start": "", "seed": "", "rate": "g", "train loss": ".4f", "test accuracy": ".4f"}
    columns |= {f"{when} {k}": ".4f" for k in range(1, len(layers) + 1) for when in ("first", "last")}
    return table("layers", "Ratios of the dense layers", columns, rows, about)
