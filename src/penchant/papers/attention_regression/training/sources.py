r"""Where the gradient of an attention layer comes from: the population, one sample, minibatches of it, or fresh ones.

A source evaluates the loss alone; the regulariser and the preconditioner use the covariance of `source.problem`: the truth for
the population and fresh samples, the estimate from all samples for the others.
"""

from abc import abstractmethod
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ....errors import ArgumentError
from ..setting.context_sums import Sums, context_sums
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


class Population(AbstractSource):
    """The exact population gradient."""

    truth: AttentionRegression

    @property
    def problem(self):
        return self.truth

    def evaluate(self, layer, draw):
        return self.truth.loss(layer), self.truth.gradient(layer, Unregularised())


def _seed(seed: int | np.ndarray) -> np.ndarray:
    """As an array: another seed does not compile again."""
    return np.asarray(seed)


class FreshBatches(AbstractSource):
    """What Theorem 2 assumes, by sampling: the mean over `batches` fresh samples of size `count`, the noise averaged out exactly."""

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

    @property
    def problem(self):
        return self.sample.estimated

    @property
    def context(self):
        return self.sample.size

    def evaluate(self, layer, draw):
        sums = context_sums(self.sample.inputs, self.sample.targets, layer.value, layer.key_query)
        return sums.loss, AttentionLayer(sums.value, sums.key_query)


class Minibatch(AbstractSource):
    """`size` queries per step, drawn without replacement; keys are the minibatch itself ("batch") or the whole sample ("full")."""

    rows = "batch"

    sample: AttentionSample
    size: int = eqx.field(static=True)
    keys: str = eqx.field(static=True)
    seed: np.ndarray

    def __init__(self, sample: AttentionSample, size: int | float, *, keys: str = "batch", seed: int = 7):
        if keys not in KEYS:
            raise ArgumentError("keys", "Minibatch", f"one of {', '.join(KEYS)}", repr(keys))
        check_counts("Minibatch", size=size)
        if not 2 <= size <= sample.size:
            fix = "attention over a single key is constant, so V would never move" if size < 2 else ""
            raise ArgumentError("size", "Minibatch", f"between 2 and n = {sample.size}", size, fix)
        self.sample, self.size, self.keys, self.seed = sample, int(size), keys, np.asarray(seed)

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
        sums = context_sums(inputs, targets, layer.value, layer.key_query, queries=queries)
        return sums.loss, AttentionLayer(sums.value, sums.key_query)
