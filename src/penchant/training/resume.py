"""Runs that go on: what an optimiser carries from step to step outlives the run that gathered it."""

import os

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..errors import ArgumentError, DataFileError
from ..files import read_npz
from ..optimisers.base import Optimiser
from ..problem import read
from ..settings.base import Setting
from .trajectory import Memory, describe

_SAME = ("data", "loss", "reduction", "optimiser")  # entries of a header in which a run and its continuation agree


def _wanted(setting: Setting, optimiser: Optimiser, start: PyTree) -> PyTree:
    """The shapes of what the optimiser carries."""

    def first() -> PyTree:
        reading = read(setting, start)
        return optimiser.init((reading.slope, reading.weights))

    return eqx.filter_eval_shape(first)


def _shapes(tree: PyTree) -> list[tuple[int, ...]]:
    return [np.shape(leaf) for leaf in jax.tree.leaves(tree)]


def check_memory(memory: Memory, setting: Setting, optimiser: Optimiser, start: PyTree) -> None:
    """Refuse what another optimiser carried, or this one on other data."""
    wanted = _wanted(setting, optimiser, start)
    if jax.tree.structure(wanted) != jax.tree.structure(memory.kept) or _shapes(wanted) != _shapes(memory.kept):
        required = f"that of a run of this setting by this optimiser: arrays of shape {_shapes(wanted)}"
        raise ArgumentError("memory", "train", required, f"arrays of shape {_shapes(memory.kept)}")


def load_memory(path: str | os.PathLike, setting: Setting, optimiser: Optimiser, start: PyTree) -> Memory | None:
    """What a saved run ended with, if it was one on these data by this optimiser and the file has it."""
    try:
        header, arrays = read_npz(path)
    except DataFileError:  # an array 'header' of the user's own
        return None
    known = describe(setting, optimiser)
    if "taken" not in header or any(header.get(name) != known[name] for name in _SAME):
        return None
    wanted = _wanted(setting, optimiser, start)
    found = [arrays[name] for k in range(len(_shapes(wanted))) if (name := f"memory_{k}") in arrays]
    if _shapes(found) != _shapes(wanted):
        return None
    kept = jax.tree.unflatten(jax.tree.structure(wanted), [jnp.asarray(leaf) for leaf in found])
    return Memory(kept, jnp.asarray(int(header["taken"])))
