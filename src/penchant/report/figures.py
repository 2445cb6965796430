"""Figures as files: an SVG and a CSV next to the study, and the numbers that a page draws when a reader opens it.

Numbers as lengths on a page: what was measured next to what decides, slack of hypotheses, and certificates.
"""

import csv
import io
import json
import math
import re
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..errors import DataFileError
from ..files import write_bytes
from .formulas import spelt

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh

_CROWD = 300  # points that would hide what is drawn between them
_STILL = 1e-3  # of its whole rise between two points: a curve that moves less stands still
# Told apart by readers of every kind of colour vision; the pages use the same.
_COLOURS = ["#0072b2", "#d55e00", "#00845f", "#b04f86", "#a87600"]
_DASHES = ["-", ":", "-."]  # of curves beyond as many as there are colours
_SHOWN = ("x_scale", "y_scale", "window")
_NAMED = ("title", "x_label", "y_label")
_INDEX = re.compile(r"(?<![A-Za-z])([A-Za-zα-ω])_([^\W_]+)\b")
_POWER = re.compile(r"\^(-?[^\W_]+)\b")
_DIGITS = 7  # of a number that a page draws; the CSV has all


def write_figures(study: dict, folder: Path) -> None:
    """Write every figure of a study as SVG and CSV, and all of them as the script that its page loads; `empty` says which show nothing."""
    for figure in study["figures"]:
        try:
            figure["empty"] = is_empty(figure)
            figure["window"] = _window(figure, [visible(line, figure) for line in figure["lines"]])
            if not figure["empty"]:
                draw(figure, folder / f"{figure['name']}.svg")
            write_csv(figure, folder / f"{figure['name']}.csv")
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:  # it is not ours
            raise DataFileError(
                f"Figure '{figure['name']}' in '{folder / 'study.json'}' cannot be drawn ({type(error).__name__}: {error}).\n"
                "  Usual cause: the file was edited by hand.\n  Fix: run the study again with the same --out."
            ) from None
    if study["figures"]:
        shown = {figure["name"]: _short(figure) for figure in study["figures"] if not figure["empty"]}
        text = json.dumps([study["name"], shown], allow_nan=False, default=float)
        write_bytes(folder / "figures.js", f"receive(...{text});\n".encode())


def is_empty(figure: dict) -> bool:
    """Whether no point of a figure can be drawn on its axes."""
    return not any(len(visible(line, figure)[0]) for line in figure["lines"])


def _short(figure: dict) -> dict:
    """What a page needs of a figure."""
    one = lambda x: None if x is None or not np.isfinite(x) else float(f"{x:.{_DIGITS}g}")
    brief = lambda values: [brief(x) if np.ndim(x) else one(x) for x in values]
    lines = []
    for line in figure["lines"]:
        own = {name: brief(line[name]) for name in ("x", "y", "error", "values") if line.get(name) is not None}
        lines.append({"label": _printed(line["label"]), "style": line["style"], **own})
    named = {name: _printed(figure[name]) for name in _NAMED}
    return {**named, **{name: figure[name] for name in _SHOWN}, "lines": lines}


def _printed(label: str) -> str:
    """A label with its signs; a minus it begins with is one too."""
    return spelt(f" {label}")[1:]


def _set(label: str) -> str:
    """A label as Matplotlib sets it, with indices below the line and powers above it."""
    return _POWER.sub(r"$^{\1}$", _INDEX.sub(r"$\1_{\\mathrm{\2}}$", _printed(label).replace("$", r"\$")))


def draw(figure: dict, path: Path) -> Path:
    """Draw a figure as an SVG file."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    canvas = Figure(figsize=(7.2, 4.5), layout="constrained")
    FigureCanvasSVG(canvas)
    axes = canvas.subplots()
    alone = sum(line["style"] == "prediction" for line in figure["lines"]) == 1
    shown = [visible(line, figure) for line in figure["lines"]]
    for index, (line, (x, y, error)) in enumerate(zip(figure["lines"], shown, strict=True)):
        if line["style"] == "map":
            canvas.colorbar(_cells(axes, line, figure), ax=axes, label=_set(line["label"]))
            continue
        dashed, points = line["style"] == "prediction", line["style"] == "points"
        colour = "#111111" if dashed and alone else _COLOURS[index % len(_COLOURS)]
        if error is not None and points:
            axes.errorbar(x, y, error, fmt="none", ecolor=colour, capsize=2.0)
        elif error is not None:
            axes.fill_between(x, y - error, y + error, color=colour, alpha=0.18, linewidth=0)
        marks = {"marker": "o", "markersize": 2.0 if len(x) > _CROWD else None} if points else {}
        solid = _DASHES[index // len(_COLOURS) % len(_DASHES)]
        style = {"linestyle": "" if points else "--" if dashed else solid, "linewidth": 1.1 if dashed else 1.6}
        axes.plot(x, y, label=_set(line["label"]), color=colour, **style, **marks)
    title, x_label, y_label = (_set(figure[name]) for name in _NAMED)
    axes.set_title(title, loc="left", weight="bold", pad=12)
    axes.set(xlabel=x_label, ylabel=y_label)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set(xscale=figure["x_scale"], yscale=figure["y_scale"])
    axes.set_xlim(_window(figure, shown))
    axes.grid(True, which="major", alpha=0.25)
    if any(line["style"] != "map" for line in figure["lines"]):
        axes.legend(fontsize="small", framealpha=0.8, edgecolor="none")
    buffer = io.StringIO()
    canvas.savefig(buffer, format="svg", metadata={"Date": None})
    return write_bytes(path, buffer.getvalue().encode())


def _window(figure: dict, shown: list) -> tuple[float, float] | None:
    """Where the curves move: ends of the axis on which none does are not shown if they are more than half of it; the data keep them."""
    if {line["style"] for line in figure["lines"]} - {"line", "prediction"}:
        return None
    scaled = lambda values, axis: np.log(values) if figure[f"{axis}_scale"] == "log" else values
    curves = [(x, y) for line, (x, y, _) in zip(figure["lines"], shown, strict=True) if line["style"] == "line"]
    moving = []
    for x, y in curves:
        rise = np.abs(np.diff(scaled(y, "y")))
        moves = np.flatnonzero(rise > _STILL * np.ptp(scaled(y, "y"))) if len(x) else []
        moving += [*x[moves], *x[np.asarray(moves, int) + 1]]
    if not moving:
        return None
    whole, ends = np.concatenate([x for x, _ in curves]), np.array([min(moving), max(moving)])
    return tuple(ends) if np.ptp(scaled(ends, "x")) < np.ptp(scaled(whole, "x")) / 2 else None


def _cells(axes: "Axes", line: dict, figure: dict) -> "QuadMesh":
    """A map as one picture inside the drawing: thousands of cells as shapes would make the page slow."""
    x, y, values = (_numbers(line[key]) for key in ("x", "y", "values"))
    columns, rows = np.unique(x), np.unique(y)
    grid = np.full((len(rows), len(columns)), np.nan)
    grid[np.searchsorted(rows, y), np.searchsorted(columns, x)] = values
    sides = _edges(columns, figure["x_scale"]), _edges(rows, figure["y_scale"])
    return axes.pcolormesh(*sides, np.ma.masked_invalid(grid), rasterized=True)


def _edges(points: np.ndarray, scale: str) -> np.ndarray:
    """The edges of the cells around the points of a grid: midway between neighbours, as the axis shows them."""
    at = np.log(points) if scale == "log" else points
    middle = (at[1:] + at[:-1]) / 2
    ends = [2 * at[0] - middle[0], *middle, 2 * at[-1] - middle[-1]] if len(middle) else [at[0] - 0.5, at[0] + 0.5]
    return np.exp(ends) if scale == "log" else np.array(ends)


def _numbers(values: list) -> np.ndarray:
    """Numbers as they were saved; those that are missing are not finite."""
    return np.array([np.nan if value is None else value for value in values], float)


def visible(line: dict, figure: dict) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """The points a plot can show: finite, and positive on a logarithmic axis; with their errors where there are any."""
    x, y = _numbers(line["x"]), _numbers(line["y"])
    keep = np.isfinite(x) & np.isfinite(y)
    if figure["x_scale"] == "log":
        keep &= x > 0
    if figure["y_scale"] == "log":
        keep &= y > 0
    error = line.get("error")
    return x[keep], y[keep], None if error is None else np.array(error, float)[..., keep]


def write_csv(figure: dict, path: Path) -> None:
    """The numbers behind a figure, one row per point."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    has = lambda key: any(line.get(key) is not None for line in figure["lines"])
    more = {key: names for key, names in {"values": ["value"], "error": ["down", "up"]}.items() if has(key)}
    writer.writerow(["line", figure["x_label"], figure["y_label"], *chain(*more.values())])
    for line in figure["lines"]:
        columns = [line["x"], line["y"]]
        for key, names in more.items():
            columns += list(np.broadcast_to(np.array(line.get(key), object), (len(names), len(line["x"]))))
        writer.writerows((line["label"], *row) for row in zip(*columns, strict=True))
    write_bytes(path, buffer.getvalue().encode())


_MOST = 12.0  # digits of a certificate that a page counts: a summary prints no more


_NUMBER = r"(-?\d+(?:\.\d+)?(?:e[-+]?\d+)?)"
_DECIDED = re.compile(rf",? = {_NUMBER} ([<>]=?) {_NUMBER}$")


class Gauge(NamedTuple):
    """One inequality of a claim: its text, where a colon keeps the numbers out of a formula before them, both as printed, where the measured one lies if the limit is in the middle (0 to 100), and the
    side on which it must lie."""

    text: str
    measured: str = ""
    limit: str = ""
    place: float | None = None
    side: str = ""


def gauges(inequality: str) -> list[Gauge]:
    """The inequalities of a claim, one by one. A limit below 0 keeps its sides; an interval, or a limit of 0, has no bar.

    >>> [(one.place, one.side) for one in gauges("gap = 0.5 <= 1; rate = -2 <= -1; share = 0.6 < 0.9; slope: 1 in [0.9, 1.2]")]
    [(25.0, 'left'), (0.0, 'left'), (33.33..., 'right'), (None, '')]
    >>> [one.text for one in gauges("excess at margin 1e4 = 4.3 > 0.001; rise, seeds 0-9, = -2 <= 0")]
    ['excess at margin 1e4: 4.3 > 0.001', 'rise, seeds 0-9: -2 <= 0']
    """
    return [_gauge(text, _DECIDED.search(text)) for text in inequality.split("; ")]


def _gauge(text: str, decided: re.Match | None) -> Gauge:
    text = _DECIDED.sub(r": \1 \2 \3", text)
    if decided is None or not (limit := float(decided[3])):
        return Gauge(text)
    place = 50 + math.copysign(50.0, limit) * (float(decided[1]) / limit - 1)
    side = "right" if decided[2] in (">=", "<") else "left"  # what fails is told as < or >
    return Gauge(text, decided[1], decided[3], min(100.0, max(0.0, place)), side)


def slack_share(text: str) -> float | None:
    """The slack of a hypothesis as a share of a bar, from -1 to 1, so that any size can be seen: x / (1 + |x|); None where it is no number."""
    try:
        slack = float(text)
    except ValueError:
        return None
    return math.copysign(1.0, slack) if math.isinf(slack) else None if math.isnan(slack) else slack / (1 + abs(slack))


class Certified(NamedTuple):
    """Bounds of a certificate, and how many digits of the number between them they prove: at most twelve are counted."""

    lower: float
    upper: float
    digits: float


def certificate(text: str) -> Certified | None:
    """Bounds as a summary tells them: where both are printed alike, they prove the digits that are printed.

    >>> [round(certificate(text).digits, 6) for text in ("[0.5, 0.5005]", "[0.57259833, 0.57259833]")]
    [3.0, 8.0]
    """
    found = re.fullmatch(r"\[(\S+), (\S+)\]", text)
    try:
        lower, upper = (float(part) for part in found.groups()) if found else (math.nan, math.nan)
    except ValueError:
        return None
    if not 0 < lower <= upper < math.inf:
        return None
    gap = upper / lower - 1
    printed = max(len(re.sub(r"e.*|\D", "", part).lstrip("0")) for part in text.split(","))
    return Certified(lower, upper, min(_MOST, float(printed), max(0.0, -math.log10(gap)) if gap > 0 else _MOST))
