"""The page of the user's own data when attention and decoder are trained together."""

import numpy as np

from ...diagnostics.joint import joint_misalignments
from ...exhibits import DEFINITIONS, Figure, Finding, Line, Result, Table
from ...theory.base import Prediction
from ...theory.joint_limits import JointLimit
from ...training.joint import JointTrajectory
from ...verdict import Verdict
from .parts import hypotheses

_PROGRAMS = {
    "attention": "shortest W that selects the reached tokens",
    "offset": "W-program in which every sample is helped by its decoder margin",
    "support_only": "W-program of the samples that support the decoder",
}


_WORDS = {
    "W, u": "attention matrix and decoder: the output is u' X' softmax(X W q) times the label, for tokens X and query q",
    "log L": "natural logarithm of the joint loss, whose infimum is 0",
    "predicted direction": "W_mm, the shortest W that selects the token named `optimal` in every sample by a margin of 1",
    "decoder program": "shortest u that classifies the reached tokens with margin 1; samples with a positive multiplier support it",
    **{f"{name} program": meaning for name, meaning in _PROGRAMS.items()},
}


def page(prediction: Prediction | None, run: JointTrajectory, verdict: Verdict, limit: JointLimit) -> Result:
    """Everything the report shows about one joint run."""
    statement = "No prediction." if prediction is None else prediction.theorem.statement
    finding = Finding(statement, verdict, "" if prediction is None else prediction.theorem.citation)
    tables = (_summary(prediction, run, limit), *(() if prediction is None else (hypotheses(prediction.hypotheses),)))
    return Result((finding,), _figures(prediction, run, limit), tables, {"run": run}, DEFINITIONS | _WORDS)


def _summary(prediction: Prediction | None, run: JointTrajectory, limit: JointLimit) -> Table:
    rows = [
        ("ending", f"{run.status.name}: {run.status.message}"),
        ("log L, |W|, |u|", f"{run.log_loss[-1]:.6g}, {run.norm_W[-1]:.6g}, {run.norm_u[-1]:.6g}"),
        ("selection", f"{limit.kind}, most attended tokens {list(limit.tokens)}"),
        ("u to the decoder program, 1 - corr", f"{limit.decoder:.4g}"),
        *((f"W to the {name} program, 1 - corr", f"{getattr(limit, name):.4g}") for name in _PROGRAMS),
    ]
    if prediction is not None:
        rows.insert(0, ("predicted rate", prediction.rate))
    caption = (
        "Programs of the reached tokens: " + "; ".join(f"{name}: {what}" for name, what in _PROGRAMS.items()) + "."
    )
    return Table("summary", "Where the run is", ("what", "value"), tuple(rows), caption)


def _figures(prediction: Prediction | None, run: JointTrajectory, limit: JointLimit) -> tuple[Figure, ...]:
    steps, moved = run.steps, run.norm_W > 0
    lines = []
    if prediction is not None:
        to_optimal = joint_misalignments(run, prediction.reference.weight)[moved]
        lines.append(Line("W to the predicted direction", steps[moved], to_optimal))
    if limit.references is not None:
        for name in _PROGRAMS:
            distance = joint_misalignments(run, getattr(limit.references, name).weight)[moved]
            lines.append(Line(f"W to the {name} program", steps[moved], distance, "prediction"))
        turned = run.norm_u > 0
        decoder = joint_misalignments(run, limit.references.decoder.weight, "u")[turned]
        lines.append(Line("u to the decoder program", steps[turned], decoder))
    norms = (Line("|W|", steps[1:], run.norm_W[1:]), Line("|u|", steps[1:], run.norm_u[1:]))
    loss = (Line("run", np.asarray(steps[1:]), run.log_loss[1:]),)
    figures = [
        Figure("loss", "Joint loss", "step", "log L", loss, "In logarithms, exact after underflow.", "log"),
        Figure("norms", "Norms of both blocks", "step", "norm", norms, "Frobenius and l2.", "log", "log"),
    ]
    if lines:
        caption = "Programs of the tokens that were reached."
        figures.insert(0, Figure("direction", "Directions", "step", "1 - corr", tuple(lines), caption, "log", "log"))
    return tuple(figures)
