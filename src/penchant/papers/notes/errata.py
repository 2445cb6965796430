"""Slips of the notes, mended: each claim is the repair, and its planted falsehood is the sentence as printed.

Three more are misprints of algebra that no training can show: |zeta * zeta|_2 = |zeta|_2^2 in (9.57) is true of the l1 norm on the
left; u = u(0) exp(int v) solves u' = v u, not u' = v u' as in (9.115); and the sum in (9.99) runs over all d coordinates, not n.
"""

import jax
import jax.numpy as jnp
import numpy as np

from ...diagnostics.rates import log_log_slope
from ...diagnostics.signal_noise import decompose
from ...lab import Lab, claim
from ...settings.generators import sparse_regression
from ...settings.potentials import q_alpha
from ...theory.interpolants import distance
from ...verdict import Verdict, all_of, at_most, close
from .evidence import arrays, parameter_flow, small
from .margin_theorems import NOTES


@claim(
    "sparse/noise-start",
    "At the start |zeta|^2 = alpha^2 (d - 1), not alpha sqrt(d) as printed; it is below that once alpha is below 1/sqrt(d).",
    f"repair of {NOTES}, (9.72)",
    kind="repaired",
)
def noise_start(lab: Lab, planted: bool) -> Verdict:
    """|zeta|^2 at the start alpha in 200 dimensions; planted: as printed."""
    data, _ = sparse_regression(60, 200, 1, 2, signed=False)
    checks = []
    for alpha in (1e-1, 1e-3):
        noise = decompose(data, np.full((1, 200), alpha)).noise
        right = alpha * np.sqrt(200) if planted else alpha**2 * 199
        checks.append(close(float((noise**2).sum()), right, 1e-12, f"|zeta_0|^2, alpha = {alpha:g}"))
    return all_of(*checks)


@claim(
    "sparse/gradient-split",
    "The gradient is [(r^2 - 1) beta*^2 - u + v] beta with v = A(zeta zeta), not A(beta* beta*) as printed.",
    f"repair of {NOTES}, (9.53)",
    kind="repaired",
)
def gradient_split(lab: Lab, planted: bool) -> Verdict:
    """[(r^2 - 1) e_1 - u + v] beta against the gradient by automatic differentiation; planted: as printed."""
    data, truth = sparse_regression(60, 200, 1, 2, signed=False)
    inputs, targets = data.inputs, data.targets
    point = np.abs(np.random.default_rng(8).standard_normal(200)) / 10
    exact = np.asarray(jax.grad(lambda beta: jnp.sum((inputs @ beta**2 - targets) ** 2) / 240)(jnp.asarray(point)))
    parts = decompose(data, point[None])
    v = np.asarray(inputs.T @ inputs) / 60 @ truth**2 if planted else parts.v[0]
    found = ((parts.signal[0] ** 2 - 1) * truth - parts.u[0] + v) * point
    return at_most(distance(found, exact), 1e-12, "relative error of the split gradient")


def _tangents(alpha: float) -> tuple[float, float]:
    """Lipschitz constant of the gradient of the prediction, and the smallest singular value of the features, at w = alpha."""
    inputs = sparse_regression(5, 12, 2, 3)[0].inputs
    point = jnp.full((2, 12), alpha)
    predict = lambda params: inputs @ (params[0] ** 2 - params[1] ** 2)
    curvature = np.asarray(jax.hessian(predict)(point)).reshape(5, 24, 24)
    features = np.asarray(jax.jacobian(predict)(point)).reshape(5, 24)
    return float(np.linalg.norm(curvature, 2, axis=(1, 2)).max()), float(np.linalg.svd(features)[1][-1])


@claim(
    "q-alpha/kernel-constants",
    "The Lipschitz constant of the features is 2 |x|_inf for every alpha, not linear in alpha as printed, and its ratio to sigma^2 falls like alpha^-2.",
    f"repair of {NOTES}, Remark 9.21",
    kind="repaired",
)
def kernel_constants(lab: Lab, planted: bool) -> Verdict:
    """Exponents in alpha of the Lipschitz constant and of its ratio to sigma^2; planted: 1 for the first, as printed."""
    alphas = np.array([1.0, 10.0, 100.0])
    constants, sigmas = np.array([_tangents(float(alpha)) for alpha in alphas]).T
    growth = log_log_slope(alphas, constants, (1.0, 100.0))
    ratio = log_log_slope(alphas, constants / sigmas**2, (1.0, 100.0))
    largest = float(np.abs(arrays(sparse_regression(5, 12, 2, 3)[0])[0]).max())
    return all_of(
        close(float(constants[0]), 2 * largest, 1e-12, "Lipschitz constant against 2 |x|_inf"),
        at_most(abs(growth - float(planted)), 1e-9, "|exponent of the Lipschitz constant in alpha|"),
        at_most(abs(ratio + 2), 1e-9, "|exponent of Lipschitz constant / sigma^2 in alpha + 2|"),
    )


@claim(
    "q-alpha/velocity",
    "The parameters move with the velocity -2 X'r w, not 2 X'r w as printed.",
    f"repair of {NOTES}, (9.113)",
    kind="repaired",
)
def parameter_velocity(lab: Lab, planted: bool) -> Verdict:
    """The velocity of the parameters by automatic differentiation against -2 X'r w; planted: as printed."""
    data, _ = sparse_regression(5, 12, 2, 3)
    point = jnp.asarray(np.random.default_rng(10).uniform(0.5, 1.5, (2, 12)))
    loss = lambda params: jnp.sum((data.inputs @ (params[0] ** 2 - params[1] ** 2) - data.targets) ** 2) / 2
    exact = -np.asarray(jax.grad(loss)(point)).ravel()
    inputs, targets = arrays(data)
    stacked, flat = np.hstack([inputs, -inputs]), np.asarray(point).ravel()
    velocity = 2 * (stacked.T @ (stacked @ flat**2 - targets)) * flat
    return at_most(distance(velocity if planted else -velocity, exact), 1e-12, "relative error of the velocity")


@claim(
    "q-alpha/row-span",
    "At the least Q_alpha its gradient is in the row span of the inputs, not Q itself as printed.",
    f"repair of {NOTES}, text before (9.134)",
    kind="repaired",
)
def row_span(lab: Lab, planted: bool) -> Verdict:
    """Part of the gradient off the row span of the inputs; planted: of the value, entry by entry, as a number is in no span."""
    data, _ = small(lab)
    potential = q_alpha(0.3, 25)
    weight, *_ = parameter_flow(data, np.full((2, 25), 0.3), 50.0)
    entries = np.array([potential.value(np.where(np.arange(25) == j, weight, 0.0)) for j in range(25)])
    vector = entries if planted else potential.gradient(weight)
    basis = np.linalg.svd(np.asarray(data.inputs), full_matrices=False)[2]
    return at_most(distance(basis.T @ (basis @ vector), vector), 1e-9, "relative part off the row span of the inputs")
