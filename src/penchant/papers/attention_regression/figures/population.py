"""Training with the population: predicted and measured factors in three geometries, constants, saddles, missing rank, and the flow far below rounding."""

from itertools import product

import numpy as np

from ....exhibits import DEFINITIONS, Figure, Line, Table
from ....lab import Lab, Study
from ....training.recorders import Every
from ..contraction import one_point_convexity
from ..evidence import layer_of, random_point, start_near
from ..rates import (
    RISING,
    covariance_free,
    deficient,
    exact_factor,
    guaranteed_step,
    landscape,
    late_run,
    lemma4_on_samples,
    measured_factor,
    rising_modes,
    saddle_to_saddle,
    sampled_steps,
    tails,
)
from ..setting.geometry import (
    GEOMETRIES,
    AbstractGeometry,
    TwoSided,
    attraction_radius,
    curvature_range,
    eigenbasis,
)
from ..setting.problem import AttentionRegression, Unregularised
from ..setting.sample import GAUGE as GAUGE_WORD
from ..setting.sample import attention_experiment, prescribed_spectrum
from ..theorems import asymptotic_factor
from ..training.population import AttentionTrajectory, train_population
from ..training.riccati import RiccatiFlow, aligned_modes
from ..training.rules import PreconditionedDescent
from ..training.steps import OptimalStep

SIZES = (0.05, 0.04, 0.03, 0.02)
SEED = 4  # of the covariance and the singular vectors; the table of the three geometries is for this one
GAUGE = np.diag([1.0, -1.0, 1.0, 1.0])  # signs of the singular vectors for which the Euclidean column is tabulated
SHARE = 1e-10
MODES = (0.05, 0.03, 0.01)  # sizes of the small problem, where modes are followed
_SOURCES = {"full": "all samples", "batch": "minibatches of half of them"}


def steps_needed(factor: float) -> int:
    """Steps after which the excess has fallen by 1e-10 at this factor of the distance."""
    return int(np.ceil(np.log(SHARE) / (2 * np.log(factor))))


def _tail(problem: AttentionRegression, geometry: AbstractGeometry, steps: int, interval: int) -> AttentionTrajectory:
    """A run at the optimal step from very near the minimum, so that it stays at its gauge.

    At condition 1000 a gauge turned by 3e-5 changes the rate of plain descent by 6 %.
    """
    rule = PreconditionedDescent(geometry, OptimalStep(GAUGE))
    start = layer_of(problem, start_near(problem, 1e-7, 21, GAUGE))
    return train_population(problem, rule, start, steps=steps, recorder=Every(interval))


def geometries(lab: Lab) -> tuple[Figure, Table]:
    rows, lines = [], []
    for condition, (name, geometry) in product((1.0, 10.0, 100.0, 1000.0), GEOMETRIES.items()):
        lab.progress(f"condition {condition:g}: {name}")
        problem = prescribed_spectrum(6, SIZES, condition, SEED)
        step = OptimalStep(GAUGE).constant(problem, geometry)
        predicted = asymptotic_factor(problem, geometry, step, GAUGE)
        needed = steps_needed(predicted)
        run = _tail(problem, geometry, int(1.3 * needed) + 10, max(1, needed // 400))
        share = run.excess / run.excess[0]
        factors = (f"{step:.4g}", f"{predicted:.7f}", f"{measured_factor(run, 1e-4):.7f}")
        rows.append((f"{condition:g}", name, *factors, needed, int(run.steps[np.argmax(share <= SHARE)])))
        if condition == 100.0:
            lines.append(Line(name, run.steps, share))
    radius = attraction_radius(prescribed_spectrum(6, SIZES, 1.0, SEED), TwoSided())
    columns = ("condition", "geometry", "optimal step", "predicted factor", "measured", "predicted steps")
    columns = (*columns, "steps of this run")
    text = f"Sizes {SIZES}, m = 6, d = 4; near the minimum with gauge R = diag(1, -1, 1, 1). r_0 = {radius:.3g} (two-sided)."
    title, label = "Near the minima, condition 100", "excess over its first value"
    caption = "Optimal constant step of each geometry."
    return (
        Figure("geometries", title, "step", label, tuple(lines), caption, "log", "log"),
        Table("geometries", "Steps for 1e-10 of the excess at the optimal step", columns, tuple(rows), text),
    )


def gauges(lab: Lab) -> Table:
    """Steps needed at the optimal step over the 16 sign gauges and the two symmetric ones: the gauge decides the rate of plain descent only."""
    problem = prescribed_spectrum(6, SIZES, 100.0, SEED)
    signs = [np.diag(np.array(one)) for one in product((1.0, -1.0), repeat=4)]
    right, rows = np.asarray(problem.right), []
    for name, geometry in GEOMETRIES.items():
        ranges = [curvature_range(problem, geometry, rotation) for rotation in (*signs, right.T, -right.T)]
        counts = [steps_needed((high - low) / (high + low)) for low, high in ranges]
        rows.append((name, min(counts), counts[0], max(counts)))
    text = "R over the 16 diagonal sign matrices and the symmetric gauges R = Q', -Q'."
    columns = ("geometry", "fewest steps", "R = I", "most steps")
    return Table("gauges", "The same over gauges, condition 100", columns, tuple(rows), text)


def random_start(lab: Lab) -> tuple[Figure, Table, dict[str, AttentionTrajectory]]:
    """The noise-free experiment of the seed: one random start, step 0.1, 2000 steps."""
    lab.progress("random start")
    found = attention_experiment(n=10_000, seed=lab.seed)
    rules = {
        "two_sided": PreconditionedDescent("two_sided", 0.1),
        "two_sided, adaptive": PreconditionedDescent("two_sided", "adaptive"),
        "left": PreconditionedDescent("left", 0.1),
        "euclidean, no regulariser": PreconditionedDescent("euclidean", 0.1, Unregularised()),
    }
    runs = {name: train_population(found.problem, rule, found.start, steps=2000) for name, rule in rules.items()}
    zero = np.full(2, float(np.sum(np.asarray(found.problem.sizes) ** 2)))
    lines = [Line(name, run.steps[1:], run.excess[1:]) for name, run in runs.items()]
    lines.append(Line("zero predictor", np.array([1.0, 2000.0]), zero, "prediction"))
    ends = lambda run: (f"{value:.3g}" for value in (run.excess[-1], run.step_size[-1], run.safe_step))
    rows = tuple((name, int(run.steps[-1]), run.status.name, *ends(run)) for name, run in runs.items())
    title, caption = "Excess from one random start, population gradients", "Step 0.1 unless adaptive."
    columns = ("rule", "steps", "ending", "excess", "step", "safe step at the start")
    text = "A run whose step is above the safe one may diverge; it then ends with its last finite state."
    return (
        Figure("random-start", title, "step", "excess", tuple(lines), f"{caption} {text}", "log", "log"),
        Table("random-start", "The same runs at their end (Figure 2 without noise)", columns, rows, text),
        {name.replace(", ", "-").replace(" ", "-"): run for name, run in runs.items()},
    )


def perturbed(lab: Lab) -> tuple[Figure, Table]:
    """Steps with the gradients of samples: by how much they deviate, the bound that follows, and the distance that is observed."""
    plan = [("two_sided", 300), ("two_sided", 1200), ("left", 300)] if lab.full else [("two_sided", 300)]
    rows, lines = [], []
    for (geometry, count), (source, words) in product(plan, _SOURCES.items()):
        lab.progress(f"perturbed contraction, {geometry}, n = {count}, {words}")
        found = sampled_steps(lab, source, geometry, count)
        numbers = (found.relative, *found.error[[0, -1]], found.distance[-1] ** 2, found.bound[-1], found.limit)
        worst = float((found.distance[1:] ** 2 / found.allowed).max())
        rows.append((geometry, count, words, *(f"{value:.3g}" for value in numbers), f"{worst:.5f}"))
        if (geometry, count) == plan[0]:
            steps = np.arange(len(found.distance), dtype=float)
            lines.append(Line(f"observed, {words}", steps, found.distance**2))
            lines.append(Line(f"bound, {words}", steps, found.bound, "prediction"))
    columns = (
        *("geometry", "n", "gradients", "covariance error", "first epsilon", "last epsilon", "last dist^2", "bound"),
        *("its limit", "largest dist^2 / recursion"),
    )
    text = (
        "Sizes (.05, .04, .03), m = 4, condition 5, noise variance 1e-3, 150 steps of alpha/(4 beta^2). The constants hold for the worst direction, "
        f"so the bound is far above what is observed. {'' if lab.full else 'Only with --full: n = 1200 and the left geometry.'}"
    )
    caption = "150 two-sided steps of alpha/(4 beta^2) on 300 samples; the bound is the recursion with the epsilon of each step."
    title = "Steps with the gradients of samples, from the spectral start"
    return (
        Figure("perturbed", "Distance to the minima", "step", "dist^2", tuple(lines), caption, "linear", "log"),
        Table("perturbed", title, columns, tuple(rows), text),
    )


def saddles(lab: Lab) -> Figure:
    """Modes of a small balanced start: closed form, and descent with a small step."""
    lab.progress("saddle to saddle")
    start, lines = 1e-6, []
    steps, modes = rising_modes(lab, start, 16_000, 40)
    times = steps * RISING
    for k, size in enumerate(MODES):
        exact = [aligned_modes([size], [start], [start], float(time)) for time in times]
        values = np.array([(one.u * one.v)[0] for one in exact])
        lines.append(Line(f"mode {k}, descent", times, modes[:, k]))
        lines.append(Line(f"mode {k}, closed form", times, values, "prediction"))
    caption = f"Balanced start of size {start:g}; step {RISING:g}."
    return Figure("saddle-to-saddle", "Modes rise one after the other", "time", "mode", tuple(lines), caption)


def rank(lab: Lab) -> Figure:
    lab.progress("missing rank")
    cases = {"full rank": (4, MODES), "rank d - 1": (4, (0.05, 0.03, 0.0)), "m = d - 1": (2, MODES)}
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
    problem = prescribed_spectrum(4, MODES, 5.0, 11)
    start, kernel = random_point(problem, 8 + lab.seed), eigenbasis(problem).kernel
    times, lines = np.geomspace(1.0, 1e7, 60), []
    for label, begin in (("any start", start), ("no kernel part", start - kernel @ (kernel.T @ start))):
        values = RiccatiFlow(problem, begin).log_excess(times)
        lines.append(Line(label, times[values < 0], -values[values < 0]))
    title, caption = "The flow's excess, from its closed form", "The excess itself leaves float64 at -log excess = 745."
    return Figure("closed-form", title, "time", "- log excess", tuple(lines), caption, "log", "log")


STUDIES = (
    Study(
        "attention-rates",
        "Rates of preconditioned descent on attention regression",
        claims=(exact_factor, covariance_free, guaranteed_step, one_point_convexity, lemma4_on_samples),
        exhibits=(geometries, gauges, perturbed, random_start),
        definitions=DEFINITIONS
        | {
            "excess": "L - m sigma^2, the population loss above its minimum",
            "factor": "what the distance to the minima is multiplied by per step; the excess by its square",
            "condition": "condition number of the covariance",
            "gauge": GAUGE_WORD,
            "epsilon": "norm of the direction used minus that of the population, in the norm of the geometry: gradient, regulariser and preconditioner alike",
            "covariance error": "|Sigma^(1/2) S^-1 Sigma^(1/2) - 1|, S the covariance of the samples",
            "recursion": "dist^2 after a step <= (1 - step alpha + 2 step^2 beta^2) dist^2 + (step/alpha + 2 step^2) epsilon^2",
        },
    ),
    Study(
        "attention-landscape",
        "Saddles, rank and far times of attention regression",
        claims=(landscape, saddle_to_saddle, deficient, tails),
        exhibits=(saddles, rank, far),
        definitions=DEFINITIONS
        | {
            "excess": "L - m sigma^2, the population loss above its minimum",
            "mode": "u v, the part of U Sigma V along a singular pair of A Sigma^(1/2); it ends at the singular value s",
        },
    ),
)
