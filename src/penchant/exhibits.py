"""Studies: one readable page per figure of the papers: setting -> theorem -> train -> judge -> save."""

import math
from collections.abc import Iterable, Sequence
from functools import singledispatch
from pathlib import Path
from typing import Protocol, SupportsFloat, TypeVar, runtime_checkable

import equinox as eqx
import jax
import numpy as np

from .training.trajectory import settings_of
from .verdict import Outcome, Verdict

T = TypeVar("T")


class Line(eqx.Module):
    """One curve of a figure. `style` is "line", "points" or "prediction" (dashed); `error` is drawn as a bar to both sides, of points also
    with two rows, how far down and up.

    A "map" colours the cells of a grid, whose points are x and y, by `values`; its label is that of the colours. Cells that are not finite stay empty.
    """

    label: str
    x: np.ndarray
    y: np.ndarray
    style: str = "line"
    error: np.ndarray | None = None
    values: np.ndarray | None = None


class Figure(eqx.Module):
    """A plot as data: the report draws it, and the numbers are saved next to it."""

    name: str
    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    caption: str
    x_scale: str = "linear"
    y_scale: str = "linear"


class Shown(str):
    """A number as a table shows it; `value` is what was measured, and is saved with all its digits."""

    value: float

    def __new__(cls, value: SupportsFloat, form: str):
        cell = super().__new__(cls, format(float(value), form))
        cell.value = float(value)
        return cell


class Table(eqx.Module):
    """A table as data. Cells are words, integers, `Shown` numbers, or anything else with a text (a rate with its interval)."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple, ...]
    caption: str


def table(name: str, title: str, columns: dict[str, str], rows: Iterable[Sequence], caption: str) -> Table:
    """A table of plain values: every column says in which form it shows numbers; words stay as they are."""
    cell = lambda value, form: Shown(value, form) if form and not isinstance(value, str) else value
    shown = (tuple(cell(*pair) for pair in zip(row, columns.values(), strict=True)) for row in rows)
    return Table(name, title, tuple(columns), tuple(shown), caption)


def log_figure(name: str, title: str, x_label: str, y_label: str, lines: Iterable[Line], caption: str) -> Figure:
    """A figure with two logarithmic axes."""
    return Figure(name, title, x_label, y_label, tuple(lines), caption, "log", "log")


class Finding(eqx.Module):
    """A sentence, its verdict, and the source of the sentence."""

    statement: str
    verdict: Verdict
    citation: str = ""


@runtime_checkable
class Saved(Protocol):
    """A trajectory of any kind."""

    def save(self, path: Path) -> Path: ...


class Result(eqx.Module):
    """What a study found: `runs` are saved next to its page, `definitions` explains every plotted quantity."""

    findings: tuple[Finding, ...]
    figures: tuple[Figure, ...]
    tables: tuple[Table, ...] = ()
    runs: dict[str, Saved] = eqx.field(default_factory=dict)
    definitions: dict[str, str] = eqx.field(default_factory=dict)


DEFINITIONS = {
    "1 - corr": "half the squared distance between the unit vectors W/|W| and V/|V|; 0 means the same direction",
    "log excess": "natural logarithm of L - L*, the loss above its infimum",
    "norm": "l2 norm of the weight (Frobenius norm for a matrix)",
    "margin": "smallest margin; per unit of norm where it says normalised",
    "certified gap": "upper/lower - 1 of the bracket on the optimum, from a weight and multipliers: those of a run where there is one, else a solver's",
    "KL": "relative entropy to the start, the sum of theta log(theta/alpha^2) - theta + alpha^2: what the flow on squares minimises",
    "Q_alpha": "what the flow on w+^2 - w-^2 minimises from the start alpha; between the l1 norm (small alpha) and the l2 norm (large alpha)",
    "relative distance": "l2 distance to the reference, or to a rival, divided by the l2 norm of the reference",
    "least potential": "smallest value, among the weights that fit, of what the flow minimises: half the squared distance to the start, KL or Q_alpha",
    "step": "one update of the parameters; axes count them. A step size is what multiplies the gradient, a length that of a normalised step",
    "log time": "natural logarithm of physical time t (sum of the multipliers of the loss gradient)",
}


@singledispatch
def plain(value: object) -> object:
    """JSON value of anything a study produces; numbers that are not finite become null."""
    return settings_of(value)


plain.register(Outcome, lambda value: value.value)
plain.register(eqx.Module, lambda value: {name: plain(field) for name, field in vars(value).items()})
plain.register(dict, lambda value: {str(key): plain(field) for key, field in value.items()})
plain.register(float, lambda value: value if math.isfinite(value) else None)
for _kind in (list, tuple):
    plain.register(_kind, lambda value: [plain(item) for item in value])
for _kind in (jax.Array, np.ndarray, np.generic):
    plain.register(_kind, lambda value: plain(np.asarray(value).tolist()))

shown = singledispatch(lambda cell: plain(cell))  # a cell of a table, as a page shows it
shown.register(Shown, str)
shown.register(eqx.Module, str)
measured = singledispatch(lambda cell: plain(cell))  # the same, with all its digits
measured.register(Shown, lambda cell: cell.value)


def only(kind: type[T], parts: Iterable[object]) -> tuple[T, ...]:
    """Those of one kind, in their order."""
    return tuple(part for part in parts if isinstance(part, kind))
