r"""Next-token prediction: the cross-entropy of soft labels, whose infimum is their entropy.

With logits $a_j = W h_j$ and target frequencies $\hat p_j$ on the support $S_j$, $L - L^* = \sum_j \pi_j [\kappa_j + \log(1 + \sum_{v\notin S_j}
e^{a_{jv} - c_j})]$, where $\kappa_j$ is the divergence of the softmax inside $S_j$ from $\hat p_j$ and $c_j$ the log sum of exponentials there. Neither
part cancels, however small: $\kappa = \log\sum \hat p e^\delta$ with $\delta$ the error of the logits inside, of mean 0 under $\hat p$.
"""

from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..errors import ArgumentError, FiniteLimit
from ..logspace import log_softplus, log_sum, softplus
from .base import Infimum, MarginData, Weighing
from .check import real_array
from .classification import Classification
from .losses import AbstractLoss
from .parametrisations import PlainMetric

_SUMS = 1e-12  # how far the frequencies of a context may be from summing to 1
_COMPATIBLE = 1e-10  # largest residual of logits that fit all targets
_RANK = 1e-12  # relative, below which a direction is rounding
_SMALL = 1e-4  # errors of logits below which expm1(x) - x is its series


class NextToken(MarginData):
    r"""Contexts $h_j$ (n, d) of weight $\pi_j$ (n,) with next-token frequencies `targets` $\hat p_j$ (n, k), whose rows sum to 1.

    One margin per context and token: inside the support the error of its logit, $\delta_{jz}$, which training sends to 0; outside it
    $\sum_z \hat p_{jz} (e_z - e_v)^\top W h_j$, which grows. `data_weight` is the least weight that fits all frequencies inside the supports,
    `floor` the entropy. Train `InsideOutside()` weights, so that small errors inside are not rounded next to large margins outside.

    >>> data = NextToken([[1.0, 0.0], [0.0, 1.0]], [0.5, 0.5], [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    >>> round(data.floor, 12), abs(data.margins(data.data_weight)).tolist()          # log(2) / 2
    (0.34657359028, [0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    """

    names: ClassVar[dict[str, str]] = {"norm": "frobenius", "margin": "sum_z p_z (e_z - e_v)^T W h"}
    contexts: Float[Array, "n d"]
    shares: Float[Array, "n"]
    targets: Float[Array, "n k"]
    inside: Bool[Array, "n k"]
    data_weight: Float[Array, "k d"]
    basis: Float[Array, "kd r"]  # orthonormal, of the span of in-support features
    log_targets: Float[Array, "n k"]  # 0 outside the support
    attained: bool = eqx.field(static=True)  # pyright: ignore[reportIncompatibleVariableOverride, reportGeneralTypeIssues]

    def __init__(self, contexts: object, weights: object, targets: object):
        contexts = real_array(contexts, "contexts", "NextToken", "(n, d)", 2)
        targets = real_array(targets, "targets", "NextToken", "(n, k)", 2)
        shares = real_array(weights, "weights", "NextToken", "(n,)", 1)
        _check_frequencies(contexts, shares, targets)
        inside = targets > 0
        self.attained = bool(inside.all())  # pyright: ignore[reportIncompatibleVariableOverride] no margin can grow: a finite weight is optimal
        logs = np.log(np.where(inside, targets, 1.0))
        self.basis, self.data_weight = jax.device_put(_fitted(contexts, inside, logs))
        self.contexts, self.shares, self.targets = jax.device_put((contexts, shares, targets))
        self.inside, self.log_targets = jax.device_put((inside, logs))

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return (self.targets.shape[1], self.contexts.shape[1])

    @property
    def floor(self) -> float:
        """The entropy of the targets, below which no loss is."""
        return float(-self.shares @ jnp.sum(self.targets * self.log_targets, axis=1))

    def margins(self, weight: Float[Array, "k d"]) -> Float[Array, "N"]:
        return (self.linear(weight) - jnp.where(self.inside, self._centred(self.log_targets), 0.0)).ravel()

    def linear(self, weight: Float[Array, "k d"]) -> Float[Array, "n k"]:
        """The part of the margins that is linear in the weight."""
        return self._signed(self._centred(self.contexts @ weight.T))

    def _centred(self, logits: Array) -> Array:
        """Logits minus their mean under the targets."""
        return logits - jnp.sum(self.targets * logits, axis=1, keepdims=True)

    def _signed(self, values: Array) -> Array:
        return jnp.where(self.inside, values, -values)

    def adjoint(self, coefficients: Float[Array, "N"]) -> Float[Array, "k d"]:
        pushes = self._signed(coefficients.reshape(self.targets.shape))
        return (pushes - self.targets * jnp.sum(pushes, axis=1, keepdims=True)).T @ self.contexts

    def gram(self) -> Float[Array, "N N"]:
        rows = jax.vmap(self.adjoint)(jnp.eye(self.targets.size)).reshape(self.targets.size, -1)
        return rows @ rows.T

    def constrained(self) -> np.ndarray:
        """Tokens outside the support, whose margins grow."""
        return ~np.asarray(self.inside).ravel()

    def smallest(self, margins: Float[Array, "N"]) -> Float[Array, ""]:
        """Not a number where all supports are full: no margin grows, and none is ever reached."""
        return jnp.array(jnp.nan) if self.attained else jnp.min(jnp.where(self.inside.ravel(), jnp.inf, margins))

    def reached(self, margins: np.ndarray) -> str:
        return f"log-odds missed by {np.abs(margins).max():.3g}" if self.attained else super().reached(margins)

    def at_rounding(self, margins: Float[Array, "N"]) -> Array | bool:
        """Whether errors of log-odds are below those that rounding makes in the log-odds themselves, where all supports are full."""
        size = jnp.finfo(float).eps * jnp.maximum(1.0, jnp.max(jnp.abs(self.log_targets)))
        return self.attained & (jnp.max(jnp.abs(margins)) <= size)

    def onto(self, weight: Array) -> tuple[Array, Array]:
        """The parts of a weight in the span of in-support features and orthogonal to it."""
        part = (self.basis @ (self.basis.T @ weight.ravel())).reshape(weight.shape)
        return part, weight - part

    def outside(self) -> Classification:
        """The out-of-support features orthogonal to all in-support ones, as inputs (k d wide) of label 1: the maximum margin of these
        is what gradient descent selects there (NTP-SVM)."""
        if self.attained:
            raise FiniteLimit(float(jnp.linalg.norm(self.data_weight)))
        features = jax.vmap(self.adjoint)(jnp.eye(self.targets.size)[self.constrained()])
        rows = np.asarray(jax.vmap(lambda one: self.onto(one)[1])(features)).reshape(len(features), -1)
        rounding = np.linalg.norm(rows, axis=1) <= _RANK * np.linalg.norm(features, axis=(1, 2))
        return Classification(np.where(rounding[:, None], 0.0, rows), np.ones(len(rows)))

    def weigh(self, margins: Float[Array, "N"], loss: AbstractLoss) -> Weighing:
        pairs = margins.reshape(self.targets.shape)
        errors, outside = jnp.where(self.inside, pairs, 0.0), jnp.where(self.inside, jnp.inf, pairs)
        kappa = jnp.log1p(jnp.sum(self.targets * _expm1_rest(errors), axis=1))
        entropy = -jnp.sum(self.targets * self.log_targets, axis=1)
        escape = -outside - (entropy + kappa)[:, None]
        full = jnp.all(self.inside, axis=1)  # nothing spills there, whatever is computed in its place
        spill = log_sum(jnp.where(full[:, None], 0.0, escape))
        log_losses = jnp.where(full, _log(kappa), jnp.logaddexp(_log(kappa), log_softplus(spill)))
        log_shares = jnp.log(self.shares * len(self.shares))
        log_excess = log_sum(log_shares + log_losses)
        log_factors = (log_shares - jnp.where(full, 0.0, softplus(spill)) - log_excess)[:, None]
        pull = -self.targets * jnp.expm1(errors - kappa[:, None]) * jnp.exp(log_factors)
        return Weighing(log_excess, log_excess, jnp.where(self.inside, pull, jnp.exp(escape + log_factors)).ravel())

    def check_loss(self, loss: AbstractLoss) -> None:
        if loss.kind != "cross-entropy":
            raise ArgumentError("loss", "Setting", "CrossEntropy() on `NextToken` data", f"{type(loss).__name__}()")

    def infimum(self, loss: AbstractLoss) -> Infimum:
        where = "on full supports" if self.attained else "and no probability elsewhere"
        return Infimum(self.floor, self.attained, f"the entropy of the targets: frequencies fitted {where}")


def _log(value: Array) -> Array:
    zero = value <= 0
    return jnp.where(zero, -jnp.inf, jnp.log(jnp.where(zero, 1.0, value)))


def _expm1_rest(x: Array) -> Array:
    """e^x - 1 - x without cancellation."""
    small = jnp.abs(x) < _SMALL
    series = x * x * (1 / 2 + x * (1 / 6 + x * (1 / 24 + x / 120)))
    safe = jnp.where(small, 1.0, x)
    return jnp.where(small, series, jnp.expm1(safe) - safe)


class Parts(eqx.Module):
    """A weight beyond `data_weight`: its part in the span of in-support features, and the rest."""

    inside: Float[Array, "*b k d"]
    outside: Float[Array, "*b k d"]


class InsideOutside(PlainMetric):
    """The weight of `NextToken` data as data_weight + F + R in two arrays: errors inside the supports are read from F alone."""

    form = "plain weights"

    def check_data(self, data: object) -> None:
        if not isinstance(data, NextToken):
            raise ArgumentError("data", "InsideOutside", "NextToken data", type(data).__name__, "use `Direct()`")

    def zeros(self, data: NextToken) -> Parts:
        """The weight 0, which misses `data_weight`."""
        return self.from_weight(jnp.zeros(data.weight_shape), data)

    def random(self, data: NextToken, rng: np.random.Generator, scale: float) -> Parts:
        return self.from_weight(jnp.asarray(scale * rng.standard_normal(data.weight_shape)), data)

    def from_weight(self, weight: Array, data: NextToken) -> Parts:
        return Parts(*data.onto(jnp.asarray(weight, float) - data.data_weight))

    def weight(self, params: Parts, data: NextToken) -> Array:
        return data.data_weight + sum(self._projected(params, data))

    def named(self, params: Parts, data: NextToken) -> dict[str, Array]:
        return dict(zip("WFR", (self.weight(params, data), *self._projected(params, data)), strict=True))

    def _projected(self, params: Parts, data: NextToken) -> tuple[Array, Array]:
        """Both parts without what rounding brought of the other one's subspace."""
        return data.onto(params.inside)[0], data.onto(params.outside)[1]

    def linearise(self, params: Parts, data: NextToken) -> tuple[Array, Callable[[Array], Parts]]:
        inside, outside = self._projected(params, data)
        near, far = data.linear(inside), data.linear(data.data_weight + outside)
        return (near + jnp.where(data.inside, 0.0, far)).ravel(), lambda pull: Parts(*data.onto(data.adjoint(pull)))

    def gram(self, params: Parts, data: NextToken) -> Float[Array, "N N"]:
        return data.gram()


def _check_frequencies(contexts: np.ndarray, shares: np.ndarray, targets: np.ndarray) -> None:
    n = len(contexts)
    for name, found in (("weights", shares), ("targets", targets)):
        if len(found) != n:
            raise ArgumentError(name, "NextToken", f"one row per context ({n})", len(found))
        if found.min() < 0 or (name == "weights" and found.min() == 0):
            wanted = "positive" if name == "weights" else "nonnegative frequencies"
            raise ArgumentError(name, "NextToken", wanted, f"{found.min():g}")
    sums = np.append(targets.sum(axis=1), shares.sum())
    bad = np.flatnonzero(np.abs(sums - 1) > _SUMS)
    if len(bad):
        row, of_weights = bad[0], bad[0] == n
        found = f"{sums[row]:.15g}" + ("" if of_weights else f" in context {row}")
        fix = "divide by the sum: `counts / counts.sum(axis=-1, keepdims=True)`"
        raise ArgumentError("weights" if of_weights else "targets", "NextToken", "of sum 1", f"the sum {found}", fix)
    if targets.shape[1] < 2:
        raise ArgumentError("targets", "NextToken", "of at least two tokens", f"shape {targets.shape}")


def _fitted(contexts: np.ndarray, inside: np.ndarray, logs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An orthonormal basis of the in-support features, and the least weight whose logits have the targets' differences there."""
    size = (inside.shape[1], contexts.shape[1])
    rows, wanted = [np.zeros((0, size[0] * size[1]))], [np.zeros(0)]
    for context, support, log in zip(contexts, map(np.flatnonzero, inside), logs, strict=True):
        units = np.eye(size[0])[support[1:]] - np.eye(size[0])[support[0]]
        rows.append(np.einsum("ra,b->rab", units, context).reshape(len(units), size[0] * size[1]))
        wanted.append(log[support[1:]] - log[support[0]])
    features, goal = np.concatenate(rows), np.concatenate(wanted)
    if not len(features):
        return np.zeros((features.shape[1], 0)), np.zeros(size)
    left, sizes, right = np.linalg.svd(features, full_matrices=False)
    kept = sizes > _RANK * sizes[0]
    weight = right[kept].T @ ((left[:, kept].T @ goal) / sizes[kept])
    missed = np.abs(features @ weight - goal)
    if missed.max() > _COMPATIBLE * max(1.0, np.abs(goal).max()):
        text = f"log-odds that no weight fits: one is missed by {missed.max():.3g}"
        fix = "contexts that are linearly independent (more dimensions, or fewer contexts) are always compatible"
        raise ArgumentError("targets", "NextToken", "compatible: logits W h fit all in-support log-odds", text, fix)
    return right[kept].T, weight.reshape(size)
