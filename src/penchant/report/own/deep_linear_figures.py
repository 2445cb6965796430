"""Figures of a deep linear network on the user's own data: layers, offset, sandwich and drift against the risk level, and time, and steps."""

import numpy as np

from ...diagnostics.alignment import Alignment, alignments, conservation_drift, sandwich
from ...exhibits import Figure, Line
from ...theory.base import Prediction
from ...theory.layer_constants import NetworkConstants, network_constants
from ...training.trajectory import Trajectory


def figures(run: Trajectory, prediction: Prediction) -> tuple[Figure, ...]:
    """Everything that the laws speak about, along the run."""
    found, constants = alignments(run), network_constants(run.setting, run.at(0), prediction.reference)
    against_level = (*_layers(run, found), _offset(run, constants), _sandwich(run, prediction))
    return (*against_level, *_drift(run), *_times(run, found, constants), *_steps(run))


def _line(run: Trajectory, label: str, values: np.ndarray, style: str = "line") -> Line:
    """Against the risk level, on a logarithmic axis that begins where the risk is below 1."""
    level = -run.log_excess
    return Line(label, level[level > 0], np.asarray(values)[level > 0], style)


def _layers(run: Trajectory, found: Alignment) -> tuple[Figure, ...]:
    depth, pairs = found.deficit.shape[1], found.misfit.shape[1]
    ratios = tuple(_line(run, f"layer {k + 1}", found.deficit[:, k]) for k in range(depth))
    drawn = (
        Figure("ratios", "Layers tend to rank one", "-log R", "1 - ratio", ratios, "One line per layer.", "log", "log"),
    )
    if not pairs:
        return drawn
    fits = tuple(_line(run, f"layers {k + 1}, {k + 2}", found.misfit[:, k]) for k in range(pairs))
    text = "Of the top singular vectors of adjacent layers."
    return (*drawn, Figure("alignment", "Adjacent layers align", "-log R", "1 - |<v, u>|", fits, text, "log", "log"))


def _offset(run: Trajectory, constants: NetworkConstants) -> Figure:
    """The length of the offset, and its limit where the loss has one."""
    unit = constants.geometry.direction
    weights = np.stack([run.weight(k) for k in range(len(run))])
    lengths = np.linalg.norm(weights - np.outer(weights @ unit, unit), axis=1)
    lines, wanted = [_line(run, "run", lengths)], float(np.linalg.norm(constants.offset))
    if np.isfinite(wanted):
        lines.append(_line(run, "predicted", np.full(len(run), wanted), "prediction"))
    text = "Length of the part of the weight orthogonal to the maximum margin."
    if not constants.geometry.spans:
        text += " The support vectors do not span: the prediction is for the part inside their span, the rest grows."
    return Figure("offset", "Offset", "-log R", "|w - <w, u> u|", tuple(lines), text, "log")


def _sandwich(run: Trajectory, prediction: Prediction) -> Figure:
    lower, upper = sandwich(run)
    best = np.full(len(run), prediction.reference.margin)
    lines = (
        _line(run, "lower", lower),
        _line(run, "upper", upper),
        _line(run, "best possible", best, "prediction"),
    )
    text = "Of the product of the layers."
    return Figure("sandwich", "Margin sandwich", "-log R", "margin / norm", lines, text, "log")


def _drift(run: Trajectory) -> tuple[Figure, ...]:
    if run.setting.parametrisation.depth == 1:
        return ()
    lines = (_line(run, "run", conservation_drift(run)),)
    text = "0 for the exact flow."
    return (Figure("drift", "Conservation drift", "-log R", "spectral norm", lines, text, "log", "log"),)


def _times(run: Trajectory, found: Alignment, constants: NetworkConstants) -> tuple[Figure, ...]:
    """Risk level and ratios against log t; the law of time holds where the loss has an exponential tail."""
    late = np.isfinite(run.log_time) & (run.log_excess < 0)
    time, level = run.log_time[late], -run.log_excess[late]
    lines, text = [Line("run", time, level)], "Physical time; for descent, the sum of the step sizes."
    if np.isfinite(constants.tail):
        power = 2 - 2 / constants.depth
        lines.append(Line("law", level - 2 * run.log_slope[late] + np.log1p(power / level), level, "prediction"))
        text += " The law is t = (1 + (2 - 2/L) / (-log R)) / (R |grad log R|^2), exact as the risk falls."
    ratios = tuple(Line(f"layer {k + 1}", time, found.deficit[late, k]) for k in range(constants.depth))
    scale = "log" if len(time) and time[-1] > 100 else "linear"
    kept = time > 0 if scale == "log" else time > -np.inf
    ratios = tuple(Line(line.label, line.x[kept], line.y[kept]) for line in ratios)
    return (
        Figure("level-time", "Risk level against log time", "log t", "-log R", tuple(lines), text),
        Figure("ratios-time", "Ratios against log time", "log t", "1 - ratio", ratios, "As above.", scale, "log"),
    )


def _steps(run: Trajectory) -> tuple[Figure, ...]:
    """What descent keeps of its steps."""
    account = run.account or {}
    if "traces" not in account:
        return ()
    step = np.maximum(run.steps, 1)[1:]
    traces = account["traces"][1:]
    lines = tuple(Line(f"layer {k + 1}", step, traces[:, k]) for k in range(traces.shape[1]))
    series = lambda name: (Line("run", step, account[name][1:]),)
    return (
        Figure("steps", "Step size", "step", "log of the step", series("log_step"), "Natural logarithm of eta.", "log"),
        Figure("traces", "Traces of the steps", "step", "trace", lines, "One line per layer.", "log", "log"),
        Figure(
            "violation",
            "Descent inequality",
            "step",
            "largest violation so far",
            series("violation"),
            "In log R; negative means that every step descended more than promised.",
            "log",
        ),
    )
