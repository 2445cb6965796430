"""Claims on label noise: what stays exact in it, its time scale and what it selects."""

import jax
import jax.numpy as jnp
import numpy as np

from ...flow.flow import GradientFlow
from ...lab import Lab, claim, recipe
from ...references.interpolation import basis_pursuit, minimum_potential
from ...settings.base import Setting
from ...settings.generators import sparse_regression
from ...settings.losses import Squared
from ...settings.potentials import HyperbolicEntropy
from ...settings.regression import Regression
from ...settings.square_models import SignedSquares
from ...training.train import train
from ...verdict import Outcome, Verdict, all_of, at_least, at_most
from .evidence import DERIVED
from .label_noise_evidence import (
    ALPHA,
    CHAINS,
    LIMITS,
    STEP,
    agree,
    continuation,
    drift,
    leading_levels,
    limit_of,
    mean_and_error,
    measured_norms,
    noisy,
    predicted_norms,
    signals,
)

BLANC = "Blanc, Gupta, Valiant, Valiant, Implicit regularization for deep neural networks driven by an Ornstein-Uhlenbeck like process, COLT 2020"
HAOCHEN = "HaoChen, Wei, Lee, Ma, Shape matters: understanding the implicit bias of the noise covariance, COLT 2021"


@claim(
    "label-noise/hessian-trace",
    "For signed squares tr Hess L = 4 sum c_j (w+^2 + w-^2), everywhere.",
    DERIVED,
    kind="ours",
    slow=True,
)
def hessian_trace(lab: Lab, planted: bool) -> Verdict:
    """Trace of the Hessian by automatic differentiation at a random point; planted: c_j left out."""
    data, _ = sparse_regression(6, 9, 2, 5)
    inputs, targets = data.inputs, data.targets
    point = jnp.asarray(np.random.default_rng(6).standard_normal((2, 9)))
    loss = lambda params: jnp.sum((inputs @ (params[0] ** 2 - params[1] ** 2) - targets) ** 2) / 12
    trace = float(jnp.trace(jax.hessian(loss)(point).reshape(18, 18)))
    weights = np.ones(9) if planted else np.asarray((inputs**2).mean(axis=0))
    predicted = float(4 * (weights * np.asarray(point**2).sum(axis=0)).sum())
    return at_most(abs(trace / predicted - 1), 1e-13, "relative error of tr Hess = 4 sum c_j (w+^2 + w-^2)")


@claim(
    "label-noise/product",
    "Each step multiplies w+ w- by 1 - 4 step^2 g^2, exactly.",
    DERIVED,
    kind="ours",
    slow=True,
)
def product_identity(lab: Lab, planted: bool) -> Verdict:
    """log w+ + log w- against its own sum of log(1 - 4 step^2 g^2); planted: against the sum times 1.001."""
    run = noisy(lab)
    product = run.log_params.sum(axis=2)
    error = float(np.abs(product - product[0] - run.log_product * (1.001 if planted else 1.0)).max())
    return at_most(error, 1e-10, "largest difference over 40 000 steps and 64 chains")


@claim(
    "label-noise/time-scale",
    "Label noise shrinks w+ w- exponentially, by 4 step^2 E g^2 per step with the second moments of the residuals it keeps alive.",
    f"{BLANC}; law {DERIVED}",
    kind="ours",
    slow=True,
)
def time_scale(lab: Lab, planted: bool, chains: int = CHAINS, seed: int = 0) -> Verdict:
    """Mean fall of log w+ w- at every record against the law of second moments; planted: half of it."""
    run, law = noisy(lab, chains, seed=seed), drift(lab, seed)
    fall = -run.log_product.mean(axis=2)[1:]  # columns have c_j = 1: average over coordinates
    mean, error = mean_and_error(fall)
    predicted = (law.log_product[0] - law.log_product[1:]).mean(axis=1) * (0.5 if planted else 1.0)
    leading = (law.log_product[0] - np.stack([leading_levels(law.data, float(k)) for k in law.steps[1:]])).mean(axis=1)
    return agree(
        fall,
        predicted,
        "measured fall of log w+ w- against the law",
        f"measured {np.round(mean, 4).tolist()} +- {np.round(1.96 * error, 4).tolist()} (95 %), law {np.round(predicted, 4).tolist()}; "
        f"leading order alone is {np.round(100 * (mean / leading - 1), 1).tolist()} % short",
    )


@recipe
def _continued(lab: Lab, chain: int) -> np.ndarray:
    """The end of noise-free flow from a chain at its second checkpoint."""
    run = noisy(lab)
    setting = Setting(run.data, SignedSquares(ALPHA), Squared())
    return train(setting, GradientFlow(), np.exp(run.log_params[2, chain])).weight()


@claim(
    "label-noise/noise-off",
    "When the noise stops, training ends at the minimiser of the potential with the present w+ w-.",
    DERIVED,
    kind="ours",
    slow=True,
)
def noise_off(lab: Lab, planted: bool) -> Verdict:
    """Flow (two chains) and descent (four chains at five records), continued without noise, end where the product w+ w- says; planted: the start's product."""
    run, worst = noisy(lab), 0.0
    start = np.full(30, 2 * np.log(ALPHA))

    def limit(log_params: np.ndarray) -> np.ndarray:
        plus, minus = log_params
        return minimum_potential(run.data, HyperbolicEntropy(start if planted else plus + minus, plus - minus)).weight

    for chain in range(2):
        end = limit(run.log_params[2, chain])
        worst = max(worst, float(np.linalg.norm(_continued(lab, chain) - end) / np.linalg.norm(end)))
    weights, residual = continuation(lab)
    ends = np.array([[limit(one) for one in record[:4]] for record in run.log_params[1:]])
    apart = np.linalg.norm(weights[1:, :4] - ends, axis=-1) / np.linalg.norm(ends, axis=-1)
    return all_of(
        at_most(worst, 1e-6, "relative distance of the continued flow to the predicted interpolant"),
        at_most(float(apart.max()), 5e-4, "the same for continued descent, whose steps are finite"),
        at_most(residual, 1e-4, "largest relative residual of continued descent"),
    )


def _along(lab: Lab, predicted: np.ndarray, chains: int, used: int, seed: int) -> Verdict:
    """Measured l1 norms of the noise-off limits against a law, at every record but the first."""
    norms = measured_norms(lab, chains, used, seed=seed)[1:]
    mean, error = mean_and_error(norms)
    return agree(
        norms,
        predicted[1:],
        "l1 norm at which training ends when the noise stops against the law",
        f"measured {np.round(mean, 4).tolist()} +- {np.round(1.96 * error, 4).tolist()} (95 %), law {np.round(predicted[1:], 4).tolist()}",
    )


@claim(
    "label-noise/selection",
    "On unit columns the solution at which training ends when the noise stops moves along the law of second moments from Q_alpha towards the least l1 norm.",
    f"{HAOCHEN}; law {DERIVED}",
    kind="ours",
    slow=True,
)
def selection(lab: Lab, planted: bool, chains: int = CHAINS, used: int = LIMITS, seed: int = 0) -> Verdict:
    """l1 norm of the noise-off limit falls along the law of second moments to the l1 optimum; planted: the law without noise."""
    predicted, norms = predicted_norms(lab, seed)[:, 0], measured_norms(lab, chains, used, seed=seed).mean(axis=1)
    optimum = basis_pursuit(signals(15, True, seed)).value
    return all_of(
        _along(lab, np.full_like(predicted, predicted[0]) if planted else predicted, chains, used, seed),
        at_most(continuation(lab, chains, used, seed=seed)[1], 1e-4, "largest relative residual of the continued runs"),
        at_least(
            float((norms[0] - norms[-1]) / (norms[0] - optimum)),
            0.8,
            "share of the way to the l1 optimum travelled in 40 000 steps",
        ),
    )


@claim(
    "label-noise/selection-leading-order",
    "The leading order, w+ w- shrinking by 4 step^2 sigma^2 c_j / B per step, predicts the selected solution within the error bars.",
    f"{DERIVED}: the flow of (step sigma^2 / 4B) tr Hess",
    kind="ours",
    expected=Outcome.refuted,
    slow=True,
)
def selection_leading(lab: Lab, planted: bool, chains: int = CHAINS, used: int = LIMITS, seed: int = 0) -> Verdict:
    """The same against the leading order alone; planted: the law without noise."""
    predicted = predicted_norms(lab, seed)[:, 1]
    return _along(lab, np.full_like(predicted, predicted[0]) if planted else predicted, chains, used, seed)


@claim(
    "label-noise/control",
    "Without label noise SGD stops drifting once it interpolates.",
    HAOCHEN,
    kind="proved",
    slow=True,
)
def control(lab: Lab, planted: bool, seed: int = 0) -> Verdict:
    """Without label noise single-sample SGD interpolates and w+ w- stops shrinking; planted: with noise."""
    run = noisy(lab, seed=seed) if planted else noisy(lab, 16, 0.0, seed)
    late = np.abs(run.log_product[-1] - run.log_product[-2]).max()
    return at_most(float(late), 1e-6, "change of log w+ w- between steps 20 000 and 40 000")


@recipe
def raw_columns(lab: Lab, seed: int = 0) -> np.ndarray:
    """Columns as they come: plain and weighted l1 norms of the noise-off limit along the leading-order law."""
    data = signals(12, False, seed)
    columns = np.asarray((data.inputs**2).mean(axis=0))
    rows = []
    for count in np.linspace(0, 160_000, 33):
        levels = leading_levels(data, float(count)) / 2
        weight = np.abs(limit_of(data, np.stack([levels, levels])))
        rows.append((count, weight.sum(), columns @ weight))
    return np.array(rows)


def _falls(lab: Lab, column: int, planted: bool, seed: int) -> Verdict:
    norms = raw_columns(lab, seed)[:, column][:: -1 if planted else 1]
    return at_most(
        float(np.diff(norms).max()), 1e-9, "largest increase of the norm along 160 000 steps of the leading-order law"
    )


@claim(
    "label-noise/plain-norm",
    "Label noise lowers the l1 norm of the selected solution at all times.",
    "a tempting reading of section 9.5 of the notes",
    kind="ours",
    expected=Outcome.refuted,
    slow=True,
)
def plain_norm_falls(lab: Lab, planted: bool, seed: int = 0) -> Verdict:
    return _falls(lab, 1, planted, seed)


@claim(
    "label-noise/weighted-norm",
    "Label noise lowers the l1 norm weighted by the mean squares c_j of the columns at all times.",
    DERIVED,
    kind="ours",
    slow=True,
)
def weighted_norm_falls(lab: Lab, planted: bool, seed: int = 0) -> Verdict:
    return _falls(lab, 2, planted, seed)


@claim(
    "label-noise/weighted-limit",
    "The final object is the least l1 norm weighted by c_j.",
    DERIVED,
    kind="ours",
    slow=True,
)
def weighted_limit(lab: Lab, planted: bool) -> Verdict:
    """The law at late times against the weighted linear program, on columns of unequal size; planted: the plain program."""
    inputs = np.random.default_rng(0).standard_normal((12, 30)) * np.geomspace(1.5, 0.75, 30)
    data = Regression(inputs, inputs[:, 0] - inputs[:, 1])
    columns = (inputs**2).mean(axis=0)
    scale = 2 * np.log(ALPHA) - 4 * STEP**2 * columns * 8e5
    weight = minimum_potential(data, HyperbolicEntropy(scale, np.zeros(30))).weight
    weighted, unweighted = basis_pursuit(data, columns).weight, basis_pursuit(data).weight
    limit = unweighted if planted else weighted
    return at_most(
        float(np.linalg.norm(weight - limit) / np.linalg.norm(limit)),
        0.01,
        "relative distance of the law at step 800 000 to the linear program",
        f"the two programs are {np.linalg.norm(weighted - unweighted):.2g} apart",
    )


@claim(
    "label-noise/two-parameters",
    "For f = ab each step multiplies a^2 - b^2 by 1 - step^2 r^2, exactly.",
    DERIVED,
    kind="ours",
)
def two_parameters(lab: Lab, planted: bool) -> Verdict:
    """f = ab, one datum: log|a^2 - b^2| against the sum of log(1 - step^2 r^2), and its rate; planted: 2 step^2 r^2."""
    rng, step, deviation = np.random.default_rng(0), 0.05, 0.5
    a, b = np.full(400, 2.0), np.full(400, 0.5)
    total = np.zeros(400)
    for _ in range(2_000):
        r = a * b - 1 + deviation * rng.standard_normal(400)
        a, b = a - step * r * b, b - step * r * a
        total += np.log1p(-(2.0 if planted else 1.0) * step**2 * r**2)
    change = np.log(np.abs(a**2 - b**2) / 3.75)
    return at_most(float(np.abs(change - total).max()), 1e-10, "largest difference over 2000 steps and 400 chains")
