"""The dense layers of AlexNet on genuine pictures (Figure 2 of the paper), drawn from what `bridge.torch_experiments` measured."""

import numpy as np

from ....exhibits import Figure, Finding, Result, table
from ....verdict import all_of, at_least
from ..theorems import JI


def result(found: dict, curves, by_variant) -> Result:
    """Ratios of spectral to Frobenius norm of the three dense layers from both starts, and the loss."""
    layers = [name for name in found["runs"][0]["norms"] if name.startswith("ratio")]
    about = f"{found['settings']['samples']} pictures, {len(found['settings']['seeds'])} seeds; {found['device']}."
    read = lambda layer: lambda one: one["norms"][layer]
    figures = [
        Figure(f"layer-{k}", f"Dense layer {k}", "epoch", "spectral / Frobenius", curves(found, read(layer)), about)
        for k, layer in enumerate(layers, 1)
    ]
    losses = curves(found, lambda one: one["train_loss"])
    figures.append(Figure("loss", "Train loss", "epoch", "train loss", losses, about, "linear", "log"))
    gain = lambda one, layer: one["norms"][layer][-1] / one["norms"][layer][0]
    runs = by_variant(found)
    gains = {start: [[gain(one, layer) for layer in layers] for one in those] for start, those in runs.items()}
    rises = [
        at_least(float(np.min(rows)), 1.0, f"{start}: smallest growth of a ratio") for start, rows in gains.items()
    ]
    default, equal = (np.array(rows)[:, :2] for rows in gains.values())
    more = at_least(
        float((equal / default).min()), 1.0, "growth of their ratios from equal norms over that from the default start"
    )
    findings = (
        Finding("The ratios of dense layers rise while the loss falls.", all_of(*rises), JI),
        Finding("The two wide layers align more from layers of equal norm.", more, JI),
    )
    rows = [
        (
            start,
            one["seed"],
            one["rate"],
            one["train_loss"][-1],
            *(v for layer in layers for v in (one["norms"][layer][0], one["norms"][layer][-1])),
        )
        for start, those in runs.items()
        for one in those
    ]
    columns = {"start": "", "seed": "", "rate": "g", "train loss": ".4g"}
    columns |= {f"{when} {k}": ".4f" for k in range(1, len(layers) + 1) for when in ("first", "last")}
    return Result(findings, tuple(figures), (table("layers", "Ratios of the dense layers", columns, rows, about),))
