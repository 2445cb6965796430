"""What training settles at, measured: with the oracle's gradient, on fixed data, on minibatches; and whether that is what a law says."""

from collections.abc import Iterable

import numpy as np

from ....diagnostics.paired import paired
from ....diagnostics.scaling import Exponent
from ....exhibits import Table
from ....lab import Lab, recipe
from ....training.recorders import At
from ....verdict import Outcome, Verdict, at_most, covers
from ..oracle import mean_layer_excess
from ..samples import fixed_data_floor
from ..setting.context_bias import oracle_shift, sample_floor, spectral_floor
from ..setting.generators import prescribed_spectrum
from ..setting.problem import AttentionRegression
from ..setting.sample import AttentionSample, draw_sample, spectral_layer
from ..starts import start_excesses
from ..training.algorithm1 import train_attention
from ..training.preconditioned import PreconditionedDescent
from ..training.sources import FullSample, Minibatch, Oracle

_STARTS = 5000  # spectral starts behind a mean
WIDER = (0.2, 0.17, 0.14)  # beyond A3, so that v_ctx is far from its leading term


def oracle_law(
    problem: AttentionRegression, counts: Iterable[int], gauge: str, sample_balance: bool = True
) -> dict[int, float]:
    """Floors with the first-order surrogate of the oracle's gradient: deterministic."""
    rule, start = PreconditionedDescent(), spectral_layer(problem, gauge)

    def settle(count: int) -> float:
        source = Oracle(problem, count, sample_balance=sample_balance)
        return float(train_attention(source, rule, start, steps=300, recorder=At(()), truth=problem).excess[-1])

    return {count: settle(count) for count in counts}


def fixed_data_law(
    problem: AttentionRegression, plan: dict[int, int], steps: int, seed: int = 0
) -> tuple[dict[int, np.ndarray], dict[int, np.ndarray]]:
    """Excess after spectral start and training, for `plan[n]` data sets of each size n; and that of the spectral start alone."""

    def settle(sample: AttentionSample) -> np.ndarray:
        start, rule = spectral_layer(sample.estimated), PreconditionedDescent()
        run = train_attention(FullSample(sample), rule, start, steps=steps, recorder=At(()), truth=problem)
        return run.excess[[-1, 0]]

    rngs = {n: np.random.default_rng([1000 + n, seed]) for n in plan}
    found = {n: np.array([settle(draw_sample(problem, n, rngs[n])) for _ in range(sets)]) for n, sets in plan.items()}
    return {n: pairs[:, 0] for n, pairs in found.items()}, {n: pairs[:, 1] for n, pairs in found.items()}


def controlled(
    problem: AttentionRegression, trained: dict[int, np.ndarray], start: dict[int, np.ndarray]
) -> dict[int, np.ndarray]:
    """The trained excesses with the scatter of their own spectral starts replaced by the mean of many: same mean, less noise."""
    return {n: one - start[n] + start_excesses(problem, n, _STARTS).mean() for n, one in trained.items()}


def minibatch_law(
    problem: AttentionRegression, plan: dict[int, int], count: int, gauge: str, seed: int = 0
) -> dict[int, np.ndarray]:
    """Excess of the mean late layer of minibatch runs, `plan[B]` runs for each batch size B, each on a data set of its own."""
    rule = PreconditionedDescent("two_sided", 0.5)

    def settle(batch: int, run: int) -> float:
        sample = draw_sample(problem, count, np.random.default_rng([4, batch, run, seed]))
        start = spectral_layer(sample.estimated, gauge)
        return mean_layer_excess(problem, Minibatch(sample, batch, seed=7 + run + 1000 * seed), rule, start, 800)

    return {batch: np.array([settle(batch, k) for k in range(runs)]) for batch, runs in plan.items()}


@recipe
def wider_floors(lab: Lab, plan: tuple[tuple[int, int], ...], seed: int = 0) -> tuple[tuple, ...]:
    """Larger sizes: n, n times the excess on fixed data after 25 steps with its error, and v + b_2/n."""
    problem, rows = prescribed_spectrum(4, WIDER, 5.0, 11), []
    for count, sets in plan:
        found = fixed_data_floor(lab, WIDER, count, sets, 25, seed)
        rows.append((count, found.mean, found.error, sample_floor(problem) + oracle_shift(problem).excess / count))
    return tuple(rows)


def has_exponent(found: Exponent, value: float, what: str, rival: float) -> Verdict:
    """Confirmed if the 95 % interval holds the exponent of a law and could not hold the rival's too; refuted outside the 99.9 % interval."""
    verdict = covers(found, value, f"{what}, exponent {found.slope:.4f}", rival=rival)
    low, high = found.interval(0.999)
    if verdict.outcome is Outcome.refuted and low <= value <= high:
        text = f"{verdict.inequality}, in the 99.9 % interval [{low:.4g}, {high:.4g}]"
        return Verdict(Outcome.undecided, text, value, found.slope)
    return verdict


def near_law(found: dict[int, np.ndarray], levels: np.ndarray, what: str) -> Verdict:
    """Whether every mean floor is within 10 % of its law, plus two standard errors."""
    errors = [float(one.std(ddof=1)) / np.sqrt(len(one)) for one in found.values()]
    gaps = [
        max(abs(float(one.mean()) - level) - 2 * error, 0.0) / level
        for one, error, level in zip(found.values(), errors, levels, strict=True)
    ]
    return at_most(max(gaps), 0.1, f"{what}: largest |floor/law - 1| beyond two standard errors")


def law_slope(sizes: Iterable[int], levels: np.ndarray) -> float:
    """The exponent that a law of several terms has over these sizes."""
    return float(np.polyfit(np.log(np.array(list(sizes), float)), np.log(levels), 1)[0])


def within(gap: float, error: float, bound: float, what: str, detail: str = "") -> Verdict:
    """Confirmed if a gap plus its standard error is at most the bound, refuted if it is above by two of them, undecided between."""
    text = f"{what} = {gap:.3g} ± {error:.2g} against {bound:g}"
    if gap + error <= bound:
        return Verdict(Outcome.confirmed, text, bound, gap, detail)
    return Verdict(Outcome.refuted if gap - 2 * error > bound else Outcome.undecided, text, bound, gap, detail)


def ratios(found: dict[int, np.ndarray], levels: np.ndarray) -> dict[int, tuple[float, float]]:
    """Mean floor over its law, with its standard error, at each n."""
    error = lambda one: float(one.std(ddof=1)) / np.sqrt(len(one))
    pairs = zip(found.items(), levels, strict=True)
    return {n: (float(one.mean()) / level, error(one) / level) for (n, one), level in pairs}


def value_table(
    problem: AttentionRegression, start: dict[int, np.ndarray], trained: dict[int, np.ndarray]
) -> tuple[Table, Verdict]:
    """What training after the spectral start is worth: the paired change of the excess at each n, and whether it is the predicted one at the smallest."""
    leading, bias = sample_floor(problem) - spectral_floor(problem), oracle_shift(problem).excess
    found = {n: paired(start[n], trained[n]) for n in trained}
    expected = {n: leading / n + bias / n**2 for n in trained}
    rows = tuple(
        (
            n,
            f"{start[n].mean():.4g}",
            f"{trained[n].mean():.4g}",
            f"{one.mean:.3g} [{one.low:.3g}, {one.high:.3g}]",
            f"{expected[n]:.3g}",
        )
        for n, one in found.items()
    )
    columns = ("n", "excess of the start", "after training", "paired change, 95 %", "(v - v_spec)/n + b_2/n^2")
    caption = (
        "Mean over data sets; the change is that of each data set, so that the luck it shares with its start drops out."
    )
    least = min(found)
    verdict = covers(found[least], expected[least], f"paired change of the excess at n = {least}", rival=0.0)
    return Table("value", "What training after the spectral start is worth", columns, rows, caption), verdict
