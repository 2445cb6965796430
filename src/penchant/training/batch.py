"""Batches: which of the settings, step sizes and starts of a call vary, and how they line up."""

from collections.abc import Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..errors import ArgumentError
from ..settings.base import Setting
from ..settings.factored import Pair, check_moving


class Batch:
    """A call of `train` lined up for vectorisation: `size` is None for a single run."""

    def __init__(self, setting: Setting | Sequence[Setting], optimiser: Any, start: PyTree):
        self.optimiser = optimiser
        many_settings = not isinstance(setting, Setting)
        self.settings = list(setting) if many_settings else [setting]
        self.setting = _stack(self.settings) if many_settings else setting
        if start is None:
            starts = [one.start() for one in self.settings]
            start = jax.tree.map(lambda *leaves: jnp.stack(leaves), *starts) if many_settings else starts[0]
        self.start = jax.tree.map(_real, start)
        if isinstance(self.start, Pair):
            check_moving(self.start)
        many_starts = _is_batch(self.settings[0], self.start)
        lengths = [leaf.shape[0] for leaf in jax.tree.leaves(optimiser) if np.ndim(leaf) == 1]
        lengths += [len(self.settings)] * many_settings + [jax.tree.leaves(self.start)[0].shape[0]] * many_starts
        if len(set(lengths)) > 1:
            found = f"batches of {', '.join(str(length) for length in sorted(set(lengths)))}"
            raise ArgumentError("start", "train", "a batch as long as those of the settings and step sizes", found)
        self.size = lengths[0] if lengths else None
        self.many_starts = many_starts
        varying = jax.tree.map(lambda leaf: 0 if np.ndim(leaf) == 1 else None, optimiser)
        self.axes = (eqx.if_array(0) if many_settings else None, varying, 0 if many_starts else None)

    def members(self) -> Iterator[tuple[Setting, Any, PyTree]]:
        """The single runs of the batch, one after another."""
        for k in range(self.size or 1):
            setting = self.settings[k % len(self.settings)]
            optimiser = jax.tree.map(lambda leaf, k=k: leaf[k] if np.ndim(leaf) == 1 else leaf, self.optimiser)
            start = jax.tree.map(lambda leaf, k=k: leaf[k], self.start) if self.many_starts else self.start
            yield setting, optimiser, start


def _stack(settings: Sequence[Setting]) -> Setting:
    """Settings of one structure and shape as one setting with a leading axis on every array."""
    if not settings:
        raise ArgumentError("setting", "train", "a setting or a non-empty list of settings", "an empty list")
    kinds = {str((jax.tree.structure(one), [np.shape(leaf) for leaf in jax.tree.leaves(one)])) for one in settings}
    if len(kinds) > 1:
        raise ArgumentError("setting", "train", "settings of one shape", f"{len(kinds)} different shapes")
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *settings)


def _is_batch(setting: Setting, start: PyTree) -> bool:
    """Whether every array of the start has one axis more than a single start has."""
    single = setting.parametrisation.zeros(setting.data)
    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(start)]
    wanted = [np.shape(leaf) for leaf in jax.tree.leaves(single)]
    if shapes == wanted:
        return False
    if len(shapes) == len(wanted) and all(shape[1:] == one for shape, one in zip(shapes, wanted, strict=True)):
        return True
    raise ArgumentError("start", "train", f"of shape {wanted}, or a batch of such", f"shape {shapes}")


def _real(leaf: Any) -> Any:
    """An array of a start in float64, if it is real and finite."""
    found = np.asarray(leaf)
    if found.dtype.kind not in "biuf":
        raise ArgumentError("start", "train", "made of real arrays", repr(leaf))
    bad = found[~np.isfinite(found)]
    if bad.size:
        raise ArgumentError("start", "train", "finite", f"{bad[0]} ({bad.size} such entries)")
    return jnp.asarray(found, float)
