"""Checks of user arrays, shared by the data classes: float64, finite, of the right shape, or an error that names them."""

from collections.abc import Callable
from numbers import Integral
from typing import TypeGuard

import numpy as np

from ..door import LISTED
from ..errors import ArgumentError, warn

_PADDING = "; `mask=` says which tokens only pad their sample"


def is_whole(value: object) -> TypeGuard[int]:
    """Whether this is an integer; True and False are none."""
    return isinstance(value, Integral) and value is not True and value is not False


def real_array(value: object, name: str, owner: str, shape: str, dimensions: int, limit: float = 1e100) -> np.ndarray:
    """`value` as a finite float64 array with the given number of dimensions and a largest entry between 1/limit and limit."""
    padding = _PADDING if (name, owner) == ("tokens", "TokenSelection") else ""
    if hidden := int(np.ma.count_masked(value)) if np.ma.isMaskedArray(value) else 0:
        fix = "leave those samples out, or give all of them the same number of entries" + padding
        raise ArgumentError(name, owner, "without masked entries", f"{hidden} masked ones", fix)
    try:
        array = np.asarray(value)
    except ValueError as error:  # ragged nested lists
        fix = "give every sample the same number of entries" + padding
        raise ArgumentError(name, owner, f"an array of shape {shape}", f"ragged rows ({error})", fix) from None
    if array.dtype == object or array.dtype.kind not in "biuf":
        raise ArgumentError(name, owner, f"a real array of shape {shape}", f"dtype {array.dtype}")
    if array.ndim != dimensions or array.size == 0:
        raise ArgumentError(name, owner, f"a non-empty array of shape {shape}", f"shape {array.shape}")
    array = array.astype(np.float64)
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        where = tuple(int(i) for i in bad[0])
        fix = "drop those samples or fill the gaps before: `np.isfinite` finds them"
        raise ArgumentError(name, owner, "finite", f"{array[where]} at {where} ({len(bad)} such entries)", fix)
    sizes = np.abs(array).max(axis=1 if name == "inputs" else None, keepdims=True).ravel()
    bad = np.flatnonzero((sizes > limit) | ((sizes > 0) & (sizes < 1 / limit)))
    if len(bad):
        fix = "rescale it: products of its entries must neither over- nor underflow"
        found = f"a largest entry of {sizes[bad[0]]:.3g}" + f" in sample {bad[0]}" * (len(sizes) > 1)
        raise ArgumentError(name, owner, f"between {1 / limit:.0e} and {limit:.0e} in size", found, fix)
    return array


def one_or_more(value: object, name: str, owner: str, required: str, holds: Callable) -> np.ndarray:
    """A number, or a list of them, each of which `holds`, as float64; a text and True are none."""
    found = np.array(value, float) if LISTED.holds(value) else np.empty(0)
    if found.ndim > 1 or found.size == 0 or not np.all(holds(found)):
        raise ArgumentError(name, owner, f"{required}: a number, or a list of them", repr(value))
    return found


def warn_of_rounded(owner: str, **arrays: object) -> None:
    """Numbers that were rounded to less than float64 before they came here."""
    short = [name for name, array in arrays.items() if getattr(array, "dtype", None) in (np.float32, np.float16)]
    if short:
        warn(
            f"`{owner}` was given {', '.join(short)} in less than float64 and computes in float64: margins and score gaps are right "
            "only to the digits of the input (seven for float32), and near ties may be rounding."
        )


def symmetric_matrix(value: object, name: str, owner: str) -> np.ndarray:
    """`value` as a symmetric positive semidefinite matrix."""
    found = real_array(value, name, owner, "(d, d)", 2)
    size = np.abs(found).max()
    if found.shape[0] != found.shape[1] or np.abs(found - found.T).max() > 1e-12 * size:
        raise ArgumentError(name, owner, "a symmetric matrix", f"shape {found.shape}")
    smallest = np.linalg.eigvalsh(found)[0]
    if smallest < -1e-12 * size:
        raise ArgumentError(name, owner, "positive semidefinite", f"smallest eigenvalue {smallest:.3g}")
    return found


def sign_labels(value: object, owner: str, count: int) -> np.ndarray:
    """Labels in {-1, +1}, one per sample."""
    labels = real_array(value, "labels", owner, "(n,)", 1)
    if len(labels) != count:
        raise ArgumentError("labels", owner, f"one per sample ({count})", f"{len(labels)}")
    bad = np.flatnonzero(np.abs(labels) != 1)
    if len(bad):
        several = "number classes from 0: `np.unique(labels, return_inverse=True)[1]`"
        fix = "use `2 * labels - 1`" if set(np.unique(labels)) <= {0.0, 1.0} else several
        raise ArgumentError("labels", owner, "-1 or +1", f"{labels[bad[0]]:g} at index {bad[0]}", fix)
    return labels
