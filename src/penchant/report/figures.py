"""Figures from saved series: SVG for the page, CSV for everyone else."""

import csv
import io
from pathlib import Path

import numpy as np

from ..files import write_bytes

_COLOURS = (
    "#1b5e8c",
    "#c2452d",
    "#3c8d40",
    "#8a5aa8",
    "#b8860b",
    "#4d4d4d",
    "#d1679f",
    "#2aa6a1",
    "#7a5230",
    "#9aa83a",
)


def draw(figure: dict, path: Path) -> str:
    """Draw a figure; writes the SVG file and returns its markup for the page."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    canvas = Figure(figsize=(6.4, 4.0), layout="constrained")
    FigureCanvasSVG(canvas)
    axes = canvas.subplots()
    alone = sum(line["style"] == "prediction" for line in figure["lines"]) == 1
    visible = [_visible(line, figure) for line in figure["lines"]]
    empty = not any(len(x) for x, _, _ in visible)
    for index, (line, (x, y, error)) in enumerate(zip(figure["lines"], visible, strict=True)):
        dashed, points = line["style"] == "prediction", line["style"] == "points"
        colour = "#111111" if dashed and alone else _COLOURS[index % len(_COLOURS)]
        if error is not None:
            axes.errorbar(x, y, error, fmt="none", ecolor=colour, capsize=2.0)
        axes.plot(
            x,
            y,
            label=line["label"],
            color=colour,
            linestyle="" if points else "--" if dashed else "-",
            marker="o" if points else None,
            linewidth=1.1 if dashed else 1.6,
        )
    axes.set(
        xlabel=figure["x_label"],
        ylabel=figure["y_label"],
        xscale="linear" if empty else figure["x_scale"],  # a logarithmic axis without a positive number has no ticks
        yscale="linear" if empty else figure["y_scale"],
        title=figure["title"],
    )
    axes.grid(True, which="major", alpha=0.25)
    if empty:
        axes.text(0.5, 0.5, _nothing(figure), ha="center", va="center", transform=axes.transAxes)
    else:
        axes.legend(fontsize="small", frameon=False)
    buffer = io.StringIO()
    canvas.savefig(buffer, format="svg", metadata={"Date": None})
    write_bytes(path, buffer.getvalue().encode())
    return buffer.getvalue()[buffer.getvalue().index("<svg") :]


def _nothing(figure: dict) -> str:
    positive = "" if (figure["x_scale"], figure["y_scale"]) == ("linear", "linear") else " and positive"
    return f"Nothing to draw: no value is finite{positive}."


def _visible(line: dict, figure: dict) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """The points a plot can show: finite, and positive on a logarithmic axis; with their errors where there are any."""
    x, y = (np.array([np.nan if value is None else value for value in line[key]], float) for key in ("x", "y"))
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
    writer.writerow(["line", figure["x_label"], figure["y_label"]])
    for line in figure["lines"]:
        writer.writerows((line["label"], x, y) for x, y in zip(line["x"], line["y"], strict=True))
    write_bytes(path, buffer.getvalue().encode())
