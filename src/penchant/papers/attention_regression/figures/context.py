"""What a finite context does: the first-order bias, where its 1/n law ends, and the scale that restores it."""

import numpy as np

from ....exhibits import DEFINITIONS, Figure, Line, Table
from ....lab import Lab, Study
from .. import context
from ..context import bias_along, bias_slope, off_minimum
from ..evidence import scaling_problem
from ..setting.context_bias import balance_bias, loss_bias, optimal_scale, scaled, whitened_loss_bias
from ..setting.geometry import balanced_point
from ..setting.measured_bias import Estimate, measured_balance_bias, measured_loss_bias
from ..setting.sample import prescribed_spectrum, spectral_layer


def _text(found: Estimate) -> str:
    return f"{found.mean:.5g} ± {found.error:.2g}"


def bias(lab: Lab) -> tuple[Figure, Table]:
    problem, away, draws = scaling_problem(lab), off_minimum(lab), 400_000 if lab.full else 40_000
    alone = "off the minima, leave-one-out"
    cases = {"minimum": (spectral_layer(problem), True), "off the minima": (away, True), alone: (away, False)}
    counts = (25, 50, 100, 200) if lab.full else (25, 50, 100)
    lines, rows = [], []
    for name, (layer, own) in cases.items():
        lab.progress(name)
        exact = loss_bias(problem, layer, include_self=own)
        measure = lambda n, layer=layer, own=own: measured_loss_bias(
            problem, layer, n, draws * 25 // n, seed=lab.seed + n, include_self=own
        )
        found = [measure(n) for n in counts]
        means, errors = (np.array([getattr(one, part) for one in found]) for part in ("mean", "error"))
        lines.append(Line(name, np.array(counts, float), means, "points", errors))
        lines.append(Line(f"B_1, {name}", np.array([counts[0], counts[-1]], float), np.full(2, exact), "prediction"))
        rows.append((name, *map(_text, found), f"{exact:.5g}"))
    lab.progress("regulariser")
    balance = [measured_balance_bias(problem, away, n, draws // 2, seed=lab.seed + n) for n in counts]
    rows.append(("regulariser off the minima", *map(_text, balance), f"{balance_bias(problem, away):.5g}"))
    title = "n (E of the empirical loss - population loss)"
    caption = "Monte Carlo with a control variate, ± one standard error; dashed: B_1."
    columns = ("quantity", *(f"n = {n}" for n in counts), "predicted limit")
    text = "n times the bias, ± one standard error; the findings have draws of their own, the same for every seed."
    return (
        Figure("bias", title, "n", "scaled bias", tuple(lines), caption, "log"),
        Table("bias", "First-order bias", columns, tuple(rows), text),
    )


def _plan(lab: Lab) -> tuple[tuple[int, ...], int, int]:
    """Sizes of contexts, draws and seed of the measured slopes."""
    return (50, 100, 200, 400, 800) if lab.full else (50, 100, 200, 400), 20_000 if lab.full else 4000, lab.seed


def slopes(lab: Lab) -> tuple[Figure, Table]:
    lines, rows, (counts, *_) = [], [], _plan(lab)
    for size in (0.05, 0.2, 0.4, 0.8, 1.5, 3.0):
        lab.progress(f"s_1 = {size}")
        values = bias_along(lab, size, 1.0, *_plan(lab))[:, 0]
        lines.append(Line(f"s_1 = {size:g}", np.array(counts, float), values))
        slope = bias_slope(lab, size, 1.0, *_plan(lab))
        rows.append((f"{size:g}", "yes" if size < 1 / 16 else "no", f"{slope:.3f}"))
    title, caption = "Bias against the size of the context", "Sizes (s_1, s_1/2), m = d = 2, on the minima."
    text = f"Least squares over n = {counts[0]} to {counts[-1]}; B_1 is finite for s_1 < 1/2."
    text += "" if lab.full else " Only with --full: n = 800 and 5 times the draws."
    return (
        Figure("slopes", title, "n", "E L_n - L", tuple(lines), caption, "log", "log"),
        Table("slopes", "Exponents of the bias", ("s_1", "A3 holds", "slope in n"), tuple(rows), text),
    )


def scales(lab: Lab) -> tuple[Table, Figure]:
    """The bias at s_1 = 1.5 for layers (c U, V/c)."""
    problem, rows, (counts, *_) = prescribed_spectrum(2, (1.5, 0.75)), [], _plan(lab)
    best = optimal_scale(problem)
    exact = lambda c: float(whitened_loss_bias(scaled(balanced_point(problem), 2, c), problem.target))
    for scale in (1.0, 2.0, 3.0, 5.0):
        lab.progress(f"s_1 = 1.5, scale {scale:g}")
        last = counts[-1] * bias_along(lab, 1.5, scale, *_plan(lab))[-1]
        finite = f"{exact(scale):.4g}" if 2 * 1.5 / scale**2 < 1 else "infinite"
        slope = f"{bias_slope(lab, 1.5, scale, *_plan(lab)):.3f}"
        rows.append((f"{scale:g}", slope, f"{last[0]:.4g} ± {last[1]:.2g}", finite))
    grid = np.linspace(1.75, 8.0, 80)
    lines = (
        Line("B_1", grid, np.array([exact(c) for c in grid])),
        Line(f"best, c = {best.factor:.4g}", np.array([best.factor]), np.array([best.bias]), "points"),
    )
    caption = f"s_1 = 1.5: B_1 is finite for c > {np.sqrt(3):.4g}; at the best scale |V| = {best.key_norm:.3g}."
    columns = ("c", "slope in n", f"n bias at n = {counts[-1]}", "B_1")
    text = f"Best scale c = {best.factor:.5g} with B_1 = {best.bias:.5g}."
    return (
        Table("scales", "Scale at s_1 = 1.5", columns, tuple(rows), text),
        Figure("scale", "B_1 along the scales (c U, V/c)", "c", "B_1", lines, caption, "linear", "log"),
    )


STUDIES = (
    Study(
        "attention-bias",
        "The bias of a finite context, where its 1/n law ends, and the scale that restores it",
        claims=(
            *(context.loss_bias_of_minimum, context.loss_bias_off_minimum, context.leave_one_out_bias),
            *(context.gradient_bias, context.regulariser_bias, context.weight_moments),
            *(context.law_ends_at_half, context.scale_restores_law, context.best_scale),
        ),
        exhibits=(bias, slopes, scales),
        definitions=DEFINITIONS
        | {
            "B_1": "limit of n (E of the empirical loss - population loss)",
            "R_1": "limit of n (E of the regulariser with the sample's covariance - regulariser)",
            "own weight": "the query is one of its own keys; leave-one-out removes it",
            "scale c": "the layer (c U, V/c), which has the same population loss for every c",
            "A3": "s_1 < 1/16: exponential moments of the logits up to order 2 on all minima",
        },
    ),
)
