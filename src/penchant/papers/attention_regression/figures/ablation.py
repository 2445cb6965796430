"""An ablation: preconditioner x regulariser x keys x step rule, each with the predicted and the measured rate and floor."""

from collections.abc import Callable
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np

from ....exhibits import DEFINITIONS, Figure, Finding, Line, Result, Table
from ....lab import Lab, Study
from ....training.recorders import Every
from ....verdict import Verdict, all_of, at_most, close
from ..context import scaling_problem
from ..oracle import mean_layer_excess
from ..setting.balance import AbstractBalance, Balance, Unregularised
from ..setting.context_bias import oracle_shift, sample_floor
from ..setting.curvature import balanced_point
from ..setting.geometry import GEOMETRIES, AbstractGeometry
from ..setting.problem import AttentionRegression
from ..setting.sample import AttentionSample, draw_sample, spectral_layer
from ..starts import start_excesses
from ..theorems import GOEL
from ..training.population import train_population
from ..training.preconditioned import PreconditionedDescent, safe_step
from ..training.sources import Minibatch
from .words import GAUGE

OURS = f"derived here, for {GOEL}"
BALANCES: dict[str, AbstractBalance] = {"reg": Balance(), "no reg": Unregularised()}
KEYS = ("batch", "full")
COUNT, BATCH, START = 800, 100, "minus"
_STARTS = 5000  # data sets behind the mean excess of the spectral start
WORDS = {
    **DEFINITIONS,
    "gauge": GAUGE,
    "rate": "what the excess is multiplied by per step near the minima, with population gradients",
    "floor": "excess of the mean layer over the second half of training on minibatches from the spectral start; mean over data sets, the excess of each start replaced by its mean over many",
    "keys": "batch: a query attends to its minibatch; full: to the whole sample",
    "reg": "with the regulariser that balances the two factors",
    "two_sided, left, euclidean": "gradient preconditioned by the covariance on both sides, on one side, not at all",
}


def step_rules(problem: AttentionRegression, full: bool) -> dict[str, float | str]:
    """A short constant step, a tenth of the default, and with `full` the adaptive one."""
    found: dict[str, float | str] = {"constant": float(1 / (40 * problem.sizes[0]))}
    return found | ({"adaptive": "adaptive"} if full else {})


def local_factor(
    problem: AttentionRegression, geometry: AbstractGeometry, balance: AbstractBalance, step: float
) -> float:
    """What the excess is multiplied by per step near the minimum of the start's gauge: the slowest direction that the loss sees."""
    point = jnp.asarray(balanced_point(problem, -np.asarray(problem.right).T))

    def direction(flat: jax.Array) -> jax.Array:
        whitened = flat.reshape(point.shape)
        gradient = problem.whitened_gradient(whitened, balance)
        return geometry.whitened_direction(gradient, problem.covariance).ravel()

    values = np.sort(np.linalg.eigvals(np.asarray(jax.jacfwd(direction)(point.ravel()))).real)
    d = problem.inputs
    flat = (
        d * d if isinstance(balance, Unregularised) else d * (d - 1) // 2
    )  # the loss has GL(d) as its gauge, with the regulariser O(d)
    return float(np.abs(1 - step * values[flat:]).max() ** 2)


def measured_factor(problem: AttentionRegression, rule: PreconditionedDescent, predicted: float) -> float:
    """Mean factor of the excess per step over its last decades, with population gradients from very near the minimum."""
    direction = np.random.default_rng(21).standard_normal((problem.outputs + problem.inputs, problem.inputs))
    start = balanced_point(problem, -np.asarray(problem.right).T) + 1e-4 * direction / np.linalg.norm(direction)
    steps = int(np.ceil(np.log(1e-17) / np.log(predicted)))  # from 1e-10 to 1e-27, above rounding
    run = train_population(
        problem, rule, problem.unwhiten(jnp.asarray(start)), steps=steps, recorder=Every(max(1, steps // 200))
    )
    late = run.steps > 0.75 * steps
    return float(np.exp(np.polyfit(run.steps[late], np.log(run.excess[late]), 1)[0]))


def predicted_floor(problem: AttentionRegression, keys: str) -> float:
    """v/n + b_2/B^2 or v/n + b_2/n^2, with the regulariser: without it the bias moves the layer along the minima of the loss without end."""
    if keys == "batch":
        return sample_floor(problem) / COUNT + oracle_shift(problem, START, sample_balance=False).excess / BATCH**2
    return sample_floor(problem) / COUNT + oracle_shift(problem, START).excess / COUNT**2


def _floors(
    problem: AttentionRegression, rule: PreconditionedDescent, keys: str, samples: list[AttentionSample], steps: int
) -> np.ndarray:
    """Floors of all data sets, each less the excess of its spectral start, plus the mean of that over many data sets: same mean, less scatter."""

    def one(sample: AttentionSample) -> float:
        start = spectral_layer(sample.estimated, START)
        found = mean_layer_excess(problem, Minibatch(sample, BATCH, keys=keys), rule, start, steps)
        return found - float(problem.excess(start))

    return np.array([one(sample) for sample in samples]) + float(start_excesses(problem, COUNT, _STARTS).mean())


def _near(found: dict[tuple, np.ndarray], problem: AttentionRegression, keys: str) -> Verdict:
    """Every regularised floor within a factor 1.5 of its prediction, in the mean over data sets."""
    level = predicted_floor(problem, keys)
    gaps = [
        abs(float(np.log(values.mean() / level)))
        for (_, name, kind, _), values in found.items()
        if name == "reg" and kind == keys
    ]
    return at_most(max(gaps), float(np.log(1.5)), f"largest |log(floor/prediction)| with the regulariser, keys {keys}")


def _gain(found: dict[tuple, np.ndarray]) -> Verdict:
    """Keys of the whole sample against keys of the batch, same data and rule."""
    cells = {key for key in found if key[1] == "reg"}
    ratio = lambda key: float(found[key].mean() / found[(*key[:2], "batch", key[3])].mean())
    return at_most(
        max(ratio(key) for key in cells if key[2] == "full"), 0.7, "largest floor with full keys over batch keys"
    )


def _rates(
    problem: AttentionRegression, full: bool, progress: Callable[[str], None]
) -> tuple[dict[tuple, tuple[float, float]], list[Verdict]]:
    found, checks = {}, []
    for geometry, balance, (name, step) in product(GEOMETRIES, BALANCES, step_rules(problem, full).items()):
        progress(f"rate of {geometry}, {balance}, {name} step")
        rule = PreconditionedDescent(geometry, step, BALANCES[balance])
        point = jnp.asarray(balanced_point(problem))
        size = step if isinstance(step, float) else safe_step(problem, rule.geometry, point)
        predicted = local_factor(problem, rule.geometry, rule.balance, size)
        found[geometry, balance, name] = predicted, measured_factor(problem, rule, predicted)
        gap = found[geometry, balance, name]
        checks.append(close(1 - gap[1], 1 - gap[0], 0.005, f"1 - rate, {geometry}, {balance}, {name}"))
    return found, checks


def run(lab: Lab) -> Result:
    """Rates with population gradients, floors on minibatches, side by side."""
    seed, full, progress = lab.seed, lab.full, lab.progress
    problem = scaling_problem(lab, 1e-3)
    rates, kept = _rates(problem, full, progress)
    sets, steps = (16, 2000) if full else (6, 1000)
    samples = [draw_sample(problem, COUNT, np.random.default_rng([seed, 6, k])) for k in range(sets)]
    floors, rows = {}, []
    for geometry, balance, keys, (name, step) in product(GEOMETRIES, BALANCES, KEYS, step_rules(problem, full).items()):
        progress(f"floor of {geometry}, {balance}, keys {keys}, {name} step")
        rule = PreconditionedDescent(geometry, step, BALANCES[balance])
        values = floors[geometry, balance, keys, name] = _floors(problem, rule, keys, samples, steps)
        level = f"{predicted_floor(problem, keys):.3g}" if balance == "reg" else "-"
        error = values.std(ddof=1) / np.sqrt(sets)
        cells = (
            *(f"{rate:.5f}" for rate in rates[geometry, balance, name]),
            level,
            f"{values.mean():.3g} ± {error:.1g}",
        )
        rows.append((geometry, balance, keys, name, *cells))
    caption = (
        f"Sizes (.05, .04, .03), m = 4, condition 5, noise variance 1e-3; n = {COUNT}, B = {BATCH}, {steps} steps, {sets} data sets, gauge {START}. "
        "Without the regulariser no floor is predicted: the bias moves the layer along the minima of the loss. "
        f"{'' if full else 'Only with --full: adaptive steps.'}"
    )
    columns = ("geometry", "regulariser", "keys", "step", "predicted rate", "rate", "predicted floor", "floor")
    table = Table("grid", "Rates and floors, predicted and measured", columns, tuple(rows), caption)
    findings = (
        Finding(
            "The exact rate is that of the slowest direction the loss sees, with and without the regulariser.",
            all_of(*kept),
            OURS,
        ),
        Finding(
            "Keys within batches: the floor is v/n + b_2/B^2 up to a factor 1.5, whatever preconditions.",
            _near(floors, problem, "batch"),
            OURS,
        ),
        Finding(
            "Keys of the whole sample: it is v/n + b_2/n^2 up to a factor 1.5.", _near(floors, problem, "full"), OURS
        ),
        Finding("Keys of the whole sample lower the floor for every preconditioner and step.", _gain(floors), OURS),
    )
    return Result(findings, (_figure(floors, problem),), (table,), {}, WORDS)


def _figure(floors: dict[tuple, np.ndarray], problem: AttentionRegression) -> Figure:
    """Floors of the cells in the order of the table."""
    lines = []
    for balance, keys in product(BALANCES, KEYS):
        cells = [(k, values.mean()) for k, (key, values) in enumerate(floors.items()) if key[1:3] == (balance, keys)]
        places, means = (np.array(part, float) for part in zip(*cells, strict=True))
        lines.append(Line(f"{balance}, keys {keys}", places + 1, means, "points"))
    ends = np.array([1.0, len(floors)])
    lines += [
        Line(f"predicted, reg, keys {keys}", ends, np.full(2, predicted_floor(problem, keys)), "prediction")
        for keys in KEYS
    ]
    return Figure(
        "floors",
        "Floors of the grid",
        "row of the table",
        "excess",
        tuple(lines),
        "Mean over data sets.",
        "linear",
        "log",
    )


STUDIES = (Study("attention-ablation", "Ablation of structure-aware descent on attention regression", run),)
