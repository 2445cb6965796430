"""Batches of joint training: which of the data sets, starts and numbers of the rule vary, and how they line up."""

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import ArgumentError
from ..optimisers.base import Accelerated
from ..optimisers.joint import AbstractJointRule
from ..optimisers.memory import HeavyBall
from ..optimisers.step_rules import Constant, Normalised, Polyak
from ..settings.joint import JointStart, JointTokens, TokenGram


class JointBatch:
    """A call of `train_joint` lined up for vectorisation: data sets, starts and step sizes, as many of each or one for all."""

    def __init__(self, data: Any, rule: AbstractJointRule, start: Any):
        self.rule = rule
        self.sets: list[JointTokens] = list(data) if isinstance(data, Sequence) else [data]
        other = [type(one).__name__ for one in self.sets if not isinstance(one, JointTokens)]
        if other:
            fix = "JointTokens(tokens, labels, optimal), with the index of the best token of each sample"
            raise ArgumentError("data", "train_joint", "`JointTokens`, or a list of them", f"`{other[0]}`", fix)
        shapes = [one.tokens.shape for one in self.sets]
        if len(set(shapes)) != 1:
            raise ArgumentError("data", "train_joint", "data sets of one shape", shapes)
        self.starts = list(start) if isinstance(start, Sequence) else [start]
        given = [("data sets", data)] * isinstance(data, Sequence) + [("starts", start)] * isinstance(start, Sequence)
        given += [("numbers in the rule", leaf) for leaf in jax.tree.leaves(rule) if np.ndim(leaf) == 1]
        sizes = {len(entries) for _, entries in given}
        if len(sizes) > 1:
            found = " and ".join(f"{len(entries)} {name}" for name, entries in given)
            raise ArgumentError("data, start and rule", "train_joint", "single, or lists of one length", found)
        self.many, self.size = bool(given), max(sizes, default=1)
        varying = jax.tree.map(lambda leaf: 0 if np.ndim(leaf) == 1 else None, rule)
        self.axes = (0 if self.many and max(len(self.sets), len(self.starts)) == self.size else None, varying)

    def grams(self) -> TokenGram:
        """One for all members, or stacked where data or starts vary."""
        count = max(len(self.sets), len(self.starts)) if self.axes[0] == 0 else 1
        each = [TokenGram(_pick(self.sets, k), _pick(self.starts, k)) for k in range(count)]
        return each[0] if self.axes[0] is None else jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)

    def members(self) -> Iterator[tuple[JointTokens, JointStart | None, AbstractJointRule]]:
        """Data, start and rule of each run."""
        for k in range(self.size):
            rule = jax.tree.map(lambda leaf, k=k: leaf[k] if np.ndim(leaf) == 1 else leaf, self.rule)
            yield _pick(self.sets, k), _pick(self.starts, k), rule


def _pick(items: list, member: int) -> Any:
    return items[member if len(items) > 1 else 0]


_COUNTERPARTS = {
    Constant: "JointDescent(step)",
    Normalised: "BlockNormalised(length), or JointNormalised(length)",
    Polyak: "JointPolyak(c, cap)",
}


def counterpart(optimiser: Any) -> str:
    """The joint rule that goes with an optimiser of one weight."""
    if isinstance(optimiser, Accelerated):
        return "JointAccelerated(step)"
    found = _COUNTERPARTS.get(type(getattr(optimiser, "rule", None)), "BlockNormalised(length)")
    heavy = isinstance(getattr(optimiser, "memory", None), HeavyBall)
    return f"JointHeavyBall({found.partition(' or')[0].rstrip(',')})" if heavy else found
