"""How attention regression is told: its prediction as text, and the panel of its runs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...exhibits import Figure, Finding, Line, Table
from ...papers.attention_regression.advice import Advice, Floor, finite
from ...papers.attention_regression.setting.context_bias import loss_bias
from ...papers.attention_regression.setting.context_sums import context_sums
from ...papers.attention_regression.setting.sample import GAUGE, AttentionSample
from ...papers.attention_regression.theorems import GOEL
from ...papers.attention_regression.training.rules import Rule
from ...papers.attention_regression.training.run import AttentionRun
from ...theory.base import Hypothesis
from ...theory.describe import hypothesis_lines, number
from ...training.status import Status
from ...verdict import Verdict
from ..panel import Panel, drawn_elsewhere, hypotheses
from .run import VERDICT

_SHOWN = 8  # rows and columns of a matrix that fit a terminal
_WORDS = {
    "empirical loss": "mean squared error of attention over the sample, each query among its own keys",
    "gradient": "Frobenius norm of the gradient of the loss in whitened coordinates",
    "v/n + b_2/n^2": "the excess that n samples allow",
    "v/n + b_2/B^2": "the same for batches of size B that attend within themselves",
    "gauge": GAUGE,
}


@dataclass(frozen=True, eq=False)
class AttentionCase:
    """A run on a sample with what was made of it: hypotheses, advice, the floor it was held against, and its last numbers."""

    run: AttentionRun
    rule: Rule
    sample: AttentionSample
    verdict: Verdict
    hypotheses: tuple[Hypothesis, ...]
    advice: Advice
    floor: Floor
    warnings: tuple[str, ...]
    made: Mapping[str, str]

    @property
    def finding(self) -> Finding:
        statement = f"Training settles at an excess of about {self.floor.law}."
        return Finding(statement, self.verdict, f"derived here, for {GOEL}")

    @cached_property
    def numbers(self) -> dict[str, str | float | None]:
        run, excess = self.run, float(self.run.excess[-1])
        return {
            "status": run.status.name,
            "message": _message(run, self.rule),
            "steps": int(run.steps[-1]),
            "safe_step": run.safe_step,
            "step_used": self.rule.words(run.problem, float(run.step_factor[-1])),
            "loss": float(run.loss[-1]),
            "gradient_norm": float(run.gradient_norm[-1]),
            "excess": None if np.isnan(excess) else excess,
            **_left_out(self.sample, run),
            "predicted_excess": self.floor.value,
            "predicted_law": self.floor.law,
        }


def _message(run: AttentionRun, rule: Rule) -> str:
    """How a run ended, and what to do where it was lost."""
    if run.status is Status.out_of_steps:
        return run.status.message
    if run.status is Status.step_failed:
        return "No step, however short, lowered the objective of the sample; the last layer is kept. Usual cause: a gradient that is not finite."
    other = "--step-size adaptive, which tries every step before it is kept" if rule.structured else "no --optimiser"
    return (
        "The next step would have left every bounded region, so it was not taken; the last finite layer is kept. "
        "Steps from the sizes bound the curvature of the population: minibatches, heavy tails and few samples curve more. "
        f"Fix: {other}."
    )


def _left_out(sample: AttentionSample, run: AttentionRun) -> dict[str, float | None]:
    """Loss of queries that are not their own keys, less the noise, and what of it is due to a context of n keys (None: infinite)."""
    layer, problem = run.at(), sample.estimated
    sums = context_sums(sample.inputs, sample.targets, layer.value, layer.key_query, include_self=False)
    context = finite(lambda: loss_bias(problem, layer, include_self=False) / sample.size)
    above = float(sums.loss) - problem.outputs * float(problem.noise)
    return {"left_out_loss_above_noise": above, "finite_context_part": context}


def prediction_lines(content: dict) -> Iterator[str]:
    found = content["estimate"]
    sizes = ", ".join(f"{size:.4g}" for size in found["sizes"])
    spread = f"{found['covariance_eigenvalues'][0]:.4g} to {found['covariance_eigenvalues'][-1]:.4g}"
    yield f"theorem    {content['theorem']}: {content['statement']}\n           {content['citation']}"
    yield f"estimate   n = {found['samples']}, d = {found['inputs']}, m = {found['outputs']}; noise {found['noise']:.4g}"
    yield f"           covariance eigenvalues {spread}"
    yield f"           sizes of A Sigma^(1/2): {sizes}; noise level {found['size_noise_level']:.3g}"
    width = f"known to {found['covariance_half_width']:.3g} in operator norm, |Sigma| sqrt(d/n)"
    yield from _matrix("Sigma", width, found["covariance"])
    errors = ", ".join(number(error) for error in found["planted_standard_errors"][:_SHOWN])
    yield from _matrix("A", f"standard errors by column: {errors}", found["planted"])
    yield f"checked    against {content['checked_against']}"
    yield from hypothesis_lines(content["hypotheses"])
    floors = content["floors"]
    yield f"excess     spectral start {floors['start']:.3g}, after training {number(floors['trained'])} (of it bias {number(floors['bias'])})"
    for option in content["geometries"]:
        chosen = "  <- recommended" if option == content["recommended"] else ""
        pace = option["steps_per_decade"]
        text = f"{pace:.3g} steps" if pace >= 1 else "less than one step"
        yield f"train with {option['geometry']}, step {option['step']:.4g} (halved on the sample until the objective falls): {text} per factor 10{chosen}"
    if not content["geometries"]:
        yield f"train with any geometry: A has a kernel (A2 fails), and none is recommended; {content['rate']}"
    scale = content["scale"]
    gain = "from infinite" if scale["gain"] is None else f"{scale['gain']:.3g} times smaller"
    bound = " that keeps A3" if scale["key_norm"] < 0.25 else ""
    yield f"scale      (c U, V/c) with c = {scale['factor']:.4g} has the least bias of the loss{bound}, B_1/n with B_1 = {scale['bias']:.4g} ({gain})"
    yield f"           that is not the scale of least excess: v/n is {number(floors['scaled'])} there, against {number(floors['start'])} at the spectral start"
    yield f"           {scale['how']}"
    for warning in content["warnings"]:
        yield f"warning    {warning}"


def _matrix(name: str, noise: str, rows: list[list[float]]) -> Iterator[str]:
    """A matrix with its noise; large ones are left to `--json` and `--save`."""
    yield f"           {name}, {noise}"
    if max(len(rows), len(rows[0])) > _SHOWN:
        yield f"           {len(rows)} x {len(rows[0])}: in the output of --json, and saved by --save"
        return
    for row in rows:
        yield ("             " + " ".join(f"{entry: .4g}".ljust(11) for entry in row).rstrip())


def _lines(case: AttentionCase, content: dict) -> Iterator[str]:
    yield f"status     {content['status']}: {content['message']}"
    yield f"run        {content['steps']} steps, empirical loss {content['loss']:.8g}, gradient {content['gradient_norm']:.4g}"
    yield f"step       {content['step_used']}"
    yield f"excess     {number(content['excess'])}; predicted {number(content['predicted_excess'])} by {content['predicted_law']}"
    context = content["finite_context_part"]
    yield (
        f"left out   loss of left-out queries minus m sigma^2: {content['left_out_loss_above_noise']:.4g}; not the excess: "
        f"it contains the finite context, {'infinite' if context is None else f'about {context:.3g}'}, and the fit to these samples"
    )


def _draw(case: AttentionCase) -> Iterator[Figure | Table]:
    """Loss, gradient and (where the truth is known) excess along the run; hypotheses and geometries."""
    run = case.run
    yield _figure("loss", "Empirical loss", run.steps, run.loss)
    yield _figure("gradient", "Gradient", run.steps, run.gradient_norm)
    if np.isfinite(run.excess).all():
        yield _figure("excess", "Population excess", run.steps, run.excess, case.floor)
    exact = "Exact where the meaning says so, with estimates in place of the truth elsewhere; a failed one does not stop the prediction."
    yield hypotheses(case.hypotheses, exact)
    columns = ("geometry", "default step", "excess factor per step", "steps per factor 10")
    shown = lambda o: (o.geometry, f"{o.step:.4g}", f"{o.factor:.5g}", f"{o.steps_per_decade:.3g}")
    yield Table("geometries", "Geometries", columns, tuple(map(shown, case.advice.options)), "Near the minima.")


def _figure(name: str, title: str, taken: np.ndarray, values: np.ndarray, floor: Floor | None = None) -> Figure:
    steps = taken + 1.0
    lines = [Line("run", steps, values)]
    if floor is not None and floor.value is not None:
        lines.append(Line(f"predicted, {floor.law}", steps[[0, -1]], np.full(2, floor.value), "prediction"))
    caption = "Along the run; the axis counts from 1, so that the start is on it."
    return Figure(name, title, "step + 1", title.lower(), tuple(lines), caption, "log", "log")


PANELS = (
    Panel(
        lambda case: True,
        lambda case: case.numbers,
        _lines,
        draw=_draw,
        words=lambda case: _WORDS,
    ),
    Panel[AttentionCase](
        lambda case: True,
        lambda case: {"hypotheses": [vars(one) for one in case.hypotheses]},
        lambda case, found: hypothesis_lines(found["hypotheses"]),
        drawn_elsewhere,
    ),
    VERDICT,
    Panel[AttentionCase](
        lambda case: True,
        lambda case: {"warnings": list(case.warnings)},
        lambda case, found: (f"warning    {warning}" for warning in case.warnings),
    ),
)
