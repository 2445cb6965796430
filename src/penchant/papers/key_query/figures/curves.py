"""What the figures of the key-query studies share: runs recorded by margin, norms at margin 1, and curves against margin or time."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ....exhibits import DEFINITIONS, Figure, Line
from ....flow.flow import GradientFlow, Levels
from ....norms import Norm
from ....references.base import Solution
from ....settings.base import Setting
from ....theory.certificates import certificates
from ....training.events import MarginAbove
from ....training.train import train
from ....training.trajectory import Trajectory

PAPER = "kq_attention"
STEPS = 10_000
Progress = Callable[[str], None]
Programs = dict[str, tuple[Solution, Norm]]
DEFINED = {
    **DEFINITIONS,
    "nuclear norm": "sum of the singular values of W",
    "excess": "norm at margin 1 (norm / margin) over its minimum, minus 1; 0 at the solution of that norm's program",
    "accumulated, window, instant": "lower bounds from the multipliers gathered since the start, since margin^0.8, and at this moment",
}


def levels(top: float) -> Levels:
    return Levels("margin", np.geomspace(1.0, top, int(4 * np.log10(top)) + 1)[:-1])


def flow_to(setting: Setting, start: Any, top: float) -> Trajectory:
    return train(setting, GradientFlow(), start, until=MarginAbove(top), steps=STEPS, recorder=levels(top))


def late(run: Trajectory) -> list[int]:
    """Records with a positive margin and a time."""
    return [int(k) for k in np.flatnonzero((run.smallest_margin() > 0) & np.isfinite(run.log_time))]


def singular_values(run: Trajectory) -> np.ndarray:
    """Singular values of W / margin at the records with a positive margin."""
    margin = run.smallest_margin()
    return np.array([np.linalg.svd(run.weight(k) / margin[k], compute_uv=False) for k in late(run)])


def shown(values: np.ndarray) -> np.ndarray:
    """Values on a logarithmic axis, rounding included."""
    return np.maximum(values, 1e-16)


def excesses(run: Trajectory, value: float, norm: Norm) -> np.ndarray:
    margin = run.smallest_margin()
    return np.array([norm.value(run.weight(k)) / margin[k] / value - 1 for k in late(run)])


def certificate_figure(name: str, run: Trajectory, norm: Norm, reference: Solution) -> Figure:
    found, records = certificates(run, norm), late(run)
    margin = found.margin[records]
    lower = lambda kind: np.maximum(1 - getattr(found, kind)[records] / reference.value, 1e-16)
    lines = tuple(Line(f"1 - {kind} / optimum", margin, lower(kind)) for kind in ("accumulated", "window", "instant"))
    return Figure(
        f"certificates-{name}",
        "Each run certifies itself",
        "margin",
        "relative distance from the optimum",
        (
            Line("norm / margin / optimum - 1", margin, np.maximum(found.upper[records] / reference.value - 1, 1e-16)),
            *lines,
        ),
        "Upper and lower bounds on the best norm from the run's own weights and multipliers; the optimum is used for the plot only.",
        "log",
        "log",
    )


def paths_figure(name: str, run: Trajectory, title: str) -> Figure:
    values, time = singular_values(run), run.log_time[late(run)]
    shown = range(min(values.shape[1], 6))
    lines = tuple(Line(f"singular value {k + 1}", time, np.maximum(values[:, k], 1e-16)) for k in shown)
    return Figure(
        f"singular-values-{name}",
        title,
        "log t",
        "singular values of W / margin",
        lines,
        "Log t is the natural logarithm of physical time.",
        "log",
        "log",
    )


def inverse_gap_figure(run: Trajectory, norm: Norm, reference: Solution) -> Figure:
    """A straight line against log margin: the gap of gathered multipliers closes like its inverse."""
    found, records = certificates(run, norm), late(run)
    x = np.log(found.margin[records])
    gap = reference.value / (found.upper - found.accumulated)[records]
    decades = x >= np.log(99.0)
    line = np.polyfit(x[decades], gap[decades], 1)
    fitted = Line(f"{line[1]:.3f} + {line[0]:.3f} log margin", x, np.polyval(line, x), "prediction")
    caption = "Optimum over (upper - accumulated bound); the line is fitted from margin 1e2 on."
    title = "The gap of gathered multipliers closes like 1/log margin"
    return Figure("inverse-gap", title, "log margin", "optimum / gap", (Line("run", x, gap), fitted), caption)


def clock_figure(runs: dict[str, Trajectory], rates: dict[str, Callable[[np.ndarray], np.ndarray]]) -> Figure:
    """log t against the margin, and -log(L - L*) - log r, which it tends to; `rates` give r by the margin."""
    lines = []
    for name, run in runs.items():
        records = late(run)
        margin, time = run.smallest_margin()[records], run.log_time[records]
        lines.append(Line(f"flow on {name}", margin, time))
        lines.append(
            Line(
                f"flow on {name}, late clock",
                margin,
                -run.log_excess[records] - np.log(rates[name](margin)),
                "prediction",
            )
        )
    kept = tuple(Line(line.label, line.x[line.y > 0], line.y[line.y > 0], line.style) for line in lines)
    caption = "Time grows like e^margin; dashed: 1/(r (L - L*)) with r = 2 margin / N for K and Q and 1/N^2 for W."
    return Figure("clock", "The clock", "margin", "log t", kept, caption, "log", "log")


def distance_figure(runs: dict[str, Trajectory], programs: Programs) -> Figure:
    """Relative distance of W / margin to each program's solution."""
    lines = []
    for name, run in runs.items():
        records = late(run)
        margin = run.smallest_margin()[records]
        for label, (found, _) in programs.items():
            size = np.linalg.norm(found.weight)
            apart = [
                np.linalg.norm(run.weight(k) / m - found.weight) / size for k, m in zip(records, margin, strict=True)
            ]
            lines.append(Line(f"flow on {name} to {label}", margin, shown(np.array(apart))))
    caption = "|W/margin - W*| / |W*| for the solution W* of each norm. Values close long before directions where a solution is flat."
    return Figure("distances", "Distance to each solution", "margin", "distance", tuple(lines), caption, "log", "log")
