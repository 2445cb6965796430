"""Claims on the population side of attention regression: the loss, its minima, one-point convexity, moments."""

from itertools import product

import numpy as np

from ...lab import Lab, claim
from ...verdict import ROUNDING, Outcome, Verdict, all_of, at_least, at_most, close
from .evidence import (
    around,
    drawn_problems,
    layer_of,
    metric_root,
    neighbourhood,
    plain_slope,
    plane_problem,
    quadrature,
    random_point,
    random_runs,
    regularised,
    rotations,
    small_problem,
    tilted,
    worst_constants,
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


@claim("attention-regression/tilt", f"{GOEL}, proof of Theorem 1.1", "proved")
def tilt(lab: Lab, planted: bool) -> Verdict:
    """Under the weights of a query x the covariates are N(Sigma V x, Sigma).
    Mean Sigma V x and covariance Sigma under the weights of a query, by quadrature; planted: covariance Sigma + Sigma V Sigma."""
    problem, layer = plane_problem(lab)
    covariance, key = np.asarray(problem.covariance), np.asarray(layer.key_query)
    errors = []
    for query in np.array([[0.5, -1.0], [1.5, 0.3], [-0.7, -0.9]]):
        mean, spread = tilted(lab, problem, layer, query)
        expected = covariance + (covariance @ key @ covariance if planted else 0.0)
        errors.append(max(np.abs(mean - covariance @ key @ query).max(), np.abs(spread - expected).max()))
    return at_most(float(max(errors)), 1e-14, "largest error of mean and covariance at 3 queries, 60^2 nodes")


@claim("attention-regression/theorem-1.1", f"{GOEL}, Theorem 1.1", "proved")
def population_loss(lab: Lab, planted: bool) -> Verdict:
    """The population loss is m sigma^2 + |(U Sigma V - A) Sigma^(1/2)|_F^2.
    The definition by quadrature in the plane, 20 drawn problems and layers with 25 queries each; the planted mean is V x."""
    grid, mass = quadrature(lab)
    rng, gaps, losses = np.random.default_rng([11, lab.seed]), [], []
    for _ in range(20):
        first = rng.standard_normal((2, 2))
        problem = AttentionRegression(0.3 * np.eye(2) + first @ first.T / 4, 0.3 * rng.standard_normal((3, 2)), 0.01)
        layer = AttentionLayer(0.7 * rng.standard_normal((3, 2)), 0.3 * rng.standard_normal((2, 2)))
        (value, key), root = map(np.asarray, (layer.value, layer.key_query)), np.asarray(problem.root)
        slip = value @ np.asarray(problem.covariance) @ key - np.asarray(problem.planted)
        queries = np.clip(rng.standard_normal((25, 2)), -3, 3) @ root
        means = np.array([key @ x if planted else tilted(lab, problem, layer, x)[0] for x in queries])
        errors = np.sum((means @ value.T - queries @ np.asarray(problem.planted).T) ** 2, axis=1)
        closed = np.sum((slip @ queries.T) ** 2, axis=0)
        gaps.append(np.abs(errors - closed).max() / closed.max())
        total = float(mass @ np.sum((slip @ (grid @ root).T) ** 2, axis=0)) + problem.outputs * float(problem.noise)
        losses.append(abs(float(problem.loss(layer)) / total - 1))
    return all_of(
        at_most(float(max(gaps)), 1e-12, "largest |error of the tilted mean - closed form| over queries, relative"),
        at_most(max(losses), 1e-12, "largest relative difference of the population loss from its quadrature"),
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
    Adaptive descent from 60 random starts ends on the manifold; the planted start is 0, a saddle."""
    problem = small_problem(lab)
    ends = [run.whitened[-1] for run in random_runs(lab)] + ([np.zeros((7, 3))] if planted else [])
    far = max(nearest_minimum(problem, end, TwoSided()).distance for end in ends)
    return at_most(far, 1e-12, "largest distance to the minima after 1000 steps, 60 starts")


@claim("attention-regression/gauge", f"{GOEL}, Theorem 1.2", "proved")
def gauge(lab: Lab, planted: bool) -> Verdict:
    """The loss is invariant under GL(d), the regularised loss under an orthogonal group.
    The loss under all of GL(d), the regularised loss under the orthogonal group; planted: the regularised loss under GL(d)."""
    problem, rng = small_problem(lab), np.random.default_rng(3)
    covariance, root, back = (np.asarray(part) for part in (problem.covariance, problem.root, problem.inverse_root))
    layer = layer_of(problem, random_point(problem, 7))

    def change(matrix: np.ndarray) -> AttentionLayer:
        moved = np.linalg.solve(covariance, np.linalg.solve(matrix, covariance @ np.asarray(layer.key_query)))
        return AttentionLayer(np.asarray(layer.value) @ matrix, moved)

    general = np.eye(3) + 0.3 * rng.standard_normal((3, 3))
    turn = root @ np.linalg.qr(rng.standard_normal((3, 3)))[0] @ back
    total = lambda one: float(problem.excess(one) + problem.regulariser(one))
    moved = total(change(general if planted else turn))
    return all_of(
        close(float(problem.excess(change(general))), float(problem.excess(layer)), 1e-12, "excess under GL(d)"),
        close(moved, total(layer), 1e-12, "regularised loss under the gauge group"),
    )


@claim(
    "attention-regression/connected",
    f"{GOEL}, Theorem 1.2",
    "proved",
    expected=Outcome.refuted,
    repair="attention-regression/two-components",
)
def connected(lab: Lab, planted: bool) -> Verdict:
    """The manifold of minima is connected.
    Points of the two components would have to come arbitrarily close."""
    problem = prescribed_spectrum(4, (0.05, 0.04, 0.03), 5.0, 11) if planted else small_problem(lab)
    points = [balanced_point(problem, rotation) for rotation in rotations(50, 3)]
    gap = min(nearest_minimum(problem, point, TwoSided()).other for point in points)
    return at_most(gap, 1e-6, "least distance from a minimum to the component of the other determinant")


@claim("attention-regression/two-components", f"{GOEL}, Theorem 1.2, corrected by us", "repaired")
def two_components(lab: Lab, planted: bool) -> Verdict:
    """The minima have two components, det R = 1 and -1, sqrt(8 s_d) apart; descent stays with the one it starts with.
    The gap is sqrt(8 s_d), and descent never changes the sign of det(E'W)."""
    problem = small_problem(lab)
    points = [balanced_point(problem, rotation) for rotation in rotations(50, 3)]
    gap = min(nearest_minimum(problem, point, TwoSided()).other for point in points)
    plus = eigenbasis(problem).plus
    signs = np.array([np.sign(np.linalg.det(plus.T @ run.whitened)) for run in random_runs(lab)])
    changes = float(np.abs(np.diff(signs, axis=1)).sum())
    predicted = component_distance(problem) / (np.sqrt(2) if planted else 1)
    return all_of(
        close(gap, predicted, 1e-9, "distance between the components against sqrt(8 s_d)"),
        at_most(changes, 0.0, "changes of sign of det(E'W) along 60 runs"),
    )


@claim("attention-regression/theorem-1.3", f"{GOEL}, Theorem 1.3, constants by us", "sharpened")
def one_point_convexity(lab: Lab, planted: bool) -> Verdict:
    """One-point strong convexity and smoothness near the minima, with alpha = 2 s_d - 5/4 r^2 and beta = 4 s_1 + 3 sqrt(2 s_1) r + r^2, both sharp; in the one-sided norm with 2 s_d lambda_min - 5/4 lambda_max^2 r^2 and lambda_max beta.
    Worst case over directions against alpha(r) and beta(r), which it attains in the two-sided norm, and points around minima of drawn problems; planted: alpha without its loss in r, and the two-sided constants in the one-sided norm."""
    problem, checks = small_problem(lab), []
    low, radius = 2 * float(problem.sizes[-1]), attraction_radius(problem, TwoSided())
    for share in (0.5, 1.0):
        found = contraction(problem, TwoSided(), share * radius)
        alpha, beta = worst_constants(problem, TwoSided(), share * radius)
        checks += [
            *_within(alpha, beta, low if planted else found.alpha, found.beta, f"{share:g} r_0", 1e-9),
            at_most(alpha, found.alpha * (1 + 1e-5), f"alpha is sharp at {share:g} r_0"),
            at_least(beta, found.beta * (1 - 1e-5), f"beta is sharp at {share:g} r_0"),
        ]
    for share in (0.01, 0.5, 1.0):
        length = share * attraction_radius(problem, Left())
        found = contraction(problem, TwoSided() if planted else Left(), length)
        worst = worst_constants(problem, Left(), length)
        checks += _within(*worst, found.alpha, found.beta, f"{share:g} r_0, left")
    return all_of(*checks, *(_on_draws(lab, geometry) for geometry in (TwoSided(), Left())))


def _on_draws(lab: Lab, geometry: AbstractGeometry) -> Verdict:
    """Both inequalities at points around the minima of every drawn problem."""
    worst = 0.0
    for seed, problem in enumerate(drawn_problems(lab)):
        root = metric_root(problem, geometry)
        for whitened, nearest in around(problem, geometry, attraction_radius(problem, geometry), 4, seed):
            away, slope = (whitened - nearest.whitened) @ np.linalg.inv(root), plain_slope(problem)(whitened) @ root
            found, pull = contraction(problem, geometry, nearest.distance), float(np.sum(slope * away))
            length = float(np.linalg.norm(slope))
            worst = max(worst, found.alpha * nearest.distance**2 / pull, length / (found.beta * nearest.distance))
    return at_most(
        worst,
        1.0,
        f"largest of alpha dist^2 / <gradient, Delta> and |gradient| / (beta dist), 20 problems, {geometry.name}",
    )


def _within(
    alpha: float, beta: float, least: float, largest: float, where: str, rounding: float = 0.0
) -> tuple[Verdict, Verdict]:
    return (
        at_least(alpha, least * (1 - rounding), f"least <gradient, Delta>/r^2 at {where}"),
        at_most(beta, largest * (1 + rounding), f"largest |gradient|/r at {where}"),
    )


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
    problem, layer = plane_problem(lab)
    key = np.asarray(problem.whiten(layer))[problem.outputs :].T
    grid, mass = quadrature(lab)
    power = 0.5
    self_logits = np.einsum("ni,ij,nj->n", grid, key, grid)
    cross = float(mass @ np.exp(power**2 / 2 * np.sum((grid @ key.T) ** 2, axis=1)))  # one Gaussian integral by hand
    checks = [
        close(float(mass @ np.exp(power * self_logits)), np.exp(log_self_moment(key, power)), 1e-10, "E exp(x'Vx/2)"),
        close(cross, np.exp(log_cross_moment(key, power)), 1e-10, "E exp(x'Vy/2)"),
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


@claim("attention-regression/scale", f"{GOEL}, after the discussion of Assumption 3", "proved")
def scale_family(lab: Lab, planted: bool) -> Verdict:
    """The scale (cU, V/c) keeps the population loss and shrinks the logits, so Assumption 3 is one of scale.
    (cU, V/c) leaves the population loss and multiplies the logits by 1/c; planted: it leaves the regulariser, too."""
    problem = small_problem(lab)
    whitened = random_runs(lab)[30].whitened[0]
    factor = np.concatenate([np.full((4, 1), 3.0), np.full((3, 1), 1 / 3.0)])
    moved = layer_of(problem, factor * whitened)
    ratio = float(problem.excess(moved) / problem.excess(layer_of(problem, whitened)))
    logits = key_strength(factor * whitened, 4)[1] / key_strength(whitened, 4)[1]
    checks = [close(ratio, 1.0, 1e-12, "excess of (3U, V/3)"), close(logits, 1 / 3, 1e-12, "norm of its logits")]
    if planted:
        kept = float(problem.regulariser(moved) / problem.regulariser(layer_of(problem, whitened)))
        checks.append(close(kept, 1.0, 1e-12, "regulariser of (3U, V/3)"))
    return all_of(*checks)
