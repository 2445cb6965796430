"""The scaling law: what training settles at, with the oracle's gradient, on fixed data and on minibatches, against n."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ..diagnostics.scaling import Exponent, exponent
from ..optimisers.preconditioned import PreconditionedDescent
from ..settings.attention_curvature import attraction_radius, balanced_point
from ..settings.attention_geometry import TwoSided
from ..settings.attention_regression import AttentionLayer, AttentionRegression
from ..settings.attention_sample import AttentionSample, draw_sample, spectral_layer
from ..settings.context_bias import oracle_shift, sample_floor, spectral_floor
from ..theorems.attention_context_claims import scaling_problem
from ..theorems.attention_regression import GOEL, PAPER, asymptotic_factor
from ..training.algorithm1 import AttentionRun, train_attention
from ..training.attention_sources import FullSample, Minibatch, Oracle, Population
from ..training.recorders import At, Every
from ..verdict import Outcome, Verdict, all_of, at_least, at_most, close
from .attention_words import GAUGE
from .base import DEFINITIONS, Figure, Finding, Line, Result, Study, Table

GRID = (0, 5, 10, 20, 40)
STEP = 5.0
OURS = f"derived here, for {GOEL}"
WORDS = {
    **DEFINITIONS,
    "excess": "population loss above its infimum",
    "oracle": "descent with the first-order surrogate grad(L + (B_1 + R_1)/n) of the expected gradient over fresh samples of size n; nothing is sampled",
    "fixed data": "descent on all n samples of one data set, from its spectral start",
    "minibatch": "descent on batches of size B that attend within the batch; excess of the mean late layer",
    "gauge": GAUGE,
    "interval": "95 % of the exponents of resampled data sets",
}


def perturbed_start(problem: AttentionRegression) -> AttentionLayer:
    """A point at two-sided distance r_0 from the minimum with gauge 1, in a fixed normal direction."""
    direction = np.random.default_rng(21).standard_normal((problem.outputs + problem.inputs, problem.inputs))
    radius = attraction_radius(problem, TwoSided())
    moved = balanced_point(problem) + radius * direction / np.linalg.norm(direction)
    return problem.unwhiten(jnp.asarray(moved))


def _means(runs: list[AttentionRun]) -> list[float]:
    return [float(np.mean([run.excess_at(step) for run in runs])) for step in GRID]


def _grid(problem: AttentionRegression, full: bool, progress: Callable[[str], None]) -> dict[str, list[float]]:
    """Mean excess after T steps on n samples, from a start at distance r_0."""
    start, rule = perturbed_start(problem), PreconditionedDescent("two_sided", STEP)
    go = lambda source: train_attention(source, rule, start, steps=GRID[-1], recorder=At(GRID), truth=problem)
    rows = {"infinity": _means([go(Population(problem))])}
    for count, sets in ((200, 20), (800, 10), (3200, 5)) if full else ((200, 5), (800, 5)):
        progress(f"n = {count}, {sets} data sets, start at distance r_0")
        samples = [draw_sample(problem, count, np.random.default_rng(50 + k)) for k in range(sets)]
        rows[str(count)] = _means([go(FullSample(sample)) for sample in samples])
    return rows


def oracle_law(problem: AttentionRegression, counts: tuple[int, ...], gauge: str) -> dict[int, float]:
    """Floors with the oracle's gradient: deterministic."""
    rule, start = PreconditionedDescent(), spectral_layer(problem, gauge)
    settle = lambda n: train_attention(Oracle(problem, n), rule, start, steps=300, recorder=At(()), truth=problem)
    return {n: float(settle(n).excess[-1]) for n in counts}


def fixed_data_law(problem: AttentionRegression, plan: dict[int, int], steps: int) -> dict[int, np.ndarray]:
    """Excess after spectral start and training, for `plan[n]` data sets of each size n."""

    def settle(sample: AttentionSample) -> float:
        rule, start = PreconditionedDescent(), spectral_layer(sample.estimated)
        return float(
            train_attention(FullSample(sample), rule, start, steps=steps, recorder=At(()), truth=problem).excess[-1]
        )

    rngs = {n: np.random.default_rng(1000 + n) for n in plan}
    return {n: np.array([settle(draw_sample(problem, n, rngs[n])) for _ in range(sets)]) for n, sets in plan.items()}


def minibatch_law(problem: AttentionRegression, plan: dict[int, int], count: int, gauge: str) -> dict[int, np.ndarray]:
    """Excess of the mean layer over the second half of minibatch runs, `plan[B]` runs for each batch size B."""
    steps, rule = 800, PreconditionedDescent("two_sided", 0.5)
    sample = draw_sample(problem, count, np.random.default_rng(4))
    start = spectral_layer(sample.estimated, gauge)

    def settle(batch: int, seed: int) -> float:
        source = Minibatch(sample, batch, seed=seed)
        run = train_attention(source, rule, start, steps=steps, recorder=Every(5), truth=problem)
        late = run.steps >= steps // 2
        return float(problem.excess(AttentionLayer(run.value[late].mean(axis=0), run.key_query[late].mean(axis=0))))

    return {batch: np.array([settle(batch, 7 + k) for k in range(runs)]) for batch, runs in plan.items()}


class _Floors(eqx.Module):
    """Measured floors by n (or batch size), and the constants b_2 that predict them: with and without the bias of the regulariser."""

    problem: AttentionRegression
    oracle: dict[int, float]
    fixed: dict[int, np.ndarray]
    mini: dict[int, np.ndarray]
    oracle_constant: float
    batch_constant: float

    def two_terms(self) -> np.ndarray:
        """v/n + b_2/n^2 at each n of the fixed data."""
        return np.array([_two_terms(self.problem, count) for count in self.fixed])

    def two_terms_off(self) -> tuple[float, float]:
        """|measured/predicted - 1| on fixed data with its standard error, at the n where their sum is largest."""
        gaps = [
            (abs(float(one.mean()) / level - 1), float(one.std(ddof=1)) / np.sqrt(len(one)) / level)
            for one, level in zip(self.fixed.values(), self.two_terms(), strict=True)
        ]
        return max(gaps, key=sum)

    def batch_off(self) -> float:
        """Largest relative deviation of B^2 times the mean floor from b_2."""
        return max(abs(float(one.mean()) * size**2 / self.batch_constant - 1) for size, one in self.mini.items())

    def oracle_slope(self) -> float:
        counts = np.array(list(self.oracle), float)
        return float(np.polyfit(np.log(counts), np.log(list(self.oracle.values())), 1)[0])


def _measure(full: bool, progress: Callable[[str], None]) -> _Floors:
    problem, gauge = scaling_problem(), "minus"
    progress("oracle gradients")
    oracle = oracle_law(problem, (100, 200, 400, 800, 1600, 3200), gauge)
    plan = {100: 120, 200: 80, 400: 60, 800: 30} if full else {100: 40, 200: 30, 400: 16}
    progress(f"fixed data, {sum(plan.values())} data sets")
    fixed = fixed_data_law(problem, plan, 80 if full else 40)
    batches = {50: 6, 100: 6, 200: 6, 400: 4} if full else {50: 3, 200: 3}
    progress(f"minibatches, {sum(batches.values())} runs")
    mini = minibatch_law(problem, batches, 20_000 if full else 4000, gauge)
    constants = (oracle_shift(problem, gauge, sample_balance=balance).excess for balance in (True, False))
    return _Floors(problem, oracle, fixed, mini, *constants)


def _interval(found: Exponent, low: float, high: float, what: str) -> Verdict:
    """Whether the interval of an exponent meets [low, high]."""
    gap = max(found.low - high, low - found.high, 0.0)
    return at_most(gap, 0.0, f"{what}, exponent {found}: distance of its interval to [{low:g}, {high:g}]")


def within(gap: float, error: float, bound: float, what: str) -> Verdict:
    """Confirmed if a gap plus its standard error is at most the bound, refuted if it is above by two of them, undecided between."""
    text = f"{what} = {gap:.3g} ± {error:.2g} against {bound:g}"
    if gap + error <= bound:
        return Verdict(Outcome.confirmed, text, bound, gap)
    return Verdict(Outcome.refuted if gap - 2 * error > bound else Outcome.undecided, text, bound, gap)


def _findings(rows: dict[str, list[float]], floors: _Floors, fixed: Exponent, mini: Exponent) -> tuple[Finding, ...]:
    problem = floors.problem
    contraction = (rows["infinity"][4] / rows["infinity"][3]) ** (1 / (GRID[4] - GRID[3]))
    rho = asymptotic_factor(problem, TwoSided(), STEP)
    return (
        Finding(
            "Before the floor the excess contracts by rho^2 per step.",
            close(contraction, rho**2, 2e-3, "excess factor per step, n infinite, steps 20 to 40"),
            OURS,
        ),
        Finding(
            "Theorem 2: with the oracle's gradient the floor is O(1/n).",
            at_most(floors.oracle_slope(), -1.0, "exponent of the oracle's floor"),
            GOEL,
        ),
        Finding(
            "It is b_2/n^2: the theorem's 1/n is a loose bound.",
            close(floors.oracle[3200] * 3200**2, floors.oracle_constant, 0.02, "n^2 floor at n = 3200 against b_2"),
            OURS,
        ),
        Finding(
            "On fixed data the floor is v/n + b_2/n^2, an exponent between -2 and -1.",
            _interval(fixed, -2.0, -1.0, "fixed data"),
            OURS,
        ),
        Finding(
            "The two-term law predicts it to 35 %.",
            within(*floors.two_terms_off(), 0.35, "largest |measured/predicted - 1|"),
            OURS,
        ),
        Finding(
            "Attention within minibatches has the floor b_2/B^2.",
            all_of(
                _interval(mini, -2.1, -1.9, "minibatches"),
                at_most(floors.batch_off(), 0.25, "largest |B^2 floor / b_2 - 1|"),
            ),
            OURS,
        ),
        Finding(
            "Training after the spectral start does not improve the leading term.",
            at_least(sample_floor(problem) / spectral_floor(problem), 1.0, "v / v_spec"),
            OURS,
        ),
    )


def scaling_law(seed: int, full: bool, progress: Callable[[str], None]) -> Result:
    noisy = scaling_problem(1e-3)
    rows = _grid(noisy, full, progress)
    floors = _measure(full, progress)
    fixed, mini = exponent(floors.fixed, seed=seed), exponent(floors.mini, seed=seed)
    text = lambda found: (f"{found.slope:.3f}", f"[{found.low:.3f}, {found.high:.3f}]")
    fitted = (
        ("oracle", f"{floors.oracle_slope():.4f}", "deterministic", "b_2/n^2"),
        ("fixed data", *text(fixed), "v/n + b_2/n^2"),
        ("minibatch", *text(mini), "b_2/B^2"),
    )
    exponents = Table(
        "exponents",
        "Fitted exponents",
        ("gradient", "exponent", "interval", "law"),
        fitted,
        "At small n the second term steepens the law of fixed data; the interval of the minibatches is over their draws, on one data set.",
    )
    figures = (_grid_figure(rows, noisy), _floor_figure(floors))
    tables = (_grid_table(rows, noisy), _floor_table(floors), exponents)
    return Result(_findings(rows, floors, fixed, mini), figures, tables, {}, WORDS)


def _two_terms(problem: AttentionRegression, count: int) -> float:
    """v/n + b_2/n^2, in the gauge identity."""
    return sample_floor(problem) / count + oracle_shift(problem).excess / count**2


def _grid_figure(rows: dict[str, list[float]], problem: AttentionRegression) -> Figure:
    lines = [Line(f"n = {count}", np.array(GRID, float), np.array(values)) for count, values in rows.items()]
    for count in rows:
        if count != "infinity":
            level = _two_terms(problem, int(count))
            lines.append(
                Line(f"v/n + b_2/n^2, n = {count}", np.array([0.0, GRID[-1]]), np.full(2, level), "prediction")
            )
    caption = "Two-sided descent with step 5 from distance r_0, mean over data sets."
    return Figure(
        "grid", "Contraction, then the floor of the data", "step", "excess", tuple(lines), caption, "linear", "log"
    )


def _grid_table(rows: dict[str, list[float]], problem: AttentionRegression) -> Table:
    def row(count: str, values: list[float]) -> tuple:
        level = 0.0 if count == "infinity" else _two_terms(problem, int(count))
        return (count, *(f"{value:.4g}" for value in values), f"{level:.3g}")

    columns = ("n", *(f"step {step}" for step in GRID), "v/n + b_2/n^2")
    cells = tuple(row(count, values) for count, values in rows.items())
    return Table(
        "grid", "Excess after T steps on n samples", columns, cells, "Start at distance r_0, noise variance 1e-3."
    )


def _floor_figure(floors: _Floors) -> Figure:
    array = lambda values: np.array(list(values), float)
    means = lambda values: np.array([float(one.mean()) for one in values.values()])
    oracle, fixed, mini = array(floors.oracle), array(floors.fixed), array(floors.mini)
    lines = (
        Line("oracle", oracle, array(floors.oracle.values()), "points"),
        Line("b_2/n^2", oracle, floors.oracle_constant / oracle**2, "prediction"),
        Line("fixed data", fixed, means(floors.fixed), "points"),
        Line("v/n + b_2/n^2", fixed, floors.two_terms(), "prediction"),
        Line("minibatch (size B)", mini, means(floors.mini), "points"),
        Line("b_2/B^2", mini, floors.batch_constant / mini**2, "prediction"),
    )
    return Figure("floors", "What training settles at", "n or B", "excess", lines, "Noise-free targets.", "log", "log")


def _floor_table(floors: _Floors) -> Table:
    error = lambda one: f"{one.std(ddof=1) / np.sqrt(len(one)):.2g}"
    rows = [
        ("oracle", n, f"{value:.4g}", "exact", f"{floors.oracle_constant / n**2:.4g}")
        for n, value in floors.oracle.items()
    ]
    for (n, one), level in zip(floors.fixed.items(), floors.two_terms(), strict=True):
        rows.append(("fixed data", n, f"{one.mean():.4g}", error(one), f"{level:.4g}"))
    for size, one in floors.mini.items():
        rows.append(("minibatch", size, f"{one.mean():.4g}", error(one), f"{floors.batch_constant / size**2:.4g}"))
    columns = ("gradient", "n or B", "excess", "standard error", "prediction")
    return Table("floors", "Floors and predictions", columns, tuple(rows), "Oracle and minibatches in the gauge minus.")


STUDY = Study("attention-scaling-law", "The scaling law of attention regression", PAPER, scaling_law)
