"""The grid of the scaling law: mean excess after T steps on n samples, from starts at distance r_0 that differ in a sign."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

from ....exhibits import Figure, Line, Table
from ....training.recorders import At
from ..setting.context_bias import oracle_shift, sample_floor
from ..setting.curvature import attraction_radius, balanced_point
from ..setting.geometry import TwoSided
from ..setting.problem import AttentionLayer, AttentionRegression
from ..setting.sample import draw_sample
from ..training.algorithm1 import AttentionRun, train_attention
from ..training.preconditioned import PreconditionedDescent
from ..training.sources import AbstractSource, FullSample, Population

GRID = (0, 5, 10, 20, 40)
STEP = 5.0
SIGNS = {"R = 1": 1.0, "mode 1 flipped": -1.0}  # the two gauges of the starts
Rows = dict[tuple[str, str], list[float]]  # n and gauge -> mean excess at the steps of the grid


def flipped(problem: AttentionRegression, sign: float = -1.0) -> np.ndarray:
    """The gauge identity with the sign of mode 1 chosen the other way (or, with sign 1, as it is)."""
    return np.diag([sign, *np.ones(problem.inputs - 1)])


def perturbed_start(problem: AttentionRegression, rotation: np.ndarray | None = None) -> AttentionLayer:
    """A point at two-sided distance r_0 from the minimum with a gauge (the identity), in a fixed normal direction."""
    direction = np.random.default_rng(21).standard_normal((problem.outputs + problem.inputs, problem.inputs))
    radius = attraction_radius(problem, TwoSided())
    moved = balanced_point(problem, rotation) + radius * direction / np.linalg.norm(direction)
    return problem.unwhiten(jnp.asarray(moved))


def two_terms(problem: AttentionRegression, count: int, gauge: str | np.ndarray = "identity") -> float:
    """v/n + b_2/n^2 in a gauge."""
    return sample_floor(problem) / count + oracle_shift(problem, gauge).excess / count**2


def _means(runs: list[AttentionRun]) -> list[float]:
    return [float(np.mean([run.excess_at(step) for run in runs])) for step in GRID]


def grid(problem: AttentionRegression, full: bool, seed: int, progress: Callable[[str], None]) -> Rows:
    """Mean excess after T steps on n samples, from a start at distance r_0 in each of the two gauges."""
    rule = PreconditionedDescent("two_sided", STEP)
    starts = {name: perturbed_start(problem, flipped(problem, sign)) for name, sign in SIGNS.items()}
    sources: dict[str, list[AbstractSource]] = {"infinity": [Population(problem)]}
    for count, sets in ((200, 20), (800, 10), (3200, 5)) if full else ((200, 5), (800, 5)):
        draws = (draw_sample(problem, count, np.random.default_rng([50 + k, seed])) for k in range(sets))
        sources[str(count)] = [FullSample(sample) for sample in draws]
    rows: Rows = {}
    for count, those in sources.items():
        progress(f"n = {count}, {len(those)} runs from each of two starts at distance r_0")
        for name, start in starts.items():
            go = lambda source, start=start: train_attention(
                source, rule, start, steps=GRID[-1], recorder=At(GRID), truth=problem
            )
            rows[count, name] = _means([go(source) for source in those])
    return rows


def grid_figure(rows: Rows, problem: AttentionRegression) -> Figure:
    """The rows of the gauge identity, with v/n + b_2/n^2."""
    shown = {count: values for (count, name), values in rows.items() if name == next(iter(SIGNS))}
    lines = [Line(f"n = {count}", np.array(GRID, float), np.array(values)) for count, values in shown.items()]
    for count in shown:
        if count.isdigit():
            level = np.full(2, two_terms(problem, int(count)))
            lines.append(Line(f"v/n + b_2/n^2, n = {count}", np.array([0.0, GRID[-1]]), level, "prediction"))
    caption = "Two-sided descent with step 5 from distance r_0 of the gauge identity, mean over data sets."
    title = "Contraction, then the floor of the data"
    return Figure("grid", title, "step", "excess", tuple(lines), caption, "linear", "log")


def grid_table(rows: Rows, problem: AttentionRegression) -> Table:
    """Both gauges, each with its own prediction."""

    def row(count: str, name: str, values: list[float]) -> tuple:
        level = two_terms(problem, int(count), flipped(problem, SIGNS[name])) if count.isdigit() else 0.0
        return (count, name, *(f"{value:.4g}" for value in values), f"{level:.3g}")

    columns = ("n", "gauge of the start", *(f"step {step}" for step in GRID), "v/n + b_2/n^2")
    cells = tuple(row(count, name, values) for (count, name), values in rows.items())
    here, there = (oracle_shift(problem, flipped(problem, sign)).excess for sign in SIGNS.values())
    caption = (
        "Start at distance r_0 from a minimum, noise variance 1e-3. The gauge identity depends on the signs of the singular vectors: "
        f"b_2 = {here:.4g} with the largest entry of each right one positive (R = 1), {there:.4g} with the sign of mode 1 flipped; "
        f"the contraction is the same. {'' if any(n == '3200' for n, _ in rows) else 'Only with --full: n = 3200.'}"
    )
    return Table("grid", "Excess after T steps on n samples", columns, cells, caption)
