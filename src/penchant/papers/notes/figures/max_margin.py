"""Maximum margin on separable linear data: the 1/log t rate with its constants, far past underflow."""

import numpy as np

from ....diagnostics.direction import misalignments
from ....diagnostics.margin import normalised_margins, smooth_margins
from ....exhibits import DEFINITIONS, Figure, Finding, Line, Result
from ....flow.flow import GradientFlow
from ....lab import Lab, Study
from ....optimisers.base import gradient_descent, normalised_descent, polyak
from ....references.bracket import bracket
from ....references.euclidean_margin import max_margin
from ....settings.base import Setting
from ....settings.generators import separable
from ....settings.losses import Exponential, Logistic
from ....settings.parametrisations import Direct
from ....theory.judge import judge
from ....training.events import LogExcessBelow
from ....training.train import train
from ..max_margin import entropy


def run(lab: Lab) -> Result:
    seed, full, progress = lab.seed, lab.full, lab.progress
    data = separable(n=200 if full else 30, d=20 if full else 4, seed=5 + seed)
    setting = Setting(data, Direct(), Exponential(), "sum")
    rules = {
        "gradient flow": GradientFlow(),
        "gradient descent": gradient_descent(0.005),
        "normalised descent": normalised_descent(0.1),
        "Polyak": polyak(),
    }
    runs, findings, reference = {}, [], max_margin(data)
    for name, rule in rules.items():
        progress(f"training: {name}")
        flow = isinstance(rule, GradientFlow)
        runs[name] = (
            train(setting, rule, until=LogExcessBelow(-1e5))
            if flow
            else train(setting, rule, steps=100_000 if full else 10_000)
        )
        prediction = lab.predict(setting, rule)
        findings.append(
            Finding(
                f"{name}: {prediction.theorem.statement}", judge(prediction, runs[name]), prediction.theorem.citation
            )
        )
    flow = runs["gradient flow"]
    progress("training: gradient flow on the logistic loss")
    logistic = Setting(data, Direct(), Logistic(), "sum")
    twin = train(logistic, GradientFlow(), until=LogExcessBelow(-1e5))
    prediction = lab.predict(logistic, GradientFlow())
    findings.append(
        Finding(
            f"gradient flow, logistic loss: {prediction.theorem.statement}",
            judge(prediction, twin),
            prediction.theorem.citation,
        )
    )
    mean, top = entropy(reference)
    depth = -flow.log_excess[1:]
    deficit = lambda margins: (reference.margin - margins(flow)[1:]) * flow.norm[1:]
    deficits = Figure(
        "deficit",
        "Margin deficit times norm tends to an entropy",
        "-log L",
        "(best margin - margin) |w|",
        (
            Line("smooth margin", depth, deficit(smooth_margins)),
            Line("margin", depth, deficit(normalised_margins)),
            Line(
                "smooth margin, logistic loss",
                -twin.log_excess[1:],
                (reference.margin - smooth_margins(twin)[1:]) * twin.norm[1:],
            ),
            Line("H(p)", depth, np.full(len(depth), mean), "prediction"),
            Line("H(p) + log max p", depth, np.full(len(depth), mean + np.log(top)), "prediction"),
        ),
        "Along the gradient flow, until the loss is e^-100000. Dashed: the predicted limits.",
        x_scale="log",
    )
    rate = Figure(
        "rate",
        "The 1/log t rate with its constant",
        "log t",
        "best margin - smooth margin",
        (
            Line("gradient flow", flow.log_time[1:], reference.margin - smooth_margins(flow)[1:]),
            Line(
                "H(p) margin / log t", flow.log_time[-40:], mean * reference.margin / flow.log_time[-40:], "prediction"
            ),
        ),
        "Deficit of the smooth margin against physical time; dashed, the predicted tail.",
        x_scale="log",
        y_scale="log",
    )
    turn = Figure(
        "direction",
        "Direction against physical time",
        "log t",
        "1 - corr to the maximum margin",
        tuple(Line(name, run.log_time[1:], misalignments(run, reference)[1:]) for name, run in runs.items()),
        "All rules follow nearly the same path; they differ in how far along it a step takes them. t is the sum of the multipliers of the loss gradient.",
        x_scale="log",
        y_scale="log",
    )
    gaps = Figure(
        "certificate",
        "Each run certifies itself",
        "step",
        "certified gap",
        tuple(
            Line(
                name,
                run.steps[1:],
                np.array([bracket(data, run.weight(k), run.dual[k]).gap for k in range(1, len(run))]),
            )
            for name, run in runs.items()
            if name != "gradient flow"
        ),
        "Relative width of the bracket on the best margin, from the weights and the multipliers the run accumulated; no solver is involved.",
        x_scale="log",
        y_scale="log",
    )
    definitions = {
        **DEFINITIONS,
        "H(p)": "entropy of the normalised dual weights of the maximum-margin program",
        "smooth margin": "-log L / |w|",
    }
    return Result(
        tuple(findings),
        (deficits, rate, turn, gaps),
        (),
        {name.replace(" ", "-"): run for name, run in runs.items()},
        definitions,
    )


STUDIES = (Study("max-margin", "Maximum margin on separable linear data", run),)
