"""Least-norm interpolation: where each rule ends from each start."""

import numpy as np

from ....exhibits import DEFINITIONS, Figure, Finding, Line, Result, Shown, Table
from ....flow.flow import GradientFlow
from ....lab import Lab, Study
from ....norms import L2
from ....optimisers.adam import Adam
from ....optimisers.base import Descent, gradient_descent
from ....optimisers.memory import HeavyBall
from ....optimisers.step_rules import Constant
from ....references.interpolation import minimum_norm
from ....settings.base import Setting
from ....settings.losses import Squared
from ....settings.parametrisations import Direct
from ....settings.regression import Regression
from ....theory.judge import judge
from ....training.noise import sample_noise
from ....training.recorders import LogSpaced
from ....training.train import train
from ....verdict import at_most
from ..evidence import ADAM
from ..interpolation_theorems import distance
from ..margin_theorems import NOTES

_STEPS, _DRAWS = 20_000, 200_000
_SINGLE = "single-sample SGD"


def _single_samples(data: Regression, start: np.ndarray, seed: int) -> np.ndarray:
    """Where SGD with the step size 0.5/|x_i|^2 ends: the same steps as of step size 0.5 on samples divided by |x_i|."""
    lengths = np.linalg.norm(np.asarray(data.inputs), axis=1)
    inputs, targets = np.asarray(data.inputs) / lengths[:, None], np.asarray(data.targets) / lengths
    return sample_noise(inputs, targets, 0.5, _DRAWS, 1, seed, start)[0]


def _interpolant_table(data: Regression, ends: dict[str, tuple], sizes: dict[str, str]) -> Table:
    """Where each rule ends from each start, measured against the projection of that start on the solutions."""
    right = np.linalg.svd(np.asarray(data.inputs), full_matrices=False)[2]
    least, rows = float(np.linalg.norm(minimum_norm(data).weight)), []
    for name, (rule, start, weight) in ends.items():
        target, moved = minimum_norm(data, start).weight, weight - start
        gap = float(np.linalg.norm(weight - target))
        values = (gap, gap / np.linalg.norm(target), float(np.linalg.norm(moved - right.T @ (right @ moved))))
        rows.append((name, sizes[rule], *(Shown(value, ".3g") for value in values), _ratio(weight, least)))
    columns = (
        "run",
        "step size",
        "distance to the projection",
        "relative distance",
        "off-span part",
        "norm / least norm",
    )
    caption = (
        f"Least norm {least:.7g}. The projection is the solution nearest to the start, from 0 the one of least norm."
    )
    return Table("ends", "Where each rule ends", columns, tuple(rows), caption)


def _ratio(weight: np.ndarray, least: float) -> Shown:
    return Shown(np.linalg.norm(weight) / least, ".5g")


def min_norm(lab: Lab) -> Result:
    seed, full, progress = lab.seed, lab.full, lab.progress
    rng = np.random.default_rng(seed)
    n, d = (100, 400) if full else (20, 50)
    data = Regression(rng.standard_normal((n, d)), rng.standard_normal(n))
    begin = rng.standard_normal(d)
    setting = Setting(data, Direct(), Squared(), "sum")
    step = 1 / float(np.linalg.norm(np.asarray(data.inputs), 2) ** 2)
    rules = {
        "gradient flow": GradientFlow(),
        "gradient descent": gradient_descent(step),
        "heavy ball": Descent(Constant(step), L2(), HeavyBall(0.9)),
        "Adam": Adam(**ADAM),
    }
    sizes = dict.fromkeys(rules, f"{step:.4g}") | {"gradient flow": "none", "Adam": f"{ADAM['step']:g}"}
    sizes[_SINGLE] = "0.5 / |x_i|^2"
    runs, findings, ends = {}, [], {}
    for name, rule in rules.items():
        for label, start in (("0", np.zeros(d)), ("a random start", begin)):
            progress(f"{name} from {label}")
            flow = isinstance(rule, GradientFlow)
            run = (
                train(setting, rule, start)
                if flow
                else train(setting, rule, start, steps=_STEPS, recorder=LogSpaced(60))
            )
            prediction = lab.predict(setting, rule, start)
            ends[f"{name} from {label}"] = name, start, run.weight()
            findings.append(
                Finding(
                    f"{name} from {label}: {prediction.theorem.statement}",
                    judge(prediction, run),
                    prediction.theorem.citation,
                )
            )
            runs[f"{name} from {label}"] = run
    for label, start in (("0", np.zeros(d)), ("a random start", begin)):
        progress(f"{_SINGLE} from {label}")
        weight = _single_samples(data, start, seed)
        ends[f"{_SINGLE} from {label}"] = _SINGLE, start, weight
        found = at_most(
            distance(weight, minimum_norm(data, start).weight), 1e-10, f"relative distance after {_DRAWS} steps"
        )
        statement = f"{_SINGLE} from {label}: converges to the projection of the start on the solutions."
        findings.append(Finding(statement, found, f"{NOTES}, section 9.1"))
    right = np.linalg.svd(np.asarray(data.inputs), full_matrices=False)[2]
    off = lambda run: np.array(
        [np.linalg.norm(w - run.at(0) - right.T @ (right @ (w - run.at(0)))) for w in run.params[1:]]
    )
    least = float(np.linalg.norm(minimum_norm(data).weight))
    descents = {name: run for name, run in runs.items() if "flow" not in name}
    figures = (
        Figure(
            "off-span",
            "Combinations of gradients stay in the span of the inputs",
            "step",
            "off-span part",
            tuple(Line(name, run.steps[1:], np.maximum(off(run), 1e-18)) for name, run in descents.items()),
            "Adam leaves the span; all others stay in it to rounding.",
            "log",
            "log",
        ),
        Figure(
            "norm",
            "Norm of the weight over the least norm",
            "step",
            "norm / least norm",
            tuple(Line(name, run.steps[1:], run.norm[1:] / least) for name, run in descents.items()),
            "From 0 descent ends at 1; a start outside the span keeps its part there.",
            "log",
            "log",
        ),
    )
    table = _interpolant_table(data, ends, sizes)
    words = {
        **DEFINITIONS,
        "off-span part": "norm of the component of weight - start orthogonal to all inputs; 0 for combinations of gradients",
        "projection (of a start)": "the weight nearest to the start among those that fit all targets: what the theorem says is selected",
        "heavy ball, Adam": f"momentum 0.9 of the same step size; Adam with step size {ADAM['step']:g}, epsilon {ADAM['eps']:g}; both, and descent, for {_STEPS} steps",
    }
    kept = {name.replace(" ", "-"): run for name, run in runs.items()}
    return Result(tuple(findings), figures, (table,), kept, words)


STUDIES = (Study("min-norm", "Least-norm interpolation from zero and non-zero starts", min_norm),)
