r"""The gauge with the smallest bias: $b_2(R)$, what training with the expected gradient over samples of size n settles at times $n^2$, over all R."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import scipy.linalg as sl
from scipy.optimize import minimize

from ....errors import ArgumentError
from .context_bias import CUTOFF, bias_gradient, oracle_shift
from .curvature import balanced_point, hessian
from .problem import AttentionRegression
from .sample import gauge_rotation

_RANDOM = 3  # random starts on each component, next to the named gauges


class BestGauge(eqx.Module):
    """The rotation with the least b_2 = `excess` that was found; `components` has the least for det R = 1 and -1 (equal where R is not square)."""

    rotation: np.ndarray
    excess: float
    components: tuple[float, float]


def best_gauge(problem: AttentionRegression, *, sample_balance: bool = True, seed: int = 0) -> BestGauge:
    """The minimum of b_2 over the gauges, from several starts on both components; `sample_balance` as in `oracle_shift`.

    >>> from penchant.papers.attention_regression.setting.generators import prescribed_spectrum
    >>> problem = prescribed_spectrum(4, (0.05, 0.04, 0.03), 5.0, 11)
    >>> named = {gauge: oracle_shift(problem, gauge).excess for gauge in ("minus", "identity", "plus")}
    >>> {gauge: round(value, 3) for gauge, value in named.items()}
    {'minus': 1.045, 'identity': 1.594, 'plus': 4.131}
    >>> round(best_gauge(problem).excess, 3)
    1.045
    """
    if seed < 0:
        raise ArgumentError("seed", "best_gauge", "nonnegative", seed)
    oracle_shift(problem, sample_balance=sample_balance)  # raises by name where b_2 is infinite
    d, width = problem.inputs, len(problem.sizes)
    measure = _excess_of(problem, sample_balance)
    rng = np.random.default_rng(seed)
    bases = [_completed(gauge_rotation(problem, gauge)) for gauge in ("minus", "identity")]
    bases += [np.linalg.qr(rng.standard_normal((d, d)))[0] for _ in range(_RANDOM)]
    found = [_descend(measure, one) for base in bases for one in (base, np.concatenate([base[:-1], -base[-1:]]))]
    least = lambda sign: min(excess for rotation, excess in found if np.linalg.det(rotation) * sign > 0)
    rotation = min(found, key=lambda one: one[1])[0][:width]
    excess = oracle_shift(problem, rotation, sample_balance=sample_balance).excess
    return BestGauge(rotation, excess, (least(1), least(-1)))


def _completed(rotation: np.ndarray) -> np.ndarray:
    """Orthonormal rows and, below them, a basis of what is orthogonal to them."""
    rows, columns = rotation.shape
    return rotation if rows == columns else np.concatenate([rotation, np.linalg.svd(rotation)[2][rows:]])


def _descend(measure: Callable[[np.ndarray], float], base: np.ndarray) -> tuple[np.ndarray, float]:
    """A local minimum of b_2 on the component of `base`, and its value; slopes by differences, as compiling them takes far longer."""
    start = np.zeros(len(base) * (len(base) - 1) // 2)
    if not len(start):
        return base, measure(base)
    log_excess = lambda turn: float(np.log(measure(_turned(turn, base))))
    run = minimize(log_excess, start, method="BFGS", options={"gtol": 1e-5})
    return _turned(run.x, base), float(np.exp(run.fun))


def _turned(turn: np.ndarray, base: np.ndarray) -> np.ndarray:
    d = len(base)
    skew = np.zeros((d, d))
    skew[np.triu_indices(d, 1)] = turn
    return base @ sl.expm(skew - skew.T)


def _excess_of(problem: AttentionRegression, sample_balance: bool) -> Callable[[np.ndarray], float]:
    """b_2 as a function of R. The curvature turns with the gauge, so that the inverse at the gauge identity serves all of them."""
    m, point = problem.outputs, balanced_point(problem)
    inverse = np.linalg.pinv(hessian(problem, point), rcond=CUTOFF, hermitian=True)

    def excess(rotation: np.ndarray) -> float:
        slope = np.asarray(bias_gradient(jnp.asarray(point @ rotation), problem.target, sample_balance)) @ rotation.T
        shift = -(inverse @ slope.ravel()).reshape(point.shape)
        return float(np.sum((shift[:m] @ point[m:].T + point[:m] @ shift[m:].T) ** 2))

    return excess
