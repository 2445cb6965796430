"""The scaling law: what training settles at, with the oracle's gradient, on fixed data and on minibatches, against n."""

from collections.abc import Callable, Iterable

import numpy as np

from ....diagnostics.rates import exponent, paired
from ....exhibits import DEFINITIONS, Figure, Line, Table
from ....lab import Lab, Study, recipe
from ....training.recorders import At
from .. import samples
from ..evidence import layer_of, mean_layer_excess, sampled_oracle_floors, scaling_problem, start_near
from ..setting.context_bias import oracle_shift, sample_floor, spectral_floor
from ..setting.geometry import TwoSided, attraction_radius
from ..setting.problem import AttentionLayer, AttentionRegression
from ..setting.sample import GAUGE, AttentionSample, draw_sample, prescribed_spectrum, spectral_layer
from ..training.algorithm1 import train_attention
from ..training.rules import PreconditionedDescent
from ..training.sources import AbstractSource, FullSample, Minibatch, Oracle, Population

WIDER = (0.2, 0.17, 0.14)  # beyond A3, so that v_ctx is far from its leading term
GRID = (0, 5, 10, 20, 40)
SIGNS = {"R = 1": 1.0, "mode 1 flipped": -1.0}  # the two gauges of the starts
Floors = dict[int, np.ndarray]  # n, or B -> the excess of every run
Rows = dict[tuple[str, str], list[float]]  # n and gauge -> mean excess at the steps of the grid


def flipped(problem: AttentionRegression, sign: float = -1.0) -> np.ndarray:
    """The gauge identity with the sign of mode 1 chosen the other way (or, with sign 1, as it is)."""
    return np.diag([sign, *np.ones(problem.inputs - 1)])


def perturbed_start(problem: AttentionRegression, rotation: np.ndarray | None = None) -> AttentionLayer:
    """A point at two-sided distance r_0 from the minimum with a gauge (the identity), in a fixed normal direction."""
    return layer_of(problem, start_near(problem, attraction_radius(problem, TwoSided()), 21, rotation))


def two_terms(problem: AttentionRegression, count: int, gauge: str | np.ndarray = "identity") -> float:
    """v/n + b_2/n^2 in a gauge."""
    return sample_floor(problem) / count + oracle_shift(problem, gauge).excess / count**2


@recipe
def grid_rows(lab: Lab) -> Rows:
    """Mean excess after T steps on n samples, from a start at distance r_0 in each of the two gauges."""
    problem, rule = scaling_problem(lab, 1e-3), PreconditionedDescent("two_sided", 5.0)
    sources: dict[str, list[AbstractSource]] = {"infinity": [Population(problem)]}
    for count, sets in ((200, 20), (800, 10), (3200, 5)) if lab.full else ((200, 5), (800, 5)):
        draws = (draw_sample(problem, count, np.random.default_rng([50 + k, lab.seed])) for k in range(sets))
        sources[str(count)] = [FullSample(sample) for sample in draws]
    rows: Rows = {}
    for count, those in sources.items():
        lab.progress(f"n = {count}, {len(those)} runs from each of two starts at distance r_0")
        for name, sign in SIGNS.items():
            start, recorder = perturbed_start(problem, flipped(problem, sign)), At(GRID)
            go = lambda source, start=start, recorder=recorder: train_attention(
                source, rule, start, steps=GRID[-1], recorder=recorder, truth=problem
            )
            runs = [go(source) for source in those]
            rows[count, name] = [float(np.mean([run.excess_at(step) for run in runs])) for step in GRID]
    return rows


def grid_figure(rows: Rows, problem: AttentionRegression) -> Figure:
    """The rows of the gauge identity, with v/n + b_2/n^2."""
    shown = {count: values for (count, name), values in rows.items() if name == next(iter(SIGNS))}
    lines = [Line(f"n = {count}", np.array(GRID, float), np.array(values)) for count, values in shown.items()]
    for count in filter(str.isdigit, shown):
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


def grid(lab: Lab) -> tuple[Figure, Table]:
    rows, problem = grid_rows(lab), scaling_problem(lab, 1e-3)
    return grid_figure(rows, problem), grid_table(rows, problem)


def oracle_law(problem: AttentionRegression, counts: Iterable[int], gauge: str, sample_balance: bool = True) -> Floors:
    """Floors with the first-order surrogate of the oracle's gradient: deterministic, one each."""
    rule, start = PreconditionedDescent(), spectral_layer(problem, gauge)

    def settle(count: int) -> np.ndarray:
        source = Oracle(problem, count, sample_balance=sample_balance)
        return train_attention(source, rule, start, steps=300, recorder=At(()), truth=problem).excess[-1:]

    return {count: settle(count) for count in counts}


def fixed_data_law(
    problem: AttentionRegression, plan: dict[int, int], steps: int, seed: int = 0
) -> tuple[Floors, Floors]:
    """Excess after spectral start and training, for `plan[n]` data sets of each size n; and that of the spectral start alone."""

    def settle(sample: AttentionSample) -> np.ndarray:
        start, rule = spectral_layer(sample.estimated), PreconditionedDescent()
        run = train_attention(FullSample(sample), rule, start, steps=steps, recorder=At(()), truth=problem)
        return run.excess[[-1, 0]]

    rngs = {n: np.random.default_rng([1000 + n, seed]) for n in plan}
    found = {n: np.array([settle(draw_sample(problem, n, rngs[n])) for _ in range(sets)]) for n, sets in plan.items()}
    return {n: pairs[:, 0] for n, pairs in found.items()}, {n: pairs[:, 1] for n, pairs in found.items()}


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
def _fixed(lab: Lab) -> tuple[Floors, Floors]:
    plan = {100: 120, 200: 80, 400: 60, 800: 30} if lab.full else {100: 60, 200: 30, 400: 16}
    lab.progress(f"fixed data, {sum(plan.values())} data sets")
    return fixed_data_law(scaling_problem(lab), plan, 80 if lab.full else 40, lab.seed)


@recipe
def _measured(lab: Lab) -> dict[str, tuple[Floors, str, Callable[[int], float]]]:
    """Floors by kind of gradient, in the gauge minus where that counts; the law of each, and its value at n or B."""
    problem, gauge = scaling_problem(lab), "minus"
    both, loss = (oracle_shift(problem, gauge, sample_balance=balance).excess for balance in (True, False))
    draws = (
        {50: (16, 8), 100: (16, 8), 200: (16, 6), 400: (8, 6)} if lab.full else {50: (8, 4), 100: (8, 4), 200: (8, 3)}
    )
    lab.progress(f"oracle by fresh samples, {sum(runs for _, runs in draws.values())} runs")
    sampled = {n: sampled_oracle_floors(lab, n, *plan, gauge, lab.seed) for n, plan in draws.items()}
    batches, count = ({50: 12, 100: 12, 200: 12, 400: 8}, 20_000) if lab.full else ({50: 6, 200: 6}, 4000)
    lab.progress(f"minibatches, {sum(batches.values())} runs")
    mini, spread = minibatch_floors(problem, batches, count, gauge, lab.seed), sample_floor(problem) / count
    oracle = oracle_law(problem, (100, 200, 400, 800, 1600, 3200), gauge)
    return {
        "oracle, first order": (oracle, "b_2/n^2", lambda n: both / n**2),
        "oracle, sampled": (sampled, "b_2/n^2, loss alone", lambda n: loss / n**2),
        "fixed data": (_fixed(lab)[0], "v/n + b_2/n^2", lambda n: two_terms(problem, n)),
        "minibatch": (mini, "v/n + b_2/B^2", lambda size: spread + loss / size**2),
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
            error = f"{one.std(ddof=1) / np.sqrt(len(one)):.2g}" if len(one) > 1 else "exact"
            rows.append((name, n, f"{one.mean():.4g}", error, f"{levels[n]:.4g}"))
        if name == "oracle, first order":
            slope = law_slope({n: float(one[0]) for n, one in found.items()})
            cells.append((name, f"{slope:.4f}", "deterministic", law, f"{law_slope(levels):.3f}"))
            continue
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


def value_table(problem: AttentionRegression, start: Floors, trained: Floors) -> Table:
    """What training after the spectral start is worth: the paired change of the excess at each n."""
    leading, bias, rows = sample_floor(problem) - spectral_floor(problem), oracle_shift(problem).excess, []
    for n, one in trained.items():
        change = paired(start[n], one)
        shown = f"{change.centre:.3g} [{change.low:.3g}, {change.high:.3g}]"
        expected = f"{leading / n + bias / n**2:.3g}"
        rows.append((n, f"{start[n].mean():.4g}", f"{one.mean():.4g}", shown, expected))
    columns = ("n", "excess of the start", "after training", "paired change, 95 %", "(v - v_spec)/n + b_2/n^2")
    text = (
        "Mean over data sets; the change is that of each data set, so that the luck it shares with its start drops out."
    )
    return Table("value", "What training after the spectral start is worth", columns, tuple(rows), text)


def value(lab: Lab) -> Table:
    trained, start = _fixed(lab)
    return value_table(scaling_problem(lab), start, trained)


def wider(lab: Lab) -> Table:
    """Larger sizes: n times the excess on fixed data after 25 steps, and v + b_2/n."""
    problem, rows = prescribed_spectrum(4, WIDER, 5.0, 11), []
    lab.progress("fixed data, sizes .2, .17, .14")
    for count, sets in ((200, 60), (400, 60), (800, 30)) if lab.full else ((200, 24),):
        found = samples.fixed_data_floor(lab, WIDER, count, sets, 25, lab.seed)
        rows.append((count, f"{found.mean:.4g}", f"{found.error:.2g}", f"{count * two_terms(problem, count):.4g}"))
    columns = ("n", "n excess after 25 steps", "standard error", "v + b_2/n")
    text = "Spectral start, noise-free targets; the sizes are beyond Assumption 3. n = 400 and 800 only with --full."
    return Table("wider", "Fixed data at sizes .2, .17, .14", columns, tuple(rows), text)


WORDS = {
    **DEFINITIONS,
    "excess": "population loss above its infimum",
    "oracle, first order": "descent with the surrogate grad(L + (B_1 + R_1)/n) of the expected gradient over fresh samples of size n; nothing is sampled",
    "oracle, sampled": "descent with the mean gradient of fresh samples of size n, drawn anew at every step; population regulariser; excess of the mean late layer",
    "fixed data": "descent on all n samples of one data set, from its spectral start",
    "minibatch": "descent on batches of size B of a data set of its own, attending within the batch; excess of the mean late layer",
    "gauge": GAUGE,
    "interval": "95 % Student interval of the exponent, from the scatter of the log means",
}
STUDIES = (
    Study(
        "attention-scaling-law",
        "The scaling law of attention regression",
        claims=(
            *(samples.oracle_bound, samples.oracle_floor, samples.sample_floor_law, samples.training_raises),
            *(samples.minibatch_law, samples.full_keys),
        ),
        exhibits=(grid, floors, value, wider),
        definitions=WORDS,
    ),
)
