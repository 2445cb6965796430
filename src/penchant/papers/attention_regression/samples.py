"""Claims on training attention from data: the spectral start, and what training settles at (Theorem 2)."""

from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.stats import beta

from ...diagnostics.rates import Interval, exponent, log_log_slope
from ...lab import Lab, claim, recipe
from ...training.events import At
from ...verdict import Verdict, all_of, at_least, at_most, close, covers
from .evidence import (
    BY_US,
    STEPS,
    experiment_run,
    mean_layer_excess,
    sampled_oracle_floors,
    scaling_problem,
)
from .lemmas import agrees
from .setting.balanced_minima import nearest_minimum
from .setting.context_bias import Estimate, bias_gradient, noise_variance, oracle_shift, sample_floor, spectral_floor
from .setting.geometry import Left, TwoSided, attraction_radius
from .setting.problem import AttentionLayer, AttentionRegression
from .setting.sample import AttentionSample, attention_experiment, draw_sample, prescribed_spectrum, spectral_layer
from .theorems import GOEL
from .training.algorithm1 import train_attention
from .training.rules import PreconditionedDescent
from .training.sources import FullSample, Minibatch

COUNTS = (200, 800, 3200)
ORACLE_PLAN = {50: (16, 4), 100: (16, 4), 200: (8, 3)}  # n -> fresh samples per step, runs


def draw_samples(problem: AttentionRegression, count: int, sets: int, seed: int | list[int]) -> list[AttentionSample]:
    """Data sets of a problem."""
    rng = np.random.default_rng(seed)
    return [draw_sample(problem, count, rng) for _ in range(sets)]


@recipe
def start_distances(lab: Lab, count: int, sets: int = 80) -> np.ndarray:
    """Two-sided distances of spectral starts to the minima, one per data set of `count` samples."""
    problem = scaling_problem(lab, 1e-3)
    layers = [spectral_layer(sample.estimated) for sample in draw_samples(problem, count, sets, 50 + count)]
    return np.array([nearest_minimum(problem, problem.whiten(layer), TwoSided()).distance for layer in layers])


@claim("attention-regression/start-rate", f"{GOEL}, Lemma 5", "proved")
def start_rate(lab: Lab, planted: bool) -> Verdict:
    """The spectral start is within O(n^-1/2) of the minima.
    Root mean square distance against n; planted: a rate of 1/n."""
    sizes = [float(np.sqrt((start_distances(lab, n) ** 2).mean())) for n in COUNTS]
    slope = log_log_slope(np.array(COUNTS, float), np.array(sizes), (float(COUNTS[0]), float(COUNTS[-1])))
    return close(slope, -1.0 if planted else -0.5, 0.1, "slope of the distance of the spectral start against n")


@claim("attention-regression/start-inside", f"{GOEL}, Lemma 3", "sharpened")
def start_inside(lab: Lab, planted: bool) -> Verdict:
    """The spectral start lies in the region of attraction, r_0 = sqrt(4 s_d/5).
    Every one of 240 data sets starts within r_0; planted: also with 8 samples each."""
    radius = attraction_radius(scaling_problem(lab, 1e-3), TwoSided())
    farthest = max(start_distances(lab, n).max() for n in ((8,) if planted else COUNTS))
    return at_most(float(farthest), radius, "largest distance of a spectral start to the minima, bound r_0")


@claim("attention-regression/lemma-6", f"{GOEL}, Lemma 6, constants by us", "sharpened")
def lemma6(lab: Lab, planted: bool) -> Verdict:
    """Least squares errs by E |A_n - A|_F^2 = sigma^2 m tr Sigma^-1 / (n - d - 1), and with probability 1 - 2 delta |A_n - A| is at most sigma (sqrt m + sqrt d + t) / ((sqrt n - sqrt d - t) sqrt lambda_min), t^2 = 2 log(1/delta).
    4000 data sets of 25 rows, delta = 0.05; planted: n for n - d - 1."""
    problem, count, delta = scaling_problem(lab, 1e-3), 25, 0.05
    rng, (m, d), noise = np.random.default_rng(9), problem.planted.shape, float(problem.noise)
    inputs = rng.standard_normal((4000, count, d)) @ np.asarray(problem.root)
    gram = inputs.transpose(0, 2, 1) @ inputs
    errors = np.linalg.solve(gram, inputs.transpose(0, 2, 1) @ rng.standard_normal((4000, count, m))) * np.sqrt(noise)
    least, tail = float(problem.spread[0]), np.sqrt(2 * np.log(1 / delta))
    bound = np.sqrt(noise / least) * (np.sqrt(m) + np.sqrt(d) + tail) / (np.sqrt(count) - np.sqrt(d) - tail)
    beyond = float(np.mean(np.linalg.norm(errors, 2, axis=(1, 2)) > bound))
    expected = noise * m * float(np.sum(1 / problem.spread)) / (count if planted else count - d - 1)
    return all_of(
        agrees(Estimate.of(np.sum(errors**2, axis=(1, 2))), expected, "E |A_n - A|_F^2"),
        at_most(beyond, 2 * delta, "share of data sets beyond the bound of the operator norm"),
    )


@claim("attention-regression/start-excess", f"{GOEL}, Figure 1, constant by us", "sharpened", slow=True)
def start_excess(lab: Lab, planted: bool) -> Verdict:
    """The spectral start has excess v_spec/n, v_spec = sigma^2 m d + (sum s)^2 + sum s^2.
    Excess of the spectral start against v_spec/n; planted: the part of the noise alone, what least squares pays."""
    problem, count = scaling_problem(lab, 1e-3), 1600
    layers = [spectral_layer(sample.estimated) for sample in draw_samples(problem, count, 300, 2)]
    found = Estimate.of(count * np.array([float(problem.excess(layer)) for layer in layers]))
    return agrees(found, noise_variance(problem) if planted else spectral_floor(problem), "n excess of the start")


def oracle_exponent(lab: Lab) -> Interval:
    """The exponent in n of what training with the mean gradient of fresh samples settles at; no expansion in 1/n enters."""
    return exponent({n: sampled_oracle_floors(lab, n, batches, runs) for n, (batches, runs) in ORACLE_PLAN.items()})


@claim("attention-regression/oracle-bound", f"{GOEL}, Theorem 2", "proved", slow=True)
def oracle_bound(lab: Lab, planted: bool) -> Verdict:
    """With the expected gradient over samples of size n, training settles at an excess O(1/n).
    The floor falls at least like 1/n, by the whole 95 % interval of its exponent; planted: at least like n^-3."""
    found = oracle_exponent(lab)
    text = f"upper end of the exponent {found} of the oracle's floor, n = 50 to 200, fresh samples"
    return at_most(found.high, -3.0 if planted else -1.0, text)


LAW_COUNTS, _LAW_STEPS, _PROBLEMS, _SETS = (1600, 12_800, 102_400), 200, 20, 20


def estimates(
    problem: AttentionRegression, count: int, sets: int, rng: np.random.Generator
) -> list[AttentionRegression]:
    """What so many data sets of `count` rows say of a problem, by the Wishart law of the covariance and the normal law of least squares."""
    d, root, back = problem.inputs, np.asarray(problem.root), np.asarray(problem.inverse_root)
    lower = np.tril(rng.standard_normal((sets, d, d)), -1)
    lower[:, np.arange(d), np.arange(d)] = np.sqrt(rng.chisquare(count - np.arange(d), (sets, d)))
    noise = np.sqrt(float(problem.noise)) * rng.standard_normal((sets, problem.outputs, d))
    planted = np.asarray(problem.planted) + noise @ np.linalg.inv(lower) @ back
    covariances = root @ lower @ lower.transpose(0, 2, 1) @ root / count
    return [AttentionRegression(*one) for one in zip(covariances, planted, strict=True)]


@jax.jit
def _oracle_run(truth: AttentionRegression, count: Array, estimate: AttentionRegression, start: Array) -> Array:
    """Algorithm 1 as printed, in batches: L_reg - L* at every step with the expected gradient over `count` rows, preconditioned on one side by the estimate."""

    def one(truth: AttentionRegression, count: Array, estimate: AttentionRegression, start: Array) -> Array:
        size, root = 1 / (4 * truth.sizes[0] * truth.spread[-1]), truth.root

        def step(whitened: Array, _: None) -> tuple[Array, Array]:
            slope = truth.whitened_gradient(whitened) + bias_gradient(whitened, truth.target, True) / count
            upper, lower = slope[: truth.outputs], slope[truth.outputs :]
            move = Left().precondition(AttentionLayer(upper @ root, root @ lower.T @ root), estimate.covariance)
            total = truth.whitened_excess(whitened) + truth.whitened_regulariser(whitened)
            return whitened - size * truth.whiten(move), total

        return jax.lax.scan(step, start, None, length=_LAW_STEPS)[1]

    return jax.vmap(one)(truth, count, estimate, start)


@recipe
def scaling_law_runs(lab: Lab) -> tuple[np.ndarray, dict[int, np.ndarray]]:
    """The smallest curvatures s_d, s_d lambda_min over 2 s_1 of 20 problems, once for each of 20 data sets, and L_reg - L* of every run at every step by n."""
    rng, stacked = np.random.default_rng(0), lambda parts: jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts)
    drawn = [(np.sort(rng.uniform(0.02, 0.06, 3))[::-1], rng.uniform(4.0, 8.0), k) for k in range(_PROBLEMS)]
    problems = [
        prescribed_spectrum(4, sizes, condition, k, 1e-3) for sizes, condition, k in drawn for _ in range(_SETS)
    ]
    found = {}
    for n in LAW_COUNTS:
        seen = [one for problem in problems[::_SETS] for one in estimates(problem, n, _SETS, rng)]
        starts = [problem.whiten(spectral_layer(one)) for problem, one in zip(problems, seen, strict=True)]
        counts = jnp.full(len(problems), float(n))
        found[n] = np.asarray(_oracle_run(stacked(problems), counts, stacked(seen), jnp.stack(starts)))
    sizes, spreads = (np.stack([np.asarray(getattr(one, name)) for one in problems]) for name in ("sizes", "spread"))
    two_sided = sizes[:, -1] / (2 * sizes[:, 0])
    return np.stack([two_sided, two_sided * spreads[:, 0] / spreads[:, -1]]), found


@claim(
    "attention-regression/theorem-2",
    f"{GOEL}, Theorem 2, the Remark after Theorem 2 and Algorithm 1, constants by us",
    "sharpened",
    slow=True,
)
def scaling_law(lab: Lab, planted: bool) -> Verdict:
    """Algorithm 1 with one-sided estimated preconditioner: with probability 0.95 sqrt(L_reg - L*) is at most rho^T times its start plus a floor, rho = 1 - 2 step s_d lambda_min, and the floor of L_reg falls at least like 1/n.
    20 problems with 20 data sets each and 3 n, all steps, 95 % limits; L - L* is below L_reg - L*. Planted: rho of the two-sided algorithm, without lambda_min."""
    rates, runs = scaling_law_runs(lab)
    decay, checks = (1 - rates[0 if planted else 1][:, None]) ** np.arange(_LAW_STEPS), []
    for n, totals in runs.items():
        roots = np.sqrt(totals)
        floor = roots[:, -1:]
        inside = int((roots <= (1 + 0.05) * floor + decay * (roots[:, :1] + floor)).all(axis=1).sum())
        sure = float(beta.ppf(0.05, inside, len(roots) - inside + 1))
        text = (
            f"lower 95 % limit of the share of data sets inside the bound at every T, {inside} of {len(roots)}, n = {n}"
        )
        checks.append(at_least(sure, 0.95, text))
    found = exponent({n: totals[:, -1] for n, totals in runs.items()})
    return all_of(*checks, at_most(found.high, -1.0, f"upper end of the exponent {found} of the floor in n"))


@claim("attention-regression/oracle-floor", BY_US, "ours", slow=True)
def oracle_floor(lab: Lab, planted: bool) -> Verdict:
    """That excess is b_2/n^2, with b_2 from B_1, R_1 and the curvature.
    b_2 and the slope -2 with gradients of fresh samples, not with their expansion; planted: b_2 of the other end of the manifold."""
    problem, gauge = scaling_problem(lab), "plus" if planted else "minus"
    predicted = oracle_shift(problem, gauge, sample_balance=False).excess
    found = Estimate.of(100**2 * sampled_oracle_floors(lab, 100, *ORACLE_PLAN[100]))
    return all_of(
        close(found.mean, predicted, 0.1, "n^2 floor at n = 100 against b_2"),
        agrees(found, predicted, "n^2 floor at n = 100"),
        covers(oracle_exponent(lab), -2.0, "exponent of the oracle's floor, n = 50 to 200", rival=-1.0),
    )


def trained_excess(problem: AttentionRegression, samples: Iterable[AttentionSample], steps: int) -> np.ndarray:
    """Excess of the spectral start, and after `steps` default steps on all samples, one row per data set.

    That is Algorithm 1 without its warnings: some sizes are beyond A3 on purpose.
    """
    rule, recorder = PreconditionedDescent(), At(())

    def ends(sample: AttentionSample) -> np.ndarray:
        start = spectral_layer(sample.estimated)
        return train_attention(FullSample(sample), rule, start, steps=steps, recorder=recorder, truth=problem).excess

    return np.array([ends(sample) for sample in samples])


@recipe
def fixed_data_floor(lab: Lab, sizes: tuple[float, ...], count: int, sets: int, steps: int, seed: int = 0) -> Estimate:
    """n times the excess after training, noise-free targets."""
    problem = prescribed_spectrum(4, sizes, 5.0, 11)
    return Estimate.of(
        count * trained_excess(problem, draw_samples(problem, count, sets, [1000 + count, seed]), steps)[:, -1]
    )


@claim("attention-regression/sample-floor", BY_US, "ours", slow=True)
def sample_floor_law(lab: Lab, planted: bool) -> Verdict:
    """Training on one data set settles at an excess v/n + b_2/n^2, v = sigma^2 m d + v_ctx.
    Training on fixed data settles at v/n + b_2/n^2; planted: at the oracle's b_2/n^2."""
    problem, count = prescribed_spectrum(4, (0.2, 0.17, 0.14), 5.0, 11), 200
    second = oracle_shift(problem).excess / count
    predicted = second if planted else sample_floor(problem) + second
    return agrees(fixed_data_floor(lab, (0.2, 0.17, 0.14), count, 60, 25), predicted, "n excess after training")


@recipe
def minibatch_floor(lab: Lab, batch: int, gauge: str, count: int) -> float:
    """Excess of the mean late layer of a minibatch run."""
    problem = scaling_problem(lab, 1e-3)
    sample = draw_samples(problem, count, 1, 4)[0]
    start, rule = spectral_layer(sample.estimated, gauge), PreconditionedDescent("two_sided", 0.5)
    return mean_layer_excess(problem, Minibatch(sample, batch), rule, start, 1500)


@claim("attention-regression/minibatch-floor", BY_US, "ours", slow=True)
def minibatch_law(lab: Lab, planted: bool) -> Verdict:
    """Minibatches of size B that attend within the batch settle at an excess b_2/B^2, least from the gauge minus and largest from plus.
    The bias of the loss alone counts; planted: b_2/n^2 with n the sample, and a floor that does not know the gauge."""
    batch, count = 200, 16_000
    constant = lambda gauge: oracle_shift(scaling_problem(lab, 1e-3), gauge, sample_balance=False).excess
    least, predicted = (
        minibatch_floor(lab, batch, "minus", count),
        constant("minus") / (count if planted else batch) ** 2,
    )
    checks = [close(least, predicted, 0.2, "floor of in-batch training against b_2/B^2")]
    for gauge in ("identity", "plus"):
        ratio = 1.0 if planted else constant(gauge) / constant("minus")
        found = minibatch_floor(lab, batch, gauge, count) / least
        checks.append(close(found, ratio, 0.2, f"floor in the gauge {gauge} over minus"))
    return all_of(*checks)


@claim("attention-regression/sooner", f"{GOEL}, Figure 2", "observed", slow=True)
def sooner(lab: Lab, planted: bool) -> Verdict:
    """From a random start two-sided training reaches an excess of 0.1 L* at least five times sooner than SGD.
    First steps of both on minibatches, for three problems, samples and starts; planted: one-sided training."""
    checks, name = [], "left + reg" if planted else "two_sided + reg"
    for seed in range(lab.seed, lab.seed + 3):
        level = 0.1 * float(attention_experiment(seed=seed).problem.infimum().value)
        firsts = [experiment_run(lab, one, seed).first_below(level) for one in ("SGD", name)]
        theirs, ours = (STEPS if first is None else first for first in firsts)
        checks.append(at_least(theirs / ours, 5.0, f"steps of SGD over {name} to 0.1 L*, seed {seed}"))
    return all_of(*checks)
