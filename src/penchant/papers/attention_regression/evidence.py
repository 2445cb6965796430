"""Problems, starts and runs that the claims on attention regression share."""

from collections.abc import Callable
from importlib.util import find_spec

import jax.numpy as jnp
import numpy as np

from ...lab import Lab, recipe
from ...optimisers.base import Adam
from ...training.events import Every
from .setting.balanced_minima import NearestMinimum, nearest_minimum
from .setting.geometry import AbstractGeometry, balanced_point, eigenbasis
from .setting.problem import AttentionLayer, AttentionRegression, Unregularised
from .setting.sample import AttentionSample, attention_experiment, moment_threshold, prescribed_spectrum, spectral_layer
from .theorems import GOEL
from .training.algorithm1 import train_attention, train_populations
from .training.rules import LayerRule, PreconditionedDescent, Rule
from .training.run import AttentionRun
from .training.sources import AbstractSource, FreshBatches, Minibatch

BY_US = f"{GOEL}, by us"  # the citation of what we derived for it
BATCH, STEP, STEPS = 200, 0.1, 2000  # of the experiment of the paper


@recipe
def drawn_problems(lab: Lab) -> list[AttentionRegression]:
    """Twenty problems of drawn shapes, sizes inside A3 and condition numbers."""
    found, rng = [], np.random.default_rng([20, lab.seed])
    for seed in range(20):
        d = int(rng.integers(2, 5))
        sizes = np.sort(rng.uniform(0.01, 0.06, d))[::-1]
        found.append(prescribed_spectrum(d + int(rng.integers(0, 3)), tuple(sizes), rng.uniform(1.0, 10.0), seed))
    return found


@recipe
def noisy_problems(lab: Lab) -> list[AttentionRegression]:
    """Twenty of one shape with noise of variance 1e-3, sizes inside A3 and condition numbers from 4 to 8."""
    rng = np.random.default_rng([7, lab.seed])
    draws = [(np.sort(rng.uniform(0.02, 0.06, 3))[::-1], rng.uniform(4.0, 8.0), seed) for seed in range(20)]
    return [prescribed_spectrum(4, sizes, condition, seed, 1e-3) for sizes, condition, seed in draws]


@recipe
def scaling_problem(lab: Lab, noise: float = 0.0) -> AttentionRegression:
    """Sizes (.05, .04, .03), m = 4, condition 5: inside all assumptions."""
    return prescribed_spectrum(4, (0.05, 0.04, 0.03), 5.0, 11, noise)


def rotations(count: int, d: int, seed: int = 0) -> list[np.ndarray]:
    """Random orthogonal matrices, of both determinants."""
    rng = np.random.default_rng(seed)
    found = [np.linalg.qr(rng.standard_normal((d, d)))[0] for _ in range(count)]
    return [np.diag([(-1.0) ** k] + [1.0] * (d - 1)) @ one for k, one in enumerate(found)]


def layer_of(problem: AttentionRegression, whitened: np.ndarray) -> AttentionLayer:
    return problem.unwhiten(jnp.asarray(whitened))


def regularised(problem: AttentionRegression, whitened: np.ndarray) -> float:
    """g(W): excess plus regulariser."""
    point = jnp.asarray(whitened)
    return float(problem.whitened_excess(point) + problem.whitened_regulariser(point))


def plain_slope(problem: AttentionRegression) -> Callable[[np.ndarray], np.ndarray]:
    """The gradient by W of excess + regulariser in plain arrays: for loops over single points."""
    target, m = np.asarray(problem.target), problem.outputs

    def gradient(whitened: np.ndarray) -> np.ndarray:
        upper, lower = whitened[:m], whitened[m:]
        residual = upper @ lower.T - target
        gap = upper.T @ upper - lower.T @ lower
        return np.concatenate([2 * residual @ lower + upper @ gap, 2 * residual.T @ upper - lower @ gap])

    return gradient


def around(
    problem: AttentionRegression, geometry: AbstractGeometry, radius: float, count: int, seed: int = 0
) -> list[tuple[np.ndarray, NearestMinimum]]:
    """Points near random minima, at most `radius` away in a geometry, with their projections."""
    rng, found = np.random.default_rng(seed), []
    rows = problem.outputs + problem.inputs
    for rotation in rotations(count, problem.inputs, seed):
        step = rng.standard_normal((rows, problem.inputs))
        whitened = balanced_point(problem, rotation) + rng.uniform(0.1, 1) * radius * step / np.linalg.norm(step)
        nearest = nearest_minimum(problem, whitened, geometry)
        excess = max(nearest.distance / radius, 1.0)  # in a stretched norm the step may be too long: shorten it
        whitened = nearest.whitened + (whitened - nearest.whitened) / excess
        found.append((whitened, nearest_minimum(problem, whitened, geometry)))
    return found


def neighbourhood(problem: AttentionRegression, count: int, seed: int) -> np.ndarray:
    """Points around random minima, closer than 1/4 - sqrt(s_1), where Lemma 7 has second moments of the logits: count x (m + d) x d."""
    rng = np.random.default_rng(seed)
    steps = rng.standard_normal((count, problem.outputs + problem.inputs, problem.inputs))
    lengths = (np.sqrt(moment_threshold(2.0)) - np.sqrt(float(problem.sizes[0]))) * rng.uniform(0.0, 1.0, count)
    steps *= (lengths / np.linalg.norm(steps, axis=(1, 2)))[:, None, None]
    return steps + np.stack([balanced_point(problem, one) for one in rotations(count, problem.inputs, seed)])


@recipe
def random_runs(lab: Lab) -> list[AttentionRun]:
    """Adaptive two-sided descent on 20 drawn problems of one shape, from normal starts of sizes 0.1 to 3."""
    rng, rule, found = np.random.default_rng([5, lab.seed]), PreconditionedDescent("two_sided", "adaptive"), []
    for seed in range(20):
        sizes = np.sort(rng.uniform(0.01, 0.06, 3))[::-1]
        problem = prescribed_spectrum(4, sizes, rng.uniform(1.0, 10.0), seed)
        starts = [layer_of(problem, size * rng.standard_normal((7, 3))) for size in np.geomspace(0.1, 3.0, 3)]
        found += train_populations(problem, rule, starts, steps=1000, recorder=Every(20))
    return found


def start_near(problem: AttentionRegression, radius: float, seed: int) -> np.ndarray:
    """The minimum of the gauge identity plus a normal direction of length `radius`."""
    direction = np.random.default_rng(seed).standard_normal((problem.outputs + problem.inputs, problem.inputs))
    return balanced_point(problem) + radius * direction / np.linalg.norm(direction)


def quadrature(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Points and weights of a product Gauss-Hermite rule for the standard normal law in the plane."""
    points, weights = np.polynomial.hermite_e.hermegauss(nodes)
    grid = np.stack(np.meshgrid(points, points), -1).reshape(-1, 2)
    return grid, np.outer(weights, weights).ravel() / (2 * np.pi)


def metric_root(problem: AttentionRegression, geometry: AbstractGeometry) -> np.ndarray:
    """T with |W T^-1|_F the norm of the geometry: the identity for `two_sided`, the root of the covariance for `left`."""
    return np.asarray(problem.root) if geometry.columns else np.eye(problem.inputs)


def attained(problem: AttentionRegression, radius: float) -> tuple[np.ndarray, np.ndarray]:
    """Steps of this length off the minimum of the gauge identity that meet Theorem 1.3 with equality, in the two-sided norm and for m > d.

    Along the strongest mode the gradient is largest. Against the weakest one, by 3/2 r^2 / sqrt(2 s_d), and else along the kernel of J convexity is least.
    """
    basis, sizes, d = eigenbasis(problem), np.asarray(problem.sizes), problem.inputs
    against = -1.5 * radius**2 / np.sqrt(2 * sizes[-1])
    weak = against * basis.plus[:, -1] + np.sqrt(radius**2 - against**2) * basis.kernel[:, 0]
    return np.outer(weak, np.eye(d)[-1]), np.outer(radius * basis.plus[:, 0], np.eye(d)[0])


def mean_layer_excess(
    problem: AttentionRegression, source: AbstractSource, rule: Rule, start: AttentionLayer, steps: int
) -> float:
    """What a run settles at."""
    return train_attention(source, rule, start, steps=steps, recorder=Every(5), truth=problem).late_excess(problem)


@recipe
def sampled_oracle_floors(lab: Lab, count: int, batches: int, runs: int) -> np.ndarray:
    """Floors with the mean gradient of `batches` fresh samples of size `count` per step, one per run; noise-free targets.

    The regulariser is the population's, so b_2 is that of `oracle_shift(..., sample_balance=False)`.
    """
    problem, rule = scaling_problem(lab), PreconditionedDescent("two_sided", 2.0)
    start = spectral_layer(problem, "minus")
    sources = (FreshBatches(problem, count, batches, k) for k in range(runs))
    return np.array([mean_layer_excess(problem, source, rule, start, 200) for source in sources])


def experiment_rules() -> dict[str, Rule]:
    """Everything that is compared from the random start of the experiment."""
    plain = Unregularised()
    rules = {
        "two_sided + reg": PreconditionedDescent("two_sided", STEP),
        "two_sided, no reg": PreconditionedDescent("two_sided", STEP, plain),
        "left + reg": PreconditionedDescent("left", STEP),
        "left, no reg": PreconditionedDescent("left", STEP, plain),
        "euclidean + reg": PreconditionedDescent("euclidean", STEP),
        "SGD": PreconditionedDescent("euclidean", STEP, plain),
        "SGD, step 0.3": PreconditionedDescent("euclidean", 0.3, plain),
        "Adam, 0.03": LayerRule(Adam(0.03, eps=1e-8)),
        "two_sided + reg, adaptive": PreconditionedDescent("two_sided", "adaptive"),
    }
    if find_spec("optax") is not None:
        from ...bridge.optax import muon

        rules["Muon, 0.02 (optax)"] = muon(0.02)
    return rules


@recipe
def experiment_run(lab: Lab, name: str, seed: int) -> AttentionRun:
    """Minibatch training of the experiment of a seed from its random start."""
    found = attention_experiment(seed=seed)
    source = Minibatch(AttentionSample(found.inputs, found.targets), BATCH)
    rule = experiment_rules()[name]
    return train_attention(source, rule, found.start, steps=STEPS, recorder=Every(2), truth=found.problem)
