"""Normalised steepest descent: curvature, rate with constants, whose margin it is, the replicator law of flows, and losses."""

from collections.abc import Iterator

import numpy as np

from ...lab import Lab, claim, derived
from ...norms import norm_named
from ...references.base import feature_rows
from ...settings.classification import Multiclass
from ...training.trajectory import Trajectory
from ...verdict import Verdict, at_least, at_most
from .comparison import NAMES, THETA
from .evidence import best, compared, drawn, exponents, features, gammas, last, runs, tends
from .flows import follow, frobenius, newton_schulz
from .theorems import FAN, RAVI


def curvature_bound(data: Multiclass, norm: str) -> float:
    """B_N, the largest dual norm of a feature (e_y - e_c) x'."""
    rows = feature_rows(data, data.constrained()).reshape(-1, *data.weight_shape)
    return max(map(norm_named(norm).dual, rows))


def _sizes(lab: Lab, norm: str, times: float) -> tuple[float, ...]:
    """The first step on each data set, in units of 1/B_N."""
    return tuple(times / curvature_bound(data, norm) for data in drawn(lab))


@claim("which-margin/rate-bound", f"{FAN}, abstract (RATE)", "sharpened", slow=True)
def rate_bound(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """The margin that normalised steepest descent misses is at most (log terms + B^2 S_2/2 + margin S_3)/S_1, at every step, in five norms.
    S_1, S_2, S_3 are the sums of h, h^2 and h (1 - rho) over the steps, rho the sum of the multipliers. Margins are divided by S_1, which
    is never below the norm of the weight: so the inequality says something from the first step on, on each of twenty data sets. Planted: the log terms are left out."""
    for name, loss in (*((name, "cross-entropy") for name in NAMES), ("frobenius", "exponential")):
        sizes = _sizes(lab, name, 0.5)
        parts = zip(runs(lab, name, loss, size=sizes), drawn(lab), gammas(lab, name), sizes, strict=True)
        worst = max(_excess(run, curvature_bound(data, name), gamma, h, planted) for run, data, gamma, h in parts)
        yield at_most(worst, 0.0, f"(missing margin - bound)/best margin, {name}, {loss}")


def _excess(run: Trajectory, bound: float, gamma: float, size: float, planted: bool) -> float:
    """The largest excess of what is missing over the bound; rho grows, and that of the record before bounds 1 - rho."""
    h, n = size / np.sqrt(1.0 + np.arange(run.steps[-1])), len(np.asarray(run.data.labels))
    rho = np.repeat(run.weights[:-1].sum(axis=1), np.diff(run.steps))
    first, second, third = (np.cumsum(part)[run.steps[1:] - 1] for part in (h, h**2, h * (1 - rho)))
    logs = run.log_excess[0] + np.log(n)
    if run.setting.loss.kind == "cross-entropy":
        small = n * np.exp(run.log_excess[1:])
        logs = logs + np.log(np.expm1(small) / small)
    allowed = ((0.0 if planted else logs) + bound**2 * second / 2 + gamma * third) / first
    return float((gamma - run.smallest_margin()[1:] / first - allowed).max() / gamma)


@claim("which-margin/own-norm", f"{FAN}, abstract (NSD)", "proved", slow=True)
def own_norm(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Steepest descent in a norm maximises the margin in that norm: for steps like 1/sqrt(t) what is missing falls at least like log(t)/sqrt(t).
    Exponents from step 300 to 3000 on each of twenty data sets, in five norms: that of log(t)/sqrt(t) is -1/2 + 1/log(t). Planted: like log(t)/t^(3/4)."""
    for name in NAMES:
        slopes = exponents(compared(lab, name, size=_sizes(lab, name, 2.0)), name, 300)
        most = (-0.75 if planted else -0.5) + 1 / np.log(300)
        yield at_most(float(slopes.max()), float(most), f"largest exponent, {name}")


@claim("which-margin/other-norms", f"{FAN}, abstract (NSD)", "sharpened", slow=True)
def other_norms(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """The Frobenius, the max-norm and the spectral margin are three different things: steps that are steepest in one norm come nearer to its margin than those of another.
    3000 steps, on each of twenty data sets. Planted: so do the steps of the nuclear norm against those of the Frobenius norm, whose solutions nearly agree."""
    share = lambda rule, norm: last(lab, rule, norm, size=_sizes(lab, rule, 2.0))
    pairs = (("max", "spectral"), ("spectral", "max"), ("frobenius", "max"))
    for name, other in (*pairs, ("nuclear", "frobenius")) if planted else pairs:
        lead = share(name, name) - share(other, name)
        yield at_least(float(lead.min()), 0.0, f"smallest lead of {name} over {other} steps in the {name} margin")


@derived("which-margin/dual-descent", slow=True)
def dual_descent(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Along the flow of steepest descent the dual norm of the pull of the shares never grows, and falls to the best margin.
    Steps in the Frobenius norm, on twenty data sets. Planted: Newton-Schulz steps in the spectral norm, whose flow rests above its best margin."""
    rule, name = (newton_schulz, "spectral") if planted else (frobenius, "frobenius")
    times, rises, ends = np.concatenate([[0.0], np.geomspace(1, 1000, 30)]), [], []
    for seed, found in enumerate(best(lab)):
        shares = follow(features(lab, seed), rule, times).shares
        pulls = np.tensordot(shares, features(lab, seed), 1)
        duals = np.array([found[name].measure.dual(pull) for pull in pulls]) * found[name].value
        rises.append(np.diff(duals).max())
        ends.append(duals[-1] - 1)
    yield at_most(float(np.max(rises)), 1e-6, "largest rise of the dual norm, in units of the best margin")
    yield at_most(float(np.max(ends)), 5e-3, "largest dual norm in the end over the best margin - 1")


@claim("which-margin/losses", f"{RAVI}; normalised steps by us", "sharpened", slow=True)
def losses(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Cross-entropy, the multiclass exponential and the pairwise logistic loss lead normalised descent to one Frobenius margin.
    What 3000 steps tend to, less than 0.02 missing, on each of twenty data sets. Planted: a loss with a polynomial tail."""
    sizes = _sizes(lab, "frobenius", 2.0)
    for loss in ("cross-entropy", "exponential", "polynomial" if planted else "pairwise"):
        found = tends(lab, "frobenius", "frobenius", loss=loss, size=sizes)
        yield at_least(float(found.min()), 1 - THETA, f"smallest share of the Frobenius margin, {loss}")
