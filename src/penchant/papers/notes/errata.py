"""Slips of the notes as printed, refuted, each next to its repair, confirmed."""

import jax
import jax.numpy as jnp
import numpy as np

from ...diagnostics.rates import log_log_slope
from ...diagnostics.restricted_isometry import restricted_isometry
from ...diagnostics.signal_noise import decompose
from ...lab import Lab, claim
from ...references.interpolation import minimum_potential
from ...settings.base import Setting
from ...settings.generators import sparse_regression
from ...settings.losses import Squared
from ...settings.potentials import q_alpha
from ...settings.square_models import SignedSquares
from ...verdict import Outcome, Verdict, all_of, at_most, close
from .evidence import DERIVED, parameter_flow
from .margin_theorems import NOTES


def noise_start(lab: Lab, printed: bool, planted: bool) -> Verdict:
    """|zeta|^2 at the start alpha in 200 dimensions; planted: the signal counted in, or the bound squared."""
    data, _ = sparse_regression(60, 200, 1, 2, signed=False)
    checks = []
    for alpha in (1e-1, 1e-3):
        noise = decompose(data, np.full((1, 200), alpha)).noise
        right = alpha * np.sqrt(200) if printed else alpha**2 * 199
        wrong = alpha**2 * 200
        checks.append(
            close(float((noise**2).sum()), wrong if planted else right, 1e-12, f"|zeta_0|^2, alpha = {alpha:g}")
        )
    return all_of(*checks)


def gradient_split(lab: Lab, printed: bool, planted: bool) -> Verdict:
    """[(r^2 - 1) e_1 - u + v] beta against the gradient by automatic differentiation; planted: v left out."""
    data, truth = sparse_regression(60, 200, 1, 2, signed=False)
    inputs, targets = data.inputs, data.targets
    point = np.abs(np.random.default_rng(8).standard_normal(200)) / 10
    loss = lambda beta: jnp.sum((inputs @ beta**2 - targets) ** 2) / 240
    exact = np.asarray(jax.grad(loss)(jnp.asarray(point)))
    parts = decompose(data, point[None])
    gram = np.asarray(inputs.T @ inputs) / 60
    v = 0.0 if planted else gram @ truth**2 if printed else parts.v[0]
    found = ((parts.signal[0] ** 2 - 1) * truth - parts.u[0] + v) * point
    return at_most(
        float(np.linalg.norm(found - exact) / np.linalg.norm(exact)), 1e-12, "relative error of the split gradient"
    )


def square_norms(lab: Lab, printed: bool, planted: bool) -> Verdict:
    """Norms of zeta * zeta against |zeta|_2^2 for a dense vector; planted: the largest entry."""
    zeta = np.random.default_rng(9).standard_normal(50)
    order = np.inf if planted else 2 if printed else 1
    measured = float(np.linalg.norm(zeta**2, order) / (zeta @ zeta))
    return close(measured, 1.0, 1e-12, f"l{order:g} norm of zeta * zeta over |zeta|_2^2")


def dense_product(lab: Lab, printed: bool, planted: bool) -> Verdict:
    """|(A - I)v|_inf for a dense v on columns that all have the inner product 0.1; planted: against the l2 norm of v times the coherence."""
    d, coherence = 50, 0.1
    gram = (1 - coherence) * np.eye(d) + coherence
    inputs = np.sqrt(d) * np.linalg.cholesky(gram).T
    delta = restricted_isometry(inputs, 2)
    v = np.ones(d)
    largest = float(np.abs((gram - np.eye(d)) @ v).max())
    entry = float(np.abs(gram - np.eye(d)).max())
    bound = 4 * delta.upper * np.sqrt(d) if printed else entry * d
    what = "4 delta_2 |v|_2" if printed else "max|A - I| |v|_1"
    return at_most(
        largest,
        float(entry * np.sqrt(d) if planted else bound),
        f"|(A - I)v|_inf, v dense, against {what}",
    )


def _tangents(alpha: float) -> tuple[float, float]:
    """Lipschitz constant of the gradient of the prediction, and the smallest singular value of the features, at w = alpha."""
    inputs = sparse_regression(5, 12, 2, 3)[0].inputs
    point = jnp.full((2, 12), alpha)
    predict = lambda params: inputs @ (params[0] ** 2 - params[1] ** 2)
    curvature = np.asarray(jax.hessian(predict)(point)).reshape(5, 24, 24)
    features = np.asarray(jax.jacobian(predict)(point)).reshape(5, 24)
    return float(np.linalg.norm(curvature, 2, axis=(1, 2)).max()), float(np.linalg.svd(features)[1][-1])


def kernel_constants(lab: Lab, printed: bool, planted: bool) -> Verdict:
    """Exponents in alpha of the Lipschitz constant (and of its ratio to sigma^2); planted: one more than claimed."""
    alphas = np.array([1.0, 10.0, 100.0])
    constants, sigmas = np.array([_tangents(float(alpha)) for alpha in alphas]).T
    extra = 1.0 if planted else 0.0
    growth = log_log_slope(alphas, constants, (1.0, 100.0))
    if printed:
        return at_most(abs(growth - (1.0 + extra)), 1e-9, "|exponent of the Lipschitz constant in alpha - 1|")
    inputs = np.asarray(sparse_regression(5, 12, 2, 3)[0].inputs)
    ratio = log_log_slope(alphas, constants / sigmas**2, (1.0, 100.0))
    return all_of(
        close(float(constants[0]), 2 * float(np.abs(inputs).max()), 1e-12, "Lipschitz constant against 2 |x|_inf"),
        at_most(abs(growth - extra), 1e-9, "|exponent of the Lipschitz constant in alpha|"),
        at_most(abs(ratio + 2), 1e-9, "|exponent of Lipschitz constant / sigma^2 in alpha + 2|"),
    )


def parameter_velocity(lab: Lab, printed: bool, planted: bool) -> Verdict:
    """The velocity of the parameters by automatic differentiation against 2 X'r w, with the sign as printed or not; planted: 4 for 2."""
    data, _ = sparse_regression(5, 12, 2, 3)
    point = jnp.asarray(np.random.default_rng(10).uniform(0.5, 1.5, (2, 12)))
    loss = lambda params: jnp.sum((data.inputs @ (params[0] ** 2 - params[1] ** 2) - data.targets) ** 2) / 2
    exact = -np.asarray(jax.grad(loss)(point))
    stacked = np.hstack([data.inputs, -np.asarray(data.inputs)])
    flat = np.asarray(point).ravel()
    velocity = (4 if planted else 2) * (stacked.T @ (stacked @ flat**2 - np.asarray(data.targets))) * flat
    found = velocity if printed else -velocity
    return at_most(
        float(np.linalg.norm(found - exact.ravel()) / np.linalg.norm(exact)), 1e-12, "relative error of the velocity"
    )


def row_span(lab: Lab, printed: bool, planted: bool) -> Verdict:
    """Part off the row span of the inputs at the least Q_alpha, of its value (entry by entry, a number is in no span) or of its gradient; planted: of the weight."""
    data, _ = sparse_regression(10, 25, 2, 3)
    potential, inputs = q_alpha(0.3, 25), np.asarray(data.inputs)
    ends, _ = parameter_flow(inputs, np.asarray(data.targets), np.full((2, 25), 0.3), 50.0)
    weight = ends[0] ** 2 - ends[1] ** 2
    entries = np.array([potential.value(np.where(np.arange(25) == j, weight, 0.0)) for j in range(25)])
    vector = weight if planted else entries if printed else potential.gradient(weight)
    basis = np.linalg.svd(inputs, full_matrices=False)[2]
    off = np.linalg.norm(vector - basis.T @ (basis @ vector)) / np.linalg.norm(vector)
    return at_most(float(off), 1e-9, "relative part off the row span of the inputs")


@claim(
    "q-alpha/stacked-inputs",
    "The predictions of signed squares are [X, -X] times the squares of w+ and w-.",
    f"{NOTES}, (9.109)",
    kind="proved",
)
def stacked_inputs(lab: Lab, planted: bool) -> Verdict:
    """Predictions of w+, w- by one matrix on the squares of both; planted: [X, X]."""
    data, _ = sparse_regression(5, 12, 2, 3)
    point = np.random.default_rng(10).uniform(0.5, 1.5, (2, 12))
    setting = Setting(data, SignedSquares(1.0), Squared())
    inputs = np.asarray(data.inputs)
    stacked = np.hstack([inputs, inputs if planted else -inputs])
    exact = np.asarray(setting.margins(jnp.asarray(point)))
    error = np.linalg.norm(stacked @ point.ravel() ** 2 - exact) / np.linalg.norm(exact)
    return at_most(float(error), 1e-14, "relative error of the predictions")


def exponential_rule(lab: Lab, printed: bool, planted: bool) -> Verdict:
    """u = exp(int v) with v = cos t: its derivative against v u' (as printed) or v u; planted: v^2 u."""
    times = np.linspace(0.1, 3.0, 30)
    v, u = np.cos(times), np.exp(np.sin(times))
    slope = jax.vmap(jax.grad(lambda t: jnp.exp(jnp.sin(t))))(jnp.asarray(times))
    right = v**2 * u if planted else v * np.asarray(slope) if printed else v * u
    return at_most(float(np.abs(np.asarray(slope) - right).max()), 1e-12, "largest |u' - right side|")


def number_of_terms(lab: Lab, printed: bool, planted: bool) -> Verdict:
    """The sum of q over n or over d coordinates at the minimiser, against the optimum of the dual; planted: one coordinate short."""
    data, _ = sparse_regression(10, 25, 2, 3)
    potential = q_alpha(0.3, 25)
    found = minimum_potential(data, potential)
    count = 24 if planted else 10 if printed else 25
    kept = np.where(np.arange(25) < count, found.weight, 0.0)
    return close(
        potential.value(kept),
        found.bracket.lower,
        1e-10,
        f"sum of alpha^2 q over {count} terms against the dual optimum",
    )


noise_start_as_printed = claim(
    "sparse/noise-start-as-printed",
    "At the start |zeta|^2 = alpha sqrt(d), as printed.",
    f"{NOTES}, (9.72)",
    kind="proved",
    expected=Outcome.refuted,
)(lambda lab, planted: noise_start(lab, True, planted))
noise_start_repaired = claim(
    "sparse/noise-start",
    "At the start |zeta|^2 = alpha^2 (d - 1); it is below alpha sqrt(d) once alpha is below 1/sqrt(d).",
    f"repair of {NOTES}, (9.72); {DERIVED}",
    kind="repaired",
)(lambda lab, planted: noise_start(lab, False, planted))
gradient_split_as_printed = claim(
    "sparse/gradient-split-as-printed",
    "The gradient is [(r^2 - 1) beta*^2 - u + v] beta with v = A(beta* beta*), as printed.",
    f"{NOTES}, (9.53)",
    kind="proved",
    expected=Outcome.refuted,
)(lambda lab, planted: gradient_split(lab, True, planted))
gradient_split_repaired = claim(
    "sparse/gradient-split",
    "The gradient is [(r^2 - 1) beta*^2 - u + v] beta with v = A(zeta zeta).",
    f"repair of {NOTES}, (9.53); {DERIVED}",
    kind="repaired",
)(lambda lab, planted: gradient_split(lab, False, planted))
square_norm_as_printed = claim(
    "sparse/square-norm-as-printed",
    "|zeta * zeta|_2 = |zeta|_2^2, as printed.",
    f"{NOTES}, (9.57)",
    kind="proved",
    expected=Outcome.refuted,
)(lambda lab, planted: square_norms(lab, True, planted))
square_norm = claim(
    "sparse/square-norm",
    "|zeta * zeta|_1 = |zeta|_2^2.",
    f"repair of {NOTES}, (9.57); {DERIVED}",
    kind="repaired",
)(lambda lab, planted: square_norms(lab, False, planted))
dense_product_as_printed = claim(
    "sparse/dense-product-as-printed",
    "|Av - v|_inf <= 4 delta |v|_2 also for the dense vector zeta * zeta, as it is used.",
    f"{NOTES}, Corollary 9.12 in (9.55)",
    kind="proved",
    expected=Outcome.refuted,
)(lambda lab, planted: dense_product(lab, True, planted))
dense_product_repaired = claim(
    "sparse/dense-product",
    "|Av - v|_inf <= max|A - I| |v|_1 for every v.",
    f"repair of {NOTES}, Corollary 9.12 in (9.55); {DERIVED}",
    kind="repaired",
)(lambda lab, planted: dense_product(lab, False, planted))
kernel_constants_as_printed = claim(
    "q-alpha/kernel-constants-as-printed",
    "The Lipschitz constant of the features grows linearly in alpha, as printed.",
    f"{NOTES}, Remark 9.21",
    kind="proved",
    expected=Outcome.refuted,
    slow=True,
)(lambda lab, planted: kernel_constants(lab, True, planted))
kernel_constants_repaired = claim(
    "q-alpha/kernel-constants",
    "The Lipschitz constant of the features is 2 |x|_inf for every alpha, and its ratio to sigma^2 falls like alpha^-2.",
    f"repair of {NOTES}, Remark 9.21; {DERIVED}",
    kind="repaired",
)(lambda lab, planted: kernel_constants(lab, False, planted))
velocity_as_printed = claim(
    "q-alpha/velocity-as-printed",
    "The parameters move with the velocity 2 X'r w, as printed.",
    f"{NOTES}, (9.113)",
    kind="proved",
    expected=Outcome.refuted,
)(lambda lab, planted: parameter_velocity(lab, True, planted))
velocity = claim(
    "q-alpha/velocity",
    "The parameters move with the velocity -2 X'r w.",
    f"repair of {NOTES}, (9.113); {DERIVED}",
    kind="repaired",
)(lambda lab, planted: parameter_velocity(lab, False, planted))
exponential_rule_as_printed = claim(
    "q-alpha/exponential-rule-as-printed",
    "u = u(0) exp(int v) solves u' = v u', as printed.",
    f"{NOTES}, (9.115)",
    kind="proved",
    expected=Outcome.refuted,
)(lambda lab, planted: exponential_rule(lab, True, planted))
exponential_rule_repaired = claim(
    "q-alpha/exponential-rule",
    "u = u(0) exp(int v) solves u' = v u.",
    f"repair of {NOTES}, (9.115); {DERIVED}",
    kind="repaired",
)(lambda lab, planted: exponential_rule(lab, False, planted))
row_span_as_printed = claim(
    "q-alpha/row-span-as-printed",
    "At the least Q_alpha, Q itself is in the row span of the inputs, as printed.",
    f"{NOTES}, text before (9.134)",
    kind="proved",
    expected=Outcome.refuted,
)(lambda lab, planted: row_span(lab, True, planted))
row_span_repaired = claim(
    "q-alpha/row-span",
    "At the least Q_alpha its gradient is in the row span of the inputs.",
    f"repair of {NOTES}, text before (9.134); {DERIVED}",
    kind="repaired",
)(lambda lab, planted: row_span(lab, False, planted))
terms_as_printed = claim(
    "q-alpha/terms-as-printed",
    "Q_alpha sums over n coordinates, as printed.",
    f"{NOTES}, (9.99)",
    kind="proved",
    expected=Outcome.refuted,
)(lambda lab, planted: number_of_terms(lab, True, planted))
terms = claim(
    "q-alpha/terms",
    "Q_alpha sums over all d coordinates.",
    f"repair of {NOTES}, (9.99); {DERIVED}",
    kind="repaired",
)(lambda lab, planted: number_of_terms(lab, False, planted))
