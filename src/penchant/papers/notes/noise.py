"""Claims on the noise of SGD: where it settles on a quadratic, exactly; what label noise selects, with the law for it, and that law itself, leading order against second moments."""

from collections.abc import Iterator

import numpy as np
from scipy.special import stdtrit
from scipy.stats import norm

from ...diagnostics.noise import (
    diffusion_covariance,
    diffusion_lag_covariance,
    diffusion_transient,
    lag_correlation,
    lag_covariance,
    noisy_covariance,
)
from ...diagnostics.rates import log_log_slope
from ...lab import Lab, claim, recipe
from ...references.interpolation import basis_pursuit, minimum_potential
from ...settings.generators import sparse_regression
from ...settings.potentials import Entropy, HyperbolicEntropy
from ...settings.regression import Regression
from ...training.noise import NoisyRun, label_noise, moment_descent, quadratic_noise, regularised_descent, row_signs
from ...verdict import Outcome, Verdict, all_of, at_most, close
from .evidence import DERIVED
from .theorems import NOTES


@claim("noise/variance", f"{NOTES}, section 9.5, with exp(-lambda t); exact forms {DERIVED}", "sharpened")
def one_dimension(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """In one dimension SGD settles at variance step sigma^2 / (lambda (2 - step lambda)), and correlates with itself h steps later by (1 - step lambda)^h.
    Twenty-four drawn curvatures and noises with 10 000 chains each, three steps later; joint 99.9 %. Planted: the variance and the exp(-lambda t) of the diffusion limit."""
    chains, step, lag, rng = 10_000, 0.3, 3, np.random.default_rng(lab.seed)
    sizes, noise = rng.uniform(0.5, 3.0, (2, 24))
    exact, shares = (
        np.diag(noisy_covariance(np.diag(sizes), np.diag(noise), step)),
        lag_correlation(np.diag(sizes), np.diag(noise), step, lag).diagonal(),
    )
    limit = diffusion_covariance(np.diag(sizes), np.diag(noise), step)
    variance, correlation = (np.diag(limit), np.exp(-step * sizes * lag)) if planted else (exact, shares)
    ends = quadratic_noise(np.diag(sizes), np.diag(noise), step, 100, chains, lab.seed)
    first = later = np.sqrt(exact) * rng.standard_normal((chains, 24))
    for _ in range(lag):
        later = later - step * (sizes * later + np.sqrt(noise) * rng.standard_normal((chains, 24)))
    measured = (first * later).mean(axis=0) / np.sqrt((first**2).mean(axis=0) * (later**2).mean(axis=0))
    for what, apart in (
        ("variance", ((ends**2).mean(axis=0) - variance) / (exact * np.sqrt(2 / chains))),
        (f"correlation at lag {lag}", (measured - correlation) / ((1 - shares**2) / np.sqrt(chains))),
    ):
        yield at_most(
            float(np.abs(apart).max()), float(norm.isf(5e-4 / 24)), f"{what}: largest error in standard errors"
        )


@claim("noise/separate", f"{NOTES}, section 9.5", "proved")
def separate_processes(lab: Lab, planted: bool) -> Verdict:
    """On a multi-dimensional quadratic the iterate can be disentangled into separate one-dimensional processes: its coordinates in the eigenbasis of the Hessian, which are independent where Hessian and noise commute.
    Twenty-four drawn pairs: variances against those of one dimension for any noise, correlations for noise that commutes. Planted: a tenth of other noise added."""
    errors, mixed = [], []
    for seed in range(24):
        rng, step = np.random.default_rng((lab.seed, seed)), 0.3
        first, second = rng.standard_normal((2, 3, 3))
        sizes, basis = rng.uniform(0.3, 2.0, 3), np.linalg.qr(first)[0]
        hessian, noise = (basis * sizes) @ basis.T, second @ second.T
        own = (basis * rng.uniform(1.0, 3.0, 3)) @ basis.T + (0.1 * noise if planted else 0.0)
        found, own = (basis.T @ noisy_covariance(hessian, one, step) @ basis for one in (noise, own))
        alone = [
            noisy_covariance([[a]], [[b]], step)[0, 0]
            for a, b in zip(sizes, np.diag(basis.T @ noise @ basis), strict=True)
        ]
        errors.append(np.abs(np.diag(found) / alone - 1).max())
        mixed.append(np.abs(own / np.sqrt(np.outer(np.diag(own), np.diag(own))) - np.eye(3)).max())
    return all_of(
        at_most(float(max(errors)), 1e-12, "largest relative error of a variance, any noise, 24 pairs"),
        at_most(float(max(mixed)), 1e-12, "largest correlation between eigendirections, noise that commutes"),
    )


@claim("noise/isotropic", f"{NOTES}, section 9.5; factor {DERIVED}", "sharpened")
def isotropic(lab: Lab, planted: bool) -> Verdict:
    """Label noise gives an isotropic covariance on the range of the Hessian, up to a factor 1 + O(step), and none off it.
    Sigma = sigma^2 A gives S = step sigma^2 (2 - step A)^-1, and flat directions stay, for 24 drawn A of rank 3. Planted: without the factor, step sigma^2 / 2."""
    errors, step, variance = [], 0.1, 0.7
    for root in np.random.default_rng(lab.seed).standard_normal((24, 3, 5)):
        hessian, live = root.T @ root / 5, np.linalg.svd(root)[2][:3].T
        factor = 2 * np.eye(3) - (0.0 if planted else step) * live.T @ hessian @ live
        predicted = step * variance * live @ np.linalg.inv(factor) @ live.T
        found = noisy_covariance(hessian, variance * hessian, step, 1e5)
        errors.append(np.abs(found - predicted).max() / np.abs(predicted).max())
    return at_most(
        float(max(errors)), 1e-10, "largest relative distance to step sigma^2 (2 - step A)^-1 on the range of A"
    )


@claim("noise/diffusion-limit", f"{NOTES}, section 9.5; order {DERIVED}", "sharpened")
def diffusion_limit(lab: Lab, planted: bool) -> Verdict:
    """For small steps SGD is its diffusion, transients and all entries included, up to a relative error of order step.
    Distances of the covariance at time 0.7, and of two times 0.7 apart, at steps 1e-3 and 1e-4: their ratio is 10 up to what is of order step^2. 24 drawn pairs that do not commute. Planted: at a time one per cent later."""
    ratios, late = [], 1.01 if planted else 1.0
    for first, second in np.random.default_rng(lab.seed).standard_normal((24, 2, 3, 3)):
        gaps, noise = np.zeros((2, 2)), second @ second.T
        hessian = 1.5 * first @ first.T / np.linalg.norm(first, 2) ** 2 + 0.3 * np.eye(3)
        for k, step in enumerate((1e-3, 1e-4)):
            count = round(0.7 / step)
            pairs = (
                (noisy_covariance, diffusion_transient(hessian, noise, step, late * count * step)),
                (lag_covariance, diffusion_lag_covariance(hessian, noise, step, late * count * step)),
            )
            gaps[k] = [
                np.abs(law(hessian, noise, step, count) - limit).max() / np.abs(limit).max() for law, limit in pairs
            ]
        ratios.append(gaps[0] / gaps[1])
    worst = float(np.abs(np.array(ratios) / 10 - 1).max())
    return at_most(worst, 0.01, "largest |distance at step 1e-3 over ten times that at 1e-4 - 1|, 24 pairs, both laws")


HAOCHEN = "HaoChen, Wei, Lee, Ma, Shape matters: understanding the implicit bias of the noise covariance, COLT 2021"

STEP, DEVIATION, ALPHA = 0.005, 1.0, 0.5
CHECKPOINTS = (2_500, 5_000, 10_000, 20_000, 40_000)
# the step of the noisy run while residuals are large, a longer one after that
CONTINUED = ((STEP, 2_000), (0.05, 6_000))


def chains(lab: Lab) -> tuple[int, int]:
    """Noisy chains, and how many of them are continued without noise."""
    return (1024, 64) if lab.full else (64, 16)


def signals(n: int, unit_columns: bool, seed: int = 0) -> Regression:
    """Normal inputs in thirty dimensions and the weight (1, -1, 0, ...)."""
    inputs = np.random.default_rng(seed).standard_normal((n, 30))
    if unit_columns:
        inputs = inputs / np.sqrt((inputs**2).mean(axis=0))
    return Regression(inputs, inputs[:, 0] - inputs[:, 1])


@recipe
def noisy(lab: Lab, noise: bool = True) -> NoisyRun:
    """Label-noise SGD on signed squares: two signals in thirty dimensions, fifteen samples, columns of mean square 1; or sixteen chains without noise."""
    data, start = signals(15, True, lab.seed), np.full((2, 30), ALPHA)
    deviation, count = (DEVIATION, chains(lab)[0]) if noise else (0.0, 16)
    return label_noise(data, start, step=STEP, deviation=deviation, steps=CHECKPOINTS, chains=count, seed=lab.seed)


@recipe
def drift(lab: Lab) -> NoisyRun:
    """The law of the same runs, to the order of the residuals' second moments."""
    start = np.full((2, 30), ALPHA)
    return moment_descent(signals(15, True, lab.seed), start, step=STEP, deviation=DEVIATION, steps=CHECKPOINTS)


def leading_levels(data: Regression, count: float) -> np.ndarray:
    """log w+ w- after `count` steps, to leading order: it falls by 4 step^2 sigma^2 c_j per step."""
    columns = np.asarray((data.inputs**2).mean(axis=0))
    return 2 * np.log(ALPHA) - 4 * STEP**2 * DEVIATION**2 * columns * count


def limit_of(data: Regression, log_params: np.ndarray) -> np.ndarray:
    """Where noise-free training should end from w+, w- (rows, in logarithms), or from beta (one row): the program."""
    if len(log_params) == 1:
        return minimum_potential(data, Entropy(2 * log_params[0])).weight
    plus, minus = log_params
    return minimum_potential(data, HyperbolicEntropy(plus + minus, plus - minus)).weight


def continued(data: Regression, log_params: np.ndarray) -> np.ndarray:
    """Weights at the end of descent without noise on all samples, from each of many starts (in logarithms, starts x rows x d)."""
    logs = log_params
    for step, count in CONTINUED:
        start = np.exp(logs)
        run = label_noise(data, start, step=step, deviation=0.0, steps=[count], chains=len(start), batch=None)
        logs = run.log_params[-1]
    return np.tensordot(np.exp(2 * logs), row_signs(logs.shape[1]), (1, 0))


@recipe
def continuation(lab: Lab, noise: bool = True) -> tuple[np.ndarray, float]:
    """Weights (records x used x d) at which the first chains end when their noise stops, and the largest relative residual there."""
    run = noisy(lab, noise)
    starts = run.log_params[:, : chains(lab)[1] if noise else 4]
    weights = continued(run.data, starts.reshape(-1, 2, 30)).reshape(*starts.shape[:2], 30)
    targets = np.asarray(run.data.targets)
    residual = np.linalg.norm(weights @ np.asarray(run.data.inputs).T - targets, axis=-1) / np.linalg.norm(targets)
    return weights, float(residual.max())


def measured_norms(lab: Lab, noise: bool = True) -> np.ndarray:
    """l1 norms at which the first chains end when their noise stops (records x used)."""
    return np.abs(continuation(lab, noise)[0]).sum(axis=-1)


@recipe
def predicted_norms(lab: Lab) -> np.ndarray:
    """l1 norm of the noise-off limit at every record: second moments, and leading order (two columns)."""
    law, rows = drift(lab), []
    for count, params in zip(law.steps, law.log_params, strict=True):
        leading = HyperbolicEntropy(leading_levels(law.data, float(count)), np.zeros(30))
        limits = limit_of(law.data, params), minimum_potential(law.data, leading).weight
        rows.append([np.abs(limit).sum() for limit in limits])
    return np.array(rows)


def mean_and_error(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean over the last axis and its standard error: arrays, or numbers where there is no other axis."""
    return np.asarray(values.mean(axis=-1)), np.asarray(values.std(axis=-1, ddof=1) / np.sqrt(values.shape[-1]))


def agree(measured: np.ndarray, predicted: np.ndarray, what: str, detail: str = "") -> Verdict:
    """Whether the means over the last axis cover a prediction at all records at once.

    Confirmed inside the joint 95 % interval (Student's, the level divided among the records), refuted outside the joint
    99.9 % interval, undecided in between, where chance and a law that is slightly off look alike.
    """
    mean, error = mean_and_error(measured)
    widths = [float(stdtrit(measured.shape[-1] - 1, 1 - level / (2 * len(mean)))) for level in (0.05, 0.001)]
    worst = float((np.abs(mean - predicted) / error).max())
    verdict = at_most(worst, widths[0], f"{what}, largest distance in standard errors", detail)
    if verdict.outcome is Outcome.refuted and worst <= widths[1]:
        text = f"{verdict.inequality}, the joint 95 % interval, but within {widths[1]:.3g}, the joint 99.9 % interval"
        return Verdict(Outcome.undecided, text, widths[0], worst, detail)
    return verdict


def _compared(measured: np.ndarray, predicted: np.ndarray) -> str:
    mean, error = mean_and_error(measured)
    shown = [np.round(values, 4).tolist() for values in (mean, 1.96 * error, predicted)]
    return "measured {} +- {} (95 %), law {}".format(*shown)


@claim("label-noise/selection", f"{HAOCHEN}; law {DERIVED}", "ours", slow=True)
def selection(lab: Lab, planted: bool) -> Verdict:
    """On unit columns the solution at which training ends when the noise stops moves along the law of second moments from Q_alpha towards the least l1 norm; the leading order, w+ w- shrinking by 4 step^2 sigma^2 c_j / B per step, misses it by more than the error bars.
    l1 norms of the noise-off limits at every record but the first; planted: along the leading order."""
    predicted, norms = predicted_norms(lab)[1:, int(planted)], measured_norms(lab)
    text, mean = "l1 norm at which training ends when the noise stops against the law", norms.mean(axis=1)
    share = float((mean[0] - mean[-1]) / (mean[0] - basis_pursuit(noisy(lab).data).value))
    detail = f"{_compared(norms[1:], predicted)}; {share:.3g} of the way to the l1 optimum in 40 000 steps"
    return all_of(
        agree(norms[1:], predicted, text, detail),
        at_most(continuation(lab)[1], 1e-4, "largest relative residual of the continued runs"),
    )


@recipe
def _orders(lab: Lab) -> tuple[np.ndarray, np.ndarray, float]:
    """Steps 0.005 to 0.0025 and, at equal step^2 * count, how far descent on L + (step/4) tr Hess is from the second moments; and log w+ + log w- from log w+ w-."""
    data, start = signals(15, True), np.full((2, 30), ALPHA)
    steps = np.array([0.005, 0.0035, 0.0025])
    gaps, apart = [], 0.0
    for step in steps:
        ends = [
            run(data, start, step=float(step), deviation=1.0, steps=[round(0.25 / step**2)])
            for run in (moment_descent, regularised_descent)
        ]
        gaps.append(float((ends[1].log_product - ends[0].log_product)[-1].mean()))
        apart = max(apart, *(float(np.abs(end.log_params.sum(axis=1) - end.log_product).max()) for end in ends))
    return steps, np.array(gaps), apart


@claim("label-noise/leading-order", f"{NOTES}, section 9.5; constant and order {DERIVED}", "sharpened")
def leading_order(lab: Lab, planted: bool) -> Verdict:
    """Descent on L + (step sigma^2 / 4B) tr Hess L is label-noise SGD up to a relative error of order step.
    The two laws differ by O(step) when w+ w- has fallen by a factor e; planted: by O(step^2)."""
    steps, gaps, apart = _orders(lab)
    slope = log_log_slope(steps, gaps, (0.0025, 0.005))
    detail = f"gaps {np.round(gaps, 4).tolist()}"
    return all_of(
        close(slope, 2.0 if planted else 1.0, 0.1, "exponent of the gap in the step", detail),
        at_most(apart, 1e-9, "largest difference of log w+ + log w- from log w+ w- along both laws"),
    )


@recipe
def _resting(lab: Lab) -> tuple[np.ndarray, np.ndarray]:
    """Late label-noise SGD around the sparse weights of 24 drawn problems: mean of sign g / (step (sigma^2 c + mean x^2 r^2)) of each chain, g = X'r/n, for the 2 signals
    (problems x chains), and sigma^2 c over sigma^2 c + mean x^2 r^2."""
    step, deviation, means, shares = 0.02, 0.5, [], []
    for seed in range(24):
        data, weight = sparse_regression(6, 8, 2, 100 * lab.seed + seed, unit_columns=True)
        start = np.sqrt(np.maximum(np.stack([weight, -weight]), 1e-6))
        noise = {"step": step, "deviation": deviation, "steps": range(2_000, 12_001, 100), "chains": 32}
        logs, inputs = label_noise(data, start, seed=seed, **noise).log_params[1:], np.asarray(data.inputs)
        residual = np.tensordot(np.exp(2 * logs), row_signs(2), (2, 0)) @ inputs.T - np.asarray(data.targets)
        second = deviation**2 + (residual**2).mean(axis=(0, 1)) @ inputs[:, :2] ** 2 / 6
        pull = residual.mean(axis=0) @ inputs[:, :2] / 6 * weight[:2] / (step * second)
        means.append(pull.mean(axis=1))
        shares.append(float((deviation**2 / second).mean()))
    return np.array(means), np.array(shares)


@claim("label-noise/stationary", f"{NOTES}, section 9.5; constant {DERIVED}", "sharpened", slow=True)
def stationary(lab: Lab, planted: bool) -> Verdict:
    """Label-noise SGD rests where L + lambda tr Hess L is stationary, lambda = step sigma^2 / (4B) to leading order: on the support X'r/n = -4 lambda c sign(theta), with the residuals that stay alive in sigma^2.
    Mean over 24 problems and 32 chains of X'r/n over what stationarity asks. Planted: half of lambda."""
    means, shares = _resting(lab)
    ratio, error = float(-means.mean()), float(means.std(ddof=1) / np.sqrt(means.size))
    wanted = 0.5 if planted else 1.0
    text = f"|{ratio:.4g} - {wanted:g}| in standard errors of {error:.2g}, of -X'r/n over 4 lambda c"
    return at_most(abs(ratio - wanted) / error, 4.0, text, f"sigma^2 alone is {shares.mean():.3g} of it")
