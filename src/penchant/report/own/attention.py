"""The page of the user's own attention regression."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import numpy as np

from ...exhibits import DEFINITIONS, Figure, Finding, Line, Result, Table
from ...papers.attention_regression.advice import Advice
from ...papers.attention_regression.floor import Floor
from ...papers.attention_regression.setting.sample import GAUGE
from ...papers.attention_regression.theorems import GOEL
from ...papers.attention_regression.training.algorithm1 import AttentionRun
from ...theory.base import Hypothesis
from ...verdict import Verdict
from .parts import hypotheses

WORDS = {
    **DEFINITIONS,
    "empirical loss": "mean squared error of attention over the sample, each query among its own keys",
    "gradient": "Frobenius norm of the gradient of the loss in whitened coordinates",
    "v/n + b_2/n^2": "the excess that n samples allow",
    "v/n + b_2/B^2": "the same for batches of size B that attend within themselves",
    "gauge": GAUGE,
}


OUTCOME = {
    "loss": "empirical loss at the end",
    "gradient_norm": "gradient at the end",
    "excess": "excess at the end",
    "left_out_loss_above_noise": "loss of left-out queries minus m sigma^2 (not the excess)",
    "finite_context_part": "of it due to a context of n keys, B_1/n",
}


class Judged(eqx.Module):
    """What was made of a run: hypotheses, verdict, the floor it was held against, and its last numbers by the names in `OUTCOME`."""

    hypotheses: tuple[Hypothesis, ...]
    verdict: Verdict
    floor: Floor
    outcome: dict[str, float | None]

    def rows(self) -> tuple[tuple[str, str], ...]:
        show = lambda value: "infinite or unknown" if value is None else f"{value:.4g}"
        return tuple((label, show(self.outcome[name])) for name, label in OUTCOME.items())


def page(run: AttentionRun, advice: Advice, judged: Judged, settings: Mapping[str, object]) -> Result:
    """Loss, gradient and (where the truth is known) excess along the run; its settings, estimates and hypotheses in tables."""
    floor = judged.floor
    figures = [
        _figure("loss", "Empirical loss", run, run.loss),
        _figure("gradient", "Gradient", run, run.gradient_norm),
    ]
    if np.isfinite(run.excess).all():
        figures.append(_figure("excess", "Population excess", run, run.excess, floor))
    sizes = ", ".join(f"{size:.4g}" for size in np.asarray(advice.problem.sizes))
    summary = (
        ("ending", f"{run.status.name}: {run.status.message}"),
        *judged.rows(),
        ("sizes of A Sigma^(1/2)", f"{sizes}; noise level {advice.noise_level:.3g}"),
        ("noise variance", f"{float(advice.problem.noise):.4g}"),
        ("predicted excess of the spectral start", f"{advice.floors.start:.4g}"),
        (
            f"predicted excess after training ({floor.law})",
            "infinite or unknown" if floor.value is None else f"{floor.value:.4g}",
        ),
        ("best scale c of (c U, V/c)", f"{advice.scale.factor:.4g}"),
        *(("warning", warning) for warning in advice.warnings),
    )
    options = tuple(
        (o.geometry, f"{o.step:.4g}", f"{o.factor:.5g}", f"{o.steps_per_decade:.3g}") for o in advice.options
    )
    tables = (
        Table(
            "run",
            "Settings of the run",
            ("option", "value"),
            tuple((name, str(value)) for name, value in settings.items()),
            "As given on the command line, or its default.",
        ),
        Table(
            "summary",
            "Estimates and outcome",
            ("what", "value"),
            summary,
            "The excess and its prediction at the spectral start use the truth where the file has it; all else is from the sample.",
        ),
        hypotheses(
            judged.hypotheses,
            "Exact where the meaning says so, with estimates in place of the truth elsewhere; a failed one does not stop the prediction.",
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
        f"Training settles at an excess of about {floor.law}.", judged.verdict, f"derived here, for {GOEL}"
    )
    return Result((finding,), tuple(figures), tables, {}, WORDS)


def _figure(name: str, title: str, run: AttentionRun, values: Any, floor: Floor | None = None) -> Figure:
    steps = np.asarray(run.steps) + 1.0
    lines = [Line("run", steps, np.asarray(values))]
    if floor is not None and floor.value is not None:
        lines.append(Line(f"predicted, {floor.law}", steps[[0, -1]], np.full(2, floor.value), "prediction"))
    caption = "Along the run; the axis counts from 1, so that the start is on it."
    return Figure(name, title, "step + 1", title.lower(), tuple(lines), caption, "log", "log")
