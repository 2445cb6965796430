"""Figures as files: an SVG and a CSV next to the study, and the numbers that a page draws when a reader opens it.

Numbers as lengths on a page: what was measured next to what decides, slack of hypotheses, and certificates.
"""

import csv
import io
import json
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..errors import DataFileError
from ..files import write_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh

_CROWD = 300  # points that would hide what is drawn between them
_STILL = 1e-3  # of its whole rise between two points: a curve that moves less stands still
# Told apart by readers of every kind of colour vision; the pages use the same.
_COLOURS = ["#0072b2", "#d55e00", "#00845f", "#b04f86", "#a87600", "#3b8fc0", "#5a5f66"]
_SHOWN = ("title", "x_label", "y_label", "x_scale", "y_scale", "window")
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
    brief = lambda values: [None if x is None or not np.isfinite(x) else float(f"{x:.{_DIGITS}g}") for x in values]
    lines = []
    for line in figure["lines"]:
        own = {name: brief(line[name]) for name in ("x", "y", "error", "values") if line.get(name) is not None}
        lines.append({"label": line["label"], "style": line["style"], **own})
    return {**{name: figure[name] for name in _SHOWN}, "lines": lines}


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
            canvas.colorbar(_cells(axes, line), ax=axes, label=line["label"])
            continue
        dashed, points = line["style"] == "prediction", line["style"] == "points"
        colour = "#111111" if dashed and alone else _COLOURS[index % len(_COLOURS)]
        if error is not None and points:
            axes.errorbar(x, y, error, fmt="none", ecolor=colour, capsize=2.0)
        elif error is not None:
            axes.fill_between(x, y - error, y + error, color=colour, alpha=0.18, linewidth=0)
        marks = {"marker": "o", "markersize": 2.0 if len(x) > _CROWD else None} if points else {}
        style = {"linestyle": "" if points else "--" if dashed else "-", "linewidth": 1.1 if dashed else 1.6}
        axes.plot(x, y, label=line["label"], color=colour, **style, **marks)
    axes.set(title=figure["title"], xlabel=figure["x_label"], ylabel=figure["y_label"])
    axes.set(xscale=figure["x_scale"], yscale=figure["y_scale"])
    axes.set_xlim(_window(figure, shown))
    axes.grid(True, which="major", alpha=0.25)
    if any(line["style"] != "map" for line in figure["lines"]):
        full = any(line["style"] == "map" or len(line["x"]) > _CROWD for line in figure["lines"])
        axes.legend(fontsize="small", frameon=full)
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


def _cells(axes: "Axes", line: dict) -> "QuadMesh":
    """A map as one picture inside the drawing: thousands of cells as shapes would make the page slow."""
    x, y, values = (_numbers(line[key]) for key in ("x", "y", "values"))
    columns, rows = np.unique(x), np.unique(y)
    grid = np.full((len(rows), len(columns)), np.nan)
    grid[np.searchsorted(rows, y), np.searchsorted(columns, x)] = values
    return axes.pcolormesh(columns, rows, np.ma.masked_invalid(grid), shading="nearest", rasterized=True)


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
    return x[keep], y[keep], None if error is None else np.array(error, float)[keep]


def write_csv(figure: dict, path: Path) -> None:
    """The numbers behind a figure, one row per point."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    coloured = any(line.get("values") is not None for line in figure["lines"])
    writer.writerow(["line", figure["x_label"], figure["y_label"], *(["value"] if coloured else [])])
    for line in figure["lines"]:
        columns = [line["x"], line["y"]]
        if coloured:
            columns.append(line.get("values") or [""] * len(line["x"]))
        writer.writerows((line["label"], *row) for row in zip(*columns, strict=True))
    write_bytes(path, buffer.getvalue().encode())


_MOST = 12.0  # digits of a certificate that a page counts: a summary prints no more


class Gauge(NamedTuple):
    """One inequality of a claim: its text, both numbers, where the measured one lies if the limit is in the middle (0 to 100), and the side on
    which it must lie."""

    text: str
    predicted: float | None
    measured: float | None
    place: float | None
    side: str = ""


def gauges(claim: dict) -> list[Gauge]:
    """The inequalities of a claim, one by one.

    >>> gauges({"inequality": "gap = 0.5 <= 1", "predicted": 1.0, "measured": 0.5})
    [Gauge(text='gap = 0.5 <= 1', predicted=1.0, measured=0.5, place=25.0, side='left')]

    A limit below 0 keeps its sides, what is close lies by its error, and an interval has two ends and no bar:

    >>> parts = ("rate = -2 <= -1", "time: |1.1 / 1 - 1| = 0.1 <= 0.2", "slope: 1 in [0.9, 1.2]")
    >>> claim = {"inequality": "; ".join(parts), "predicted": [-1.0, 1.0, 1.0], "measured": [-2.0, 1.1, 1.05]}
    >>> [(one.place, one.side) for one in gauges(claim)]
    [(0.0, 'left'), (25.0, 'left'), (None, 'left')]
    """
    listed = lambda value: value if type(value) is list else [value]
    predicted, measured = listed(claim.get("predicted")), listed(claim.get("measured"))
    texts = claim["inequality"].split("; ")
    if not len(texts) == len(predicted) == len(measured):
        return [Gauge(claim["inequality"], None, None, None)]
    side = lambda text: "right" if re.search(r"(?:>=|<) \S+$", text) else "left"  # what fails is told as < or >
    rows = zip(texts, predicted, measured, strict=True)
    return [Gauge(*row, _place(*row), side(row[0])) for row in rows]


def _place(text: str, predicted: float | None, measured: float | None) -> float | None:
    if not re.search(r"(?:[<>]=?) \S+$", text):  # an interval, or nothing that was decided
        return None
    if found := re.search(r" - 1\| = (\S+) (?:<=|>) (\S+)$", text):  # an error decides, by its tolerance
        measured, predicted = (float(part) for part in found.groups())
    if predicted is None or measured is None or not predicted or not math.isfinite(measured / predicted):
        return None
    return min(100.0, max(0.0, 50 + math.copysign(50.0, predicted) * (measured / predicted - 1)))


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
