"""Claims on training attention from data: the spectral start, and what training settles at (Theorem 2)."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.stats import beta

from ...diagnostics.rates import exponent
from ...lab import Lab, claim, recipe
from ...training.events import At
from ...verdict import Verdict, all_of, at_least, at_most, close, covers
from .diagnostics import covariance_error, drawn_starts, estimates, start_errors
from .evidence import (
    BY_US,
    STEPS,
    experiment_run,
    mean_layer_excess,
    noisy_problems,
    sampled_oracle_floors,
    scaling_problem,
)
from .lemmas import agrees
from .setting.context_bias import Estimate, bias_gradient, oracle_shift, sample_floor, spectral_floor
from .setting.geometry import Left, TwoSided, attraction_radius
from .setting.problem import AttentionRegression
from .setting.sample import AttentionSample, attention_experiment, draw_sample, prescribed_spectrum, spectral_layer
from .theorems import GOEL
from .training.algorithm1 import train_attention
from .training.rules import PreconditionedDescent
from .training.sources import FullSample, Minibatch

_ORACLE = {50: (16, 4), 100: (16, 4), 200: (8, 3)}  # n -> fresh samples per step, runs


def draw_samples(problem: AttentionRegression, count: int, sets: int, seed: int | list[int]) -> list[AttentionSample]:
    """Data sets of a problem."""
    rng = np.random.default_rng(seed)
    return [draw_sample(problem, count, rng) for _ in range(sets)]


def _sure(inside: np.ndarray) -> float:
    """Lower 95 % limit of the share of True."""
    hits = int(np.sum(inside))
    return float(beta.ppf(0.05, hits, inside.size - hits + 1))


@claim("attention-regression/lemma-3", f"{GOEL}, Lemma 3, constants by us", "sharpened")
def lemma3(lab: Lab, planted: bool) -> Verdict:
    """With probability 0.95 the spectral start is within r_0, and |Sigma^(1/2) S^-1 Sigma^(1/2) - 1| at most (1 - (sqrt d + t)/sqrt n)^-2 - 1 for the covariance S of the sample, t^2 = 2 log(2/0.05).
    20 problems with 200 data sets of 400 rows each, 95 % limits; planted: the bound without t."""
    count, inside, near = 400, [], []
    for seed, problem in enumerate(noisy_problems(lab)):
        near.append(start_errors(problem, count, 200, seed) <= attraction_radius(problem, TwoSided()))
        reach = np.sqrt(problem.inputs) + (0.0 if planted else np.sqrt(2 * np.log(2 / 0.05)))
        bound, covariances = (1 - reach / np.sqrt(count)) ** -2 - 1, estimates(problem, count, 200, seed)[0]
        inside.append([covariance_error(problem, one) <= bound for one in covariances])
    what = "lower 95 % limit of the share of 4000 data sets"
    return all_of(
        at_least(_sure(np.array(near)), 0.95, f"{what} whose spectral start is within r_0"),
        at_least(_sure(np.array(inside)), 0.95, f"{what} whose covariance is inside the bound"),
    )


@claim("attention-regression/lemma-5", f"{GOEL}, Lemma 5", "proved")
def lemma5(lab: Lab, planted: bool) -> Verdict:
    """The spectral start is within O(n^-1/2) of the minima.
    The 95 % interval of the exponent of dist^2 in n, 20 problems with 500 data sets each; planted: -1.1 for -1."""
    drawn = lambda n: [start_errors(one, n, 500, n + k) ** 2 for k, one in enumerate(noisy_problems(lab))]
    found = exponent({n: np.ravel(drawn(n)) for n in (12_800, 51_200, 204_800)})
    return covers(found, -1.1 if planted else -1.0, "exponent of dist^2 in n", rival=-1.1)


@claim("attention-regression/lemma-6", f"{GOEL}, Lemma 6, constants by us", "sharpened")
def lemma6(lab: Lab, planted: bool) -> Verdict:
    """Least squares errs by E |A_n - A|_F^2 = sigma^2 m tr Sigma^-1 / (n - d - 1), and with probability 1 - 2 delta |A_n - A| is at most sigma (sqrt m + sqrt d + t) / ((sqrt n - sqrt d - t) sqrt lambda_min), t^2 = 2 log(1/delta).
    20 problems with 200 data sets of 25 rows each, delta = 0.05; planted: n for n - d - 1."""
    count, delta, shares, beyond = 25, 0.05, [], []
    tail = np.sqrt(2 * np.log(1 / delta))
    for seed, problem in enumerate(noisy_problems(lab)):
        rng, (m, d), noise = np.random.default_rng([9, seed]), problem.planted.shape, float(problem.noise)
        inputs = rng.standard_normal((200, count, d)) @ np.asarray(problem.root)
        turned = inputs.swapaxes(1, 2)
        errors = np.linalg.solve(turned @ inputs, turned @ rng.standard_normal((200, count, m))) * np.sqrt(noise)
        root = np.sqrt(noise / float(problem.spread[0]))
        bound = root * (np.sqrt(m) + np.sqrt(d) + tail) / (np.sqrt(count) - np.sqrt(d) - tail)
        beyond.append(np.linalg.norm(errors, 2, axis=(1, 2)) > bound)
        expected = noise * m * float(np.sum(1 / problem.spread)) / (count if planted else count - d - 1)
        shares.append(np.sum(errors**2, axis=(1, 2)) / expected)
    return all_of(
        agrees(Estimate.of(np.ravel(shares)), 1.0, "E |A_n - A|_F^2 over its value"),
        at_most(float(np.mean(beyond)), 2 * delta, "share of data sets beyond the bound of the operator norm"),
    )


@claim("attention-regression/start-excess", f"{GOEL}, Figure 1, constant by us", "sharpened")
def start_excess(lab: Lab, planted: bool) -> Verdict:
    """The spectral start has excess v_spec/n, v_spec = sigma^2 m d + (sum s)^2 + sum s^2.
    20 problems with 400 data sets of 12 800 rows each; planted: without the last sum."""
    count, shares = 12_800, []
    for seed, problem in enumerate(noisy_problems(lab)):
        excess = jax.vmap(problem.whitened_excess)(jnp.asarray(drawn_starts(problem, count, 400, seed)))
        lost = float(jnp.sum(problem.sizes**2)) if planted else 0.0
        shares.append(count * np.asarray(excess) / (spectral_floor(problem) - lost))
    return agrees(Estimate.of(np.ravel(shares)), 1.0, "n excess of the start over v_spec")


_LAW_COUNTS, _LAW_STEPS, _SETS = (1600, 12_800, 102_400), 200, 20


@jax.jit
def _oracle_run(truth: AttentionRegression, count: Array, estimate: AttentionRegression, start: Array) -> Array:
    """Algorithm 1 as printed, in batches: L_reg - L* at every step with the expected gradient over `count` rows, preconditioned on one side by the estimate."""

    def one(truth: AttentionRegression, count: Array, estimate: AttentionRegression, start: Array) -> Array:
        size = 1 / (4 * truth.sizes[0] * truth.spread[-1])

        def step(whitened: Array, _: None) -> tuple[Array, Array]:
            slope = truth.whitened_gradient(whitened) + bias_gradient(whitened, truth.target, True) / count
            move = Left().precondition(truth.by_layer(slope), estimate.covariance)
            total = truth.whitened_excess(whitened) + truth.whitened_regulariser(whitened)
            return whitened - size * truth.whiten(move), total

        return jax.lax.scan(step, start, None, length=_LAW_STEPS)[1]

    return jax.vmap(one)(truth, count, estimate, start)


@recipe
def scaling_law_runs(lab: Lab) -> tuple[np.ndarray, dict[int, np.ndarray]]:
    """The smallest curvatures s_d, s_d lambda_min over 2 s_1 of 20 problems, once for each of 20 data sets, and L_reg - L* of every run at every step by n."""
    stacked = lambda parts: jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts)
    problems, found = [one for one in noisy_problems(lab) for _ in range(_SETS)], {}
    for n in _LAW_COUNTS:
        drawn = (zip(*estimates(one, n, _SETS, k), strict=True) for k, one in enumerate(noisy_problems(lab)))
        seen = [AttentionRegression(*one) for sets in drawn for one in sets]
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
        inside = (roots <= (1 + 0.05) * floor + decay * (roots[:, :1] + floor)).all(axis=1)
        text = f"lower 95 % limit of the share of data sets inside the bound at every T, {inside.sum()} of {len(roots)}, n = {n}"
        checks.append(at_least(_sure(inside), 0.95, text))
    found = exponent({n: totals[:, -1] for n, totals in runs.items()})
    return all_of(*checks, at_most(found.high, -1.0, f"upper end of the exponent {found} of the floor in n"))


@claim("attention-regression/oracle-floor", BY_US, "ours", slow=True)
def oracle_floor(lab: Lab, planted: bool) -> Verdict:
    """With the expected gradient over samples of size n training settles at an excess b_2/n^2, with b_2 from B_1, R_1 and the curvature.
    b_2 and the slope -2 with gradients of fresh samples, not with their expansion; planted: b_2 of the other end of the manifold."""
    problem, gauge = scaling_problem(lab), "plus" if planted else "minus"
    predicted = oracle_shift(problem, gauge, sample_balance=False).excess
    floors = {n: sampled_oracle_floors(lab, n, batches, runs) for n, (batches, runs) in _ORACLE.items()}
    return all_of(
        agrees(Estimate.of(100**2 * floors[100]), predicted, "n^2 floor at n = 100"),
        covers(exponent(floors), -2.0, "exponent of the oracle's floor, n = 50 to 200", rival=-1.0),
    )


@recipe
def trained_excess(lab: Lab, sizes: tuple[float, ...], count: int, sets: int, steps: int) -> np.ndarray:
    """Excess after `steps` default steps on all samples of noise-free data sets, from their spectral starts: Algorithm 1 without its warnings, as some sizes are beyond A3."""
    problem, rule = prescribed_spectrum(4, sizes, 5.0, 11), PreconditionedDescent()

    def end(sample: AttentionSample) -> float:
        start = spectral_layer(sample.estimated)
        run = train_attention(FullSample(sample), rule, start, steps=steps, recorder=At(()), truth=problem)
        return float(run.excess[-1])

    return np.array([end(sample) for sample in draw_samples(problem, count, sets, [1000 + count, lab.seed])])


@claim("attention-regression/sample-floor", BY_US, "ours", slow=True)
def sample_floor_law(lab: Lab, planted: bool) -> Verdict:
    """Training on one data set settles at an excess v/n + b_2/n^2, v = sigma^2 m d + v_ctx.
    60 data sets of 200 samples; planted: the oracle's b_2/n^2."""
    sizes, count = (0.2, 0.17, 0.14), 200
    problem = prescribed_spectrum(4, sizes, 5.0, 11)
    second = oracle_shift(problem).excess / count
    predicted = second if planted else sample_floor(problem) + second
    return agrees(Estimate.of(count * trained_excess(lab, sizes, count, 60, 25)), predicted, "n excess after training")


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
    The bias of the loss alone counts; what is left out is of relative order 1/(B s_d). Planted: b_2/n^2 with n the sample, and a floor that does not know the gauge."""
    batch, count = 200, 16_000
    room = 1 / (batch * float(scaling_problem(lab).sizes[-1]))
    constant = lambda gauge: oracle_shift(scaling_problem(lab, 1e-3), gauge, sample_balance=False).excess
    least, predicted = (
        minibatch_floor(lab, batch, "minus", count),
        constant("minus") / (count if planted else batch) ** 2,
    )
    checks = [close(least, predicted, room, "floor of in-batch training against b_2/B^2")]
    for gauge in ("identity", "plus"):
        ratio = 1.0 if planted else constant(gauge) / constant("minus")
        found = minibatch_floor(lab, batch, gauge, count) / least
        checks.append(close(found, ratio, room, f"floor in the gauge {gauge} over minus"))
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
