"""The step rules of the theory on a real network: a small vision transformer on handwritten digits (after Figures 6 and 7 of the paper)."""

from collections.abc import Callable
from itertools import chain, product
from typing import Any

import numpy as np

from ....errors import MissingExtra
from ....exhibits import Figure, Finding, Line, Result, Table, table
from ....lab import Lab, Study
from ....verdict import all_of, at_least, at_most
from ..theorems import VASUDEVA

_EPOCHS, _BATCH = 12, 50
WORDS = {
    "SGD": "stochastic gradient descent, rate 0.1",
    "SNGD": "stochastic normalised descent: steps of length 0.1 along the gradient of the batch",
    "SPS": "stochastic Polyak steps: loss of the batch over the squared norm of its gradient, at most 0.5",
    "Adam": "Adam, rate 1e-3",
    "train loss": "mean cross-entropy over all training images",
    "norm ratio": "Frobenius norm of a group of parameters over its norm before training",
    "capped": "share of the steps on which the cap of the Polyak step was active",
}


def _bridge() -> tuple[Any, Any, Any]:
    try:
        from ....bridge import torch_networks, torch_optimisers, torch_training
    except ImportError:
        raise MissingExtra("torch", "The study real-networks") from None
    return torch_networks, torch_optimisers, torch_training


def _rules(torch: Any, optimisers: Any, factor: float) -> dict[str, Callable[[Any], Any]]:
    """The four rules with every rate (of SPS: the cap) multiplied by `factor`."""
    return {
        "SGD": lambda parameters: torch.optim.SGD(parameters, 0.1 * factor),
        "SNGD": lambda parameters: optimisers.SNGD(parameters, 0.1 * factor),
        "SPS": lambda parameters: optimisers.SPSmax(parameters, 0.5 * factor),
        "Adam": lambda parameters: torch.optim.Adam(parameters, 1e-3 * factor),
    }


def run(lab: Lab) -> Result:
    """Four rules from one start; with `full` three seeds, and every rate times 0.1, 1 and 10."""
    networks, optimisers, training = _bridge()
    seeds, factors = range(lab.seed, lab.seed + (3 if lab.full else 1)), (0.1, 1.0, 10.0) if lab.full else (1.0,)
    sets, runs = networks.digits(seed=lab.seed), {}
    for factor in factors:
        for (name, make), seed in product(_rules(networks.torch, optimisers, factor).items(), seeds):
            lab.progress(f"{name}, rate x {factor:g}, seed {seed}")
            network = networks.VisionTransformer(side=8, patch=2, width=32, depth=2, heads=2, seed=seed)
            options = {"epochs": _EPOCHS, "batch": _BATCH, "seed": seed}
            runs[name, factor, seed] = training.train_network(network, *sets, make(network.parameters()), **options)
    main: dict[str, list[Any]] = {}
    for (name, factor, _), found in runs.items():
        if factor == 1.0:
            main.setdefault(name, []).append(found)
    return Result(_findings(main), _figures(main), (_table(runs), _norms(main)), {}, WORDS)


def _last(runs: list[Any]) -> float:
    return float(np.mean([one.train_loss[-1] for one in runs]))


def _findings(main: dict[str, list[Any]]) -> tuple[Finding, ...]:
    ends = {name: _last(found) for name, found in main.items()}
    heads = min(one.ratios()["head"][-1] for found in main.values() for one in found)
    lengths = np.concatenate([np.asarray(one.displacement) for one in main["SNGD"]])
    rest = min(value for name, value in ends.items() if name != "Adam")
    trained = (at_most(value, 1.5, f"train loss after {_EPOCHS} epochs, {name}") for name, value in ends.items())
    slower = at_least(ends["SNGD"] / ends["SGD"], 1.0, "train loss of SNGD over that of SGD")
    moved = float(np.abs(lengths / 0.1 - 1).max())
    length = at_most(moved, 1e-3, "largest relative deviation of a displacement, float32")
    lowest = at_least(rest / ends["Adam"], 1.0, "best train loss of the others over Adam's")
    grown = at_least(float(heads), 1.0, "smallest norm ratio of the head")
    return (
        Finding("Every rule trains the network.", all_of(*trained), VASUDEVA),
        Finding("Adam ends lowest.", lowest, VASUDEVA),
        Finding("On images normalised descent is slower than plain SGD.", slower, VASUDEVA),
        Finding("The head grows under every rule.", grown, VASUDEVA),
        Finding("Uncapped normalised descent moves by its length in every step.", length, "definition"),
    )


def _figures(main: dict[str, list[Any]]) -> tuple[Figure, ...]:
    epochs, caption = np.arange(_EPOCHS + 1), "Mean over the seeds. The first point is before training."
    curves = lambda read, name="": tuple(
        Line(rule + name, epochs, np.mean([read(one) for one in found], axis=0)) for rule, found in main.items()
    )
    norms = (curves(lambda one, group=group: one.ratios()[group], f", {group}") for group in ("query and key", "head"))
    loss, accuracy = curves(lambda one: one.train_loss), curves(lambda one: one.test_accuracy)
    share = "share of test images classified correctly"
    return (
        Figure("loss", "Train loss", "epoch", "train loss", loss, caption, "linear", "log"),
        Figure("accuracy", "Test accuracy", "epoch", share, accuracy, caption),
        Figure("norms", "Growth of the norms", "epoch", "norm ratio", tuple(chain(*norms)), caption),
    )


def _table(runs: dict[tuple[str, float, int], Any]) -> Table:
    rows = []
    for name, factor in dict.fromkeys((name, factor) for name, factor, _ in runs):
        found = [one for (rule, rate, _), one in runs.items() if (rule, rate) == (name, factor)]
        tests, capped = np.mean([(one.test_accuracy[-1], np.mean(one.capped)) for one in found], axis=0)
        rows.append((name, factor, len(found), _last(found), tests, capped))
    columns = {"rule": "", "rate x": "g", "seeds": "", "train loss": ".4f", "test accuracy": ".3f", "capped": ".2f"}
    return table("rules", f"After {_EPOCHS} epochs", columns, rows, "Batches of 50 of 1400 images; 397 test images.")


def _norms(main: dict[str, list[Any]]) -> Table:
    groups = tuple(next(iter(main.values()))[0].norms)
    mean = lambda found, group: np.mean([one.ratios()[group][-1] for one in found])
    rows = [(name, *(mean(found, group) for group in groups)) for name, found in main.items()]
    columns = {"rule": "", **dict.fromkeys(groups, ".3f")}
    return table("norms", "Norm ratios by group of parameters", columns, rows, "Mean over the seeds.")


_TITLE = "The same step rules on a vision transformer (after Figures 6 and 7)"
STUDIES = (Study("real-networks", _TITLE, run),)
