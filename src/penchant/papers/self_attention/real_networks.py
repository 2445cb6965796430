"""The step rules of the theory on real networks (Figures 1, 4, 6 and 7 of the paper), drawn from what `bridge.torch_experiments` measured."""

import json
from typing import Any

import numpy as np
from scipy.special import stdtrit

from ...errors import MissingExtra
from ...exhibits import Figure, Finding, Line, Result, Table, table
from ...lab import Lab, Study
from ...verdict import Outcome, Verdict, all_of, at_least, at_most
from .theorems import VASUDEVA

WORDS = {
    "SGD": "stochastic gradient descent",
    "SNGD": "stochastic normalised descent: steps of length `rate` along the gradient of the batch, at most `cap` times the gradient",
    "SPS": "stochastic Polyak steps: loss of the batch over the squared norm of its gradient, at most `cap`",
    "train loss": "mean cross-entropy over training samples, evenly spread",
    "norm ratio": "Frobenius norm of a group of parameters over its norm before training",
    "capped": "share of the steps on which the cap was active",
    "interval": "95 % of Student's t over the seeds, to both sides",
}


def by_variant(found: dict) -> dict[str, list[dict]]:
    """The runs of every rule or start, one for each seed."""
    return {
        name: [one for one in found["runs"] if one["variant"] == name]
        for name in dict.fromkeys(one["variant"] for one in found["runs"])
    }


def spread(values: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean over the seeds and the half width of its interval, which one seed does not have."""
    array = np.asarray(values, float)
    n = len(array)
    return array.mean(axis=0), stdtrit(n - 1, 0.975) * array.std(axis=0, ddof=1) / np.sqrt(n) if n > 1 else 0 * array[0]


def curves(found: dict, read: Any, label: str = "") -> tuple[Line, ...]:
    """One line for each rule or start, with its interval; a run that ended early ends the line."""
    lines = []
    for name, runs in by_variant(found).items():
        series = [np.asarray(read(one)) for one in runs]
        mean, width = spread([one[: min(map(len, series))] for one in series])
        lines.append(Line(name + label, np.arange(len(mean)), mean, error=width if len(runs) > 1 else None))
    return tuple(lines)


def ratio_verdict(found: dict, above: str, below: str) -> Verdict:
    """That one rule ends above another in train loss: of every seed, so that chance of one cannot decide it."""
    ends = {(one["variant"], one["seed"]): one["train_loss"][-1] for one in found["runs"]}
    both = [(ends[name, seed], ends[below, seed]) for name, seed in ends if name == above and (below, seed) in ends]
    if not both or None in np.ravel(both):
        return Verdict(Outcome.undecided, f"finite runs of {above} and {below} with the same seeds are missing")
    ratios = [a / b for a, b in both]
    return at_least(min(ratios), 1.0, f"smallest over the seeds of the loss of {above} over that of {below}")


def _findings(found: dict) -> tuple[Finding, ...]:
    runs = by_variant(found)
    ends = {
        name: float(np.mean([one["train_loss"][-1] / one["train_loss"][0] for one in those]))
        for name, those in runs.items()
    }
    heads = min(one["norms"]["head"][-1] / one["norms"]["head"][0] for those in runs.values() for one in those)
    grown = [one["growth"] for those in runs.values() for one in those]
    layers = min(value for growth in grown for name, value in growth.items() if "blocks" in name)
    trained = all_of(*(at_most(value, 0.9, f"last over first train loss, {name}") for name, value in ends.items()))
    adam = all_of(*(ratio_verdict(found, name, "Adam") for name in runs if name != "Adam"))
    order = ("On text normalised descent ends below plain SGD.", ratio_verdict(found, "SGD", "SNGD"))
    if "encoder" not in found["experiment"]:
        order = ("On images normalised descent is slower than plain SGD.", ratio_verdict(found, "SNGD", "SGD"))
    said = {
        "Every rule trains the network.": trained,
        order[0]: order[1],
        "Adam ends lowest.": adam,
        "The head grows under every rule.": at_least(heads, 1.0, "smallest norm ratio of the head"),
        "Every matrix of a block grows under every rule.": at_least(layers, 1.0, "smallest norm ratio of a matrix"),
    }
    return tuple(Finding(sentence, verdict, VASUDEVA) for sentence, verdict in said.items())


def result(found: dict) -> Result:
    """The page of an experiment with several rules."""
    about = f"{found['settings']['samples']} samples, batches of {found['settings']['batch']}, {len(found['settings']['seeds'])} seeds; {found['device']}, {found['seconds']:.0f} s in all."
    loss, accuracy = curves(found, lambda one: one["train_loss"]), curves(found, lambda one: one["test_accuracy"])
    figures = [
        Figure("loss", "Train loss", "epoch", "train loss", loss, about, "linear", "log"),
        Figure("accuracy", "Test accuracy", "epoch", "share of test samples classified correctly", accuracy, about),
    ]
    for group in ("query and key", "head"):
        lines = curves(found, lambda one, group=group: np.array(one["norms"][group]) / one["norms"][group][0])
        name = group.replace(" ", "-")
        figures.append(Figure(f"norms-{name}", f"Growth of {group}", "epoch", "norm ratio", lines, about))
    return Result(_findings(found), tuple(figures), (_rules(found), _grid(found), _norms(found)), {}, WORDS)


def _rules(found: dict) -> Table:
    rows = []
    for name, runs in by_variant(found).items():
        numbers = [(one["train_loss"][-1], one["test_accuracy"][-1], np.mean(one["capped"])) for one in runs]
        (loss, test, capped), (wide, other, _) = spread(numbers)
        rows.append((name, runs[0]["rate"], runs[0]["cap"] or "-", len(runs), loss, wide, test, other, capped))
    columns = {
        "rule": "",
        "rate": "g",
        "cap": "g",
        "seeds": "",
        "train loss": ".4f",
        "+-": ".4f",
        "test accuracy": ".4f",
        "+- ": ".4f",
        "capped": ".2f",
    }
    epochs = f"After {found['settings']['epochs']} epochs (the paper: {found['settings']['epochs of the paper']})."
    return table("rules", "The best rate of each rule", columns, rows, epochs)


def _grid(found: dict) -> Table:
    end = lambda one: "not finite" if one["train_loss"][-1] is None else one["train_loss"][-1]
    rows = [(one["variant"], one["factor"], one["rate"], one["cap"] or "-", end(one)) for one in found["grid"]]
    columns = {"rule": "", "factor": "g", "rate": "g", "cap": "g", "train loss": ".4f"}
    return table(
        "grid", "The grid of rates", columns, rows, f"One seed, {found['settings']['epochs of the grid']} epochs each."
    )


def _norms(found: dict) -> Table:
    ratio = lambda runs, group: np.mean([one["norms"][group][-1] / one["norms"][group][0] for one in runs])
    rows = [(name, *(ratio(runs, group) for group in runs[0]["norms"])) for name, runs in by_variant(found).items()]
    columns = {"rule": "", **dict.fromkeys(found["runs"][0]["norms"], ".3f")}
    return table("norms", "Norm ratios by group of parameters", columns, rows, "Mean over the seeds.")


def run(lab: Lab) -> Result:
    """The quick experiment on the digits of scikit-learn, which needs no data from elsewhere."""
    try:
        from ...bridge.torch_experiments import experiment
    except ImportError:
        raise MissingExtra("torch", "The study real-networks") from None
    *_, found = experiment("vit-digits", full=lab.full, progress=lab.progress)
    return result(json.loads(json.dumps(found), parse_constant=lambda _: None))


_TITLE = "The same step rules on a vision transformer (after Figures 6 and 7)"
STUDIES = (Study("real-networks", _TITLE, run, seeded=False),)
