"""Claims on label noise: the regulariser hidden in it, its time scale and what it selects."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from ..flow.flow import GradientFlow
from ..references.interpolation import basis_pursuit, minimum_potential
from ..settings.base import Setting
from ..settings.generators import sparse_regression
from ..settings.losses import Squared
from ..settings.potentials import HyperbolicEntropy
from ..settings.regression import Regression
from ..settings.square_models import SignedSquares
from ..training.noise import NoisyRun, label_noise
from ..training.train import train
from ..verdict import Outcome, Verdict, all_of, at_least, at_most
from .base import Claim
from .interpolation_claims import DERIVED, PAPER

BLANC = "Blanc, Gupta, Valiant, Valiant, Implicit regularization for deep neural networks driven by an Ornstein-Uhlenbeck like process, COLT 2020"
HAOCHEN = "HaoChen, Wei, Lee, Ma, Shape matters: understanding the implicit bias of the noise covariance, COLT 2021"
STEP, DEVIATION, ALPHA = 0.005, 1.0, 0.5
CHECKPOINTS = (2_500, 5_000, 10_000, 20_000, 40_000)


def hessian_trace(planted: bool) -> Verdict:
    """Trace of the Hessian by automatic differentiation at a random point; planted: c_j left out."""
    data, _ = sparse_regression(6, 9, 2, 5)
    inputs, targets = data.inputs, data.targets
    point = jnp.asarray(np.random.default_rng(6).standard_normal((2, 9)))
    loss = lambda params: jnp.sum((inputs @ (params[0] ** 2 - params[1] ** 2) - targets) ** 2) / 12
    trace = float(jnp.trace(jax.hessian(loss)(point).reshape(18, 18)))
    weights = np.ones(9) if planted else np.asarray((inputs**2).mean(axis=0))
    predicted = float(4 * (weights * np.asarray(point**2).sum(axis=0)).sum())
    return at_most(abs(trace / predicted - 1), 1e-13, "relative error of tr Hess = 4 sum c_j (w+^2 + w-^2)")


def signals(n: int, unit_columns: bool) -> Regression:
    """Normal inputs in thirty dimensions and the weight (1, -1, 0, ...)."""
    inputs = np.random.default_rng(0).standard_normal((n, 30))
    if unit_columns:
        inputs = inputs / np.sqrt((inputs**2).mean(axis=0))
    return Regression(inputs, inputs[:, 0] - inputs[:, 1])


@cache
def noisy(unit_columns: bool = True, chains: int = 64, deviation: float = DEVIATION, batch: int | None = 1) -> NoisyRun:
    """Label-noise SGD on signed squares, two signals in thirty dimensions, fifteen samples."""
    return label_noise(
        signals(15, unit_columns),
        np.full((2, 30), ALPHA),
        step=STEP,
        deviation=deviation,
        steps=CHECKPOINTS,
        chains=chains,
        batch=batch,
    )


def product_identity(planted: bool) -> Verdict:
    """log w+ + log w- against its own sum of log1p(-4 step^2 g^2); planted: against the sum times 1.001."""
    run = noisy()
    product = run.log_params.sum(axis=2)
    drift = float(np.abs(product - product[0] - run.log_product * (1.001 if planted else 1.0)).max())
    return at_most(drift, 1e-10, "largest difference over 40 000 steps and 64 chains")


def time_scale(planted: bool) -> Verdict:
    r"""log w+ w- falls by 4 step^2 (sigma^2 + mean r^2) c_j per step; planted: half of it.

    The mean squared residual is measured at the checkpoints themselves: it is the correction to the leading order.
    """
    run = noisy()
    data: Regression = run.data
    late = slice(1, None)
    residual = np.array(
        [
            ((run.weight(k) @ np.asarray(data.inputs).T - np.asarray(data.targets)) ** 2).mean()
            for k in range(len(run.steps))
        ]
    )
    fall = -np.diff(run.log_product.mean(axis=2)[late], axis=0)  # columns have c_j = 1: average over coordinates
    spans = np.diff(run.steps[late])
    excess = (residual[1:-1] + residual[2:]) / 2
    rate = 4 * STEP**2 * (DEVIATION**2 + excess) * (0.5 if planted else 1.0)
    ratio = fall / (spans * rate)[:, None]
    error = ratio.std(axis=1, ddof=1) / np.sqrt(ratio.shape[1])
    worst = float(
        (np.abs(ratio.mean(axis=1) - 1) / (error + 0.02)).max()
    )  # 2 %: the residual between checkpoints is interpolated
    return at_most(
        worst,
        4.0,
        "deviation of the measured over the predicted decay rate of w+ w-, in standard errors",
        f"ratios {np.round(ratio.mean(axis=1), 4).tolist()}",
    )


def _effective(run: NoisyRun, record: int, chain: int | None) -> np.ndarray:
    """The interpolant predicted when noise is switched off: from the measured point, or from the derived law alone."""
    if chain is not None:
        return minimum_potential(run.data, SignedSquares(1.0).potential(np.exp(run.log_params[record, chain]))).weight
    columns = np.asarray((run.data.inputs**2).mean(axis=0))
    scale = 2 * np.log(ALPHA) - 4 * STEP**2 * DEVIATION**2 * columns * run.steps[record]
    return minimum_potential(run.data, HyperbolicEntropy(scale, np.zeros(len(scale)))).weight


def norms_along(run: NoisyRun, weights: np.ndarray, chains: int = 16) -> np.ndarray:
    """Weighted l1 norm of the noise-off limit at every record: measured mean, its standard error, prediction of the derived law."""
    rows = []
    for record in range(len(run.steps)):
        found = np.array([weights @ np.abs(_effective(run, record, chain)) for chain in range(chains)])
        rows.append(
            (found.mean(), found.std(ddof=1) / np.sqrt(chains), weights @ np.abs(_effective(run, record, None)))
        )
    return np.array(rows)


@cache
def _continued(chain: int) -> np.ndarray:
    """The end of noise-free flow from a chain at its second checkpoint."""
    run = noisy()
    setting = Setting(run.data, SignedSquares(ALPHA), Squared())
    return train(setting, GradientFlow(), np.exp(run.log_params[2, chain])).weight()


def noise_off(planted: bool) -> Verdict:
    """Switching the noise off, the flow continued from the noisy point ends where the product w+ w- says; planted: the start's product."""
    run, worst = noisy(), 0.0
    for chain in range(2):
        plus, minus = run.log_params[2, chain]
        scale = np.full(30, 2 * np.log(ALPHA)) if planted else plus + minus
        limit = minimum_potential(run.data, HyperbolicEntropy(scale, plus - minus)).weight
        worst = max(worst, float(np.linalg.norm(_continued(chain) - limit) / np.linalg.norm(limit)))
    return at_most(worst, 1e-6, "relative distance of the continued flow to the predicted interpolant")


def selection(planted: bool) -> Verdict:
    """l1 norm of the noise-off limit falls along the derived law to the l1 optimum; planted: the law without noise."""
    run = noisy()
    rows = norms_along(run, np.ones(30))
    optimum, start = basis_pursuit(run.data).value, rows[0, 0]
    predicted = np.full(len(rows), rows[0, 2]) if planted else rows[:, 2]
    travelled = float(np.abs(rows[:, 0] - predicted).max() / (start - optimum))
    return all_of(
        at_most(
            travelled,
            0.05,
            "largest distance between measured and derived l1 norm, as a share of the way to the optimum",
            f"measured {np.round(rows[:, 0], 4).tolist()}, derived {np.round(rows[:, 2], 4).tolist()}",
        ),
        at_least(
            float((start - rows[-1, 0]) / (start - optimum)),
            0.8,
            "share of the way to the l1 optimum travelled in 40 000 steps",
        ),
    )


def control(planted: bool) -> Verdict:
    """Without label noise single-sample SGD interpolates and w+ w- stops shrinking; planted: with noise."""
    run = noisy() if planted else noisy(True, 16, 0.0)
    late = np.abs(run.log_product[-1] - run.log_product[-2]).max()
    return at_most(float(late), 1e-6, "change of log w+ w- between steps 20 000 and 40 000")


@cache
def _raw() -> np.ndarray:
    """Columns as they come: plain and weighted l1 norms of the noise-off limit along the derived law."""
    data = signals(12, False)
    columns = np.asarray((data.inputs**2).mean(axis=0))
    rows = []
    for count in np.linspace(0, 160_000, 33):
        scale = 2 * np.log(ALPHA) - 4 * STEP**2 * DEVIATION**2 * columns * count
        weight = np.abs(minimum_potential(data, HyperbolicEntropy(scale, np.zeros(30))).weight)
        rows.append((count, weight.sum(), columns @ weight))
    return np.array(rows)


def _falls(column: int, planted: bool) -> Verdict:
    norms = _raw()[:, column][:: -1 if planted else 1]
    return at_most(
        float(np.diff(norms).max()), 1e-9, "largest increase of the norm along 160 000 steps of the derived law"
    )


def plain_norm_falls(planted: bool) -> Verdict:
    return _falls(1, planted)


def weighted_norm_falls(planted: bool) -> Verdict:
    return _falls(2, planted)


def weighted_limit(planted: bool) -> Verdict:
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


def two_parameters(planted: bool) -> Verdict:
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


CLAIMS = (
    Claim(
        "label-noise/hessian-trace",
        PAPER,
        "For signed squares tr Hess L = 4 sum c_j (w+^2 + w-^2), everywhere.",
        DERIVED,
        hessian_trace,
    ),
    Claim(
        "label-noise/product",
        PAPER,
        "Each step multiplies w+ w- by 1 - 4 step^2 g^2, exactly.",
        DERIVED,
        product_identity,
    ),
    Claim(
        "label-noise/two-parameters",
        PAPER,
        "For f = ab each step multiplies a^2 - b^2 by 1 - step^2 r^2, exactly.",
        DERIVED,
        two_parameters,
    ),
    Claim(
        "label-noise/time-scale",
        PAPER,
        "Label noise shrinks w+ w- exponentially, by 4 step^2 (sigma^2 + mean r^2) c_j / B per step: the flow of (step sigma^2 / 4B) tr Hess.",
        f"{BLANC}; rate {DERIVED}",
        time_scale,
    ),
    Claim(
        "label-noise/noise-off",
        PAPER,
        "When the noise stops, training ends at the minimiser of the potential with the present w+ w-.",
        DERIVED,
        noise_off,
    ),
    Claim(
        "label-noise/selection",
        PAPER,
        "On unit columns the selected solution moves along the derived law from Q_alpha to the least l1 norm.",
        f"{HAOCHEN}; law {DERIVED}",
        selection,
    ),
    Claim(
        "label-noise/control", PAPER, "Without label noise SGD stops drifting once it interpolates.", HAOCHEN, control
    ),
    Claim(
        "label-noise/plain-norm",
        PAPER,
        "Label noise lowers the l1 norm of the selected solution at all times.",
        "a tempting reading of section 9.5 of the notes",
        plain_norm_falls,
        Outcome.refuted,
    ),
    Claim(
        "label-noise/weighted-norm",
        PAPER,
        "Label noise lowers the l1 norm weighted by the mean squares c_j of the columns at all times.",
        DERIVED,
        weighted_norm_falls,
    ),
    Claim(
        "label-noise/weighted-limit",
        PAPER,
        "The final object is the least l1 norm weighted by c_j.",
        DERIVED,
        weighted_limit,
    ),
)
