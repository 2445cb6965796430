"""Covariates that are not normal: what attention cannot fit as a function of excess kurtosis, and what preconditioning is still worth."""

from collections.abc import Callable

import numpy as np

from ....diagnostics.paired import paired
from ....exhibits import DEFINITIONS, Figure, Finding, Line, Result, Table
from ....lab import Lab, Study
from ....training.recorders import At
from ....verdict import all_of, at_least, at_most, close
from ..context import scaling_problem
from ..covariates import (
    NARROW,
    PLAIN,
    constants,
    excess_of_minimum,
    fitted_excess,
    learning,
    steps_to_learn,
)
from ..setting.covariates import AbstractCoordinate, Covariates, NormalMixture, ThreePoint, Uniform
from ..setting.geometry import GEOMETRIES
from ..setting.sample import AttentionSample, spectral_layer
from ..theorems import GOEL
from ..training.algorithm1 import train_attention
from ..training.preconditioned import PreconditionedDescent
from ..training.sources import FullSample

OURS = f"derived here, for {GOEL}"
KURTOSES = (-2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 7.0)
COMPARED = (-2.0, 0.0, 3.0, 7.0)
WORDS = {
    **DEFINITIONS,
    "excess": "population loss minus m sigma^2, which no layer reaches unless covariates are normal",
    "excess kurtosis": "E z^4 - 3 of one coordinate; 0 for the normal law, at least -2",
    "three values": "0 with some probability, else plus or minus one value: any excess kurtosis from -2 on; sums over all covariates are exact",
    "before, after fitting": "at the minimum for normal covariates, and after 200 two-sided steps with the population gradient of the law",
    "two_sided, left, euclidean": "gradient preconditioned by the covariance on both sides, on one side, not at all",
}


def _named() -> dict[str, AbstractCoordinate]:
    found: dict[str, AbstractCoordinate] = {f"three values, {k:g}": ThreePoint(k) for k in KURTOSES}
    return found | {
        "uniform": Uniform(),
        "two normal laws, 0.5": NormalMixture(0.5),
        "two normal laws, 2": NormalMixture(2.0),
    }


def _unfitted(lab: Lab, progress: Callable[[str], None]) -> tuple[Figure, Table, list[Finding]]:
    first, second = constants(lab)
    rows, found = [], {}
    for name, law in _named().items():
        progress(f"population of {name}")
        found[name] = (law.kurtosis, excess_of_minimum(lab, law), fitted_excess(lab, law))
        square = law.kurtosis**2
        numbers = (found[name][1], square * first, found[name][2], square * second)
        rows.append((name, f"{law.kurtosis:g}", *(f"{value:.3g}" for value in numbers)))
    three = np.array([found[f"three values, {k:g}"] for k in KURTOSES])
    dense = np.array([k for k in np.linspace(-2, 7, 91) if abs(k) > 0.05])
    lines = (
        Line("before fitting", three[:, 0], three[:, 1], "points"),
        Line("after fitting", three[:, 0], three[:, 2], "points"),
        Line("before, small kurtosis", dense, first * dense**2, "prediction"),
        Line("after, small kurtosis", dense, second * dense**2, "prediction"),
    )
    caption = "Sizes (.05, .04, .03), m = 4. Predictions are the square of the kurtosis times a constant, for laws whose higher cumulants are smaller still."
    figure = Figure(
        "kurtosis", "What attention cannot fit", "excess kurtosis", "excess", lines, caption, "linear", "log"
    )
    columns = ("law", "excess kurtosis", "excess before fitting", "kurtosis^2 c", "after fitting", "kurtosis^2 c'")
    zero = float(np.sum(np.asarray(scaling_problem(lab).sizes) ** 2))
    table = Table(
        "laws", "Excess by law of the covariates", columns, tuple(rows), f"{caption} The zero predictor has {zero:.3g}."
    )
    law = NormalMixture(NARROW)
    small = all_of(
        close(excess_of_minimum(lab, law), NARROW**2 * first, 0.02, f"before fitting, kurtosis {NARROW:g}"),
        close(fitted_excess(lab, law), NARROW**2 * second, 0.02, f"after fitting, kurtosis {NARROW:g}"),
    )
    worst = max(after / zero for _, _, after in found.values())
    findings = [
        Finding("For small kurtosis the excess is its square times the predicted constants.", small, OURS),
        Finding(
            "Even at kurtosis 7 a fitted layer leaves less than 2 % of what the zero predictor does.",
            at_most(worst, 0.02, "largest excess after fitting over that of the zero predictor"),
            OURS,
        ),
        Finding(
            "Fitting helps: part of the error is linear in the covariates.",
            at_most(
                max(after / before for k, before, after in found.values() if k), 0.5, "largest excess after over before"
            ),
            OURS,
        ),
    ]
    return figure, table, findings


def _worth(lab: Lab, progress: Callable[[str], None]) -> tuple[Figure, Table, Finding]:
    rows, checks = [], []
    for kurtosis in COMPARED:
        progress(f"geometries, kurtosis {kurtosis:g}")
        counts = {
            name: steps_to_learn(lab, kurtosis, name, 200 if name == "two_sided" else PLAIN) for name in GEOMETRIES
        }
        rows.append((f"{kurtosis:g}", *(str(count) if count < PLAIN else f"> {PLAIN}" for count in counts.values())))
        text = f"steps of plain descent over two-sided, kurtosis {kurtosis:g}"
        checks.append(at_least(counts["euclidean"] / counts["two_sided"], 100.0, text))
    caption = "Three values, condition number 100, default step of each geometry, from distance r_0."
    lines = []
    for kurtosis in (0.0, 7.0):
        for name in GEOMETRIES:
            run = learning(lab, kurtosis, name, 200 if name == "two_sided" else PLAIN)
            lines.append(Line(f"{name}, kurtosis {kurtosis:g}", run.steps[1:], run.loss[1:]))
    figure = Figure(
        "geometries", "Learning with other covariates", "step", "excess", tuple(lines), caption, "log", "log"
    )
    title = "First step with 99 % learned of what two-sided training learns"
    table = Table("steps", title, ("excess kurtosis", *GEOMETRIES), tuple(rows), caption)
    text = "Two-sided preconditioning still learns at least 100 times sooner than plain descent."
    return figure, table, Finding(text, all_of(*checks), OURS)


def _on_samples(
    lab: Lab, seed: int, sets: int, progress: Callable[[str], None], count: int = 800
) -> tuple[Table, Finding]:
    """Mean excess for the law itself, of the spectral start and after 40 steps on samples of it."""
    problem, rows, gains = scaling_problem(lab, 1e-3), [], {}
    for kurtosis in COMPARED:
        progress(f"{sets} samples, kurtosis {kurtosis:g}")
        law, rng = ThreePoint(kurtosis), np.random.default_rng([seed, 17])
        population, found = Covariates(law, problem.inputs), []
        for _ in range(sets):
            inputs = law.draw(rng, (count, problem.inputs)) @ np.asarray(problem.root)
            noise = np.sqrt(float(problem.noise)) * rng.standard_normal((count, problem.outputs))
            sample = AttentionSample(inputs, inputs @ np.asarray(problem.planted).T + noise)
            start, rule = spectral_layer(sample.estimated), PreconditionedDescent()
            run = train_attention(FullSample(sample), rule, start, steps=40, recorder=At(()))
            found.append([float(population.excess(problem, run.at(k))) for k in (0, -1)])
        mean, error = np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / np.sqrt(sets)
        gains[kurtosis] = paired(*np.log(found).T)
        ends = f"{gains[kurtosis].mean:.2f} [{gains[kurtosis].low:.2f}, {gains[kurtosis].high:.2f}]"
        rows.append((f"{kurtosis:g}", *(f"{a:.3g} ± {b:.1g}" for a, b in zip(mean, error, strict=True)), ends))
    columns = ("excess kurtosis", "spectral start", "after 40 steps", "change of log excess, 95 %")
    caption = f"Three values, noise variance 1e-3, {sets} data sets."
    table = Table("samples", f"Population excess from {count} samples", columns, tuple(rows), caption)
    text = "At kurtosis 7 training on samples at least halves the excess of the spectral start."
    bound = at_most(
        gains[COMPARED[-1]].high, -np.log(2.0), "upper end of the paired 95 % interval of the change of log excess"
    )
    return table, Finding(text, bound, OURS)


def run(lab: Lab) -> Result:
    """Populations, then geometries, then samples."""
    seed, full, progress = lab.seed, lab.full, lab.progress
    kurtosis, laws, findings = _unfitted(lab, progress)
    geometries, steps, worth = _worth(lab, progress)
    samples, gain = _on_samples(lab, seed, 40 if full else 6, progress)
    return Result((*findings, worth, gain), (kurtosis, geometries), (laws, steps, samples), {}, WORDS)


STUDIES = (Study("attention-covariates", "Attention regression with covariates that are not normal", run),)
