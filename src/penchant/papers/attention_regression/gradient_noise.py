"""Claims on the scatter of the gradient of a sample: its covariance on the minima and along training, by Monte Carlo with error bars."""

import jax.numpy as jnp
import numpy as np

from ...lab import Lab, claim, recipe
from ...training.recorders import At
from ...verdict import Outcome, Verdict, all_of, close
from .context import agrees, scaling_problem
from .setting.curvature import attraction_radius, balanced_point
from .setting.geometry import TwoSided
from .setting.gradient_noise import gradient_covariance
from .setting.gradient_scatter import extrapolated, gradient_draws, scatter
from .setting.measured_bias import Estimate
from .setting.problem import AttentionLayer
from .setting.sample import spectral_layer
from .training.population import train_population
from .training.preconditioned import PreconditionedDescent

COUNT = 200  # and twice as many, so that the term in 1/n drops out
RECORDS = (0, 2)  # steps of a run from distance r_0: far from the minima, and on the way
_DRAWS, _AXES = 2000, 3


@recipe
def path(lab: Lab) -> tuple[AttentionLayer, ...]:
    """Layers of default two-sided descent with population gradients, from distance r_0."""
    problem = scaling_problem(lab, 1e-3)
    direction = np.random.default_rng(21).standard_normal((problem.outputs + problem.inputs, problem.inputs))
    radius = attraction_radius(problem, TwoSided())
    start = balanced_point(problem) + radius * direction / np.linalg.norm(direction)
    layer = problem.unwhiten(jnp.asarray(start))
    run = train_population(problem, PreconditionedDescent(), layer, steps=RECORDS[-1], recorder=At(RECORDS))
    return tuple(run.at(k) for k in range(len(run)))


@recipe
def _draws(lab: Lab, record: int | None, count: int) -> np.ndarray:
    """Gradients of fresh samples at a record of the path, or (None) at the minimum."""
    layer = spectral_layer(scaling_problem(lab, 1e-3)) if record is None else path(lab)[record]
    return gradient_draws(scaling_problem(lab, 1e-3), layer, count, _DRAWS, seed=count)


def measured_scatter(lab: Lab, record: int | None, direction: np.ndarray | None = None) -> Estimate:
    """n times the trace of the covariance of the gradient, or its variance along a direction, without its term in 1/n."""
    small, large = (scatter(_draws(lab, record, count), direction) for count in (COUNT, 2 * COUNT))
    return extrapolated(small, large)


def predicted_scatter(lab: Lab, record: int | None, keys: bool = True) -> np.ndarray:
    """n times that covariance by the projection on single rows."""
    layer = spectral_layer(scaling_problem(lab, 1e-3)) if record is None else path(lab)[record]
    return np.asarray(gradient_covariance(scaling_problem(lab, 1e-3), layer, keys=keys))


@claim(
    "attention-regression/gradient-covariance",
    "On the minima n times the covariance of the gradient of n samples tends to that of what single rows do to it, as queries and as keys.",
    "Goel, Soltanolkotabi, Bartlett, Softmax self-attention trained on linear regression, 2026, derived here",
    kind="ours",
    slow=True,
)
def scatter_of_minimum(lab: Lab, planted: bool) -> Verdict:
    """Trace, and the variances along the widest directions; planted: rows as queries alone, as if their losses were independent."""
    found, whole = predicted_scatter(lab, None, keys=not planted), predicted_scatter(lab, None)
    axes = np.linalg.eigh(whole)[1][:, -_AXES:].T
    checks = [agrees(measured_scatter(lab, None), float(found.trace()), "n tr Cov of the gradient at a minimum")]
    for axis in axes:
        checks.append(agrees(measured_scatter(lab, None, axis), float(axis @ found @ axis), "along a widest direction"))
    return all_of(*checks)


@claim(
    "attention-regression/gradient-covariance-path",
    "So it does along training, from distance r_0 on.",
    "Goel, Soltanolkotabi, Bartlett, Softmax self-attention trained on linear regression, 2026, derived here",
    kind="ours",
    slow=True,
)
def scatter_along_path(lab: Lab, planted: bool) -> Verdict:
    """The trace at every record; planted: that of the minimum, all along."""
    checks = []
    for record, step in enumerate(RECORDS):
        predicted = float(predicted_scatter(lab, None if planted else record).trace())
        checks.append(agrees(measured_scatter(lab, record), predicted, f"n tr Cov of the gradient at step {step}"))
    return all_of(*checks)


@claim(
    "attention-regression/gradient-covariance-early",
    "At n = 200 the covariance of the gradient on the minima is within 25 % of that limit.",
    "Goel, Soltanolkotabi, Bartlett, Softmax self-attention trained on linear regression, 2026, concentration of gradients, read at moderate n",
    kind="proved",
    expected=Outcome.refuted,
    slow=True,
)
def first_order_suffices(lab: Lab, planted: bool) -> Verdict:
    """At n = 200 as it is measured, nothing extrapolated; planted: half of it."""
    predicted = float(predicted_scatter(lab, None).trace())
    found = scatter(_draws(lab, None, COUNT)).mean / (0.5 * predicted if planted else predicted)
    return close(found, 1.0, 0.25, "n tr Cov of the gradient at n = 200 over its limit")
