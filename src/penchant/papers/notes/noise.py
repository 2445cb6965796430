"""Claims on the noise of SGD: where it settles on a quadratic, exactly."""

import numpy as np

from ...diagnostics.noise import (
    diffusion_covariance,
    diffusion_lag_covariance,
    diffusion_transient,
    lag_correlation,
    lag_covariance,
    noisy_covariance,
)
from ...lab import Lab, claim
from ...training.noise import quadratic_noise
from ...verdict import Verdict, all_of, at_most
from .evidence import DERIVED
from .theorems import NOTES


def _within(measured: float, predicted: float, error: float, what: str) -> Verdict:
    """Confirmed if the measurement is within 4 standard errors of the prediction."""
    text = f"{what}: |{measured:.6g} - {predicted:.6g}| in standard errors"
    return at_most(abs(measured - predicted) / error, 4.0, text)


@claim("noise/variance", f"{NOTES}, section 9.5; exact constant {DERIVED}", "sharpened")
def one_dimension(lab: Lab, planted: bool) -> Verdict:
    """In one dimension SGD settles at variance step sigma^2 / (lambda (2 - step lambda)).
    Variance of 40 000 chains; planted: the variance of the diffusion limit."""
    chains, (step, curvature, noise) = 40_000, (0.1, 2.0, 0.49)
    ends = quadratic_noise([[curvature]], [[noise]], step, 100, chains, lab.seed)[:, 0]
    exact = noisy_covariance([[curvature]], [[noise]], step)[0, 0]
    predicted = diffusion_covariance([[curvature]], [[noise]], step)[0, 0] if planted else exact
    return _within(float((ends**2).mean()), float(predicted), exact * np.sqrt(2 / chains), "stationary variance")


def _pair() -> tuple[np.ndarray, np.ndarray]:
    """A Hessian and a noise covariance that do not commute."""
    rng = np.random.default_rng(7)
    first, second = rng.standard_normal((2, 3, 3))
    hessian = first @ first.T
    return 1.5 * hessian / np.linalg.eigvalsh(hessian)[-1] + 0.3 * np.eye(3), second @ second.T


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
    Sigma = sigma^2 A gives S = step sigma^2 (2 - step A)^-1, and flat directions stay; planted: Sigma = I."""
    rng = np.random.default_rng(3)
    root = rng.standard_normal((3, 5))
    hessian, step, variance = root.T @ root / 5, 0.1, 0.7
    noise = variance * (np.eye(5) if planted else hessian)
    sizes, basis = np.linalg.eigh(hessian)
    live = basis[:, sizes > 1e-12]
    predicted = live @ np.diag(step * variance / (2 - step * sizes[sizes > 1e-12])) @ live.T
    error = np.abs(noisy_covariance(hessian, noise, step, 1e5) - predicted).max() / np.abs(predicted).max()
    return at_most(float(error), 1e-10, "relative distance to step sigma^2 (2 - step A)^-1 on the range of A")


@claim("noise/diffusion-limit", f"{NOTES}, section 9.5; order {DERIVED}", "sharpened")
def diffusion_limit(lab: Lab, planted: bool) -> Verdict:
    """For small steps SGD is its diffusion, transients and all entries included, up to a relative error of order step.
    SGD after k steps against the diffusion at time k * step, for small steps and all entries; planted: at twice the time."""
    hessian, noise = _pair()
    gaps, lags = [], []
    for step in (1e-3, 1e-4):
        count = round(0.7 / step)
        found = noisy_covariance(hessian, noise, step, count) / step
        limit = diffusion_transient(hessian, noise, step, (2 if planted else 1) * count * step) / step
        gaps.append(float(np.abs(found - limit).max() / np.abs(limit).max()))
        later = diffusion_lag_covariance(hessian, noise, step, count * step)
        lags.append(float(np.abs(lag_covariance(hessian, noise, step, count) - later).max() / np.abs(later).max()))
    return all_of(
        at_most(gaps[1], 2e-4, "relative distance of SGD to the diffusion at t = 0.7, step 1e-4"),
        at_most(abs(gaps[0] / gaps[1] / 10 - 1), 0.05, "|distance at step 1e-3 over ten times that at 1e-4 - 1|"),
        at_most(abs(lags[0] / lags[1] / 10 - 1), 0.05, "the same of the covariance of two times 0.7 apart"),
    )


@claim("noise/memory", f"{NOTES}, section 9.5, with exp(-lambda t); exact form {DERIVED}", "sharpened")
def memory(lab: Lab, planted: bool) -> Verdict:
    """In one dimension SGD correlates with itself h steps later by (1 - step lambda)^h.
    Correlation of one trajectory with itself five steps later, 40 000 chains; planted: exp(-lambda t) of the diffusion."""
    chains, (step, curvature, noise, lag) = 40_000, (0.1, 2.0, 0.49, 5)
    rng = np.random.default_rng(4)
    first = np.sqrt(noisy_covariance([[curvature]], [[noise]], step)[0, 0]) * rng.standard_normal(chains)
    later = first
    for _ in range(lag):
        later = later - step * (curvature * later + np.sqrt(noise) * rng.standard_normal(chains))
    exact = lag_correlation([[curvature]], [[noise]], step, lag)[0, 0]
    predicted = np.exp(-curvature * step * lag) if planted else exact
    measured = float(np.corrcoef(first, later)[0, 1])
    return _within(measured, float(predicted), float((1 - exact**2) / np.sqrt(chains)), "correlation at lag 5")
