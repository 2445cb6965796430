"""What the key-query studies share: flows recorded four times a decade, norms at margin 1, and curves against margin or time."""

import numpy as np

from ....exhibits import DEFINITIONS, Figure, Line, log_figure
from ....norms import Norm
from ....references.base import Solution
from ....settings.base import Setting
from ....theory.certificates import KINDS, certificates
from ....training.trajectory import Trajectory
from ..evidence import flow_to

DEFINED = {
    **DEFINITIONS,
    "nuclear norm": "sum of the singular values of W",
    "excess": "norm at margin 1 (norm / margin) over its minimum, minus 1; 0 at the solution of that norm's program",
    "accumulated, window, instant": "lower bounds from the multipliers gathered since the start, since margin^0.8, and at this moment",
}


def path_to(setting: Setting, start: object, top: float = 1e6) -> Trajectory:
    return flow_to(setting, start, top, tuple(np.geomspace(1.0, top, int(4 * np.log10(top)) + 1)[:-1]))


def late(run: Trajectory) -> list[int]:
    """Records with a positive margin and a time."""
    return [int(k) for k in np.flatnonzero((run.smallest_margin() > 0) & np.isfinite(run.log_time))]


def curve(label: str, x: np.ndarray, y: np.ndarray, style: str = "line") -> Line:
    """A line on a logarithmic axis, rounding included."""
    return Line(label, x, np.maximum(y, 1e-16), style)


def excess_line(label: str, run: Trajectory, value: float, norm: Norm) -> Line:
    """The excess against the margin."""
    margin = run.smallest_margin()
    excesses = np.array([norm.value(run.weight(k)) / margin[k] / value - 1 for k in late(run)])
    return curve(label, margin[late(run)], excesses)


def distances(run: Trajectory, target: np.ndarray) -> np.ndarray:
    """Relative distance of W / margin to a solution, at the late records."""
    gaps = np.array([run.weight(k) / run.smallest_margin()[k] - target for k in late(run)])
    return np.linalg.norm(gaps, axis=tuple(range(1, gaps.ndim))) / np.linalg.norm(target)


def certificate_figure(name: str, run: Trajectory, norm: Norm, reference: Solution) -> Figure:
    found, records = certificates(run, norm), late(run)
    margin, value = found.margin[records], reference.value
    lines = [curve(f"1 - {kind} / optimum", margin, 1 - getattr(found, kind)[records] / value) for kind in KINDS]
    caption = "Upper and lower bounds on the best norm from the run's own weights and multipliers; the optimum is used for the plot only."
    upper = curve("norm / margin / optimum - 1", margin, found.upper[records] / value - 1)
    axes = "margin", "relative distance from the optimum"
    return log_figure(f"certificates-{name}", "Each run certifies itself", *axes, (upper, *lines), caption)


def paths_figure(name: str, run: Trajectory, title: str) -> Figure:
    margin, time = run.smallest_margin(), run.log_time[late(run)]
    values = np.array([np.linalg.svd(run.weight(k) / margin[k], compute_uv=False) for k in late(run)])
    lines = [curve(f"singular value {k + 1}", time, values[:, k]) for k in range(min(values.shape[1], 6))]
    caption = "Log t is the natural logarithm of physical time."
    return log_figure(f"singular-values-{name}", title, "log t", "singular values of W / margin", lines, caption)
