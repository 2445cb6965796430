"""Claims on the scatter of the gradient of a sample: its covariance on the minima and along training, by Monte Carlo with error bars."""

from functools import cache

import jax.numpy as jnp
import numpy as np

from ..diagnostics.gradient_noise import extrapolated, gradient_draws, scatter
from ..diagnostics.measured_bias import Estimate
from ..optimisers.preconditioned import PreconditionedDescent
from ..settings.attention_curvature import attraction_radius, balanced_point
from ..settings.attention_geometry import TwoSided
from ..settings.attention_regression import AttentionLayer
from ..settings.attention_sample import spectral_layer
from ..settings.gradient_noise import gradient_covariance
from ..training.population import train_population
from ..training.recorders import At
from ..verdict import Outcome, Verdict, all_of, close
from .attention_context_claims import OURS, agrees, scaling_problem
from .attention_evidence import attention_claim

COUNT = 200  # and twice as many, so that the term in 1/n drops out
RECORDS = (0, 2)  # steps of a run from distance r_0: far from the minima, and on the way
_DRAWS, _AXES = 2000, 3


@cache
def path() -> tuple[AttentionLayer, ...]:
    """Layers of default two-sided descent with population gradients, from distance r_0."""
    problem = scaling_problem(1e-3)
    direction = np.random.default_rng(21).standard_normal((problem.outputs + problem.inputs, problem.inputs))
    radius = attraction_radius(problem, TwoSided())
    start = balanced_point(problem) + radius * direction / np.linalg.norm(direction)
    layer = problem.unwhiten(jnp.asarray(start))
    run = train_population(problem, PreconditionedDescent(), layer, steps=RECORDS[-1], recorder=At(RECORDS))
    return tuple(run.at(k) for k in range(len(run)))


@cache
def _draws(record: int | None, count: int) -> np.ndarray:
    """Gradients of fresh samples at a record of the path, or (None) at the minimum."""
    layer = spectral_layer(scaling_problem(1e-3)) if record is None else path()[record]
    return gradient_draws(scaling_problem(1e-3), layer, count, _DRAWS, seed=count)


def measured_scatter(record: int | None, direction: np.ndarray | None = None) -> Estimate:
    """n times the trace of the covariance of the gradient, or its variance along a direction, without its term in 1/n."""
    small, large = (scatter(_draws(record, count), direction) for count in (COUNT, 2 * COUNT))
    return extrapolated(small, large)


def predicted_scatter(record: int | None, keys: bool = True) -> np.ndarray:
    """n times that covariance by the projection on single rows."""
    layer = spectral_layer(scaling_problem(1e-3)) if record is None else path()[record]
    return np.asarray(gradient_covariance(scaling_problem(1e-3), layer, keys=keys))


def scatter_of_minimum(planted: bool) -> Verdict:
    """Trace, and the variances along the widest directions; planted: rows as queries alone, as if their losses were independent."""
    found, whole = predicted_scatter(None, keys=not planted), predicted_scatter(None)
    axes = np.linalg.eigh(whole)[1][:, -_AXES:].T
    checks = [agrees(measured_scatter(None), float(found.trace()), "n tr Cov of the gradient at a minimum")]
    for axis in axes:
        checks.append(agrees(measured_scatter(None, axis), float(axis @ found @ axis), "along a widest direction"))
    return all_of(*checks)


def scatter_along_path(planted: bool) -> Verdict:
    """The trace at every record; planted: that of the minimum, all along."""
    checks = []
    for record, step in enumerate(RECORDS):
        predicted = float(predicted_scatter(None if planted else record).trace())
        checks.append(agrees(measured_scatter(record), predicted, f"n tr Cov of the gradient at step {step}"))
    return all_of(*checks)


def first_order_suffices(planted: bool) -> Verdict:
    """At n = 200 as it is measured, nothing extrapolated; planted: half of it."""
    predicted = float(predicted_scatter(None).trace())
    found = scatter(_draws(None, COUNT)).mean / (0.5 * predicted if planted else predicted)
    return close(found, 1.0, 0.25, "n tr Cov of the gradient at n = 200 over its limit")


CLAIMS = (
    attention_claim(
        "gradient-covariance",
        "On the minima n times the covariance of the gradient of n samples tends to that of what single rows do to it, as queries and as keys.",
        OURS,
        scatter_of_minimum,
    ),
    attention_claim(
        "gradient-covariance-path", "So it does along training, from distance r_0 on.", OURS, scatter_along_path
    ),
    attention_claim(
        "gradient-covariance-early",
        "At n = 200 the covariance of the gradient on the minima is within 25 % of that limit.",
        "concentration of gradients, read at moderate n",
        first_order_suffices,
        Outcome.refuted,
    ),
)
