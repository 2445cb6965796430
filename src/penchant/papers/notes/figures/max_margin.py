"""Maximum margin on separable linear data: the 1/log t rate with its constants, far past underflow. And least-norm interpolation, in the plane."""

import numpy as np

from ....diagnostics.direction import misalignments, normalised_margins, smooth_margins
from ....exhibits import DEFINITIONS, Figure, Line
from ....lab import Lab, Study, recipe
from ....optimisers.base import gradient_descent, normalised_descent, polyak
from ....references.interpolation import minimum_norm
from ....settings.parametrisations import Direct
from ....settings.regression import Regression
from ....training.train import train
from ....training.trajectory import Trajectory
from .. import max_margin as claims
from .. import min_norm as least
from ..evidence import summed
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
        exhibits=(_flows, _directions),
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
        exhibits=(_sketch,),
        definitions={
            **DEFINITIONS,
            "projection (of a start)": "the weight nearest to the start among those that fit all targets: what the theorem says is selected",
        },
    ),
)
