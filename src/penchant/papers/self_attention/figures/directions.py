"""Figures 2 and 5 of the self-attention paper: four optimisers on token selection with a fixed decoder."""

from functools import partial

import numpy as np

from ....diagnostics.direction import misalignments
from ....diagnostics.rates import log_log_slope, rate
from ....diagnostics.softmax import log_attention_loss, optimal_attention
from ....exhibits import DEFINITIONS, Figure, Finding, Line, Result, Shown, Table
from ....flow.flow import GradientFlow
from ....lab import Lab, Study
from ....optimisers.base import Accelerated, gradient_descent, momentum, normalised_descent, polyak
from ....references.base import Solution
from ....references.bracket import bracket
from ....references.euclidean_margin import max_margin
from ....settings.base import Setting
from ....settings.generators import signal_tokens
from ....settings.losses import Exponential
from ....settings.parametrisations import Gram
from ....theory.judge import judge
from ....training.events import MarginAbove
from ....training.recorders import LogSpaced
from ....training.train import train
from ....training.trajectory import Trajectory
from ..evidence import naive_gradient_error, outside_support, sharp_constant

_STEPS = 10_000
_SHOWN = (10, 100, 1000, 10_000)


def _preset(name: str, seed: int, antipodal: bool) -> tuple[Setting, float]:
    if name == "E":
        data = signal_tokens(seed=seed, antipodal=antipodal)
        return Setting(data, Gram(data), Exponential()), 0.05
    data = signal_tokens(20, 5, 50, 1.0, 0.1, seed)
    return Setting(data, Gram(data), Exponential()), 0.1


def _rules(settings: list[Setting], length: float) -> dict:
    largest = np.array([float(np.diag(np.asarray(one.parametrisation.matrix)).max()) for one in settings])
    return {
        "GD": gradient_descent(1.0),
        "NGD": normalised_descent(length),
        "NGD, momentum 0.9": momentum(length),
        "Polyak": polyak(),
        "Polyak, cap 100": polyak(cap=100.0),
        "NGD, cap 100": normalised_descent(length, 100.0),
        "dual acceleration": Accelerated(0.5 / largest),
    }


def _row(name: str, runs: list[Trajectory], references: list[Solution]) -> tuple:
    """Values of the first run; exponents of all of them."""
    run, distance = runs[0], misalignments(runs[0], references[0])
    shown = [float(np.exp(np.interp(np.log(step), np.log(run.steps[1:]), np.log(distance[1:])))) for step in _SHOWN]
    pairs = zip(runs, references, strict=True)
    slope = rate([log_log_slope(one.steps, misalignments(one, found), (1e3, 1e4)) for one, found in pairs])
    growth = rate([log_log_slope(one.steps, one.norm, (1e3, 1e4)) for one in runs])
    return (
        name,
        *(Shown(value, ".3e") for value in shown),
        growth,
        slope,
        Shown(run.norm[-1], ".6g"),
        Shown(run.log_excess[-1], ".6g"),
    )


def run(lab: Lab, antipodal: bool = False) -> Result:
    seed, full, progress = lab.seed, lab.full, lab.progress
    figures, tables, findings, kept = [], [], [], {}
    seeds = range(seed, seed + (10 if full else 4))
    for preset in ("E",) if antipodal else ("E", "H"):
        sets, (length, *_) = zip(*(_preset(preset, one, antipodal) for one in seeds), strict=True)
        setting, references = sets[0], [max_margin(one.data) for one in sets]
        runs, predictions, rows = {}, {}, []
        for name, rule in _rules(list(sets), length).items():
            progress(f"preset {preset}: {name}, {len(seeds)} data sets")
            every = train(list(sets), rule, steps=_STEPS, recorder=LogSpaced(121))
            rows.append(_row(name, every, references))
            runs[name] = every[0]
            predictions[name] = lab.predict(setting, rule)
            verdict = judge(predictions[name], runs[name])
            findings.append(
                Finding(
                    f"Preset {preset}, {name}: {predictions[name].theorem.statement}",
                    verdict,
                    predictions[name].theorem.citation,
                )
            )
        reference = references[0]
        progress(f"preset {preset}: gradient flow to margin 1e6")
        runs["gradient flow"] = train(setting, GradientFlow(), until=MarginAbove(1e6))
        kept |= {f"{preset}-{name}".replace(" ", "-").replace(",", ""): run for name, run in runs.items()}
        figures += _figures(preset, setting, runs, reference)
        tables.append(_table(preset, rows, references[0], seeds))
    if not antipodal:
        progress("why logarithms: the plain gradient against 60-digit arithmetic")
        figures.insert(0, naive_figure(lab, seed))
    definitions = {
        **DEFINITIONS,
        "s_opt": "attention (softmax weight) on the optimal token",
        "preset E": "n=10, T=6, d=300: nearly orthogonal tokens",
        "preset H": "n=20, T=5, d=50: hard",
    }
    return Result(tuple(findings), tuple(figures), tuple(tables), kept if full else {}, definitions)


def _table(preset: str, rows: list[tuple], reference: Solution, seeds: range) -> Table:
    columns = (
        "rule",
        *(f"1 - corr, t={step}" for step in _SHOWN),
        "norm exponent",
        "1 - corr exponent",
        "norm",
        "log excess",
    )
    caption = (
        f"Seed {seeds[0]}, |W_mm| = {reference.value:.10f}. Exponents: least squares of logarithms over steps 1e3 to 1e4, "
        f"mean and 95 % Student interval over seeds {seeds[0]}-{seeds[-1]}."
    )
    return Table(f"table-{preset}", f"Preset {preset}: directions, exponents and norms", columns, tuple(rows), caption)


def _figures(preset: str, setting: Setting, runs: dict, reference: Solution) -> list[Figure]:
    discrete = {name: run for name, run in runs.items() if name != "gradient flow"}
    curve = lambda series: tuple(Line(name, run.steps[1:], series(run)[1:]) for name, run in discrete.items())
    distance = lambda run: misalignments(run, reference)
    direction = Figure(
        f"direction-{preset}",
        f"Preset {preset}: direction of W",
        "step",
        "1 - corr to W_mm",
        curve(distance),
        "With a cap, the late curves are those of gradient descent.",
        "log",
        "log",
    )
    loss = Figure(
        f"loss-{preset}",
        f"Preset {preset}: log excess",
        "step",
        "-log(L - L*)",
        curve(lambda run: -run.log_excess),
        "Everything below -36 is invisible to ordinary code.",
        "log",
        "log",
    )
    infimum = setting.infimum().value
    value = Figure(
        f"value-{preset}",
        f"Preset {preset}: the loss itself",
        "step",
        "L",
        curve(lambda run: infimum + np.exp(run.log_excess)),
        f"All curves end at the infimum {infimum:.6g}: what they still differ by is in the log excess.",
        "log",
        "log",
    )
    norm = Figure(
        f"norm-{preset}",
        f"Preset {preset}: norm of W",
        "step",
        "norm",
        curve(lambda run: run.norm),
        "Like t for normalised and Polyak steps, t^2 with dual acceleration, log t for gradient descent and under a cap.",
        "log",
        "log",
    )
    mean = Figure(
        f"optimal-attention-{preset}",
        f"Preset {preset}: attention on the optimal token",
        "step",
        "s_opt, mean over samples",
        curve(lambda run: optimal_attention(run).mean(axis=1)),
        "From 1/T to 1.",
        "log",
    )
    share = Figure(
        f"attention-{preset}",
        f"Preset {preset}: attention lost on non-optimal tokens",
        "step",
        "-log(1 - s_opt), mean over samples",
        curve(lambda run: -log_attention_loss(run).mean(axis=1)),
        "Linear in t for normalised descent: attention saturates exponentially fast.",
        "log",
        "log",
    )
    constant = sharp_constant(setting, reference, float(outside_support(runs["gradient flow"], reference)[-1]))
    scaled = tuple(Line(name, run.norm[1:], (run.norm**2 * distance(run))[1:]) for name, run in runs.items())
    grid = np.geomspace(1.0, float(runs["gradient flow"].norm[-1]), 20)
    collapse = Figure(
        f"collapse-{preset}",
        f"Preset {preset}: every rule ends with the same constant",
        "norm",
        "norm^2 (1 - corr)",
        (*scaled, Line("predicted", grid, np.full(20, constant), "prediction")),
        "Compared at equal norm, descent, momentum, Polyak and the flow (to margin 1e6) approach one constant. It is predicted from the "
        "support pairs; what the flow leaves outside their span is added where some pair does not support.",
        "log",
        "log",
    )
    gap = lambda run: np.array(
        [bracket(setting.data, run.weight(k), run.dual[k]).gap if k else np.nan for k in range(len(run))]
    )
    picked = {name: run for name, run in discrete.items() if name in ("GD", "NGD", "Polyak", "dual acceleration")}
    certificate = Figure(
        f"certificate-{preset}",
        f"Preset {preset}: each run certifies itself",
        "step",
        "certified gap",
        tuple(Line(name, run.steps[1:], gap(run)[1:]) for name, run in picked.items()),
        "Relative width of the bracket on |W_mm| from the weights and accumulated multipliers of the run alone.",
        "log",
        "log",
    )
    return [value, loss, norm, mean, direction, share, collapse, certificate]


def naive_figure(lab: Lab, seed: int) -> Figure:
    """Direction error of grad(L) in plain float64 and of the log-space slope, against 60-digit arithmetic."""
    setting, _ = _preset("H", seed, False)
    reference = lab.predict(setting, normalised_descent(0.1)).reference
    scales = np.array([1, 5, 10, 15, 20, 25, 30, 33, 36, 38, 40, 60, 100, 400, 1e3, 1e4, 1e5, 1e6], float)
    errors = np.array([naive_gradient_error(setting, reference, scale) for scale in scales])
    return Figure(
        "why-logarithms",
        "Why penchant exists: the plain gradient dies at margin 36",
        "margin",
        "error of the gradient direction",
        (Line("grad(L) in float64", scales, errors[:, 0]), Line("penchant", scales, np.maximum(errors[:, 1], 1e-17))),
        "Distance between the computed and the exact unit gradient at W = margin * W_mm; the exact one is computed with 60 digits. "
        "An error of 1 or more means that the direction is noise (or that the gradient is 0).",
        "log",
        "log",
    )


STUDIES = (
    Study("self-attention", "Self-attention with a fixed decoder (Figure 2)", run),
    Study(
        "self-attention-antipodal",
        "Self-attention on antipodal classes (Figure 5)",
        partial(run, antipodal=True),
    ),
)
