"""Claims on the population side of attention regression: the loss, its minima, one-point convexity, moments."""

from itertools import product

import numpy as np

from ...lab import Lab, claim
from ...verdict import ROUNDING, Outcome, Verdict, all_of, at_least, at_most
from .evidence import (
    around,
    attained,
    drawn_problems,
    layer_of,
    metric_root,
    neighbourhood,
    plain_slope,
    quadrature,
    random_runs,
    regularised,
    rotations,
)
from .setting.balanced_minima import component_distance, nearest_minimum
from .setting.geometry import (
    AbstractGeometry,
    Left,
    TwoSided,
    attraction_radius,
    balanced_point,
    contraction,
    eigenbasis,
    hessian,
)
from .setting.problem import AttentionLayer, AttentionRegression
from .setting.sample import key_strength, log_cross_moment, log_self_moment, moment_threshold, prescribed_spectrum
from .theorems import GOEL


@claim("attention-regression/theorem-1.1", f"{GOEL}, Theorem 1.1", "proved")
def population_loss(lab: Lab, planted: bool) -> Verdict:
    """The population loss is m sigma^2 + |(U Sigma V - A) Sigma^(1/2)|_F^2, for under the weights of a query x the covariates are N(Sigma V x, Sigma).
    The definition by quadrature in the plane, 20 drawn problems and layers with 25 queries each; the planted mean is longer by one part in a million."""
    (keys, mass), (places, shares) = quadrature(60), quadrature(5)
    rng, errors = np.random.default_rng([11, lab.seed]), {"mean": [], "covariance": [], "loss": []}
    for _ in range(20):
        first = rng.standard_normal((2, 2))
        problem = AttentionRegression(0.3 * np.eye(2) + first @ first.T / 4, 0.3 * rng.standard_normal((3, 2)), 0.01)
        layer = AttentionLayer(0.7 * rng.standard_normal((3, 2)), 0.3 * rng.standard_normal((2, 2)))
        covariance, root = np.asarray(problem.covariance), np.asarray(problem.root)
        points, queries = keys @ root, places @ root
        weights = mass * np.exp(queries @ np.asarray(layer.key_query).T @ points.T)
        weights = weights / weights.sum(axis=1, keepdims=True)
        means = weights @ points
        gaps = points - means[:, None]
        tilted = (1 + 1e-6 * planted) * queries @ (covariance @ np.asarray(layer.key_query)).T
        errors["mean"].append(np.abs(means - tilted).max() / np.abs(tilted).max())
        spreads = np.einsum("qk,qki,qkj->qij", weights, gaps, gaps)
        errors["covariance"].append(np.abs(spreads - covariance).max() / np.abs(covariance).max())
        squares = np.sum((means @ np.asarray(layer.value).T - queries @ np.asarray(problem.planted).T) ** 2, axis=1)
        total = float(shares @ squares) + problem.outputs * float(problem.noise)
        errors["loss"].append(abs(float(problem.loss(layer)) / total - 1))
    return all_of(
        *(at_most(max(those), ROUNDING, f"largest relative error of the {what}") for what, those in errors.items())
    )


@claim("attention-regression/theorem-1.2", f"{GOEL}, Theorem 1.2", "proved")
def balanced_minima(lab: Lab, planted: bool) -> Verdict:
    """Every balanced factorisation W = [P; Q] S^(1/2) R has zero excess, zero regulariser and zero gradient.
    Roots of excess and regulariser, and gradients, of random minima, in units of the rounding of sums of d + 2 terms; planted: the scale (cU, V/c) with c = 1 + 1e-12, which the regulariser sees."""
    slips, slopes = [], []
    for seed, problem in enumerate(drawn_problems(lab)):
        m, d, top = problem.outputs, problem.inputs, float(problem.sizes[0])
        scale = np.where(np.arange(m + d) < m, 1 + 1e-12, 1 - 1e-12)[:, None] if planted else 1.0
        unit = np.finfo(float).eps * (d + 2) * np.sqrt((m + d) * d) * top
        for rotation in rotations(5, d, seed):
            point = scale * balanced_point(problem, rotation)
            slips.append(np.sqrt(regularised(problem, point)) / unit)
            slopes.append(float(np.linalg.norm(plain_slope(problem)(point))) / (4 * unit * np.sqrt(2 * top)))
    return all_of(
        at_most(float(max(slips)), 1.0, "largest root of excess + regulariser over rounding, 20 problems, 5 gauges"),
        at_most(float(max(slopes)), 1.0, "largest gradient over rounding"),
    )


@claim("attention-regression/theorem-1.2-all", f"{GOEL}, Theorem 1.2", "proved")
def all_minima(lab: Lab, planted: bool) -> Verdict:
    """There are no other minima of the regularised loss.
    Adaptive descent on 20 drawn problems from 3 random starts each ends on the manifold; the planted start is 0, a saddle."""
    ends = [(run.problem, run.whitened[-1]) for run in random_runs(lab)]
    ends += [(problem, 0 * end) for problem, end in ends[:1] if planted]
    far = max(nearest_minimum(*end, TwoSided()).distance for end in ends)
    return at_most(far, ROUNDING, f"largest distance to the minima after 1000 steps, {len(ends)} starts")


@claim("attention-regression/gauge", f"{GOEL}, Theorem 1.2, made exact by us", "sharpened")
def gauge(lab: Lab, planted: bool) -> Verdict:
    """The loss is invariant under GL(d), which with (cU, V/c) shrinks the logits, and the regularised loss under an orthogonal group.
    A random element of both, and c = 3, on 20 drawn problems; planted: an orthogonal matrix times 1 + 1e-6."""
    moved, turned, scaled = [], [], []
    for seed, problem in enumerate(drawn_problems(lab)):
        rng, root, d = np.random.default_rng(seed), np.asarray(problem.root), problem.inputs
        layer = layer_of(problem, 0.3 * rng.standard_normal((problem.outputs + d, d)))
        general, turn = np.eye(d) + 0.3 * rng.standard_normal((d, d)), rotations(1, d, seed)[0]
        conjugate = root @ turn @ np.asarray(problem.inverse_root) * (1 + 1e-6 * planted)
        total = lambda one, problem=problem: float(problem.excess(one) + problem.regulariser(one))
        moved.append(float(problem.excess(_changed(problem, layer, general)) / problem.excess(layer)))
        turned.append(total(_changed(problem, layer, conjugate)) / total(layer))
        shrunk = _changed(problem, layer, 3 * np.eye(d))
        norms = [key_strength(np.asarray(problem.whiten(one)), problem.outputs)[1] for one in (layer, shrunk)]
        scaled.append(3 * norms[1] / norms[0])
    parts = {"excess under GL(d)": moved, "regularised loss under the gauge group": turned, "3 |V/3|": scaled}
    worst = lambda ratios: float(np.abs(np.array(ratios) - 1).max())
    return all_of(
        *(at_most(worst(those), ROUNDING, f"{what}: largest change, 20 problems") for what, those in parts.items())
    )


def _changed(problem: AttentionRegression, layer: AttentionLayer, matrix: np.ndarray) -> AttentionLayer:
    """U C, and V such that U Sigma V stays."""
    covariance = np.asarray(problem.covariance)
    key_query = np.linalg.solve(covariance, np.linalg.solve(matrix, covariance @ np.asarray(layer.key_query)))
    return AttentionLayer(np.asarray(layer.value) @ matrix, key_query)


def _gaps(lab: Lab) -> list[tuple[float, float]]:
    """By problem, the least distance from 5 minima to the component of the other determinant, and sqrt(8 s_d)."""
    found = []
    for seed, problem in enumerate(drawn_problems(lab)):
        points = (balanced_point(problem, rotation) for rotation in rotations(5, problem.inputs, seed))
        gap = min(nearest_minimum(problem, point, TwoSided()).other for point in points)
        found.append((gap, component_distance(problem)))
    return found


@claim(
    "attention-regression/connected",
    f"{GOEL}, Theorem 1.2, as its introduction words it",
    "proved",
    expected=Outcome.refuted,
    repair="attention-regression/two-components",
)
def connected(lab: Lab, planted: bool) -> Verdict:
    """The manifold of minima is connected.
    Points of the two components would have to come arbitrarily close, on some of 20 drawn problems at least; planted: closer than half of sqrt(8 s_d)."""
    bounds = [gap / (apart / 2 if planted else 1) for gap, apart in _gaps(lab)]
    return at_most(min(bounds), 1.0 if planted else ROUNDING, "least distance from a minimum to the other component")


@claim("attention-regression/two-components", f"{GOEL}, Theorem 1.2, corrected by us", "repaired")
def two_components(lab: Lab, planted: bool) -> Verdict:
    """The minima have two components, det R = 1 and -1, sqrt(8 s_d) apart; descent stays with the one it starts with.
    The gap on 20 drawn problems, and the sign of det(E'W) along 60 runs of adaptive descent; planted: a gap one per cent wider."""
    errors = [abs(gap / (apart * (1.01 if planted else 1.0)) - 1) for gap, apart in _gaps(lab)]
    plus = [(eigenbasis(run.problem).plus.T @ run.whitened) for run in random_runs(lab)]
    changes = sum(float(np.abs(np.diff(np.sign(np.linalg.det(one)))).sum()) for one in plus)
    return all_of(
        at_most(max(errors), ROUNDING, "largest relative error of sqrt(8 s_d), 20 problems"),
        at_most(changes, 0.0, f"changes of sign of det(E'W) along {len(plus)} runs"),
    )


@claim("attention-regression/theorem-1.3", f"{GOEL}, Theorem 1.3, constants by us", "sharpened")
def one_point_convexity(lab: Lab, planted: bool) -> Verdict:
    """One-point strong convexity and smoothness near the minima, with alpha = 2 s_d - 5/4 r^2 and beta = 4 s_1 + 3 sqrt(2 s_1) r + r^2, both sharp; in the one-sided norm with 2 s_d lambda_min - 5/4 lambda_max^2 r^2 and lambda_max beta.
    20 drawn problems with 4 points around minima each, and for m > d the directions in which both are attained, at r_0/2 and r_0. Planted: alpha larger and beta smaller by one part in a million."""
    slip, checks = 1 + 1e-6 * planted, []
    problems = drawn_problems(lab)
    for geometry in (TwoSided(), Left()):
        least, most = zip(*(_shares(one, geometry, k) for k, one in enumerate(problems)), strict=True)
        checks += [
            at_least(
                min(least), slip, f"least <gradient, Delta> over alpha dist^2, {len(least)} problems, {geometry.name}"
            ),
            at_most(max(most), 1 / slip, f"largest |gradient| over beta dist, {geometry.name}"),
        ]
    tall = [one for one in problems if one.outputs > one.inputs]
    errors = [slip * np.array(_attained(one, share)) - 1 for one in tall for share in (0.5, 1.0)]
    text = f"largest relative error of alpha and beta where they are attained, {len(tall)} problems"
    return all_of(at_most(float(np.abs(errors).max()), ROUNDING, text), *checks)


def _shares(problem: AttentionRegression, geometry: AbstractGeometry, seed: int) -> tuple[float, float]:
    """The least <gradient, Delta> over its bound and the largest |gradient| over its bound, at points around the minima."""
    root, least, most = metric_root(problem, geometry), np.inf, 0.0
    for whitened, nearest in around(problem, geometry, attraction_radius(problem, geometry), 4, seed):
        away, slope = (whitened - nearest.whitened) @ np.linalg.inv(root), plain_slope(problem)(whitened) @ root
        found, distance = contraction(problem, geometry, nearest.distance), nearest.distance
        least = min(least, float(np.sum(slope * away)) / (found.alpha * distance**2))
        most = max(most, float(np.linalg.norm(slope)) / (found.beta * distance))
    return least, most


def _attained(problem: AttentionRegression, share: float) -> tuple[float, float]:
    """<gradient, Delta> and |gradient| over their bounds in the worst directions, at so much of r_0."""
    radius, slope, point = share * attraction_radius(problem, TwoSided()), plain_slope(problem), balanced_point(problem)
    found, (weak, strong) = contraction(problem, TwoSided(), radius), attained(problem, radius)
    pull = float(np.sum(slope(point + weak) * weak)) / (found.alpha * radius**2)
    return pull, float(np.linalg.norm(slope(point + strong))) / (found.beta * radius)


@claim("attention-regression/lemma-1", f"{GOEL}, Lemma 1.1", "proved", slow=True)
def lemma1(lab: Lab, planted: bool) -> Verdict:
    """At the projection of a point, Delta' Lambda Theta* (Sigma) is symmetric.
    K is symmetric at a projection; planted: the two-sided projection used for the left norm."""
    worst = {"two_sided": 0.0, "left": 0.0}
    for geometry, (seed, problem) in product((TwoSided(), Left()), enumerate(drawn_problems(lab))):
        inverse, root = np.asarray(problem.inverse_root), np.asarray(problem.root)
        for whitened, nearest in around(problem, geometry, attraction_radius(problem, geometry), 3, seed):
            point = nearest_minimum(problem, whitened, TwoSided()).whitened if planted else nearest.whitened
            matrix = (whitened - point).T @ point
            matrix = inverse @ matrix @ root if geometry.columns else matrix
            asymmetry = float(np.linalg.norm(matrix - matrix.T) / np.linalg.norm(matrix))
            worst[geometry.name] = max(worst[geometry.name], asymmetry)
    text = "largest relative asymmetry of K, {}, 20 problems, 3 points each"
    return all_of(*(at_most(value, 1e-11, text.format(name)) for name, value in worst.items()))


@claim("attention-regression/lemma-1-sizes", f"{GOEL}, Lemma 1.2, constants by us", "sharpened")
def singular_values(lab: Lab, planted: bool) -> Verdict:
    """The singular values of Lambda^(1/2) Theta* lie between sqrt(2 s_d / lambda_max) and sqrt(2 s_1 / lambda_min), and some minimum has both.
    20 problems with 50 gauges each, and the gauge that pairs the largest size with the smallest eigenvalue; planted: bounds closer by 2 %."""
    rng, low, high = np.random.default_rng(2), [], []
    for k in range(20):
        problem = prescribed_spectrum(4, np.sort(rng.uniform(0.01, 0.06, 3))[::-1], rng.uniform(1.0, 10.0), k)
        sizes, spread, back = (np.asarray(one) for one in (problem.sizes, problem.spread, problem.inverse_root))
        turns = [np.linalg.eigh(np.asarray(problem.covariance))[1].T, *rotations(50, 3, k)]
        found = np.linalg.svd(np.stack([balanced_point(problem, one) for one in turns]) @ back, compute_uv=False)
        low.append(found[:, -1] / np.sqrt(2 * sizes[-1] / spread[-1]))
        high.append(found[:, 0] / np.sqrt(2 * sizes[0] / spread[0]))
    room = 0.02 if planted else -1e-12
    return all_of(
        at_least(float(np.min(low)), 1 + room, "least singular value over its bound, 20 problems, 51 gauges"),
        at_most(float(np.max(high)), 1 - room, "largest singular value over its bound"),
        at_most(float(np.min(low)), 1 + 1e-12, "the lower bound is attained"),
        at_least(float(np.max(high)), 1 - 1e-12, "the upper bound is attained"),
    )


@claim("attention-regression/lemma-2", f"{GOEL}, Lemma 2", "proved")
def lemma2(lab: Lab, planted: bool) -> Verdict:
    """The regularised excess is at most beta/2 dist^2.
    g <= beta/2 dist^2 at random points and along the steepest curvature, where it is sharp; planted: beta smaller by 1 %."""
    ratios = []
    for seed, problem in enumerate(drawn_problems(lab)):
        radius, point = attraction_radius(problem, TwoSided()), balanced_point(problem)
        steep = np.linalg.eigh(hessian(problem, point))[1][:, -1].reshape(point.shape)
        points = [one for one, _ in around(problem, TwoSided(), radius, 5, seed)]
        for whitened in (*points, *(point + share * radius * steep for share in (-1.0, -1e-3, 1e-3, 1.0))):
            distance = nearest_minimum(problem, whitened, TwoSided()).distance
            beta = contraction(problem, TwoSided(), distance).beta * (0.99 if planted else 1.0)
            ratios.append(2 * regularised(problem, whitened) / (beta * distance**2))
    return all_of(
        at_most(max(ratios), 1.0, "largest 2 g / (beta dist^2), 20 problems, 5 random and 4 steepest points each"),
        at_least(max(ratios), 0.99, "the same"),
    )


def _strengths(seed: int, reach: float) -> list[float]:
    """2p lambda_max(sym V), p = 2, at drawn points around the minima of a drawn problem, and where the worst gauge moves farthest along its strongest direction."""
    sizes = np.sort(np.random.default_rng(seed).uniform(0, moment_threshold(2.0), 3))[::-1]
    problem = prescribed_spectrum(4, sizes, 5.0, seed)
    right = np.asarray(problem.right)
    worst = balanced_point(problem, right.T)
    worst[4:] += reach * (np.sqrt(moment_threshold(2.0)) - np.sqrt(sizes[0])) * np.outer(right[:, 0], right[:, 0])
    return [4.0 * key_strength(one, 4)[0] for one in (*neighbourhood(problem, 20, seed), worst)]


@claim("attention-regression/lemma-7", f"{GOEL}, Lemma 7 and Assumption 3", "sharpened")
def lemma7(lab: Lab, planted: bool) -> Verdict:
    """Closer than 1/(2p) - sqrt(s_1) to the minima the p-th moments of the logits are finite, and at that distance they need not be; on all minima if and only if s_1 < 1/(4 p^2).
    The moments are the determinants; p = 2 on 20 drawn problems, at drawn points and where the distance is best spent, and at thresholds of s_1. Planted: 1/(2 p^2), one per cent farther."""
    grid, mass = quadrature(60)
    power, errors = 0.5, []
    for key in 0.15 * np.random.default_rng(lab.seed).standard_normal((20, 2, 2)):
        alone = float(mass @ np.exp(power * np.einsum("ni,ij,nj->n", grid, key, grid)))
        crossed = float(mass @ np.exp(power**2 / 2 * np.sum((grid @ key.T) ** 2, axis=1)))  # one integral by hand
        errors += [np.log(alone) - log_self_moment(key, power), np.log(crossed) - log_cross_moment(key, power)]
    checks = [
        at_most(
            float(np.abs(errors).max()), ROUNDING, "largest error of log E exp(x'Vx/2), log E exp(x'Vy/2), 20 draws"
        )
    ]
    strengths = np.array([_strengths(seed, 1.01 if planted else 1.0) for seed in range(20)])
    checks.append(
        at_most(float(strengths.max()), 1 + ROUNDING, "largest 2p lambda_max(sym V) inside that distance, p = 2")
    )
    checks.append(at_least(float(strengths[:, -1].min()), 1 - ROUNDING, "smallest at that distance, well spent"))
    threshold = moment_threshold(2.0) * (2.0 if planted else 1.0)
    below = prescribed_spectrum(4, np.array([0.999, 0.5, 0.2]) * threshold, 5.0, 1)
    turns = [np.asarray(below.right).T, *rotations(200, 3)]
    worst = max(2 * 2.0 * key_strength(balanced_point(below, rotation), 4)[0] for rotation in turns)
    checks.append(at_most(worst, 1.0, "2p lambda_max(sym V) over gauges, s_1 just below the threshold, p = 2"))
    above = prescribed_spectrum(4, np.array([1.001, 0.5, 0.2]) * threshold, 5.0, 1)
    found = 2 * 2.0 * key_strength(balanced_point(above, np.asarray(above.right).T), 4)[0]
    return all_of(*checks, at_least(found, 1.0, "the same at the worst gauge R = Q', s_1 just above"))
