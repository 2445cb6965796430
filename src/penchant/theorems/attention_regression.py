"""Attention regression: hypotheses with slack (exact or estimated), prediction and verdict for a problem of the user's own."""

from typing import Any

import numpy as np

from ..errors import ArgumentError, AssumptionError
from ..optimisers.preconditioned import AdaptiveStep, PreconditionedDescent
from ..references.balanced_minima import BalancedMinima, nearest_minimum
from ..settings.attention_balance import Balance
from ..settings.attention_curvature import attraction_radius, contraction, curvature_range
from ..settings.attention_geometry import AbstractGeometry, Euclidean, Left, TwoSided
from ..settings.attention_moments import integrable_radius, moment_threshold
from ..settings.attention_regression import AttentionLayer, AttentionRegression
from ..settings.attention_sample import DEVIATIONS, mean_scores, noise_level
from ..training.population import AttentionTrajectory
from ..verdict import Outcome, Verdict
from .base import Hypothesis, Prediction, Rival, Theorem
from .linear_models import covered

GOEL = "Goel, Soltanolkotabi, Bartlett, Softmax self-attention trained on linear regression, 2026"
PAPER = "attention_regression"
_SINGULAR = 1e-14
_FLAT = 1e-12  # relative standard deviation below which a column is constant up to rounding


def _kind(samples: int | None) -> str:
    return "exact" if samples is None else f"estimated from {samples} samples"


def _direction(vector: Any) -> str:
    return f"direction {np.asarray(vector).round(3).tolist()}"


def positive_definite(problem: AttentionRegression, samples: int | None = None) -> Hypothesis:
    """A1: the covariance is positive definite, by the ratio of its extreme eigenvalues."""
    values, vectors = np.linalg.eigh(np.asarray(problem.covariance))
    slack = float(values[0] / values[-1]) - len(values) * _SINGULAR
    detail = f"{_kind(samples)}: smallest over largest eigenvalue, minus d 1e-14"
    if samples is not None:
        detail += f"; the ratio is good to a factor of 1 ± {2 * np.sqrt(len(values) / samples):.2g}"
    return Hypothesis("A1_covariance", slack > 0, slack, _direction(vectors[:, 0]), detail)


def full_rank(problem: AttentionRegression, samples: int | None = None) -> Hypothesis:
    """A2: m >= d and A has full column rank, by its smallest size; undecided where the estimate is below its noise."""
    m, d = problem.planted.shape
    if m < d:
        detail = "m - d: A maps to fewer outputs than inputs, so the regulariser cannot vanish exponentially"
        return Hypothesis("A2_full_rank", False, float(m - d), f"m = {m}, d = {d}", detail)
    smallest, offender = float(problem.sizes[-1]), _direction(problem.right[:, -1])
    if samples is None:
        return Hypothesis("A2_full_rank", problem.rank == d, smallest, offender, "exact: smallest singular value")
    level = noise_level(problem, samples)
    detail = f"{_kind(samples)}: smallest singular value minus its noise level {level:.3g}"
    return Hypothesis("A2_full_rank", True if smallest > level else None, smallest - level, offender, detail)


def finite_moments(problem: AttentionRegression, power: float = 2.0, samples: int | None = None) -> Hypothesis:
    """A3(p): s_1 < 1/(4 p^2), so that the p-th moments of the logits are finite on all balanced minima."""
    top = float(problem.sizes[0])
    slack = moment_threshold(power) - top
    parts = [f"1/(4 p^2) - s_1 with p = {power:g}, {_kind(samples)}"]
    radius = integrable_radius(problem, power)
    near = f"moments stay finite within two-sided distance {radius:.3g} of the minima"
    parts.append(near if radius > 0 else "some moments are infinite on the minima themselves")
    parts.append(f"sharper thresholds: s_1 < 1/2 {'holds' if top < 0.5 else 'fails'} (first-order bias finite)")
    parts.append(f"s_1 < 1 {'holds' if top < 1 else 'fails'} (variance of the context finite)")
    holds: bool | None = slack > 0
    if samples is not None and abs(slack) <= noise_level(problem, samples):
        holds = None
    return Hypothesis("A3_moments", holds, slack, _direction(problem.right[:, 0]), "; ".join(parts))


def near_minima(problem: AttentionRegression, layer: AttentionLayer, geometry: AbstractGeometry) -> Hypothesis:
    """The start is within r_0 of the minima, in the norm of the geometry (two-sided for `euclidean`, which has no radius)."""
    norm = TwoSided() if isinstance(geometry, Euclidean) else geometry
    found = nearest_minimum(problem, np.asarray(problem.whiten(layer)), norm)
    radius = attraction_radius(problem, norm)
    kind = (
        "exact"
        if found.proved
        else "distance to the nearest minimum of several starts, not proved to be the nearest of all"
    )
    detail = f"{kind}: r_0 = {radius:.4g} minus the {norm.name} distance {found.distance:.4g}"
    offender = f"component det R = {found.component:+d}"
    # A distance that is only an upper bound decides a failure where even a lower bound is beyond r_0.
    lowest = found.distance if found.proved else _least_distance(problem, layer)
    holds = True if found.distance <= radius else False if lowest > radius else None
    return Hypothesis("initialisation", holds, radius - found.distance, offender, detail)


def _least_distance(problem: AttentionRegression, layer: AttentionLayer) -> float:
    """A lower bound of the left distance: the two-sided one over the square root of the largest eigenvalue of the covariance."""
    found = nearest_minimum(problem, np.asarray(problem.whiten(layer)), TwoSided())
    return found.distance / float(np.sqrt(problem.spread[-1]))


def expected_gradients(source: str, deviation: float = 0.0) -> Hypothesis:
    """The theorem's oracle: steps use the expected gradient. Any other source is outside of it, by its measured deviation (nan: unknown)."""
    exact = source == "population"
    known = (
        "minus the largest measured deviation of the gradients"
        if np.isfinite(deviation)
        else "by how much needs the truth"
    )
    detail = "exact" if exact else f"outside the theorem: {known}"
    return Hypothesis("expected_gradients", exact, -deviation, "" if exact else source, detail)


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
        return Hypothesis("gaussian_inputs", None, float("nan"), flat, detail)
    return Hypothesis("gaussian_inputs", False, float("-inf"), flat, "estimated: normal inputs vary in every direction")


def gaussian_inputs(inputs: Any) -> Hypothesis:
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
    detail = f"estimated: 5 minus the larger of the z-scores, skewness {skewness:.3g}, kurtosis {kurtosis:.3g}"
    offender = f"sample {int(lengths.argmax())}"
    return Hypothesis("gaussian_inputs", bool(worst <= DEVIATIONS), float(DEVIATIONS - worst), offender, detail)


def centred_inputs(inputs: Any) -> Hypothesis:
    """The model has no intercept: no coordinate's mean is more than 5 standard errors from 0."""
    scores = mean_scores(inputs)
    worst = int(scores.argmax())
    slack = float(DEVIATIONS - scores[worst])
    return Hypothesis(
        "centred_inputs", slack >= 0, slack, f"column {worst}", "estimated: 5 minus the largest z-score of a mean"
    )


def step_size(problem: AttentionRegression, optimiser: PreconditionedDescent) -> Hypothesis:
    """Steps below the stability limit 2/(largest curvature) at the minima; adaptive steps always are."""
    if isinstance(optimiser.step, AdaptiveStep):
        return Hypothesis("stable_step", True, 1.0, "", "adaptive steps follow a bound of the curvature")
    step = optimiser.step.constant(problem, optimiser.geometry)
    limit = 2 / curvature_range(problem, optimiser.geometry)[1]
    return Hypothesis("stable_step", step < limit, 1 - step / limit, "", f"1 - step / limit, limit {limit:.4g}")


def check_assumptions(
    problem: AttentionRegression, power: float = 2.0, samples: int | None = None, strict: bool = True
) -> tuple[Hypothesis, ...]:
    """A1, A2 and A3(p); with `strict` those that fail raise an `AssumptionError` with their slack and offender."""
    found = (
        positive_definite(problem, samples),
        full_rank(problem, samples),
        finite_moments(problem, power, samples),
    )
    failed = [one for one in found if one.holds is False]
    if strict and failed:
        lines = [f"{one.name}: slack {one.slack:.3g}, worst {one.offender} ({one.detail})" for one in failed]
        raise AssumptionError(
            "AttentionRegression", lines, "`check_assumptions(problem, strict=False)` only reports them"
        )
    return found


def asymptotic_factor(
    problem: AttentionRegression, geometry: AbstractGeometry, step: float, rotation: Any = None
) -> float:
    """Factor of the distance per step near the minimum with gauge R: max |1 - step * curvature|; the excess falls by its square."""
    low, high = curvature_range(problem, geometry, rotation)
    return max(abs(1 - step * low), abs(1 - step * high))


class _AttentionTheorem(Theorem):
    paper = PAPER

    def predict(self, setting: Any, optimiser: Any) -> Prediction:
        reference: Any = BalancedMinima(setting)
        found = self.hypotheses(setting, optimiser, reference)
        return Prediction(self, setting, found, reference, saddles(setting), _rate(setting, optimiser))

    def judge(self, prediction: Prediction, run: Any) -> Verdict:
        """Confirmed where the excess is far below that of every saddle; refuted where the run stands on one."""
        return judge_layer(prediction, run)


class AttentionConvergence(_AttentionTheorem):
    """Theorems 1.1 to 1.3 with the linear rate they imply, for preconditioned descent with the regulariser."""

    name = "attention-regression"
    statement = "Preconditioned descent with the balance regulariser converges linearly to a balanced minimum of the population loss."
    citation = f"{GOEL}, Theorems 1.1-1.3"

    def applies(self, setting: Any, optimiser: Any) -> bool:
        return (
            isinstance(setting, AttentionRegression)
            and isinstance(optimiser, PreconditionedDescent)
            and isinstance(optimiser.geometry, Left | TwoSided)
            and isinstance(optimiser.balance, Balance)
            and optimiser.logit_limit is None
        )

    def hypotheses(self, setting: Any, optimiser: Any, reference: Any) -> tuple[Hypothesis, ...]:
        found = check_assumptions(setting, strict=False)
        return (*found, step_size(setting, optimiser)) if setting.rank == setting.inputs else found


class AttentionConjecture(_AttentionTheorem):
    """Plain descent, other regularisers and none: the same minima of the loss, without a theorem of the paper."""

    name = "attention-regression-conjecture"
    statement = "Conjecture: this descent reaches the minima of the population loss, balanced or not."
    citation = f"{GOEL} (outside its theorems)"

    def applies(self, setting: Any, optimiser: Any) -> bool:
        if not isinstance(setting, AttentionRegression):
            return False
        if not isinstance(optimiser, PreconditionedDescent):
            raise ArgumentError(
                "optimiser", "predict", "a PreconditionedDescent for attention regression", type(optimiser).__name__
            )
        return True

    def hypotheses(self, setting: Any, optimiser: Any, reference: Any) -> tuple[Hypothesis, ...]:
        found = check_assumptions(setting, strict=False)
        return (*found, covered(f"{optimiser.geometry.name} descent with {type(optimiser.balance).__name__}"))


def saddles(problem: AttentionRegression) -> tuple[Rival, ...]:
    """The critical points that lack one mode: the nearest rivals, with the excess s_k^2 that a run would show there."""
    found = []
    for k, size in enumerate(np.asarray(problem.sizes)):
        kept = np.delete(np.arange(len(problem.sizes)), k)
        left, right = np.asarray(problem.left)[:, kept], np.asarray(problem.right)[:, kept]
        weight = (left * np.asarray(problem.sizes)[kept]) @ right.T  # whitened product of the saddle
        found.append(Rival(f"saddle without mode {k}", weight, float(size**2)))
    return tuple(found)


def _rate(problem: AttentionRegression, optimiser: PreconditionedDescent) -> str:
    if problem.rank < min(problem.planted.shape):
        return "sublinear: the excess of modes of size 0 falls like t^-2"
    if problem.outputs < problem.inputs:
        return "the excess falls exponentially, the regulariser only like t^-2"
    if isinstance(optimiser.step, AdaptiveStep):
        step = float(1 / (8 * problem.sizes[0] * optimiser.geometry.stretch(problem.spread[-1])))  # |W|^2 = 2 s_1 there
    else:
        step = optimiser.step.constant(problem, optimiser.geometry)
    factor = asymptotic_factor(problem, optimiser.geometry, step)
    text = f"excess times {factor**2:.6g} per step near the minima"
    if isinstance(optimiser.geometry, Euclidean):
        return f"{text} (gauge R = I; it depends on the gauge)"
    sure = contraction(problem, optimiser.geometry)
    return (
        f"{text}; guaranteed within r_0 = {sure.radius:.3g} at step {sure.step:.3g}: distance^2 times {sure.factor:.6g}"
    )


def judge_layer(prediction: Prediction, run: AttentionTrajectory) -> Verdict:
    """Excess against the least excess of a saddle: 1e-4 of it is a minimum, within 1 % of a saddle's value with no gradient is that saddle."""
    excess, levels = float(run.excess[-1]), {rival.name: rival.separation for rival in prediction.rivals}
    if not np.isfinite(excess):
        return Verdict(Outcome.undecided, "the run has no finite excess")
    bound = 1e-4 * min(levels.values())
    text = f"excess = {excess:.3g}"
    if excess <= bound:
        return Verdict(Outcome.confirmed, f"{text} <= {bound:.3g}", bound, excess, prediction.remarks)
    # Kernel parts along the missing mode decay only like t^(-1/2), so the gradient at a saddle is small, not rounding.
    still = float(run.slope[-1]) <= 1e-3 * float(np.linalg.norm(run.whitened[-1])) * float(run.problem.sizes[0])
    for name, level in levels.items():
        if still and abs(excess / level - 1) < 1e-2:
            return Verdict(Outcome.refuted, f"{text} > {bound:.3g}", bound, excess, f"the run stands at the {name}")
    return Verdict(Outcome.undecided, f"{text} > {bound:.3g}", bound, excess, prediction.remarks)


THEOREMS = (AttentionConvergence(), AttentionConjecture())
