"""What a finite context does: the first-order bias, where its 1/n law ends, and the scale that restores it."""

from collections.abc import Callable

import numpy as np

from ....exhibits import DEFINITIONS, Figure, Finding, Line, Result, Table
from ....lab import Lab, Study
from ....verdict import at_least, at_most
from ..context import (
    bias_along,
    bias_slope,
    gradient_bias,
    law_ends_at_assumption,
    law_ends_at_half,
    leave_one_out_bias,
    loss_bias_of_minimum,
    loss_bias_off_minimum,
    off_minimum,
    regulariser_bias,
    scaling_problem,
    weight_moments,
)
from ..setting.context_bias import balance_bias, loss_bias, optimal_scale, scaled, whitened_loss_bias
from ..setting.curvature import balanced_point
from ..setting.generators import prescribed_spectrum
from ..setting.measured_bias import Estimate, measured_balance_bias, measured_loss_bias
from ..setting.sample import spectral_layer
from ..theorems import GOEL

OURS = f"derived here, for {GOEL}"
WORDS = {
    **DEFINITIONS,
    "B_1": "limit of n (E of the empirical loss - population loss)",
    "R_1": "limit of n (E of the regulariser with the sample's covariance - regulariser)",
    "own weight": "the query is one of its own keys; leave-one-out removes it",
    "scale c": "the layer (c U, V/c), which has the same population loss for every c",
    "A3": "s_1 < 1/16: exponential moments of the logits up to order 2 on all minima",
}


def _text(found: Estimate) -> str:
    return f"{found.mean:.5g} ± {found.error:.2g}"


def context_bias(lab: Lab) -> Result:
    seed, full, progress = lab.seed, lab.full, lab.progress
    problem, draws = scaling_problem(lab), 400_000 if full else 40_000
    cases = {
        "minimum": (spectral_layer(problem), True),
        "off the minima": (off_minimum(lab), True),
        "off the minima, leave-one-out": (off_minimum(lab), False),
    }
    counts = (25, 50, 100, 200) if full else (25, 50, 100)
    lines, rows = [], []
    for name, (layer, own) in cases.items():
        progress(name)
        exact = loss_bias(problem, layer, include_self=own)
        found = [
            measured_loss_bias(problem, layer, n, draws * 25 // n, seed=seed + n, include_self=own) for n in counts
        ]
        means, errors = (np.array([getattr(one, part) for one in found]) for part in ("mean", "error"))
        lines.append(Line(name, np.array(counts, float), means, "points", errors))
        lines.append(Line(f"B_1, {name}", np.array([counts[0], counts[-1]], float), np.full(2, exact), "prediction"))
        rows.append((name, *(_text(one) for one in found), f"{exact:.5g}"))
    progress("regulariser")
    balance = [measured_balance_bias(problem, off_minimum(lab), n, draws // 2, seed=seed + n) for n in counts]
    rows.append(
        (
            "regulariser off the minima",
            *(_text(one) for one in balance),
            f"{balance_bias(problem, off_minimum(lab)):.5g}",
        )
    )
    figure = Figure(
        "bias",
        "n (E of the empirical loss - population loss)",
        "n",
        "scaled bias",
        tuple(lines),
        "Monte Carlo with a control variate, ± one standard error; dashed: B_1.",
        "log",
    )
    table = Table(
        "bias",
        "First-order bias",
        ("quantity", *(f"n = {n}" for n in counts), "predicted limit"),
        tuple(rows),
        "n times the bias, ± one standard error; the findings have draws of their own, the same for every seed.",
    )
    progress("claims")
    findings = (
        Finding("On the minima the bias is B_1/n.", loss_bias_of_minimum(lab, False), OURS),
        Finding("Off the minima the query's own weight counts.", loss_bias_off_minimum(lab, False), OURS),
        Finding("Leave-one-out removes exactly that term.", leave_one_out_bias(lab, False), OURS),
        Finding("The bias of the gradient is grad B_1/n (Theorem 3).", gradient_bias(lab, False), GOEL),
        Finding("The bias of the regulariser is R_1/n (Theorems 4 and 5).", regulariser_bias(lab, False), GOEL),
        Finding("Moments of the weights are bounded as in Lemmas 9 and 10.", weight_moments(lab, False), GOEL),
    )
    return Result(findings, (figure,), (table,), {}, WORDS)


def beyond_a3(lab: Lab) -> Result:
    seed, full, progress = lab.seed, lab.full, lab.progress
    sizes = (0.05, 0.2, 0.4, 0.8, 1.5, 3.0)
    counts = (50, 100, 200, 400, 800) if full else (50, 100, 200, 400)
    draws = 20_000 if full else 4000
    x, lines, rows = np.array(counts, float), [], []
    for size in sizes:
        progress(f"s_1 = {size}")
        values = bias_along(lab, size, 1.0, counts, draws, seed)[:, 0]
        lines.append(Line(f"s_1 = {size:g}", x, values))
        slope = bias_slope(lab, size, 1.0, counts, draws, seed)
        rows.append((f"{size:g}", "yes" if size < 1 / 16 else "no", f"{slope:.3f}"))
    scale_table, scale_figure, slopes = _scales(lab, counts, draws, seed, progress)
    figure = Figure(
        "bias",
        "Bias against the size of the context",
        "n",
        "E L_n - L",
        tuple(lines),
        "Sizes (s_1, s_1/2), m = d = 2, on the minima.",
        "log",
        "log",
    )
    table = Table(
        "slopes",
        "Exponents of the bias",
        ("s_1", "A3 holds", "slope in n"),
        tuple(rows),
        f"Least squares over n = {counts[0]} to {counts[-1]}; B_1 is finite for s_1 < 1/2."
        f"{'' if full else ' Only with --full: n = 800 and 5 times the draws.'}",
    )
    findings = (
        Finding(
            "Beyond A3 the 1/n law is lost (a finding: it is not, until s_1 = 1/2).",
            law_ends_at_assumption(lab, False, seed),
            GOEL,
        ),
        Finding(
            "The 1/n law holds well beyond A3 and is lost beyond s_1 = 1/2.", law_ends_at_half(lab, False, seed), OURS
        ),
        Finding(
            "Scale restores it: at s_1 = 1.5, c = 1 against c = 5.",
            at_least(slopes[1.0] - slopes[5.0], 0.3, "slope at c = 1 less slope at c = 5"),
            OURS,
        ),
        Finding("At c = 5 the law is 1/n again.", at_most(abs(slopes[5.0] + 1), 0.1, "|slope + 1| at c = 5"), OURS),
    )
    return Result(findings, (figure, scale_figure), (table, scale_table), {}, WORDS)


def _scales(
    lab: Lab, counts: tuple[int, ...], draws: int, seed: int, progress: Callable[[str], None]
) -> tuple[Table, Figure, dict[float, float]]:
    """The bias at s_1 = 1.5 for layers (c U, V/c)."""
    problem = prescribed_spectrum(2, (1.5, 0.75))
    best = optimal_scale(problem)
    rows, slopes = [], {}
    exact = lambda c: float(whitened_loss_bias(scaled(balanced_point(problem), 2, c), problem.target))
    for scale in (1.0, 2.0, 3.0, 5.0):
        progress(f"s_1 = 1.5, scale {scale:g}")
        values = bias_along(lab, 1.5, scale, counts, draws, seed)
        slopes[scale] = bias_slope(lab, 1.5, scale, counts, draws, seed)
        last = f"{counts[-1] * values[-1, 0]:.4g} ± {counts[-1] * values[-1, 1]:.2g}"
        finite = f"{exact(scale):.4g}" if 2 * 1.5 / scale**2 < 1 else "infinite"
        rows.append((f"{scale:g}", f"{slopes[scale]:.3f}", last, finite))
    grid = np.linspace(1.75, 8.0, 80)
    figure = Figure(
        "scale",
        "B_1 along the scales (c U, V/c)",
        "c",
        "B_1",
        (
            Line("B_1", grid, np.array([exact(c) for c in grid])),
            Line(f"best, c = {best.factor:.4g}", np.array([best.factor]), np.array([best.bias]), "points"),
        ),
        f"s_1 = 1.5: B_1 is finite for c > {np.sqrt(3):.4g}; at the best scale |V| = {best.key_norm:.3g}.",
        "linear",
        "log",
    )
    table = Table(
        "scales",
        "Scale at s_1 = 1.5",
        ("c", "slope in n", f"n bias at n = {counts[-1]}", "B_1"),
        tuple(rows),
        f"Best scale c = {best.factor:.5g} with B_1 = {best.bias:.5g}.",
    )
    return table, figure, slopes


STUDIES = (
    Study("attention-bias", "The first-order bias of a finite context", context_bias),
    Study("attention-beyond-a3", "Where the 1/n law ends, and the scale that restores it", beyond_a3),
)
