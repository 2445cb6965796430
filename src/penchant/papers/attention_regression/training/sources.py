r"""Where the gradient of an attention layer comes from: the population, one sample, minibatches of it, fresh ones, or the oracle of the theory.

A source evaluates the loss alone; the regulariser and the preconditioner use the covariance of `source.problem`: the truth for
the population, fresh samples and the oracle, the estimate from all samples for the others.
"""

from abc import abstractmethod
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ....errors import ArgumentError
from ..setting.context_bias import key_norm, require_below, whitened_balance_bias, whitened_loss_bias
from ..setting.context_sums import FORMS, Sums, context_sums
from ..setting.problem import AttentionLayer, AttentionRegression, Unregularised
from ..setting.sample import KEYS, AttentionSample, check_counts


class AbstractSource(eqx.Module):
    """`draws(count)` is what `count` evaluations need (a leading axis, or None); `evaluate` gives the loss and its gradient.

    `rows` says which rows of a sample ask: "all", a "batch", or none where there is no sample.
    """

    rows: ClassVar[str] = ""

    @property
    @abstractmethod
    def problem(self) -> AttentionRegression:
        """What preconditions: the truth, or what the sample suggests."""

    @property
    def context(self) -> int:
        """The number of keys of a query; 0 where there is no sample."""
        return 0

    def draws(self, count: int) -> PyTree:
        """Nothing, unless a source is random."""
        return None

    @abstractmethod
    def evaluate(self, layer: AttentionLayer, draw: PyTree) -> tuple[Float[Array, ""], AttentionLayer]: ...

    def require(self, layer: AttentionLayer) -> None:
        """Raise where the source has no value at a layer."""
        return


class Population(AbstractSource):
    """The exact population gradient."""

    truth: AttentionRegression

    @property
    def problem(self):
        return self.truth

    def evaluate(self, layer, draw):
        return self.truth.loss(layer), self.truth.gradient(layer, Unregularised())


class Oracle(AbstractSource):
    """The expectation of the gradient over fresh samples of size `count`, to first order in 1/count: what Theorem 2 assumes.

    `sample_balance`: the regulariser comes from the same small sample, so its bias counts as well.
    """

    truth: AttentionRegression
    count: Float[Array, ""]
    sample_balance: bool = eqx.field(static=True)

    def __init__(self, truth: AttentionRegression, count: float | int, *, sample_balance: bool = True):
        if not count >= 1:
            raise ArgumentError("count", "Oracle", "at least 1", count)
        require_below(2 * float(truth.sizes[0]), 1.0, "2 s_1 = 2 |A Sigma^(1/2)|", "The oracle's bias")
        self.truth, self.count, self.sample_balance = truth, jnp.asarray(count, float), sample_balance

    @property
    def problem(self):
        return self.truth

    def require(self, layer):
        require_below(2 * key_norm(self.truth, layer) ** 2, 1.0, "2 |V|^2 (whitened V)", "The oracle's bias")

    def evaluate(self, layer, draw):
        truth = self.truth

        def bias(layer: AttentionLayer) -> Array:
            whitened = truth.whiten(layer)
            balance = whitened_balance_bias(whitened, truth.outputs) if self.sample_balance else 0.0
            return (whitened_loss_bias(whitened, truth.target) + balance) / self.count

        extra, slope = jax.value_and_grad(bias)(layer)
        plain = truth.gradient(layer, Unregularised())
        return truth.loss(layer) + extra, jax.tree.map(jnp.add, plain, slope)


def _seed(seed: int | np.ndarray) -> np.ndarray:
    """As an array: another seed does not compile again."""
    return np.asarray(seed)


class FreshBatches(AbstractSource):
    """The same expectation by sampling: the mean over `batches` fresh samples of size `count`, the noise averaged out exactly."""

    truth: AttentionRegression
    count: int = eqx.field(static=True)
    batches: int = eqx.field(static=True)
    seed: np.ndarray = eqx.field(default=0, converter=_seed)

    def __check_init__(self):
        for name, least in {"count": 2, "batches": 1}.items():
            if getattr(self, name) < least:
                why = ": attention over one key is the identity" if name == "count" else ""
                raise ArgumentError(name, "FreshBatches", f"at least {least}{why}", getattr(self, name))

    @property
    def problem(self):
        return self.truth

    def draws(self, count):
        return jax.random.split(jax.random.key(int(self.seed)), count)

    def evaluate(self, layer, draw):
        truth = self.truth

        def one(key: Array) -> Sums:
            inputs = jax.random.normal(key, (self.count, truth.inputs)) @ truth.root
            return context_sums(inputs, inputs @ truth.planted.T, layer.value, layer.key_query)

        sums = jax.lax.map(one, jax.random.split(draw, self.batches))
        mean = jax.tree.map(lambda leaf: leaf.mean(axis=0), sums)
        return mean.loss + truth.outputs * truth.noise, AttentionLayer(mean.value, mean.key_query)


class FullSample(AbstractSource):
    """All samples are queries and keys."""

    rows = "all"

    sample: AttentionSample
    include_self: bool = eqx.field(static=True)
    form: str = eqx.field(static=True)

    def __init__(self, sample: AttentionSample, *, include_self: bool = True, form: str = "auto"):
        if form not in FORMS:
            raise ArgumentError("form", "FullSample", f"one of {', '.join(FORMS)}", repr(form))
        self.sample, self.include_self, self.form = sample, include_self, form

    @property
    def problem(self):
        return self.sample.estimated

    @property
    def context(self):
        return self.sample.size

    def evaluate(self, layer, draw):
        data = self.sample
        sums = context_sums(
            data.inputs, data.targets, layer.value, layer.key_query, include_self=self.include_self, form=self.form
        )
        return sums.loss, AttentionLayer(sums.value, sums.key_query)


class Minibatch(AbstractSource):
    """`size` queries per step, drawn without replacement; keys are the minibatch itself ("batch") or the whole sample ("full")."""

    rows = "batch"

    sample: AttentionSample
    size: int = eqx.field(static=True)
    keys: str = eqx.field(static=True)
    seed: np.ndarray
    include_self: bool = eqx.field(static=True)

    def __init__(
        self,
        sample: AttentionSample,
        size: int | float,
        *,
        keys: str = "batch",
        seed: int = 7,
        include_self: bool = True,
    ):
        if keys not in KEYS:
            raise ArgumentError("keys", "Minibatch", f"one of {', '.join(KEYS)}", repr(keys))
        check_counts("Minibatch", size=size)
        if not 2 <= size <= sample.size:
            fix = "attention over a single key is constant, so V would never move" if size < 2 else ""
            raise ArgumentError("size", "Minibatch", f"between 2 and n = {sample.size}", size, fix)
        self.sample, self.size, self.keys, self.seed = sample, int(size), keys, np.asarray(seed)
        self.include_self = include_self

    @property
    def problem(self):
        return self.sample.estimated

    @property
    def context(self):
        return self.size if self.keys == "batch" else self.sample.size

    def draws(self, count):
        rng = np.random.default_rng(int(self.seed))
        rows = [rng.choice(self.sample.size, self.size, replace=False) for _ in range(count)]
        return jnp.asarray(np.array(rows, np.int32).reshape(count, self.size))

    def evaluate(self, layer, draw):
        inputs, targets, queries = self.sample.inputs, self.sample.targets, draw
        if self.keys == "batch":
            inputs, targets, queries = inputs[draw], targets[draw], None
        sums = context_sums(
            inputs, targets, layer.value, layer.key_query, queries=queries, include_self=self.include_self
        )
        return sums.loss, AttentionLayer(sums.value, sums.key_query)
