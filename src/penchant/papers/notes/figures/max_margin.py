"""Maximum margin on separable linear data: the 1/log t rate with its constants, far past underflow. And least-norm interpolation: where each rule ends from each start."""

from typing import Any

import numpy as np

from ....diagnostics.direction import misalignments, normalised_margins, smooth_margins
from ....exhibits import DEFINITIONS, Figure, Line, Shown, Table
from ....flow.flow import GradientFlow, is_flow
from ....lab import Lab, Study, recipe
from ....norms import L2
from ....optimisers.base import Adam, Descent, gradient_descent, normalised_descent, polyak
from ....optimisers.memory import HeavyBall
from ....optimisers.step_rules import Constant
from ....references.bracket import bracket
from ....references.interpolation import minimum_norm
from ....settings.base import Setting
from ....settings.parametrisations import Direct
from ....settings.regression import Regression
from ....theory.families.interpolation import distance
from ....theory.judge import judge
from ....training.noise import sample_noise
from ....training.recorders import LogSpaced
from ....training.train import train
from ....training.trajectory import Trajectory
from ....verdict import at_most
from .. import max_margin as claims
from .. import min_norm as least
from ..evidence import ADAM, arrays, dense, summed
from ..max_margin import deficits, entropy, flow_run, problem

_DESCENTS = {
    "gradient descent": gradient_descent(0.005),
    "normalised descent": normalised_descent(0.1),
    "Polyak": polyak(),
}


@recipe
def _runs(lab: Lab) -> dict[str, Trajectory]:
    runs = {"gradient flow": flow_run(lab)}
    for name, rule in _DESCENTS.items():
        lab.progress(f"training: {name}")
        runs[name] = train(problem(lab)[0], rule, steps=100_000 if lab.full else 10_000)
    return runs


def _flows(lab: Lab) -> tuple[Figure, Figure]:
    """Margin deficits of the flow, and its rate in time."""
    flow, twin, reference = flow_run(lab), flow_run(lab, True), problem(lab)[1]
    (mean, top), depth = entropy(reference), -flow.log_excess[1:]
    curves = (
        Line("smooth margin", depth, deficits(smooth_margins(flow), flow, reference)),
        Line("margin", depth, deficits(normalised_margins(flow), flow, reference)),
        Line("smooth margin, logistic loss", -twin.log_excess[1:], deficits(smooth_margins(twin), twin, reference)),
        Line("H(p)", depth, np.full(len(depth), mean), "prediction"),
        Line("H(p) + log max p", depth, np.full(len(depth), mean + np.log(top)), "prediction"),
    )
    late = flow.log_time[-40:]
    tail = (
        Line("gradient flow", flow.log_time[1:], reference.margin - smooth_margins(flow)[1:]),
        Line("H(p) margin / log t", late, mean * reference.margin / late, "prediction"),
    )
    title, axes = "Margin deficit times norm tends to an entropy", ("-log L", "(best margin - margin) |w|")
    caption = "Along the gradient flow, until the loss is e^-100000. Dashed: the predicted limits."
    rate, rate_axes = "The 1/log t rate with its constant", ("log t", "best margin - smooth margin")
    rate_caption = "Deficit of the smooth margin against physical time; dashed, the predicted tail."
    return (
        Figure("deficit", title, *axes, curves, caption, "log"),
        Figure("rate", rate, *rate_axes, tail, rate_caption, "log", "log"),
    )


def _directions(lab: Lab) -> Figure:
    caption = "All rules follow nearly the same path; they differ in how far along it a step takes them. t is the sum of the multipliers of the loss gradient."
    reference = problem(lab)[1]
    lines = tuple(Line(name, run.log_time[1:], misalignments(run, reference)[1:]) for name, run in _runs(lab).items())
    axes = "log t", "1 - corr to the maximum margin"
    return Figure("direction", "Direction against physical time", *axes, lines, caption, "log", "log")


def _certificates(lab: Lab) -> Figure:
    caption = "Relative width of the bracket on the best margin, from the weights and the multipliers the run accumulated; no solver is involved."
    data, runs, lines = problem(lab)[0].data, _runs(lab), []
    for name in _DESCENTS:
        run = runs[name]
        gaps = [bracket(data, run.weight(k), run.dual[k]).gap for k in range(1, len(run))]
        lines.append(Line(name, run.steps[1:], np.array(gaps)))
    title = "Each run certifies itself"
    return Figure("certificate", title, "step", "certified gap", tuple(lines), caption, "log", "log")


def judged(lab: Lab, setting: Setting, rule: Any, run: Trajectory, start: Any = None) -> tuple[str, str, str]:
    """The theorem that speaks about a run, its verdict, and the inequality that decided it."""
    prediction = lab.predict(setting, rule, start)
    verdict = judge(prediction, run)
    return prediction.theorem.name, verdict.outcome.value, verdict.inequality


def _verdicts(lab: Lab) -> tuple[Table, dict[str, Trajectory]]:
    """What the theorem of each rule says of its run; and the runs."""
    runs, (setting, _) = _runs(lab), problem(lab)
    rows = [(name, *judged(lab, setting, rule, runs[name])) for name, rule in _DESCENTS.items()]
    for loss, logistic in claims.LOSSES.items():
        found = judged(lab, problem(lab, logistic)[0], GradientFlow(), flow_run(lab, logistic))
        rows.append((f"gradient flow, {loss} loss", *found))
    columns, caption = ("run", "theorem", "verdict", "inequality"), "The exponential loss where none is named."
    table = Table("verdicts", "What theory says of each run", columns, tuple(rows), caption)
    return table, {name.replace(" ", "-"): run for name, run in runs.items()}


_STEPS, _DRAWS = 20_000, 200_000


def _starts(lab: Lab) -> dict[str, np.ndarray]:
    start = dense(lab)[1]
    return {"0": np.zeros(len(start)), "a random start": start}


def _rules(lab: Lab) -> dict[str, tuple[Any, str]]:
    """The rules and what the table says of their step sizes."""
    step = 1 / float(np.linalg.norm(np.asarray(dense(lab)[0].inputs), 2) ** 2)
    return {
        "gradient flow": (GradientFlow(), "none"),
        "gradient descent": (gradient_descent(step), f"{step:.4g}"),
        "heavy ball": (Descent(Constant(step), L2(), HeavyBall(0.9)), f"{step:.4g}"),
        "Adam": (Adam(**ADAM), f"{ADAM['step']:g}"),
    }


@recipe
def _fits(lab: Lab) -> dict[tuple[str, str], Trajectory]:
    setting, runs = summed(dense(lab)[0], Direct()), {}
    for name, (rule, _) in _rules(lab).items():
        for label, start in _starts(lab).items():
            lab.progress(f"{name} from {label}")
            flow = is_flow(rule)
            budget = {} if flow else {"steps": _STEPS, "recorder": LogSpaced(60)}
            runs[name, label] = train(setting, rule, start, **budget)
    return runs


def single_samples(data: Regression, start: np.ndarray, seed: int) -> np.ndarray:
    """Where SGD with the step size 0.5/|x_i|^2 ends: the same steps as of step size 0.5 on samples divided by |x_i|."""
    inputs, targets = arrays(data)
    lengths = np.linalg.norm(inputs, axis=1)
    return sample_noise(inputs / lengths[:, None], targets / lengths, 0.5, _DRAWS, 1, seed, start)[0]


def ends(lab: Lab) -> tuple[Table, dict[str, Trajectory]]:
    """Where each rule ends from each start, measured against the projection of that start on the solutions; and the runs."""
    data, _ = dense(lab)
    starts, rules, runs, setting = _starts(lab), _rules(lab), _fits(lab), summed(data, Direct())
    right = np.linalg.svd(np.asarray(data.inputs), full_matrices=False)[2]
    least, rows = float(np.linalg.norm(minimum_norm(data).weight)), []

    def row(name: str, size: str, start: np.ndarray, weight: np.ndarray, verdict: str) -> tuple:
        target, moved = minimum_norm(data, start).weight, weight - start
        gap = float(np.linalg.norm(weight - target))
        values = (gap, gap / np.linalg.norm(target), float(np.linalg.norm(moved - right.T @ (right @ moved))))
        ratio = Shown(np.linalg.norm(weight) / least, ".5g")
        return (name, size, *(Shown(value, ".3g") for value in values), ratio, verdict)

    for (name, label), run in runs.items():
        rule, size = rules[name]
        verdict = judged(lab, setting, rule, run, starts[label])[1]
        rows.append(row(f"{name} from {label}", size, starts[label], run.weight(), verdict))
    for label, start in starts.items():
        lab.progress(f"single-sample SGD from {label}")
        weight = single_samples(data, start, lab.seed)
        verdict = at_most(distance(weight, minimum_norm(data, start).weight), 1e-10, "").outcome.value
        rows.append(row(f"single-sample SGD from {label}", "0.5 / |x_i|^2", start, weight, verdict))
    measures = "distance to the projection", "relative distance", "off-span part", "norm / least norm"
    caption = f"Least norm {least:.7g}. The projection is the solution nearest to the start, from 0 the one of least norm; verdicts are on it."
    table = Table("ends", "Where each rule ends", ("run", "step size", *measures, "verdict"), tuple(rows), caption)
    return table, {f"{name} from {label}".replace(" ", "-"): run for (name, label), run in runs.items()}


def _ways(lab: Lab) -> tuple[Figure, Figure]:
    """The part of each descent off the span of the inputs, and its norm."""
    data, _ = dense(lab)
    right = np.linalg.svd(np.asarray(data.inputs), full_matrices=False)[2]
    least, off_span, norms = float(np.linalg.norm(minimum_norm(data).weight)), [], []
    for (name, label), run in _fits(lab).items():
        if name == "gradient flow":
            continue
        moved = run.params[1:] - run.at(0)
        off = np.array([np.linalg.norm(one - right.T @ (right @ one)) for one in moved])
        off_span.append(Line(f"{name} from {label}", run.steps[1:], np.maximum(off, 1e-18)))
        norms.append(Line(f"{name} from {label}", run.steps[1:], run.norm[1:] / least))
    titles = "Combinations of gradients stay in the span of the inputs", "Norm of the weight over the least norm"
    captions = (
        "Adam leaves the span; all others stay in it to rounding.",
        "From 0 descent ends at 1; a start outside the span keeps its part there.",
    )
    return (
        Figure("off-span", titles[0], "step", "off-span part", tuple(off_span), captions[0], "log", "log"),
        Figure("norm", titles[1], "step", "norm / least norm", tuple(norms), captions[1], "log", "log"),
    )


def _sketch(lab: Lab) -> Figure:
    """Figure 9.1 of the notes from data: one sample in the plane, so that the interpolants are a line."""
    data = Regression(np.array([[1.0, 0.5]]), np.array([1.5]))
    starts = {"0": np.zeros(2), "(-0.5, 1)": np.array([-0.5, 1.0])}
    runs = [train(summed(data, Direct()), gradient_descent(0.05), start, steps=200) for start in starts.values()]
    first = np.array([-0.75, 2.25])
    lines = [Line("all interpolants: X^+ y and what is orthogonal to x", first, (1.5 - first) / 0.5)]
    lines += [
        Line(f"descent from {name}", run.params[:, 0], run.params[:, 1], "points")
        for name, run in zip(starts, runs, strict=True)
    ]
    ends = np.stack([minimum_norm(data, start).weight for start in starts.values()])
    lines.append(Line("X^+ y, and the projection of the other start", ends[:, 0], ends[:, 1], "points"))
    caption = "One sample x = (1, 0.5), y = 1.5. Descent moves along x: it ends at the projection of its start on the line, from 0 at X^+ y."
    return Figure(
        "sketch", "The least norm is the projection of 0 (Figure 9.1)", "beta_1", "beta_2", tuple(lines), caption
    )


STUDIES = (
    Study(
        "max-margin",
        "Maximum margin on separable linear data",
        claims=(claims.direction, claims.deficit_constant, claims.margin_constant, claims.logarithmic_time),
        exhibits=(_flows, _directions, _certificates, _verdicts),
        definitions={
            **DEFINITIONS,
            "H(p)": "entropy of the normalised dual weights of the maximum-margin program",
            "smooth margin": "-log L / |w|",
        },
    ),
    Study(
        "min-norm",
        "Least-norm interpolation from zero and non-zero starts (Figure 9.1)",
        claims=(least.nearest_solution,),
        exhibits=(_sketch, _ways, ends),
        definitions={
            **DEFINITIONS,
            "off-span part": "norm of the component of weight - start orthogonal to all inputs; 0 for combinations of gradients",
            "projection (of a start)": "the weight nearest to the start among those that fit all targets: what the theorem says is selected",
            "heavy ball, Adam": f"momentum 0.9 of the same step size; Adam with step size {ADAM['step']:g}, epsilon {ADAM['eps']:g}; both, and descent, for {_STEPS} steps",
        },
    ),
)
