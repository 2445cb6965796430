"""Attention regression: hypotheses with slack (exact or estimated), prediction and verdict for a problem of the user's own."""

from collections.abc import Iterable

import equinox as eqx
import numpy as np
from jaxtyping import Array

from ...errors import ArgumentError, AssumptionError
from ...theory.base import Family, Hypothesis, Prediction, Rival, Theorem, at_least_zero
from ...verdict import Outcome, Verdict
from .setting.balanced_minima import BalancedMinima, nearest_minimum
from .setting.geometry import AbstractGeometry, TwoSided, attraction_radius, contraction, curvature_range
from .setting.problem import AttentionLayer, AttentionRegression
from .setting.sample import DEVIATIONS, mean_scores, moment_threshold, noise_level
from .training.rules import PreconditionedDescent
from .training.run import AttentionRun

GOEL = "Goel, Soltanolkotabi, Bartlett, Softmax self-attention trained on linear regression, 2026"
_SINGULAR = 1e-14
_FLAT = 1e-12  # relative standard deviation below which a column is constant up to rounding


def kind(samples: int | None) -> str:
    """The exactness of what is computed from the truth, or from an estimate of so many samples."""
    return "exact" if samples is None else "estimated"


def _from(samples: int | None) -> str:
    return "" if samples is None else f"from {samples} samples: "


def _direction(vector: Array | np.ndarray) -> str:
    return f"direction {np.asarray(vector).round(3).tolist()}"


def positive_definite(problem: AttentionRegression, samples: int | None = None) -> Hypothesis:
    """A1: the covariance is positive definite, by the ratio of its extreme eigenvalues."""
    values, vectors = np.linalg.eigh(np.asarray(problem.covariance))
    slack = float(values[0] / values[-1]) - len(values) * _SINGULAR
    detail = f"{_from(samples)}smallest over largest eigenvalue, minus d 1e-14"
    if samples is not None:
        share = float(np.sqrt(len(values) / samples))
        detail += f"; the ratio is good to a factor of 1 ± {2 * share:.2g}, Sigma to {share * values[-1]:.2g} (|Sigma| sqrt(d/n))"
    return Hypothesis("A1_covariance", slack > 0, slack, _direction(vectors[:, 0]), detail, kind(samples))


def full_rank(problem: AttentionRegression, samples: int | None = None) -> Hypothesis:
    """A2: m >= d and A has full column rank, by its smallest size; undecided where the estimate is below its noise."""
    m, d = problem.planted.shape
    if m < d:
        detail = "m - d: A maps to fewer outputs than inputs, so the regulariser cannot vanish exponentially"
        return Hypothesis("A2_full_rank", False, float(m - d), f"m = {m}, d = {d}", detail, "exact")
    smallest, offender = float(problem.sizes[-1]), _direction(problem.right[:, -1])
    if samples is None:
        return Hypothesis("A2_full_rank", problem.rank == d, smallest, offender, "smallest singular value", "exact")
    level = noise_level(problem, samples)
    detail = f"{_from(samples)}smallest singular value minus its noise level {level:.3g}"
    holds = True if smallest > level else None
    return Hypothesis("A2_full_rank", holds, smallest - level, offender, detail, kind(samples))


def finite_moments(
    problem: AttentionRegression, power: float = 2.0, samples: int | None = None, key_norm: float | None = None
) -> Hypothesis:
    """A3(p): s_1 < 1/(4 p^2), so that the p-th moments of the logits are finite on all balanced minima.

    Minima of another scale have |V| = `key_norm` instead of sqrt(s_1), and its square takes the place of s_1.
    """
    top = float(problem.sizes[0]) if key_norm is None else key_norm**2
    slack, symbol = moment_threshold(power) - top, "s_1" if key_norm is None else "|V|^2"
    parts = [f"{_from(samples)}1/(4 p^2) - {symbol} with p = {power:g}"]
    if key_norm is not None:
        parts.append(f"at the scale with |V| = {key_norm:.4g}")
    radius = float(np.sqrt(moment_threshold(power)) - np.sqrt(top))
    near = f"moments stay finite within two-sided distance {radius:.3g} of the minima"
    parts.append(near if radius > 0 else "some moments are infinite on the minima themselves")
    parts.append(f"sharper thresholds: {symbol} < 1/2 {'holds' if top < 0.5 else 'fails'} (first-order bias finite)")
    parts.append(f"{symbol} < 1 {'holds' if top < 1 else 'fails'} (variance of the context finite)")
    holds: bool | None = slack > 0
    if samples is not None and abs(slack) <= noise_level(problem, samples) * top / float(problem.sizes[0]):
        holds = None
    return Hypothesis("A3_moments", holds, slack, _direction(problem.right[:, 0]), "; ".join(parts), kind(samples))


def near_minima(problem: AttentionRegression, layer: AttentionLayer, geometry: AbstractGeometry) -> Hypothesis:
    """The start is within r_0 of the minima, in the norm of the geometry (two-sided for `euclidean`, which has no radius)."""
    norm = TwoSided() if geometry.rows else geometry
    found = nearest_minimum(problem, np.asarray(problem.whiten(layer)), norm)
    radius = attraction_radius(problem, norm)
    unproved = ", of a minimum that is locally nearest, not proved to be the nearest of all" * (not found.proved)
    detail = f"r_0 = {radius:.4g} minus the {norm.name} distance {found.distance:.4g}{unproved}"
    offender = f"component det R = {found.component:+d}"
    # A distance that is only an upper bound decides a failure where even a lower bound is beyond r_0.
    lowest = found.distance if found.proved else _least_distance(problem, layer)
    holds = True if found.distance <= radius else False if lowest > radius else None
    exactness = "exact" if found.proved else "numerical"
    return Hypothesis("initialisation", holds, radius - found.distance, offender, detail, exactness)


def _least_distance(problem: AttentionRegression, layer: AttentionLayer) -> float:
    """A lower bound of the left distance: the two-sided one over the square root of the largest eigenvalue of the covariance."""
    found = nearest_minimum(problem, np.asarray(problem.whiten(layer)), TwoSided())
    return found.distance / float(np.sqrt(problem.spread[-1]))


def expected_gradients(source: str, deviation: float = 0.0) -> Hypothesis:
    """The theorem's oracle: steps use the expected gradient. Any other source is outside of it, by its measured deviation (nan: unknown)."""
    exact = source == "population"
    known = "minus the largest measured deviation of the gradients"
    known = known if np.isfinite(deviation) else "by how much needs the truth"
    detail = "gradients of the population" if exact else f"outside the theorem: {known}"
    return Hypothesis("expected_gradients", exact, -deviation, "" if exact else source, detail, "exact")


def _flat_direction(inputs: np.ndarray, centred: np.ndarray) -> str:
    """A column, or else a combination of columns, that is constant over the sample; empty where there is none."""
    sizes = np.abs(inputs).max(axis=0)
    constant = np.flatnonzero(centred.std(axis=0) <= _FLAT * sizes)
    if len(constant):
        return f"column {int(constant[0])}, which is constant"
    values, vectors = np.linalg.eigh(centred.T @ centred / np.outer(sizes, sizes))
    return "" if values[0] > len(values) * _SINGULAR * values[-1] else f"constant {_direction(vectors[:, 0] / sizes)}"


def _not_normal(n: int, d: int, flat: str) -> Hypothesis:
    """Normal inputs vary in every direction of more than d samples; up to d samples never do, once centred."""
    if n <= d:
        detail = f"{n} samples in {d} dimensions are too few for skewness and kurtosis"
        return Hypothesis("gaussian_inputs", None, float("nan"), flat, detail, "estimated")
    detail = "normal inputs vary in every direction"
    return Hypothesis("gaussian_inputs", False, float("-inf"), flat, detail, "estimated")


def gaussian_inputs(inputs: Array | np.ndarray) -> Hypothesis:
    """Mardia's skewness and kurtosis as z-scores; the worst sample is the one of largest Mahalanobis norm."""
    inputs = np.asarray(inputs, float)
    n, d = inputs.shape
    centred = inputs - inputs.mean(axis=0)
    flat = _flat_direction(inputs, centred)
    if flat:
        return _not_normal(n, d, flat)
    scores = np.linalg.solve(np.linalg.cholesky(centred.T @ centred / n), centred.T).T
    third = np.einsum("ni,nj,nk->ijk", scores, scores, scores, optimize=True) / n
    freedom = d * (d + 1) * (d + 2) / 6
    skewness = (n * np.sum(third**2) / 6 - freedom) / np.sqrt(2 * freedom)
    lengths = np.sum(scores**2, axis=1)
    kurtosis = (np.mean(lengths**2) - d * (d + 2)) / np.sqrt(8 * d * (d + 2) / n)
    worst = max(abs(skewness), abs(kurtosis))
    detail = f"5 minus the larger of the z-scores, skewness {skewness:.3g}, kurtosis {kurtosis:.3g}"
    offender = f"sample {int(lengths.argmax())}"
    return at_least_zero("gaussian_inputs", DEVIATIONS - worst, offender, detail, "estimated")


def centred_inputs(inputs: Array | np.ndarray) -> Hypothesis:
    """The model has no intercept: no coordinate's mean is more than 5 standard errors from 0."""
    scores = mean_scores(inputs)
    worst = int(scores.argmax())
    detail = "5 minus the largest z-score of a mean"
    return at_least_zero("centred_inputs", DEVIATIONS - scores[worst], f"column {worst}", detail, "estimated")


def step_size(problem: AttentionRegression, optimiser: PreconditionedDescent) -> Hypothesis:
    """Steps below the stability limit 2/(largest curvature) at the minima; adaptive steps always are."""
    if optimiser.step.adaptive:
        return Hypothesis("stable_step", True, 1.0, "", "adaptive steps follow a bound of the curvature", "exact")
    step = optimiser.constant(problem)
    limit = 2 / curvature_range(problem, optimiser.geometry)[1]
    detail = f"1 - step / limit, limit {limit:.4g}"
    return Hypothesis("stable_step", step < limit, 1 - step / limit, "", detail, "exact")


def failures(found: Iterable[Hypothesis]) -> list[str]:
    """A line for each hypothesis that fails."""
    failed = (one for one in found if one.holds is False)
    return [f"{one.name}: slack {one.slack:.3g}, worst {one.offender} ({one.detail})" for one in failed]


def check_assumptions(
    problem: AttentionRegression,
    power: float = 2.0,
    samples: int | None = None,
    strict: bool = True,
    key_norm: float | None = None,
) -> tuple[Hypothesis, ...]:
    """A1, A2 and A3(p); with `strict` those that fail raise an `AssumptionError` with their slack and offender.

    `key_norm` is |V| of the whitened minima where training takes place at another scale than the balanced one.
    """
    found = (
        positive_definite(problem, samples),
        full_rank(problem, samples),
        finite_moments(problem, power, samples, key_norm),
    )
    lines = failures(found)
    if strict and lines:
        raise AssumptionError(
            "AttentionRegression", lines, "`check_assumptions(problem, strict=False)` only reports them"
        )
    return found


def asymptotic_factor(
    problem: AttentionRegression, geometry: AbstractGeometry, step: float, rotation: np.ndarray | None = None
) -> float:
    """Factor of the distance per step near the minimum with gauge R: max |1 - step * curvature|; the excess falls by its square."""
    low, high = curvature_range(problem, geometry, rotation)
    return max(abs(1 - step * low), abs(1 - step * high))


def saddles(problem: AttentionRegression) -> tuple[Rival, ...]:
    """The critical points that lack one mode: the nearest rivals, with the excess s_k^2 that a run would show there."""
    found = []
    for k, size in enumerate(np.asarray(problem.sizes)):
        kept = np.delete(np.arange(len(problem.sizes)), k)
        left, right = np.asarray(problem.left)[:, kept], np.asarray(problem.right)[:, kept]
        weight = (left * np.asarray(problem.sizes)[kept]) @ right.T  # whitened product of the saddle
        found.append(Rival(f"saddle without mode {k}", weight, float(size**2)))
    return tuple(found)


def expected_rate(problem: AttentionRegression, optimiser: PreconditionedDescent) -> str:
    """How fast the excess falls near the minima; without A2 (zero sizes, or m < d) only its kind is known."""
    if problem.rank < min(problem.planted.shape):
        return "sublinear: the excess of modes of size 0 falls like t^-2"
    if problem.outputs < problem.inputs:
        return "the excess falls exponentially, the regulariser only like t^-2"
    if optimiser.step.adaptive:
        step = float(1 / (8 * problem.sizes[0] * optimiser.geometry.stretch(problem.spread[-1])))  # |W|^2 = 2 s_1 there
    else:
        step = optimiser.constant(problem)
    factor = asymptotic_factor(problem, optimiser.geometry, step)
    text = f"excess times {factor**2:.6g} per step near the minima"
    if optimiser.geometry.rows:
        return f"{text} (gauge R = I; it depends on the gauge)"
    sure = contraction(problem, optimiser.geometry)
    return (
        f"{text}; guaranteed within r_0 = {sure.radius:.3g} at step {sure.step:.3g}: distance^2 times {sure.factor:.6g}"
    )


def judge_layer(prediction: Prediction[BalancedMinima, AttentionRegression], run: AttentionRun) -> Verdict:
    """Excess against the least excess of a saddle: 1e-4 of it is a minimum, within 1 % of a saddle's value with no gradient is that saddle.

    The excess is that of the predicted problem at the last layer, so a run on a sample needs no truth of its own; its floor is
    not 0, and where that alone keeps it from a minimum the verdict stays undecided and says so.
    """
    problem, layer = prediction.setting, run.at()
    problem.check_layer(layer, "judge")
    levels = {rival.name: rival.separation for rival in prediction.rivals}
    excess = float(problem.excess(layer))
    if not np.isfinite(excess):
        return Verdict(Outcome.undecided, "the run has no finite excess")
    bound = 1e-4 * min(levels.values())
    text = f"excess = {excess:.3g}"
    if excess <= bound:
        return Verdict(Outcome.confirmed, f"{text} <= {bound:.3g}", bound, excess, prediction.remarks)
    # Kernel parts along the missing mode decay only like t^(-1/2), so the gradient at a saddle is small, not rounding.
    whitened = problem.whiten(layer)
    still = run.last_slope(problem) <= 1e-3 * float(np.linalg.norm(whitened)) * float(problem.sizes[0])
    for name, level in levels.items():
        if still and abs(excess / level - 1) < 1e-2:
            return Verdict(Outcome.refuted, f"{text} > {bound:.3g}", bound, excess, f"the run stands at the {name}")
    remarks = [prediction.remarks] if prediction.remarks else []
    if run.estimated:
        remarks.append("a run on samples settles at a floor above 0, which `penchant train` judges it by")
    return Verdict(Outcome.undecided, f"{text} > {bound:.3g}", bound, excess, "; ".join(remarks))


def _covers(optimiser: eqx.Module) -> bool:
    """Theorems 1.1 to 1.3 speak of preconditioned descent with the regulariser."""
    if not isinstance(optimiser, PreconditionedDescent):
        wanted = "a PreconditionedDescent for attention regression"
        raise ArgumentError("optimiser", "predict", wanted, type(optimiser).__name__)
    return not optimiser.geometry.rows and optimiser.balance.printed and optimiser.logit_limit is None


def _hypotheses(asked: Prediction[BalancedMinima, AttentionRegression]) -> tuple[Hypothesis, ...]:
    problem, found = asked.setting, check_assumptions(asked.setting, strict=False)
    return (*found, step_size(problem, asked.optimiser)) if problem.rank == problem.inputs else found


ATTENTION_REGRESSION = Family(
    "attention-regression",
    "attention_regression",
    lambda problem: isinstance(problem, AttentionRegression),
    lambda problem, start: BalancedMinima(problem),
    lambda asked: saddles(asked.setting),
    judge_layer,
    lambda asked: check_assumptions(asked.setting, strict=False),
    "Conjecture: this descent reaches the minima of the population loss, balanced or not.",
    f"{GOEL} (outside its theorems)",
    rate=lambda asked: expected_rate(asked.setting, asked.optimiser),
    called=lambda optimiser: f"{optimiser.geometry.name} descent with {type(optimiser.balance).__name__}",
)
CONVERGENCE = Theorem(
    "attention-regression",
    "Preconditioned descent with the balance regulariser converges linearly to a balanced minimum of the population loss.",
    f"{GOEL}, Theorems 1.1-1.3",
    ATTENTION_REGRESSION,
    _covers,
    _hypotheses,
)
THEOREMS = (CONVERGENCE,)
