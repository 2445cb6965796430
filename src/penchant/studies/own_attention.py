"""The page of the user's own attention regression."""

from typing import Any

import numpy as np

from ..theorems.attention_advice import Advice
from ..theorems.attention_regression import GOEL
from ..training.algorithm1 import AttentionRun
from ..verdict import Verdict
from .base import DEFINITIONS, Figure, Finding, Line, Result, Table

WORDS = {
    **DEFINITIONS,
    "empirical loss": "mean squared error of attention over the sample, each query among its own keys",
    "gradient": "Frobenius norm of the gradient of the loss in whitened coordinates",
    "v/n + b_2/n^2": "the excess that n samples allow",
}


def page(run: AttentionRun, advice: Advice, verdict: Verdict) -> Result:
    """Loss, gradient and (where the truth is known) excess along the run; estimates and hypotheses in tables."""
    figures = [
        _figure("loss", "Empirical loss", run, run.loss),
        _figure("gradient", "Gradient", run, run.gradient_norm),
    ]
    if np.isfinite(run.excess).all():
        figures.append(_figure("excess", "Population excess", run, run.excess))
    sizes = ", ".join(f"{size:.4g}" for size in np.asarray(advice.problem.sizes))
    summary = (
        ("ending", f"{run.status.name}: {run.status.message}"),
        ("sizes of A Sigma^(1/2)", f"{sizes}; noise level {advice.noise_level:.3g}"),
        ("noise variance", f"{float(advice.problem.noise):.4g}"),
        ("predicted excess of the spectral start", f"{advice.floors.start:.4g}"),
        (
            "predicted excess after training",
            "infinite" if advice.floors.trained is None else f"{advice.floors.trained:.4g}",
        ),
        ("best scale c of (c U, V/c)", f"{advice.scale.factor:.4g}"),
        *(("warning", warning) for warning in advice.warnings),
    )
    holds = {True: "holds", False: "fails", None: "undecided"}
    hypotheses = tuple((h.name, holds[h.holds], f"{h.slack:.4g}", h.offender, h.detail) for h in advice.hypotheses)
    options = tuple(
        (o.geometry, f"{o.step:.4g}", f"{o.factor:.5g}", f"{o.steps_per_decade:.3g}") for o in advice.options
    )
    tables = (
        Table("summary", "Estimates and outcome", ("what", "value"), summary, "From the sample alone."),
        Table(
            "hypotheses",
            "Hypotheses",
            ("name", "status", "slack", "worst offender", "meaning"),
            hypotheses,
            "With estimates in place of the truth.",
        ),
        Table(
            "geometries",
            "Geometries",
            ("geometry", "default step", "excess factor per step", "steps per factor 10"),
            options,
            "Near the minima.",
        ),
    )
    finding = Finding(
        "Training on n samples settles at an excess of about v/n + b_2/n^2.", verdict, f"derived here, for {GOEL}"
    )
    return Result((finding,), tuple(figures), tables, {}, WORDS)


def _figure(name: str, title: str, run: AttentionRun, values: Any) -> Figure:
    positive = np.asarray(run.steps) > 0
    line = Line("run", np.asarray(run.steps)[positive], np.asarray(values)[positive])
    return Figure(name, title, "step", title.lower(), (line,), "Along the run.", "log", "log")
