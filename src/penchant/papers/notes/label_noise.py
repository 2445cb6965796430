"""Claims on label noise, for signed squares and for squares: what stays exact in it, its time scale and what it selects."""

import jax
import jax.numpy as jnp
import numpy as np

from ...flow.flow import GradientFlow
from ...lab import Lab, claim, recipe
from ...references.interpolation import basis_pursuit, minimum_potential
from ...settings.base import Setting
from ...settings.losses import Squared
from ...settings.potentials import Entropy, HyperbolicEntropy
from ...settings.regression import Regression
from ...settings.square_models import SignedSquares
from ...theory.families.interpolation import distance
from ...training.noise import label_noise, row_signs
from ...training.noise_law import moment_descent
from ...training.train import train
from ...verdict import Verdict, all_of, at_least, at_most
from . import label_noise_evidence as evidence
from .evidence import DERIVED
from .label_noise_evidence import ALPHA, DEVIATION, STEP, agree, mean_and_error, noisy

BLANC = "Blanc, Gupta, Valiant, Valiant, Implicit regularization for deep neural networks driven by an Ornstein-Uhlenbeck like process, COLT 2020"
HAOCHEN = "HaoChen, Wei, Lee, Ma, Shape matters: understanding the implicit bias of the noise covariance, COLT 2021"


@recipe
def _unequal(lab: Lab) -> Regression:
    """Six samples in twenty dimensions, columns of unequal size, and targets of a dense nonnegative weight."""
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((6, 20)) * np.geomspace(1.4, 0.7, 20)
    return Regression(inputs, inputs @ rng.uniform(0, 1, 20))


def _columns(data: Regression) -> np.ndarray:
    return np.asarray((data.inputs**2).mean(axis=0))


def _hessian_traces(data: Regression, rows: int, columns: np.ndarray) -> tuple[float, float]:
    """Trace of the Hessian by automatic differentiation at a random point of one row (squares) or two (signed squares), and its formula."""
    point, signs = jnp.asarray(np.random.default_rng(6).standard_normal((rows, 20))), row_signs(rows)
    residuals = lambda params: data.inputs @ (signs @ params**2) - data.targets
    hessian = jax.hessian(lambda params: jnp.sum(residuals(params) ** 2) / 12)
    trace = jax.jit(lambda params: jnp.trace(hessian(params).reshape(params.size, params.size)))(point)
    pull = float((residuals(point) @ data.inputs).sum()) / 6
    return float(trace), 4 * float((columns * np.asarray(point) ** 2).sum()) + 2 * float(signs.sum()) * pull


@claim("label-noise/hessian-trace", DERIVED, "ours", slow=True)
def hessian_trace(lab: Lab, planted: bool) -> Verdict:
    """Everywhere tr Hess L = 4 sum c_j (w+^2 + w-^2) for signed squares, and 4 sum c_j beta_j^2 + 2 sum (X'r/n)_j for squares.
    Both models at a random point; planted: c_j left out."""
    data, checks = _unequal(lab), []
    for name, rows in (("signed squares", 2), ("squares", 1)):
        trace, predicted = _hessian_traces(data, rows, np.ones(20) if planted else _columns(data))
        checks.append(at_most(abs(trace / predicted - 1), 1e-13, f"{name}: relative error of the trace"))
    return all_of(*checks)


@claim("label-noise/product", DERIVED, "ours", slow=True)
def product_identity(lab: Lab, planted: bool) -> Verdict:
    """Each step multiplies w+ w- by 1 - 4 step^2 g^2, exactly.
    log w+ + log w- against its own sum of log(1 - 4 step^2 g^2); planted: against the sum times 1.001."""
    run = noisy(lab)
    product = run.log_params.sum(axis=2)
    error = float(np.abs(product - product[0] - run.log_product * (1.001 if planted else 1.0)).max())
    return at_most(error, 1e-10, "largest difference over 40 000 steps and 64 chains")


@claim("label-noise/time-scale", f"{BLANC}; law {DERIVED}", "ours", slow=True)
def time_scale(lab: Lab, planted: bool) -> Verdict:
    """Label noise shrinks w+ w- exponentially, by 4 step^2 E g^2 per step with the second moments of the residuals it keeps alive.
    Mean fall of log w+ w- at every record against the law of second moments; planted: half of it."""
    run, law = noisy(lab), evidence.drift(lab)
    fall = -run.log_product.mean(axis=2)[1:]  # columns have c_j = 1: average over coordinates
    predicted = (law.log_product[0] - law.log_product[1:]).mean(axis=1) * (0.5 if planted else 1.0)
    levels = np.stack([evidence.leading_levels(law.data, float(k)) for k in law.steps[1:]])
    leading = (law.log_product[0] - levels).mean(axis=1)
    short = np.round(100 * (fall.mean(axis=-1) / leading - 1), 1).tolist()
    detail = f"{_compared(fall, predicted)}; leading order alone is {short} % short"
    return agree(fall, predicted, "measured fall of log w+ w- against the law", detail)


def _compared(measured: np.ndarray, predicted: np.ndarray) -> str:
    mean, error = mean_and_error(measured)
    shown = [np.round(values, 4).tolist() for values in (mean, 1.96 * error, predicted)]
    return "measured {} +- {} (95 %), law {}".format(*shown)


@recipe
def _continued(lab: Lab, chain: int) -> np.ndarray:
    """The end of noise-free flow from a chain at its second checkpoint."""
    run = noisy(lab)
    setting = Setting(run.data, SignedSquares(ALPHA), Squared())
    return train(setting, GradientFlow(), np.exp(run.log_params[2, chain])).weight()


@claim("label-noise/noise-off", DERIVED, "ours", slow=True)
def noise_off(lab: Lab, planted: bool) -> Verdict:
    """When the noise stops, training ends at the minimiser of the potential with the present w+ w-.
    Flow (two chains) and descent (four chains at five records), continued without noise, end where the product w+ w- says; planted: the start's product."""
    run, worst = noisy(lab), 0.0
    start = np.full(30, 2 * np.log(ALPHA))

    def limit(log_params: np.ndarray) -> np.ndarray:
        plus, minus = log_params
        return minimum_potential(run.data, HyperbolicEntropy(start if planted else plus + minus, plus - minus)).weight

    for chain in range(2):
        worst = max(worst, distance(_continued(lab, chain), limit(run.log_params[2, chain])))
    weights, residual = evidence.continuation(lab)
    ends = np.array([[limit(one) for one in record[:4]] for record in run.log_params[1:]])
    apart = np.linalg.norm(weights[1:, :4] - ends, axis=-1) / np.linalg.norm(ends, axis=-1)
    return all_of(
        at_most(worst, 1e-6, "relative distance of the continued flow to the predicted interpolant"),
        at_most(float(apart.max()), 5e-4, "the same for continued descent, whose steps are finite"),
        at_most(residual, 1e-4, "largest relative residual of continued descent"),
    )


@claim("label-noise/selection", f"{HAOCHEN}; law {DERIVED}", "ours", slow=True)
def selection(lab: Lab, planted: bool) -> Verdict:
    """On unit columns the solution at which training ends when the noise stops moves along the law of second moments from Q_alpha towards the least l1 norm; the leading order, w+ w- shrinking by 4 step^2 sigma^2 c_j / B per step, misses it by more than the error bars.
    l1 norms of the noise-off limits at every record but the first; planted: along the leading order."""
    predicted, norms = evidence.predicted_norms(lab)[1:, int(planted)], evidence.measured_norms(lab)
    text, mean = "l1 norm at which training ends when the noise stops against the law", norms.mean(axis=1)
    share = float((mean[0] - mean[-1]) / (mean[0] - basis_pursuit(noisy(lab).data).value))
    return all_of(
        agree(norms[1:], predicted, text, _compared(norms[1:], predicted)),
        at_most(evidence.continuation(lab)[1], 1e-4, "largest relative residual of the continued runs"),
        at_least(share, 0.8, "share of the way to the l1 optimum travelled in 40 000 steps"),
    )


@claim("label-noise/control", HAOCHEN, "ours", slow=True)
def control(lab: Lab, planted: bool) -> Verdict:
    """Without label noise SGD stops drifting once it interpolates.
    Without label noise single-sample SGD interpolates and w+ w- stops shrinking; planted: with noise."""
    run = noisy(lab, noise=planted)
    late = np.abs(run.log_product[-1] - run.log_product[-2]).max()
    return at_most(float(late), 1e-6, "change of log w+ w- between steps 20 000 and 40 000")


@recipe
def raw_columns(lab: Lab) -> np.ndarray:
    """Columns as they come: plain and weighted l1 norms of the noise-off limit along the leading-order law."""
    data = evidence.signals(12, False, lab.seed)
    columns, rows = _columns(data), []
    for count in np.linspace(0, 160_000, 33):
        levels = evidence.leading_levels(data, float(count)) / 2
        weight = np.abs(evidence.limit_of(data, np.stack([levels, levels])))
        rows.append((count, weight.sum(), columns @ weight))
    return np.array(rows)


@claim("label-noise/weighted-norm", DERIVED, "ours", slow=True)
def weighted_norm_falls(lab: Lab, planted: bool) -> Verdict:
    """Label noise lowers the l1 norm weighted by the mean squares c_j of the columns at all times, but not the plain l1 norm, as one might read section 9.5 of the notes.
    Planted: the plain norm."""
    rise = float(np.diff(raw_columns(lab)[:, 1 if planted else 2]).max())
    return at_most(rise, 1e-9, "largest increase of the norm along 160 000 steps of the leading-order law")


def _to_program(data: Regression, columns: np.ndarray, steps: float, planted: bool, *, squares: bool) -> Verdict:
    """The law at late times against the linear program weighted by c_j; planted: against the program without weights."""
    level = 2 * np.log(ALPHA) - 4 * STEP**2 * DEVIATION**2 * columns * steps
    potential = Entropy(level) if squares else HyperbolicEntropy(level, np.zeros(len(level)))
    costs = columns, np.ones(len(columns))
    weighted, plain = (basis_pursuit(data, cost, nonnegative=squares).weight for cost in costs)
    apart = distance(minimum_potential(data, potential).weight, plain if planted else weighted)
    text = (
        f"{'squares' if squares else 'signed squares'}: relative distance of the law at step {steps:g} to the program"
    )
    return at_most(apart, 0.01, text, f"the two programs are {np.linalg.norm(weighted - plain):.2g} apart")


@claim("label-noise/weighted-limit", DERIVED, "ours", slow=True)
def weighted_limit(lab: Lab, planted: bool) -> Verdict:
    """The final object is the least l1 norm weighted by c_j; for squares, among nonnegative solutions.
    Signed squares and squares on columns of unequal size; planted: the program without weights."""
    inputs = np.random.default_rng(0).standard_normal((12, 30)) * np.geomspace(1.5, 0.75, 30)
    data, dense = Regression(inputs, inputs[:, 0] - inputs[:, 1]), _unequal(lab)
    return all_of(
        _to_program(data, (inputs**2).mean(axis=0), 8e5, planted, squares=False),
        _to_program(dense, _columns(dense), 4e6, planted, squares=True),
    )


_NOISE = {"step": STEP, "deviation": DEVIATION, "steps": (2_500, 10_000)}


@recipe
def _squares_norms(lab: Lab) -> np.ndarray:
    """Weighted l1 norms (records x chains) at which chains of squares end when their noise stops."""
    data, (count, used) = _unequal(lab), evidence.chains(lab)
    run = label_noise(data, np.full(20, ALPHA), chains=count, seed=1, **_NOISE)
    starts = run.log_params[:, :used]
    return evidence.continued(data, starts.reshape(-1, 1, 20)).reshape(*starts.shape[:2], 20) @ _columns(data)


@claim("label-noise/squares-selection", f"{HAOCHEN}; law {DERIVED}", "ours", slow=True)
def squares_selection(lab: Lab, planted: bool) -> Verdict:
    """On squares the solution at which training ends when the noise stops moves along the law of second moments to a smaller l1 norm weighted by c_j.
    Weighted l1 norms at which training ends when the noise stops, against the law of second moments; planted: no noise."""
    data, norms = _unequal(lab), _squares_norms(lab)
    law = moment_descent(data, np.full(20, ALPHA), **_NOISE)
    params = np.repeat(law.log_params[:1], len(law.steps), axis=0) if planted else law.log_params
    predicted = np.array([_columns(data) @ evidence.limit_of(data, one) for one in params])
    return all_of(
        agree(norms[1:], predicted[1:], "weighted l1 norm at which training ends, against the law"),
        at_least(float(norms[0].mean() - norms[-1].mean()), 1.0, "fall of the weighted norm in 10 000 steps"),
    )
