"""Attention from data: the bias of a finite context and the scale that restores its law, and what training settles at against n."""

from collections.abc import Callable

import numpy as np

from ....diagnostics.rates import exponent
from ....exhibits import DEFINITIONS, Figure, Line, Table
from ....lab import Lab, Study, recipe
from ....training.recorders import At
from .. import context, lemmas, samples
from ..context import bias_along, bias_slope
from ..evidence import layer_of, mean_layer_excess, sampled_oracle_floors, scaling_problem, start_near
from ..setting.context_bias import optimal_scale, oracle_shift, sample_floor, scaled, whitened_loss_bias
from ..setting.geometry import TwoSided, attraction_radius, balanced_point
from ..setting.problem import AttentionRegression
from ..setting.sample import GAUGE, draw_sample, prescribed_spectrum, spectral_layer
from ..training.algorithm1 import train_attention
from ..training.rules import PreconditionedDescent
from ..training.sources import AbstractSource, FullSample, Minibatch, Population

GRID = (0, 5, 10, 20, 40)
Floors = dict[int, np.ndarray]  # n, or B -> the excess of every run


def _two_terms(problem: AttentionRegression, count: int) -> float:
    """v/n + b_2/n^2 in the gauge identity."""
    return sample_floor(problem) / count + oracle_shift(problem).excess / count**2


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


@recipe
def grid_rows(lab: Lab) -> dict[str, list[float]]:
    """Mean excess after the steps of the grid on n samples, from a start at distance r_0 of the gauge identity."""
    problem, rule = scaling_problem(lab, 1e-3), PreconditionedDescent("two_sided", 5.0)
    start, recorder = layer_of(problem, start_near(problem, attraction_radius(problem, TwoSided()), 21)), At(GRID)
    sources: dict[str, list[AbstractSource]] = {"infinity": [Population(problem)]}
    for count, sets in ((200, 20), (800, 10), (3200, 5)) if lab.full else ((200, 5), (800, 5)):
        draws = (draw_sample(problem, count, np.random.default_rng([50 + k, lab.seed])) for k in range(sets))
        sources[str(count)] = [FullSample(sample) for sample in draws]
    rows = {}
    for count, those in sources.items():
        lab.progress(f"n = {count}, {len(those)} runs from distance r_0")
        go = lambda source: train_attention(source, rule, start, steps=GRID[-1], recorder=recorder, truth=problem)
        runs = [go(source) for source in those]
        rows[count] = [float(np.mean([run.excess_at(step) for run in runs])) for step in GRID]
    return rows


def grid(lab: Lab) -> tuple[Figure, Table]:
    """Contraction, then v/n + b_2/n^2."""
    found, problem = grid_rows(lab), scaling_problem(lab, 1e-3)
    levels = {count: _two_terms(problem, int(count)) if count.isdigit() else 0.0 for count in found}
    lines = [Line(f"n = {count}", np.array(GRID, float), np.array(values)) for count, values in found.items()]
    for count in filter(str.isdigit, found):
        ends, level = np.array([0.0, GRID[-1]]), np.full(2, levels[count])
        lines.append(Line(f"v/n + b_2/n^2, n = {count}", ends, level, "prediction"))
    rows = tuple((n, *(f"{value:.4g}" for value in values), f"{levels[n]:.3g}") for n, values in found.items())
    columns = ("n", *(f"step {step}" for step in GRID), "v/n + b_2/n^2")
    caption = "Two-sided descent with step 5 from distance r_0 of the gauge identity, mean over data sets, noise variance 1e-3."
    text = f"{caption} {'' if lab.full else 'Only with --full: n = 3200.'}"
    title = "Contraction, then the floor of the data"
    return (
        Figure("grid", title, "step", "excess", tuple(lines), caption, "linear", "log"),
        Table("grid", "Excess after T steps on n samples", columns, rows, text),
    )


def minibatch_floors(
    problem: AttentionRegression, plan: dict[int, int], count: int, gauge: str, seed: int = 0
) -> Floors:
    """Excess of the mean late layer of minibatch runs, `plan[B]` runs for each batch size B, each on a data set of its own."""
    rule = PreconditionedDescent("two_sided", 0.5)

    def settle(batch: int, run: int) -> float:
        sample = draw_sample(problem, count, np.random.default_rng([4, batch, run, seed]))
        start = spectral_layer(sample.estimated, gauge)
        return mean_layer_excess(problem, Minibatch(sample, batch, seed=7 + run + 1000 * seed), rule, start, 800)

    return {batch: np.array([settle(batch, k) for k in range(runs)]) for batch, runs in plan.items()}


@recipe
def _measured(lab: Lab) -> dict[str, tuple[Floors, str, Callable[[int], float]]]:
    """Floors by kind of gradient, in the gauge minus where that counts; the law of each, and its value at n or B."""
    problem, gauge, full = scaling_problem(lab), "minus", lab.full
    loss, spread = oracle_shift(problem, gauge, sample_balance=False).excess, sample_floor(problem)
    fresh = {50: (16, 8), 100: (16, 8), 200: (16, 6), 400: (8, 6)} if full else {50: (8, 4), 100: (8, 4), 200: (8, 3)}
    lab.progress(f"oracle by fresh samples, {sum(runs for _, runs in fresh.values())} runs")
    sampled = {n: sampled_oracle_floors(lab, n, *plan, gauge, lab.seed) for n, plan in fresh.items()}
    sets, steps = ({100: 120, 200: 80, 400: 60, 800: 30}, 80) if full else ({100: 60, 200: 30, 400: 16}, 40)
    lab.progress(f"fixed data, {sum(sets.values())} data sets")
    draw = lambda n: samples.draw_samples(problem, n, sets[n], [1000 + n, lab.seed])
    fixed = {n: samples.trained_excess(problem, draw(n), steps)[:, -1] for n in sets}
    batches, count = ({50: 12, 100: 12, 200: 12, 400: 8}, 20_000) if full else ({50: 6, 200: 6}, 4000)
    lab.progress(f"minibatches, {sum(batches.values())} runs")
    mini = minibatch_floors(problem, batches, count, gauge, lab.seed)
    return {
        "oracle, sampled": (sampled, "b_2/n^2, loss alone", lambda n: loss / n**2),
        "fixed data": (fixed, "v/n + b_2/n^2", lambda n: _two_terms(problem, n)),
        "minibatch": (mini, "v/n + b_2/B^2", lambda size: spread / count + loss / size**2),
    }


def law_slope(levels: dict[int, float]) -> float:
    """The exponent that a law of several terms has over these sizes."""
    return float(np.polyfit(np.log(np.array(list(levels), float)), np.log(list(levels.values())), 1)[0])


def floors(lab: Lab) -> tuple[Figure, Table, Table]:
    """Measured floors with their laws, and the exponents of both."""
    lines, rows, cells = [], [], []
    for name, (found, law, level) in _measured(lab).items():
        sizes, levels = np.array(list(found), float), {n: level(n) for n in found}
        lines.append(Line(name, sizes, np.array([float(one.mean()) for one in found.values()]), "points"))
        lines.append(Line(f"{law}, {name}", sizes, np.array(list(levels.values())), "prediction"))
        for n, one in found.items():
            error = f"{one.std(ddof=1) / np.sqrt(len(one)):.2g}"
            rows.append((name, n, f"{one.mean():.4g}", error, f"{levels[n]:.4g}"))
        fitted = exponent(found)
        interval = f"[{fitted.low:.3f}, {fitted.high:.3f}]"
        cells.append((name, f"{fitted.centre:.3f}", interval, law, f"{law_slope(levels):.3f}"))
    caption = "Oracle and minibatches in the gauge minus. b_2 of the sampled oracle and of minibatches is without the bias of the regulariser."
    text = "The law's exponent is fitted over the same sizes; every measurement has its own draws and, on fixed data and minibatches, its own data set."
    title, columns = "What training settles at", ("gradient", "n or B", "excess", "standard error", "prediction")
    fits = ("gradient", "exponent", "interval", "law", "its exponent")
    return (
        Figure("floors", title, "n or B", "excess", tuple(lines), "Noise-free targets.", "log", "log"),
        Table("floors", "Floors and predictions", columns, tuple(rows), caption),
        Table("exponents", "Fitted exponents", fits, tuple(cells), text),
    )


WORDS = {
    **DEFINITIONS,
    "excess": "population loss above its infimum",
    "oracle, sampled": "descent with the mean gradient of fresh samples of size n, drawn anew at every step; population regulariser; excess of the mean late layer",
    "fixed data": "descent on all n samples of one data set, from its spectral start",
    "minibatch": "descent on batches of size B of a data set of its own, attending within the batch; excess of the mean late layer",
    "gauge": GAUGE,
    "interval": "95 % Student interval of the exponent, from the scatter of the log means",
}
STUDIES = (
    Study(
        "attention-bias",
        "The bias of a finite context, where its 1/n law ends, and the scale that restores it",
        claims=(
            *(context.first_order_bias, context.gradient_bias, context.regulariser_bias, lemmas.weight_moments),
            *(context.law_ends_at_half, context.scale_restores_law),
        ),
        exhibits=(slopes, scales),
        definitions=DEFINITIONS
        | {
            "B_1": "limit of n (E of the empirical loss - population loss)",
            "R_1": "limit of n (E of the regulariser with the sample's covariance - regulariser)",
            "own weight": "the query is one of its own keys; leave-one-out removes it",
            "scale c": "the layer (c U, V/c), which has the same population loss for every c",
            "A3": "s_1 < 1/16: exponential moments of the logits up to order 2 on all minima",
        },
    ),
    Study(
        "attention-scaling-law",
        "The scaling law of attention regression",
        claims=(
            *(samples.oracle_bound, samples.oracle_floor, samples.sample_floor_law, samples.training_raises),
            *(samples.minibatch_law, samples.full_keys),
        ),
        exhibits=(grid, floors),
        definitions=WORDS,
    ),
)
