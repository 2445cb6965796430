"""A run as plain arrays and a JSON header with everything needed to repeat it.

Runs that go on: what an optimiser carries from step to step outlives the run that gathered it.
"""

import hashlib
import os
import platform
from abc import abstractmethod
from functools import cache, partial
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from ..errors import ArgumentError, DataFileError
from ..files import mark, read_npz, write_npz
from ..logspace import check_float64
from ..optimisers.base import Optimiser
from ..problem import read
from ..settings.base import Setting
from .status import Status

FORMAT = mark("trajectory")
_SHORT = 16  # numbers; longer arrays are data, and the digest of the data covers them
_SERIES = ("steps", "log_time", "log_excess", "log_slope", "norm", "margins", "weights", "dual")


class Memory(eqx.Module):
    """What an optimiser carries from step to step, as a run has left it, and the number of steps it has taken."""

    kept: PyTree
    steps: Int[Array, ""]


class Readable:
    """A run is shown by `print`, and in notebooks, as the command line shows it."""

    steps: np.ndarray
    status: Status

    @abstractmethod
    def lines(self) -> tuple[str, str]:
        """How a run ended and where, as `penchant train` prints it."""

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.steps[-1]} steps, {len(self.steps)} records: {self.status.name}>"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


class Trajectory(Readable, eqx.Module):
    """R records of one run.

    `steps` taken, `log_time` (log of the sum of multipliers of the loss gradient; physical time for the flow), `log_excess` =
    log(L - L*), `log_slope` = log|grad log(L - L*)|, `norm` of the parameters, `margins`, instantaneous `weights` and
    accumulated `dual` multipliers (R x N), `params` (a tree with leading axis R). `account` holds what is known besides at each record, by
    name: what the optimiser keeps of its own steps (step sizes, promises kept), the blocks of joint training (`run.norm_W` is
    `run.account["norm_W"]`), or what `certified` found. `memory` is what `train(..., start=run.at(), memory=run.memory)` goes on with; a flow has none.
    """

    setting: Setting
    steps: np.ndarray
    log_time: np.ndarray
    log_excess: np.ndarray
    log_slope: np.ndarray
    norm: np.ndarray
    margins: np.ndarray
    weights: np.ndarray
    dual: np.ndarray
    params: PyTree
    status: Status = eqx.field(static=True)
    header: dict = eqx.field(static=True)
    account: dict[str, np.ndarray] | None = None
    memory: Memory | None = None

    @property
    def parts(self) -> dict[str, PyTree]:
        """What the run has in common with every run of its setting."""
        return self.setting.parts

    def __len__(self) -> int:
        return len(self.steps)

    def __getattr__(self, name: str) -> np.ndarray:
        """A series of the account."""
        known = vars(self).get("account") or {}
        if name not in known:
            raise AttributeError(f"a run on {type(self.setting.data).__name__} has no series '{name}'")
        return known[name]

    @property
    def data(self) -> Any:
        return self.setting.data

    def named(self, record: int = -1) -> dict[str, np.ndarray]:
        """The parameters at a record by their names, as they are saved."""
        return {
            name: np.asarray(part)
            for name, part in self.setting.parametrisation.named(self.at(record), self.data).items()
        }

    def at(self, record: int = -1) -> PyTree:
        """Parameters at a record (the last one by default)."""
        check_float64()
        return jax.tree.map(lambda leaf: jax.device_put(leaf[record]), self.params)

    def weight(self, record: int = -1) -> np.ndarray:
        """The effective weight at a record."""
        return np.asarray(self.setting.weight(self.at(record)))

    @property
    def ending(self) -> str:
        """Why the run ended, in the words of its data."""
        own = self.status is Status.out_of_steps and self.header.get("steps", 0) is None
        budget = " They are those that a flow allows itself: `steps=` asks for more." * own
        return (self.status.message_on_regression if self.setting.data.attained else self.status.message) + budget

    def smallest_margin(self) -> np.ndarray:
        """The smallest margin at every record, over the margins the reference program constrains."""
        grow = self.setting.data.constrained()
        return self.margins[:, grow].min(axis=1) if grow.any() else np.full(len(self.margins), np.nan)

    def lines(self) -> tuple[str, str]:
        reached = self.data.reached(self.margins[-1])
        name = self.setting.name_of_loss(bool(self.smallest_margin()[-1] > 0))
        sizes = f"{name} {self.log_excess[-1]:.8g}, log time {self.log_time[-1]:.8g}"
        return (
            f"status     {self.status.name}: {self.ending}",
            f"run        {self.steps[-1]} steps, {sizes}, {reached}, norm {self.norm[-1]:.6g}",
        )

    def save(self, path: str | os.PathLike, extra: dict[str, np.ndarray] | None = None) -> Path:
        """Write all series, the final parameters under their names, their history as `history_NAME`, and `extra` arrays."""
        arrays: dict[str, np.ndarray] = {name: getattr(self, name) for name in _SERIES}
        arrays |= self.named()
        if len(self) * sum(np.size(leaf) for leaf in self.named().values()) <= 20_000_000:
            history = [self.named(k) for k in range(len(self))]
            arrays |= {f"history_{name}": np.stack([row[name] for row in history]) for name in history[0]}
        arrays |= {f"account_{name}": series for name, series in (self.account or {}).items()}
        header = {"format": FORMAT, **self.header, "status": self.status.name}
        if self.memory is not None:
            header["taken"] = int(self.memory.steps)
            arrays |= {f"memory_{k}": leaf for k, leaf in enumerate(jax.tree.leaves(self.memory.kept))}
        return write_npz(path, header, arrays | (extra or {}))


@cache
def _software() -> dict[str, str]:
    """Versions, looked up once: the look-up costs more than a thousand steps."""
    return {"python": platform.python_version(), **{name: version(name) for name in ("penchant", "jax", "numpy")}}


def describe(setting: Setting, optimiser: object) -> dict:
    """The part of a header that says what was run and with which software."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(setting.data)]
    digest = hashlib.sha256(b"".join(np.ascontiguousarray(leaf).tobytes() for leaf in leaves)).hexdigest()
    return {
        "data": {
            "kind": type(setting.data).__name__,
            "shapes": [list(leaf.shape) for leaf in leaves],
            "sha256": digest,
        },
        "parametrisation": settings_of(setting.parametrisation, _SHORT),
        "loss": settings_of(setting.loss, _SHORT),
        "reduction": setting.reduction,
        "optimiser": settings_of(optimiser),
        "software": dict(_software()),
    }


def settings_of(value: object, longest: int | float = np.inf) -> Any:
    """Constructor arguments of nested modules as JSON values: arrays of more than `longest` numbers by their shape, functions by their name."""
    inside = partial(settings_of, longest=longest)
    match value:
        case eqx.Module():
            return {"kind": type(value).__name__, **{name: inside(part) for name, part in vars(value).items()}}
        case list() | tuple():
            return [inside(part) for part in value]
        case dict():
            return {name: inside(part) for name, part in value.items()}
        case jax.Array() | np.ndarray() | np.generic():
            return np.asarray(value).tolist() if np.size(value) <= longest else {"shape": list(np.shape(value))}
    return getattr(value, "__name__", type(value).__name__) if callable(value) else value


_SAME = ("data", "loss", "reduction", "optimiser")  # entries of a header in which a run and its continuation agree


def carried(setting: Setting, optimiser: Optimiser, start: PyTree) -> PyTree:
    """The shapes of what the optimiser carries from step to step."""

    def first() -> PyTree:
        reading = read(setting, start)
        return optimiser.init((reading.slope, reading.weights))

    return eqx.filter_eval_shape(first)


def _shapes(tree: PyTree) -> list[tuple[int, ...]]:
    return [np.shape(leaf) for leaf in jax.tree.leaves(tree)]


def check_memory(memory: Memory, setting: Setting, optimiser: Optimiser, start: PyTree) -> None:
    """Refuse what another optimiser carried, or this one on other data."""
    wanted = carried(setting, optimiser, start)
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
    wanted = carried(setting, optimiser, start)
    found = [arrays[name] for k in range(len(_shapes(wanted))) if (name := f"memory_{k}") in arrays]
    if _shapes(found) != _shapes(wanted):
        return None
    kept = jax.tree.unflatten(jax.tree.structure(wanted), [jnp.asarray(leaf) for leaf in found])
    return Memory(kept, jnp.asarray(int(header["taken"])))
