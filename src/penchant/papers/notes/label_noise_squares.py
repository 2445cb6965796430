"""Claims on label noise for plain squares, theta = beta * beta: the same weights c_j, among nonnegative solutions."""

import jax
import jax.numpy as jnp
import numpy as np

from ...lab import Lab, claim, recipe
from ...references.interpolation import basis_pursuit, minimum_potential
from ...settings.potentials import Entropy
from ...settings.regression import Regression
from ...training.noise import NoisyRun, label_noise
from ...training.noise_law import moment_descent
from ...verdict import Verdict, all_of, at_least, at_most
from .evidence import DERIVED
from .label_noise import HAOCHEN
from .label_noise_evidence import ALPHA, CHAINS, DEVIATION, LIMITS, STEP, agree, continued, limit_of

_COUNTS = (2_500, 10_000)


@recipe
def _data(lab: Lab) -> Regression:
    """Six samples in twenty dimensions, columns of unequal size, and targets of a dense nonnegative weight."""
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((6, 20)) * np.geomspace(1.4, 0.7, 20)
    return Regression(inputs, inputs @ rng.uniform(0, 1, 20))


def _columns(lab: Lab) -> np.ndarray:
    return np.asarray((_data(lab).inputs ** 2).mean(axis=0))


@recipe
def _noisy(lab: Lab) -> NoisyRun:
    start = np.full(20, ALPHA)
    return label_noise(_data(lab), start, step=STEP, deviation=DEVIATION, steps=_COUNTS, chains=CHAINS, seed=1)


@recipe
def _ends(lab: Lab) -> np.ndarray:
    """Weights (records x chains x d) at which the chains end when their noise stops."""
    starts = _noisy(lab).log_params[:, :LIMITS]
    return continued(_data(lab), starts.reshape(-1, 1, 20)).reshape(*starts.shape[:2], 20)


@claim(
    "label-noise/squares-hessian-trace",
    "For squares tr Hess L = 4 sum c_j beta_j^2 + 2 sum (X'r/n)_j, everywhere.",
    DERIVED,
    kind="ours",
)
def hessian_trace(lab: Lab, planted: bool) -> Verdict:
    """Trace of the Hessian by automatic differentiation at a random point; planted: the part of the residuals left out."""
    data, n = _data(lab), 6
    inputs, targets = data.inputs, data.targets
    point = jnp.asarray(np.random.default_rng(6).standard_normal(20))
    trace = jax.jit(
        lambda beta: jnp.trace(jax.hessian(lambda b: jnp.sum((inputs @ b**2 - targets) ** 2) / (2 * n))(beta))
    )
    residual = 0.0 if planted else 2 * float(((inputs @ point**2 - targets) @ inputs).sum()) / n
    predicted = 4 * float(_columns(lab) @ np.asarray(point) ** 2) + residual
    return at_most(abs(float(trace(point)) / predicted - 1), 1e-13, "relative error of the trace")


@claim(
    "label-noise/squares-selection",
    "On squares the solution at which training ends when the noise stops moves along the law of second moments to a smaller l1 norm weighted by c_j.",
    f"{HAOCHEN}; law {DERIVED}",
    kind="ours",
    slow=True,
)
def selection(lab: Lab, planted: bool) -> Verdict:
    """Weighted l1 norms at which training ends when the noise stops, against the law of second moments; planted: no noise."""
    law = moment_descent(_data(lab), np.full(20, ALPHA), step=STEP, deviation=DEVIATION, steps=_COUNTS)
    params = np.repeat(law.log_params[:1], len(law.steps), axis=0) if planted else law.log_params
    predicted = np.array([_columns(lab) @ limit_of(_data(lab), one) for one in params])
    norms = _ends(lab) @ _columns(lab)
    return all_of(
        agree(norms[1:], predicted[1:], "weighted l1 norm at which training ends, against the law"),
        at_least(float(norms[0].mean() - norms[-1].mean()), 1.0, "fall of the weighted norm in 10 000 steps"),
    )


@claim(
    "label-noise/squares-limit",
    "On squares the final object is the least l1 norm weighted by c_j among nonnegative solutions.",
    DERIVED,
    kind="ours",
    slow=True,
)
def weighted_limit(lab: Lab, planted: bool) -> Verdict:
    """The law at late times against the weighted program over nonnegative weights; planted: the program without weights."""
    scale = 2 * np.log(ALPHA) - 4 * STEP**2 * DEVIATION**2 * _columns(lab) * 4e6
    found = minimum_potential(_data(lab), Entropy(scale)).weight
    programs = [basis_pursuit(_data(lab), costs, nonnegative=True).weight for costs in (_columns(lab), np.ones(20))]
    limit = programs[1] if planted else programs[0]
    return at_most(
        float(np.linalg.norm(found - limit) / np.linalg.norm(limit)),
        0.01,
        "relative distance of the law at step 4 000 000 to the linear program",
        f"the two programs are {np.linalg.norm(programs[0] - programs[1]):.2g} apart",
    )
