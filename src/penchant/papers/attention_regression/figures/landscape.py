"""The landscape of attention regression: saddle to saddle, missing rank, and the flow in closed form far below rounding."""

import jax.numpy as jnp
import numpy as np

from ....diagnostics.rates import log_log_slope
from ....exhibits import DEFINITIONS, Figure, Finding, Line, Result, Table
from ....lab import Lab, Study
from ....training.recorders import Every, LogSpaced
from ....verdict import ROUNDING, all_of, at_most, close
from ..setting.balance import ScaleFreeBalance
from ..setting.curvature import eigenbasis
from ..setting.generators import prescribed_spectrum
from ..setting.problem import AttentionRegression
from ..theorems import GOEL
from ..training.population import AttentionTrajectory, train_population
from ..training.preconditioned import FixedStep, PreconditionedDescent
from ..training.riccati import RiccatiFlow, aligned_modes, half_height_times

SIZES = (0.05, 0.03, 0.01)
_DEFINITIONS = DEFINITIONS | {
    "excess": "L - m sigma^2, the population loss above its minimum",
    "mode": "u v, the part of U Sigma V along a singular pair of A Sigma^(1/2); it ends at the singular value s",
}


def _random(problem: AttentionRegression, seed: int, size: float = 0.3) -> np.ndarray:
    return size * np.random.default_rng(seed).standard_normal((problem.outputs + problem.inputs, problem.inputs))


def _saddles() -> tuple[Figure, Finding]:
    """Modes of a small balanced start: closed form, and descent with a small step."""
    problem, start, step = prescribed_spectrum(4, SIZES, 5.0, 11), 1e-6, 0.05
    left, right, sizes = (np.asarray(part) for part in (problem.left, problem.right, problem.sizes))
    layer = problem.unwhiten(jnp.asarray(start * np.concatenate([left, right])))
    rule = PreconditionedDescent("two_sided", FixedStep(step))
    run = train_population(problem, rule, layer, steps=16_000, recorder=Every(40))
    modes = np.einsum("mi,rmd,rjd,ji->ri", left, run.whitened[:, :4], run.whitened[:, 4:], right)
    times, rises = run.steps * step, half_height_times(sizes, start)
    lines, checks = [], []
    for k, size in enumerate(sizes):
        exact = [aligned_modes([size], [start], [start], float(time)) for time in times]
        lines.append(Line(f"mode {k}, descent", times, modes[:, k]))
        lines.append(
            Line(f"mode {k}, closed form", times, np.array([(one.u * one.v)[0] for one in exact]), "prediction")
        )
        found = float(np.interp(size / 2, modes[:, k], times))
        checks.append(close(found, float(rises[k]), 5e-3, f"half-height time of mode {k}"))
    figure = Figure(
        "saddle-to-saddle",
        "Modes rise one after the other",
        "time",
        "mode",
        tuple(lines),
        f"Balanced start of size {start:g}; step {step:g}.",
    )
    text = "From a small balanced start, mode k rises at log(s_k/eps^2 - 1)/(4 s_k)."
    return figure, Finding(text, all_of(*checks), f"{GOEL}, by us")


def _late(problem: AttentionRegression, seed: int, steps: int) -> AttentionTrajectory:
    rule = PreconditionedDescent("two_sided", "adaptive")
    start = problem.unwhiten(jnp.asarray(_random(problem, seed)))
    return train_population(problem, rule, start, steps=steps, recorder=LogSpaced(80))


def _growth(run: AttentionTrajectory, values: np.ndarray, first: float) -> float:
    """Growth per time of values^(-1/2) from a step on: 4 for 1/(16 t^2)."""
    late = run.steps >= first
    return float(np.polyfit(run.steps[late] * run.step_size[late], values[late] ** -0.5, 1)[0])


def _missing_rank(seed: int, steps: int) -> tuple[Figure, list[Finding]]:
    deficient = _late(prescribed_spectrum(4, (0.05, 0.03, 0.0), 5.0, 11), seed, steps)
    wide = _late(prescribed_spectrum(2, SIZES, 5.0, 11), seed, steps)
    regular = _late(prescribed_spectrum(4, SIZES, 5.0, 11), seed, steps)
    window = (steps / 10, float(steps))
    slope = log_log_slope(deficient.steps, deficient.excess, window)
    constant = _growth(deficient, deficient.excess + deficient.regulariser, window[0])
    findings = [
        Finding("rank A = d - 1: the excess falls like t^-2.", close(slope, -2.0, 2e-2, "exponent of the excess")),
        Finding(
            "rank A = d - 1: excess + regulariser tend to 1/(16 t^2), whatever the start.",
            close(constant, 4.0, 1e-2, "growth of (excess + regulariser)^(-1/2) per time"),
        ),
        Finding(
            "m = d - 1: the excess falls exponentially, the regulariser like 1/(16 t^2).",
            all_of(
                at_most(float(wide.excess[-1]), 1e-28, "excess at the end"),
                close(_growth(wide, wide.regulariser, window[0]), 4.0, 1e-2, "growth of regulariser^(-1/2) per time"),
            ),
        ),
    ]
    positive = lambda label, run, values: Line(label, run.steps[1:], np.maximum(values[1:], 1e-36))
    lines = (
        positive("full rank, excess", regular, regular.excess),
        positive("rank d - 1, excess", deficient, deficient.excess),
        positive("m = d - 1, excess", wide, wide.excess),
        positive("m = d - 1, regulariser", wide, wide.regulariser),
    )
    caption = "Adaptive steps from one random start of size 0.3. Excess below 1e-32 is rounding."
    figure = Figure("rank", "Full and missing rank", "step", "excess, regulariser", lines, caption, "log", "log")
    return figure, findings


def _far(seed: int) -> tuple[Figure, Finding]:
    """log excess of the closed form, from starts with and without a kernel part."""
    problem = prescribed_spectrum(4, SIZES, 5.0, 11)
    start, kernel = _random(problem, seed), eigenbasis(problem).kernel
    times = np.geomspace(1.0, 1e7, 60)
    lines, checks = [], []
    for label, begin in (("any start", start), ("no kernel part", start - kernel @ (kernel.T @ start))):
        flow = RiccatiFlow(problem, begin)
        values = flow.log_excess(times)
        lines.append(Line(label, times[values < 0], -values[values < 0]))
        tail = (values[-2] - values[-1]) / (times[-1] - times[-2])
        checks.append(close(float(tail), flow.exponent, 1e-9, f"decay of log excess per time, {label}"))
    caption = "The excess itself leaves float64 at -log excess = 745."
    title = "The flow's excess, from its closed form"
    figure = Figure("closed-form", title, "time", "- log excess", tuple(lines), caption, "log", "log")
    return figure, Finding(
        "The excess falls like exp(-4 s_d t), or exp(-8 s_d t) without a kernel part.", all_of(*checks)
    )


def _scale(seed: int) -> tuple[Table, Finding]:
    """Beyond A3: the scale-free regulariser with a limit on the logits."""
    problem = prescribed_spectrum(4, (1.5, 1.0, 0.5), 3.0, 2)
    start = problem.unwhiten(jnp.asarray(_random(problem, seed, 0.5)))
    rows, checks = [], []
    for limit in (None, 0.4, 0.24):
        balance = None if limit is None else ScaleFreeBalance()
        run = train_population(
            problem, PreconditionedDescent("two_sided", "adaptive", balance, limit), start, steps=20_000
        )
        logits = float(np.linalg.norm(run.whitened[-1, 4:], 2))
        rows.append(
            (
                "none" if limit is None else f"{limit:g}",
                f"{logits:.4f}",
                f"{run.excess[-1]:.3g}",
                f"{run.regulariser[-1]:.3g}",
            )
        )
        if limit is not None:
            checks.append(at_most(logits, limit * (1 + ROUNDING), f"norm of the whitened V, limit {limit:g}"))
            checks.append(at_most(float(run.excess[-1] / run.excess[0]), 1e-6, "excess at the end over its start"))
    table = Table(
        "scale",
        "s_1 = 1.5, far beyond Assumption 3: moving scale from V to U",
        ("limit on the logits", "norm of whitened V", "excess", "regulariser"),
        tuple(rows),
        "20 000 adaptive two-sided steps. Without a limit: the paper's regulariser; else the scale-free one, V rescaled after each step.",
    )
    text = "With the scale-free regulariser and a limit on the logits, training still finds a minimum of the loss."
    return table, Finding(text, all_of(*checks), f"{GOEL}, beyond Assumption 3, by us")


def run(lab: Lab) -> Result:
    """Saddles, rank, far times and scale."""
    seed, full, progress = lab.seed, lab.full, lab.progress
    progress("saddle to saddle")
    saddles, rise = _saddles()
    progress("missing rank")
    rank, slow = _missing_rank(seed + 8, 100_000 if full else 20_000)
    progress("closed form")
    far, tail = _far(seed + 8)
    progress("scale")
    table, scale = _scale(seed)
    return Result((rise, *slow, tail, scale), (saddles, rank, far), (table,), {}, _DEFINITIONS)


STUDIES = (Study("attention-landscape", "Saddles, rank and far times of attention regression", run),)
