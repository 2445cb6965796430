"""The landscape of attention regression: saddle to saddle, missing rank, and the flow in closed form far below rounding."""

import jax.numpy as jnp
import numpy as np

from ....exhibits import DEFINITIONS, Figure, Line, Table
from ....lab import Lab, Study
from ..evidence import random_point
from ..identities import far_times
from ..landscape import RISING, deficient, late_run, rising_modes, saddle_to_saddle, tails, wide
from ..setting.geometry import eigenbasis
from ..setting.problem import ScaleFreeBalance
from ..setting.sample import prescribed_spectrum
from ..training.population import train_population
from ..training.riccati import RiccatiFlow, aligned_modes
from ..training.rules import PreconditionedDescent

SIZES = (0.05, 0.03, 0.01)


def saddles(lab: Lab) -> Figure:
    """Modes of a small balanced start: closed form, and descent with a small step."""
    lab.progress("saddle to saddle")
    start, lines = 1e-6, []
    steps, modes = rising_modes(lab, start, 16_000, 40)
    times = steps * RISING
    for k, size in enumerate(SIZES):
        exact = [aligned_modes([size], [start], [start], float(time)) for time in times]
        values = np.array([(one.u * one.v)[0] for one in exact])
        lines.append(Line(f"mode {k}, descent", times, modes[:, k]))
        lines.append(Line(f"mode {k}, closed form", times, values, "prediction"))
    caption = f"Balanced start of size {start:g}; step {RISING:g}."
    return Figure("saddle-to-saddle", "Modes rise one after the other", "time", "mode", tuple(lines), caption)


def rank(lab: Lab) -> Figure:
    lab.progress("missing rank")
    cases = {"full rank": (4, SIZES), "rank d - 1": (4, (0.05, 0.03, 0.0)), "m = d - 1": (2, SIZES)}
    steps, seed = 100_000 if lab.full else 20_000, 8 + lab.seed
    runs = {name: late_run(prescribed_spectrum(m, sizes, 5.0, 11), steps, seed) for name, (m, sizes) in cases.items()}
    positive = lambda label, run, values: Line(label, run.steps[1:], np.maximum(values[1:], 1e-36))
    lines = [positive(f"{name}, excess", run, run.excess) for name, run in runs.items()]
    lines.append(positive("m = d - 1, regulariser", runs["m = d - 1"], runs["m = d - 1"].regulariser))
    caption = "Adaptive steps from one random start of size 0.3. Excess below 1e-32 is rounding."
    title = "Full and missing rank"
    return Figure("rank", title, "step", "excess, regulariser", tuple(lines), caption, "log", "log")


def far(lab: Lab) -> Figure:
    """log excess of the closed form, from starts with and without a kernel part."""
    lab.progress("closed form")
    problem = prescribed_spectrum(4, SIZES, 5.0, 11)
    start, kernel = random_point(problem, 8 + lab.seed), eigenbasis(problem).kernel
    times, lines = np.geomspace(1.0, 1e7, 60), []
    for label, begin in (("any start", start), ("no kernel part", start - kernel @ (kernel.T @ start))):
        values = RiccatiFlow(problem, begin).log_excess(times)
        lines.append(Line(label, times[values < 0], -values[values < 0]))
    title, caption = "The flow's excess, from its closed form", "The excess itself leaves float64 at -log excess = 745."
    return Figure("closed-form", title, "time", "- log excess", tuple(lines), caption, "log", "log")


def scale(lab: Lab) -> Table:
    """Beyond A3: with the scale-free regulariser and a limit on the logits training still finds a minimum of the loss."""
    lab.progress("scale")
    problem = prescribed_spectrum(4, (1.5, 1.0, 0.5), 3.0, 2)
    start, rows = problem.unwhiten(jnp.asarray(random_point(problem, lab.seed, 0.5))), []
    for limit in (None, 0.4, 0.24):
        rule = PreconditionedDescent("two_sided", "adaptive", None if limit is None else ScaleFreeBalance(), limit)
        run = train_population(problem, rule, start, steps=20_000)
        logits = f"{float(np.linalg.norm(run.whitened[-1, 4:], 2)):.4f}"
        rows.append(
            ("none" if limit is None else f"{limit:g}", logits, f"{run.excess[-1]:.3g}", f"{run.regulariser[-1]:.3g}")
        )
    title = "s_1 = 1.5, far beyond Assumption 3: moving scale from V to U"
    columns = ("limit on the logits", "norm of whitened V", "excess", "regulariser")
    text = "20 000 adaptive two-sided steps. Without a limit: the paper's regulariser; else the scale-free one, V rescaled after each step."
    return Table("scale", title, columns, tuple(rows), text)


STUDIES = (
    Study(
        "attention-landscape",
        "Saddles, rank and far times of attention regression",
        claims=(saddle_to_saddle, deficient, wide, tails, far_times),
        exhibits=(saddles, rank, far, scale),
        definitions=DEFINITIONS
        | {
            "excess": "L - m sigma^2, the population loss above its minimum",
            "mode": "u v, the part of U Sigma V along a singular pair of A Sigma^(1/2); it ends at the singular value s",
        },
    ),
)
